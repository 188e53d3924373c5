"""Runs programs, from bell to interrupt."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..bus.axi import BURST_BEATS, check_data_bits
from ..bus.read_dma import FetchBeat, FetchRequest
from ..faults import Faults
from ..signature import EngineSignature, Trace
from .dispatch import Dispatch
from .fetch import Fetch
from .joints import connect_dispatch, connect_engines, connect_faults
from .programs import SequencerParts, choose_program, new_flow
from .scheduler import Scheduler
from .states import report_state, run_programs
from .watch import Watch

__all__ = ["Sequencer"]


class Sequencer(wiring.Component):
    """Executes a program from memory, from bell to interrupt.

    Without predicate a command is dispatched every 4 cycles (128-bit bus) while its engine's queue has room;
    a predicate adds ``10 + words`` cycles (:class:`~gradloom.rtl.shell.sequencer.valid.ValidBits`). Commands are
    dispatched in program order; a full queue or a CONTROL command that waits holds back those behind it.
    CONTROL commands are executed when dispatched.

    Any error ends the program: ``abort`` is high until the bus has drained and for at least 4 cycles, then
    ``irq_error`` pulses. If the bus does not drain within the watchdog's time, ``irq_error`` pulses
    nevertheless, and ``busy`` and ``draining`` stay until it does.

    With ``requests``, a second program, the request, runs where the first one lets it: at a YIELD, which waits until
    everything before it is done and makes all tokens zero, or where no program runs. A request runs from its first
    command to its END, between which YIELD only waits; then the program goes on behind its YIELD, and the next request
    is served at the next one. So a request waits for the commands up to a YIELD at most, and the program for a request
    between two of them. A request takes the bus's round trip twice and 10 cycles in addition to its own. A
    program whose bell rings while a request runs alone starts behind it. An error stops both: a request
    that is pending or runs then ends with it.

    Parameters
    ----------
    engines : :class:`~.engines.Engines`
        Of the machine.
    data_bits : :class:`int`
        Bus width: 64, 128 or 256.
    slots : :class:`int`
        Valid bits.
    depth : :class:`int`
        Commands of an engine that are queued or under way.
    requests : :class:`bool`
        Without them YIELD is unknown and everything called ``request`` idle.
    forwards : :class:`int`
        1: STORE has the operands of forwards.
    longest : :class:`int`
        Beats of a whole burst.

    Members
    -------
    bell, reset, cache_clear, request_bell : ``In(1)``
        Pulses: start, stop, clear valid bits, queue the request.
    base, size, watchdog
        As the registers of these names; still while ``busy`` or ``request_busy``.
    program_offset, program_commands
        The same; still while ``busy``.
    request_offset, request_commands
        The same; still while ``request_busy``.
    o_fetch, i_fetch : streams of ``FetchRequest``, ``FetchBeat(data_bits)``
        To and from :class:`~gradloom.rtl.shell.bus.read_dma.ReadDMA`.
    engine_load, ... : ``Out(EngineSignature())``
    load_offset, store_offset : ``In(32)``
        Offset at fault, with the error of LOAD and STORE.
    beat : ``In(1)``
        A beat moved on the bus.
    bus_idle : ``In(1)``, bus_abort : ``Out(1)``
        To the DMA: see there. Also high at the end of a program, for commands fetched, or still to be fetched, beyond
        its END or YIELD.
    abort : ``Out(1)``
        Resets the engines' datapaths; also for 3 cycles before a program or a request begins, or goes on behind one.
    busy, draining, done, error, request_busy, request_running, request_done, request_error, refused : ``Out(1)``
        As in STATUS.
    irq_done, irq_error, irq_request : ``Out(1)``
        Pulses.
    error_code, error_command, error_address : ``Out``
        As the registers of these names.
    error_request : ``Out(1)``
        ``error_command`` is one of the request.
    request_waited, request_cycles : ``Out(32)``
        As the registers of these names.
    counting, cleared : ``Out(1)``
        A cycle between the program's bell and its interrupt; a pulse at the bell.
    phase : ``Out(4)``
        Phase that this cycle counts to.
    finished, dropped : ``Out(1)``
        Pulses: a command was done, was dropped.
    looked_up : ``Out(1)``, hits, misses : ``Out(32)``
        Pulse, and what LOOKUP found.
    trace : ``Out(Trace)``
        Starts and ends of commands, 1 cycle late.
    """

    def __init__(
        self, engines, *, data_bits=128, slots=16384, depth=16, requests=False, forwards=0, longest=BURST_BEATS
    ):
        check_data_bits(data_bits)
        self.engines = engines
        self.data_bits = data_bits
        self.requests = requests
        self._scheduler = Scheduler(engines, depth=depth, forwards=forwards)
        self._fetch = Fetch(data_bits=data_bits, longest=longest)
        self._dispatch = Dispatch(data_bits=data_bits, slots=slots, requests=requests, engines=len(engines))
        self._watch = Watch()
        self._faults = Faults(engines)
        super().__init__(
            {
                "bell": In(1),
                "reset": In(1),
                "cache_clear": In(1),
                "request_bell": In(1),
                "base": In(64),
                "size": In(32),
                "program_offset": In(32),
                "program_commands": In(24),
                "request_offset": In(32),
                "request_commands": In(24),
                "watchdog": In(32),
                "o_fetch": Out(stream.Signature(FetchRequest)),
                "i_fetch": In(stream.Signature(FetchBeat(data_bits))),
                **{f"engine_{e.name}": Out(EngineSignature()) for e in engines.queued},
                "load_offset": In(32),
                "store_offset": In(32),
                "beat": In(1),
                "bus_idle": In(1),
                "bus_abort": Out(1),
                "abort": Out(1),
                "busy": Out(1),
                "draining": Out(1),
                "done": Out(1),
                "error": Out(1),
                "request_busy": Out(1),
                "request_running": Out(1),
                "request_done": Out(1),
                "request_error": Out(1),
                "refused": Out(1),
                "irq_done": Out(1),
                "irq_error": Out(1),
                "irq_request": Out(1),
                "request_waited": Out(32),
                "request_cycles": Out(32),
                "error_code": Out(8),
                "error_command": Out(24),
                "error_request": Out(1),
                "error_address": Out(64),
                "counting": Out(1),
                "cleared": Out(1),
                "phase": Out(4),
                "finished": Out(1),
                "dropped": Out(1),
                "looked_up": Out(1),
                "hits": Out(32),
                "misses": Out(32),
                "trace": Out(Trace),
            }
        )

    def engine(self, e):
        """Port of engine ``e``."""
        return getattr(self, f"engine_{e.name}")

    def elaborate(self, platform):
        m = Module()
        m.submodules.scheduler = sched = self._scheduler
        m.submodules.fetch = fetch = self._fetch
        m.submodules.dispatch = dispatch = self._dispatch
        m.submodules.watch = watch = self._watch
        m.submodules.faults = faults = self._faults
        parts = SequencerParts(scheduler=sched, fetch=fetch, dispatch=dispatch, watch=watch, faults=faults)

        flow = new_flow()
        program = choose_program(m, self, parts, flow)
        connect_dispatch(m, self, parts, flow, program)
        start = connect_faults(m, self, parts, flow, program)
        state = run_programs(m, self, parts, flow, program, start)
        report_state(m, self, parts, flow, state)
        connect_engines(m, self, sched)
        return m
