"""Exponents of adapters, chosen again between the steps of a job.

Most tensors of a step are those of a frozen network and keep the exponents of the plan. What learns spans decades: an
adapter's words, its h and dh, and its gradients. Their exponents follow what was measured in memory, so that a
processor beside the machine can choose them; ``firmware/driver/gradloom_steps.c`` does the same.

After the steps that :func:`due` names, a tensor's *reach* is ``bits - frac``: values are below ``2**reach``, and
``bits`` is the length of the largest ``w ^ (w >> 31)``. A reach falls by at most 1 a measurement. Words of all zeros
say nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from gradloom.rtl.formats.weights.linear import ACTIVATION, DOT_GUARD, WEIGHT

from ..base import DROP, SPARE, Fracs, Operation
from ..products import Gradient, Product

__all__ = ["FRACS", "HEADROOM", "REACHES", "ChosenConstants", "Rechosen", "constants", "due", "length"]

#: Tensors of an adapter that have exponents of their own; those behind the words are measured by their reach.
FRACS = ("a", "b", "h", "dh", "ga", "gb")
REACHES = FRACS[2:]
#: Bits to spare in what is measured, of another text and up to 15 steps before.
HEADROOM = 3
#: Steps between two measurements are at most so many, by the power of two, and a quarter of those made.
_LONGEST = 4


def due(done: int) -> bool:
    """Whether exponents are chosen after step ``done``, from 1 on.

    They are after each of the first 7 steps, then less often, and at least after every 16th.
    """
    return done % (1 << max(0, min(_LONGEST, done.bit_length() - 3))) == 0


def length(words: np.ndarray) -> int:
    """Bits of the largest word in two's complement, without the sign."""
    signed = np.asarray(words, np.int64)
    return int(np.max(signed ^ (signed >> 63), initial=0)).bit_length()


@dataclass(frozen=True)
class ChosenConstants:
    """Fraction bits that stay, and that those of an adapter depend on.

    They are those of the linear's input, of its weights, and of its output's gradient.
    """

    x: int
    w: int
    dy: int


def constants(operations: list[Operation], frac: Fracs) -> dict[str, ChosenConstants]:
    """Of each adapter of a step, by its name."""
    weights = {
        each.adapter.name: each.weight_frac(frac) for each in operations if isinstance(each, Product) and each.adapter
    }
    return {
        each.adapter.name: ChosenConstants(frac[each.x.name], weights[each.adapter.name], frac[each.dy.name])
        for each in operations
        if isinstance(each, Gradient)
    }


@dataclass
class Rechosen:
    """Fraction bits and reaches of all adapters of a job.

    Keys are ``NAME.a``, ``NAME.b``, ``NAME.h`` and so on.

    Parameters
    ----------
    constants : mapping
        By adapter.
    frac : dict
        Of the first step.
    reach : dict
        A forecast of what ``h``, ``dh``, ``ga``, ``gb`` reach; values are below ``2**reach``.
    """

    constants: Mapping[str, ChosenConstants]
    frac: dict[str, int]
    reach: dict[str, int] = field(default_factory=dict)

    def after(self, done: int, words: Callable[[str], np.ndarray]) -> None:
        """Chooses exponents after step ``done``, if they are due.

        ``words`` gives those of ``NAME.a`` and ``NAME.b`` behind the update, ``NAME.ga``, ``NAME.gb``, and ``NAME.h``,
        ``NAME.dh`` as gradients see them. Raises :class:`ValueError` where exponents of an adapter lie further apart
        than shifts reach.
        """
        if not due(done):
            return
        for name, given in self.constants.items():
            for which in REACHES:
                bits = length(words(f"{name}.{which}"))
                if bits:
                    bits += DROP if which in ("h", "dh") else 0
                    key = f"{name}.{which}"
                    self.reach[key] = max(bits - self.frac[key], self.reach[key] - 1)
            for which in "ab":
                key = f"{name}.{which}"
                self.frac[key] = _word(length(words(key)), self.frac[key])
            self.choose(name, given)

    def choose(self, name: str, given: ChosenConstants) -> None:
        """Those of ``h``, ``dh`` and gradients, from reaches and the words' own."""
        frac = self.frac
        a, b = frac[f"{name}.a"], frac[f"{name}.b"]
        for which, x, first, second in (("h", given.x, a, b), ("dh", given.dy, b, a)):
            # The product's sum of h, and what a product of h and the other factor is added to.
            self._within(f"{name}.{which}", x + first, given.w + x - second - DOT_GUARD)
        for which, x, hidden in (("ga", given.x, "dh"), ("gb", given.dy, "h")):
            self._within(f"{name}.{which}", x + frac[f"{name}.{hidden}"] - DROP)

    def _within(self, key: str, top: int, least: int | None = None) -> None:
        low = top - 63 if least is None else max(top - 63, least)
        wanted = ACTIVATION.width - 1 - HEADROOM - self.reach[key]
        if low > top:
            raise ValueError(f"{key}: the exponents lie too far apart")
        self.frac[key] = max(low, min(wanted, top))


def _word(bits: int, frac: int) -> int:
    """Fraction bits of an adapter's words, which have a bit to spare.

    Words become finer by two bits or more. So those about a power of two are not moved again and again.
    """
    wanted = frac + SPARE + WEIGHT.width - 2 - bits
    return wanted if bits and (wanted < frac or wanted > frac + 1) else frac
