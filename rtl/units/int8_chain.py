"""Products of 8-bit tiles, two a slice, as a unit with streams."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from ..formats.pair import Pair
from ..formats.tiles.aligned import DROP, LOST, TILES, WIDTH
from ..hierarchy import place
from ..stream.delay import delay
from ..systolic.aligned import AlignedSums, aligned_tag
from ..systolic.mesh import tile_gate
from ..systolic.paired import PairedArray

__all__ = ["Int8Chain"]


class Int8Chain(wiring.Component):
    """Products of activation rows with 8-bit tiles, added tile by tile.

    Two products a DSP slice; the next tile loads under compute.

    ::

        o.sum[c] = sum over a token's tiles of (sum_r i.x[r] * w[r][c]) << (FRACTION - i.drop)

    A tile is ``rows`` weight rows, then any number of activation rows, of which the first waits until the tile is
    complete. The n-th row of a tile is token n: ``start`` is with the rows of a token's first tile, ``last`` with those
    of its last, whose sums leave. ``drop`` says how many powers of two a token's tile is below its largest. No sum
    wraps: a tile that is more than FRACTION below is lost, and counted; so are rows beyond ``tokens``, and tiles beyond
    2,048 of a sum.

    Results leave :attr:`latency` cycles after their row was taken, at full rate as long as they are taken. ``i.ready``
    depends on ``i.p.first``, ``w.ready`` on ``i.valid`` and ``i.p.first``, combinationally.

    Parameters
    ----------
    rows, columns : int
        Length of a dot product within a tile, sums a cycle. ``rows`` is at least 4, and at most a chain or a multiple
        of it; ``columns`` is even with pairs.
    tokens : int
        Most rows of a tile whose sums are kept.
    family : str
        Whose slices: chains of 16 rows on ``xcup``, of 4 on ``xc7``. On ``ecp5`` a multiplier makes one product.

    Members
    -------
    i : ``In(stream.Signature({x: ArrayLayout(signed(8), rows), first: 1, start: 1, last: 1, drop: 5}))``
        Activation rows. ``first``: the next tile comes into use with this row.
    w : ``In(stream.Signature({w: ArrayLayout(signed(8), columns)}))``
        Weight rows; row 0 of a tile first. The code -128 becomes -127.
    o : ``Out(stream.Signature({sum: ArrayLayout(signed(48), columns), lost: 16}))``
        One beat a row with ``last``; ``lost``: sums of tiles that are not in it, stuck at its end.
    clipped : ``Out(range(columns + 1))``
        Weights -128 in this cycle.
    """

    def __init__(self, *, rows=64, columns=32, tokens=64, family="xcup"):
        if rows < 4:
            raise ValueError(f"rows={rows}: must be at least 4, the cycles from a sum to the next tile's")
        if not 1 <= tokens:
            raise ValueError(f"tokens={tokens}: must be at least 1")
        self.rows = rows
        self.columns = columns
        self.tokens = tokens
        self.family = family
        self.pair = Pair(Pair.APART[family]) if family in Pair.APART else None
        array = PairedArray(rows=rows, columns=columns, pair=self.pair)
        array._MustUse__used = True
        self.products = array.slices
        self.latency = array.latency + AlignedSums.latency + 2
        super().__init__(
            {
                "i": In(
                    stream.Signature(
                        data.StructLayout(
                            {
                                "x": data.ArrayLayout(signed(Pair.CODE), rows),
                                "first": 1,
                                "start": 1,
                                "last": 1,
                                "drop": DROP,
                            }
                        )
                    )
                ),
                "w": In(stream.Signature(data.StructLayout({"w": data.ArrayLayout(signed(Pair.CODE), columns)}))),
                "o": Out(
                    stream.Signature(data.StructLayout({"sum": data.ArrayLayout(signed(WIDTH), columns), "lost": LOST}))
                ),
                "clipped": Out(range(columns + 1)),
            }
        )

    def cycles(self, tiles, m):
        """Cycles from the first weight row to the last result, of one sum.

        Both are counted when they are taken. Nobody waits. ``m``: activation rows a tile.
        """
        return self.rows + (tiles - 1) * max(m, self.rows) + m + self.latency

    def elaborate(self, platform):
        m = Module()
        array = place(m, "array", PairedArray(rows=self.rows, columns=self.columns, pair=self.pair), platform)
        sums = place(m, "sums", AlignedSums(columns=self.columns, width=array.width, tokens=self.tokens), platform)
        depth = self.latency + 2
        m.submodules.results = results = SyncFIFOBuffered(width=len(self.o.p.as_value()), depth=depth)
        # The array cannot stall: a row is taken only if there is room for what it will become.
        credit = Signal(range(depth + 1), init=depth)
        row = self.i.p
        take, take_weight, swap, waiting = tile_gate(m, self.rows, self.i, self.w, self.o, credit, last=row.last)
        m.d.comb += [
            array.tag.launch.eq(take_weight),
            array.tag.swap.eq(swap),
            array.tag.use_m.eq(take),
            array.row.eq(Mux(swap, 0, waiting)),
            array.x.eq(row.x),
            array.w.eq(self.w.p.w),
            self.clipped.eq(array.clipped),
        ]

        # Places of tokens and tiles of a sum: both counts are stuck at what is beyond.
        count, tiles = Signal(range(self.tokens + 1)), Signal(range(TILES + 2))
        index, tile = Signal.like(count), Signal.like(tiles)
        m.d.comb += [
            index.eq(Mux(row.first, 0, count)),
            tile.eq(Mux(~row.first, tiles, Mux(row.start, 1, tiles + (tiles <= TILES)))),
        ]
        with m.If(take):
            m.d.sync += [count.eq(index + (index != self.tokens)), tiles.eq(tile)]
        tag = Signal(aligned_tag(self.tokens))
        m.d.comb += [
            tag.valid.eq(take),
            tag.start.eq(row.start),
            # mutant everything-kept: tag.keep.eq(1),
            tag.keep.eq(index != self.tokens),
            tag.place.eq(index),
            tag.drop.eq(row.drop),
            tag.far.eq((index == self.tokens) | (tile > TILES)),
        ]
        leaves = delay(m, take & row.last, array.latency + AlignedSums.latency, reset_less=False)
        m.d.comb += [
            sums.tag.eq(delay(m, tag, array.latency, reset_less=False)),
            *(ours.eq(theirs) for ours, theirs in zip(sums.sums, array.sums)),
            results.w_en.eq(leaves),
            results.w_data.eq(Cat(*sums.o, sums.lost)),
            self.o.valid.eq(results.r_rdy),
            self.o.payload.eq(results.r_data),
            results.r_en.eq(self.o.ready),
        ]
        return m
