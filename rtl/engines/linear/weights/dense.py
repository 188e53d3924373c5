"""Dense words of a tile, as the array takes them."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradloom.rtl.formats.weights.linear import ACTIVATION, MASTER, WEIGHT
from gradloom.rtl.stream.delay import delay

from .rotate import rotate, turns

__all__ = ["DenseWords"]


class DenseWords(wiring.Component):
    """Converts a beat of a dense tile to the array's words.

    The words are in the lanes of their banks.

    :attr:`TileKind.WORDS`: 24 bits count of each 32, 6 are dropped, half up; the one word above the largest becomes
    it. :attr:`TileKind.HALVES`: 16 bits, shifted left by 2. Bank b takes lane ``b % (edge / 4)``; words come twice.

    Members
    -------
    i : a beat. halves : its kind. turn : number of its row. valid : its words are wanted.
    o : words, 0 if they are not wanted; 3 cycles and those of the rotation later.
    """

    def __init__(self, config):
        self.config = config
        lanes = 2 * config.beat_words
        super().__init__(
            {
                "i": In(config.data_bits),
                "halves": In(1),
                "turn": In(ceil_log2(lanes)),
                "valid": In(1),
                "o": Out(data.ArrayLayout(signed(WEIGHT.width), lanes)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        few = self.config.beat_words
        drop = ACTIVATION.width - WEIGHT.width
        words = []
        for index in range(few):
            word = self.i.word_select(index, MASTER.width)[: ACTIVATION.width].as_signed()
            rounded, clipped = Signal(signed(WEIGHT.width + 1)), Signal(signed(WEIGHT.width))
            m.d.sync += [
                rounded.eq(((word >> (drop - 1)) + 1) >> 1),
                clipped.eq(Mux(rounded > WEIGHT.hi, WEIGHT.hi, rounded)),
            ]
            words.append(clipped)
        beat, halves = delay(m, self.i, 2), delay(m, self.halves, 2)
        lanes = [
            Mux(halves, Cat(Const(0, 2), beat.word_select(lane, 16)), words[lane % few]).as_signed()
            for lane in range(2 * few)
        ]
        turned = rotate(m, lanes, delay(m, self.turn, 2), left=True)
        valid = delay(m, self.valid, 2 + turns(len(turned)))
        for lane, word in enumerate(turned):
            m.d.sync += self.o[lane].eq(Mux(valid, word, 0))
        return m
