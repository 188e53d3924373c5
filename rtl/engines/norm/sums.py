"""Sums of segments by lane, then by group."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...formats.tiles.codes import EDGE, WORD
from ...formats.tiles.norm import ROW, at_once, positions
from ...hierarchy import place
from ...stream.delay import delay
from .lane import HALVES, PRODUCT
from .rows import NormRows

__all__ = ["SECOND", "TOTAL", "NormSums", "total_layout"]

#: Bits of both sums of a group, and of a lane's total.
TOTAL, SECOND, _LANE = ROW, 60, 40
#: Below all scores.
_LEAST = -(1 << HALVES - 1)


def total_layout():
    """Sums of a group: of its words, and of what goes with them."""
    return data.StructLayout({"valid": 1, "index": range(EDGE), "total": signed(TOTAL), "second": signed(SECOND)})


class NormSums(wiring.Component):
    """Adds up words of each lane in a segment, then lanes of a group.

    The latter one after another; lanes of a row some at once.

    A segment's last beat comes as many cycles as there are :func:`~...formats.tiles.norm.positions` after the one
    before it, or more; the last total of a segment :meth:`latency` cycles after its last beat.

    Parameters
    ----------
    lanes : int

    Members
    -------
    columns : lanes of a segment are features of ``2**group`` a group, which may go on in the segments that follow;
        else all are of the row. largest : the largest word, not the sum. group, features : the latter less 1.
        more, fall : rows go on from what they had, shifted right; without ``more`` that is 0. Held.
    ahead : the row of the beat :meth:`lead` cycles later.
    i : a beat of ``words`` and ``seconds`` with ``valid``, ``mask``, ``first`` and ``last`` of its segment; ``row`` and
        ``beat`` are the segment's. Where sums are taken, words without ``mask`` are 0.
    o : :func:`total_layout`. Groups beyond the features have none.
    """

    @staticmethod
    def latency(lanes, *, columns=False):
        """Cycles from a segment's last beat to its last total."""
        return 5 - NormSums.lead(lanes) + positions(lanes, columns=columns)

    @staticmethod
    def lead(lanes):
        """Cycles from the row that is looked up to its beat."""
        return 2 - (at_once(lanes) - 1).bit_length()

    def __init__(self, *, lanes):
        self.lanes = lanes
        super().__init__(
            {
                "columns": In(1),
                "largest": In(1),
                "group": In(3),
                "features": In(range(EDGE)),
                "more": In(1),
                "fall": In(6),
                "ahead": In(range(EDGE)),
                "i": In(
                    data.StructLayout(
                        {
                            "valid": 1,
                            "first": 1,
                            "last": 1,
                            "row": range(EDGE),
                            "beat": range(EDGE // lanes),
                            "mask": lanes,
                            "words": data.ArrayLayout(signed(WORD), lanes),
                            "seconds": data.ArrayLayout(signed(PRODUCT), lanes),
                        }
                    )
                ),
                "o": Out(total_layout()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        i, lanes = self.i, self.lanes
        totals, seconds = [], []
        for lane in range(lanes):
            total = Signal(signed(_LANE), reset_less=True, name=f"lane_total_{lane}")
            # mutant short: second = Signal(signed(PRODUCT + 1), reset_less=True, name=f"lane_second_{lane}")
            second = Signal(signed(SECOND), reset_less=True, name=f"lane_second_{lane}")
            most = Signal(signed(HALVES), reset_less=True, name=f"lane_most_{lane}")
            word = i.words[lane]
            code, before = word[:HALVES].as_signed(), Mux(i.first, _LEAST, most)
            with m.If(i.valid):
                m.d.sync += [
                    total.eq(Mux(i.first, 0, total) + word[:_LANE].as_signed()),
                    # mutant mixes-segments: second.eq(second + i.seconds[lane]),
                    second.eq(Mux(i.first, 0, second) + i.seconds[lane]),
                    # mutant takes-padding: most.eq(Mux(before > code, before, code)),
                    most.eq(Mux(~i.mask[lane] | (before > code), before, code)),
                ]
            totals.append(Cat(Mux(self.largest, most.as_unsigned(), total[:HALVES]), total[HALVES:]))
            seconds.append(second)

        # Lanes of an ended segment, looked at one position after another.
        ended = delay(m, i.valid & i.last, 1, reset_less=False)
        row, beat = (delay(m, each, 1) for each in (i.row, i.beat))
        waiting = [[Signal(len(each), reset_less=True) for each in some] for some in (totals, seconds)]
        count = at_once(lanes)
        active, lane, last = Signal(), Signal(range(lanes)), Signal(range(lanes))
        own_row, own_beat = Signal.like(row), Signal.like(beat)
        with m.If(ended):
            m.d.sync += [active.eq(1), lane.eq(0), own_row.eq(row), own_beat.eq(beat)]
            for some, kept in zip((totals, seconds), waiting):
                m.d.sync += [each.eq(one) for each, one in zip(kept, some)]
        with m.Else():
            m.d.sync += lane.eq(lane + Mux(self.columns, 1, count))
            with m.If(lane == last):
                m.d.sync += active.eq(0)

        position, ones = Signal(range(EDGE)), Signal(range(EDGE))
        m.d.comb += [
            last.eq(Mux(self.columns, lanes - 1, lanes - count)),
            position.eq(Mux(self.columns, Cat(lane, own_beat), lane)),
            ones.eq(Mux(self.columns, Array((1 << n) - 1 for n in range(8))[self.group], lanes - 1)),
        ]
        # The position's sums with what is to become of them, then the group's.
        total, second = (self._at(m, some, lane, larger) for some, larger in zip(waiting, (self.largest, 0)))
        steps = 3 - self.lead(lanes)
        there = delay(m, active, steps, reset_less=False)
        fresh, index = (
            delay(m, each, steps)
            for each in ((position & ones) == 0, Mux(self.columns, position >> self.group, own_row)[: len(position)])
        )
        whole = Mux(self.columns, (position & ones) == ones, lane == last)
        ends = delay(
            m,
            # mutant beyond: active & whole,
            active & whole & (~self.columns | (position <= self.features)),
            steps,
            reset_less=False,
        )
        rows = place(m, "rows", NormRows(least=_LEAST), platform)
        m.d.comb += [
            rows.row.eq(self.ahead),
            *(getattr(rows, name).eq(getattr(self, name)) for name in ("more", "fall", "largest")),
            *(getattr(rows.write, name).eq(self.o[name]) for name in ("valid", "index", "total")),
        ]
        before = Mux(fresh, rows.o, self.o.total)
        m.d.sync += self.o.valid.eq(ends)
        with m.If(there):
            m.d.sync += [
                self.o.index.eq(index),
                self.o.total.eq(Mux(self.largest, _larger(before, total), before + total)),
                self.o.second.eq(Mux(fresh, 0, self.o.second) + second),
            ]
        return m

    def _at(self, m, waiting, lane, larger):
        """Of the lanes at once from ``lane`` on the sum or, ``larger``, the largest; by groups of features one lane."""
        count = at_once(self.lanes)
        side = (count - 1).bit_length()
        some = [Array(waiting[n::count])[lane[side:]].as_signed() for n in range(count)]
        if side:
            # mutant all-lanes: some = list(some)
            some = [Mux(~self.columns | (lane[:side] == n), one, 0) for n, one in enumerate(some)]
        some = [delay(m, each, 1) for each in some]
        while len(some) > 1:
            pairs = [Mux(larger, _larger(a, b), a + b) for a, b in zip(some[::2], some[1::2])]
            some = [delay(m, each, 1) for each in pairs]
        return some[0]


def _larger(one, other):
    """The larger score; it is in the lower bits alone."""
    one, other = (each[:HALVES].as_signed() for each in (one, other))
    return Mux(one > other, one, other)
