"""Sums over rows, and the reciprocal roots that follow from them."""
from functools import partial

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..formats.linear import WEIGHT
from ..formats.vector import MANTISSA, ROOT_FRAC, ROOTS, SUM
from ..stream.delay import delay, registered
from .lane import PRODUCT

__all__ = ["RootWord", "RowSums", "Roots"]

#: What a row is known by: see ``Root`` of the reference.
RootWord = data.StructLayout({"mantissa": ROOT_FRAC, "exponent": 5, "pull": signed(WEIGHT.width), "pull_shift": 6})


class RowSums(wiring.Component):
    """Sums of products over the rows of a tensor that comes tile by tile, a row of each token in a tile.

    Two sums a token: ``along`` chooses. :meth:`latency` cycles pass from a row's last beat to its sum in memory.

    Parameters
    ----------
    lanes : int
        Products a beat. tokens : int
        Sums of either kind.

    Members
    -------
    products : a beat of them, with ``valid``, ``along``, ``token`` and whether it is the first or last of a row, and of
        the first tile. Rows of a token lie at least two beats apart.
    address : which sum to read: token, and the bit ``along`` below it. sum : it, a cycle later.
    """

    def __init__(self, *, lanes, tokens):
        self.lanes, self.tokens = lanes, tokens
        super().__init__({
            "products": In(data.ArrayLayout(signed(PRODUCT), lanes)),
            "tag": In(data.StructLayout({"valid": 1, "along": 1, "first": 1, "last": 1, "start": 1,
                                         "token": range(tokens)})),
            "address": In(range(2 * tokens)), "sum": Out(signed(SUM)),
        })

    @staticmethod
    def latency(lanes):
        """Cycles from a beat to its sum."""
        return (lanes - 1).bit_length() + 2

    def elaborate(self, platform):
        m = Module()
        level = [self.products[lane] for lane in range(self.lanes)]
        depth = 0
        while len(level) > 1:
            pairs = [level[n:n + 2] for n in range(0, len(level), 2)]
            level = [delay(m, sum(pair[1:], pair[0]), 1) for pair in pairs]
            depth += 1
        beat, tag = level[0], delay(m, self.tag, depth, reset_less=False)

        m.submodules.memory = memory = Memory(shape=signed(SUM), depth=2 * self.tokens, init=[])
        write, before, read = memory.write_port(), memory.read_port(domain="comb"), memory.read_port()
        address = Cat(tag.along, tag.token)
        m.d.comb += before.addr.eq(address)
        now = delay(m, tag, 1, reset_less=False)
        sums = []
        for along in range(2):
            total = Signal(signed(SUM), reset_less=True, name=f"total_{along}")
            with m.If(tag.valid & (tag.along == along)):
                m.d.sync += total.eq(Mux(tag.first, 0, total) + beat)
            sums.append(total)
        held = delay(m, Mux(tag.start, 0, before.data), 1)
        m.d.comb += [
            write.addr.eq(Cat(now.along, now.token)), write.en.eq(now.valid & now.last),
            write.data.eq(held + Mux(now.along, sums[1], sums[0])),
            read.addr.eq(self.address), self.sum.eq(read.data),
        ]
        return m


class Roots(wiring.Component):
    """Reciprocal roots of sums, a sum a cycle, :attr:`latency` cycles later. Three multipliers.

    A sum of products along x comes a cycle after the sum of squares that it belongs to; ``root`` then tells of both.

    Members
    -------
    sum, along : what :class:`RowSums` gives. eps, eps_shift : added to sums of squares, held.
    root : :data:`RootWord`.
    """

    latency = 14

    def __init__(self):
        super().__init__({
            "sum": In(signed(SUM)), "along": In(1), "eps": In(16), "eps_shift": In(6), "root": Out(RootWord),
        })

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
            empty = ~top[SUM - power:].any()
            missing = register(Cat(empty, missing))
            top = register(Mux(empty, top << power, top), unsigned(SUM))
        # Nothing at all counts as 1.
        bit8 = Signal(6)
        m.d.comb += bit8.eq(Mux(missing >= SUM - 1, 0, SUM - 1 - missing))

        # Stages 9 to 11: the root.
        m.submodules.table = table = Memory(shape=unsigned(31), depth=256, init=[
            int(base) | (int(slope) & 0xFFF) << 18 for each in ROOTS for base, slope in zip(*each.table)])
        read = table.read_port()
        m.d.comb += read.addr.eq(Cat(top[SUM - 8:SUM - 1], bit8[0]))
        rest9 = register(top[SUM - 17:SUM - 8])
        rest = ROOTS[0].rest
        rise = register(read.data[18:30].as_signed() * rest9)
        base10 = register(read.data[:18])
        total = (base10 << rest) + rise + (1 << (rest - 1))
        mantissa = Signal(ROOT_FRAC, reset_less=True)
        root = Signal(signed(20))
        m.d.comb += root.eq(total >> rest)
        m.d.sync += mantissa.eq(root[:ROOT_FRAC] | root[ROOT_FRAC].replicate(ROOT_FRAC))
        exponent = delay(m, bit8[1:], 3)

        # Stages 12 to 14: of a sum along x, with what the sum of squares before it gave.
        square = register(register(mantissa * mantissa)[ROOT_FRAC:])
        product = register(square * delay(m, top[SUM - MANTISSA:], 4))
        pull = Signal(signed(WEIGHT.width))
        m.d.comb += pull.eq(product[ROOT_FRAC:])
        along = delay(m, along1, 12)
        before = delay(m, exponent, 2)
        distance = register(MANTISSA + 6 - delay(m, bit8, 4) + (before << 1), signed(8))
        held, exponents = delay(m, mantissa, 2), delay(m, exponent, 2)
        m.d.sync += [
            self.root.mantissa.eq(Mux(along, delay(m, held, 1), held)),
            self.root.exponent.eq(Mux(along, delay(m, exponents, 1), exponents)),
            self.root.pull.eq(Mux(~along, 0, Mux(delay(m, negative, 12), -pull, pull))),
            self.root.pull_shift.eq(Mux(distance < 0, 0, distance[:6] | distance[6].replicate(6))),
        ]
        return m
