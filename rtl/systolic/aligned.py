"""Sums over tiles of different powers of two, behind an array."""

from amaranth.hdl import Array, Const, Module, Mux, Signal, signed
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from ..formats.tiles.aligned import DROP, FRACTION, LOST, WIDTH
from ..hierarchy import place
from ..stream.delay import delay
from .slices import MultiplyAdd

__all__ = ["AlignedSums", "aligned_tag"]


def aligned_tag(tokens):
    """What sums are.

    ``start``: of the first tile, ``keep``: they are kept at ``place``, ``drop``: see :mod:`~...formats.aligned`,
    ``far``: they are lost whatever it is.
    """
    return data.StructLayout({"valid": 1, "start": 1, "keep": 1, "place": range(tokens), "drop": DROP, "far": 1})


class AlignedSums(wiring.Component):
    """Adds tiles' sums, each shifted to the token's power of two.

    A slice a column shifts and adds: it multiplies with a power of two. Sums of :attr:`tokens` tokens are kept in block
    RAM.

    Parameters
    ----------
    columns, width : int
        Sums a cycle, and bits of each.
    tokens : int
        Most tokens.

    Members
    -------
    tag, sums : a token's; the same ``place`` may come again :attr:`latency` cycles later.
    o : its sums so far, :attr:`latency` cycles later. lost : how many of them were lost so far.
    """

    latency = 1 + MultiplyAdd.latency

    def __init__(self, *, columns, width, tokens):
        if not 2 <= width <= WIDTH - FRACTION - 11:
            raise ValueError(f"width={width}: must be 2 to {WIDTH - FRACTION - 11}, so that no sum of tiles wraps")
        self.columns = columns
        self.width = width
        self.tokens = tokens
        super().__init__(
            {
                "tag": In(aligned_tag(tokens)),
                "sums": In(signed(width)).array(columns),
                "o": Out(signed(WIDTH)).array(columns),
                "lost": Out(LOST),
            }
        )

    def elaborate(self, platform):
        m = Module()
        tag = self.tag
        kept = data.StructLayout({"sums": data.ArrayLayout(signed(WIDTH), self.columns), "lost": LOST})
        m.submodules.kept = store = memory.Memory(
            shape=kept, depth=max(self.tokens, 2), init=[], attrs={"ram_style": "block"}
        )
        write, read = store.write_port(), store.read_port()

        # Factors: 2**FRACTION for the largest tile, then less; 0 for a lost one.
        far, factor = Signal(), Signal(signed(18), reset_less=True)
        # mutant near: m.d.comb += far.eq(tag.far | (tag.drop >= FRACTION))
        m.d.comb += far.eq(tag.far | (tag.drop > FRACTION))
        powers = Array([Const(1 << max(FRACTION - drop, 0), 18) for drop in range(1 << DROP)])
        m.d.sync += factor.eq(Mux(far, 0, powers[tag.drop]))
        later = [tag]
        for _ in range(self.latency):
            later.append(delay(m, later[-1], 1, reset_less=False))
        goes_on = later[3].keep & ~later[3].start

        was_far = delay(m, far, 1)
        some = []
        for column, value in enumerate(self.sums):
            held = delay(m, value, 1)
            some.append(held.any() & was_far)
            unit = place(m, f"add_{column}", MultiplyAdd(a=self.width, b=18, width=WIDTH), platform)
            m.d.comb += [
                unit.a.eq(held),
                unit.b.eq(factor),
                unit.c.eq(read.data.sums[column]),
                # mutant restarted: unit.add.eq(0),
                unit.add.eq(goes_on),
                self.o[column].eq(unit.p),
                write.data.sums[column].eq(unit.p),
            ]
        # In two steps: of eight columns, then of all.
        near = []
        for first in range(0, self.columns, 8):
            count = Signal(4, reset_less=True, name=f"gone_{first}")
            m.d.sync += count.eq(sum(some[first : first + 8]))
            near.append(count)
        gone = Signal(range(self.columns + 1), reset_less=True)
        m.d.sync += gone.eq(sum(near))
        # Stuck at its end, not wrapped.
        total = Mux(goes_on, read.data.lost, 0) + gone
        m.d.sync += self.lost.eq(Mux(total[LOST:].any(), Const((1 << LOST) - 1, LOST), total[:LOST]))
        m.d.comb += [
            read.addr.eq(later[2].place),
            write.addr.eq(later[-1].place),
            write.en.eq(later[-1].valid & later[-1].keep),
            write.data.lost.eq(self.lost),
        ]
        return m
