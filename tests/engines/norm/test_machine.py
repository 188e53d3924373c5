"""Programs on a machine of the norm engine alone: every byte of memory, and every command's cycles."""

import numpy as np
import pytest

from gradloom.program.placed import PlacedProgram
from gradloom.rtl.formats.tiles.codes import NARROW, WIDE
from gradloom.rtl.formats.tiles.norm import NormOpcode as Op
from gradloom.rtl.formats.tiles.records import TileRecord, tile_argument
from gradloom.rtl.shell.engines import CONTROL
from gradloom.rtl.shell.signature import ControlOpcode
from gradloom.sim.reference.norm import NormModel
from gradloom.sim.run.machine import MachineRunner
from gradloom.sim.time.forecast import MODELS, forecast
from gradloom.sim.time.norm import NormTime

from ...deep import deep
from ..forwarding import CONFIG
from .machine import NormConfig
from .script import EPS_OPERANDS, Script, factor_operands, sizes

_LOADED, _DONE = 1, 2


class Program(PlacedProgram):
    """Norms by group and by row, and softmaxes, on tiles of random sizes; loads and stores go on beside commands."""

    def __init__(self, seed, count, *, config=CONFIG, end=True):
        super().__init__(config)
        self.rng, self.model, self.script = np.random.default_rng(seed), NormModel(config), Script(seed)
        self.results = []
        for number in range(count):
            (self._norm, self._softmax, self._rows)[number % 3]()
            self.add(CONTROL, ControlOpcode.FENCE)
        if end:
            self.end()

    def _tiles(self, rows, features, tiles=1, low=-16, high=-8, positive=False):
        """Records one behind another, and their shape."""
        record = TileRecord(rows, features, WIDE)
        exponents = self.rng.integers(low, high, tiles)
        codes = [self.script.codes(rows, features) for _ in exponents]
        return (
            rows,
            features,
            b"".join(record.pack(abs(x) if positive else x, int(e)) for x, e in zip(codes, exponents)),
        )

    def _fill(self, port, slot, tiles, *, last=False):
        """One LOAD; commands wait for the ``last`` of some."""
        rows, features, content = tiles
        argument = tile_argument(slot, rows, features)
        self.model.load(port, argument, content)
        place = self.put(np.frombuffer(content, "<i4"))
        self.load(place, "norm", port, arg=argument, post=(_LOADED,) if last else ())

    def _do(self, opcode, *, waits=False, tells=False, **operands):
        operands = sizes(operands)
        self.model.run(opcode, operands)
        self.do("norm", opcode, wait=(_LOADED,) if waits else (), post=(_DONE,) if tells else (), **operands)

    def _keep(self, slot, rows, features):
        for wide in (True, False):
            record = TileRecord(rows, features, WIDE if wide else NARROW)
            argument = tile_argument(slot, rows, features, wide=wide)
            place = self.room(record.size // 4)
            self.results.append((place, self.model.store("o", argument, record.beats)))
            self.store(place, "norm", "o", arg=argument, wait=(_DONE,) if wide else ())

    def _norm(self):
        rng, by_row = self.rng, int(self.rng.integers(0, 2))
        tiles = 1 << int(rng.integers(0, 4))
        features = 1 << int(rng.integers(0, 7))
        group = int(rng.integers(0, features.bit_length()))
        rows = int(rng.integers(1, 65)) if by_row else 1 << int(rng.integers(0, 7))
        x = self._tiles(rows, features, tiles)
        self._fill("a", 0, x)
        gains = self._tiles(1, features, tiles)
        self._fill("gain", 2, gains)
        self._fill("gain", 31, self._tiles(1, features), last=True)
        place = {"rows": rows, "features": features}
        self._do(Op.SUMS, waits=True, a=0, tiles=tiles, by_row=by_row, group=group, **EPS_OPERANDS, **place)
        last = tiles - 1
        gain = 2 + last * by_row
        self._do(Op.NORM, tells=True, a=last, o=0, gain=gain, bias=31, fresh=1, **place)
        self._keep(0, rows, features)
        self.add(CONTROL, ControlOpcode.FENCE)
        self._fill("b", 1, self._tiles(rows, features, tiles), last=True)
        self._do(Op.BACK_SUMS, waits=True, a=0, b=1, tiles=tiles, gain=2, **place)
        self._do(Op.BACK, tells=True, a=last, b=last + 1, o=1, gain=gain, fresh=1, **place)
        self._keep(1, rows, features)

    def _softmax(self):
        rows, keys = (int(n) for n in self.rng.integers(1, 65, 2))
        self._fill("a", 15, self._tiles(rows, keys))
        self._fill("a", 3, self._tiles(rows, keys, positive=True, high=-10))
        self._fill("b", 14, self._tiles(rows, keys), last=True)
        place = {"rows": rows, "features": keys, "fresh": 1}
        self._do(Op.SOFTMAX, waits=True, tells=True, a=15, o=2, **place, **factor_operands(0.2))
        self._keep(2, rows, keys)
        self._do(Op.SOFTMAX_BACK, tells=True, a=3, b=14, o=3, **place, **factor_operands(0.2))
        self._keep(3, rows, keys)

    def _rows(self):
        """Of several tiles, in two commands or three."""
        rng = self.rng
        rows, keys, tiles = int(rng.integers(1, 65)), int(rng.integers(1, 65)), int(rng.integers(2, 6))
        first = int(rng.integers(1, tiles))
        for port, slot, rule in (("a", 0, {}), ("a", 8, {"positive": True, "high": -10}), ("b", 3, {})):
            self._fill(port, slot, self._tiles(rows, 64, tiles, **rule), last=port == "b")
        parts = ({"tiles": first, "features": 64}, {"tiles": tiles - first, "features": keys, "more": 1})
        factor, place = factor_operands(0.2), {"rows": rows, "features": keys, "fresh": 1}
        least = {"exponent": int(rng.integers(0, 16)), "first": int(rng.integers(0, keys))}
        for opcode, slots, more in (
            (Op.LARGEST, {"a": 0}, {}),
            (Op.POWERS, {"a": 0}, factor),
            (Op.PULLS, {"a": 8, "b": 3}, least),
        ):
            for n, part in enumerate(parts):
                moved = {name: slot + n * first for name, slot in slots.items()}
                self._do(opcode, waits=opcode == Op.LARGEST and n == 0, rows=rows, **part, **moved, **more)
            if opcode == Op.POWERS:
                self._do(Op.SHARES, tells=True, a=tiles - 1, o=2, **place, **factor)
                self._keep(2, rows, keys)
        self._do(Op.SOFT_BACK, tells=True, a=8, b=3, o=3, **place, **factor)
        self._keep(3, rows, keys)


class Largest(Program):
    """A group of 2**15 values, forward and back: half of them the largest and half the least, or one of them."""

    def __init__(self, one):
        super().__init__(0, 0, end=False)
        whole = np.full((8 * 64, 64), -32767)
        whole.flat[: 1 if one else len(whole) * 32] = 32767
        record = TileRecord(64, 64, WIDE)
        tiles = 64, 64, b"".join(record.pack(each, -14) for each in whole.reshape(8, 64, 64))
        ends = (1, 64, TileRecord(1, 64, WIDE).pack(np.full((1, 64), 32767), -15))
        for port, slot in (("a", 0), ("b", 0), ("gain", 0)):
            self._fill(port, slot, ends if port == "gain" else tiles, last=port == "gain")
        place = {"rows": 64, "features": 64}
        self._do(Op.SUMS, waits=True, a=0, tiles=8, group=6, **EPS_OPERANDS, **place)
        self._do(Op.NORM, tells=True, a=0, o=0, gain=0, bias=0, fresh=1, **place)
        self._keep(0, 64, 64)
        self._do(Op.BACK_SUMS, a=0, b=0, tiles=8, gain=0, **place)
        self._do(Op.BACK, tells=True, a=0, b=0, o=1, gain=0, fresh=1, **place)
        self._keep(1, 64, 64)
        self.end()


def same(programs, memory):
    with MachineRunner.simulated(programs[0].config, timing=memory) as machine:
        for program in programs:
            ran = machine.run(program)
            for place, expected in program.results:
                assert machine.read(place.offset, place.length) == expected
            ran.check(saturated=program.model.saturated, underflowed=program.model.underflowed)


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
    monkeypatch.setitem(MODELS, "norm", NormTime)
    same([Program(seed, 12) for seed in range(3)], memory)


@pytest.mark.parametrize("lanes", [pytest.param(4, marks=deep), 8])
def test_fewer_lanes_take_more_cycles(monkeypatch, lanes):
    """Memory is the same; of 4 lanes a row of an odd number of beats ends in half a beat of results."""
    monkeypatch.setitem(MODELS, "norm", NormTime)
    config = NormConfig(norm_slots=16, norm_lanes=lanes)
    same([Program(seed, 12, config=config) for seed in range(3)], {})
    fewer, more = (forecast(Program(0, 12, config=each)).phases["norm"] for each in (CONFIG, config))
    assert fewer < more < 16 // lanes * fewer


def test_largest_groups_do_not_wrap(monkeypatch):
    monkeypatch.setitem(MODELS, "norm", NormTime)
    programs = [Largest(one) for one in (False, True)]
    assert not any(program.model.saturated for program in programs)
    same(programs, {})
