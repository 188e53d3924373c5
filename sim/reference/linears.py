"""All linears of a language model in the machine's integers, for a training step."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from gradloom.rtl.formats.blocks import dequantize_scales
from gradloom.rtl.formats.fixed import Fixed, saturate
from gradloom.rtl.formats.linear import ACTIVATION, DOT_GUARD, MASTER, WEIGHT
from gradloom.rtl.formats.weight_stream import BOOKS
from gradloom.rtl.models.lora import Adapter
from gradloom.rtl.models.pack import QuantizedLinear
from gradloom.rtl.plan.linear import Exponents, fraction_bits

from . import linear as reference

__all__ = ["HEADROOM", "IntegerLinears"]

Array = np.ndarray
#: Bits to spare where the last step's tensor decides: the next one may be so much larger.
HEADROOM = 2
#: Bits to spare where the tensor itself does.
_OWN = 1
_SPARE = MASTER.width - WEIGHT.width


@dataclass
class _Linear:
    """A linear's words and their fraction bits, what its tensors reached in steps before, and what
    backward needs."""

    w: Array
    frac: int
    largest: dict[str, float] = field(default_factory=dict)
    at: Exponents | None = None
    x: Array = field(default_factory=lambda: np.zeros(0))
    h: Array = field(default_factory=lambda: np.zeros(0))

    def bits(self, name: str, own: Callable[[], Array]) -> int | None:
        """Fraction bits of a tensor; None if it is all zeros as far as is known."""
        last = self.largest.get(name, 0.0)
        if last:
            return fraction_bits(np.array(last), ACTIVATION.width, headroom=HEADROOM)
        values = own()
        return fraction_bits(values, ACTIVATION.width, headroom=_OWN) if np.any(values) else None


def _settled(x: int, a: int, b: int, w: int, h: int | None, y: int | None) -> tuple[int, int, int]:
    """Fraction bits of x, h and y that a command's shifts can reach; None: zeros, for which any will do."""
    h = x + a if h is None else min(h, x + a)
    # Where the adapter's part dwarfs the base's, x need not be finer than that part is.
    x = min(x, DOT_GUARD + h + b - w)
    return x, min(h, x + a), x + w if y is None else min(y, x + w)


class IntegerLinears:
    """:class:`~gradloom.sim.reference.llama.Linears` by the bit-exact reference: every product, dX, dA and dB.

    Tensors come and go as float32: they are encoded on the way in and decoded on the way out. The exponent of an
    activation or a gradient comes from the largest that the same tensor reached in the steps before, which counts half
    as much with each step, and has :data:`HEADROOM` bits to spare; in the first step, and where all was zero, from the
    tensor itself, computed in float. Weights and adapters have their own.

    Parameters
    ----------
    names : of the linears.
    linear : callable
        The quantised matrix of a name.

    Attributes
    ----------
    saturated : int
        Words that were clipped so far.
    """

    def __init__(self, names: Iterable[str], linear: Callable[[str], QuantizedLinear]) -> None:
        self.saturated = 0
        self._linears = {name: self._decoded(linear(name)) for name in names}

    def exponents(self, name: str) -> Exponents:
        """Of a linear's last step."""
        at = self._linears[name].at
        if at is None:
            raise ValueError(f"{name}: has made no step")
        return at

    def forward(self, name: str, x: Array, adapter: Adapter | None) -> Array:
        """``y [T, out]``."""
        each = self._linears[name]
        a, b, words_a, words_b, frac_a, frac_b = self._adapter(each, adapter)

        def result() -> Array:
            return x @ _floats(each).T + (x @ a.T) @ b.T

        frac_x, frac_h, frac_y = _settled(each.bits("x", lambda: x) or 0, frac_a, frac_b, each.frac,
                                          each.bits("h", lambda: x @ a.T), each.bits("y", result))
        each.at = Exponents(x=frac_x, w=each.frac, a=frac_a, b=frac_b, h=frac_h, y=frac_y, dy=0, dh=0, dx=0, ga=0, gb=0)
        each.x = self._encoded(x, frac_x, ACTIVATION)
        made = reference.product(each.x, each.w, words_a, words_b, **each.at.product(backward=False))
        each.h = made.h
        self.saturated += made.saturated
        return self._noted(each, {"x": (each.x, frac_x), "h": (made.h, frac_h), "y": (made.y, frac_y)})["y"]

    def backward(self, name: str, dy: Array, x: Array,
                 adapter: Adapter | None) -> tuple[Array, tuple[Array, Array] | None]:
        """``(dx, (dA, dB))``, after :meth:`forward` of the same ``x``; the second is None without an adapter."""
        each = self._linears[name]
        a, b, words_a, words_b, frac_a, frac_b = self._adapter(each, adapter)

        def result() -> Array:
            return dy @ _floats(each) + (dy @ b) @ a

        frac_dy, frac_dh, frac_dx = _settled(each.bits("dy", lambda: dy) or 0, frac_b, frac_a, each.frac,
                                             each.bits("dh", lambda: dy @ b), each.bits("dx", result))
        e = replace(self.exponents(name), dy=frac_dy, dh=frac_dh, dx=frac_dx)
        words = self._encoded(dy, frac_dy, ACTIVATION)
        made = reference.product(words, each.w.T, words_b.T, words_a.T, **e.product(backward=True))
        self.saturated += made.saturated
        tensors = {"dy": (words, frac_dy), "dh": (made.h, frac_dh), "dx": (made.y, frac_dx)}
        if adapter is None:
            each.at = e
            return self._noted(each, tensors)["dx"], None
        dropped = ACTIVATION.width - WEIGHT.width
        for which, inner, own in (("ga", frac_dh + e.x, lambda: (dy @ b).T @ x),
                                  ("gb", e.h + frac_dy, lambda: (x @ a.T).T @ dy)):
            bits = each.bits(which, own)
            e = replace(e, **{which: inner - dropped if bits is None else min(bits, inner - dropped)})
        each.at = e
        ga, lost_a = reference.gradient(each.x, made.h, shift=e.gradient("ga"))
        gb, lost_b = reference.gradient(words, each.h, shift=e.gradient("gb"))
        self.saturated += lost_a + lost_b
        found = self._noted(each, tensors | {"ga": (ga, e.ga), "gb": (gb, e.gb)})
        # The factor alpha / rank is in the machine's B.
        return found["dx"], (found["ga"], found["gb"].T * np.float32(adapter.scale))

    def _decoded(self, held: QuantizedLinear) -> _Linear:
        largest = np.abs(dequantize_scales(held.scale_codes, held.absmax2, held.offset)).max()
        frac = fraction_bits(largest, WEIGHT.width)
        words, lost = reference.decoded(held.codes, held.scale_codes.reshape(len(held.codes), -1), held.absmax2,
                                        held.offset, frac=frac, book=BOOKS[held.shape.bits])
        self.saturated += lost
        return _Linear(words.astype(np.int32), frac)

    def _adapter(self, each: _Linear, adapter: Adapter | None) -> tuple[Array, Array, Array, Array, int, int]:
        """``(a, b)`` with the factor in b, their words as the array takes them, and those words' fraction bits."""
        outputs, inputs = each.w.shape
        if adapter is None:
            a, b = np.zeros((0, inputs), np.float32), np.zeros((outputs, 0), np.float32)
        else:
            a, b = adapter.a, adapter.b * np.float32(adapter.scale)
        fracs = [fraction_bits(values, WEIGHT.width, headroom=_OWN) for values in (a, b)]
        words = [reference.lanes(self._encoded(values, frac + _SPARE, MASTER)) for values, frac in zip((a, b), fracs)]
        return a, b, words[0], words[1], fracs[0], fracs[1]

    def _encoded(self, values: Array, frac: int, form: Fixed) -> Array:
        words, lost = saturate(np.rint(np.asarray(values, np.float64) * 2.0**frac), form.lo, form.hi)
        self.saturated += lost
        return words

    def _noted(self, each: _Linear, tensors: dict[str, tuple[Array, int]]) -> dict[str, Array]:
        """Words as float32; what they reach decides the exponents of steps to come."""
        found = {name: (words * 2.0**-frac).astype(np.float32) for name, (words, frac) in tensors.items()}
        for name, values in found.items():
            each.largest[name] = max(float(np.abs(values).max(initial=0)), each.largest.get(name, 0.0) / 2)
        return found


def _floats(each: _Linear) -> Array:
    return each.w.astype(np.float32) * np.float32(2.0**-each.frac)
