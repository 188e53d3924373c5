"""Optimisers on adapter words as they pass from memory to memory."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from ...formats.rounding import saturate_hdl
from ...formats.weights.linear import ACTIVATION, MASTER, WEIGHT
from ...formats.weights.packed import BLOCKS
from ...hierarchy import place
from ...shell.signature import EngineSignature
from ...stream.delay import delay, registered
from ...stream.queue import LongQueue, stepped
from ..linear.pairs import PairQueue
from ..words import Requantize, judge
from .adamw import AdamLane, plus_or_minus
from .commands import UpdateOpcode, UpdateOperands
from .pack import PackUnit
from .parameters import UPDATE_BEATS, UpdateParameters

__all__ = ["UpdateEngine"]


#: A part on its way: where in its beat, whether it ends the beat, whether that ends the command.
_Tag = data.StructLayout({"valid": 1, "position": 2, "complete": 1, "last": 1, "adam": 1})

#: Bits of a factor times the rate.
_PRODUCT = ACTIVATION.width + WEIGHT.width
#: Bits that a product of a word and ``decay`` loses before it is rounded.
_DECAY = 17 - (MASTER.width - ACTIVATION.width - 1) - 1
#: Cycles after which a word has left the arithmetic for certain.
_SLACK = AdamLane.latency + 5 + Requantize.latency + 4


class UpdateEngine(wiring.Component):
    """New words from words, gradients and, for AdamW, moments.

    SGD: ``p' = saturate(p - round(rate * g * 2**-shift))``, half a beat of words a cycle. AdamW: see
    :class:`~.adamw.AdamLane`; a quarter of a beat a cycle, which is what memory can bring: a beat of words needs
    one of gradients and two of moments. With a beat of two words (``edge`` 16), half a beat a cycle in both. g are
    24-bit words, p 32-bit words, moments float32: a beat has m of half a beat of words, then their v.

    Gradients and words wait for each other, and for moments; new words wait until new moments have left. So a program
    loads gradients, words and moments of at most :attr:`depth` beats of words, in this order, and stores moments, then
    words. There is room for twice as much, so that the next command's can be loaded meanwhile. A command is taken
    when no word of the one before is in the arithmetic, 47 cycles after its last words entered, after SGD 15: they are
    lost only where loads do not go on meanwhile.

    Members
    -------
    engine : see :class:`EngineSignature`; done when new words and moments have left.
    gradient, parameter, moment : streams of beats. o, new_moment : streams of beats of new words and moments.
    room : there is room for a beat of ``parameter``, which is taken unless one of ``gradient`` is offered too.
    saturated : how many words and moments were clipped.
    """

    depth = UPDATE_BEATS

    def __init__(self, config=UpdateParameters()):
        self.config = config
        beats = stream.Signature(config.data_bits)
        super().__init__(
            {
                "engine": In(EngineSignature()),
                "gradient": In(beats),
                "parameter": In(beats),
                "moment": In(beats),
                "o": Out(beats),
                "new_moment": Out(beats),
                "room": Out(1),
                "saturated": Out(4),
            }
        )
        #: Words of AdamW a cycle; SGD takes twice as many.
        self.part = max(config.beat_words // 4, 1)
        #: Parts of a beat.
        self.parts = config.beat_words // self.part

    def elaborate(self, platform):
        m = Module()
        args, adam, left = Signal(UpdateOperands), Signal(), Signal(16)
        self._codes = Signal(name="codes")
        # Beats of which parts leave.
        bits = self.config.data_bits
        p, g, mv = (Signal(bits, reset_less=True, name=f"held_{name}") for name in ("p", "g", "mv"))
        words = m.submodules.words = LongQueue(width=bits + 2, depth=512)
        # Beats that may be under way when the answer of a full FIFO comes.
        deep = 2 * (AdamLane.m_latency + 5) // self.parts + 4
        moments = m.submodules.moments = LongQueue(width=bits + 1, depth=1 << ceil_log2(deep + 8))
        roomy = Signal()
        room = Cat(_level(m, queue) < queue.depth - slack for queue, slack in ((words, _SLACK), (moments, deep)))
        m.d.sync += roomy.eq(room.all())
        tag, whole = self._issue(m, platform, adam, left, (p, g, mv), roomy)
        packer = self._packer(m, platform, args, roomy) if self.config.packing else None
        self._take(m, args, adam, left, whole & ~tag.valid, packer)

        at = tag.position[: ceil_log2(self.parts)]
        half, behind = at[:-1], at | 1
        part = {
            "p": self._part(m, p, at),
            "g": self._part(m, g, at),
            "m": self._part(m, mv[: bits // 2], half),
            "v": self._part(m, mv[bits // 2 :], half),
        }
        other = {"p": self._part(m, p, behind), "g": self._part(m, g, behind)}
        tag = delay(m, tag, 1, reset_less=False)
        lanes, over = self._moments(m, platform, args, tag, part, moments, self._grade(m, args, g))
        self._descend(m, platform, args, adam, tag, part, other, lanes, over, words, packer)
        self._leave(m, words, moments)
        return m

    def _packer(self, m, platform, args, roomy):
        """Places the unit of PACK and UNPACK.

        :meth:`_issue` lets it take the beats that it reads.
        """
        packer = place(m, "packer", PackUnit(self.config), platform)
        m.d.comb += [
            packer.args.eq(args.as_value()),
            packer.roomy.eq(roomy),
            packer.i.valid.eq(self._waiting.o.valid),
            packer.i.p.eq(self._waiting.o.p),
        ]
        with m.If(packer.busy):
            m.d.comb += self._waiting.o.ready.eq(packer.i.ready)
        return packer

    def _take(self, m, args, adam, left, quiet, packer):
        """Takes and judges commands, each when the last one's words have left.

        This takes a time of ``quiet``.
        """
        port = self.engine
        under_way, known, judged = Signal(range(_SLACK + 1)), Signal(), Signal()
        working = packer.busy if packer is not None else Const(0)
        quiet = quiet & ~working
        with m.If(~quiet):
            m.d.sync += under_way.eq(Mux(adam, _SLACK, _SLACK - AdamLane.latency))
        with m.Elif(under_way != 0):
            m.d.sync += under_way.eq(under_way - 1)
        idle = Signal()
        m.d.sync += idle.eq((left == 0) & (under_way == 0) & quiet)
        m.d.comb += port.command.ready.eq(idle & (left == 0) & ~judged & ~port.error.valid & ~working)
        with m.If(port.command.valid & port.command.ready):
            opcode = port.command.p.opcode
            m.d.sync += [
                args.eq(port.command.p.args),
                adam.eq(opcode == UpdateOpcode.ADAMW),
                known.eq(opcode <= (UpdateOpcode.ADAMW if packer is None else UpdateOpcode.UNPACK)),
                judged.eq(1),
            ]
            if self.config.records:
                codes = opcode == UpdateOpcode.ADAMW_CODES
                m.d.sync += self._codes.eq(codes)
                with m.If(codes):
                    m.d.sync += [adam.eq(1), known.eq(1)]
        bad = (args.beats == 0) | (adam & ((~args.beta2[-1] & ~args.sign) | (args.eps.any() & ~args.eps[-1])))
        if packer is None:
            with m.If(judge(m, port, judged, known=known, bad=bad)):
                m.d.sync += left.eq(args.beats)
            return
        packs, unpacks = Signal(), Signal()
        with m.If(port.command.valid & port.command.ready):
            m.d.sync += [packs.eq(port.command.p.opcode[1:] == 1), unpacks.eq(port.command.p.opcode[0])]
        bad = Mux(
            packs,
            (packer.args.blocks == 0)
            | packer.args.blocks[0]
            | (packer.args.blocks > BLOCKS)
            | ((packer.args.seed == 0) & ~unpacks),
            bad,
        )
        begins = judge(m, port, judged, known=known, bad=bad)
        m.d.comb += [packer.unpack.eq(unpacks), packer.start.eq(begins & packs)]
        with m.If(begins & ~packs):
            m.d.sync += left.eq(args.beats)

    def _issue(self, m, platform, adam, left, held, roomy):
        """Takes beats of all streams into ``held``.

        Returns the tag of the part that leaves there, and whether no part has begun.
        """
        bits = self.config.data_bits
        # A unit of its own: moments come late from LOAD, and what follows from them has little logic left.
        waiting = self._waiting = place(m, "waiting", PairQueue(width=bits, depth=2 * self.depth), platform)
        connect(m, flipped(self.gradient), waiting.first)
        connect(m, flipped(self.parameter), waiting.second)
        m.d.comb += self.room.eq(waiting.room)
        # A beat begins with moments for its first half, and needs more for its second.
        position, first, begins, moment, may, go = Signal(2), Signal(), Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            first.eq(position == 0),
            moment.eq(adam & (first | (position == self.parts // 2))),
            begins.eq(first & (left != 0) & roomy),
            may.eq(~first | (begins & waiting.o.valid)),
            go.eq(may & (~moment | self.moment.valid)),
            # ``go`` of a first part, whether or not a beat is offered: the way from LOAD and back to it is long.
            waiting.o.ready.eq(begins & (~adam | self.moment.valid)),
            self.moment.ready.eq(may & moment),
        ]
        valid, leaving, last = Signal(), Signal(2), Signal()
        m.d.sync += valid.eq(go)
        with m.If(go):
            m.d.sync += leaving.eq(position)
            m.d.sync += position[: ceil_log2(self.parts)].eq(position + Mux(adam, 1, 2))
            with m.If(first):
                m.d.sync += [
                    left.eq(left - 1),
                    last.eq(left == 1),
                    held[0].eq(waiting.o.p[bits:]),
                    held[1].eq(waiting.o.p[:bits]),
                ]
            with m.If(moment):
                m.d.sync += held[2].eq(self.moment.p)
        tag = Signal(_Tag)
        m.d.comb += [
            tag.valid.eq(valid),
            tag.position.eq(leaving),
            tag.adam.eq(adam),
            tag.complete.eq(leaving == Mux(adam, self.parts - 1, self.parts - 2)),
            tag.last.eq(last),
        ]
        return tag, first

    def _part(self, m, beat, index):
        """Words of a part, a cycle later."""
        words = Signal(self.part * MASTER.width, reset_less=True)
        m.d.sync += words.eq(beat.word_select(index, len(words)))
        return [words.word_select(n, MASTER.width) for n in range(self.part)]

    def _grade(self, m, args, g):
        """Exponent of each word's gradients, for its lane.

        With ``records`` a word of gradients has its record's exponent in its upper byte. Without, it is None: the
        exponent is the command's.
        """
        if not self.config.records:
            return None
        own = g[ACTIVATION.width : MASTER.width].as_signed()
        # mutant command-alone: total = registered(m, args.gradient + Mux(self._codes, 0, 0), signed(11))
        total = registered(m, args.gradient + Mux(self._codes, own, 0), signed(11))
        fitting, _ = saturate_hdl(total, signed(10))
        # mutant ahead: return registered(m, fitting)
        return delay(m, registered(m, fitting), AdamLane.grade_cycle - 1)

    def _moments(self, m, platform, args, tag, part, fifo, grade):
        """Places AdamW's lanes and stores their new moments.

        Returns their steps, and the number of clipped words.
        """
        lanes = []
        for index, (g, first, second) in enumerate(zip(part["g"], part["m"], part["v"])):
            lane = place(m, f"adamw_{index}", AdamLane(), platform)
            m.d.comb += [lane.g.eq(g[: ACTIVATION.width].as_signed()), lane.m.eq(first), lane.v.eq(second)]
            m.d.comb += [lane.operands[name].eq(args[name]) for name in lane.operands.shape().members]
            if grade is not None:
                m.d.comb += lane.operands.gradient.eq(grade)
            lanes.append(lane)
        out = delay(m, tag, AdamLane.m_latency, reset_less=False)
        later = AdamLane.m_latency - AdamLane.v_latency
        new = Cat(*(lane.new_m for lane in lanes)), delay(m, Cat(*(lane.new_v for lane in lanes)), later)
        halves = [Signal(self.config.data_bits // 2, reset_less=True, name=name) for name in ("beat_m", "beat_v")]
        place_of, whole = out.position[: ceil_log2(self.parts) - 1], Signal()
        for half, words in zip(halves, new):
            for index in range(self.parts // 2):
                with m.If(out.valid & (place_of == index)):
                    m.d.sync += half.word_select(index, len(words)).eq(words)
        m.d.sync += whole.eq(out.valid & out.adam & (place_of == self.parts // 2 - 1))
        m.d.comb += [fifo.w_en.eq(whole), fifo.w_data.eq(Cat(*halves, delay(m, out.last & out.complete, 1)))]
        over = [lane.m_over & out.valid & out.adam for lane in lanes]
        over += [delay(m, lane.v_over, later) & out.valid & out.adam for lane in lanes]
        return lanes, over

    def _descend(self, m, platform, args, adam, tag, part, other, lanes, over, fifo, packer):
        """Words less their steps."""
        wait = AdamLane.latency
        late = delay(m, tag, wait, reset_less=False)
        enter = Signal(_Tag)
        m.d.comb += [
            enter.eq(Mux(adam, late, tag)),
            # Tags of SGD pass the lanes for nothing.
            enter.valid.eq(Mux(adam, late.valid & late.adam, tag.valid)),
        ]
        decay = Signal(WEIGHT.width - 1)
        # SGD, which has no decay, has another word's product made in its place.
        m.d.sync += decay.eq(Mux(adam, args.decay, args.rate))
        news = []
        for index, (g, p) in enumerate(zip(part["g"], part["p"])):
            lane = lanes[index]
            step = place(m, f"step_{index}", Descent(adaptive=True), platform)
            m.d.comb += [
                step.adam.eq(adam),
                step.rate.eq(args.rate),
                step.other.eq(other["g"][index][: ACTIVATION.width].as_signed()),
                step.factor.eq(Mux(adam, lane.product, g[: ACTIVATION.width].as_signed())),
                step.p.eq(Mux(adam, delay(m, p, wait), p)),
                step.shift.eq(Mux(adam, lane.shift, args.shift)),
                step.beyond.eq(adam & lane.beyond),
                step.negative.eq(adam & lane.negative),
                step.decay.eq(decay),
                step.decay_shift.eq(args.decay_shift),
            ]
            news.append(step)
        for index, p in enumerate(other["p"]):
            step = place(m, f"step_{self.part + index}", Descent(adaptive=False), platform)
            m.d.comb += [step.i_product.eq(news[index].product), step.p.eq(p), step.shift.eq(args.shift)]
            news.append(step)
        out = delay(m, enter, Descent.latency, reset_less=False)
        beat, whole = Signal(self.config.data_bits, reset_less=True), Signal()
        halves = [Cat(*(step.o for step in news[half * self.part :][: self.part])) for half in range(2)]
        for index in range(self.parts):
            with m.If(out.valid & (out.position == index)):
                m.d.sync += beat.word_select(index, len(halves[0])).eq(halves[0])
            if index % 2:
                with m.Elif(out.valid & ~out.adam & (out.position == index - 1)):
                    m.d.sync += beat.word_select(index, len(halves[0])).eq(halves[1])
        m.d.sync += whole.eq(out.valid & out.complete)
        m.d.comb += [fifo.w_en.eq(whole), fifo.w_data.eq(Cat(beat, delay(m, Cat(out.last, out.adam), 1)))]
        if packer is not None:
            with m.If(packer.valid):
                m.d.comb += [fifo.w_en.eq(1), fifo.w_data.eq(Cat(packer.o, packer.last, Const(0, 1)))]
            over = [*over, packer.saturated]
        m.d.sync += self.saturated.eq(
            sum(
                [
                    *over,
                    *(
                        step.saturated & out.valid & (~out.adam if index >= self.part else 1)
                        for index, step in enumerate(news)
                    ),
                ]
            )
        )

    def _leave(self, m, words, moments):
        """Sends beats to memory, and reports ``done``.

        The last words of a command wait for its last moments.
        """
        bits = self.config.data_bits
        last, adam = words.r_data[bits], words.r_data[bits + 1]
        # Commands whose moments have left and whose words have not.
        ahead = Signal(range(513))
        some = Signal()  # ``ahead`` is not 0: the way from there to STORE is long
        left, due, gone = Signal(), Signal(), Signal()
        m.d.comb += [
            due.eq(last & adam),
            gone.eq(words.r_en & due),
            self.o.valid.eq(words.r_rdy & (~due | some)),
            self.o.p.eq(words.r_data),
            words.r_en.eq(self.o.valid & self.o.ready),
            self.new_moment.valid.eq(moments.r_rdy),
            self.new_moment.p.eq(moments.r_data),
            moments.r_en.eq(self.new_moment.ready),
            left.eq(self.new_moment.valid & self.new_moment.ready & moments.r_data[bits]),
        ]
        m.d.sync += [
            ahead.eq(stepped(ahead, left, gone)),
            some.eq(left | (some & ~(gone & (ahead == 1)))),
            self.engine.done.eq(words.r_en & last),
        ]


def _level(m, queue):
    """Entries of a queue; what leaves it is known late."""
    level = Signal(range(queue.depth + 1))
    m.d.sync += level.eq(stepped(level, queue.w_en & queue.w_rdy, queue.r_en & queue.r_rdy))
    return level


class Descent(wiring.Component):
    """Descends by a step and a decay; a word a cycle.

    ``o = saturate(p - decay * p - step)``, ``step = round(factor * rate * 2**-shift)``.

    Parameters
    ----------
    adaptive : bool
        Two multipliers, one for the decay. Without it ``beyond``, ``negative`` and ``decay`` are 0, and another one's
        second multiplier gives the product.

    Members
    -------
    factor, rate, shift : of the step. beyond : the step is larger than any word's range. negative : its sign is turned.
    decay, decay_shift : the word loses ``decay * 2**-(17 + 5 * decay_shift)`` of itself; with ``adam`` only. Without
        it, ``product`` is ``other * decay``, 2 cycles later.
    i_product : ``factor * rate``, 2 cycles behind ``p``.
    o : after :attr:`latency` cycles. saturated : whether it had to be clipped.
    """

    latency = 5 + Requantize.latency

    def __init__(self, *, adaptive):
        self.adaptive = adaptive
        factor = signed(ACTIVATION.width + 1)
        super().__init__(
            {"shift": In(6), "p": In(signed(MASTER.width)), "o": Out(signed(MASTER.width)), "saturated": Out(1)}
            | (
                {
                    "factor": In(factor),
                    "rate": In(WEIGHT.width - 1),
                    "beyond": In(1),
                    "negative": In(1),
                    "adam": In(1),
                    "decay": In(WEIGHT.width - 1),
                    "decay_shift": In(2),
                    "other": In(factor),
                    "product": Out(signed(_PRODUCT)),
                }
                if adaptive
                else {"i_product": In(signed(_PRODUCT))}
            )
        )

    def elaborate(self, platform):
        m = Module()
        requantize = place(m, "requantize", Requantize(width=_PRODUCT, result=MASTER.width + 1), platform)
        change = Signal(signed(_PRODUCT), reset_less=True)
        if self.adaptive:
            product = registered(m, registered(m, self.factor) * self.rate, signed(_PRODUCT))
            m.d.sync += change.eq(Mux(delay(m, self.beyond, 2), (1 << _PRODUCT - 1) - 1, product))
        else:
            m.d.sync += change.eq(self.i_product)
        # A step of more than 33 bits takes any word to an end.
        m.d.comb += [requantize.i.eq(change), requantize.shift.eq(delay(m, self.shift, 3))]
        base = self._base(m)
        negative = delay(m, self.negative, 3 + Requantize.latency) if self.adaptive else None
        exact = Signal(signed(MASTER.width + 2), reset_less=True)
        clipped, over = saturate_hdl(exact, MASTER.shape)
        m.d.sync += [
            exact.eq(plus_or_minus(base, requantize.o, ~negative) if self.adaptive else base - requantize.o),
            self.o.eq(clipped),
            self.saturated.eq(over | delay(m, requantize.saturated, 1)),
        ]
        return m

    def _base(self, m):
        """The word less its decay.

        It is there 3 + ``Requantize.latency`` cycles after ``p``.
        """
        if not self.adaptive:
            return delay(m, self.p, 3 + Requantize.latency)
        product, coarse = self.product, Signal(signed(_PRODUCT), reset_less=True)
        wide = signed(MASTER.width + 1)
        lost, base = Signal(wide, reset_less=True), Signal(wide, reset_less=True)
        narrow = MASTER.width - ACTIVATION.width - 1
        p = registered(m, Mux(self.adam, self.p >> narrow, self.other), self.other.shape())
        m.d.sync += [
            product.eq(p * self.decay),
            coarse.eq(
                Mux(
                    self.decay_shift[1],
                    Mux(self.decay_shift[0], product >> _DECAY + 15, product >> _DECAY + 10),
                    Mux(self.decay_shift[0], product >> _DECAY + 5, product >> _DECAY),
                )
            ),
            lost.eq(Mux(self.adam, (coarse + 1) >> 1, 0)),
            base.eq(delay(m, self.p, 4) - lost),
        ]
        return delay(m, base, Requantize.latency - 2)
