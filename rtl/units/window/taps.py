"""From the pixels of steps to windows: delay line, taps, masks.

::

    pixel --> register --+--> column --> taps, a column a step --> masks --> window
                         |      ^
                         +--> delay line: the rows above
    tags of a step ---------------------------------------------------------> tags
"""

from dataclasses import dataclass

from amaranth.hdl import Mux, Signal
from amaranth.lib import data
from amaranth.lib.memory import Memory

__all__ = ["make_windows"]


@dataclass(frozen=True)
class _Step:
    """A step, a cycle later: its pixel, where that goes, and its tags, here and a cycle later still."""

    pixel: Signal
    address: Signal
    tags: list[Signal]
    valid: Signal


def make_windows(m, unit, counts, run, go, o_valid):
    """Shifts the pixels of steps into taps, and puts out the windows that steps complete."""
    stepped = _tag(m, unit, counts, run, go)
    column = _delay_line(m, unit, counts, run, go, stepped)
    taps, valid2 = _shift(m, unit, go, column, stepped)
    _mask(m, unit, go, taps, stepped.tags[1], valid2, o_valid)


def _tags_layout(unit):
    """Tags of a step, for the window that it completes."""
    k = unit.max_kernel
    return data.StructLayout(
        {"emit": 1, "first": 1, "last": 1, "first_channel": 1, "last_channel": 1, "end": 1, "rows": k, "cols": k}
    )


def _tag(m, unit, counts, run, go):
    """Registers the pixel of a step, its address and its window's tags.

    The window is the one that the step completes.
    """
    tags = [Signal(_tags_layout(unit), name=f"tags{n}") for n in (1, 2)]
    valid1 = Signal()
    pixel = Signal(unit.shape, reset_less=True)
    addr1 = Signal(range(unit.max_width))
    with m.If(go):
        m.d.sync += valid1.eq(counts.step)
    with m.If(counts.step):
        m.d.sync += [
            pixel.eq(unit.i.payload),
            addr1.eq(counts.pixels.i_col),
            tags[0].emit.eq(counts.windows.emit),
            tags[0].first.eq(counts.windows.first),
            tags[0].last.eq(counts.windows.last),
            tags[0].first_channel.eq(counts.windows.first_channel),
            tags[0].last_channel.eq(~counts.windows.o_channel.any()),
            tags[0].end.eq(counts.windows.o_last),
            tags[0].rows.eq(counts.windows.row_mask & run.row_used),
            tags[0].cols.eq(counts.windows.col_mask & run.col_used),
        ]
    return _Step(pixel=pixel, address=addr1, tags=tags, valid=valid1)


def _delay_line(m, unit, counts, run, go, stepped):
    """Column of the newest pixel and those above it.

    The pixels move up a row as they are written back.
    """
    k = unit.max_kernel
    # A word is the column of the k - 1 rows above; any order of addresses will do.
    lines = data.ArrayLayout(unit.shape, k - 1)
    m.submodules.lines = memory = Memory(shape=lines, depth=unit.max_width, init=[])
    read = memory.read_port()
    write = memory.write_port()
    m.d.comb += [read.addr.eq(counts.pixels.i_col), read.en.eq(counts.step)]
    # The newest pixel enters at the kernel's last row, so that row 0 is on top whatever its height.
    column = [Mux(run.row_used[n + 1], read.data[n], stepped.pixel) if n < k - 1 else stepped.pixel for n in range(k)]
    m.d.comb += [write.addr.eq(stepped.address), write.en.eq(stepped.valid & go)]
    m.d.comb += [write.data[n].eq(column[n + 1]) for n in range(k - 1)]
    return column


def _shift(m, unit, go, column, stepped):
    """Shifts a column into the taps, and the tags along with it."""
    k = unit.max_kernel
    taps = [[Signal(unit.shape, name=f"tap{y}_{x}", reset_less=True) for x in range(k)] for y in range(k)]
    valid2 = Signal()
    with m.If(go):
        m.d.sync += valid2.eq(stepped.valid)
    with m.If(go & stepped.valid):
        m.d.sync += stepped.tags[1].eq(stepped.tags[0])
        for y in range(k):
            m.d.sync += taps[y][k - 1].eq(column[y])
            m.d.sync += [taps[y][x].eq(taps[y][x + 1]) for x in range(k - 1)]
    return taps, valid2


def _mask(m, unit, go, taps, tags, valid2, o_valid):
    """Puts out the taps.

    Taps that are no pixels of the window are 0.
    """
    k = unit.max_kernel
    # Masks go to the reset pins of the output registers: no LUT a bit.
    window = [Signal(unit.shape, name=f"window{n}", reset_less=True) for n in range(k * k)]
    out = Signal(_tags_layout(unit))
    with m.If(go):
        m.d.sync += [o_valid.eq(valid2 & tags.emit), out.eq(tags)]
        for y in range(k):
            for x in range(k):
                m.d.sync += window[y * k + x].eq(Mux(tags.rows[y] & tags.cols[x], taps[y][x], 0))
    m.d.comb += [
        unit.o.valid.eq(o_valid),
        *(unit.o.payload.p[n].eq(word) for n, word in enumerate(window)),
        *(unit.o.payload[name].eq(out[name]) for name in ("first", "last", "first_channel", "last_channel", "end")),
    ]
