"""Hidden memory: h for gradients, from a product or from memory."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...formats.rounding import saturate_hdl
from ...formats.weights.linear import ACTIVATION, MASTER, WEIGHT, half_up_hdl
from ...hierarchy import place
from ...stream.delay import delay
from ..beats import BeatQueue
from ..linear.feet import HiddenWord
from ..words import sign_extended
from .commands import HIDDEN_ARG
from .parameters import SLOTS

__all__ = ["HiddenMemory", "RestoreBeat"]


def RestoreBeat(config):
    """A beat of h that comes back; ``first`` of its command."""
    return data.StructLayout({"data": config.data_bits, "first": 1, "arg": HIDDEN_ARG})


class HiddenMemory(wiring.Component):
    """h of :data:`SLOTS` slots, rounded to 18 bits: 6 bits dropped, half up.

    In memory, h is pairs of rank indices outermost, then tokens, two words of 32 bits each; the last beat may hold
    more, which is not looked at. A beat of either direction takes ``edge / 16`` cycles, and more while the gradient
    engine reads or words come from a product.

    Members
    -------
    hidden : words from a product; taken always.
    read : ``slot``, ``token`` and ``pair``, if ``valid``; ``words`` are there a cycle later.
    request : stream of :data:`HIDDEN_ARG` of what is to be sent. o : its beats.
    restore : stream of beats that come back, ``first`` of their command.
    saturated : a word from a product was clipped.
    """

    def __init__(self, config):
        self.config = config
        pairs = config.rank // 2
        super().__init__(
            {
                "hidden": In(HiddenWord(config)),
                "read": In(
                    data.StructLayout(
                        {"valid": 1, "slot": range(SLOTS), "token": range(config.tokens), "pair": range(pairs)}
                    )
                ),
                "words": Out(data.ArrayLayout(signed(WEIGHT.width), 2)),
                "request": In(stream.Signature(HIDDEN_ARG)),
                "o": Out(stream.Signature(config.data_bits)),
                "restore": In(stream.Signature(RestoreBeat(config))),
                "saturated": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        pairs = config.rank // 2
        steps = config.beat_words // 2
        where = data.StructLayout(
            {"valid": 1, "slot": range(SLOTS), "token": range(config.tokens), "pair": range(pairs)}
        )

        # ---- words in: from a product, else from memory
        rounded = half_up_hdl(self.hidden.value, ACTIVATION.width - WEIGHT.width)
        clipped, over = saturate_hdl(rounded, WEIGHT.shape)
        m.d.comb += self.saturated.eq(self.hidden.valid & over)
        word = Signal(signed(WEIGHT.width), reset_less=True)
        m.d.sync += word.eq(clipped)
        made = delay(m, self.hidden, 1, reset_less=False)

        held, left = Signal(config.data_bits, reset_less=True), Signal(range(steps + 1))
        at = Signal(where)
        size = Signal(HIDDEN_ARG)
        back = Signal()
        m.d.comb += [back.eq((left != 0) & ~made.valid), self.restore.ready.eq((left == 0) | (back & (left == 1)))]
        with m.If(back):
            m.d.sync += [held.eq(held >> 2 * MASTER.width), left.eq(left - 1)]
            self._advance(m, at, size)
        with m.If(self.restore.valid & self.restore.ready):
            m.d.sync += [held.eq(self.restore.p.data), left.eq(steps)]
            with m.If(self.restore.p.first):
                m.d.sync += [size.eq(self.restore.p.arg), at.eq(0), at.valid.eq(1), at.slot.eq(self.restore.p.arg.slot)]

        # ---- words out: to the gradients, else to memory
        asked = Signal(HIDDEN_ARG)
        sending = Signal()
        send = Signal(where)
        queue = place(
            m, "queue", BeatQueue(bits=config.data_bits, word_bits=2 * MASTER.width, depth=8, spare=4), platform
        )
        m.d.comb += self.request.ready.eq(~sending)
        with m.If(self.request.valid & self.request.ready):
            m.d.sync += [
                asked.eq(self.request.p),
                sending.eq(1),
                send.eq(0),
                send.valid.eq(1),
                send.slot.eq(self.request.p.slot),
            ]
        issue = Signal()
        step, steps_end = Signal(range(steps)), Signal()
        m.d.comb += [issue.eq(sending & queue.roomy & ~self.read.valid), steps_end.eq(step == steps - 1)]
        with m.If(issue):
            m.d.sync += step.eq(Mux(steps_end, 0, step + 1))
            ends = self._advance(m, send, asked)
            # The last beat is filled with what comes behind.
            with m.If(steps_end & (ends | ~send.valid)):
                m.d.sync += sending.eq(0)

        address = Mux(
            self.read.valid, Cat(self.read.token, self.read.slot, self.read.pair), Cat(send.token, send.slot, send.pair)
        )
        for side in range(2):
            m.submodules[f"side_{side}"] = side_memory = memory.Memory(
                shape=signed(WEIGHT.width), depth=SLOTS * config.tokens << ceil_log2(pairs), init=[]
            )
            write, read = side_memory.write_port(), side_memory.read_port()
            m.d.comb += [
                write.en.eq(Mux(made.valid, made.rank[0] == side, back & at.valid)),
                write.addr.eq(
                    Mux(
                        made.valid,
                        Cat(made.token, made.slot, Const(0, ceil_log2(SLOTS) - 1), made.rank[1:]),
                        Cat(at.token, at.slot, at.pair),
                    )
                ),
                write.data.eq(Mux(made.valid, word, held.word_select(side, MASTER.width)[: WEIGHT.width].as_signed())),
                read.addr.eq(address),
                self.words[side].eq(read.data),
            ]
        m.d.comb += [
            queue.i.valid.eq(delay(m, issue, 1, reset_less=False)),
            queue.i.data.eq(Cat(sign_extended(self.words[0]), sign_extended(self.words[1]))),
            self.o.valid.eq(queue.o.valid),
            self.o.p.eq(queue.o.p.data),
            queue.o.ready.eq(self.o.ready),
        ]
        return m

    def _advance(self, m, at, size):
        """Moves to the next token, and after the last one to the next pair.

        ``valid`` ends behind the last pair. Returns whether this is the last pair.
        """
        last_token = at.token == size.tokens - 1
        ends = last_token & (at.pair == size.rank[1:] - 1)
        m.d.sync += at.token.eq(at.token + 1)
        with m.If(last_token):
            m.d.sync += [at.token.eq(0), at.pair.eq(at.pair + 1)]
        with m.If(ends):
            m.d.sync += at.valid.eq(0)
        return ends
