"""AdamW on masters whose step is in integers."""

from collections.abc import Mapping

import numpy as np

from gradloom.program.descent import AdamW
from gradloom.rtl.formats.tiles.codes import WIDE, coded, spread
from gradloom.rtl.formats.weights.linear import MASTER
from gradloom.rtl.formats.weights.tiles import fraction_bits
from gradloom.sim.reference.update import adamw

from ..commands.base import Rule

__all__ = ["IntegerDescent", "fraction_of", "rules_of"]

#: Bits of a master that learning may fill.
_SPARE = 3
#: Bits of a gradient's word, of which its code has the upper.
_GRADIENT = 24

Matrices = Mapping[str, np.ndarray]


def fraction_of(values: np.ndarray) -> int:
    """Fraction bits of masters that begin as ``values`` do."""
    return fraction_bits(values, MASTER.width, headroom=_SPARE)


def rules_of(rule: AdamW, values: Matrices) -> dict[str, Rule]:
    """How weights learn that begin as ``values``, each with fraction bits of its own.

    A matrix B of zeros has the room of its A's first values.
    """
    return {
        name: Rule(rule, fraction_of(x if x.any() else values.get(name.replace(".lora_B.", ".lora_A."), x)))
        for name, x in values.items()
    }


class IntegerDescent:
    """The update engine's AdamW on masters of 32 bits.

    ``clipped``: words that were clipped in the last step.
    """

    def __init__(self, rules: Mapping[str, Rule]) -> None:
        self.rules = rules
        self.steps = self.clipped = 0
        self.moments: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    def begun(self, name: str, matrix: np.ndarray) -> np.ndarray:
        """A matrix as masters hold it."""
        fraction = self.rules[name].fraction
        made: np.ndarray = np.rint(np.asarray(matrix, np.float64) * 2.0**fraction) * 2.0**-fraction
        return made

    def __call__(self, held: Matrices, gradients: Matrices) -> dict[str, np.ndarray]:
        """All matrices after one more step."""
        self.steps += 1
        self.clipped = 0
        return {name: self._moved(name, x, gradients[name]) for name, x in held.items()}

    def _moved(self, name: str, x: np.ndarray, g: np.ndarray) -> np.ndarray:
        rule = self.rules[name]
        words = np.rint(x * 2.0**rule.fraction).astype(np.int64)
        m, v = self.moments.get(name, (np.zeros_like(words), np.zeros_like(words)))
        wide = coded(g, WIDE)
        operands: dict = rule.rule.operands(self.steps, 0, rule.fraction)
        # A gradient's word has the code in its upper bits.
        grades = operands["gradient"] + spread(wide.exponents, g.shape) - (_GRADIENT - WIDE)
        codes = wide.codes.astype(np.int64) << _GRADIENT - WIDE
        new, m, v, lost = adamw(words, codes, m, v, **operands | {"gradient": grades})
        self.moments[name] = m, v
        self.clipped += lost
        made: np.ndarray = new * 2.0**-rule.fraction
        return made
