"""A machine that fine-tunes quantised linear layers: the shell and the engines of this room, wired."""
from enum import IntEnum

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import exact_log2

from ..config import LinearConfig
from ..control.signature import EngineSignature, Health, LoadBeat, StoreRequest
from ..formats.linear import LEVEL, MASTER, WEIGHT
from ..hierarchy import place
from .core import LaneWrite, OperandWrite
from .engine import LinearEngine
from .gradient import GradientEngine
from .hidden import HIDDEN_ARG
from .update import UpdateEngine
from .weights import TABLE_ARG, TILE_ARG

__all__ = ["Destination", "Source", "LinearEngines"]


class Destination(IntEnum):
    """Where LOAD sends beats."""

    TABLES = 0      #: second-level scales and offset of a weight tensor, or the codebook
    TILES = 1       #: tiles of weights, in the order of their use
    OPERANDS = 2    #: what enters a layer: ``edge`` words a tile and token, from word ``arg`` on
    LANES = 3       #: adapter words: ``edge`` words a tile and rank index, from word ``arg`` on
    GRADIENT = 4    #: what the gradient engine streams
    DIRECTIONS = 5  #: gradients for the update
    WORDS = 6       #: words to be updated
    MOMENTS = 7     #: their moments
    HIDDEN = 8      #: h, back from memory; ``arg`` is :data:`~.hidden.HIDDEN_ARG`


class Source(IntEnum):
    """Where STORE gets beats."""

    OUTPUTS = 0
    GRADIENTS = 1
    WORDS = 2
    MOMENTS = 3
    HIDDEN = 4      #: h as the gradients see it; ``arg`` is :data:`~.hidden.HIDDEN_ARG`


class LinearEngines(wiring.Component):
    """The engines LINEAR (the shell's ARRAY), GRADIENT (HEAD) and UPDATE (ENCODE), and their ways to memory.

    Members
    -------
    array, head, encode : commands of each. load, request, store : the shell's DMA. health : events of this cycle.
    refuse : the beat of ``load`` has no place: it is beyond its memory's end, or one whose argument names what is not
        there, or a command ends with it within a tile.
    """

    def __init__(self, config=LinearConfig()):
        self.config = config
        super().__init__({
            "array": In(EngineSignature()), "head": In(EngineSignature()), "encode": In(EngineSignature()),
            "load": In(stream.Signature(LoadBeat(config.beat_bits))), "refuse": Out(1),
            "request": In(stream.Signature(StoreRequest)),
            "store": Out(stream.Signature(config.beat_bits)),
            "health": Out(Health),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        linear = place(m, "linear", LinearEngine(config), platform)
        gradient = place(m, "gradient", GradientEngine(config), platform)
        update = place(m, "update", UpdateEngine(config), platform)
        connect(m, flipped(self.array), linear.engine)
        connect(m, flipped(self.head), gradient.engine)
        connect(m, flipped(self.encode), update.engine)
        m.d.comb += gradient.hidden.eq(linear.hidden)
        self._load(m, linear, gradient, update)
        self._store(m, linear, gradient, update)
        m.d.sync += self.health.saturated.eq(linear.saturated + gradient.saturated + update.saturated)
        return m

    def _load(self, m, linear, gradient, update):
        config, beat = self.config, self.load.p
        tables, tiles, hidden = (data.View(layout, beat.arg) for layout in (TABLE_ARG, TILE_ARG, HIDDEN_ARG))
        m.d.comb += [
            linear.tables.p.data.eq(beat.data), linear.tables.p.index.eq(beat.index), linear.tables.p.arg.eq(tables),
            linear.tiles.p.data.eq(beat.data), linear.tiles.p.first.eq(beat.first),
            linear.tiles.p.last.eq(beat.last), linear.tiles.p.arg.eq(tiles),
            gradient.i.p.eq(beat.data), update.gradient.p.eq(beat.data), update.parameter.p.eq(beat.data),
            update.moment.p.eq(beat.data),
            gradient.restore.p.data.eq(beat.data), gradient.restore.p.first.eq(beat.first),
            gradient.restore.p.arg.eq(hidden),
        ]
        with m.Switch(beat.dest):
            for destination, port in (
                    (Destination.TABLES, linear.tables), (Destination.TILES, linear.tiles),
                    (Destination.GRADIENT, gradient.i), (Destination.DIRECTIONS, update.gradient),
                    (Destination.WORDS, update.parameter), (Destination.MOMENTS, update.moment),
                    (Destination.HIDDEN, gradient.restore)):
                with m.Case(destination):
                    m.d.comb += [port.valid.eq(self.load.valid), self.load.ready.eq(port.ready)]
            with m.Case(Destination.OPERANDS, Destination.LANES):
                m.d.comb += self.load.ready.eq(1)
            with m.Default():
                m.d.comb += [self.load.ready.eq(1), self.refuse.eq(1)]
        self._refuse(m, tables, hidden, linear)
        operand, rounding, lane = (Signal(OperandWrite(config)), Signal(LaneWrite(config)), Signal(LaneWrite(config)))
        drop = MASTER.width - WEIGHT.width
        for index in range(config.beat_words):
            word = beat.data.word_select(index, MASTER.width).as_signed()
            m.d.sync += operand.data[index].eq(word)
            # Rounded half up, then clipped: one word above the largest is possible.
            rounded = Signal(signed(WEIGHT.width + 1), reset_less=True)
            m.d.sync += rounded.eq(((word >> (drop - 1)) + 1) >> 1)
            m.d.sync += lane.data[index].eq(Mux(rounded > WEIGHT.hi, WEIGHT.hi, rounded))
        for port, destination in ((operand, Destination.OPERANDS), (rounding, Destination.LANES)):
            m.d.sync += [
                port.valid.eq(self.load.valid & (beat.dest == destination) & ~self.refuse),
                port.part.eq(beat.index[:3]), port.address.eq(beat.arg[:16] + beat.index[3:]),
            ]
        m.d.sync += [lane.valid.eq(rounding.valid), lane.part.eq(rounding.part), lane.address.eq(rounding.address)]
        m.d.comb += [linear.operand_write.eq(operand), linear.lane_write.eq(lane)]

    def _refuse(self, m, tables, hidden, linear):
        """Judges a beat by its argument and number."""
        config, beat = self.config, self.load.p
        word = Signal(33)
        m.d.comb += word.eq(beat.arg + beat.index[3:])
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
                m.d.comb += self.refuse.eq(word[exact_log2(config.lane_depth):].any())
            with m.Case(Destination.HIDDEN):
                m.d.comb += self.refuse.eq(
                    (hidden.slot > 1) | (hidden.tokens == 0) | (hidden.tokens > config.tokens)
                    | (hidden.rank == 0) | hidden.rank[0] | (hidden.rank > config.rank))

    @staticmethod
    def _within_one(beat):
        """All words are levels: none may make a weight larger than its block's scale."""
        good = []
        for word in (beat.word_select(index, 32) for index in range(len(beat) // 32)):
            top = word[LEVEL.frac:]
            good.append((top == 0) | top.all() | ((top == 1) & (word[:LEVEL.frac] == 0)))
        return Cat(good).all()

    def _store(self, m, linear, gradient, update):
        source, left = Signal(8), Signal(24)
        keeps = self.request.p.source == Source.HIDDEN
        m.d.comb += [
            self.request.ready.eq((left == 0) & (gradient.request.ready | ~keeps)),
            gradient.request.valid.eq(self.request.valid & (left == 0) & keeps),
            gradient.request.p.eq(data.View(HIDDEN_ARG, self.request.p.arg)),
        ]
        with m.If(self.request.valid & self.request.ready):
            m.d.sync += [source.eq(self.request.p.source), left.eq(self.request.p.beats)]
        with m.Elif(self.store.valid & self.store.ready):
            m.d.sync += left.eq(left - 1)
        with m.If(left != 0):
            with m.Switch(source):
                for number, port in ((Source.OUTPUTS, linear.o), (Source.GRADIENTS, gradient.o),
                                     (Source.WORDS, update.o), (Source.MOMENTS, update.new_moment),
                                     (Source.HIDDEN, gradient.kept)):
                    with m.Case(number):
                        m.d.comb += [self.store.valid.eq(port.valid), self.store.p.eq(port.p),
                                     port.ready.eq(self.store.ready)]
