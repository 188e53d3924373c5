"""Processing element: one DSP slice and pass-on registers."""

from dataclasses import dataclass

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .. import latencies
from ..formats.pair import Pair
from .primitive import pe_primitive

__all__ = ["Precision", "tag_layout", "WSUM", "HOLD", "ACCUMULATE", "RESTART", "DRAIN", "PE"]


@dataclass(frozen=True, kw_only=True)
class Precision:
    """Operand widths of an array.

    Parameters
    ----------
    x : int
        Bits of the operand that travels along a row; at most 25 on a DSP48E1, 27 on a DSP48E2.
    w : int
        Bits of the operand that travels down a column and may stay; at most 18.
    sum : int
        Bits of a sum; 48 is the slice's own.
    pair : Pair, optional
        The operand that stays is two codes, which are ``w`` = 16 bits as they are stored; the slice's wide port takes
        them, the other one ``x`` = 8 bits.
    """

    x: int = 24
    w: int = 18
    sum: int = 48
    pair: Pair | None = None

    def __post_init__(self):
        for field, bound in (("x", 25), ("w", 18), ("sum", 48)):
            if not 2 <= getattr(self, field) <= bound:
                raise ValueError(f"{field}={getattr(self, field)}: a DSP slice takes 2 to {bound} bits")
        if self.pair is not None and (self.x, self.w, self.sum) != (Pair.CODE, Pair.WORD, 48):
            raise ValueError(f"x={self.x}, w={self.w}, sum={self.sum}: with pairs must be 8, 16 and 48")

    @classmethod
    def of_pairs(cls, pair):
        """Bits of a PE with two products."""
        return cls(x=Pair.CODE, w=Pair.WORD, pair=pair)

    @property
    def factor(self):
        """Bits of the operand that stays, as it is multiplied."""
        return self.w if self.pair is None else self.pair.width

    @property
    def longest_sum(self):
        """How many full-scale products a sum holds before it could wrap."""
        return 1 << max(self.sum - self.x - self.w + 1, 0) if self.pair is None else self.pair.rows

    def check_array(self, **sizes):
        """Refuses sizes that are no positive integers.

        Also refuses more ``rows`` than a column may sum.
        """
        for field, value in sizes.items():
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{field}={value}: an array has at least 1")
        if self.pair is not None:
            self.pair.check(sizes["rows"])
        elif sizes["rows"] > self.longest_sum:
            raise ValueError(
                f"rows={sizes['rows']}: a column of more than {self.longest_sum} products of "
                f"{self.x} x {self.w} bits could wrap {self.sum} bits"
            )


#: What a PE does with the operand beside it. ``load``: the weight that passes becomes the weight
#: that waits. ``swap``: the weight that waits becomes the weight in use. ``use_m``: add the product;
#: ``from_above``: to the sum of the row above; ``from_self``: to its own. They are the slice's own
#: clock enables and mode bits, so no logic stands between a tag and the slice.
tag_layout = data.StructLayout({"load": 1, "swap": 1, "use_m": 1, "from_above": 1, "from_self": 1})


def _tag(**bits):
    return {"use_m": 0, "from_above": 0, "from_self": 0} | bits


WSUM = _tag(use_m=1, from_above=1)  # weight-stationary
HOLD = _tag(from_self=1)  # output-stationary, no operand
ACCUMULATE = _tag(use_m=1, from_self=1)  # output-stationary
RESTART = _tag(use_m=1)  # output-stationary, first operand
DRAIN = _tag(from_above=1)  # sums move down a row


class PE(wiring.Component):
    """Multiplies and adds, for weight- and output-stationary products.

    The behavioural twin of one DSP48 slice: registers A1, B1, B2, M, P and OPMODE lie inside it; with pairs, whose port
    is the wide one, A1, A2, B1, M, P and OPMODE. Registers for the outputs to the next PE (``x_o``, ``tag_o``, ``w_o``)
    are flip-flops beside it. At most one LUT, see :func:`~.primitive.pe_primitive`.

    With operands at ``x_i`` in cycle t, the sum is at ``p_o`` in cycle t + 3; ``p_i`` is taken
    in cycle t + 2. ``load`` in cycle t makes ``w_i`` of t the weight that waits from t + 1 on, and
    ``swap`` in cycle t puts the weight that waits in t into use for the operand of t.

    Parameters
    ----------
    precision : :class:`Precision`
    both : bool
        ``from_above`` and ``from_self`` may come together and add up, which a DSP48E1 cannot do.

    Members
    -------
    x_i, x_o : operand along the row, a cycle a column.
    tag_i, tag_o : what to do with it; see :data:`tag_layout`.
    w_i, w_o : weight down the column, a cycle a row.
    p_i, p_o : sum from the row above, sum to the row below.
    """

    latency = latencies.PE

    def __init__(self, *, precision=Precision(), both=False):
        self.precision = precision
        self.both = both
        super().__init__(
            {
                "x_i": In(signed(precision.x)),
                "x_o": Out(signed(precision.x)),
                "tag_i": In(tag_layout),
                "tag_o": Out(tag_layout),
                "w_i": In(signed(precision.w)),
                "w_o": Out(signed(precision.w)),
                "p_i": In(signed(precision.sum)),
                "p_o": Out(signed(precision.sum)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        shape = self.precision

        m.d.sync += [self.x_o.eq(self.x_i), self.tag_o.eq(self.tag_i), self.w_o.eq(self.w_i)]

        a = Signal(signed(shape.x), reset_less=True)
        b_waiting = Signal(signed(shape.factor), reset_less=True)
        b = Signal(signed(shape.factor), reset_less=True)
        product = Signal(signed(shape.x + shape.factor), reset_less=True)
        mode = Signal(tag_layout)
        m.d.sync += [a.eq(self.x_i), product.eq(a * b), mode.eq(self.tag_o)]
        with m.If(self.tag_i.load):
            m.d.sync += b_waiting.eq(self.w_i if shape.pair is None else shape.pair.wide(self.w_i))
        with m.If(self.tag_i.swap):
            m.d.sync += b.eq(b_waiting)

        above = Mux(mode.from_above, self.p_i, 0)
        # mutant sum-two-bits-short: own = Mux(mode.from_self, self.p_o[:shape.sum - 2].as_signed(), 0)
        own = Mux(mode.from_self, self.p_o, 0)
        old = above + own if self.both else (above | own).as_signed()
        m.d.sync += self.p_o.eq(Mux(mode.use_m, product, 0) + old)
        return m

    def primitive(self, *, family, name):
        """Verilog of this module with the slice instantiated, for synthesis."""
        # Both sums at once: neither the older slice nor the ECP5's stand-in has a second adder.
        if self.both and family != "xcup":
            return None
        return pe_primitive(self.precision, family=family, name=name)
