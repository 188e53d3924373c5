"""Packs a tensor's quantised blocks into the 128-bit beats of a record."""
from amaranth.hdl import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .decoder import SCALE
from .encoder import block_layout

__all__ = ["RecordPacker", "BEAT"]

BEAT = 128
SCALES = BEAT // SCALE.width  # scales in a beat


class RecordPacker(wiring.Component):
    """Turns a tensor's blocks into one tap of a record: its codes as they come, then its scales.

    A block is ``block / 32`` beats of codes; after the tensor's last block follow
    ``ceil(blocks / 8)`` beats of scales, block 0 lowest, the rest zero. ``o.p.last`` is on the last.

    Throughput is one beat a cycle, but for one free cycle before the scales. The first beat of a
    block's codes leaves in the cycle in which the block is offered, and the block is taken with it
    (latency 0); ``i.ready`` depends on ``o.ready`` and ``o`` on ``i`` combinationally.

    Parameters
    ----------
    block : int
        Elements of a block, a multiple of 32.
    max_blocks : int
        Most blocks of a tensor: a multiple of 8.

    Members
    -------
    i : ``In(stream)`` of :func:`~gradloom.rtl.quant.encoder.block_layout`
    o : ``Out(stream)`` of ``{data: 128, last: 1}``
    overflow : ``Out(1)``
        High for the cycle in which a block beyond ``max_blocks`` is taken. The tensor's scales are then
        wrong: its later blocks write over the first ones'.
    """

    def __init__(self, *, block=64, max_blocks=256):
        if block < 32 or block % 32:
            raise ValueError(f"block={block}: must be a positive multiple of 32, a beat's codes")
        if max_blocks < SCALES or max_blocks % SCALES:
            raise ValueError(f"max_blocks={max_blocks}: must be a positive multiple of {SCALES}")
        self.block = block
        self.max_blocks = max_blocks
        super().__init__({
            "i": In(stream.Signature(block_layout(block))),
            "o": Out(stream.Signature(data.StructLayout({"data": unsigned(BEAT), "last": 1}))),
            "overflow": Out(1),
        })

    def cycles(self, blocks):
        """Beats of a tensor of ``blocks`` blocks, which is its cycles but for one."""
        return blocks * self.block * 4 // BEAT + -(-blocks // SCALES)

    def elaborate(self, platform):
        m = Module()
        beats = self.block * 4 // BEAT
        rows = self.max_blocks // SCALES

        m.submodules.scales = scales = Memory(
            shape=data.ArrayLayout(SCALE.shape, SCALES), depth=rows, init=[])
        write = scales.write_port(granularity=1)
        read = scales.read_port()

        lane = Signal(range(SCALES))
        row = Signal(range(rows))
        many = Signal()
        take = Signal()
        ends = Signal()  # the block taken last was the tensor's last, with its scale in row `final`
        final = Signal(range(rows))
        m.d.comb += [
            take.eq(self.i.valid & self.i.ready),
            write.addr.eq(row),
            self.overflow.eq(take & many),
        ]
        for n in range(SCALES):
            # The first scale of a row clears the rest of it.
            m.d.comb += [
                write.en[n].eq(take & ((lane == 0) | (lane == n))),
                write.data[n].eq(self.i.p.scale if n == 0 else Mux(lane == 0, 0, self.i.p.scale)),
            ]
        with m.If(take):
            m.d.sync += [ends.eq(self.i.p.last), final.eq(row), lane.eq(lane + 1)]
            with m.If(lane == SCALES - 1):
                m.d.sync += [row.eq(Mux(row == rows - 1, 0, row + 1)), many.eq(many | (row == rows - 1))]

        # Beats of the block in hand that are still to go.
        rest = Signal(max(1, beats - 1) * BEAT)
        left = Signal(range(max(2, beats)))
        coming, shown = Signal(range(rows)), Signal(range(rows))  # rows of scales
        m.d.comb += read.addr.eq(coming)
        with m.FSM():
            with m.State("CODES"):
                with m.If(left == 0):
                    m.d.comb += [
                        self.o.valid.eq(self.i.valid),
                        self.o.p.data.eq(self.i.p.codes[:BEAT]),
                        self.i.ready.eq(self.o.ready),
                    ]
                    with m.If(take):
                        m.d.sync += [rest.eq(self.i.p.codes[BEAT:]), left.eq(beats - 1)]
                        if beats == 1:
                            with m.If(self.i.p.last):
                                m.next = "READ"
                with m.Else():
                    m.d.comb += [self.o.valid.eq(1), self.o.p.data.eq(rest[:BEAT])]
                    with m.If(self.o.ready):
                        m.d.sync += left.eq(left - 1)
                        if beats > 2:
                            m.d.sync += rest.eq(rest >> BEAT)
                        with m.If((left == 1) & ends):
                            m.next = "READ"
            with m.State("READ"):
                m.d.comb += read.en.eq(1)
                m.d.sync += [coming.eq(1 if rows > 1 else 0), shown.eq(0)]
                m.next = "SCALES"
            with m.State("SCALES"):
                m.d.comb += [
                    self.o.valid.eq(1),
                    self.o.p.data.eq(Cat(read.data)),
                    self.o.p.last.eq(shown == final),
                    read.en.eq(self.o.ready),
                ]
                with m.If(self.o.ready):
                    m.d.sync += [coming.eq(coming + 1), shown.eq(coming)]
                    with m.If(shown == final):
                        m.d.sync += [coming.eq(0), lane.eq(0), row.eq(0), many.eq(0)]
                        m.next = "CODES"
        return m
