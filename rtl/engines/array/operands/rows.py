"""Operands, tags and loads of weights, which enter the array from the left.

::

    code books --> level --+
                           v
    passes, dense --> control of row 0 --+--> row feeder 0 --> array's row 0
                                         |         | a cycle later
    scales, by groups of rows -----------+         v
                                         +--> row feeder 1 --> ...
    passes, dense, convolution --> tags and loads ----^

A peek reads dense memory by the same control, and its word comes out of the row's feeder.
"""

from amaranth.hdl import Cat, Mux, Signal
from amaranth.lib import data, memory
from amaranth.utils import ceil_log2

from gradloom.rtl.formats.codebook import INT8_HIGH, INT8_LOW, NF4
from gradloom.rtl.formats.images import LEVEL, SCALE
from gradloom.rtl.hierarchy import place
from gradloom.rtl.stream.delay import delay
from gradloom.rtl.systolic.pe import tag_layout

from ..control.passes import LEVELS
from ..parameters import EDGE
from .feeder import RowControl, RowFeeder

__all__ = ["feed_rows", "peek"]


def feed_rows(m, platform, ports, parts):
    """Feeds the array's rows: operands, tags and the loads of weights.

    Returns the word of dense memory that each row has read: row n's is n cycles later than row 0's.
    """
    config = ports.config
    level = _look_up(m, ports, parts.passes)
    control = _control_rows(m, config, ports, parts.passes, parts.dense, level)
    scales = _store_scales(m, config, ports, parts.passes)
    edge = _tag_operands(m, config, parts.passes, parts.convolve, parts.dense)
    return _place_rows(m, platform, ports, parts, control, scales, edge)


def _look_up(m, ports, passes):
    """Holds the levels of the code books, and reads the level for row 0.

    Row 0 scales this level.
    """
    # Levels of four books, those of 8-bit codes at the end; the level goes with the control, so rows hold no books.
    initial = [[int(v) for v in book.level_table(LEVEL.frac)] for book in (NF4, NF4, INT8_HIGH, INT8_LOW)]
    m.submodules.books = books = memory.Memory(
        shape=data.ArrayLayout(LEVEL.shape, 8),
        depth=8,
        init=[levels[at : at + 8] for levels in initial for at in (0, 8)],
    )
    book_write, book_read = books.write_port(), books.read_port(domain="comb")
    m.d.comb += [
        book_write.en.eq(ports.books.valid & (ports.books.beat < 8)),
        book_write.addr.eq(ports.books.beat),
        *(book_write.data[n].eq(ports.books.data[16 * n : 16 * n + LEVEL.width].as_signed()) for n in range(8)),
        book_read.addr.eq(Cat(passes.feed.level[3], passes.feed.book)),
    ]
    return book_read.data[passes.feed.level[:3]]


def _control_rows(m, config, ports, passes, dense, level):
    """Registers the control of row 0, from passes and from dense commands.

    A dense layer and a peek share the dense memory and this control.
    """
    control = Signal(RowControl(config))
    feed = passes.feed
    m.d.comb += ports.peek_grant.eq(~dense.beat.valid)
    m.d.sync += [
        control.fill.eq(feed.fill),
        control.fill_table.eq(feed.fill_table),
        control.k.eq(feed.level),
        control.level.eq(level),
        control.fresh.eq(feed.fill & (feed.level == 0)),
        control.read.eq(feed.read),
        control.table.eq(feed.table),
        control.word.eq(feed.word),
        control.group.eq(feed.group),
        control.dense.eq(dense.beat.valid),
        control.peek.eq(ports.peek.valid & ports.peek_grant),
        control.address.eq(Mux(dense.beat.valid, dense.beat.address, ports.peek.address)),
    ]
    return control


def _store_scales(m, config, ports, passes):
    """Holds the scales of blocks, and returns each memory's read data."""
    feed = passes.feed
    # A row keeps a block's scale while it fills a table, so one memory serves as many rows as a table has entries:
    # it reads for a row as the control comes there.
    scales = []
    for first in range(0, config.rows, LEVELS):
        m.submodules[f"scales_{first}"] = store = memory.Memory(
            shape=SCALE.shape, depth=2 * config.blocks * LEVELS, init=[], attrs={"ram_style": "block"}
        )
        write, read = store.write_port(), store.read_port()
        m.d.comb += [
            write.en.eq(ports.scales.valid & (ports.scales.row >> ceil_log2(LEVELS) == first // LEVELS)),
            write.addr.eq(Cat(ports.scales.address, ports.scales.row[: ceil_log2(LEVELS)])),
            write.data.eq(ports.scales.data),
            read.addr.eq(delay(m, Cat(feed.scale, feed.level), first)),
        ]
        scales.append(read.data)
    return scales


def _tag_operands(m, config, passes, convolve, dense):
    """Makes row 0's tags and loads, due when its operand arrives.

    A load is of a streamed weight or of a weight that stays.
    """
    rows = config.rows
    streams = (passes.beat.valid & ~passes.beat.backward) | dense.beat.valid
    first = Mux(dense.beat.valid, dense.beat.first, passes.beat.first)
    stays = (passes.beat.valid & passes.beat.backward) | convolve.window.valid
    swap_stays = Mux(convolve.window.valid, convolve.window.swap, passes.beat.first)
    tag = Signal(tag_layout)
    m.d.comb += [
        tag.swap.eq(streams | (stays & swap_stays)),
        tag.use_m.eq(streams | stays),
        tag.from_above.eq(stays),
        tag.from_self.eq(~stays & ~(streams & first)),
    ]
    edge = Signal(data.StructLayout({"tag": tag_layout, "load": 1, "load_row": 1, "row": ceil_log2(rows), "pair": 1}))
    loading = passes.weight.valid | convolve.weight.valid
    m.d.comb += [
        edge.tag.eq(delay(m, tag, EDGE, reset_less=False)),
        # The last row adds a gradient's sum of the low nibbles to that of the high ones.
        edge.pair.eq(delay(m, passes.beat.valid & passes.beat.backward & passes.beat.low, EDGE, reset_less=False)),
        edge.load.eq(delay(m, streams, EDGE - 1, reset_less=False)),
        edge.load_row.eq(delay(m, loading, EDGE - 1, reset_less=False)),
        edge.row.eq(delay(m, Mux(passes.weight.valid, passes.weight.row, convolve.weight.row), EDGE - 1)),
    ]
    return edge


def _place_rows(m, platform, ports, parts, control, scales, edge):
    """Places one feeder for each row.

    Control and tags pass from row to row, a cycle each.
    """
    config, array, convolve, dense_write = ports.config, parts.array, parts.convolve, parts.finish.dense
    rows = config.rows
    peeked = []
    for index in range(rows):
        row = place(m, f"row_{index}", RowFeeder(config), platform)
        m.d.comb += [
            row.control.eq(control),
            row.codes.valid.eq(ports.codes.valid & (ports.codes.row == index)),
            row.codes.address.eq(ports.codes.address),
            row.codes.data.eq(ports.codes.data),
            row.scale.eq(scales[index // LEVELS]),
            row.dense_write.valid.eq(dense_write.valid & (dense_write.row == index)),
            row.dense_write.address.eq(dense_write.address),
            row.dense_write.data.eq(dense_write.data),
            *(ours.eq(theirs) for ours, theirs in zip(array.x[index], row.x)),
            array.tag[index].eq(edge.tag),
            array.tag[index].load.eq(edge.load | (edge.load_row & (edge.row == index))),
        ]
        if index < convolve.windows:
            window = Mux(convolve.window.valid, convolve.window.p[index], 0)
            m.d.comb += row.window.eq(delay(m, window, EDGE - 1 + index))
        peeked.append(row.dense)
        if index == rows - 1:
            m.d.comb += array.tag[index].from_self.eq(edge.tag.from_self | edge.pair)
        else:
            control = row.control_o
            edge = delay(m, edge, 1, reset_less=False)
    return peeked


def peek(m, ports, peeked):
    """Reads a dense word of one row.

    Each row's word is as many cycles later as the row is further down.
    """
    rows = ports.config.rows
    due = ports.peek.valid & ports.peek_grant
    row = Signal.like(ports.peek.row)
    with m.If(due):
        m.d.sync += row.eq(ports.peek.row)
    arrived = Signal(rows)
    base = delay(m, due, RowFeeder.latency, reset_less=False)
    m.d.comb += arrived[0].eq(base)
    m.d.sync += arrived[1:].eq(arrived[:-1])
    # One row's word is let through, the rest is zero: an OR in two steps.
    groups = []
    for at in range(0, rows, 5):
        group = Signal(ports.config.activation.width, reset_less=True)
        hit = Signal()
        terms = [Mux(row == n, peeked[n].as_unsigned(), 0) for n in range(at, min(at + 5, rows))]
        flags = [arrived[n] & (row == n) for n in range(at, min(at + 5, rows))]
        value, flag = terms[0], flags[0]
        for more, other in zip(terms[1:], flags[1:]):
            value, flag = value | more, flag | other
        m.d.sync += [group.eq(value), hit.eq(flag)]
        groups.append((group, hit))
    value, flag = groups[0]
    for more, other in groups[1:]:
        value, flag = value | more, flag | other
    m.d.sync += [ports.peek_data.eq(value), ports.peek_arrives.eq(flag)]
