"""AdamW on the masters of adapters whose step is in integers."""

import numpy as np

from gradloom.models.adapters.lora import Adapter
from gradloom.program.descent import AdamW
from gradloom.rtl.formats.linear import MASTER
from gradloom.rtl.formats.tile_codes import EDGE, WIDE, coded
from gradloom.rtl.formats.tiles import fraction_bits
from gradloom.sim.reference.update import adamw

from .mathematics import Factors, Gradients

__all__ = ["IntegerDescent"]

#: Bits of a master that learning may fill.
_SPARE = 3
#: Bits of a gradient's word, of which its code has the upper.
_GRADIENT = 24


class IntegerDescent:
    """The update engine's AdamW on masters of 32 bits.

    ``clipped``: words that were clipped in the last step.
    """

    def __init__(self, rate: float) -> None:
        self.rule = AdamW(lr=rate)
        self.steps = self.clipped = 0
        self.fractions: dict[tuple[str, str], int] = {}
        self.moments: dict[tuple[str, str], tuple[np.ndarray, np.ndarray]] = {}

    def begun(self, adapters: Factors) -> dict[str, Adapter]:
        """The adapters as masters hold them.

        Every matrix gets its fraction bits, once and for all.
        """
        made = {}
        for layer, each in adapters.items():
            parts = {}
            for part, x in each.parts.items():
                x = x.astype(np.float64)
                # A matrix of zeros has the room of A's first values.
                size = x if x.any() else each.a
                fraction = fraction_bits(np.asarray(size), MASTER.width, headroom=_SPARE)
                self.fractions[layer, part] = fraction
                parts[part] = np.rint(x * 2.0**fraction) * 2.0**-fraction
            made[layer] = each.taking(parts)
        return made

    def __call__(self, adapters: Factors, gradients: Gradients) -> dict[str, Adapter]:
        """The adapters after one more step.

        ``adapters``: from :meth:`begun`, or from the step before.
        """
        self.steps += 1
        self.clipped = 0
        return {
            layer: each.taking({part: self._moved(layer, part, each, g) for part, g in zip("ab", both)})
            for layer, each in adapters.items()
            for both in [gradients[layer]]
        }

    def _moved(self, layer: str, part: str, adapter: Adapter, g: np.ndarray) -> np.ndarray:
        key = (layer, part)
        fraction = self.fractions[key]
        words = np.rint(adapter.parts[part].astype(np.float64) * 2.0**fraction).astype(np.int64)
        m, v = self.moments.get(key, (np.zeros_like(words), np.zeros_like(words)))
        wide = coded(g, WIDE)
        exponents = wide.exponents.repeat(EDGE, axis=0)[: g.shape[0]].repeat(EDGE, axis=1)[:, : g.shape[1]]
        operands: dict = self.rule.operands(self.steps, 0, fraction)
        # A gradient's word has the code in its upper bits.
        grades = operands["gradient"] + exponents - (_GRADIENT - WIDE)
        codes = wide.codes.astype(np.int64) << _GRADIENT - WIDE
        new, m, v, lost = adamw(words, codes, m, v, **operands | {"gradient": grades})
        self.moments[key] = m, v
        self.clipped += lost
        made: np.ndarray = new * 2.0**-fraction
        return made
