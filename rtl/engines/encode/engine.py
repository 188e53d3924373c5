"""The encode engine: dense activations of a row to a cache record."""

from amaranth.hdl import Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...hierarchy import place
from ...shell.registers.errors import Error
from ...shell.signature import EngineSignature
from ...units.encoder import NF4_THRESHOLDS
from ..compare import beyond
from .commands import EncodeOpcode, EncodeOperands
from .tap import TapEncoder

__all__ = ["EncodeEngine"]


class EncodeEngine(wiring.Component):
    """Reads a row's dense activations and encodes or passes them.

    One element a cycle; passed elements stay as they are.

    Members
    -------
    engine : see :class:`EngineSignature`. ``done``: the last element has left the row; beats follow on the streams.
    peek : address to be read of ``row``; ``grant``: taken. ``data`` with ``arrives`` is due in order, any time later.
    taps, raw : streams of beats.
    table : rewrites thresholds.
    """

    queue = 64

    def __init__(self, config):
        self.config = config
        super().__init__(
            {
                "engine": In(EngineSignature()),
                "peek": Out(
                    data.StructLayout(
                        {"valid": 1, "row": ceil_log2(config.rows), "address": ceil_log2(config.dense_depth)}
                    )
                ),
                "grant": In(1),
                "arrives": In(1),
                "data": In(config.activation.shape),
                "taps": Out(stream.Signature(unsigned(128))),
                "raw": Out(stream.Signature(unsigned(128))),
                "table": In(NF4_THRESHOLDS),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        encoder = place(m, "encoder", TapEncoder(blocks=config.blocks, fmt=config.activation), platform)
        command = self.engine.command
        asked = data.View(EncodeOperands, command.p.args)

        # Checked in one cycle, begun in the next.
        bad, known, checked = Signal(), Signal(), Signal()
        m.d.sync += [
            checked.eq(command.valid & ~command.ready),
            known.eq((command.p.opcode == EncodeOpcode.ACTIVATIONS) | (command.p.opcode == EncodeOpcode.RAW)),
            bad.eq(
                (asked.elements == 0)
                | (asked.row >= config.rows)
                | beyond(asked["from"] + asked.elements, config.dense_depth)
                | beyond(asked.elements, 64 * config.blocks)
            ),
        ]
        left = Signal(16)
        address = Signal.like(self.peek.address)
        row = Signal.like(self.peek.row)
        raw, wide, reading, waiting = Signal(), Signal(), Signal(), Signal()
        left_out, last = Signal(16), Signal()
        base_ready = encoder.base.ready | (command.p.opcode == EncodeOpcode.RAW)
        with m.If(command.valid & checked & ~reading & ~waiting):
            with m.If(~known):
                m.d.comb += [self.engine.error.valid.eq(1), self.engine.error.code.eq(Error.UNKNOWN_OPCODE)]
            with m.Elif(bad):
                m.d.comb += [self.engine.error.valid.eq(1), self.engine.error.code.eq(Error.BAD_OPERAND)]
            with m.Else():
                m.d.comb += [command.ready.eq(base_ready), encoder.base.valid.eq(command.p.opcode != EncodeOpcode.RAW)]
            with m.If(command.ready):
                m.d.sync += [
                    reading.eq(1),
                    waiting.eq(1),
                    raw.eq(command.p.opcode == EncodeOpcode.RAW),
                    row.eq(asked.row),
                    wide.eq(asked.wide),
                    address.eq(asked["from"]),
                    left.eq(asked.elements - 1),
                    left_out.eq(asked.elements - 1),
                    last.eq(asked.elements == 1),
                ]
        m.d.comb += encoder.base.p.eq(asked.scale)

        m.submodules.fifo = fifo = SyncFIFOBuffered(width=config.activation.width, depth=self.queue)
        room = Signal(range(self.queue + 1), init=self.queue)
        read, leave = Signal(), Signal()
        m.d.comb += [
            self.peek.valid.eq(reading & (room != 0)),
            self.peek.row.eq(row),
            self.peek.address.eq(address),
            read.eq(self.peek.valid & self.grant),
            fifo.w_en.eq(self.arrives),
            fifo.w_data.eq(self.data),
        ]
        m.d.sync += room.eq(room - read + leave)
        with m.If(read):
            m.d.sync += [address.eq(address + 1), left.eq(left - 1)]
            with m.If(left == 0):
                m.d.sync += reading.eq(0)

        # A raw beat is complete with its fourth word, or with the last; while it waits for STORE, nothing follows it.
        # The queue holds elements of the command under way alone: as many as it reads leave before the next begins.
        element = Signal(config.activation.shape)
        words = Signal(data.ArrayLayout(signed(32), 4))
        place_in_beat = Signal(2)
        whole = Signal()
        m.d.comb += [
            element.eq(fifo.r_data),
            encoder.i.valid.eq(fifo.r_rdy & ~raw),
            encoder.i.p.x.eq(element),
            encoder.i.p.last.eq(last),
            encoder.i.p.wide.eq(wide),
            leave.eq(fifo.r_rdy & Mux(raw, ~whole, encoder.i.ready)),
            fifo.r_en.eq(leave),
            self.raw.valid.eq(whole),
            self.raw.p.eq(words),
        ]
        with m.If(self.raw.ready):
            m.d.sync += whole.eq(0)
        with m.If(leave):
            m.d.sync += [left_out.eq(left_out - 1), last.eq(left_out == 1)]
            with m.If(raw):
                m.d.sync += [place_in_beat.eq(Mux(last, 0, place_in_beat + 1)), whole.eq(last | place_in_beat.all())]
                with m.If(place_in_beat == 0):
                    m.d.sync += words.eq(0)
                m.d.sync += words[place_in_beat].eq(element)
            with m.If(last):
                m.d.sync += waiting.eq(0)
                m.d.comb += self.engine.done.eq(1)
        m.d.comb += [
            self.taps.valid.eq(encoder.o.valid),
            self.taps.p.eq(encoder.o.p),
            encoder.o.ready.eq(self.taps.ready),
            encoder.table.en.eq(self.table.en),
            encoder.table.addr.eq(self.table.addr),
            encoder.table.data.eq(self.table.data),
        ]
        return m
