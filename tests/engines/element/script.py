"""Steps of a bench of the element engine, and what its model says of them."""

from dataclasses import dataclass

import numpy as np

from gradloom.rtl.engines.element.parameters import ElementParameters
from gradloom.rtl.formats.element import ElementOpcode
from gradloom.rtl.formats.tile_codes import NARROW, WIDE
from gradloom.rtl.formats.tile_records import BEAT, TileRecord, tile_argument
from gradloom.sim.bench.engine import FENCE, Command, Load, Store
from gradloom.sim.reference.element import ElementModel

__all__ = ["CONFIG", "Script", "beats_of"]


@dataclass(frozen=True, kw_only=True)
class _Config(ElementParameters):
    """The engine alone."""

    data_bits = 128


CONFIG = _Config()


def beats_of(content):
    return [int.from_bytes(content[at : at + BEAT], "little") for at in range(0, len(content), BEAT)]


class Script:
    """Each step goes to the bench and to the model."""

    def __init__(self, seed=0):
        self.model = ElementModel(CONFIG)
        self.rng = np.random.default_rng(seed)
        self.steps, self.expected = [], []

    def codes(self, rows, features, bits=WIDE):
        """Codes of all sizes, the ends and 0 among them."""
        most = (1 << bits - 1) - 1
        codes = self.rng.integers(-most, most + 1, (rows, features)) >> self.rng.integers(0, bits, (rows, features))
        codes.flat[self.rng.integers(0, codes.size, 3)] = most, -most, 0
        return codes

    def load(self, port, slot, codes, exponent):
        rows, features = codes.shape
        content = TileRecord(rows, features, WIDE).pack(codes, exponent)
        argument = tile_argument(slot, rows, features)
        self.model.load(port, argument, content)
        self.steps.append(Load(port, beats_of(content), argument))
        return self

    def words(self, words):
        """Rows of 32-bit words."""
        rows, features = words.shape
        whole = np.zeros((rows, -(-features // 4) * 4), "<i4")
        whole[:, :features] = words
        self.model.load("words", 0, whole.tobytes())
        self.steps.append(Load("words", beats_of(whole.tobytes())))
        return self

    def fence(self):
        self.steps.append(FENCE)
        return self

    def run(self, opcode, rows, features, **operands):
        operands = {"rows": rows - 1, "features": features - 1, **operands}
        self.model.run(opcode, operands)
        self.steps.append(Command(ElementOpcode(opcode), operands))
        return self

    def store(self, slot, rows, features, *, wide=True):
        record = TileRecord(rows, features, WIDE if wide else NARROW)
        argument = tile_argument(slot, rows, features, wide=wide)
        self.expected += beats_of(self.model.store("o", argument, record.beats))
        self.steps += [FENCE, Store("o", record.beats, argument), FENCE]
        return self

    def check(self, bench, **pressure):
        """RTL has the model's words, and its counts."""
        ran = bench.check(*self.steps, words={"o": self.expected}, **pressure)
        assert ran.total("saturated") == self.model.saturated
        assert ran.total("underflowed") == self.model.underflowed
        return ran
