"""One lane of the vector engine: an element a cycle."""

from enum import IntEnum
from functools import partial

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...formats.rounding import saturate_hdl
from ...formats.vector import (
    EXP2,
    EXPONENT_FRAC,
    FACTOR_FRAC,
    FINE,
    FINE_FROM,
    GATE_LIFT,
    GATES,
    GUARD,
    LEVEL,
    LIFT,
    POWER_FRAC,
    PROBABILITY_FRAC,
    SIGMOID,
    SILU_SLOPE,
    TERM,
)
from ...formats.weights.linear import WEIGHT
from ...stream.delay import delay, registered
from ...stream.product import NarrowProduct

__all__ = [
    "BASE",
    "PIECE",
    "PRODUCT",
    "SLOPE",
    "TOP",
    "WHOLE",
    "Factor",
    "Fold",
    "Lane",
    "Operand",
    "Other",
    "Scale",
    "tables",
]

#: Bits of a term times an operand.
PRODUCT = 2 * TERM.width
#: Bits that choose a piece of a table; shapes of what it holds.
PIECE = SIGMOID.index
BASE = 17
SLOPE = signed(12)
#: The tables: sigmoid, slope of SiLU, powers, and where there is GELU, nothing and its two.
_TABLES = (SIGMOID, SILU_SLOPE, EXP2)
_GELU = GATES["gelu_tanh"]
assert all(0 <= min(each.table[0]) and max(each.table[0]) < 1 << BASE for each in (*_TABLES, *_GELU))
assert all(-1 << 11 <= min(each.table[1]) and max(each.table[1]) < 1 << 11 for each in (*_TABLES, *_GELU))
assert len({each.rest for each in (*_TABLES, *_GELU)}) == 1
#: The whole part of an exponent, less a row's level, and one that is below all others.
WHOLE = signed(LEVEL.width + 1 - EXPONENT_FRAC)
#: What a whole part is subtracted from: by so much, and what it has of 2, is a power of two shifted right.
TOP = signed(WHOLE.width + 1)
_LEAST = LIFT - GUARD + POWER_FRAC - PROBABILITY_FRAC
#: A shift in two cycles, by its upper bits and by its lower ones: of four choices each a LUT of six inputs takes two.
_FINE = 2
_COARSE = 0b111100
assert _LEAST == 2 and FINE == 8 and FINE_FROM == 12


def tables(gelu):
    """Words of the tables, one behind the other; with ``gelu`` those of GELU too."""
    words = []
    for each in (*_TABLES, *((None, *_GELU) if gelu else ())):
        pieces = zip(*each.table) if each else [(0, 0)] * (1 << PIECE)
        words += [int(base) | (int(slope) & 0xFFF) << BASE for base, slope in pieces]
    return words


class Operand(IntEnum):
    """The first operand."""

    A = 0
    B = 1
    C = 2


class Other(IntEnum):
    """Operands of the second product.

    ``NONE``: it is not used.
    """

    TABLE = 0  # slope and rest of the gate: interpolation, whose result the first operand is multiplied with
    PULL = 1  # a, pull
    WORD = 2  # b, 1
    TURN = 3  # d, c
    NONE = 4
    ROW = 5  # row, 1


class Scale(IntEnum):
    """Factor of the first operand, except for :attr:`Other.TABLE`."""

    UNIT = 0
    ROOT = 1
    WEIGHT = 2
    COSINE = 3  # b


class Fold(IntEnum):
    """How the other product enters the term."""

    NONE = 0
    PLUS = 1
    MINUS = 2


class Factor(IntEnum):
    """Factor of the term."""

    A = 0
    B = 1
    WEIGHT = 2
    ROOT = 3
    UNIT = 4


class Lane(wiring.Component):
    """Term and word of the reference, from three multipliers.

    Every input is documented with its stage; stage 0 is that of the operands.

    Never held: results come :attr:`latency` cycles after operands. Three multipliers: two for terms (25 x 18 bits), one
    for term times word (25 x 25), whose upper bits of the word are multiplied in LUTs.

    Members
    -------
    a, b, c, d : operands, stage 0.
    weight, root, pull, row : what goes with them, stage 1.
    operand, other, scale, factor : which operands are multiplied, stage 1. With ``Other.TABLE`` the table gives what
        the first one is multiplied with.
    gate, wide : shift of the sigmoid's argument, whether words have 25 bits; held during a command.
    piece : index into the table, stage 5; ``base``, ``slope`` : what stands there, stage 6.
    power, sharp : of a softmax, held. The table gives powers of two of what the operand is above ``level`` (stage 4);
        one that is ``masked`` (stage 4) counts as nothing. ``sharp``: small powers have more bits, in the product.
    exponent : what the power is of, stage 5; ``whole`` : its whole part, the least of all where it is masked.
    top : of which ``whole``, subtracted, is how far the power is shifted right, stage 11.
    hit : the term loses 1, stage 14.
    right : stage 12. fold : stage 14. left : stage 13. shift : stage 20.
    valid, kept : stage 22. ``kept``: the valid result is added to the next one, as it is before it is rounded.
    product : term times factor, stage 20.
    word, rounded : result and what it was before it was clipped; clipped, term_clipped : stage 24.
    """

    latency = 24

    def __init__(self):
        word, factor = signed(TERM.width), signed(WEIGHT.width)
        super().__init__(
            {
                "a": In(word),
                "b": In(word),
                "c": In(word),
                "d": In(word),
                "weight": In(factor),
                "gate": In(6),
                "wide": In(1),
                "piece": Out(PIECE),
                "base": In(BASE),
                "slope": In(SLOPE),
                "operand": In(Operand),
                "scale": In(Scale),
                "root": In(factor),
                "factor": In(Factor),
                "other": In(Other),
                "pull": In(factor),
                "row": In(word),
                "power": In(1),
                "sharp": In(1),
                "level": In(LEVEL),
                "masked": In(1),
                "hit": In(1),
                "top": In(TOP),
                "exponent": Out(signed(WHOLE.width + EXPONENT_FRAC)),
                "whole": Out(WHOLE),
                "right": In(6),
                "fold": In(Fold),
                "left": In(6),
                "shift": In(6),
                "valid": In(1),
                "kept": In(1),
                "product": Out(signed(PRODUCT)),
                "word": Out(word),
                "rounded": Out(signed(PRODUCT + 1)),
                "clipped": Out(1),
                "term_clipped": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        register = partial(registered, m)

        # Stage 2: operands of all products, of which the table may replace some on their way.
        a1, b1, c1, d1 = (register(each) for each in (self.a, self.b, self.c, self.d))
        x0, y0, x1, y1, v = (
            Signal(shape, reset_less=True)
            for shape in (
                signed(TERM.width),
                signed(WEIGHT.width),
                signed(TERM.width),
                signed(WEIGHT.width),
                signed(TERM.width),
            )
        )
        for select, outputs, choices in (
            (
                self.other,
                (x0, y0),
                {Other.PULL: (a1, self.pull), Other.WORD: (b1, 1), Other.TURN: (d1, c1), Other.ROW: (self.row, 1)},
            ),
            (
                self.scale,
                (y1,),
                {Scale.UNIT: (1,), Scale.ROOT: (self.root,), Scale.WEIGHT: (self.weight,), Scale.COSINE: (b1,)},
            ),
        ):
            with m.Switch(select):
                for name, values in choices.items():
                    with m.Case(name):
                        m.d.sync += [output.eq(value) for output, value in zip(outputs, values)]
        # Four choices of a bit take a LUT, and a fifth none that resets the register.
        factors = Array((a1, b1, self.weight, self.root))
        m.d.sync += v.eq(Mux(self.factor == Factor.UNIT, 1, factors[self.factor[:2]]))
        power, sharp = register(self.power), register(self.sharp)
        m.d.sync += x1.eq(Mux(power, 1, Mux(self.operand == Operand.C, c1, Mux(self.operand == Operand.B, b1, a1))))
        # Registers, but for the longest: in shift registers these would be a LUT a bit.
        x0, y0, x1, y1 = (
            delay(m, each, count, reset_less=False) for each, count in ((x0, 7), (y0, 7), (x1, 9), (y1, 8))
        )
        v = delay(m, v, 14)
        negative = delay(m, a1[-1] & ~power, 9)
        interpolated6 = delay(m, self.other == Other.TABLE, 5)
        interpolated10 = delay(m, interpolated6, 4)

        # Stages 2 to 5: argument of the table. A sigmoid's has no sign and ends at 16, a power's is a fraction.
        shape = signed(TERM.width + GATE_LIFT + 1)
        size = register(_negated(a1, a1[-1] & ~power), signed(TERM.width + 1))
        coarse = register((size << GATE_LIFT) >> (self.gate & _COARSE), shape)
        fine = register(coarse >> self.gate[:_FINE], shape)
        above = fine[: len(self.exponent)].as_signed() - self.level
        argument = register(
            above[:EXPONENT_FRAC] | (fine[EXPONENT_FRAC:].any() & ~power).replicate(EXPONENT_FRAC), EXPONENT_FRAC
        )
        whole = register(above[EXPONENT_FRAC:], WHOLE)
        masked = register(self.masked)
        rest = SIGMOID.rest
        m.d.comb += [
            self.piece.eq(argument[rest:]),
            self.exponent.eq(Cat(argument, whole)),
            self.whole.eq(Cat(whole[:-2], whole[-2] & ~masked, whole[-1] | masked)),
        ]
        rest6, base9 = register(argument[:rest]), delay(m, self.base, 3)

        # Stages 7 to 9: what a piece of the table rises by. Three later, where there is no table: the other product;
        # 13 to 15: what enters the term of it, and the half that rounds.
        x0 = register(Mux(interpolated6, self.slope, x0))
        y0 = register(Mux(interpolated6, Cat(rest6, Const(0, 1)).as_signed(), y0))
        product0 = register(register(x0 * y0))
        shifted0 = _shift(m, product0, self.right)
        half = 1 << (GUARD - 1)
        minus = self.fold == Fold.MINUS
        bits = len(shifted0)
        other = (shifted0.as_unsigned() ^ minus.replicate(bits)) & (self.fold != Fold.NONE).replicate(bits)
        alone = Mux(self.hit, half - (1 << (PROBABILITY_FRAC + GUARD)), half)
        folded = register(other.as_signed() + Cat(minus, alone[1:]).as_signed(), signed(len(shifted0) + 1))

        # Stages 10 and 11: what the table gives, of a power, which is from 1 to 2, less 2; 12 to 15: its product.
        base = Cat(base9, power).as_signed()
        table = register((base << rest) + product0[:30].as_signed() + (1 << (rest - 1)), signed(BASE + rest + 1))
        table = table[rest:].as_signed()
        factor = (_negated(table, negative) + (negative << FACTOR_FRAC))[: WEIGHT.width].as_signed()
        y1 = register(Mux(interpolated10, factor, y1), signed(WEIGHT.width))
        # A DSP slice adds these 2 on its way.
        product1 = register(register(x1 * y1) + Cat(Const(0, POWER_FRAC + 1), power), signed(TERM.width + WEIGHT.width))

        # Stages 12 and 13: by how much, where it is a power.
        distance = register(self.top - delay(m, self.whole, 6))
        over = distance[6:].any()
        near = sharp & ~over & (distance[:6] < FINE_FROM)
        # FINE is 8.
        left = register(Mux(over, 63, Cat(distance[:3], distance[3:6] - (sharp & ~near))), 6)
        shifted1 = _shift(m, product1, Mux(power, left, self.left))
        near16 = delay(m, near, 4)
        v = register(Cat(v[0] & ~near16, v[1:FINE], v[FINE] | near16, v[FINE + 1 :]).as_signed())

        # Stages 16 and 17: the term.
        total = register(shifted1 + folded)
        clipped, over = saturate_hdl(total[GUARD:].as_signed(), TERM.shape)
        term, term_over = register(clipped), register(over)
        self._word(m, register, term, v, term_over)
        return m

    def _word(self, m, register, term, v, term_over):
        """The product of term and factor, and the word made from it."""
        # Stages 18 to 20: their product, in two parts as a slice multiplies no more than 25 x 18 bits, one of which may
        # be unsigned.
        split = WEIGHT.width - 1
        low = register(register(term * v[:split]))
        high = NarrowProduct(m, term, v[split:])
        m.d.sync += self.product.eq(
            Cat(low[:split], Cat(1, low[split:]).as_signed() + Cat(high.rest, high.value).as_signed() >> 1)
        )

        # Stages 21 to 24: the word.
        coarse = register((self.product << 1) >> (self.shift & _COARSE), signed(PRODUCT + 1))
        fine = register(coarse >> register(self.shift[:_FINE]), signed(PRODUCT + 1))
        before = Signal.like(fine)
        with m.If(self.valid):
            m.d.sync += before.eq(Mux(self.kept, fine, 0))
        rounded = register((fine + before + 1) >> 1, signed(PRODUCT + 1))
        # A word has 24 bits or, wide, one more, which otherwise is the sign again.
        top, sign = TERM.width - 1, rounded[-1]
        spill = rounded[top:]
        over = (spill.any() & ~spill.all()) | (~self.wide & (rounded[top - 1] ^ rounded[top]))
        m.d.sync += [
            self.word.eq(
                Cat(
                    Mux(over, ~sign.replicate(top - 1), rounded[: top - 1]),
                    Mux(self.wide, Mux(over, ~sign, rounded[top - 1]), sign),
                    sign,
                )
            ),
            self.clipped.eq(over),
            self.term_clipped.eq(delay(m, term_over, 6)),
            self.rounded.eq(rounded),
        ]


def _negated(value, negative):
    """``-value`` if it is ``negative``, by one adder."""
    return (value.as_unsigned() ^ negative.replicate(len(value))).as_signed() + negative


def _shift(m, product, shift):
    """``product << LIFT >> shift``, two cycles later."""
    shape = signed(len(product) + LIFT)
    coarse, fine, small = Signal(shape, reset_less=True), Signal(shape, reset_less=True), Signal(_FINE, reset_less=True)
    m.d.sync += [coarse.eq((product << LIFT) >> (shift & _COARSE)), small.eq(shift[:_FINE]), fine.eq(coarse >> small)]
    return fine
