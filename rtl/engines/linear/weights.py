"""Converts packed codes or dense words to words of the array."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2, exact_log2

from ...formats.linear import ACTIVATION, LEVEL, MASTER, SCALE, SCALE_GUARD, SCALE_MAX, WEIGHT, level_table, map_table
from ...stream.delay import delay, held
from ...stream.queue import stepped
from .commands import TABLE_ARG, TILE_ARG, TileKind

__all__ = ["BankWords", "DenseWords", "Dequantizer", "TableBeat", "TableLoader", "TileBeat", "TileBuffer"]


def TableBeat(config):
    """A beat of tables; ``index`` counts beats in its command."""
    return data.StructLayout({"data": config.data_bits, "index": 12, "arg": TABLE_ARG})


def TileBeat(config):
    """A beat of tiles; ``first`` and ``last`` of its command."""
    return data.StructLayout({"data": config.data_bits, "first": 1, "last": 1, "arg": TILE_ARG})


def BankWords(config):
    """Words of a row of a tile, each for its bank.

    Word c of row n is for bank ``(c + n) % edge``.

    ``enable``: banks that have one. ``last`` of a tile.
    """
    return data.StructLayout(
        {
            "enable": config.edge,
            "row": range(config.edge),
            "half": 1,
            "last": 1,
            "w": data.ArrayLayout(signed(WEIGHT.width), config.edge),
        }
    )


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
        super().__init__(
            {
                "i": In(stream.Signature(TableBeat(config))),
                "busy": Out(1),
                "scale": Out(
                    data.StructLayout({"valid": 1, "index": ceil_log2(config.groups), "value": signed(SCALE.width)})
                ),
                "level": Out(data.StructLayout({"valid": 1, "index": 4, "value": signed(LEVEL.width)})),
                "offset": Out(signed(SCALE.width)),
                "saturated": Out(1),
            }
        )

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
            first.valid.eq(left != 0),
            first.index.eq(index),
            first.arg.eq(beat.arg),
            first.word.eq(word),
            mantissa.eq(Mux(word[23:31] == 0, 0, Cat(word[:23], 1))),
            # To the left: a value of 2**24 or more.
            far.eq(excess < 0),
            distance.eq(Mux(excess > 32, 32, excess[:6])),
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
        limited = Mux(over, SCALE_MAX, magnitude)[: SCALE.width - 1]
        m.d.sync += clipped.eq(Mux(third.word[31], -limited, limited))

        is_scale = fourth.valid & ~fourth.arg.levels & (fourth.index <= fourth.arg.groups)
        m.d.sync += self.saturated.eq(third.valid & ~third.arg.levels & (third.index <= third.arg.groups) & over)
        m.d.comb += [
            self.scale.valid.eq(is_scale & (fourth.index < fourth.arg.groups)),
            self.scale.index.eq(fourth.index),
            self.scale.value.eq(clipped),
            self.level.valid.eq(fourth.valid & fourth.arg.levels & (fourth.index < 16)),
            self.level.index.eq(fourth.index),
            self.level.value.eq(fourth.word[: LEVEL.width].as_signed()),
        ]
        # Computed a cycle ahead: a word is in one of the stages.
        m.d.sync += self.busy.eq((self.i.valid & self.i.ready) | (left != 0) | first.valid | second.valid | third.valid)
        with m.If(is_scale & (fourth.index == fourth.arg.groups)):
            m.d.sync += self.offset.eq(clipped)
        return m


class Dequantizer(wiring.Component):
    """Decodes tiles: a row of codes or a beat of dense words a cycle.

    Each word leaves for the bank that keeps it.

    A tile of codes is two beats of scale codes and ``edge`` beats of a row's codes each, the first element in the
    high nibble of the first byte. Row n's scale is ``map[code] * scale2[block // 256] + offset`` with block =
    ``arg.block + n * arg.blocks_per_row``, clipped to +-SCALE_MAX; a weight is level times scale, rounded half
    up. Tiles of one command follow each other along a row of the tensor.

    A dense tile (:class:`TileKind`) is up to ``edge`` rows, 8 or 4 beats each. The last beat of a command ends its
    tile: rows of 0, one a cycle, complete it.

    Takes a beat a cycle; a tile begins only if a half of the buffer is free. What it makes of a beat leaves
    :attr:`latency` cycles later.

    Members
    -------
    i : stream of :func:`TileBeat`.
    scale, level, offset : from :class:`TableLoader`.
    free : a half of the buffer is about to be free.
    refuse : this beat is of no :class:`TileKind`, of a block beyond the table of scales, or the last of its command
        within a tile of codes or a dense row.
    o : words. saturated : a scale was clipped.
    """

    latency = 9

    def __init__(self, config):
        self.config = config
        super().__init__(
            {
                "i": In(stream.Signature(TileBeat(config))),
                "scale": In(
                    data.StructLayout({"valid": 1, "index": ceil_log2(config.groups), "value": signed(SCALE.width)})
                ),
                "level": In(data.StructLayout({"valid": 1, "index": 4, "value": signed(LEVEL.width)})),
                "offset": In(signed(SCALE.width)),
                "free": In(1),
                "refuse": Out(1),
                "o": Out(BankWords(config)),
                "saturated": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        edge = config.edge
        tag, scale_codes, row_block = self._take(m)

        # ---- scale of a row of codes
        m.submodules.map = table = memory.Memory(
            shape=signed(LEVEL.width), depth=256, init=[int(v) for v in map_table()]
        )
        m.submodules.scales = scales = memory.Memory(shape=signed(SCALE.width), depth=config.groups, init=[])
        map_port, scale_port, write = table.read_port(), scales.read_port(), scales.write_port()
        m.d.comb += [
            map_port.addr.eq(scale_codes[:8]),
            scale_port.addr.eq(row_block[8:]),
            write.en.eq(self.scale.valid),
            write.addr.eq(self.scale.index),
            write.data.eq(self.scale.value),
        ]
        value, second = Signal(signed(LEVEL.width), reset_less=True), Signal(signed(SCALE.width), reset_less=True)
        product = Signal(signed(LEVEL.width + SCALE.width), reset_less=True)
        rounded = Signal(signed(SCALE.width + 2), reset_less=True)
        total = Signal(signed(SCALE.width + 3), reset_less=True)
        scale, together = (Signal(signed(SCALE.width), reset_less=True, name=name) for name in ("scale", "together"))
        over = (total > SCALE_MAX) | (total < -SCALE_MAX)
        tags = [tag]
        for _ in range(self.latency):
            tags.append(delay(m, tags[-1], 1, reset_less=False))
        m.d.sync += [
            value.eq(map_port.data),
            second.eq(scale_port.data),
            product.eq(value * second),
            rounded.eq((product + (1 << (LEVEL.frac - 1))) >> LEVEL.frac),
            total.eq(rounded + self.offset),
            scale.eq(Mux(over, Mux(total < 0, -SCALE_MAX, SCALE_MAX), total)),
            # Dense words are added to products, which are then 0.
            together.eq(Mux(tags[6].is_codes, scale, 0)),
            self.saturated.eq(tags[5].valid & tags[5].is_codes & over),
        ]

        # ---- codes, turned while they are codes, and dense words, which are as many as a beat brings
        turning = 6 - _turns(edge)
        # The bus has the beats of all engines.
        raw, turn = delay(m, held(m, self.i.p.data, self.i.valid), turning - 1), tags[turning]
        codes = _rotate(m, [raw.word_select(lane ^ 1, 4) for lane in range(edge)], turn.row, left=True)
        # A rotation of a quarter of the lanes takes a cycle less.
        m.submodules.dense = dense = DenseWords(config)
        m.d.comb += [
            dense.i.eq(raw),
            dense.halves.eq(turn.halves),
            dense.turn.eq(turn.row),
            dense.valid.eq(turn.valid & turn.is_dense),
        ]
        down = LEVEL.frac + SCALE_GUARD
        half = Const(1 << (down - 1), down)
        for bank in range(edge):
            m.submodules[f"levels_{bank}"] = levels = memory.Memory(
                shape=signed(LEVEL.width), depth=16, init=[int(v) for v in level_table()]
            )
            read, fill = levels.read_port(domain="comb"), levels.write_port()
            level = Signal(signed(LEVEL.width), reset_less=True)
            scaled = Signal(signed(LEVEL.width + SCALE.width), reset_less=True)
            word = Signal(signed(LEVEL.width + SCALE.width), reset_less=True)
            m.d.comb += [
                read.addr.eq(codes[bank]),
                fill.en.eq(self.level.valid),
                fill.addr.eq(self.level.index),
                fill.data.eq(self.level.value),
                self.o.w[bank].eq(word >> down),
            ]
            m.d.sync += [
                level.eq(read.data),
                scaled.eq(level * together),
                word.eq(scaled + Cat(half, dense.o[bank % len(dense.o)]).as_signed()),
            ]

        m.d.comb += [
            self.o.row.eq(tags[9].row),
            self.o.half.eq(tags[9].half),
            self.o.last.eq(tags[9].last),
            self.o.enable.eq(self._enables(m, tags[7])),
        ]
        return m

    def _take(self, m):
        """Takes beats and returns ``(tag, scale codes, block)``.

        The tag is of the beat taken in this cycle; the others come a cycle later.
        """
        config = self.config
        edge = config.edge
        beat = self.i.p
        is_dense, halves = Signal(), Signal()
        m.d.comb += [is_dense.eq(beat.arg.kind != TileKind.CODES), halves.eq(beat.arg.kind == TileKind.HALVES)]
        begun, filling = Signal(), Signal()
        scale_beats, row, part = Signal(range(3)), Signal(range(edge)), Signal(range(8))
        free_halves, half = Signal(2, init=2), Signal()
        taken, of_row, is_row, completes, row_ends, ends = (Signal() for _ in range(6))
        m.d.comb += [
            self.i.ready.eq(~filling & (begun | (free_halves != 0))),
            taken.eq(self.i.valid & self.i.ready),
            of_row.eq(is_dense | (scale_beats == 2)),
            is_row.eq(taken & of_row),
            completes.eq(
                of_row
                & (~is_dense | Mux(halves, part == TileKind.HALVES.row_beats - 1, part == TileKind.WORDS.row_beats - 1))
            ),
            row_ends.eq(filling | (taken & completes)),
            ends.eq(row_ends & (row == edge - 1)),
        ]
        m.d.sync += free_halves.eq(stepped(free_halves, self.free, taken & ~begun))
        with m.If(row_ends):
            m.d.sync += row.eq(row + 1)

        block, row_block = Signal(20), Signal(21)
        # Computed a cycle ahead: a tile takes several.
        next_block = Signal(20, reset_less=True)
        m.d.sync += next_block.eq(block + 1)
        codes = Signal(8 * edge, reset_less=True)
        with m.If(taken):
            m.d.sync += begun.eq(1)
            with m.If(~begun & beat.first):
                m.d.sync += block.eq(beat.arg.block)
            with m.If(is_row):
                m.d.sync += [codes.eq(codes >> 8), part.eq(part + 1), row_block.eq(row_block + beat.arg.blocks_per_row)]
            with m.Else():
                m.d.sync += [
                    codes.eq(Cat(codes[config.data_bits :], beat.data)),
                    scale_beats.eq(scale_beats + 1),
                    row_block.eq(block),
                ]
            with m.If(beat.last & is_dense):
                m.d.sync += filling.eq(1)
        with m.If(row_ends):
            m.d.sync += part.eq(0)
        with m.If(ends):
            m.d.sync += [begun.eq(0), filling.eq(0), scale_beats.eq(0), block.eq(next_block), half.eq(~half)]

        no_block = row_block[8 + exact_log2(config.groups) :].any()
        # Of what is offered, whether or not it is taken: the way from there and back to LOAD is long.
        m.d.comb += self.refuse.eq(
            (beat.arg.kind == 3)
            | (of_row & ~is_dense & no_block)
            | (beat.last & ~(completes & (is_dense | (row == edge - 1))))
        )

        tag = Signal(
            data.StructLayout(
                {
                    "valid": 1,
                    "is_codes": 1,
                    "is_dense": 1,
                    "halves": 1,
                    "part": 3,
                    "row": range(edge),
                    "half": 1,
                    "last": 1,
                }
            )
        )
        m.d.comb += [
            tag.valid.eq(is_row | filling),
            tag.is_codes.eq(~filling & ~is_dense),
            tag.is_dense.eq(~filling & is_dense),
            tag.halves.eq(halves),
            tag.part.eq(part),
            tag.row.eq(row),
            tag.half.eq(half),
            tag.last.eq(ends),
        ]
        return tag, codes, row_block

    def _enables(self, m, tag):
        """Banks in which the words of ``tag`` are written, 2 cycles later.

        A beat's words lie in banks next to each other, from place ``row % lanes`` of one group of lanes to the
        place before in the next.
        """
        few = self.config.beat_words
        lanes = 2 * few
        low = exact_log2(few)
        # Groups of `few` banks: halves fill two at a time. Words come twice, so that there is one place of both.
        start = Signal(3)
        m.d.comb += start.eq(
            Mux(tag.halves, Cat(Const(0, 1), tag.part[:2] + tag.row[low + 1 :]), tag.part + tag.row[low:])
        )
        whole, width = ~tag.is_dense, Mux(tag.halves, 0b11, 0b01)
        here, there, behind = Signal(8), Signal(8), Signal(lanes)
        after = start + Mux(tag.halves, 2, 1)
        for signal, first in ((here, start), (there, after[:3])):
            m.d.sync += signal.eq(Mux(tag.valid, Mux(whole, 0xFF, width << first), 0))
        for lane in range(lanes):
            m.d.sync += behind[lane].eq(Mux(tag.halves, lane >= tag.row[: low + 1], lane % few >= tag.row[:low]))
        enable = Signal(self.config.edge)
        m.d.sync += enable.eq(
            Cat(Mux(behind[bank % lanes], here[bank // few], there[bank // few]) for bank in range(self.config.edge))
        )
        return enable


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
        turned = _rotate(m, lanes, delay(m, self.turn, 2), left=True)
        valid = delay(m, self.valid, 2 + _turns(len(turned)))
        for lane, word in enumerate(turned):
            m.d.sync += self.o[lane].eq(Mux(valid, word, 0))
        return m


def _rotate(m, words, amount, *, left):
    """``words`` rotated by ``amount`` places.

    A register stands behind every second bit of ``amount``.
    """
    words = [Value.cast(word) for word in words]
    for low in range(0, len(amount), 2):
        # Gates, not a tree of multiplexers: mapping would share its lower ones, and take two LUTs for one.
        chosen = [amount[low : low + 2] == number for number in range(1 << len(amount[low : low + 2]))]
        one_hot = Signal(len(chosen))
        m.d.comb += one_hot.eq(Cat(chosen))
        turned = []
        for place in range(len(words)):
            value = 0
            for number in range(len(chosen)):
                step = number << low
                word = words[(place - step if left else place + step) % len(words)]
                value = value | Mux(one_hot[number], word, 0)
            turned.append(value)
        words = [delay(m, word, 1) for word in turned]
        amount = delay(m, amount, 1)
    return words


def _turns(places):
    """Cycles of a rotation among ``places`` places."""
    return -(-ceil_log2(places) // 2)


class TileBuffer(wiring.Component):
    """Two tiles of weights, written by rows and read by rows or by columns.

    Row n is stored turned by n places, so that a row and a column alike lie in ``edge`` different banks: the
    corner turn that lets the same bytes serve W x and W' dy. Banks are in LUTs, of which they take some four thousand:
    each would fill an eighth of half a block RAM.

    Members
    -------
    i : words, each for its bank; a dense row may come in pieces.
    full : the half that is next to be read is complete. release : it was read.
    index, by_column : row or column of that half to read, any cycle; ``w`` holds it :meth:`latency` cycles later.
    """

    def __init__(self, config):
        self.config = config
        super().__init__(
            {
                "i": In(BankWords(config)),
                "full": Out(1),
                "release": In(1),
                "index": In(range(config.edge)),
                "by_column": In(1),
                "w": Out(data.ArrayLayout(signed(WEIGHT.width), config.edge)),
            }
        )

    @staticmethod
    def latency(config):
        """Cycles from index to words."""
        return 2 + _turns(config.edge)

    def elaborate(self, platform):
        m = Module()
        edge = self.config.edge
        write = self.i
        half = Signal()
        complete = Signal(2)
        for number in range(2):
            with m.If(write.last & (write.half == number)):
                m.d.sync += complete[number].eq(1)
            with m.If(self.release & (half == number)):
                m.d.sync += complete[number].eq(0)
        with m.If(self.release):
            m.d.sync += half.eq(~half)
        # Computed a cycle ahead: what `complete` will say of the half that will be read.
        will = Signal(2)
        m.d.comb += will.eq(complete | Mux(write.last, Mux(write.half, 0b10, 0b01), 0))
        m.d.sync += self.full.eq(will.bit_select(half ^ self.release, 1))

        index = Signal(range(edge), reset_less=True)
        m.d.sync += index.eq(self.index)
        words = []
        for bank in range(edge):
            m.submodules[f"bank_{bank}"] = bank_memory = memory.Memory(
                shape=signed(WEIGHT.width), depth=2 * edge, init=[], attrs={"ram_style": "distributed"}
            )
            fill, read = bank_memory.write_port(), bank_memory.read_port()
            address = Signal(range(2 * edge), reset_less=True)
            place_in_half = Mux(self.by_column, (bank - self.index)[: ceil_log2(edge)], self.index)
            m.d.sync += address.eq(Cat(place_in_half, half))
            m.d.comb += [
                fill.en.eq(write.enable[bank]),
                fill.addr.eq(Cat(write.row, write.half)),
                fill.data.eq(write.w[bank]),
                read.addr.eq(address),
            ]
            words.append(read.data)
        back = _rotate(m, words, delay(m, index, 1), left=False)
        m.d.comb += [ours.eq(theirs) for ours, theirs in zip(self.w, back)]
        return m
