"""Sums over rows, and their reciprocal roots and logarithms."""

from functools import partial

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from gradloom.rtl.formats.rounding import saturate_hdl
from gradloom.rtl.formats.vector import (
    EXPONENT_FRAC,
    FALL,
    FINE,
    LEVEL,
    LOG2,
    MANTISSA,
    PROBABILITY_FRAC,
    ROOT_FRAC,
    ROOTS,
    ROW_SUM,
    SUM,
    TERM,
    UNIT,
)
from gradloom.rtl.formats.weights.linear import WEIGHT
from gradloom.rtl.stream.delay import delay, registered
from gradloom.rtl.stream.product import narrow_product

from ..lane import PRODUCT
from .maxima import STEPS

__all__ = ["RootWord", "RowSums", "Roots"]

#: What a row is known by: see ``Root`` of the reference.
RootWord = data.StructLayout({"mantissa": ROOT_FRAC, "exponent": 5, "pull": signed(WEIGHT.width), "pull_shift": 6})


# Two choices of four make the shift, and the last of the second is nothing.
assert FALL == 3 * 4 and FALL * UNIT >= ROW_SUM - 2


class RowSums(wiring.Component):
    """Sums of products over the rows of a tensor.

    The tensor comes tile by tile, a row of each token in a tile.

    Two sums a token: ``along`` chooses. :meth:`latency` cycles pass from a row's last beat to its sum in memory.

    Parameters
    ----------
    lanes : int
        Products a beat. tokens : int
        Sums of either kind.

    Members
    -------
    products : a beat of them, with ``valid``, ``along``, ``token`` and whether it is the first or last of a row, and of
        the first tile. Where rows have a single token they are not looked up, else a token's lie 3 beats apart.
    power : these are powers of two; ``fall``, :meth:`fall_latency` cycles after products, shifts their sum right by
        steps of its unit before more is added. single, two : there is one token; each beat comes for either sum. Held.
    ask, address : reads a sum, while no beats come: token, and the bit ``along`` below it. sum : it, a cycle later.
    """

    def __init__(self, *, lanes, tokens):
        self.lanes, self.tokens = lanes, tokens
        super().__init__(
            {
                "products": In(data.ArrayLayout(signed(PRODUCT), lanes)),
                "tag": In(
                    data.StructLayout(
                        {"valid": 1, "along": 1, "first": 1, "last": 1, "start": 1, "token": range(tokens)}
                    )
                ),
                "power": In(1),
                "fall": In(4),
                "single": In(1),
                "two": In(1),
                "ask": In(1),
                "address": In(range(2 * tokens)),
                "sum": Out(signed(SUM)),
            }
        )

    @staticmethod
    def fall_latency(lanes):
        """Cycles from a beat to the shift of the sum to which it is added."""
        return (lanes - 1).bit_length() + 1

    @classmethod
    def latency(cls, lanes):
        """Cycles from a beat to the sum in memory."""
        return cls.fall_latency(lanes) + 2

    def elaborate(self, platform):
        m = Module()
        level = [self.products[lane] for lane in range(self.lanes)]
        while len(level) > 1:
            pairs = [level[n : n + 2] for n in range(0, len(level), 2)]
            level = [delay(m, sum(pair[1:], pair[0]), 1) for pair in pairs]
        beat = delay(m, level[0], 1)
        tag = delay(m, self.tag, self.fall_latency(self.lanes) - 1, reset_less=False)
        now = delay(m, tag, 1, reset_less=False)
        after = delay(m, now, 1, reset_less=False)

        m.submodules.memory = memory = Memory(shape=signed(SUM), depth=2 * self.tokens, init=[])
        memory.attrs["ram_style"] = "block"
        write, read = memory.write_port(), memory.read_port()
        total = Signal(signed(SUM), reset_less=True)
        other = Signal(signed(SUM), reset_less=True)
        powers = Signal(ROW_SUM, reset_less=True)
        fresh = delay(m, tag.first & tag.start, 1)
        again = delay(m, tag.first & ~tag.start & ~self.single, 1)
        # The longest way of all: a choice of four, and one of three beside the addition. A row's first beat, which has
        # nothing before it, falls by the most, which leaves nothing either.
        kept = Mux(again, read.data[:ROW_SUM], powers)
        near = _chosen(self.fall[:2], [kept >> UNIT * n for n in range(4)])
        shifted = _chosen(self.fall[2:], [near, near >> 4 * UNIT, near >> 8 * UNIT, 0])
        m.d.comb += [
            read.addr.eq(Mux(self.ask, self.address, Cat(tag.along, tag.token))),
            self.sum.eq(read.data),
            write.addr.eq(Cat(after.along, after.token)),
            write.en.eq(after.valid & after.last),
            write.data.eq(Mux(self.power, powers, total)),
        ]
        with m.If(now.valid):
            m.d.sync += [
                # Sums of either kind take turns, so that the one before the last is of this beat's kind.
                other.eq(total),
                # mutant one-sum-for-two: total.eq(Mux(fresh, 0, Mux(again, read.data, total)) + beat),
                total.eq(Mux(fresh, 0, Mux(again, read.data, Mux(self.two, other, total))) + beat),
                powers.eq(shifted + beat[:ROW_SUM]),
            ]
        return m


def _chosen(index, four):
    """The value of that index; no decoder stands before it."""
    return Mux(index[1], Mux(index[0], four[3], four[2]), Mux(index[0], four[1], four[0]))


class Roots(wiring.Component):
    """Values of rows from their sums: roots, logarithms or sums.

    A sum a cycle, :attr:`latency` cycles later. One multiplier.

    Reciprocal roots of sums of squares: a sum of products along x comes a cycle after the sum of squares that it
    belongs to; ``row`` then is a :data:`RootWord` of both. Or, ``log``, the logarithm of a sum of powers in units of
    2**(4 ``reach`` + 3); or, ``pulled``, the sum itself in units of what probabilities were multiplied with.

    Members
    -------
    sum, along : what :class:`RowSums` gives; ``along`` of all that is not squares. reach : with it.
    eps, eps_shift : added to sums of squares. log, pulled : which kind. All held.
    row : the bits of a :data:`RootWord`, a level, a sum. clipped : this last one was.
    """

    latency = 14

    def __init__(self):
        super().__init__(
            {
                "sum": In(signed(SUM)),
                "along": In(1),
                "eps": In(16),
                "eps_shift": In(6),
                "log": In(1),
                "pulled": In(1),
                "reach": In(STEPS),
                "row": Out(RootWord.size),
                "clipped": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        register = partial(registered, m)

        # Stages 1 and 2: what is normalised; 3 to 8: a power of two a stage.
        eps = register(self.eps << self.eps_shift, unsigned(SUM))
        value, negative = register(self.sum), register(self.along & self.sum[-1])
        along1 = register(self.along)
        top = register(Mux(along1, Mux(negative, -value, value), value + eps), unsigned(SUM))
        missing = Const(0, 0)
        for power in (32, 16, 8, 4, 2, 1):
            empty = ~top[SUM - power :].any()
            missing = register(Cat(empty, missing))
            top = register(Mux(empty, top << power, top), unsigned(SUM))
        # Nothing at all counts as 1.
        bit8 = Signal(6)
        m.d.comb += bit8.eq(Mux(missing >= SUM - 1, 0, SUM - 1 - missing))

        # Stages 9 to 11: the root.
        m.submodules.table = table = Memory(
            shape=unsigned(34),
            depth=512,
            init=[
                int(base) | (int(slope) & 0x3FFF) << 20 for each in (*ROOTS, LOG2) for base, slope in zip(*each.table)
            ],
        )
        read = table.read_port()
        m.d.comb += read.addr.eq(Mux(self.log, Cat(top[SUM - 9 : SUM - 1], 1), Cat(top[SUM - 8 : SUM - 1], bit8[0], 0)))
        # A logarithm has one bit more of the piece and two more below.
        rest = LOG2.rest
        rest9 = register(Mux(self.log, top[SUM - 21 : SUM - 9], Cat(Const(0, 3), top[SUM - 17 : SUM - 8])))
        # In LUTs, halves of it.
        slope9, half = read.data[20:].as_signed(), rest // 2
        low, high = (register(narrow_product(slope9, part)) for part in (rest9[:half], rest9[half:]))
        base10 = register(read.data[:20])
        total = (base10 << rest) + low + (high << half) + (1 << (rest - 1))
        mantissa = Signal(ROOT_FRAC, reset_less=True)
        root = Signal(signed(22))
        m.d.comb += root.eq(total >> rest)
        m.d.sync += mantissa.eq(root[:ROOT_FRAC] | root[ROOT_FRAC].replicate(ROOT_FRAC))
        exponent = delay(m, bit8[1:], 3)
        # Stage 11: fraction and whole part of the level; 12: the level.
        whole = register(
            (delay(m, self.reach, 10) << 2) + delay(m, bit8, 2) - (PROBABILITY_FRAC + FINE - UNIT + 1),
            signed(LEVEL.width - EXPONENT_FRAC),
        )
        level = register((whole << EXPONENT_FRAC) + register(root[: EXPONENT_FRAC + 1]), LEVEL)
        # Stages 2 and 3: the rounded sum.
        rounded = register(value[PROBABILITY_FRAC:].as_signed() + value[PROBABILITY_FRAC - 1])
        fitting, over = saturate_hdl(rounded, TERM.shape)
        pulled = delay(m, register(fitting), 10)
        m.d.comb += self.clipped.eq(delay(m, register(over & self.pulled), 11))

        # Stages 12 to 14: of a sum along x, with what the sum of squares before it gave.
        # One multiplier for both: a square is multiplied in the cycle after it was made, by what comes behind it.
        behind, product = delay(m, along1, 10), Signal(ROOT_FRAC + MANTISSA, reset_less=True)
        m.d.sync += product.eq(
            Mux(behind, product[ROOT_FRAC:], mantissa) * Mux(behind, delay(m, top[SUM - MANTISSA :], 3), mantissa)
        )
        product = register(product)
        pull = Signal(signed(WEIGHT.width))
        m.d.comb += pull.eq(product[ROOT_FRAC:])
        along = delay(m, along1, 12)
        before = delay(m, exponent, 2)
        distance = register(MANTISSA + 6 - delay(m, bit8, 4) + (before << 1), signed(8))
        held, exponents = delay(m, mantissa, 2), delay(m, exponent, 2)
        row = Signal(RootWord)
        m.d.comb += [
            row.mantissa.eq(Mux(along, delay(m, held, 1), held)),
            row.exponent.eq(Mux(along, delay(m, exponents, 1), exponents)),
            row.pull.eq(Mux(~along, 0, Mux(delay(m, negative, 12), -pull, pull))),
            row.pull_shift.eq(Mux(distance < 0, 0, distance[:6] | distance[6].replicate(6))),
        ]
        m.d.sync += self.row.eq(Mux(self.log, delay(m, level, 1), Mux(self.pulled, pulled, row)))
        return m
