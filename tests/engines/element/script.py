"""Steps of a bench of the element engine, and what its model says of them."""

from dataclasses import dataclass

import numpy as np

from gradloom.rtl.engines.element.parameters import ElementParameters
from gradloom.rtl.formats.tiles.element import ElementOpcode
from gradloom.sim.bench.engine import BenchCommand, BenchLoad
from gradloom.sim.reference.element import ElementModel

from ..records import RecordScript, beats_of

__all__ = ["CONFIG", "Script", "beats_of"]


@dataclass(frozen=True, kw_only=True)
class _Config(ElementParameters):
    """The engine alone."""

    forwards = 0


CONFIG = _Config()


class Script(RecordScript):
    """Commands of the element engine."""

    def __init__(self, seed=0):
        super().__init__(ElementModel(CONFIG), seed)

    def words(self, words):
        """Rows of 32-bit words."""
        rows, features = words.shape
        whole = np.zeros((rows, -(-features // 8) * 8), "<i4")
        whole[:, :features] = words
        self.model.load("words", 0, whole.tobytes())
        self.steps.append(BenchLoad("words", beats_of(whole.tobytes())))
        return self

    def run(self, opcode, rows, features, **operands):
        operands = {"rows": rows - 1, "features": features - 1, **operands}
        self.model.run(opcode, operands)
        self.steps.append(BenchCommand(ElementOpcode(opcode), operands))
        return self
