"""Steps of a bench of the norm engine, and what its model says of them."""

from dataclasses import dataclass

from gradloom.rtl.engines.norm.parameters import NormParameters
from gradloom.rtl.formats.tiles.norm import EPS, NormOpcode, constant
from gradloom.sim.bench.engine import BenchCommand
from gradloom.sim.reference.norm import NormModel

from ..records import RecordScript, beats_of

__all__ = ["CONFIG", "EPS_OPERANDS", "Script", "beats_of", "factor_operands", "sizes"]


@dataclass(frozen=True, kw_only=True)
class _Config(NormParameters):
    """The engine alone."""

    forwards = 0


CONFIG = _Config(norm_slots=8)


def factor_operands(value, bits=17):
    mantissa, exponent = constant(value, bits)
    return {"mantissa": mantissa, "exponent": exponent}


EPS_OPERANDS = factor_operands(1e-5, EPS)


def sizes(operands):
    """Operands of a command: rows, features and tiles less 1."""
    return {name: value - (name in ("rows", "features", "tiles")) for name, value in operands.items()}


class Script(RecordScript):
    """Commands of the norm engine."""

    def __init__(self, seed=0, config=CONFIG):
        super().__init__(NormModel(config), seed)

    def run(self, opcode, **operands):
        operands = sizes(operands)
        self.model.run(opcode, operands)
        self.steps.append(BenchCommand(NormOpcode(opcode), operands))
        return self
