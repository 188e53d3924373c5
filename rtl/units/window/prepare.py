"""Derives the constants of a run of the window generator from its configuration."""

from dataclasses import dataclass

from amaranth.hdl import Cat, Mux, Signal, signed, unsigned
from amaranth.lib import data

__all__ = ["PreparedRun", "columns_width", "derived_layout", "prepare_run", "rows_width"]


@dataclass(frozen=True)
class PreparedRun:
    """The next run, by :func:`derived_layout`, and whether it is ``prepared``."""

    ready: data.View
    prepared: Signal


def rows_width(unit):
    """Bits of a counter of rows that may end below zero."""
    return (unit.max_height + unit.max_kernel).bit_length() + 1


def columns_width(unit):
    """Bits of a counter of columns that may end below zero."""
    return (unit.max_width + unit.max_kernel).bit_length() + 1


def derived_layout(unit):
    """Values that follow from a configuration.

    The start of a counter is kept as "count minus one", so that it ends at zero, or signed, so that its range
    ends with its sign.
    """
    k, row_bits, col_bits = unit.max_kernel, rows_width(unit), columns_width(unit)
    return data.StructLayout(
        {
            "height": row_bits,
            "width": col_bits,  # minus one
            "rows": row_bits,
            "cols": col_bits,  # minus one
            "pitch": col_bits,
            "grid": row_bits,  # minus one
            "row_ahead": signed(row_bits),
            "col_ahead": signed(col_bits),
            "row_mask": k,
            "col_mask": k,
            "row_used": k,
            "col_used": k,
            "lead": range(k),
            "warm": range(k),
            "channels": range(unit.max_channels),
            "stride_h": range(unit.max_stride + 1),
            "stride_w": range(unit.max_stride + 1),
        }
    )


def prepare_run(m, unit, take):
    """Derives values from a configuration, one small sum a cycle.

    The run before it is busy meanwhile.
    """
    k = unit.max_kernel
    asked = Signal(unit.config_layout)
    ready = Signal(derived_layout(unit))
    bottom = Signal(unsigned(rows_width(unit)))  # first row below the input, seen from the first window
    right = Signal(unsigned(columns_width(unit)))
    prepared = Signal()

    with m.FSM(name="prepare"):
        with m.State("EMPTY"):
            m.d.comb += unit.i_config.ready.eq(1)
            m.d.sync += asked.eq(unit.i_config.payload)
            with m.If(unit.i_config.valid):
                m.next = "MARGIN"
        with m.State("MARGIN"):
            m.d.sync += [
                bottom.eq(asked.height + asked.pad_top),
                right.eq(asked.width + asked.pad_left),
                ready.height.eq(asked.height - 1),
                ready.width.eq(asked.width - 1),
                ready.channels.eq(asked.channels - 1),
                ready.lead.eq(asked.kernel_h - 1 - asked.pad_top),
                ready.warm.eq(k - 1 - asked.pad_left),
                ready.stride_h.eq(asked.stride_h),
                ready.stride_w.eq(asked.stride_w),
                ready.row_used.eq(Cat(asked.kernel_h > n for n in range(k))),
                ready.col_used.eq(Cat(asked.kernel_w > n for n in range(k))),
            ]
            m.next = "EXTENT"
        with m.State("EXTENT"):
            m.d.sync += [
                ready.rows.eq(bottom + asked.pad_bottom - asked.kernel_h),
                ready.cols.eq(right + asked.pad_right - asked.kernel_w),
                ready.row_ahead.eq(bottom - (k + 1)),
                ready.col_ahead.eq(right - (k + 1)),
                ready.row_mask.eq(Cat((asked.pad_top <= n) & (bottom > n) for n in range(k))),
                ready.col_mask.eq(Cat((asked.pad_left <= n) & (right > n) for n in range(k))),
            ]
            m.next = "GRID"
        with m.State("GRID"):
            # A row of one step would read the delay line before its last write.
            m.d.sync += [
                ready.grid.eq(Mux(ready.rows > ready.height, ready.rows, ready.height)),
                ready.pitch.eq(
                    Mux(ready.cols > ready.width, ready.cols, ready.width) | ~(ready.cols.any() | ready.width.any())
                ),
            ]
            m.next = "READY"
        with m.State("READY"):
            m.d.comb += prepared.eq(1)
            with m.If(take):
                m.next = "EMPTY"
    return PreparedRun(ready=ready, prepared=prepared)
