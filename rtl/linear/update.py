"""Gradient descent on adapter words as they pass from memory to memory."""
from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from ..config import LinearConfig
from ..control.errors import Error
from ..control.signature import EngineSignature
from ..formats.linear import ACTIVATION, MASTER, WEIGHT
from ..hierarchy import place
from ..stream.delay import delay
from .words import Requantize

__all__ = ["UpdateOperands", "UpdateEngine"]

#: Operands of the one command: beats of words, learning rate and the shift of its product with a gradient.
UpdateOperands = data.StructLayout({"beats": 16, "rate": 17, "shift": 6, "_reserved": 121})


class UpdateEngine(wiring.Component):
    """``p' = saturate(p - round(rate * g * 2**-shift))``, a beat a cycle.

    g are 24-bit words, p 32-bit words. Gradients wait in a FIFO of ``depth`` beats until their words come, so a
    program loads at most that many before it loads words.

    Members
    -------
    engine : see :class:`EngineSignature`.
    gradient, parameter : streams of beats. o : stream of beats of new words.
    saturated : how many words were clipped.
    """

    depth = 512

    def __init__(self, config=LinearConfig()):
        self.config = config
        beats = stream.Signature(config.beat_bits)
        super().__init__({
            "engine": In(EngineSignature()), "gradient": In(beats), "parameter": In(beats), "o": Out(beats),
            "saturated": Out(4),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        port = self.engine
        args = Signal(UpdateOperands)
        left = Signal(16)
        judged, known = Signal(), Signal()
        m.d.comb += port.command.ready.eq((left == 0) & ~judged & ~port.error.valid)
        with m.If(port.command.valid & port.command.ready):
            m.d.sync += [args.eq(port.command.payload.args), known.eq(port.command.payload.opcode == 0), judged.eq(1)]
        with m.If(judged):
            m.d.sync += judged.eq(0)
            with m.If(~known | (args.beats == 0)):
                m.d.sync += [port.error.valid.eq(1),
                             port.error.code.eq(Mux(known, Error.BAD_OPERAND, Error.UNKNOWN_OPCODE))]
            with m.Else():
                m.d.sync += left.eq(args.beats)

        waiting = SyncFIFOBuffered(width=config.beat_bits, depth=self.depth)
        fifo = SyncFIFOBuffered(width=config.beat_bits + 1, depth=16)
        m.submodules.waiting, m.submodules.fifo = waiting, fifo
        roomy, go = Signal(), Signal()
        m.d.sync += roomy.eq(fifo.w_level < 16 - 10)
        m.d.comb += [
            waiting.w_data.eq(self.gradient.p), waiting.w_en.eq(self.gradient.valid),
            self.gradient.ready.eq(waiting.w_rdy),
            go.eq((left != 0) & waiting.r_rdy & self.parameter.valid & roomy),
            waiting.r_en.eq(go), self.parameter.ready.eq(go),
        ]
        with m.If(go):
            m.d.sync += left.eq(left - 1)
        tag = Signal(data.StructLayout({"valid": 1, "last": 1}))
        m.d.comb += [tag.valid.eq(go), tag.last.eq(left == 1)]
        at_step = 2 + Requantize.latency
        out = delay(m, tag, at_step + 2, reset_less=False)
        held = delay(m, self.parameter.p, at_step)
        rate = Signal(signed(WEIGHT.width))
        m.d.comb += rate.eq(args.rate)
        # The next command may have been taken while the last beat of this one is on its way.
        shift = delay(m, args.shift, 2)
        beat, clipped = [], []
        for lane in range(config.beat_words):
            g, product = Signal(signed(ACTIVATION.width), reset_less=True), Signal(signed(42), reset_less=True)
            requantize = place(m, f"requantize_{lane}", Requantize(width=42, result=MASTER.width), platform)
            difference = Signal(signed(MASTER.width + 1), reset_less=True)
            word, over = Signal(signed(MASTER.width), reset_less=True), Signal()
            m.d.sync += [
                g.eq(waiting.r_data.word_select(lane, MASTER.width)[:ACTIVATION.width].as_signed()),
                product.eq(g * rate),
                difference.eq(held.word_select(lane, MASTER.width).as_signed() - requantize.o),
                word.eq(Mux(difference[-1] == difference[-2], difference,
                            Mux(difference[-1], MASTER.lo, MASTER.hi))),
                over.eq((difference[-1] != difference[-2]) | delay(m, requantize.saturated, 1)),
            ]
            m.d.comb += [requantize.i.eq(product), requantize.shift.eq(shift)]
            beat.append(word)
            clipped.append(over)
        m.d.comb += [
            fifo.w_data.eq(Cat(*beat, out.last)), fifo.w_en.eq(out.valid),
            self.o.valid.eq(fifo.r_rdy), self.o.p.eq(fifo.r_data), fifo.r_en.eq(self.o.ready),
        ]
        m.d.sync += [
            port.done.eq(fifo.r_rdy & self.o.ready & fifo.r_data[-1]),
            self.saturated.eq(Mux(out.valid, sum(clipped), 0)),
        ]
        return m
