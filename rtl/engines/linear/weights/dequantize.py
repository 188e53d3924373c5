"""Converts tiles of packed codes or of dense words to words of the array.

::

    tiles --> take --+--> scale of a row: map[code] * scale2 + offset --+
                     |                                                  v
                     +--> codes --> turn --> level of each bank ----> product --+--> words, each for its bank
                     +--> dense words --> turn ---------------------------------+
"""

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2, exact_log2

from gradloom.rtl.formats.weights.linear import LEVEL, SCALE, SCALE_GUARD, SCALE_MAX, level_table, map_table
from gradloom.rtl.stream.delay import delay, held
from gradloom.rtl.stream.queue import stepped

from ..commands import TILE_ARG, TileKind
from .dense import DenseWords
from .rotate import rotate, turns
from .tile_buffer import BankWords

__all__ = ["Dequantizer", "TileBeat"]

#: Cycles from a beat to the sum of its row's scale; to its codes, turned; to its banks; to its words.
_SUMMED, _TURNED, _BANKED, _WORDS = 5, 6, 7, 9


@dataclass(frozen=True)
class _Taken:
    """The tag of the beat that is taken in this cycle; a cycle later its row's scale codes, and block of scales."""

    tag: data.View
    codes: Signal
    block: Signal


def TileBeat(config):
    """A beat of tiles; ``first`` and ``last`` of its command."""
    return data.StructLayout({"data": config.data_bits, "first": 1, "last": 1, "arg": TILE_ARG})


class Dequantizer(wiring.Component):
    """Decodes tiles: a row of codes or a beat of dense words a cycle.

    Each word leaves for the bank that keeps it.

    A tile of codes is two beats of scale codes and ``edge`` beats of a row's codes each, the first element in the
    high nibble of the first byte. Row n's scale is ``map[code] * scale2[block // 256] + offset`` with block =
    ``arg.block + n * arg.blocks_per_row``, clipped to +-SCALE_MAX; a weight is level times scale, rounded half
    up. Tiles of one command follow each other along a row of the tensor; with panels of several tiles, along as many
    rows at once, a tile of each in turn.

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
    taken : the last row of a tile was taken ``latency - ahead`` cycles ago, if ``ahead`` is given.
    """

    latency = _WORDS

    def __init__(self, config, ahead=None):
        self.config = config
        self.ahead = ahead
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
                **({} if ahead is None else {"taken": Out(1)}),
            }
        )

    def elaborate(self, platform):
        m = Module()
        taken = _take(m, self)
        scale, tags = _scale_rows(m, self, taken)
        codes, dense = _turn(m, self, tags)
        _multiply(m, self, scale, codes, dense)
        words = tags[_WORDS]
        m.d.comb += [
            self.o.row.eq(words.row),
            self.o.half.eq(words.half),
            self.o.last.eq(words.last),
            self.o.enable.eq(_enables(m, self.config, tags[_BANKED])),
            *([] if self.ahead is None else [self.taken.eq(tags[self.latency - self.ahead].last)]),
        ]
        return m


def _take(m, unit):
    """Takes beats: the scales of a tile of codes, then its rows, or dense words."""
    config = unit.config
    edge = config.edge
    beat = unit.i.p
    is_dense, halves = Signal(), Signal()
    m.d.comb += [is_dense.eq(beat.arg.kind != TileKind.CODES), halves.eq(beat.arg.kind == TileKind.HALVES)]
    begun, filling = Signal(), Signal()
    scale_beats, row, part = Signal(range(3)), Signal(range(edge)), Signal(range(8))
    free_halves, half = Signal(2, init=2), Signal()
    taken, of_row, is_row, completes, row_ends, ends = (Signal() for _ in range(6))
    m.d.comb += [
        unit.i.ready.eq(~filling & (begun | (free_halves != 0))),
        taken.eq(unit.i.valid & unit.i.ready),
        of_row.eq(is_dense | (scale_beats == 2)),
        is_row.eq(taken & of_row),
        completes.eq(
            of_row
            & (~is_dense | Mux(halves, part == TileKind.HALVES.row_beats - 1, part == TileKind.WORDS.row_beats - 1))
        ),
        row_ends.eq(filling | (taken & completes)),
        ends.eq(row_ends & (row == edge - 1)),
    ]
    m.d.sync += free_halves.eq(stepped(free_halves, unit.free, taken & ~begun))
    with m.If(row_ends):
        m.d.sync += row.eq(row + 1)

    block, row_block = Signal(20), Signal(21)
    # Computed a cycle ahead: a tile takes several.
    next_block = Signal(20, reset_less=True)
    if config.span == 1:
        m.d.sync += next_block.eq(block + 1)
    else:
        # Of a panel's first tile, and a tile's number there. Behind a tile's last row ``row_block`` is the first block
        # of the row of tiles below. A cycle late: the second beat of scales is soon enough.
        first_block, number = Signal(20), Signal(range(config.span))
        closes, ended, opened = Signal(reset_less=True), Signal(), Signal()
        m.d.sync += [
            next_block.eq(first_block + 1),
            closes.eq(number == config.span - 1),
            ended.eq(ends),
            opened.eq(taken & ~begun),
        ]
        with m.If(ended):
            m.d.sync += [number.eq(Mux(closes, 0, number + 1)), block.eq(Mux(closes, next_block, row_block))]
        with m.If(taken & ~begun & beat.first):
            m.d.sync += number.eq(0)
        with m.If(opened & (number == 0)):
            m.d.sync += first_block.eq(block)
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
        m.d.sync += [begun.eq(0), filling.eq(0), scale_beats.eq(0), half.eq(~half)]
        if config.span == 1:
            m.d.sync += block.eq(next_block)

    no_block = row_block[8 + exact_log2(config.groups) :].any()
    # Of what is offered, whether or not it is taken: the way from there and back to LOAD is long.
    m.d.comb += unit.refuse.eq(
        (beat.arg.kind == 3)
        | (of_row & ~is_dense & no_block)
        | (beat.last & ~(completes & (is_dense | (row == edge - 1))))
    )

    tag = Signal(
        data.StructLayout(
            {"valid": 1, "is_codes": 1, "is_dense": 1, "halves": 1, "part": 3, "row": range(edge), "half": 1, "last": 1}
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
    return _Taken(tag=tag, codes=codes, block=row_block)


def _scale_rows(m, unit, taken):
    """Computes the scale of a row of codes, 0 for dense words; returns the tags of all stages, too."""
    m.submodules.map = table = memory.Memory(shape=signed(LEVEL.width), depth=256, init=[int(v) for v in map_table()])
    m.submodules.scales = scales = memory.Memory(shape=signed(SCALE.width), depth=unit.config.groups, init=[])
    map_port, scale_port, write = table.read_port(), scales.read_port(), scales.write_port()
    m.d.comb += [
        map_port.addr.eq(taken.codes[:8]),
        scale_port.addr.eq(taken.block[8:]),
        write.en.eq(unit.scale.valid),
        write.addr.eq(unit.scale.index),
        write.data.eq(unit.scale.value),
    ]
    value, second = Signal(signed(LEVEL.width), reset_less=True), Signal(signed(SCALE.width), reset_less=True)
    product = Signal(signed(LEVEL.width + SCALE.width), reset_less=True)
    rounded = Signal(signed(SCALE.width + 2), reset_less=True)
    total = Signal(signed(SCALE.width + 3), reset_less=True)
    scale, together = (Signal(signed(SCALE.width), reset_less=True, name=name) for name in ("scale", "together"))
    over = (total > SCALE_MAX) | (total < -SCALE_MAX)
    tags = [taken.tag]
    for _ in range(_WORDS):
        tags.append(delay(m, tags[-1], 1, reset_less=False))
    m.d.sync += [
        value.eq(map_port.data),
        second.eq(scale_port.data),
        product.eq(value * second),
        rounded.eq((product + (1 << (LEVEL.frac - 1))) >> LEVEL.frac),
        total.eq(rounded + unit.offset),
        scale.eq(Mux(over, Mux(total < 0, -SCALE_MAX, SCALE_MAX), total)),
        # Dense words are added to products, which are then 0.
        together.eq(Mux(tags[_TURNED].is_codes, scale, 0)),
        unit.saturated.eq(tags[_SUMMED].valid & tags[_SUMMED].is_codes & over),
    ]
    return together, tags


def _turn(m, unit, tags):
    """Turns codes while they are codes, and dense words, which are as many as a beat brings."""
    edge = unit.config.edge
    turning = _TURNED - turns(edge)
    # The bus has the beats of all engines.
    raw, turn = delay(m, held(m, unit.i.p.data, unit.i.valid), turning - 1), tags[turning]
    codes = rotate(m, [raw.word_select(lane ^ 1, 4) for lane in range(edge)], turn.row, left=True)
    # A rotation of a quarter of the lanes takes a cycle less.
    m.submodules.dense = dense = DenseWords(unit.config)
    m.d.comb += [
        dense.i.eq(raw),
        dense.halves.eq(turn.halves),
        dense.turn.eq(turn.row),
        dense.valid.eq(turn.valid & turn.is_dense),
    ]
    return codes, dense


def _multiply(m, unit, scale, codes, dense):
    """Multiplies the level of each bank's code by the scale, and adds the dense word."""
    down = LEVEL.frac + SCALE_GUARD
    half = Const(1 << (down - 1), down)
    for bank in range(unit.config.edge):
        m.submodules[f"levels_{bank}"] = levels = memory.Memory(
            shape=signed(LEVEL.width), depth=16, init=[int(v) for v in level_table()]
        )
        read, fill = levels.read_port(domain="comb"), levels.write_port()
        level = Signal(signed(LEVEL.width), reset_less=True)
        scaled = Signal(signed(LEVEL.width + SCALE.width), reset_less=True)
        word = Signal(signed(LEVEL.width + SCALE.width), reset_less=True)
        m.d.comb += [
            read.addr.eq(codes[bank]),
            fill.en.eq(unit.level.valid),
            fill.addr.eq(unit.level.index),
            fill.data.eq(unit.level.value),
            unit.o.w[bank].eq(word >> down),
        ]
        m.d.sync += [
            level.eq(read.data),
            scaled.eq(level * scale),
            word.eq(scaled + Cat(half, dense.o[bank % len(dense.o)]).as_signed()),
        ]


def _enables(m, config, tag):
    """Banks in which the words of ``tag`` are written, 2 cycles later.

    A beat's words lie in banks next to each other, from place ``row % lanes`` of one group of lanes to the
    place before in the next.
    """
    few = config.beat_words
    lanes = 2 * few
    low = exact_log2(few)
    # Groups of `few` banks: halves fill two at a time. Words come twice, so that there is one place of both.
    start = Signal(3)
    m.d.comb += start.eq(Mux(tag.halves, Cat(Const(0, 1), tag.part[:2] + tag.row[low + 1 :]), tag.part + tag.row[low:]))
    whole, width = ~tag.is_dense, Mux(tag.halves, 0b11, 0b01)
    here, there, behind = Signal(8), Signal(8), Signal(lanes)
    after = start + Mux(tag.halves, 2, 1)
    for signal, first in ((here, start), (there, after[:3])):
        m.d.sync += signal.eq(Mux(tag.valid, Mux(whole, 0xFF, width << first), 0))
    for lane in range(lanes):
        m.d.sync += behind[lane].eq(Mux(tag.halves, lane >= tag.row[: low + 1], lane % few >= tag.row[:low]))
    enable = Signal(config.edge)
    m.d.sync += enable.eq(
        Cat(Mux(behind[bank % lanes], here[bank // few], there[bank // few]) for bank in range(config.edge))
    )
    return enable
