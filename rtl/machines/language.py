"""A machine that fine-tunes quantised linear layers: the shell and the engines of this room, wired."""
from enum import IntEnum

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import connect, flipped
from amaranth.utils import bits_for, exact_log2

from ..config import LinearConfig
from ..engines.gradient.engine import GradientEngine
from ..engines.gradient.hidden import HIDDEN_ARG, SLOTS
from ..engines.linear.core import LaneWrite, OperandWrite
from ..engines.linear.engine import LinearEngine
from ..engines.linear.weights import TABLE_ARG, TILE_ARG
from ..engines.operands import OperandQueue
from ..engines.update.engine import UpdateEngine
from ..engines.vector.engine import VectorEngine
from ..formats.linear import ACTIVATION, LEVEL, MASTER, WEIGHT, half_up_hdl
from ..formats.rounding import saturate_hdl
from ..formats.vector import TERM
from ..hierarchy import place
from ..stream.product import narrow_product
from .engines import LANGUAGE
from .ports import engine_ports

__all__ = ["Destination", "OPERAND_ARG", "Source", "LanguageEngines"]

#: ``arg`` of a command that loads operands: the first word; ``early``: its words are counted for an early product.
OPERAND_ARG = data.StructLayout({"word": 31, "early": 1})


class Destination(IntEnum):
    """Where LOAD sends beats."""

    TABLES = 0      #: second-level scales and offset of a weight tensor, or the codebook
    TILES = 1       #: tiles of weights, in the order of their use
    OPERANDS = 2    #: what enters a layer: ``edge`` words a tile and token; ``arg`` is :data:`OPERAND_ARG`
    LANES = 3       #: adapter words: ``edge`` words a tile and rank index, from word ``arg`` on
    GRADIENT = 4    #: what the gradient engine streams
    DIRECTIONS = 5  #: gradients for the update
    WORDS = 6       #: words to be updated
    MOMENTS = 7     #: their moments
    HIDDEN = 8      #: h, back from memory; ``arg`` is :data:`~..engines.gradient.hidden.HIDDEN_ARG`
    VECTOR_A = 9    #: the vector engine's operand streams
    VECTOR_B = 10
    VECTOR_C = 11   #: few beats wait here: a, b and c of a piece in this order


class Source(IntEnum):
    """Where STORE gets beats."""

    OUTPUTS = 0
    GRADIENTS = 1
    WORDS = 2
    MOMENTS = 3
    HIDDEN = 4      #: h as the gradients see it; ``arg`` is :data:`~..engines.gradient.hidden.HIDDEN_ARG`
    VECTOR = 5      #: the vector engine's results o
    VECTOR_SECOND = 6   #: its results q


class LanguageEngines(wiring.Component):
    """The linear, gradient, update and vector engines, and their ways to memory.

    512 beats each of a, b and of what GRADIENT streams wait for their engines, and as many results o and q for STORE.

    Members
    -------
    linear, gradient, update, vector : commands of each. load, request, store : the shell's DMA. health : events of this
        cycle.
    refuse : the beat of ``load`` has no place: it is beyond its memory's end, or one whose argument names what is not
        there, or a command ends with it within a tile.
    refuse_store : a cycle behind the payload of ``request``: there is no such source, or no such h, or h of that size
        has another number of beats. Of the other sources nobody knows how many beats will come.
    """

    def __init__(self, config=LinearConfig()):
        self.config = config
        super().__init__(engine_ports(LANGUAGE, config.beat_bits))

    def elaborate(self, platform):
        m = Module()
        config = self.config
        linear = place(m, "linear", LinearEngine(config), platform)
        gradient = place(m, "gradient", GradientEngine(config), platform)
        update = place(m, "update", UpdateEngine(config), platform)
        vector = place(m, "vector", VectorEngine(
            lanes=config.beat_words, tokens=config.tokens, features=config.features, head=config.head,
            depth=OperandQueue.depth), platform)
        for engine, part in zip(LANGUAGE.own, (linear, gradient, update, vector)):
            connect(m, flipped(getattr(self, engine.name)), part.engine)
        m.d.comb += gradient.hidden.eq(linear.hidden)
        self._load(m, linear, gradient, update, self._queues(m, gradient, vector, platform), vector)
        self._store(m, linear, gradient, update, vector)
        m.d.sync += self.health.saturated.eq(
            linear.saturated + gradient.saturated + update.saturated + vector.saturated)
        return m

    def _queues(self, m, gradient, vector, platform):
        """Queues before the gradient engine and the vector engine."""
        queues = []
        for name, bits, port, depth in (
                ("gradient", ACTIVATION.width, gradient.i, OperandQueue.depth),
                ("a", TERM.width, vector.a, OperandQueue.depth), ("b", TERM.width, vector.b, OperandQueue.depth),
                ("c", TERM.width, vector.c, OperandQueue.few)):
            queue = place(m, f"queue_{name}", OperandQueue(words=self.config.beat_words, bits=bits, depth=depth),
                          platform)
            connect(m, queue.o, port)
            m.d.comb += queue.i.p.eq(self.load.p.data)
            queues.append(queue.i)
        return queues

    def _load(self, m, linear, gradient, update, queues, vector):
        config, beat = self.config, self.load.p
        tables, tiles, hidden = (data.View(layout, beat.arg) for layout in (TABLE_ARG, TILE_ARG, HIDDEN_ARG))
        m.d.comb += [
            linear.tables.p.data.eq(beat.data), linear.tables.p.index.eq(beat.index), linear.tables.p.arg.eq(tables),
            linear.tiles.p.data.eq(beat.data), linear.tiles.p.first.eq(beat.first),
            linear.tiles.p.last.eq(beat.last), linear.tiles.p.arg.eq(tiles),
            update.gradient.p.eq(beat.data), update.parameter.p.eq(beat.data), update.moment.p.eq(beat.data),
            gradient.restore.p.data.eq(beat.data), gradient.restore.p.first.eq(beat.first),
            gradient.restore.p.arg.eq(hidden),
        ]
        with m.Switch(beat.dest):
            # A beat of words never comes beside one of gradients, so room for it is all that it needs.
            with m.Case(Destination.WORDS):
                m.d.comb += [update.parameter.valid.eq(self.load.valid), self.load.ready.eq(update.room)]
            for destination, port in (
                    (Destination.TABLES, linear.tables), (Destination.TILES, linear.tiles),
                    *zip((Destination.GRADIENT, Destination.VECTOR_A, Destination.VECTOR_B, Destination.VECTOR_C),
                         queues), (Destination.DIRECTIONS, update.gradient),
                    (Destination.MOMENTS, update.moment),
                    (Destination.HIDDEN, gradient.restore)):
                with m.Case(destination):
                    m.d.comb += [port.valid.eq(self.load.valid), self.load.ready.eq(port.ready)]
            with m.Case(Destination.OPERANDS, Destination.LANES):
                m.d.comb += self.load.ready.eq(1)
            with m.Default():
                m.d.comb += [self.load.ready.eq(1), self.refuse.eq(1)]
        self._refuse(m, tables, hidden, linear)
        operand, rounding, lane = (Signal(OperandWrite(config)), Signal(LaneWrite(config)), Signal(LaneWrite(config)))
        for index in range(config.beat_words):
            word = beat.data.word_select(index, MASTER.width).as_signed()
            m.d.sync += operand.data[index].eq(word)
            # One word above the largest is possible.
            rounded = Signal(signed(WEIGHT.width + 1), reset_less=True)
            m.d.sync += [rounded.eq(half_up_hdl(word, MASTER.width - WEIGHT.width)),
                         lane.data[index].eq(saturate_hdl(rounded, WEIGHT.shape)[0])]
        for port, destination in ((operand, Destination.OPERANDS), (rounding, Destination.LANES)):
            m.d.sync += [
                port.valid.eq(self.load.valid & (beat.dest == destination) & ~self.refuse),
                port.part.eq(beat.index[:3]), port.address.eq(beat.arg[:16] + beat.index[3:]),
            ]
        m.d.sync += operand.counts.eq(data.View(OPERAND_ARG, beat.arg).early & beat.index[:3].all())
        m.d.sync += [lane.valid.eq(rounding.valid), lane.part.eq(rounding.part), lane.address.eq(rounding.address)]
        m.d.comb += [linear.operand_write.eq(operand), linear.lane_write.eq(lane)]

    def _refuse(self, m, tables, hidden, linear):
        """Judges a beat by its argument and number."""
        config, beat = self.config, self.load.p
        word, first = Signal(32), data.View(OPERAND_ARG, beat.arg)
        m.d.comb += word.eq(first.word + beat.index[3:])
        with m.Switch(beat.dest):
            with m.Case(Destination.TABLES):
                # Words behind the last are not looked at, as far as they are counted.
                m.d.comb += self.refuse.eq(beat.index[len(linear.tables.p.index):].any() | Mux(
                    tables.levels, (beat.index < 16 // config.beat_words) & ~self._within_one(beat.data),
                    tables.groups > config.groups))
            with m.Case(Destination.TILES):
                m.d.comb += self.refuse.eq(linear.refuse)
            with m.Case(Destination.OPERANDS):
                m.d.comb += self.refuse.eq(word[exact_log2(config.depth):].any())
            with m.Case(Destination.LANES):
                m.d.comb += self.refuse.eq(word[exact_log2(config.lane_depth):].any() | first.early)
            with m.Case(Destination.HIDDEN):
                m.d.comb += self.refuse.eq(self._no_hidden(hidden))

    def _no_hidden(self, hidden):
        """Whether there is no h of that slot and size."""
        config = self.config
        return ((hidden.slot >= SLOTS) | (hidden.tokens == 0) | (hidden.tokens > config.tokens)
                | (hidden.rank == 0) | hidden.rank[0] | (hidden.rank > config.rank))

    @staticmethod
    def _within_one(beat):
        """All words are levels: none may make a weight larger than its block's scale."""
        good = []
        for word in (beat.word_select(index, 32) for index in range(len(beat) // 32)):
            top = word[LEVEL.frac:]
            good.append((top == 0) | top.all() | ((top == 1) & (word[:LEVEL.frac] == 0)))
        return Cat(good).all()

    def _store(self, m, linear, gradient, update, vector):
        source, left = Signal(8), Signal(24)
        keeps, hidden = self.request.p.source == Source.HIDDEN, data.View(HIDDEN_ARG, self.request.p.arg)
        m.d.comb += [
            self.request.ready.eq((left == 0) & (gradient.request.ready | ~keeps)),
            gradient.request.valid.eq(self.request.valid & (left == 0) & keeps),
            gradient.request.p.eq(hidden),
        ]
        words = narrow_product(hidden.tokens[:bits_for(self.config.tokens)], hidden.rank[:bits_for(self.config.rank)])
        beats = (words + self.config.beat_words - 1) >> exact_log2(self.config.beat_words)
        m.d.sync += self.refuse_store.eq(
            (self.request.p.source >= len(Source))
            | (keeps & (self._no_hidden(hidden) | (self.request.p.beats != beats))))
        with m.If(self.request.valid & self.request.ready):
            m.d.sync += [source.eq(self.request.p.source), left.eq(self.request.p.beats)]
        with m.Elif(self.store.valid & self.store.ready):
            m.d.sync += left.eq(left - 1)
        ports = (linear.o, gradient.o, update.o, update.new_moment, gradient.kept, vector.o, vector.q)
        assert len(ports) == len(Source)
        with m.If(left != 0):
            with m.Switch(source):
                for number, port in enumerate(ports):
                    with m.Case(number):
                        m.d.comb += [self.store.valid.eq(port.valid), port.ready.eq(self.store.ready)]
        # One of four first, then it or one of three: two LUTs a bit.
        late = Signal(2)
        with m.If(self.request.valid & self.request.ready):
            m.d.sync += late.eq(Mux(self.request.p.source[2], self.request.p.source[:2] + 1, 0))
        m.d.comb += self.store.p.eq(_one_of_four(late, _one_of_four(source[:2], *(port.p for port in ports[:4])),
                                                 *(port.p for port in ports[4:])))


def _one_of_four(index, *values):
    return Mux(index[1], Mux(index[0], values[3], values[2]), Mux(index[0], values[1], values[0]))
