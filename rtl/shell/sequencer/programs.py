"""Which program the sequencer runs, and how far it has come."""

from dataclasses import dataclass

from amaranth.hdl import Const, Mux, Signal, Value
from amaranth.utils import exact_log2

from ..faults import Faults
from ..signature import COMMAND_BYTES
from .dispatch import Dispatch
from .fetch import Fetch
from .requests import Requests
from .scheduler import Scheduler
from .watch import Watch

__all__ = ["ChosenProgram", "Flow", "SequencerParts", "choose_program", "new_flow"]


@dataclass(frozen=True)
class SequencerParts:
    """The components that the sequencer joins."""

    scheduler: Scheduler
    fetch: Fetch
    dispatch: Dispatch
    watch: Watch
    faults: Faults


@dataclass(frozen=True)
class Flow:
    """Registers and strobes that say how far a program has come; see :func:`new_flow` for each one."""

    run: Signal
    fresh: Signal
    stops_bus: Signal
    main: Signal
    leaving: Signal
    open: Signal
    serve: Signal
    begun: Signal
    drop: Signal
    stopping: Signal
    told: Signal
    accepted: Signal


@dataclass(frozen=True)
class ChosenProgram:
    """The program that runs, or will.

    ``pending``, ``serving``: a request waits, runs. ``origin``, ``commands``: the program's offset and length.
    ``first_offset``, ``first_index``, ``first_left``: offset and index of its next command, and the commands left.
    """

    pending: Value
    serving: Value
    origin: Value
    commands: Value
    first_offset: Value
    first_index: Value
    first_left: Value


def new_flow():
    """Registers and strobes that say how far a program has come."""
    run = Signal()  # state RUN, in a register of its own: commands may be fetched, dispatched and started
    fresh = Signal(init=1)  # queues, tokens and fetch start anew
    stops_bus = Signal()  # the bus starts anew
    main = Signal()  # the program's bell has rung and it has not ended
    leaving = Signal()  # the program has met a YIELD and a request is pending
    open_ = Signal()  # bells are heard
    serve, begun, drop = Signal(), Signal(), Signal()  # strobes to the requests
    stopping = Signal()  # the host's reset came while no command could be blamed
    told = Signal()  # the interrupt of an error has been given
    accepted = Signal()  # the program's bell rings and is heard
    return Flow(
        run=run,
        fresh=fresh,
        stops_bus=stops_bus,
        main=main,
        leaving=leaving,
        open=open_,
        serve=serve,
        begun=begun,
        drop=drop,
        stopping=stopping,
        told=told,
        accepted=accepted,
    )


def choose_program(m, sequencer, parts, flow):
    """Offset, length and remainder of the program that runs.

    The remainder is the part behind a YIELD.
    """
    if not sequencer.requests:
        origin, commands = sequencer.program_offset, sequencer.program_commands
        return ChosenProgram(
            pending=Const(0, 1),
            serving=Const(0, 1),
            origin=origin,
            commands=commands,
            first_offset=origin,
            first_index=Const(0, 24),
            first_left=commands,
        )
    dispatch = parts.dispatch
    m.submodules.requests = requests = Requests()
    pending, serving = requests.pending, requests.serving
    place = Signal(24)  # commands of the program that are done
    with m.If(dispatch.leave):
        m.d.sync += [place.eq(dispatch.index + 1), flow.leaving.eq(1)]
    with m.If(sequencer.cleared):
        m.d.sync += place.eq(0)
    origin = Mux(serving, sequencer.request_offset, sequencer.program_offset)
    commands = Mux(serving, sequencer.request_commands, sequencer.program_commands)
    first_index = Mux(serving, 0, place)
    m.d.comb += [
        requests.bell.eq(sequencer.request_bell),
        requests.open.eq(flow.open),
        requests.serve.eq(flow.serve),
        requests.begun.eq(flow.begun),
        requests.end.eq(sequencer.irq_request),
        requests.fail.eq(sequencer.irq_error),
        requests.drop.eq(flow.drop),
        dispatch.interrupted.eq(pending & flow.main & ~serving),
        sequencer.request_busy.eq(requests.busy),
        sequencer.request_running.eq(serving),
        sequencer.request_done.eq(requests.done),
        sequencer.request_error.eq(requests.error),
        sequencer.refused.eq(requests.refused),
        sequencer.request_waited.eq(requests.waited),
        sequencer.request_cycles.eq(requests.cycles),
    ]
    return ChosenProgram(
        pending=pending,
        serving=serving,
        origin=origin,
        commands=commands,
        first_index=first_index,
        first_offset=(origin + (first_index << exact_log2(COMMAND_BYTES)))[:32],
        first_left=(commands - first_index)[:24],
    )
