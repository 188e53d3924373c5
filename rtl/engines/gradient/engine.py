"""Adapter gradients: outer products of h and a streamed tensor."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from ...formats.fixed import product_sum_width
from ...formats.weights.linear import ACTIVATION, MASTER, WEIGHT
from ...hierarchy import place
from ...shell.signature import EngineSignature
from ...stream.delay import delay
from ..beats import BeatQueue
from ..linear.feet import HiddenWord
from ..words import PRECISION, Requantize, judge, sign_extended
from .commands import HIDDEN_ARG, GradientOperands
from .hidden import HiddenMemory, RestoreBeat
from .parameters import GradientParameters

__all__ = ["GradientEngine"]


class GradientEngine(wiring.Component):
    """``dA = dH' X`` and ``dB' = H' dY``, whichever pair it is given.

    X streams in as it lies in memory, tile by tile, tokens within a tile, ``edge`` words a token; h is what
    :class:`~.hidden.HiddenMemory` holds under that ``slot``: what a product made last, or what came back from
    memory. Two rank indices a cycle: a beat takes ``rank / 2`` cycles. Results leave tile by tile, ``edge`` words a
    rank index.

    Sums of up to 64 tokens need 48 bits; those of more have a bit or two more. The result of a tile follows its last
    beat by 3 cycles a word and rank pair; the next tile waits for that.

    Members
    -------
    engine : see :class:`EngineSignature`.
    i : stream of beats. hidden : words of h. o : stream of beats.
    request, kept, restore : h to memory and back, see :class:`~.hidden.HiddenMemory`.
    saturated : a result, or a word of h, was clipped.
    """

    def __init__(self, config=GradientParameters()):
        self.config = config
        super().__init__(
            {
                "engine": In(EngineSignature()),
                "i": In(stream.Signature(config.data_bits)),
                "hidden": In(HiddenWord(config)),
                "o": Out(stream.Signature(config.data_bits)),
                "request": In(stream.Signature(HIDDEN_ARG)),
                "kept": Out(stream.Signature(config.data_bits)),
                "restore": In(stream.Signature(RestoreBeat(config))),
                "saturated": Out(2),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        words, pairs = config.beat_words, config.rank // 2
        parts = config.edge // words
        port = self.engine
        args = Signal(GradientOperands)
        running = Signal()
        part = Signal(range(parts))
        pair = Signal(range(pairs))
        token = Signal(range(config.tokens))
        tile = Signal(8)
        self._command(m, args, running, tile)

        kept = place(m, "hidden_memory", HiddenMemory(config), platform)
        connect(m, flipped(self.restore), kept.restore)
        connect(m, flipped(self.request), kept.request)
        connect(m, kept.o, flipped(self.kept))
        m.d.comb += kept.hidden.eq(self.hidden)
        h = kept.words

        # A beat stays for all pairs; results are read when the last token of a tile is in.
        reading = Signal()
        settle = Signal(4)
        go, top = Signal(), Signal(range(pairs), reset_less=True)
        last_pair = Signal()
        # It is there before a command runs.
        m.d.sync += top.eq(args.rank[1:] - 1)
        m.d.comb += [
            go.eq(running & self.i.valid & ~reading & (settle == 0)),
            last_pair.eq(pair == top),
            self.i.ready.eq(go & last_pair),
            kept.read.valid.eq(go),
            kept.read.slot.eq(args.slot),
            kept.read.token.eq(token),
            kept.read.pair.eq(pair),
        ]
        last_token, last_part = Signal(), Signal()
        m.d.comb += [last_token.eq(token == args.tokens - 1), last_part.eq(part == parts - 1)]
        with m.If(go):
            m.d.sync += pair.eq(pair + 1)
            with m.If(last_pair):
                m.d.sync += [pair.eq(0), part.eq(part + 1)]
                with m.If(last_part):
                    m.d.sync += [part.eq(0), token.eq(token + 1)]
                    with m.If(last_token):
                        m.d.sync += [token.eq(0), settle.eq(8)]
        tag = Signal(data.StructLayout({"valid": 1, "first": 1, "address": ceil_log2(parts) + ceil_log2(pairs)}))
        m.d.comb += [tag.valid.eq(go), tag.first.eq(token == 0), tag.address.eq(Cat(part, pair))]

        operands = Signal(config.data_bits, reset_less=True)
        m.d.sync += operands.eq(self.i.p)
        at_factors = delay(m, tag, 2, reset_less=False)
        at_sum = delay(m, at_factors, 2, reset_less=False)
        # Results: words of a beat and one of two rank indices, one a cycle.
        word, side, row = Signal(range(words)), Signal(), Signal.like(tag.address)
        results = self._sums(m, operands, h, at_factors, at_sum, Mux(reading, row, at_factors.address))

        queue = place(
            m,
            "queue",
            BeatQueue(bits=config.data_bits, word_bits=MASTER.width, depth=16, spare=12 // words + 2),
            platform,
        )
        with m.If(settle != 0):
            m.d.sync += settle.eq(settle - 1)
            with m.If(settle == 1):
                m.d.sync += [reading.eq(1), word.eq(0), side.eq(0), row.eq(0)]
        step, ends = Signal(), Signal()
        part_read, pair_read = row[: ceil_log2(parts)], row[ceil_log2(parts) :]
        last_pair_read = (pair_read == args.rank[1:] - 1) if pairs > 1 else 1
        m.d.comb += [
            step.eq(reading & queue.roomy),
            ends.eq((word == words - 1) & side & (part_read == parts - 1) & last_pair_read),
        ]
        with m.If(step):
            m.d.sync += word.eq(word + 1)
            with m.If(word == words - 1):
                m.d.sync += part_read.eq(part_read + 1)
                with m.If(part_read == parts - 1):
                    m.d.sync += side.eq(~side)
                    with m.If(side):
                        m.d.sync += pair_read.eq(pair_read + 1) if pairs > 1 else []
            with m.If(ends):
                m.d.sync += [reading.eq(0), tile.eq(tile + 1)]
                with m.If(tile == args.tiles - 1):
                    m.d.sync += running.eq(0)
        sum_bits = self._sum_bits
        requantize = place(m, "requantize", Requantize(width=sum_bits, result=ACTIVATION.width), platform)
        half_way = Signal(signed(sum_bits), reset_less=True)
        m.d.sync += half_way.eq(Cat(*results).word_select(Cat(side, word), sum_bits).as_signed())
        out_tag = Signal(data.StructLayout({"valid": 1, "last": 1}))
        m.d.comb += [
            out_tag.valid.eq(step),
            out_tag.last.eq(ends & (tile == args.tiles - 1)),
            requantize.i.eq(half_way),
            requantize.shift.eq(args.shift),
        ]
        out = delay(m, out_tag, 1 + Requantize.latency, reset_less=False)
        m.d.comb += [
            queue.i.valid.eq(out.valid),
            queue.i.last.eq(out.last),
            queue.i.data.eq(sign_extended(requantize.o)),
            self.o.valid.eq(queue.o.valid),
            self.o.p.eq(queue.o.p.data),
            queue.o.ready.eq(self.o.ready),
        ]
        m.d.sync += [
            port.done.eq(queue.o.valid & self.o.ready & queue.o.p.last),
            self.saturated.eq((out.valid & requantize.saturated) + kept.saturated),
        ]
        return m

    def _command(self, m, args, running, tile):
        """Takes a command while none runs, and judges it."""
        config, port = self.config, self.engine
        judged = Signal()
        bad = Signal()
        known = Signal()
        m.d.comb += [
            bad.eq(
                (args.tiles == 0)
                | (args.tokens == 0)
                | (args.tokens > config.tokens)
                | (args.rank == 0)
                | args.rank[0]
                | (args.rank > config.rank)
            ),
            port.command.ready.eq(~running & ~judged & ~port.error.valid),
        ]
        with m.If(port.command.valid & port.command.ready):
            m.d.sync += [args.eq(port.command.payload.args), known.eq(port.command.payload.opcode == 0), judged.eq(1)]
        with m.If(judge(m, port, judged, known=known, bad=bad)):
            m.d.sync += [running.eq(1), tile.eq(0)]

    @property
    def _sum_bits(self):
        return max(PRECISION.sum, product_sum_width(ACTIVATION.width, WEIGHT.width, self.config.tokens))

    def _sums(self, m, operands, h, at_factors, at_sum, address):
        """Adds up products of each word of a beat with two rank indices.

        Returns the sums at ``address``.
        """
        sum_bits = self._sum_bits
        results = []
        for index in range(self.config.beat_words):
            x = operands.word_select(index, MASTER.width)[: ACTIVATION.width].as_signed()
            for rank_side in range(2):
                a, b = Signal(signed(ACTIVATION.width), reset_less=True), Signal(signed(WEIGHT.width), reset_less=True)
                product = Signal(signed(ACTIVATION.width + WEIGHT.width), reset_less=True)
                sum_ = Signal(signed(sum_bits), reset_less=True)
                m.submodules[f"sums_{index}_{rank_side}"] = sums = memory.Memory(
                    shape=signed(sum_bits), depth=1 << len(at_sum.address), init=[]
                )
                read, write = sums.read_port(domain="comb"), sums.write_port()
                # In a register of its own, as a slice adds what it finds there; the sum before is of 8 cycles ago.
                before = Signal(signed(sum_bits), reset_less=True)
                m.d.sync += [
                    a.eq(x),
                    b.eq(h[rank_side]),
                    product.eq(a * b),
                    # mutant sum-of-40-bits: before.eq(Mux(at_factors.first, 0, read.data[:40].as_signed())),
                    before.eq(Mux(at_factors.first, 0, read.data)),
                    sum_.eq(product + before),
                ]
                m.d.comb += [
                    read.addr.eq(address),
                    write.addr.eq(at_sum.address),
                    write.data.eq(sum_),
                    write.en.eq(at_sum.valid),
                ]
                results.append(read.data)
        return results
