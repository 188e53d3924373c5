"""Packs words and moments into blocks of codes, and unpacks them."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from ...formats.weights.packed import BLOCKS, RECORD
from .commands import PackOperands
from .pack_beats import leave
from .pack_codes import decode, encode, read_code
from .pack_floats import make_floats, multiply
from .pack_scales import buffer_blocks, read_record
from .pack_walk import PackWalk, draw, select, walk_blocks
from .parameters import UpdateParameters

__all__ = ["PackUnit"]


class PackUnit(wiring.Component):
    """Converts blocks to codes and a record of scales, or back.

    A group of blocks, ``edge`` elements each; an element a cycle.

    Bit for bit ``pack`` and ``unpack`` of the reference; ``gradloom.rtl.formats.weights.packed`` has the layout of
    bytes. PACK reads two blocks, chooses their scales, then writes their codes: ``4 * edge + 13`` cycles for both. It
    takes beats of words, or of half m and half v, from the first stream and lets go those of the second one. UNPACK
    takes the record from the first stream, then codes: the second stream has the same beats one earlier, so that of
    every other pair both beats count and the next one is let go.

    Its numbers are floats, words on their way in and out too: one normaliser, one shifter and one multiplier serve both
    directions.

    ::

        i --> select --+--> floats --> two blocks --> elements --> multiply --> encode --+--> beats --> o
                       |                 scales                       ^ |                |
                       +--> record, codes ----------------------------+ +--> decode -----+

    Members
    -------
    start : ``args`` (:data:`PackOperands`) and ``unpack`` hold from now on until ``busy`` ends.
    roomy : there is room for what comes of a pair of blocks, and for a record.
    i : pairs of beats, the first stream's in the low half.
    o, valid, last : a beat leaves; it is the group's last.
    saturated : words that had to be clipped.
    """

    def __init__(self, config=UpdateParameters()):
        self.config = config
        super().__init__(
            {
                "start": In(1),
                "args": In(PackOperands),
                "unpack": In(1),
                "busy": Out(1),
                "roomy": In(1),
                "i": In(stream.Signature(2 * config.data_bits)),
                "o": Out(config.data_bits),
                "valid": Out(1),
                "last": Out(1),
                "saturated": Out(1),
            }
        )

    @staticmethod
    def record_beats(config):
        """Beats of a record."""
        return -(-RECORD // (config.data_bits // 8))

    def elaborate(self, platform):
        m = Module()
        args, few = self.args, self.config.beat_words
        # Bits of a word's index in a beat, of an element's in a block.
        low, side_bits = exact_log2(few), exact_log2(self.config.edge)

        n = Signal(side_bits + 1)
        batch, last_batch = Signal(range(BLOCKS // 2)), Signal()
        m.d.comb += last_batch.eq(batch == (args.blocks >> 1) - 1)
        fill, read, code, header, tail = (Signal(name=name) for name in ("fill", "read", "code", "header", "tail"))
        odd = Signal()  # the second pair of beats of a pair of blocks
        scaling = Signal()
        word_end, code_end = Signal(), Signal()
        m.d.comb += [word_end.eq(n[:low].all()), code_end.eq(n[:-1].all() & (n[-1] | args.wide))]
        walk = PackWalk(
            n=n,
            batch=batch,
            last_batch=last_batch,
            odd=odd,
            word_end=word_end,
            code_end=code_end,
            fill=fill,
            read=read,
            code=code,
            header=header,
            tail=tail,
            scaling=scaling,
        )
        walk_blocks(m, self, walk)
        chance = draw(m, self, read)
        taken = select(m, self, code, n, low, side_bits)
        tops = read_record(m, self, header, n, taken.word)
        floats = make_floats(m, self, taken.word)
        elements = buffer_blocks(m, self, walk, floats, chance, tops)
        block = Mux(args.wide & ~args.moments, odd, taken.second)
        parts = read_code(m, self, taken, block, batch, tops)
        multiplied = multiply(m, self, elements.scale, elements.element, parts, floats)
        packed = encode(m, self, elements, multiplied)
        decoded = decode(m, self, parts, floats, multiplied)
        leave(m, self, walk, elements, packed, decoded, tops)
        return m
