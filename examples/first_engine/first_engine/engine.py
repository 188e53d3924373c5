"""The hardware of the Scale engine."""
from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, memory, wiring
from amaranth.lib.fifo import SyncFIFOBuffered

from gradloom.rtl.engines.ports import give, send
from gradloom.rtl.engines.words import Requantize, accept, sign_extended
from gradloom.rtl.formats.rounding import requantize_hdl, saturate_hdl
from gradloom.rtl.formats.weights.linear import ACTIVATION, MASTER
from gradloom.rtl.hierarchy import place
from gradloom.rtl.stream.delay import delay

from .commands import FACTOR, SUM, ScaleOpcode, ScaleOperands


class ScaleEngine(wiring.Component):
    """Scales a beat of channels a cycle, and learns the factors.

    ::

        x, dy -+-> kept x --> x * dy --> sums of ds --> requantise --> s - ds --+
               |                                                               |
               |                  +-- factors <--------------------------------+
               +---------------> s * x --> round --> queue --> y, dx

    A word of a beat is a channel: 24 bits of an activation or gradient, or 18 bits of a factor, in 32. FORWARD and
    BACKWARD take a beat a cycle while the queue has room; UPDATE takes a cycle a beat of factors. A command's first
    step is :attr:`begin` cycles after its start; ``done`` follows the last step by :attr:`end` cycles. Factors that are
    loaded while a command runs are refused.

    Members
    -------
    engine, load_x, load_factors, store_y, store_factors, health : see ``EngineSpec``.
    """

    #: Cycles from start to first step, from a step to its result at the queue, and from the last step to ``done``.
    begin, result, end = 2, 3, 8
    #: Beats of the queue, and of results in it with which another beat is taken: 5 more may be under way.
    # mutant full: depth, limit = 16, 14
    depth, limit = 16, 8

    def __init__(self, spec, config):
        self.config = config
        self.words = config.data_bits // MASTER.width
        super().__init__(spec.members(config.data_bits))

    def elaborate(self, platform):
        m = Module()
        words, beats = range(self.words), self.load_x.beats
        opcode, args, tag, begins, roomy = self._steps(m)
        forward, backward, update = (opcode == each for each in ScaleOpcode)
        at_sum = delay(m, tag, 2, reset_less=False)
        at_result = delay(m, at_sum, 1, reset_less=False)
        at_factor = delay(m, at_sum, Requantize.latency, reset_less=False)
        ends = delay(m, at_factor, self.end - 2 - Requantize.latency, reset_less=False)
        gives, learns = at_result.valid & (forward | (backward & args.dx)), at_factor.valid & update
        m.d.comb += self.engine.done.eq(ends.valid & ends.last)
        with m.If(begins | self.engine.done):
            m.d.sync += self.busy.eq(begins)

        kept = self._memory(m, "kept", ACTIVATION, self.config.kept)
        keep, x = kept.write_port(), kept.read_port()
        sums = self._memory(m, "sums", SUM, self.config.factors)
        total, new_total = sums.read_port(domain="comb"), sums.write_port()
        factors = self._memory(m, "factors", FACTOR, self.config.factors)
        s, old, new, sent = (factors.read_port(domain="comb"), factors.read_port(domain="comb"), factors.write_port(),
                             factors.read_port(domain="comb"))
        load = self.load_factors.beats
        m.d.comb += [
            keep.addr.eq(tag.beat), keep.en.eq(tag.valid & forward), x.addr.eq(tag.beat), s.addr.eq(tag.group),
            total.addr.eq(at_sum.group), new_total.addr.eq(at_sum.group), new_total.en.eq(at_sum.valid & backward),
            old.addr.eq(at_factor.group), new.addr.eq(Mux(learns, at_factor.group, load.p.index)), load.ready.eq(1),
            self.load_factors.refuse.eq((load.p.index >= self.config.factors) | self.busy),
            new.en.eq(learns | (load.valid & ~self.load_factors.refuse)),
        ]

        results, clipped = [], []
        for n in words:
            word, scaled = Signal(ACTIVATION.shape), Signal(signed(ACTIVATION.width + FACTOR.width))
            factor, product = Signal(FACTOR.shape), Signal(signed(2 * ACTIVATION.width))
            result, over = Signal(ACTIVATION.shape), Signal()
            rounded, beyond = requantize_hdl(ACTIVATION, scaled, ACTIVATION.frac + FACTOR.frac)
            ds = place(m, f"requantize_{n}", Requantize(width=SUM.width, result=FACTOR.width), platform)
            # mutant grows: less, lost = saturate_hdl(old.data[n] + ds.o, FACTOR.shape)
            less, lost = saturate_hdl(old.data[n] - ds.o, FACTOR.shape)
            incoming = beats.p.data.word_select(n, MASTER.width)[:ACTIVATION.width].as_signed()
            loaded = load.p.data.word_select(n, MASTER.width)[:FACTOR.width].as_signed()
            # mutant adds: m.d.comb += [keep.data[n].eq(incoming), new_total.data[n].eq(total.data[n] + product),
            m.d.comb += [keep.data[n].eq(incoming), new_total.data[n].eq(Mux(at_sum.first, 0, total.data[n]) + product),
                         ds.i.eq(total.data[n]), ds.shift.eq(args.shift), new.data[n].eq(Mux(learns, less, loaded))]
            m.d.sync += [word.eq(incoming), factor.eq(s.data[n]), scaled.eq(word * factor),
                         product.eq(word * x.data[n]), result.eq(rounded), over.eq(beyond)]
            results.append(sign_extended(result))
            # mutant counts: clipped += [over, learns & ds.saturated, learns & lost]
            clipped += [gives & over, learns & ds.saturated, learns & lost]

        m.submodules.queue = queue = SyncFIFOBuffered(width=self.config.data_bits, depth=self.depth)
        m.d.comb += [queue.w_en.eq(gives), queue.w_data.eq(Cat(results))]
        flags = Signal(len(clipped))
        m.d.sync += [roomy.eq(queue.w_level < self.limit), flags.eq(Cat(clipped)),
                     self.health.saturated.eq(sum(flags))]
        # mutant lost: give(m, self.store_y, queue.r_stream); m.d.comb += queue.r_en.eq(1)
        give(m, self.store_y, queue.r_stream)
        send(m, self.store_factors, sent, depth=self.config.factors,
             beat=Cat(sign_extended(sent.data[n]) for n in words))
        return m

    def _memory(self, m, name, fmt, depth):
        """A memory of beats of words."""
        m.submodules[name] = made = memory.Memory(shape=data.ArrayLayout(fmt.shape, self.words), depth=depth, init=[])
        return made

    def _steps(self, m):
        """Runs commands step by step.

        In a cycle it takes a beat, or with UPDATE a beat of factors.
        """
        config, beats, roomy, taking = self.config, self.load_x.beats, Signal(), Signal()
        self.busy = Signal()
        opcode, args, begins = accept(
            m, self.engine, ScaleOpcode, ScaleOperands, busy=self.busy, bad=lambda opcode, args: (
                (args.groups == 0) | (args.groups > config.factors)
                | ((opcode != ScaleOpcode.UPDATE) & ((args.beats == 0) | (args.beats > config.kept)))))
        update = opcode == ScaleOpcode.UPDATE
        tag = Signal(data.StructLayout({"valid": 1, "first": 1, "last": 1, "group": range(config.factors),
                                        "beat": range(config.kept)}))
        first, group, beat, ends_row = Signal(), Signal.like(tag.group), Signal.like(tag.beat), Signal()
        m.d.comb += [
            tag.valid.eq(taking & (update | (beats.valid & roomy))), beats.ready.eq(taking & ~update & roomy),
            ends_row.eq(group == args.groups - 1), tag.last.eq(Mux(update, ends_row, beat == args.beats - 1)),
            tag.first.eq(first), tag.group.eq(group), tag.beat.eq(beat),
        ]
        with m.If(begins):
            m.d.sync += [taking.eq(1), beat.eq(0), group.eq(0), first.eq(~args.add)]
        with m.Elif(tag.valid):
            m.d.sync += [taking.eq(~tag.last), beat.eq(beat + 1), group.eq(Mux(ends_row, 0, group + 1)),
                         first.eq(first & ~ends_row)]
        return opcode, args, tag, begins, roomy
