"""Runs programs, from bell to interrupt."""

from types import SimpleNamespace

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import exact_log2

from .bus.axi import check_data_bits
from .bus.read_dma import FetchBeat, FetchRequest
from .bus.window import absolute
from .dispatch import Dispatch
from .faults import Faults
from .fetch import Fetch
from .registers.errors import Error
from .requests import Requests
from .scheduler import Scheduler
from .signature import COMMAND_BYTES, EngineSignature, Trace
from .watch import Watch

__all__ = ["Sequencer"]

_ABORT_CYCLES = 4
#: States in which queues, tokens and fetch start anew; in which engines do; in which the bus does.
_FRESH = ("IDLE", "RESET", "SUM", "COMPARE", "BEGIN", "DRAIN", "FINISH")
_ENGINES_STOP = ("RESET", "SUM", "COMPARE", "BEGIN", "DRAIN")
_BUS_STOPS = ("RESET", "DRAIN", "FLUSH")


class Sequencer(wiring.Component):
    """Executes a program from memory, from bell to interrupt.

    Without predicate a command is dispatched every 4 cycles (128-bit bus) while its engine's queue has room;
    a predicate adds ``10 + words`` cycles (:class:`~gradloom.rtl.shell.valid.ValidBits`). Commands are
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

    def __init__(self, engines, *, data_bits=128, slots=16384, depth=16, requests=False, forwards=0):
        check_data_bits(data_bits)
        self.engines = engines
        self.data_bits = data_bits
        self.requests = requests
        self._scheduler = Scheduler(engines, depth=depth, forwards=forwards)
        self._fetch = Fetch(data_bits=data_bits)
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
        parts = SimpleNamespace(scheduler=sched, fetch=fetch, dispatch=dispatch, watch=watch, faults=faults)

        flow = self._flow()
        program = self._choose_program(m, parts, flow)
        self._connect_dispatch(m, parts, flow, program)
        start = self._connect_faults(m, parts, flow, program)
        state = self._run_programs(m, parts, flow, program, start)
        self._report(m, parts, flow, state)
        self._connect_engines(m, sched)
        return m

    @staticmethod
    def _flow():
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
        return SimpleNamespace(
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

    def _choose_program(self, m, parts, flow):
        """Offset, length and remainder of the program that runs.

        The remainder is the part behind a YIELD.
        """
        if not self.requests:
            origin, commands = self.program_offset, self.program_commands
            return SimpleNamespace(
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
        with m.If(self.cleared):
            m.d.sync += place.eq(0)
        origin = Mux(serving, self.request_offset, self.program_offset)
        commands = Mux(serving, self.request_commands, self.program_commands)
        first_index = Mux(serving, 0, place)
        m.d.comb += [
            requests.bell.eq(self.request_bell),
            requests.open.eq(flow.open),
            requests.serve.eq(flow.serve),
            requests.begun.eq(flow.begun),
            requests.end.eq(self.irq_request),
            requests.fail.eq(self.irq_error),
            requests.drop.eq(flow.drop),
            dispatch.interrupted.eq(pending & flow.main & ~serving),
            self.request_busy.eq(requests.busy),
            self.request_running.eq(serving),
            self.request_done.eq(requests.done),
            self.request_error.eq(requests.error),
            self.refused.eq(requests.refused),
            self.request_waited.eq(requests.waited),
            self.request_cycles.eq(requests.cycles),
        ]
        return SimpleNamespace(
            pending=pending,
            serving=serving,
            origin=origin,
            commands=commands,
            first_index=first_index,
            first_offset=(origin + (first_index << exact_log2(COMMAND_BYTES)))[:32],
            first_left=(commands - first_index)[:24],
        )

    def _connect_dispatch(self, m, parts, flow, program):
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
            dispatch.cache_clear.eq(self.cache_clear),
            sched.clear.eq(flow.fresh),
            # mutant never-held: sched.hold.eq(0),
            sched.hold.eq(parts.faults.fault | ~flow.run),
            sched.forget.eq(dispatch.forget),
            sched.control_request.eq(dispatch.control_request),
            sched.control_wait.eq(dispatch.control_wait),
            sched.control_post.eq(dispatch.control_post),
            sched.control_done.eq(dispatch.control_done),
            dispatch.control_grant.eq(sched.control_grant),
            self.dropped.eq(dispatch.dropped),
            self.looked_up.eq(dispatch.looked_up),
            self.hits.eq(dispatch.hits),
            self.misses.eq(dispatch.misses),
        ]
        connect(m, fetch.o_fetch, flipped(self.o_fetch))
        connect(m, flipped(self.i_fetch), fetch.i_fetch)
        connect(m, fetch.o, dispatch.i)
        connect(m, dispatch.o, sched.i)

    def _connect_faults(self, m, parts, flow, program):
        """Connects all that can end a program to one place.

        Returns the result of the checks before its start.
        """
        dispatch, sched, watch, faults = parts.dispatch, parts.scheduler, parts.watch, parts.faults
        refuse_base, refuse_align, refuse_window = Signal(), Signal(), Signal()
        bad_start = Signal(8)
        end = Signal(34)
        empty = Signal()
        m.d.comb += [
            watch.watchdog.eq(self.watchdog),
            watch.moved.eq(sched.finished | self.beat | dispatch.progress),
            watch.stuck.eq(flow.run & dispatch.blocked & ~sched.running),
            faults.run.eq(flow.run),
            faults.load_offset.eq(self.load_offset),
            faults.store_offset.eq(self.store_offset),
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
            faults.reset.eq(self.reset | flow.stopping),
            faults.start_code.eq(bad_start),
            faults.start_located.eq(~empty | refuse_base),
            faults.start_offset.eq(Mux(refuse_base, 0, program.origin)),
        ]
        for e in self.engines.queued:
            error = self.engine(e).error
            m.d.comb += [faults.failed[e].eq(error.valid), faults.codes[e].eq(error.code)]
        # A base that is not a multiple of 4096 is an error of its own, and then the offset is 0.
        address = absolute(self.base, faults.offset) | Mux(refuse_base, self.base[:12], 0)
        return SimpleNamespace(
            refuse_base=refuse_base,
            refuse_align=refuse_align,
            refuse_window=refuse_window,
            code=bad_start,
            end=end,
            empty=empty,
            address=address,
        )

    def _enter(self, m, flow, state):
        """The next state; what it tells to many is in registers."""
        m.next = state
        m.d.sync += [
            flow.fresh.eq(state in _FRESH),
            self.abort.eq(state in _ENGINES_STOP),
            flow.stops_bus.eq(state in _BUS_STOPS),
        ]

    def _run_programs(self, m, parts, flow, program, start):
        """The states from bell to interrupt; gives the state machine."""
        wait = Signal(range(_ABORT_CYCLES))
        flushing = Signal()  # the last cycle's state was FLUSH
        m.d.sync += flushing.eq(0)
        # A burst that the bus held back at a program's end is forgotten with ``fresh``, and must not be asked for
        # before.
        # mutant bus-goes-on: m.d.comb += self.bus_abort.eq(flow.stops_bus)
        m.d.comb += self.bus_abort.eq(flow.stops_bus | flushing)
        m.d.comb += flow.accepted.eq(self.bell & flow.open & ~flow.main)
        with m.FSM() as state:
            with m.State("IDLE"):
                m.d.comb += parts.faults.clear.eq(1)
                # What rang before a reset is stopped by it, even if it has not started.
                m.d.sync += [
                    wait.eq(0),
                    flow.told.eq(0),
                    flow.stopping.eq((flow.stopping | self.reset) & program.pending),
                ]
                with m.If(program.pending):
                    m.d.comb += flow.serve.eq(1)
                    self._enter(m, flow, "SUM")
                with m.Elif(self.reset):
                    self._enter(m, flow, "RESET")
                with m.Elif(flow.accepted | flow.main):
                    self._enter(m, flow, "SUM")
            with m.State("RESET"):
                # Nothing runs: only the engines are reset.
                m.d.sync += wait.eq(wait + 1)
                with m.If((wait == _ABORT_CYCLES - 1) & self.bus_idle):
                    self._enter(m, flow, "IDLE")
            self._check_and_begin(m, parts, flow, program, start)
            with m.State("RUN"):
                with m.If(parts.faults.fault | parts.dispatch.ended | flow.leaving):
                    m.d.sync += flow.run.eq(0)
                with m.If(parts.faults.fault):
                    self._enter(m, flow, "BLAME")
                with m.Elif(parts.dispatch.ended | flow.leaving):
                    self._enter(m, flow, "FLUSH")
            self._end_by_error(m, parts, flow, program, start.address, wait, flushing)
            self._end(m, parts, flow, program, flushing)
        return state

    def _check_and_begin(self, m, parts, flow, program, start):
        """States that check where a program lies.

        Commands of the last program in the engines' queues are discarded: the queues are reset meanwhile.
        """
        with m.State("SUM"):
            m.d.comb += parts.watch.rewind.eq(1)
            m.d.sync += [
                start.end.eq(program.origin + (program.commands << exact_log2(COMMAND_BYTES))),
                start.empty.eq(program.commands == 0),
                start.refuse_base.eq(self.base[:12].any()),
                start.refuse_align.eq(program.origin[:5].any()),
            ]
            self._enter(m, flow, "COMPARE")
        with m.State("COMPARE"):
            m.d.comb += parts.watch.rewind.eq(1)
            # mutant window-wraps: m.d.sync += start.refuse_window.eq(start.end[:32] > self.size)
            m.d.sync += start.refuse_window.eq(start.end > self.size)
            self._enter(m, flow, "BEGIN")
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
                self._enter(m, flow, "BLAME")
            with m.Else():
                m.d.comb += flow.begun.eq(1)
                m.d.sync += flow.run.eq(1)
                self._enter(m, flow, "RUN")

    def _end_by_error(self, m, parts, flow, program, address, wait, flushing):
        """States from a fault to the interrupt of an error."""
        faults, watch = parts.faults, parts.watch
        with m.State("BLAME"):
            # What is done has to leave the queues first, or the wrong command would be named. Behind an END none is
            # left there, and the bus's reset goes on.
            with m.If(parts.scheduler.settled):
                m.d.sync += [
                    self.error_code.eq(faults.code),
                    self.error_command.eq(faults.command),
                    self.error_request.eq(program.serving),
                    self.error_address.eq(Mux(faults.located, address, 0)),
                ]
                m.d.comb += watch.rewind.eq(1)
                self._enter(m, flow, "DRAIN")
        with m.State("DRAIN"):
            with m.If(wait != _ABORT_CYCLES - 1):
                m.d.sync += wait.eq(wait + 1)
            with m.Elif(self.bus_idle):
                m.d.comb += [self.irq_error.eq(~flow.told), flow.drop.eq(1)]
                m.d.sync += [flow.main.eq(0), flow.leaving.eq(0)]
                self._enter(m, flow, "IDLE")
            with m.If(watch.expired & ~flow.told):
                m.d.comb += self.irq_error.eq(1)
                m.d.sync += flow.told.eq(1)

    def _end(self, m, parts, flow, program, flushing):
        """States from END or YIELD to the interrupt or the next program.

        YIELD leads here only for a request.
        """
        with m.State("FLUSH"):
            m.d.comb += parts.faults.flush.eq(1)
            m.d.sync += flushing.eq(1)
            with m.If(self.bus_idle):
                self._enter(m, flow, "FINISH")
            with m.If(parts.watch.expired):
                self._enter(m, flow, "BLAME")
        with m.State("FINISH"):
            with m.If(flow.leaving):
                m.d.comb += flow.serve.eq(1)
                m.d.sync += flow.leaving.eq(0)
                self._enter(m, flow, "SUM")
            with m.Elif(program.serving):
                m.d.comb += self.irq_request.eq(1)
                self._enter(m, flow, "IDLE")
                with m.If(flow.main | flow.accepted):
                    self._enter(m, flow, "SUM")
            with m.Else():
                m.d.comb += self.irq_done.eq(1)
                m.d.sync += flow.main.eq(0)
                self._enter(m, flow, "IDLE")

    def _report(self, m, parts, flow, state):
        """Signals of STATUS and of the counters."""
        with m.If(flow.accepted):
            m.d.comb += self.cleared.eq(1)
            m.d.sync += [
                flow.main.eq(1),
                self.done.eq(0),
                self.error.eq(0),
                self.error_code.eq(0),
                self.error_command.eq(0),
                self.error_request.eq(0),
                self.error_address.eq(0),
            ]
        with m.If(self.irq_done):
            m.d.sync += self.done.eq(1)
        with m.If(self.irq_error):
            m.d.sync += self.error.eq(self.error | flow.main)
        stopped = Cat(state.ongoing(name) for name in ("RESET", "BLAME", "DRAIN")).any()
        m.d.comb += flow.open.eq(~stopped & ~(state.ongoing("IDLE") & self.reset))
        with m.If(self.reset & ~state.ongoing("IDLE") & ~stopped):
            m.d.sync += flow.stopping.eq(1)
        m.d.comb += [
            self.busy.eq(flow.main | stopped),
            self.draining.eq(state.ongoing("DRAIN")),
            self.counting.eq(flow.main & ~flow.told),
            self.finished.eq(parts.scheduler.finished & self.counting),
        ]

    def _connect_engines(self, m, sched):
        """Connects commands to the engines.

        A command that ends while a fault is being located still counts.
        """
        for e in self.engines.queued:
            inner, outer = sched.engine(e), self.engine(e)
            m.d.comb += [
                outer.command.payload.eq(inner.command.payload),
                outer.command.valid.eq(inner.command.valid),
                inner.command.ready.eq(outer.command.ready),
                inner.done.eq(outer.done),
            ]
            m.d.sync += [
                self.trace.started[e].eq(outer.command.valid & outer.command.ready),
                self.trace.done[e].eq(outer.done),
            ]
        m.d.sync += [self.trace.started[0].eq(sched.control_grant), self.trace.done[0].eq(sched.control_done)]

        # A cycle counts for the first of the engines that execute a command, and waits if none does.
        m.d.sync += self.phase.eq(0)
        for e in reversed(self.engines.by_urgency):
            with m.If(sched.executing[e]):
                m.d.sync += self.phase.eq(e.phase_base + (sched.phases[e] if len(e.spec.phases) > 1 else 0))
