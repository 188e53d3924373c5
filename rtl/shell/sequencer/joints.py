"""Joins the sequencer's components with each other and with the engines.

::

    memory --> fetch --> dispatch --> scheduler --> engines
                            |  ^          |            |
                            |  +-- idle --+            |
                            v             v            v
    reset, checks of -----> faults <--- overflow     errors
    a start                   ^
                              +--- watch: nothing moved
"""

from dataclasses import dataclass

from amaranth.hdl import Mux, Signal, Value
from amaranth.lib.wiring import connect, flipped

from ..bus.window import absolute

__all__ = ["StartChecks", "connect_dispatch", "connect_engines", "connect_faults"]


@dataclass(frozen=True)
class StartChecks:
    """Checks before a program starts, and the ``address`` of a fault.

    ``end``: the offset behind the program. ``code``: the error that refuses it.
    """

    refuse_base: Signal
    refuse_align: Signal
    refuse_window: Signal
    code: Signal
    end: Signal
    empty: Signal
    address: Value


def connect_dispatch(m, sequencer, parts, flow, program):
    """From fetch to dispatch to the engines' queues."""
    fetch, dispatch, sched = parts.fetch, parts.dispatch, parts.scheduler
    m.d.comb += [
        fetch.fresh.eq(flow.fresh),
        fetch.run.eq(flow.run),
        fetch.offset.eq(program.first_offset),
        fetch.commands.eq(program.first_left),
        dispatch.run.eq(flow.run),
        dispatch.fresh.eq(flow.fresh),
        dispatch.first.eq(program.first_index),
        dispatch.commands.eq(program.first_left),
        dispatch.i_offset.eq(fetch.o_offset),
        dispatch.idle.eq(~sched.active & sched.settled & ~parts.faults.overflows),
        dispatch.cache_clear.eq(sequencer.cache_clear),
        sched.clear.eq(flow.fresh),
        # mutant never-held: sched.hold.eq(0),
        sched.hold.eq(parts.faults.fault | ~flow.run),
        sched.forget.eq(dispatch.forget),
        sched.control_request.eq(dispatch.control_request),
        sched.control_wait.eq(dispatch.control_wait),
        sched.control_post.eq(dispatch.control_post),
        sched.control_done.eq(dispatch.control_done),
        dispatch.control_grant.eq(sched.control_grant),
        sequencer.dropped.eq(dispatch.dropped),
        sequencer.looked_up.eq(dispatch.looked_up),
        sequencer.hits.eq(dispatch.hits),
        sequencer.misses.eq(dispatch.misses),
    ]
    connect(m, fetch.o_fetch, flipped(sequencer.o_fetch))
    connect(m, flipped(sequencer.i_fetch), fetch.i_fetch)
    connect(m, fetch.o, dispatch.i)
    connect(m, dispatch.o, sched.i)


def connect_faults(m, sequencer, parts, flow, program):
    """Connects all that can end a program to one place.

    Returns the result of the checks before its start.
    """
    dispatch, sched, watch, faults = parts.dispatch, parts.scheduler, parts.watch, parts.faults
    refuse_base, refuse_align, refuse_window = Signal(), Signal(), Signal()
    bad_start = Signal(8)
    end = Signal(34)
    empty = Signal()
    m.d.comb += [
        watch.watchdog.eq(sequencer.watchdog),
        watch.moved.eq(sched.finished | sequencer.beat | dispatch.progress),
        watch.stuck.eq(flow.run & dispatch.blocked & ~sched.running),
        faults.run.eq(flow.run),
        faults.load_offset.eq(sequencer.load_offset),
        faults.store_offset.eq(sequencer.store_offset),
        faults.stop.eq(dispatch.stop),
        faults.stop_code.eq(dispatch.stop_code),
        faults.stop_located.eq(dispatch.stop_located),
        faults.stop_offset.eq(dispatch.stop_offset),
        faults.index.eq(dispatch.index),
        faults.overflow.eq(sched.overflow),
        faults.posting.eq(sched.posting),
        faults.waiting.eq(sched.waiting),
        faults.indices.eq(sched.indices),
        faults.locked.eq(watch.locked),
        faults.expired.eq(watch.expired),
        faults.reset.eq(sequencer.reset | flow.stopping),
        faults.start_code.eq(bad_start),
        faults.start_located.eq(~empty | refuse_base),
        faults.start_offset.eq(Mux(refuse_base, 0, program.origin)),
    ]
    for e in sequencer.engines.queued:
        error = sequencer.engine(e).error
        m.d.comb += [faults.failed[e].eq(error.valid), faults.codes[e].eq(error.code)]
    # A base that is not a multiple of 4096 is an error of its own, and then the offset is 0.
    address = absolute(sequencer.base, faults.offset) | Mux(refuse_base, sequencer.base[:12], 0)
    return StartChecks(
        refuse_base=refuse_base,
        refuse_align=refuse_align,
        refuse_window=refuse_window,
        code=bad_start,
        end=end,
        empty=empty,
        address=address,
    )


def connect_engines(m, sequencer, sched):
    """Connects commands to the engines.

    A command that ends while a fault is being located still counts.
    """
    for e in sequencer.engines.queued:
        inner, outer = sched.engine(e), sequencer.engine(e)
        m.d.comb += [
            outer.command.payload.eq(inner.command.payload),
            outer.command.valid.eq(inner.command.valid),
            inner.command.ready.eq(outer.command.ready),
            inner.done.eq(outer.done),
        ]
        m.d.sync += [
            sequencer.trace.started[e].eq(outer.command.valid & outer.command.ready),
            sequencer.trace.done[e].eq(outer.done),
        ]
    m.d.sync += [sequencer.trace.started[0].eq(sched.control_grant), sequencer.trace.done[0].eq(sched.control_done)]

    # A cycle counts for the first of the engines that execute a command, and waits if none does.
    m.d.sync += sequencer.phase.eq(0)
    for e in reversed(sequencer.engines.by_urgency):
        with m.If(sched.executing[e]):
            m.d.sync += sequencer.phase.eq(e.phase_base + (sched.phases[e] if len(e.spec.phases) > 1 else 0))
