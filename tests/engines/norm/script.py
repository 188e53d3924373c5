"""Steps of a bench of the norm engine, and what its model says of them."""

from dataclasses import dataclass

import numpy as np

from gradloom.rtl.engines.norm.parameters import NormParameters
from gradloom.rtl.formats.norm import EPS, NormOpcode, constant
from gradloom.rtl.formats.tile_codes import NARROW, WIDE
from gradloom.rtl.formats.tile_records import BEAT, TileRecord, tile_argument
from gradloom.sim.bench.engine import FENCE, Command, Load, Store
from gradloom.sim.reference.norm import NormModel

__all__ = ["CONFIG", "EPS_OPERANDS", "Script", "beats_of", "factor_operands", "sizes"]


@dataclass(frozen=True, kw_only=True)
class _Config(NormParameters):
    """The engine alone."""

    data_bits = 128


CONFIG = _Config()


def factor_operands(value, bits=17):
    mantissa, exponent = constant(value, bits)
    return {"mantissa": mantissa, "exponent": exponent}


EPS_OPERANDS = factor_operands(1e-5, EPS)


def sizes(operands):
    """Operands of a command: rows, features and tiles less 1."""
    return {name: value - (name in ("rows", "features", "tiles")) for name, value in operands.items()}


def beats_of(content):
    return [int.from_bytes(content[at : at + BEAT], "little") for at in range(0, len(content), BEAT)]


class Script:
    """Each step goes to the bench and to the model."""

    def __init__(self, seed=0, config=CONFIG):
        self.model = NormModel(config)
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

    def fence(self):
        self.steps.append(FENCE)
        return self

    def run(self, opcode, **operands):
        operands = sizes(operands)
        self.model.run(opcode, operands)
        self.steps.append(Command(NormOpcode(opcode), operands))
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
