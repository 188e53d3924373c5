"""Optimisers on adapter words as they pass from memory to memory."""
from enum import IntEnum

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..config import LinearConfig
from ..control.errors import Error
from ..control.signature import EngineSignature
from ..formats.linear import ACTIVATION, MASTER, WEIGHT
from ..hierarchy import place
from ..stream.delay import delay
from .adamw import AdamLane
from .words import Requantize

__all__ = ["UpdateOpcode", "UpdateOperands", "UpdateEngine"]


class UpdateOpcode(IntEnum):
    """Commands."""

    SGD = 0
    ADAMW = 1


#: Operands. ``beats`` of words; ``rate``: the learning rate's mantissa. SGD: ``shift`` of its product with a gradient.
#: AdamW: the betas with 17 fraction bits, ``beta2`` at least a half; ``exponent``, ``eps``, ``eps_exponent`` and
#: ``gradient`` as ``plan.descent`` makes them, the top bit of an ``eps`` other than 0 is 1; words lose
#: ``decay * 2**-(17 + 5 * decay_shift)`` of themselves.
UpdateOperands = data.StructLayout({
    "beats": 16, "shift": 6, "decay_shift": 2, "_pad0": 8,
    "rate": 17, "exponent": signed(11), "_pad1": 4,
    "beta1": 17, "gradient": signed(10), "_pad2": 5,
    "beta2": 17, "eps_exponent": signed(10), "_pad3": 5,
    "eps": 15, "decay": 17})

#: A part on its way: where in its beat, whether it ends the beat, whether that ends the command.
_Tag = data.StructLayout({"valid": 1, "position": 2, "complete": 1, "last": 1, "adam": 1})

#: Bits of a factor times the rate.
_PRODUCT = ACTIVATION.width + WEIGHT.width
#: Bits that a product of a word and ``decay`` loses before it is rounded.
_DECAY = 17 - (MASTER.width - ACTIVATION.width - 1) - 1
#: Cycles after which a word has left the arithmetic for certain.
_SLACK = 56


class UpdateEngine(wiring.Component):
    """New words from words, gradients and, for AdamW, moments.

    SGD: ``p' = saturate(p - round(rate * g * 2**-shift))``, half a beat of words a cycle. AdamW: see
    :class:`~.adamw.AdamLane`; a quarter of a beat a cycle, which is what memory can bring: a beat of words needs
    one of gradients and two of moments. With a beat of two words (``edge`` 16), a beat and half a beat. g are 24-bit
    words, p 32-bit words, moments float32: a beat of m, then a beat of v, a beat of words after the other.

    Gradients and words wait in FIFOs of :attr:`depth` beats, new words in another; moments do not. So a program loads
    at most ``depth`` beats of gradients, then the words, then moments, and stores moments first, words last. A
    command is taken when the last one's words have left the arithmetic, 57 cycles after the last of them entered it.

    Members
    -------
    engine : see :class:`EngineSignature`; done when new words and moments have left.
    gradient, parameter, moment : streams of beats. o, new_moment : streams of beats of new words and moments.
    saturated : how many words and moments were clipped.
    """

    depth = 448

    def __init__(self, config=LinearConfig()):
        self.config = config
        beats = stream.Signature(config.beat_bits)
        super().__init__({
            "engine": In(EngineSignature()), "gradient": In(beats), "parameter": In(beats), "moment": In(beats),
            "o": Out(beats), "new_moment": Out(beats), "saturated": Out(4),
        })
        #: Words of AdamW a cycle; SGD takes twice as many.
        self.part = max(config.beat_words // 4, 1)
        #: Parts of a beat.
        self.parts = config.beat_words // self.part

    def elaborate(self, platform):
        m = Module()
        args, adam, left = Signal(UpdateOperands), Signal(), Signal(16)
        # Registers that hold a beat while its parts leave, and what left in the cycle before.
        held = {name: Signal(self.config.beat_bits, reset_less=True, name=f"held_{name}") for name in "pgmv"}
        words = _fifo(m, "words", self.config.beat_bits + 2, 512)
        # Beats that may be under way when the answer of a full FIFO comes.
        deep = 2 * (AdamLane.m_latency + 5) // self.parts + 4
        moments = _fifo(m, "moments", self.config.beat_bits + 1, 1 << ceil_log2(deep + 8))
        roomy = Signal()
        m.d.sync += roomy.eq((words.w_level < 512 - _SLACK) & (moments.w_level < moments.depth - deep))
        tag = self._issue(m, adam, left, held, roomy)
        self._take(m, args, adam, left, tag)

        part = {name: self._part(m, beat, tag.position) for name, beat in held.items()}
        other = {name: self._part(m, held[name], tag.position | 1) for name in "pg"}
        tag = delay(m, tag, 1, reset_less=False)
        steps, over = self._moments(m, platform, args, tag, part, moments)
        self._descend(m, platform, args, adam, tag, part, other, steps, over, words)
        self._leave(m, words, moments)
        return m

    def _take(self, m, args, adam, left, tag):
        """Takes and judges commands, each when no word of the last is under way any more."""
        port = self.engine
        under_way, known, judged = Signal(range(_SLACK + 1)), Signal(), Signal()
        with m.If(tag.valid):
            m.d.sync += under_way.eq(_SLACK)
        with m.Elif(under_way != 0):
            m.d.sync += under_way.eq(under_way - 1)
        idle = Signal()
        m.d.sync += idle.eq((left == 0) & (under_way == 0) & ~tag.valid)
        m.d.comb += port.command.ready.eq(idle & (left == 0) & ~judged & ~port.error.valid)
        with m.If(port.command.valid & port.command.ready):
            opcode = port.command.p.opcode
            m.d.sync += [args.eq(port.command.p.args), adam.eq(opcode == UpdateOpcode.ADAMW),
                         known.eq(opcode <= max(UpdateOpcode)), judged.eq(1)]
        bad = ((args.beats == 0)
               | (adam & (~args.beta2[-1] | (args.eps.any() & ~args.eps[-1]))))
        with m.If(judged):
            m.d.sync += judged.eq(0)
            with m.If(~known | bad):
                m.d.sync += [port.error.valid.eq(1),
                             port.error.code.eq(Mux(known, Error.BAD_OPERAND, Error.UNKNOWN_OPCODE))]
            with m.Else():
                m.d.sync += left.eq(args.beats)

    def _issue(self, m, adam, left, held, roomy):
        """Beats of all streams into ``held``; the tag of the part that leaves there."""
        bits = self.config.beat_bits
        gradients, parameters = (_fifo(m, name, bits, 512) for name in ("gradients", "parameters"))
        first, full = Signal(bits, reset_less=True), Signal()
        tag, start, ends = Signal(_Tag), Signal(), Signal()
        valid, position, last = Signal(), Signal(2), Signal()
        m.d.comb += [
            ends.eq(tag.complete | ~tag.valid),
            start.eq((left != 0) & ends & roomy & gradients.r_rdy & parameters.r_rdy
                     & (~adam | (full & self.moment.valid))),
            self.moment.ready.eq(~full | (start & adam)),
            tag.valid.eq(valid), tag.position.eq(position), tag.last.eq(last), tag.adam.eq(adam),
            tag.complete.eq(position == Mux(adam, self.parts - 1, self.parts - 2)),
        ]
        for fifo, port in ((gradients, self.gradient), (parameters, self.parameter)):
            m.d.comb += [fifo.w_data.eq(port.p), fifo.w_en.eq(port.valid), port.ready.eq(fifo.w_rdy),
                         fifo.r_en.eq(start)]
        with m.If(~full & self.moment.valid):
            m.d.sync += [first.eq(self.moment.p), full.eq(1)]
        with m.If(start):
            m.d.sync += [
                held["p"].eq(parameters.r_data), held["g"].eq(gradients.r_data), held["m"].eq(first),
                held["v"].eq(self.moment.p), left.eq(left - 1),
                valid.eq(1), position.eq(0), last.eq(left == 1),
            ]
            with m.If(adam):
                m.d.sync += full.eq(0)
        with m.Elif(ends):
            m.d.sync += valid.eq(0)
        with m.Else():
            m.d.sync += position.eq(position + Mux(adam, 1, 2))
        return tag

    def _part(self, m, beat, position):
        """Words of a part, a cycle later."""
        words = Signal(self.part * MASTER.width, reset_less=True)
        m.d.sync += words.eq(beat.word_select(position[:ceil_log2(self.parts)], len(words)))
        return [words.word_select(n, MASTER.width) for n in range(self.part)]

    def _moments(self, m, platform, args, tag, part, fifo):
        """AdamW's lanes and their new moments; their steps, and what was clipped."""
        lanes = []
        for index, (g, first, second) in enumerate(zip(part["g"], part["m"], part["v"])):
            lane = place(m, f"adamw_{index}", AdamLane(), platform)
            m.d.comb += [lane.g.eq(g[:ACTIVATION.width].as_signed()), lane.m.eq(first), lane.v.eq(second)]
            m.d.comb += [lane.operands[name].eq(args[name]) for name in lane.operands.shape().members]
            lanes.append(lane)
        # A beat of m is whole a cycle before its beat of v, so that one follows the other.
        at_m = delay(m, tag, AdamLane.m_latency, reset_less=False)
        at_v = delay(m, at_m, 1, reset_less=False)
        later = AdamLane.m_latency + 1 - AdamLane.v_latency
        new_v = delay(m, Cat(*(lane.new_v for lane in lanes)), later)
        m_whole, v_whole = Signal(), Signal()
        m_beat = self._collect(m, at_m, {0: Cat(*(lane.new_m for lane in lanes))}, m_whole)
        v_beat = self._collect(m, at_v, {0: new_v}, v_whole)
        m.d.comb += [fifo.w_en.eq(m_whole | v_whole),
                     fifo.w_data.eq(Mux(v_whole, Cat(v_beat, delay(m, at_v.last, 1)), m_beat))]
        over = [lane.m_over & at_m.valid & at_m.adam for lane in lanes]
        over += [delay(m, lane.v_over, later) & at_v.valid & at_v.adam for lane in lanes]
        return lanes, over

    def _descend(self, m, platform, args, adam, tag, part, other, lanes, over, fifo):
        """Words less their steps."""
        wait = AdamLane.latency
        late = delay(m, tag, wait, reset_less=False)
        enter = Signal(_Tag)
        m.d.comb += enter.eq(Mux(adam, late, tag))
        decay = Signal(WEIGHT.width - 1)
        m.d.sync += decay.eq(Mux(adam, args.decay, 0))
        news = []
        for index, (g, p) in enumerate(zip(part["g"], part["p"])):
            lane = lanes[index]
            step = place(m, f"step_{index}", Descent(with_decay=True), platform)
            m.d.comb += [
                step.factor.eq(Mux(adam, lane.product, g[:ACTIVATION.width].as_signed())),
                step.p.eq(Mux(adam, delay(m, p, wait), p)), step.shift.eq(Mux(adam, lane.shift, args.shift)),
                step.beyond.eq(adam & lane.beyond), step.negative.eq(adam & lane.negative),
                step.decay.eq(decay), step.decay_shift.eq(args.decay_shift),
            ]
            news.append(step)
        for index, (g, p) in enumerate(zip(other["g"], other["p"])):
            step = place(m, f"step_{self.part + index}", Descent(with_decay=False), platform)
            m.d.comb += [step.factor.eq(g[:ACTIVATION.width].as_signed()), step.p.eq(p), step.shift.eq(args.shift)]
            news.append(step)
        m.d.comb += [step.rate.eq(args.rate) for step in news]
        out = delay(m, enter, Descent.latency, reset_less=False)
        whole = Signal()
        beat = self._collect(m, out, {half: Cat(*(step.o for step in news[half * self.part:][:self.part]))
                                      for half in range(2)}, whole)
        m.d.comb += [fifo.w_en.eq(whole), fifo.w_data.eq(Cat(beat, delay(m, Cat(out.last, out.adam), 1)))]
        m.d.sync += self.saturated.eq(sum([
            *over, *(step.saturated & out.valid & (~out.adam if index >= self.part else 1)
                     for index, step in enumerate(news))]))

    def _collect(self, m, tag, halves, whole):
        """The beat of which ``halves[0]`` is the tag's part, and for SGD ``halves[1]`` the one behind."""
        beat = Signal(self.config.beat_bits, reset_less=True)
        taken = tag.valid & (tag.adam | (1 in halves))
        m.d.sync += whole.eq(taken & tag.complete)
        for index in range(self.parts):
            here = beat.word_select(index, len(halves[0]))
            with m.If(tag.position == index):
                m.d.sync += here.eq(halves[0])
            if index % 2 and 1 in halves:
                with m.Elif(~tag.adam & (tag.position == index - 1)):
                    m.d.sync += here.eq(halves[1])
        return beat

    def _leave(self, m, words, moments):
        """Beats to memory; a command is done when the last of both kinds has left."""
        for fifo, port in ((words, self.o), (moments, self.new_moment)):
            m.d.comb += [port.valid.eq(fifo.r_rdy), port.p.eq(fifo.r_data), fifo.r_en.eq(port.ready)]
        bits = self.config.beat_bits
        last, adam = words.r_data[bits], words.r_data[bits + 1]
        word_left, moment_left = Signal(), Signal()
        # Commands whose moments have left and whose words have not; below 0, the other way round.
        owed = Signal(signed(10))
        m.d.comb += [word_left.eq(self.o.valid & self.o.ready & last),
                     moment_left.eq(self.new_moment.valid & self.new_moment.ready & moments.r_data[bits])]
        m.d.sync += [
            owed.eq(owed + moment_left - (word_left & adam)),
            self.engine.done.eq(Mux(word_left, ~adam | (owed > 0) | moment_left, moment_left & (owed < 0))),
        ]


def _fifo(m, name, width, depth):
    """A FIFO as submodule ``name``."""
    m.submodules[name] = fifo = SyncFIFOBuffered(width=width, depth=depth)
    return fifo


class Descent(wiring.Component):
    """``o = saturate(p - decay * p - step)``, ``step = round(factor * rate * 2**-shift)``; a word a cycle.

    Parameters
    ----------
    with_decay : bool

    Members
    -------
    factor, rate, shift : of the step. beyond : the step is larger than any word's range. negative : its sign is to be turned.
    decay, decay_shift : the word loses ``decay * 2**-(17 + 5 * decay_shift)`` of itself.
    o : after :attr:`latency` cycles. saturated : whether it had to be clipped.
    """

    latency = 5 + Requantize.latency

    def __init__(self, *, with_decay):
        self.with_decay = with_decay
        super().__init__({
            "factor": In(signed(ACTIVATION.width + 1)), "rate": In(WEIGHT.width - 1), "shift": In(6),
            "beyond": In(1), "negative": In(1), "p": In(signed(MASTER.width)),
            "decay": In(WEIGHT.width - 1), "decay_shift": In(2),
            "o": Out(signed(MASTER.width)), "saturated": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        requantize = place(m, "requantize", Requantize(width=_PRODUCT, result=MASTER.width + 1), platform)
        factor, p = Signal(self.factor.shape(), reset_less=True), Signal(self.p.shape(), reset_less=True)
        product, change = Signal(signed(_PRODUCT), reset_less=True), Signal(signed(_PRODUCT), reset_less=True)
        m.d.sync += [
            factor.eq(self.factor), p.eq(self.p), product.eq(factor * self.rate),
            change.eq(Mux(delay(m, self.beyond, 2), (1 << _PRODUCT - 1) - 1, product)),
        ]
        # A step of more than 33 bits takes any word to an end.
        m.d.comb += [requantize.i.eq(change), requantize.shift.eq(delay(m, self.shift, 3))]
        base = self._base(m, p)
        negative = delay(m, self.negative, 3 + Requantize.latency)
        exact = Signal(signed(MASTER.width + 2), reset_less=True)
        spill = exact[MASTER.width - 1:]
        over = ~(spill.all() | ~spill.any())
        m.d.sync += [
            exact.eq(Mux(negative, base + requantize.o, base - requantize.o)),
            self.o.eq(Mux(over, Mux(exact[-1], MASTER.lo, MASTER.hi), exact[:MASTER.width].as_signed())),
            self.saturated.eq(over | delay(m, requantize.saturated, 1)),
        ]
        return m

    def _base(self, m, p):
        """What is left of the word, 2 + ``Requantize.latency`` cycles after ``p``."""
        if not self.with_decay:
            return delay(m, p, 2 + Requantize.latency)
        product, coarse = Signal(signed(_PRODUCT), reset_less=True), Signal(signed(_PRODUCT), reset_less=True)
        wide = signed(MASTER.width + 1)
        lost, base = Signal(wide, reset_less=True), Signal(wide, reset_less=True)
        narrow = MASTER.width - ACTIVATION.width - 1
        m.d.sync += [
            product.eq((p >> narrow) * self.decay),
            coarse.eq(Mux(self.decay_shift[1],
                          Mux(self.decay_shift[0], product >> _DECAY + 15, product >> _DECAY + 10),
                          Mux(self.decay_shift[0], product >> _DECAY + 5, product >> _DECAY))),
            lost.eq((coarse + 1) >> 1),
            base.eq(delay(m, p, 3) - lost),
        ]
        return delay(m, base, Requantize.latency - 2)
