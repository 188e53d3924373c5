"""One lane of the vector engine: an element a cycle through four multipliers."""
from enum import IntEnum

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..formats.fixed import saturate_hdl
from ..formats.linear import ACTIVATION, WEIGHT
from ..formats.vector import (
    FACTOR_FRAC,
    GATE_FRAC,
    GATE_INT,
    GATE_LIFT,
    GUARD,
    LIFT,
    SIGMOID,
    SILU_SLOPE,
    TERM,
)
from ..stream.delay import delay

__all__ = ["PRODUCT", "PIECE", "BASE", "SLOPE", "Other", "Scale", "Fold", "Factor", "Lane"]

#: Bits of a term times a word.
PRODUCT = TERM.width + ACTIVATION.width
#: Bits that choose a piece of a table; shapes of what it holds.
PIECE = SIGMOID.index
BASE = 17
SLOPE = signed(12)
_BASES, _SLOPES = (sum((list(table.table[n]) for table in (SIGMOID, SILU_SLOPE)), []) for n in range(2))
assert 0 <= min(_BASES) and max(_BASES) < 1 << BASE
assert -1 << 11 <= min(_SLOPES) and max(_SLOPES) < 1 << 11


class Other(IntEnum):
    """What the product beside the first one is of."""

    TABLE = 0       # slope and rest of the gate: interpolation
    PULL = 1        # a, pull
    WORD = 2        # b, 1
    TURN = 3        # d, c


class Scale(IntEnum):
    """By what the first operand is multiplied."""

    UNIT = 0
    TABLE = 1
    ROOT = 2
    WEIGHT = 3
    COSINE = 4      # b


class Fold(IntEnum):
    """How the other product enters the term."""

    NONE = 0
    PLUS = 1
    MINUS = 2


class Factor(IntEnum):
    """By what the term is multiplied."""

    UNIT = 0
    A = 1
    B = 2
    C = 3
    WEIGHT = 4
    ROOT = 5


class Lane(wiring.Component):
    """Term and word of the reference; every input says at which stage it is taken, stage 0 being the operands'.

    Never held: results come :attr:`latency` cycles after operands. Four multipliers: two for terms (25 x 18 bits), two
    for term times word (25 x 24).

    Members
    -------
    a, b, c, d : operands, stage 0. weight : stage 1.
    gate : shift of the sigmoid's argument, held during a command.
    piece : index into the table, stage 5; ``base``, ``slope`` : what stands there, stage 6.
    other, pull : stage 6. right : stage 9. fold : stage 11.
    second : whether the first product is of b, not of a; scale, root : stage 10. left : stage 13.
    factor, root_late : stage 16. shift : stage 20.
    product : term times factor, stage 20.
    word, size : result and the bits of it, sign folded in, before it was clipped; clipped, term_clipped : stage 24.
    """

    latency = 24

    def __init__(self):
        word, factor = signed(ACTIVATION.width), signed(WEIGHT.width)
        super().__init__({
            "a": In(word), "b": In(word), "c": In(word), "d": In(word), "weight": In(factor), "gate": In(6),
            "piece": Out(PIECE), "base": In(BASE), "slope": In(SLOPE),
            "other": In(Other), "pull": In(factor), "right": In(6), "fold": In(Fold),
            "second": In(1), "scale": In(Scale), "root": In(factor), "left": In(6),
            "factor": In(Factor), "root_late": In(factor), "shift": In(6),
            "product": Out(signed(PRODUCT)),
            "word": Out(word), "size": Out(PRODUCT), "clipped": Out(1), "term_clipped": Out(1),
        })

    def elaborate(self, platform):
        m = Module()

        def register(value, shape=None):
            q = Signal(value.shape() if shape is None else shape, reset_less=True)
            m.d.sync += q.eq(value)
            return q

        # A word that is used at several stages runs along one delay line.
        a6, b6, c6 = (delay(m, each, 6) for each in (self.a, self.b, self.c))
        a10, b10 = (delay(m, each, 4) for each in (a6, b6))
        a16, b16, c16 = (delay(m, each, count) for each, count in ((a10, 6), (b10, 6), (c6, 10)))
        d6 = delay(m, self.d, 6)
        weight10 = delay(m, self.weight, 9)
        weight16 = delay(m, weight10, 6)

        # Stages 2 to 5: argument of the sigmoid.
        a1 = register(self.a)
        size = register(Mux(a1 < 0, -a1, a1), ACTIVATION.width)
        coarse = register((size << GATE_LIFT) >> (self.gate & 0b111000), ACTIVATION.width + GATE_LIFT)
        fine = register(coarse >> self.gate[:3], ACTIVATION.width + GATE_LIFT)
        width = GATE_INT + GATE_FRAC
        argument = register(fine[:width] | fine[width:].any().replicate(width), width)
        rest = SIGMOID.rest
        m.d.comb += self.piece.eq(argument[rest:])
        rest6, base9 = register(argument[:rest]), delay(m, self.base, 3)

        # Stages 7 to 9: the other product; 10 to 12: what enters the term of it, and the half that rounds.
        x0, y0 = Signal(signed(TERM.width), reset_less=True), Signal(signed(WEIGHT.width), reset_less=True)
        with m.Switch(self.other):
            for name, x, y in ((Other.TABLE, self.slope, rest6), (Other.PULL, a6, self.pull), (Other.WORD, b6, 1),
                               (Other.TURN, d6, c6)):
                with m.Case(name):
                    m.d.sync += [x0.eq(x), y0.eq(y)]
        product0 = register(register(x0 * y0))
        shifted0 = _shift(m, product0, self.right)
        half = 1 << (GUARD - 1)
        folded = Signal(signed(len(shifted0) + 1), reset_less=True)
        m.d.sync += folded.eq(half)
        with m.If(self.fold == Fold.PLUS):
            m.d.sync += folded.eq(half + shifted0)
        with m.If(self.fold == Fold.MINUS):
            m.d.sync += folded.eq(half - shifted0)

        # Stages 10 and 11: sigmoid, and operands of the first product; 12 to 15: the product, shifted.
        table = register((base9 << rest) + product0[:30].as_signed() + (1 << (rest - 1)), signed(BASE + rest + 1))
        table = table[rest:].as_signed()
        negative = delay(m, a6[-1], 4)
        x1, y1 = Signal(signed(TERM.width), reset_less=True), Signal(signed(WEIGHT.width), reset_less=True)
        m.d.sync += x1.eq(Mux(self.second, b10, a10))
        with m.Switch(self.scale):
            for name, y in ((Scale.UNIT, 1), (Scale.TABLE, Mux(negative, (1 << FACTOR_FRAC) - table, table)),
                            (Scale.ROOT, self.root), (Scale.WEIGHT, weight10), (Scale.COSINE, b10)):
                with m.Case(name):
                    m.d.sync += y1.eq(y)
        shifted1 = _shift(m, register(register(x1 * y1)), self.left)

        # Stages 16 and 17: the term and its factor.
        total = register(shifted1 + delay(m, folded, 3))
        clipped, over = saturate_hdl(total[GUARD:].as_signed(), TERM.shape)
        term, term_over = register(clipped), register(over)
        v = Signal(signed(ACTIVATION.width), reset_less=True)
        with m.Switch(self.factor):
            for name, value in ((Factor.UNIT, 1), (Factor.A, a16), (Factor.B, b16), (Factor.C, c16),
                                (Factor.WEIGHT, weight16), (Factor.ROOT, self.root_late)):
                with m.Case(name):
                    m.d.sync += v.eq(value)

        # Stages 18 to 20: their product, in two parts as a slice multiplies no more than 25 x 18 bits.
        split = WEIGHT.width - 1
        low = register(register(term * v[:split]))
        high = register(register(term * v[split:].as_signed()))
        m.d.sync += self.product.eq(low + (high << split))

        # Stages 21 to 24: the word.
        coarse = register((self.product << 1) >> (self.shift & 0b111000), signed(PRODUCT + 1))
        fine = register(coarse >> register(self.shift[:3]), signed(PRODUCT + 1))
        rounded = register((fine + 1) >> 1, signed(PRODUCT + 1))
        word, over = saturate_hdl(rounded, ACTIVATION.shape)
        m.d.sync += [
            self.word.eq(word), self.clipped.eq(over), self.term_clipped.eq(delay(m, term_over, 6)),
            self.size.eq(rounded[:-1] ^ rounded[-1].replicate(PRODUCT)),
        ]
        return m


def _shift(m, product, shift):
    """``product << LIFT >> shift``, two cycles later."""
    shape = signed(len(product) + LIFT)
    coarse, fine, small = Signal(shape, reset_less=True), Signal(shape, reset_less=True), Signal(3, reset_less=True)
    m.d.sync += [coarse.eq((product << LIFT) >> (shift & 0b111000)), small.eq(shift[:3]), fine.eq(coarse >> small)]
    return fine
