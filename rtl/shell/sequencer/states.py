"""The states from a program's bell to its interrupt.

::

    IDLE --> SUM --> COMPARE --> BEGIN --> RUN --> FLUSH --> FINISH --> IDLE, or SUM of the next program
      |                            |        |        |
      v                            +--------+--------+--> BLAME --> DRAIN --> IDLE
    RESET --> IDLE
"""

from amaranth.hdl import Cat, Mux, Signal
from amaranth.utils import exact_log2

from ..registers.errors import Error
from ..signature import COMMAND_BYTES

__all__ = ["report_state", "run_programs"]

_ABORT_CYCLES = 4
#: States in which queues, tokens and fetch start anew; in which engines do; in which the bus does.
_FRESH = ("IDLE", "RESET", "SUM", "COMPARE", "BEGIN", "DRAIN", "FINISH")
_ENGINES_STOP = ("RESET", "SUM", "COMPARE", "BEGIN", "DRAIN")
_BUS_STOPS = ("RESET", "DRAIN", "FLUSH")


def run_programs(m, sequencer, parts, flow, program, start):
    """The states from bell to interrupt; gives the state machine."""
    wait = Signal(range(_ABORT_CYCLES))
    flushing = Signal()  # the last cycle's state was FLUSH
    m.d.sync += flushing.eq(0)
    # A burst that the bus held back at a program's end is forgotten with ``fresh``, and must not be asked for
    # before.
    # mutant bus-goes-on: m.d.comb += sequencer.bus_abort.eq(flow.stops_bus)
    m.d.comb += sequencer.bus_abort.eq(flow.stops_bus | flushing)
    m.d.comb += flow.accepted.eq(sequencer.bell & flow.open & ~flow.main)
    with m.FSM() as state:
        with m.State("IDLE"):
            m.d.comb += parts.faults.clear.eq(1)
            # What rang before a reset is stopped by it, even if it has not started.
            m.d.sync += [
                wait.eq(0),
                flow.told.eq(0),
                flow.stopping.eq((flow.stopping | sequencer.reset) & program.pending),
            ]
            with m.If(program.pending):
                m.d.comb += flow.serve.eq(1)
                _enter(m, sequencer, flow, "SUM")
            with m.Elif(sequencer.reset):
                _enter(m, sequencer, flow, "RESET")
            with m.Elif(flow.accepted | flow.main):
                _enter(m, sequencer, flow, "SUM")
        with m.State("RESET"):
            # Nothing runs: only the engines are reset.
            m.d.sync += wait.eq(wait + 1)
            with m.If((wait == _ABORT_CYCLES - 1) & sequencer.bus_idle):
                _enter(m, sequencer, flow, "IDLE")
        _check_and_begin(m, sequencer, parts, flow, program, start)
        with m.State("RUN"):
            with m.If(parts.faults.fault | parts.dispatch.ended | flow.leaving):
                m.d.sync += flow.run.eq(0)
            with m.If(parts.faults.fault):
                _enter(m, sequencer, flow, "BLAME")
            with m.Elif(parts.dispatch.ended | flow.leaving):
                _enter(m, sequencer, flow, "FLUSH")
        _end_by_error(m, sequencer, parts, flow, program, start.address, wait)
        _end(m, sequencer, parts, flow, program, flushing)
    return state


def _enter(m, sequencer, flow, state):
    """Enters the next state; signals of it that reach far are registers."""
    m.next = state
    m.d.sync += [
        flow.fresh.eq(state in _FRESH),
        sequencer.abort.eq(state in _ENGINES_STOP),
        flow.stops_bus.eq(state in _BUS_STOPS),
    ]


def _check_and_begin(m, sequencer, parts, flow, program, start):
    """States that check where a program lies.

    Commands of the last program in the engines' queues are discarded: the queues are reset meanwhile.
    """
    with m.State("SUM"):
        m.d.comb += parts.watch.rewind.eq(1)
        m.d.sync += [
            start.end.eq(program.origin + (program.commands << exact_log2(COMMAND_BYTES))),
            start.empty.eq(program.commands == 0),
            start.refuse_base.eq(sequencer.base[:12].any()),
            start.refuse_align.eq(program.origin[:5].any()),
        ]
        _enter(m, sequencer, flow, "COMPARE")
    with m.State("COMPARE"):
        m.d.comb += parts.watch.rewind.eq(1)
        # mutant window-wraps: m.d.sync += start.refuse_window.eq(start.end[:32] > sequencer.size)
        m.d.sync += start.refuse_window.eq(start.end > sequencer.size)
        _enter(m, sequencer, flow, "BEGIN")
    with m.State("BEGIN"):
        m.d.comb += [parts.watch.rewind.eq(1), parts.faults.start.eq(1)]
        with m.If(start.refuse_base):
            m.d.comb += start.code.eq(Error.BASE_ALIGNMENT)
        with m.Elif(start.empty):
            m.d.comb += start.code.eq(Error.PROGRAM_LENGTH)
        with m.Elif(start.refuse_align):
            m.d.comb += start.code.eq(Error.PROGRAM_ALIGNMENT)
        with m.Elif(start.refuse_window):
            m.d.comb += start.code.eq(Error.PROGRAM_WINDOW)
        with m.If(start.code.any()):
            _enter(m, sequencer, flow, "BLAME")
        with m.Else():
            m.d.comb += flow.begun.eq(1)
            m.d.sync += flow.run.eq(1)
            _enter(m, sequencer, flow, "RUN")


def _end_by_error(m, sequencer, parts, flow, program, address, wait):
    """States from a fault to the interrupt of an error."""
    faults, watch = parts.faults, parts.watch
    with m.State("BLAME"):
        # What is done has to leave the queues first, or the wrong command would be named. Behind an END none is
        # left there, and the bus's reset goes on.
        with m.If(parts.scheduler.settled):
            m.d.sync += [
                sequencer.error_code.eq(faults.code),
                sequencer.error_command.eq(faults.command),
                sequencer.error_request.eq(program.serving),
                sequencer.error_address.eq(Mux(faults.located, address, 0)),
            ]
            m.d.comb += watch.rewind.eq(1)
            _enter(m, sequencer, flow, "DRAIN")
    with m.State("DRAIN"):
        with m.If(wait != _ABORT_CYCLES - 1):
            m.d.sync += wait.eq(wait + 1)
        with m.Elif(sequencer.bus_idle):
            m.d.comb += [sequencer.irq_error.eq(~flow.told), flow.drop.eq(1)]
            m.d.sync += [flow.main.eq(0), flow.leaving.eq(0)]
            _enter(m, sequencer, flow, "IDLE")
        with m.If(watch.expired & ~flow.told):
            m.d.comb += sequencer.irq_error.eq(1)
            m.d.sync += flow.told.eq(1)


def _end(m, sequencer, parts, flow, program, flushing):
    """States from END or YIELD to the interrupt or the next program.

    YIELD leads here only for a request.
    """
    with m.State("FLUSH"):
        m.d.comb += parts.faults.flush.eq(1)
        m.d.sync += flushing.eq(1)
        with m.If(sequencer.bus_idle):
            _enter(m, sequencer, flow, "FINISH")
        with m.If(parts.watch.expired):
            _enter(m, sequencer, flow, "BLAME")
    with m.State("FINISH"):
        with m.If(flow.leaving):
            m.d.comb += flow.serve.eq(1)
            m.d.sync += flow.leaving.eq(0)
            _enter(m, sequencer, flow, "SUM")
        with m.Elif(program.serving):
            m.d.comb += sequencer.irq_request.eq(1)
            _enter(m, sequencer, flow, "IDLE")
            with m.If(flow.main | flow.accepted):
                _enter(m, sequencer, flow, "SUM")
        with m.Else():
            m.d.comb += sequencer.irq_done.eq(1)
            m.d.sync += flow.main.eq(0)
            _enter(m, sequencer, flow, "IDLE")


def report_state(m, sequencer, parts, flow, state):
    """Signals of STATUS and of the counters."""
    with m.If(flow.accepted):
        m.d.comb += sequencer.cleared.eq(1)
        m.d.sync += [
            flow.main.eq(1),
            sequencer.done.eq(0),
            sequencer.error.eq(0),
            sequencer.error_code.eq(0),
            sequencer.error_command.eq(0),
            sequencer.error_request.eq(0),
            sequencer.error_address.eq(0),
        ]
    with m.If(sequencer.irq_done):
        m.d.sync += sequencer.done.eq(1)
    with m.If(sequencer.irq_error):
        m.d.sync += sequencer.error.eq(sequencer.error | flow.main)
    stopped = Cat(state.ongoing(name) for name in ("RESET", "BLAME", "DRAIN")).any()
    m.d.comb += flow.open.eq(~stopped & ~(state.ongoing("IDLE") & sequencer.reset))
    with m.If(sequencer.reset & ~state.ongoing("IDLE") & ~stopped):
        m.d.sync += flow.stopping.eq(1)
    m.d.comb += [
        sequencer.busy.eq(flow.main | stopped),
        sequencer.draining.eq(state.ongoing("DRAIN")),
        sequencer.counting.eq(flow.main & ~flow.told),
        sequencer.finished.eq(parts.scheduler.finished & sequencer.counting),
    ]
