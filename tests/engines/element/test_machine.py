"""Programs on a machine of the element engine alone: every byte of memory, and every command's cycles."""

import numpy as np
import pytest

from gradloom.program.placed import PlacedProgram
from gradloom.rtl.formats.tiles.codes import NARROW, WIDE
from gradloom.rtl.formats.tiles.element import ElementOpcode as Op
from gradloom.rtl.formats.tiles.records import TileRecord, tile_argument
from gradloom.rtl.formats.tiles.tables import FIXED_TABLES
from gradloom.rtl.shell.engines import CONTROL
from gradloom.rtl.shell.signature import ControlOpcode
from gradloom.sim.reference.element import ElementModel
from gradloom.sim.run.machine import MachineRunner
from gradloom.sim.time.element import ElementTime
from gradloom.sim.time.forecast import MODELS

from ..forwarding import CONFIG
from .script import Script

_LOADED, _DONE = 1, 2


class Program(PlacedProgram):
    """Every opcode on tiles of random sizes; loads and stores go on beside commands, words wait for theirs."""

    def __init__(self, seed, count):
        super().__init__(CONFIG)
        self.rng, self.model = np.random.default_rng(seed), ElementModel(CONFIG)
        self.results = []
        self.script, self.tables = Script(seed), FIXED_TABLES
        for number in range(count):
            self._step(Op(number % len(Op)), number % 2)
            if number % 2:
                self.add(CONTROL, ControlOpcode.FENCE)
        self.end()

    def _place(self, content):
        return self.put(np.frombuffer(content, "<i4"))

    def _step(self, opcode, half):
        side = int(self.rng.integers(0, 4)) if opcode == Op.SQUARES else 0
        rows, features = int(self.rng.integers(1, 65)), int(self.rng.integers(1, 65))
        if opcode == Op.SQUARES:
            rows = max(rows >> side << side, 1 << side)
        more = {
            "features": features - 1,
            "rows": rows - 1,
            "fresh": 1,
            "mantissa": 99999,
            "exponent": -21,
            "split": 1,
            "o": half,
            "positive": int(self.rng.integers(0, 2)),
        }
        if opcode == Op.FUNCTION:
            # Each of the six forms, a fixed table or one that this program wrote: tables outlive programs.
            ends = {"table": self.tables, "gate": 2, "times": 3, "mirror": 4, "range": 8}
            more |= {name: int(self.rng.integers(0, end)) for name, end in ends.items()}
        if opcode == Op.TABLE:
            for table in (self.tables, self.tables + 1):
                words = self.rng.integers(0, 1 << 30, (64, 8)).astype("<u4").view("<i4")
                more |= {"rows": 63, "table": table}
                self.model.load("words", 0, words.tobytes())
                self.model.run(opcode, more)
                self.load(self._place(words.tobytes()), "element", "words")
                self.do("element", opcode, **more)
            self.tables += 2
            return
        if opcode == Op.WORDS:
            words = np.zeros((rows, -(-features // 8) * 8), "<i4")
            words[:, :features] = self.rng.integers(-(1 << 31), 1 << 31, (rows, features))
            place = self._place(words.tobytes())
            self.model.load("words", 0, words.tobytes())
            # The command may be there first.
            self.load(place, "element", "words")
            self.model.run(opcode, more)
            self.do("element", opcode, post=(_DONE,), **more)
        else:
            tiles = -(-4 * rows // 64) if opcode == Op.SQUARES else 1
            for port in "abc"[: 1 if opcode == Op.SQUARES else 3]:
                whole = 64 if opcode == Op.SQUARES else rows
                record = TileRecord(whole, features, WIDE)
                content = b"".join(
                    record.pack(self.script.codes(whole, features), int(self.rng.integers(-16, -8)))
                    for _ in range(tiles)
                )
                argument = tile_argument(4 * half, whole, features)
                self.model.load(port, argument, content)
                last = port == "c" or opcode == Op.SQUARES
                self.load(self._place(content), "element", port, arg=argument, post=(_LOADED,) if last else ())
            slots = {"a": 4 * half, "b": 4 * half, "c": 4 * half, "side": side}
            self.model.run(opcode, more | slots)
            self.do("element", opcode, wait=(_LOADED,), post=(_DONE,), **more, **slots)
        for wide in (True, False):
            record = TileRecord(rows, features, WIDE if wide else NARROW)
            argument = tile_argument(half, rows, features, wide=wide)
            place = self.room(record.size // 4)
            self.results.append((place, self.model.store("o", argument, record.beats)))
            self.store(place, "element", "o", arg=argument, wait=(_DONE,) if wide else ())


@pytest.mark.parametrize(
    "memory",
    [
        {},
        {"read_latency": 3, "write_latency": 1},
        {"read_latency": 150, "write_latency": 600},
        {"read_latency": 90, "port_reads": 3},
    ],
    ids=str,
)
def test_memory_and_cycles_are_those_of_the_models(monkeypatch, memory):
    monkeypatch.setitem(MODELS, "element", ElementTime)
    programs = [Program(seed, 2 * len(Op)) for seed in range(3)]
    with MachineRunner.simulated(CONFIG, timing=memory) as machine:
        for program in programs:
            ran = machine.run(program)
            for place, expected in program.results:
                assert machine.read(place.offset, place.length) == expected
            ran.check(saturated=program.model.saturated, underflowed=program.model.underflowed)
