"""Delay lines."""

from amaranth.hdl import Signal, Value

__all__ = ["delay", "held", "registered"]


def delay(m, value, cycles, *, reset_less=True):
    """``value``, ``cycles`` cycles later.

    Data lines have no reset, so that synthesis may use shift-register LUTs; a control line asks for one.
    """
    shape = value.shape() if hasattr(value, "shape") else Value.cast(value).shape()
    for _ in range(cycles):
        later = Signal(shape, reset_less=reset_less)
        m.d.sync += later.eq(value)
        value = later
    return value


def registered(m, value, shape=None):
    """``value`` a cycle later, in ``shape`` if one is given.

    The register has no reset, as is usual for data.
    """
    q = Signal(value.shape() if shape is None else shape, reset_less=True)
    m.d.sync += q.eq(value)
    return q


def held(m, value, enable):
    """``value`` as it was when ``enable`` was last 1, a cycle later.

    The register and all behind it are still while nothing comes. It has no reset.
    """
    q = Signal(value.shape(), reset_less=True)
    with m.If(enable):
        m.d.sync += q.eq(value)
    return q
