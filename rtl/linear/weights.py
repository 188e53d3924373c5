"""Frozen weights: a stream of packed codes and double-quantised scales becomes words of the array."""
from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..formats.linear import LEVEL, SCALE, SCALE_GUARD, SCALE_MAX, WEIGHT, level_table, map_table
from ..stream.delay import delay

__all__ = ["TABLE_LEVELS", "TableBeat", "TileBeat", "WeightRow", "TableLoader", "Dequantizer", "TileBuffer"]

#: ``arg`` of a beat of tables: ``groups`` scales and then the offset, whose exponents ``bias`` counts from; or,
#: with ``levels``, the codebook.
TABLE_ARG = data.StructLayout({"groups": 16, "bias": 9, "levels": 1, "_reserved": 6})
TABLE_LEVELS = 1 << 25
#: ``arg`` of a command that loads tiles: number of the first tile's first block, blocks in a row of the tensor.
TILE_ARG = data.StructLayout({"block": 20, "blocks_per_row": 12})


def TableBeat(config):
    """A beat of tables; ``index`` counts beats in its command."""
    return data.StructLayout({"data": config.beat_bits, "index": 12, "arg": TABLE_ARG})


def TileBeat(config):
    """A beat of tiles; ``first`` of its command."""
    return data.StructLayout({"data": config.beat_bits, "first": 1, "arg": TILE_ARG})


def WeightRow(config):
    """A row of a tile, decoded."""
    return data.StructLayout({
        "valid": 1, "row": range(config.edge), "half": 1, "w": data.ArrayLayout(signed(WEIGHT.width), config.edge)})


class TableLoader(wiring.Component):
    """Takes a weight tensor's tables apart: a word a cycle.

    Second-level scales and offset are IEEE single precision; a word with exponent e becomes the nearest integer
    (half away from zero) of its mantissa times ``2**(e - bias)``, so that ``bias = 150 - frac`` for ``frac``
    fraction bits. What is beyond +-SCALE_MAX is clipped to it.

    Members
    -------
    i : stream of :func:`TableBeat`.
    scale : a word of the table of second-level scales. level : a word of the codebook.
    offset : of the tensor.
    busy : a table is not complete: no tile may begin.
    saturated : a word was clipped.
    """

    def __init__(self, config):
        self.config = config
        super().__init__({
            "i": In(stream.Signature(TableBeat(config))), "busy": Out(1),
            "scale": Out(data.StructLayout({
                "valid": 1, "index": ceil_log2(config.groups), "value": signed(SCALE.width)})),
            "level": Out(data.StructLayout({"valid": 1, "index": 4, "value": signed(LEVEL.width)})),
            "offset": Out(signed(SCALE.width)),
            "saturated": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        words = self.config.beat_words
        beat = Signal(self.i.p.shape())
        left = Signal(range(words + 1))
        index = Signal(17)
        m.d.comb += self.i.ready.eq(left == 0)
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [beat.eq(self.i.p), left.eq(words), index.eq(self.i.p.index * words)]
        with m.Elif(left != 0):
            m.d.sync += [beat.data.eq(beat.data >> 32), left.eq(left - 1), index.eq(index + 1)]

        word = beat.data[:32]
        context = data.StructLayout({"valid": 1, "index": 17, "arg": TABLE_ARG, "word": 32})
        first = Signal(context)
        mantissa, far = Signal(24, reset_less=True), Signal(reset_less=True)
        distance = Signal(range(64), reset_less=True)
        excess = Signal(signed(11))
        m.d.comb += excess.eq(beat.arg.bias - word[23:31])
        m.d.sync += [
            first.valid.eq(left != 0), first.index.eq(index), first.arg.eq(beat.arg), first.word.eq(word),
            mantissa.eq(Mux(word[23:31] == 0, 0, Cat(word[:23], 1))),
            # To the left: a value of 2**24 or more.
            far.eq(excess < 0), distance.eq(Mux(excess > 32, 32, excess[:6])),
        ]
        second = delay(m, first, 1, reset_less=False)
        shifted, far_then = Signal(25, reset_less=True), Signal(reset_less=True)
        m.d.sync += [shifted.eq(Cat(0, mantissa) >> distance), far_then.eq(far & (mantissa != 0))]
        third = delay(m, second, 1, reset_less=False)
        magnitude = Signal(25, reset_less=True)
        m.d.sync += magnitude.eq(Mux(far_then, SCALE_MAX + 1, (shifted + 1) >> 1))
        over = magnitude > SCALE_MAX
        clipped = Signal(signed(SCALE.width), reset_less=True)
        fourth = delay(m, third, 1, reset_less=False)
        limited = Mux(over, SCALE_MAX, magnitude)[:SCALE.width - 1]
        m.d.sync += clipped.eq(Mux(third.word[31], -limited, limited))

        is_scale = fourth.valid & ~fourth.arg.levels & (fourth.index <= fourth.arg.groups)
        m.d.sync += self.saturated.eq(third.valid & ~third.arg.levels & (third.index <= third.arg.groups) & over)
        m.d.comb += [
            self.scale.valid.eq(is_scale & (fourth.index < fourth.arg.groups)),
            self.scale.index.eq(fourth.index), self.scale.value.eq(clipped),
            self.level.valid.eq(fourth.valid & fourth.arg.levels & (fourth.index < 16)),
            self.level.index.eq(fourth.index), self.level.value.eq(fourth.word[:LEVEL.width].as_signed()),
        ]
        m.d.comb += self.busy.eq((left != 0) | first.valid | second.valid | third.valid | fourth.valid)
        with m.If(is_scale & (fourth.index == fourth.arg.groups)):
            m.d.sync += self.offset.eq(clipped)
        return m


class Dequantizer(wiring.Component):
    """Decodes tiles, a row a cycle.

    A tile is two beats of scale codes and ``edge`` beats of a row's codes each, the first element in the high
    nibble of the first byte. Row n's scale is ``map[code] * scale2[block // 256] + offset`` with block =
    ``arg.block + n * arg.blocks_per_row``, clipped to +-SCALE_MAX; a weight is level times scale, rounded half
    up. Tiles of one command follow each other along a row of the tensor.

    Takes a beat a cycle; a tile begins only if a half of the buffer is free. A row leaves :attr:`latency` cycles
    after its beat.

    Members
    -------
    i : stream of :func:`TileBeat`.
    scale, level, offset : from :class:`TableLoader`.
    free : a half of the buffer is about to be free.
    o : rows. saturated : a scale was clipped.
    """

    latency = 9

    def __init__(self, config):
        self.config = config
        super().__init__({
            "i": In(stream.Signature(TileBeat(config))),
            "scale": In(data.StructLayout({
                "valid": 1, "index": ceil_log2(config.groups), "value": signed(SCALE.width)})),
            "level": In(data.StructLayout({"valid": 1, "index": 4, "value": signed(LEVEL.width)})),
            "offset": In(signed(SCALE.width)),
            "free": In(1),
            "o": Out(WeightRow(config)),
            "saturated": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        edge = config.edge
        taken = Signal()
        place_in_tile = Signal(range(edge + 2))
        halves = Signal(2, init=2)
        half = Signal()
        begins = Signal()
        m.d.comb += [
            self.i.ready.eq((place_in_tile != 0) | (halves != 0)),
            taken.eq(self.i.valid & self.i.ready), begins.eq(taken & (place_in_tile == 0)),
        ]
        m.d.sync += halves.eq(halves + self.free - begins)

        is_row = place_in_tile >= 2
        block, row_block = Signal(20), Signal(20)
        row = Signal(range(edge))
        codes = Signal(8 * edge, reset_less=True)
        with m.If(taken):
            m.d.sync += place_in_tile.eq(place_in_tile + 1)
            with m.If(~is_row):
                m.d.sync += codes.eq(Cat(codes[config.beat_bits:], self.i.p.data))
            with m.If(place_in_tile == 0):
                m.d.sync += block.eq(Mux(self.i.p.first, self.i.p.arg.block, block))
            with m.If(place_in_tile == 1):
                m.d.sync += [row_block.eq(block), row.eq(0)]
            with m.If(is_row):
                m.d.sync += [codes.eq(codes >> 8), row.eq(row + 1),
                             row_block.eq(row_block + self.i.p.arg.blocks_per_row)]
            with m.If(place_in_tile == edge + 1):
                m.d.sync += [place_in_tile.eq(0), block.eq(block + 1), half.eq(~half)]

        m.submodules.map = table = memory.Memory(
            shape=signed(LEVEL.width), depth=256, init=[int(v) for v in map_table()])
        m.submodules.scales = scales = memory.Memory(
            shape=signed(SCALE.width), depth=config.groups, init=[])
        map_port, scale_port, write = table.read_port(), scales.read_port(), scales.write_port()
        m.d.comb += [
            map_port.addr.eq(codes[:8]), scale_port.addr.eq(row_block[8:]),
            write.en.eq(self.scale.valid), write.addr.eq(self.scale.index), write.data.eq(self.scale.value),
        ]
        value, second = Signal(signed(LEVEL.width), reset_less=True), Signal(signed(SCALE.width), reset_less=True)
        product = Signal(signed(LEVEL.width + SCALE.width), reset_less=True)
        rounded = Signal(signed(SCALE.width + 2), reset_less=True)
        total = Signal(signed(SCALE.width + 3), reset_less=True)
        scale = Signal(signed(SCALE.width), reset_less=True)
        over = (total > SCALE_MAX) | (total < -SCALE_MAX)
        m.d.sync += [
            value.eq(map_port.data), second.eq(scale_port.data),
            product.eq(value * second),
            rounded.eq((product + (1 << (LEVEL.frac - 1))) >> LEVEL.frac),
            total.eq(rounded + self.offset),
            scale.eq(Mux(over, Mux(total < 0, -SCALE_MAX, SCALE_MAX), total)),
        ]
        tag = Signal(data.StructLayout({"valid": 1, "row": range(edge), "half": 1}))
        m.d.comb += [tag.valid.eq(taken & is_row), tag.row.eq(row), tag.half.eq(half)]
        at_total = delay(m, tag, 5, reset_less=False)
        at_scale = delay(m, at_total, 1, reset_less=False)
        m.d.sync += self.saturated.eq(at_total.valid & over)
        row_codes = delay(m, self.i.p.data, 6)
        at_word = delay(m, at_scale, 3, reset_less=False)
        m.d.comb += [self.o.valid.eq(at_word.valid), self.o.row.eq(at_word.row), self.o.half.eq(at_word.half)]

        together = Signal(signed(SCALE.width), reset_less=True)
        m.d.sync += together.eq(scale)
        down = LEVEL.frac + SCALE_GUARD
        for lane in range(edge):
            # High nibble first.
            code = row_codes.word_select(lane ^ 1, 4)
            m.submodules[f"levels_{lane}"] = levels = memory.Memory(
                shape=signed(LEVEL.width), depth=16, init=[int(v) for v in level_table()])
            read, fill = levels.read_port(domain="comb"), levels.write_port()
            level = Signal(signed(LEVEL.width), reset_less=True)
            scaled = Signal(signed(LEVEL.width + SCALE.width), reset_less=True)
            word = Signal(signed(LEVEL.width + SCALE.width), reset_less=True)
            m.d.comb += [read.addr.eq(code), fill.en.eq(self.level.valid), fill.addr.eq(self.level.index),
                         fill.data.eq(self.level.value), self.o.w[lane].eq(word >> down)]
            m.d.sync += [level.eq(read.data), scaled.eq(level * together), word.eq(scaled + (1 << (down - 1)))]
        return m


def _rotate(m, words, amount, *, left):
    """``words`` rotated by ``amount`` places, a register behind every second bit of ``amount``."""
    bits = len(amount)
    for low in range(0, bits, 2):
        for bit in range(low, min(low + 2, bits)):
            step = (1 << bit) % len(words)
            turned = [words[(k - step if left else k + step) % len(words)] for k in range(len(words))]
            words = [Mux(amount[bit], ours, word) for ours, word in zip(turned, words)]
        stage = [Signal(signed(WEIGHT.width), reset_less=True) for _ in words]
        m.d.sync += [ours.eq(word) for ours, word in zip(stage, words)]
        words = stage
        amount = delay(m, amount, 1)
    return words


def _turns(config):
    """Cycles of a rotation."""
    return -(-ceil_log2(config.edge) // 2)


class TileBuffer(wiring.Component):
    """Two tiles of weights, written row by row and read by rows or by columns.

    Row n is stored turned by n places, so that a row and a column alike lie in ``edge`` different banks: the
    corner turn that lets the same bytes serve W x and W' dy.

    Members
    -------
    i : rows.
    full : the half that is next to be read is complete. release : it was read.
    index, by_column : row or column of that half to read, any cycle; ``w`` holds it :meth:`latency` cycles later.
    """

    def __init__(self, config):
        self.config = config
        super().__init__({
            "i": In(WeightRow(config)),
            "full": Out(1), "release": In(1),
            "index": In(range(config.edge)), "by_column": In(1),
            "w": Out(data.ArrayLayout(signed(WEIGHT.width), config.edge)),
        })

    @staticmethod
    def latency(config):
        """Cycles from index to words."""
        return 2 + _turns(config)

    def elaborate(self, platform):
        m = Module()
        edge = self.config.edge
        turned = _rotate(m, [self.i.w[k] for k in range(edge)], self.i.row, left=True)
        tag = Signal(data.StructLayout({"valid": 1, "row": range(edge), "half": 1}))
        m.d.comb += [tag.valid.eq(self.i.valid), tag.row.eq(self.i.row), tag.half.eq(self.i.half)]
        write = delay(m, tag, _turns(self.config), reset_less=False)

        half = Signal()
        complete = Signal(2)
        m.d.comb += self.full.eq(complete.bit_select(half, 1))
        ends = write.valid & (write.row == edge - 1)
        for number in range(2):
            with m.If(ends & (write.half == number)):
                m.d.sync += complete[number].eq(1)
            with m.If(self.release & (half == number)):
                m.d.sync += complete[number].eq(0)
        with m.If(self.release):
            m.d.sync += half.eq(~half)

        index = Signal(range(edge), reset_less=True)
        m.d.sync += index.eq(self.index)
        words = []
        for bank in range(edge):
            m.submodules[f"bank_{bank}"] = bank_memory = memory.Memory(
                shape=signed(WEIGHT.width), depth=2 * edge, init=[])
            fill, read = bank_memory.write_port(), bank_memory.read_port(domain="comb")
            address = Signal(range(2 * edge), reset_less=True)
            word = Signal(signed(WEIGHT.width), reset_less=True)
            place_in_half = Mux(self.by_column, (bank - self.index)[:ceil_log2(edge)], self.index)
            m.d.sync += [address.eq(Cat(place_in_half, half)), word.eq(read.data)]
            m.d.comb += [fill.en.eq(write.valid), fill.addr.eq(Cat(write.row, write.half)),
                         fill.data.eq(turned[bank]), read.addr.eq(address)]
            words.append(word)
        back = _rotate(m, words, delay(m, index, 1), left=False)
        m.d.comb += [ours.eq(theirs) for ours, theirs in zip(self.w, back)]
        return m
