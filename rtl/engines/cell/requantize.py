"""Integers to codes: multiply, add, shift, clip."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...formats.cell import CENTRED, QuantizerWord
from ...formats.requantizer import NEAR
from ...hierarchy import place
from ...systolic.slices import MultiplyAdd
from .stages import MULTIPLY_SHIFT

__all__ = ["MULTIPLIER", "TOTAL", "MultiplyShift", "ends_layout", "ends_of"]

#: Bits of a multiplier, of its product with an addend, and of a result that is clipped.
MULTIPLIER, TOTAL, WIDE = 26, 48, 11


def ends_layout(ties=0):
    """Shift, rounding and ends of a requantiser; ``ties``: see ``CellParameters``."""
    near = {"near": 1} if ties else {}
    return data.StructLayout({"shift": 6, "even": 1, "lo": signed(WIDE - 1), "hi": signed(WIDE - 1), **near})


def ends_of(word, ties=0):
    """The same of a :data:`QuantizerWord`, as an assignment's value."""
    word = data.View(QuantizerWord, word)
    return Cat(word.shift, word.even, word.lo[: WIDE - 1], word.hi[: WIDE - 1], *([word.near] if ties else []))


class MultiplyShift(wiring.Component):
    """``(n * multiplier + addend) >> shift``, clipped to ``lo..hi``.

    With ``even``, ties of a rounding shift go to the even code. With ``near`` the lowest 18 bits do not count when it
    looks for a tie; ``shift`` is 24 or more then.

    Parameters
    ----------
    raw : bool
        There is ``total``.
    ties : int
        ``ends`` has ``near``.

    Members
    -------
    n, multiplier : of cycle t; the multiplier is not negative.
    addend : of cycle t + 2.
    ends : shift, rounding and ends; they hold still.
    o : the code, in cycle t + :attr:`latency`; behind registers, through two levels.
    total : what is shifted, in cycle t + 3.
    """

    latency = MULTIPLY_SHIFT

    def __init__(self, *, raw=False, ties=0):
        self.raw, self.ties = raw, ties
        super().__init__(
            {
                "n": In(signed(CENTRED)),
                "multiplier": In(MULTIPLIER),
                "addend": In(signed(TOTAL)),
                "ends": In(ends_layout(ties)),
                "o": Out(signed(WIDE - 1)),
                **({"total": Out(signed(TOTAL))} if raw else {}),
            }
        )

    @property
    def key(self):
        """What two of them must share to be one module."""
        return self.raw, self.ties

    def elaborate(self, platform):
        m = Module()
        product = place(m, "multiply", MultiplyAdd(a=MULTIPLIER + 1, b=CENTRED, width=TOTAL), platform)
        m.d.comb += [
            product.a.eq(Cat(self.multiplier, Const(0, 1)).as_signed()),
            product.b.eq(self.n),
            product.c.eq(self.addend),
            product.add.eq(1),
        ]
        if self.raw:
            m.d.comb += self.total.eq(product.p)
        shift = self.ends.shift
        # By whole bytes first; a result that the second shift brings below WIDE bits is in the low bits here.
        coarse, dropped = Signal(signed(TOTAL), reset_less=True), Signal(reset_less=True)
        below = Cat(self._below(product.p, n) if n else Const(0, 1) for n in range(6))
        m.d.sync += [coarse.eq(product.p >> (shift & 0b111000)), dropped.eq((below >> shift[3:])[0])]
        near = WIDE + 7
        fine = coarse[:near].as_signed() >> shift[:3]
        rest = (coarse[:8] & ~(Const(0xFF, 8) << shift[:3])[:8]).any()
        value, beyond, negative = (
            Signal(signed(WIDE), reset_less=True),
            Signal(reset_less=True),
            Signal(reset_less=True),
        )
        tie = self.ends.even & ~dropped & ~rest
        upper, spill = coarse[near - 1 :], fine[WIDE - 1 : near]
        m.d.sync += [
            value.eq(Cat(fine[0] & ~tie, fine[1:WIDE])),
            beyond.eq(~(upper.all() | ~upper.any()) | ~(spill.all() | ~spill.any())),
            negative.eq(coarse[-1]),
        ]
        low = Mux(beyond, negative, value < self.ends.lo)
        high = Mux(beyond, ~negative, value > self.ends.hi)
        m.d.comb += self.o.eq(Mux(low, self.ends.lo, Mux(high, self.ends.hi, value)))
        return m

    def _below(self, p, count):
        """Whether a bit in so many bytes is against a tie."""
        if not self.ties:
            return p[: 8 * count].any()
        few = min(8 * count, NEAR)
        # mutant near: return p[: 8 * count].any()
        return (p[:few].any() & ~self.ends.near) | p[few : 8 * count].any()
