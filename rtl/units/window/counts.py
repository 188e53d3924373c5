"""Counters of the window generator: where its run is, on both sides.

::

    prepared run --> control: IDLE, ARM, RUN
                        |
          +-------------+--------------+
          v                            v
      pixels: where the next       windows: which one this step
      one goes, if it is needed    completes, and whether it leaves

A counter ends at zero, or with its sign.
"""

from dataclasses import dataclass

from amaranth.hdl import Cat, Mux, Signal, signed

from .prepare import columns_width, rows_width

__all__ = ["PixelCounts", "RunCounts", "WindowCounts", "count_run"]


@dataclass(frozen=True)
class PixelCounts:
    """Where the next pixel goes.

    ``needed``: the step takes one. ``i_last``: it is the run's last; ``i_done``: that is in.
    """

    i_col: Signal
    i_width: Signal
    i_row: Signal
    i_height: Signal
    i_channel: Signal
    i_done: Signal
    needed: Signal
    i_last: Signal


@dataclass(frozen=True)
class WindowCounts:
    """The position of the window that this step completes.

    ``emit``: it leaves. ``first``, ``last``: of its channel. ``o_last``: of the run; ``o_done``: that has left.
    ``row_mask``, ``col_mask``: its rows and columns that are pixels.
    """

    warm: Signal
    live: Signal
    o_col: Signal
    o_cols: Signal
    o_row: Signal
    o_rows: Signal
    skip_w: Signal
    skip_h: Signal
    o_channel: Signal
    o_done: Signal
    row_mask: Signal
    col_mask: Signal
    row_ahead: Signal
    col_ahead: Signal
    first: Signal
    first_channel: Signal
    emit: Signal
    last: Signal
    o_last: Signal


@dataclass(frozen=True)
class RunCounts:
    """All counters, and the strobe ``step``, with which they move."""

    pixels: PixelCounts
    windows: WindowCounts
    step: Signal


def count_run(m, unit, run, next_run, take, go):
    """Takes a prepared run and counts it to its end; a step is taken where ``go`` lets it."""
    step = Signal()
    active = Signal()
    pixels = _count_pixels(m, unit, go, active, step)
    windows = _count_windows(m, unit, run)
    counts = RunCounts(pixels=pixels, windows=windows, step=step)
    _control(m, counts, run, next_run, take, go, active, step)
    with m.If(step):
        m.d.sync += [
            pixels.i_done.eq(pixels.i_done | pixels.i_last),
            windows.o_done.eq(windows.o_done | windows.o_last),
        ]
        _next_pixel(m, pixels, run)
        _next_window(m, windows, run)
    return counts


def _count_pixels(m, unit, go, active, step):
    """Declares the counters of pixels, and steps when the pixel is there or none is needed."""
    row_bits, col_bits = rows_width(unit), columns_width(unit)
    i_col = Signal(col_bits)
    i_width = Signal(signed(col_bits))
    i_row = Signal(row_bits)
    i_height = Signal(signed(row_bits))
    i_channel = Signal(range(unit.max_channels))
    i_done = Signal()
    needed = Signal()
    i_last = Signal()
    m.d.comb += [
        needed.eq(~i_width[-1] & ~i_height[-1] & ~i_done),
        i_last.eq(needed & ~i_width.any() & ~i_height.any() & ~i_channel.any()),
        step.eq(active & go & (unit.i.valid | ~needed)),
        unit.i.ready.eq(active & go & needed),
    ]
    return PixelCounts(
        i_col=i_col,
        i_width=i_width,
        i_row=i_row,
        i_height=i_height,
        i_channel=i_channel,
        i_done=i_done,
        needed=needed,
        i_last=i_last,
    )


def _count_windows(m, unit, run):
    """Declares the counters of windows, and says whether this step completes one."""
    k, row_bits, col_bits = unit.max_kernel, rows_width(unit), columns_width(unit)
    warm = Signal(range(k))
    live = Signal()
    o_col = Signal(col_bits)
    o_cols = Signal(signed(col_bits))
    o_row = Signal(row_bits)
    o_rows = Signal(signed(row_bits))
    skip_w = Signal(range(unit.max_stride))
    skip_h = Signal(range(unit.max_stride))
    o_channel = Signal(range(unit.max_channels))
    o_done = Signal()
    row_mask = Signal(k)
    col_mask = Signal(k)
    row_ahead = Signal(signed(row_bits))
    col_ahead = Signal(signed(col_bits))
    first = Signal()
    first_channel = Signal()
    emit = Signal()
    last = Signal()
    o_last = Signal()
    m.d.comb += [
        emit.eq(live & ~warm.any() & ~o_done & ~o_cols[-1] & ~o_rows[-1] & ~skip_w.any() & ~skip_h.any()),
        last.eq((o_cols.as_unsigned() < run.stride_w) & (o_rows.as_unsigned() < run.stride_h)),
        o_last.eq(emit & last & ~o_channel.any()),
    ]
    return WindowCounts(
        warm=warm,
        live=live,
        o_col=o_col,
        o_cols=o_cols,
        o_row=o_row,
        o_rows=o_rows,
        skip_w=skip_w,
        skip_h=skip_h,
        o_channel=o_channel,
        o_done=o_done,
        row_mask=row_mask,
        col_mask=col_mask,
        row_ahead=row_ahead,
        col_ahead=col_ahead,
        first=first,
        first_channel=first_channel,
        emit=emit,
        last=last,
        o_last=o_last,
    )


def _start_row(windows, run):
    """Statements that put the counters at the start of a row of windows."""
    return [
        windows.o_col.eq(run.pitch),
        windows.o_cols.eq(run.cols),
        windows.skip_w.eq(0),
        windows.col_mask.eq(run.col_mask),
        windows.col_ahead.eq(run.col_ahead),
    ]


def _start_channel(windows, run):
    """Statements that put the counters at the first row of a channel."""
    return [
        windows.o_rows.eq(run.rows),
        windows.skip_h.eq(0),
        windows.row_mask.eq(run.row_mask),
        windows.row_ahead.eq(run.row_ahead),
        windows.first.eq(1),
    ]


def _control(m, counts, run, next_run, take, go, active, step):
    """Takes a prepared run and sets the counters to its start.

    It is active until both sides of the run are done.
    """
    pixels, windows = counts.pixels, counts.windows
    with m.FSM(name="run"):
        with m.State("IDLE"):
            # Only as the pipeline moves: its first stage still uses the kernel's height.
            m.d.comb += take.eq(next_run.prepared & go)
            with m.If(take):
                m.d.sync += run.eq(next_run.ready)
                m.next = "ARM"
        with m.State("ARM"):
            m.d.sync += [
                pixels.i_col.eq(run.pitch),
                pixels.i_width.eq(run.width),
                pixels.i_row.eq(run.grid),
                pixels.i_height.eq(run.height),
                pixels.i_channel.eq(run.channels),
                pixels.i_done.eq(0),
                windows.warm.eq(run.warm),
                _start_row(windows, run),
                _start_channel(windows, run),
                windows.live.eq(~run.lead.any()),
                windows.o_row.eq(Mux(run.lead.any(), run.lead - 1, run.grid)),
                windows.o_channel.eq(run.channels),
                windows.first_channel.eq(1),
                windows.o_done.eq(0),
            ]
            m.next = "RUN"
        with m.State("RUN"):
            m.d.comb += active.eq(1)
            with m.If(step & (pixels.i_done | pixels.i_last) & (windows.o_done | windows.o_last)):
                m.next = "IDLE"


def _next_pixel(m, pixels, run):
    """Moves the counters of pixels by a step."""
    with m.If(pixels.i_col.any()):
        m.d.sync += [pixels.i_col.eq(pixels.i_col - 1), pixels.i_width.eq(pixels.i_width - 1)]
    with m.Else():
        m.d.sync += [pixels.i_col.eq(run.pitch), pixels.i_width.eq(run.width)]
        with m.If(pixels.i_row.any()):
            m.d.sync += [pixels.i_row.eq(pixels.i_row - 1), pixels.i_height.eq(pixels.i_height - 1)]
        with m.Else():
            m.d.sync += [
                pixels.i_row.eq(run.grid),
                pixels.i_height.eq(run.height),
                pixels.i_channel.eq(pixels.i_channel - 1),
            ]


def _next_window(m, windows, run):
    """Moves the counters of windows by a step."""
    with m.If(windows.warm.any()):
        m.d.sync += windows.warm.eq(windows.warm - 1)
    with m.Else():
        with m.If(windows.emit):
            m.d.sync += windows.first.eq(0)
        with m.If(windows.o_col.any()):
            m.d.sync += [
                windows.o_col.eq(windows.o_col - 1),
                windows.o_cols.eq(windows.o_cols - 1),
                windows.col_ahead.eq(windows.col_ahead - 1),
                windows.skip_w.eq(Mux(windows.skip_w.any(), windows.skip_w - 1, run.stride_w - 1)),
                windows.col_mask.eq(Cat(windows.col_mask[1:], ~windows.col_ahead[-1])),
            ]
        with m.Else():
            m.d.sync += _start_row(windows, run)
            with m.If(windows.o_row.any()):
                m.d.sync += [
                    windows.o_row.eq(windows.o_row - 1),
                    windows.o_rows.eq(windows.o_rows - 1),
                    windows.row_ahead.eq(windows.row_ahead - 1),
                    windows.skip_h.eq(Mux(windows.skip_h.any(), windows.skip_h - 1, run.stride_h - 1)),
                    windows.row_mask.eq(Cat(windows.row_mask[1:], ~windows.row_ahead[-1])),
                ]
            with m.Else():
                m.d.sync += [windows.o_row.eq(run.grid), windows.live.eq(1), _start_channel(windows, run)]
                with m.If(windows.live):
                    m.d.sync += [windows.o_channel.eq(windows.o_channel - 1), windows.first_channel.eq(0)]
