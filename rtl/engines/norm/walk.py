"""The order in which a command's beats are read."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...formats.tiles.codes import EDGE
from ...formats.tiles.norm import positions

__all__ = ["NormWalk"]


class NormWalk(wiring.Component):
    """Walks over the beats of rows of tiles, a segment after another.

    A segment is a row over all tiles or, ``columns``, a beat's column over all rows and tiles. Beats come in each cycle
    from the one after ``start`` on; with ``paced`` a segment but the last takes at least as many cycles as its sums
    have :func:`~...formats.tiles.norm.positions`.

    Parameters
    ----------
    lanes : int
        Features of a beat.

    Members
    -------
    start, columns, paced, rows, tiles, beats : a walk begins; the others are held until it ends. Sizes are less 1.
    fill : held; all tiles but the last are full.
    valid, row, tile, beat : of this cycle, from 0 on. first, last : of its segment. end : of all. full : its tile is.
    """

    def __init__(self, *, lanes):
        self.lanes = lanes
        super().__init__(
            {
                "start": In(1),
                "columns": In(1),
                "paced": In(1),
                "rows": In(range(EDGE)),
                "tiles": In(4),
                "beats": In(range(EDGE // lanes)),
                "fill": In(1),
                "valid": Out(1),
                "row": Out(range(EDGE)),
                "tile": Out(4),
                "beat": Out(range(EDGE // lanes)),
                "first": Out(1),
                "last": Out(1),
                "end": Out(1),
                "full": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        busy, gap, age = Signal(), Signal(), Signal(range(self.lanes))
        paced, old = Signal.like(age), Signal()
        row_ends, beat_ends, tile_ends = (Signal(name=f"{name}_ends") for name in ("row", "beat", "tile"))
        inner, outer = Mux(self.columns, row_ends, beat_ends), Mux(self.columns, beat_ends, row_ends)
        begins = Signal()
        m.d.comb += [
            paced.eq(Mux(self.columns, positions(self.lanes, columns=True), positions(self.lanes)) - 1),
            old.eq(age == paced),
            row_ends.eq(self.row == self.rows),
            tile_ends.eq(self.tile == self.tiles),
            # mutant ragged: self.full.eq(0),
            self.full.eq(self.fill & ~tile_ends),
            beat_ends.eq(Mux(self.full, self.beat.all(), self.beat == self.beats)),
            self.valid.eq(busy & ~gap),
            self.first.eq(begins),
            self.last.eq(inner & tile_ends),
            self.end.eq(self.last & outer),
        ]
        with m.If(self.valid):
            m.d.sync += begins.eq(self.last)
            with m.If(self.columns):
                m.d.sync += self.row.eq(Mux(row_ends, 0, self.row + 1))
                with m.If(self.last):
                    m.d.sync += self.beat.eq(self.beat + 1)
            with m.Else():
                m.d.sync += self.beat.eq(Mux(beat_ends, 0, self.beat + 1))
                with m.If(self.last):
                    m.d.sync += self.row.eq(self.row + 1)
            with m.If(inner):
                m.d.sync += self.tile.eq(Mux(tile_ends, 0, self.tile + 1))
            with m.If(self.end):
                m.d.sync += busy.eq(0)
            # mutant unpaced: with m.Elif(0):
            with m.Elif(self.last & self.paced & ~old):
                m.d.sync += gap.eq(1)
        with m.If(busy):
            m.d.sync += age.eq(Mux((self.valid & self.last | gap) & old, 0, age + ~old))
        with m.If(gap & old):
            m.d.sync += gap.eq(0)
        with m.If(self.start):
            m.d.sync += [busy.eq(1), begins.eq(1), age.eq(0), self.row.eq(0), self.tile.eq(0), self.beat.eq(0)]
        return m
