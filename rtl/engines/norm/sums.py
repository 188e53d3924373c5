"""Sums of segments by lane, then by group."""

from amaranth.hdl import Array, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...formats.tile_codes import EDGE, WIDE, WORD
from ...stream.delay import delay
from .lane import PRODUCT
from .walk import PACE

__all__ = ["SECOND", "TOTAL", "NormSums", "total_layout"]

#: Bits of both sums of a group.
TOTAL, SECOND = 40, 60
_LANES = 8
assert PACE == _LANES
#: Below all codes.
_LEAST = -(1 << WIDE - 1)


def total_layout():
    """Sums of a group: of its words, and of what goes with them."""
    return data.StructLayout({"valid": 1, "index": range(EDGE), "total": signed(TOTAL), "second": signed(SECOND)})


class NormSums(wiring.Component):
    """Adds up words of each lane in a segment, then lanes of a group.

    The latter one after another.

    A segment's last beat comes :data:`~.walk.PACE` cycles after the one before it or later; the last total of a
    segment :attr:`latency` cycles after its last beat.

    Members
    -------
    columns : lanes of a segment are features of ``2**group`` a group, which may go on in the segments that follow;
        else all are of the row. largest : the largest word, not the sum. group, features : the latter less 1. Held.
    i : a beat of ``words`` and ``seconds`` with ``valid``, ``mask``, ``first`` and ``last`` of its segment; ``row`` and
        ``beat`` are the segment's.
    o : :func:`total_layout`. Groups beyond the features have none.
    """

    latency = 3 + _LANES

    def __init__(self):
        super().__init__(
            {
                "columns": In(1),
                "largest": In(1),
                "group": In(3),
                "features": In(range(EDGE)),
                "i": In(
                    data.StructLayout(
                        {
                            "valid": 1,
                            "first": 1,
                            "last": 1,
                            "row": range(EDGE),
                            "beat": 3,
                            "mask": _LANES,
                            "words": data.ArrayLayout(signed(WORD), _LANES),
                            "seconds": data.ArrayLayout(signed(PRODUCT), _LANES),
                        }
                    )
                ),
                "o": Out(total_layout()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        i = self.i
        totals, seconds = [], []
        for lane in range(_LANES):
            total = Signal(signed(TOTAL), reset_less=True, name=f"lane_total_{lane}")
            # mutant short: second = Signal(signed(PRODUCT + 1), reset_less=True, name=f"lane_second_{lane}")
            second = Signal(signed(SECOND), reset_less=True, name=f"lane_second_{lane}")
            word, beside = i.words[lane], i.seconds[lane]
            before = Mux(i.first, Mux(self.largest, _LEAST, 0), total)
            with m.If(i.valid):
                # mutant mixes-segments: m.d.sync += second.eq(second + Mux(i.mask[lane], beside, 0))
                m.d.sync += second.eq(Mux(i.first, 0, second) + Mux(i.mask[lane], beside, 0))
                with m.If(self.largest):
                    code = word[:WIDE].as_signed()
                    # mutant takes-padding: m.d.sync += total.eq(Mux(before > code, before, code))
                    m.d.sync += total.eq(Mux(~i.mask[lane] | (before[:WIDE].as_signed() > code), before, code))
                with m.Else():
                    m.d.sync += total.eq(before + Mux(i.mask[lane], word[:TOTAL].as_signed(), 0))
            totals.append(total)
            seconds.append(second)

        # Lanes of an ended segment, the next one below the others.
        ended = delay(m, i.valid & i.last, 1, reset_less=False)
        row, beat = (delay(m, each, 1) for each in (i.row, i.beat))
        waiting = [(Signal.like(t), Signal.like(s)) for t, s in zip(totals, seconds)]
        active, lane = Signal(), Signal(range(_LANES))
        own_row, own_beat = Signal.like(row), Signal.like(beat)
        with m.If(ended):
            m.d.sync += [active.eq(1), lane.eq(0), own_row.eq(row), own_beat.eq(beat)]
            m.d.sync += [each.eq(t) for (each, _), t in zip(waiting, totals)]
            m.d.sync += [each.eq(s) for (_, each), s in zip(waiting, seconds)]
        with m.Else():
            m.d.sync += lane.eq(lane + 1)
            with m.If(lane == _LANES - 1):
                m.d.sync += active.eq(0)
            for one, after in zip(waiting, waiting[1:]):
                m.d.sync += [one[0].eq(after[0]), one[1].eq(after[1])]

        place, ones = Signal(range(EDGE)), Signal(range(EDGE))
        m.d.comb += [
            place.eq(Mux(self.columns, (own_beat << 3) | lane, lane)),
            ones.eq(Mux(self.columns, Array((1 << n) - 1 for n in range(8))[self.group], _LANES - 1)),
        ]
        # The lane's sums with what is to become of them, then the group's.
        total, second = (delay(m, each, 1) for each in waiting[0])
        there = delay(m, active, 1, reset_less=False)
        fresh, index = (
            delay(m, each, 1)
            for each in ((place & ones) == 0, Mux(self.columns, place >> self.group, own_row)[: len(place)])
        )
        ends = delay(
            m,
            # mutant beyond: active & ((place & ones) == ones),
            active & ((place & ones) == ones) & (~self.columns | (place <= self.features)),
            1,
            reset_less=False,
        )
        before = Mux(fresh, Mux(self.largest, _LEAST, 0), self.o.total)
        larger = Mux(before[:WIDE].as_signed() > total[:WIDE].as_signed(), before, total)
        m.d.sync += self.o.valid.eq(ends)
        with m.If(there):
            m.d.sync += [
                self.o.index.eq(index),
                self.o.total.eq(Mux(self.largest, larger, before + total)),
                self.o.second.eq(Mux(fresh, 0, self.o.second) + second),
            ]
        return m
