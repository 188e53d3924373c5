"""Sums that leave the array: of windows, of forward passes and of dense layers.

::

    array --> align --+--> accumulate --> finish --> feature maps, dense memory
                      |                     ^
                      +--> hidden --> h     | dense layers, a row a cycle
                            ^               |
                            +--- drain -----+
"""

from dataclasses import dataclass

from amaranth.hdl import Signal
from amaranth.lib import data

from ...hierarchy import place
from ...stream.delay import delay
from .feet import Accumulate, DrainToken, Hidden, SumsToken
from .parameters import EDGE

__all__ = ["drain_sums"]


@dataclass(frozen=True)
class _Drained:
    """The row of sums that leaves: whether one does, of which command and of which sample it is."""

    active: Signal
    token: data.View
    sample: Signal


def drain_sums(m, platform, ports, parts, dispatched):
    """Takes the sums that leave the array to their feet.

    Returns ``saturated`` of the feet, to be added up.
    """
    _align(m, parts)
    m.d.comb += parts.finish.bias_write.eq(ports.biases)
    accumulate = _accumulate(m, platform, ports.config, parts)
    drained = _drain(m, ports.config, parts)
    hidden = _hide(m, platform, ports, parts, drained)
    _finish(m, parts, drained, hidden, accumulate, dispatched)
    return hidden.saturated + parts.finish.saturated


def _align(m, parts):
    """Aligns the sums of a beat, which leave column by column.

    Each column's sum leaves one cycle after its neighbour's.
    """
    m.d.comb += [ours.eq(theirs) for ours, theirs in zip(parts.align.p, parts.array.p)]


def _accumulate(m, platform, config, parts):
    """Adds up the sums of windows, with a token beside them.

    The token has the same latency as the sums and says which window they belong to.
    """
    convolve = parts.convolve
    accumulate = place(m, "accumulate", Accumulate(config), platform)
    to_feet = EDGE + parts.array.latency + config.rank - 1
    token = Signal(SumsToken(config))
    m.d.comb += [
        token.valid.eq(convolve.window.valid),
        token.first.eq(convolve.sums.first),
        token.last.eq(convolve.sums.last),
        token.position.eq(convolve.sums.position),
    ]
    m.d.comb += [
        accumulate.ahead.eq(delay(m, token, to_feet - accumulate.ahead_cycles, reset_less=False)),
        *(ours.eq(theirs) for ours, theirs in zip(accumulate.sums, parts.align.o)),
    ]
    return accumulate


def _drain(m, config, parts):
    """Drains the sums that the array holds, a row a cycle.

    A token says to which command they belong.
    """
    array, passes, dense = parts.array, parts.passes, parts.dense
    drain = Signal(DrainToken(config))
    m.d.comb += [
        drain.valid.eq(passes.drain.valid | dense.drain),
        drain.hidden.eq(passes.drain.valid),
        drain.tap.eq(passes.drain.tap),
        drain.samples.eq(passes.drain.samples),
    ]
    at_edge = delay(m, drain, EDGE, reset_less=False)
    m.d.comb += array.drain.eq(at_edge.valid)
    leaving = delay(m, at_edge, array.drain_latency + config.rank - 2, reset_less=False)
    out_token = Signal(DrainToken(config))
    draining = Signal()
    sample = Signal(range(config.rows))
    with m.If(leaving.valid):
        m.d.sync += [out_token.eq(leaving), draining.eq(1), sample.eq(config.rows - 1)]
    with m.Elif(draining):
        m.d.sync += sample.eq(sample - 1)
        with m.If(sample == 0):
            m.d.sync += draining.eq(0)
    return _Drained(active=draining, token=out_token, sample=sample)


def _hide(m, platform, ports, parts, drained):
    """Makes h from the sums of a forward pass."""
    hidden = place(m, "hidden", Hidden(ports.config), platform)
    m.d.comb += [
        *(ours.eq(theirs) for ours, theirs in zip(hidden.sums, parts.align.o)),
        hidden.valid.eq(drained.active & drained.token.hidden),
        hidden.sample.eq(drained.sample),
        hidden.token.eq(drained.token),
        ports.h.eq(hidden.h),
    ]
    return hidden


def _finish(m, parts, drained, hidden, accumulate, dispatched):
    """Gives the feet the sums of windows and of dense layers.

    Also reports when a forward pass is done.
    """
    finish = parts.finish
    dense_leaves = drained.active & ~drained.token.hidden
    m.d.comb += [accumulate.alone.eq(dense_leaves), finish.sums.eq(accumulate.o)]
    m.d.comb += dispatched.drained.eq(
        delay(m, hidden.valid & (drained.sample == 0), hidden.latency + 1, reset_less=False)
    )
