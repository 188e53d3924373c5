"""Writes beats of the linear engine's load ports to its memories."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from ...formats.rounding import saturate_hdl
from ...formats.weights.linear import LEVEL, MASTER, WEIGHT, half_up_hdl
from ...shell.signature import LoadSignature
from .commands import OPERAND_ARG, TABLE_ARG, TILE_ARG
from .core import LaneWrite, OperandWrite
from .weights.dequantize import TileBeat
from .weights.tables import TableBeat

__all__ = ["LinearIntake"]

_PORTS = ("tables", "tiles", "operands", "lanes")


class LinearIntake(wiring.Component):
    """Judges beats; tables and tiles go on as streams, words to memories.

    An operand is in memory two cycles after its beat was accepted, an adapter word, which is rounded, three.

    Members
    -------
    load_tables, ... : load ports. ``refuse``: the beat is beyond its memory's end, or its argument names what is not
        there, or a command ends with it within a tile, or a level is above 1.
    tables, tiles : streams. refuse_tile : the beat of ``tiles`` is refused.
    operand_write, lane_write : beats into memories.
    """

    def __init__(self, config):
        self.config = config
        super().__init__(
            {
                **{f"load_{name}": In(LoadSignature(config.data_bits)) for name in _PORTS},
                "tables": Out(stream.Signature(TableBeat(config))),
                "tiles": Out(stream.Signature(TileBeat(config))),
                "refuse_tile": In(1),
                "operand_write": Out(OperandWrite(config)),
                "lane_write": Out(LaneWrite(config)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        self._weights(m)
        self._words(m)
        return m

    def _weights(self, m):
        config = self.config
        tables, tiles = self.load_tables.beats, self.load_tiles.beats
        arg = data.View(TABLE_ARG, tables.p.arg)
        m.d.comb += [
            self.tables.valid.eq(tables.valid),
            tables.ready.eq(self.tables.ready),
            self.tables.p.data.eq(tables.p.data),
            self.tables.p.index.eq(tables.p.index),
            self.tables.p.arg.eq(arg),
            # Words behind the last are not looked at, as far as they are counted.
            self.load_tables.refuse.eq(
                tables.p.index[len(self.tables.p.index) :].any()
                | Mux(
                    arg.levels,
                    (tables.p.index < 16 // config.beat_words) & ~_within_one(tables.p.data),
                    arg.groups > config.groups,
                )
            ),
            self.tiles.valid.eq(tiles.valid),
            tiles.ready.eq(self.tiles.ready),
            self.tiles.p.data.eq(tiles.p.data),
            self.tiles.p.first.eq(tiles.p.first),
            self.tiles.p.last.eq(tiles.p.last),
            self.tiles.p.arg.eq(data.View(TILE_ARG, tiles.p.arg)),
            self.load_tiles.refuse.eq(self.refuse_tile),
        ]

    def _words(self, m):
        config = self.config
        # Both have the same payload.
        beat = self.load_operands.beats.p
        arg, word = data.View(OPERAND_ARG, beat.arg), beat.index[3:]
        m.d.comb += [
            self.load_operands.refuse.eq(_sum_beyond(arg.word, word, exact_log2(config.depth))),
            self.load_lanes.refuse.eq(_sum_beyond(arg.word, word, exact_log2(config.lane_depth)) | arg.early),
        ]
        operand, rounding, lane = self.operand_write, Signal(LaneWrite(config)), self.lane_write
        # The bus has the beats of all engines: what is for others changes nothing here.
        for index in range(config.beat_words):
            value = beat.data.word_select(index, MASTER.width).as_signed()
            with m.If(self.load_operands.beats.valid):
                m.d.sync += operand.data[index].eq(value)
            # One word above the largest is possible.
            rounded = Signal(signed(WEIGHT.width + 1), reset_less=True)
            with m.If(self.load_lanes.beats.valid):
                m.d.sync += rounded.eq(half_up_hdl(value, MASTER.width - WEIGHT.width))
            m.d.sync += lane.data[index].eq(saturate_hdl(rounded, WEIGHT.shape)[0])
        for write, port in ((operand, self.load_operands), (rounding, self.load_lanes)):
            m.d.comb += port.beats.ready.eq(1)
            m.d.sync += [
                write.valid.eq(port.beats.valid & ~port.refuse),
                write.part.eq(beat.index[:3]),
                write.address.eq(beat.arg[:16] + beat.index[3:]),
            ]
        m.d.sync += [
            operand.counts.eq(arg.early & beat.index[:3].all()),
            lane.valid.eq(rounding.valid),
            lane.part.eq(rounding.part),
            lane.address.eq(rounding.address),
        ]


def _sum_beyond(a, b, bits):
    """Whether ``a + b`` needs more than ``bits`` bits.

    This is faster than a test of the sum.
    """
    return a[bits:].any() | b[bits:].any() | (a[:bits] + b[:bits])[bits]


def _within_one(beat):
    """Whether all words are levels within one.

    A larger level would make a weight larger than its block's scale.
    """
    good = []
    for word in (beat.word_select(index, 32) for index in range(len(beat) // 32)):
        top = word[LEVEL.frac :]
        good.append((top == 0) | top.all() | ((top == 1) & (word[: LEVEL.frac] == 0)))
    return Cat(good).all()
