"""Runs programs: fetches commands, decides on predicates, feeds the queues, stops at the first error."""

from amaranth.hdl import Cat, Const, Module, Mux, ResetInserter, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from ..memory.axi import BURST_BEATS, check_data_bits
from ..memory.read_dma import FetchBeat, FetchRequest
from ..memory.window import absolute, advance, burst_beats
from .errors import Error
from .scheduler import Scheduler
from .signature import (
    COMMAND_BYTES,
    ENGINES,
    Command,
    ControlOpcode,
    ControlOperands,
    Engine,
    EngineSignature,
    Trace,
)
from .valid import ValidBits

__all__ = ["Sequencer"]

_ABORT_CYCLES = 4
_DEADLOCK_CYCLES = 8


class Sequencer(wiring.Component):
    """Executes a program from memory, from bell to interrupt.

    Without predicate a command is dispatched every 4 cycles (128-bit bus) while its engine's queue has room;
    a predicate adds ``10 + words`` cycles (:class:`~gradloom.rtl.control.valid.ValidBits`). Commands are
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
    data_bits : :class:`int`
        Bus width: 64, 128 or 256.
    slots : :class:`int`
        Valid bits.
    depth : :class:`int`
        Commands of an engine that are queued or under way.
    requests : :class:`bool`
        Without them YIELD is unknown and everything called ``request`` idle.

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
        To and from :class:`~gradloom.rtl.memory.read_dma.ReadDMA`.
    engine_load, ... : ``Out(EngineSignature())``
    load_offset, store_offset : ``In(32)``
        Offset at fault, with the error of LOAD and STORE.
    beat : ``In(1)``
        A beat moved on the bus.
    bus_idle : ``In(1)``, bus_abort : ``Out(1)``
        To the DMA: see there. Also high at the end of a program, for commands fetched beyond its END.
    abort : ``Out(1)``
        Resets the engines' datapaths.
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
    phase : ``Out(3)``
        Phase that this cycle counts to.
    finished, dropped : ``Out(1)``
        Pulses: a command was done, was dropped.
    looked_up : ``Out(1)``, hits, misses : ``Out(32)``
        Pulse, and what LOOKUP found.
    trace : ``Out(Trace)``
        Starts and ends of commands, 1 cycle late.
    """

    def __init__(self, *, data_bits=128, slots=16384, depth=16, requests=False):
        check_data_bits(data_bits)
        self.data_bits = data_bits
        self.requests = requests
        self._scheduler = Scheduler(depth=depth)
        self._valid = ValidBits(slots=slots)
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
                **{f"engine_{e.name.lower()}": Out(EngineSignature()) for e in ENGINES},
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
                "phase": Out(3),
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
        return getattr(self, f"engine_{e.name.lower()}")

    def elaborate(self, platform):
        m = Module()
        m.submodules.scheduler = sched = self._scheduler
        m.submodules.valid = valid = self._valid

        run = Signal()  # state RUN, in a register of its own: commands may be fetched, dispatched and started
        fresh = Signal()  # queues, tokens and fetch start anew

        # ---- whose program runs, from where: its offset and length, and what remains of it
        main = Signal()  # the program's bell has rung and it has not ended
        wanted_request = Signal()  # a request is pending
        serving = Signal()  # a request runs
        leaving = Signal()  # the program has met a YIELD and a request is pending
        place = Signal(24)  # commands of the program that are done
        origin, commands = self.program_offset, self.program_commands
        first_offset, first_index, first_left = origin, Const(0, 24), commands
        if self.requests:
            origin = Mux(serving, self.request_offset, self.program_offset)
            commands = Mux(serving, self.request_commands, self.program_commands)
            first_index = Mux(serving, 0, place)
            first_offset = (origin + (first_index << exact_log2(COMMAND_BYTES)))[:32]
            first_left = (commands - first_index)[:24]

        # ---- fetch: bursts ahead, into a buffer of two bursts
        depth = 2 * BURST_BEATS
        parts = COMMAND_BYTES * 8 // self.data_bits
        m.submodules.fetched = fetched = ResetInserter(fresh)(SyncFIFO(width=self.data_bits + 2, depth=depth))
        next_offset, pop_offset = Signal(32), Signal(32)
        left = Signal(26)
        credit = Signal(range(depth + 1))
        # Of the next burst; a cycle behind ``next_offset`` and ``left``, which a plan leaves alone for two.
        length, final, room, some = Signal(5), Signal(), Signal(5), Signal()
        for register, value in zip(
            (length, final, room), burst_beats(next_offset, left, data_bits=self.data_bits)
        ):
            m.d.sync += register.eq(value)
        m.d.sync += some.eq(left.any())
        pop = Signal()
        plan = Signal()
        wanted = Signal()
        m.d.comb += [
            plan.eq(run & ~wanted & some & (credit >= BURST_BEATS)),
            self.o_fetch.valid.eq(wanted),
            self.i_fetch.ready.eq(1),
            fetched.w_en.eq(self.i_fetch.valid),
            fetched.w_data.eq(Cat(self.i_fetch.payload.data, self.i_fetch.payload.resp)),
            fetched.r_en.eq(pop),
        ]
        # The last burst of a program may be shorter than ``room``: nobody misses the credit.
        m.d.sync += credit.eq(credit + pop - Mux(plan, room, 0))
        with m.If(self.o_fetch.ready):
            m.d.sync += wanted.eq(0)
        with m.If(plan):
            m.d.sync += [
                wanted.eq(1),
                self.o_fetch.payload.offset.eq(next_offset),
                self.o_fetch.payload.beats.eq(length),
            ]
            m.d.sync += [
                next_offset.eq(advance(next_offset, data_bits=self.data_bits)),
                left.eq(Mux(final, 0, left - room)),
            ]
        with m.If(pop):
            m.d.sync += pop_offset.eq(pop_offset + self.data_bits // 8)
        with m.If(fresh):
            m.d.sync += [
                wanted.eq(0),
                next_offset.eq(first_offset),
                pop_offset.eq(first_offset),
                credit.eq(depth),
                left.eq(first_left * parts),
            ]

        # ---- faults: the first one counts
        fault = Signal()
        m.d.comb += [sched.clear.eq(fresh), sched.hold.eq(fault | ~run)]
        fault_code = Signal(8)
        fault_offset = Signal(32)
        fault_located = Signal()  # has an address
        fault_engine = Signal(len(Engine))
        stop = Signal()  # take ``fault`` from the dispatcher
        stop_code = Signal(8)
        stop_offset = Signal(32)
        stop_located = Signal()

        # ---- dispatch
        command = Signal(Command)
        index, remaining = Signal(24), Signal(24)
        part = Signal(range(max(parts, 2)))
        control = data.View(ControlOperands, command.args)
        is_control, known = Signal(), Signal()
        blocked = Signal()  # cannot go on before a command is done or a token is posted
        ended = Signal()
        progress = Signal()
        slot, count, mark = Signal(32), Signal(32), Signal()
        entry = sched.i.payload
        m.d.comb += [
            valid.slot.eq(slot),
            valid.count.eq(count),
            valid.mark.eq(mark),
            entry.engine.eq(command.engine),
            entry.wait.eq(command.wait),
            entry.post.eq(command.post),
            entry.phase.eq(command.phase),
            entry.index.eq(index),
            entry.command.opcode.eq(command.opcode),
            entry.command.args.eq(command.args),
            sched.control_wait.eq(command.wait),
            sched.control_post.eq(command.post),
        ]
        beat = data.View(FetchBeat(self.data_bits), fetched.r_data)
        idle = Signal()
        m.d.comb += idle.eq(~sched.active & sched.settled)

        with m.FSM(name="dispatch", init="HALT"):
            with m.State("HALT"):
                m.d.sync += [index.eq(first_index), remaining.eq(first_left), part.eq(0)]
                with m.If(run):
                    m.next = "COLLECT"
            with m.State("COLLECT"):
                with m.If(~run):
                    m.next = "HALT"
                with m.Elif(remaining == 0):
                    m.d.comb += [stop.eq(1), stop_code.eq(Error.PROGRAM_UNENDED)]
                    m.next = "STUCK"
                with m.Elif(fetched.r_rdy):
                    m.d.comb += pop.eq(1)
                    m.d.sync += [
                        command.as_value().eq(Cat(command.as_value(), beat.data)[self.data_bits :]),
                        part.eq(part + 1),
                    ]
                    with m.If(beat.resp[1]):
                        m.d.comb += [
                            stop.eq(1),
                            stop_located.eq(1),
                            stop_offset.eq(pop_offset),
                            stop_code.eq(Mux(beat.resp[0], Error.FETCH_DECERR, Error.FETCH_SLVERR)),
                        ]
                        m.next = "STUCK"
                    with m.Elif(part == parts - 1):
                        m.d.sync += part.eq(0)
                        m.next = "DECODE"
            with m.State("DECODE"):
                m.d.sync += [
                    is_control.eq(command.engine == Engine.CONTROL),
                    known.eq(command.engine < len(Engine)),
                    slot.eq(command.slot),
                    count.eq(command.count),
                    mark.eq(0),
                ]
                with m.If(command.predicated):
                    m.next = "ASK"
                with m.Else():
                    m.next = "DISPATCH"
            with m.State("ASK"):
                m.d.comb += valid.start.eq(~valid.busy)
                with m.If(~run):
                    m.next = "HALT"
                with m.Elif(~valid.busy):
                    m.next = "ANSWER"
            with m.State("ANSWER"):
                with m.If(~run):
                    m.next = "HALT"
                with m.Elif(valid.done):
                    with m.If(valid.outside):
                        m.d.comb += [stop.eq(1), stop_code.eq(Error.SLOT_RANGE)]
                        m.next = "STUCK"
                    with m.Elif(valid.complete):
                        m.d.comb += self.dropped.eq(1)
                        m.next = "NEXT"
                    with m.Else():
                        m.next = "DISPATCH"
            with m.State("DISPATCH"):
                with m.If(~run):
                    m.next = "HALT"
                with m.Elif(~known):
                    m.d.comb += [stop.eq(1), stop_code.eq(Error.UNKNOWN_ENGINE)]
                    m.next = "STUCK"
                with m.Elif(is_control):
                    m.d.comb += [sched.control_request.eq(1), blocked.eq(1)]
                    m.d.sync += [
                        slot.eq(control.slot),
                        count.eq(control.count),
                        mark.eq(command.opcode == ControlOpcode.MARK),
                    ]
                    with m.If(sched.control_grant):
                        m.next = "EXECUTE"
                with m.Else():
                    m.d.comb += [sched.i.valid.eq(1), blocked.eq(~sched.i.ready)]
                    with m.If(sched.i.ready):
                        # As NEXT, a cycle earlier.
                        m.d.comb += progress.eq(1)
                        m.d.sync += [index.eq(index + 1), remaining.eq(remaining - 1)]
                        m.next = "COLLECT"
            with m.State("EXECUTE"):
                with m.If(~run):
                    m.next = "HALT"
                with m.Else():
                    with m.Switch(command.opcode):
                        with m.Case(ControlOpcode.END):
                            m.d.comb += blocked.eq(~idle)
                            with m.If(idle):
                                m.d.comb += [sched.control_done.eq(1), ended.eq(1)]
                                m.next = "STUCK"
                        with m.Case(ControlOpcode.FENCE):
                            m.d.comb += blocked.eq(~idle)
                            with m.If(idle):
                                m.d.comb += sched.control_done.eq(1)
                                m.next = "POST"
                        if self.requests:
                            with m.Case(ControlOpcode.YIELD):
                                m.d.comb += blocked.eq(~idle)
                                with m.If(idle):
                                    m.d.comb += sched.control_done.eq(1)
                                    m.next = "YIELD"
                        with m.Case(ControlOpcode.MARK, ControlOpcode.LOOKUP):
                            m.d.comb += valid.start.eq(~valid.busy)
                            with m.If(~valid.busy):
                                m.next = "RANGE"
                        with m.Case(ControlOpcode.CLEAR):
                            m.d.comb += valid.clear.eq(1)
                            m.next = "CLEAR"
                        with m.Default():
                            m.d.comb += [stop.eq(1), stop_code.eq(Error.UNKNOWN_OPCODE)]
                            m.next = "STUCK"
            with m.State("RANGE"):
                with m.If(~run):
                    m.next = "HALT"
                with m.Elif(valid.done):
                    with m.If(valid.outside):
                        m.d.comb += [stop.eq(1), stop_code.eq(Error.SLOT_RANGE)]
                        m.next = "STUCK"
                    with m.Else():
                        m.d.comb += [sched.control_done.eq(1), self.looked_up.eq(~mark)]
                        m.next = "POST"
            with m.State("CLEAR"):
                with m.If(~run):
                    m.next = "HALT"
                with m.Elif(~valid.busy):
                    m.d.comb += sched.control_done.eq(1)
                    m.next = "POST"
            with m.State("POST"):
                # The scheduler reads the post mask in this cycle.
                m.next = "NEXT"
            with m.State("NEXT"):
                m.d.comb += progress.eq(1)
                m.d.sync += [index.eq(index + 1), remaining.eq(remaining - 1)]
                m.next = "COLLECT"
            if self.requests:
                with m.State("YIELD"):
                    # As POST, and its own post is forgotten with the others.
                    m.d.comb += sched.forget.eq(1)
                    m.next = "NEXT"
                    with m.If(wanted_request & main & ~serving):
                        m.next = "LEAVE"
                with m.State("LEAVE"):
                    m.d.comb += progress.eq(1)
                    m.d.sync += [place.eq(index + 1), leaving.eq(1)]
                    m.next = "STUCK"
            with m.State("STUCK"):
                with m.If(~run):
                    m.next = "HALT"
        m.d.comb += [self.hits.eq(valid.hits), self.misses.eq(count - valid.hits)]
        with m.If(self.cache_clear):
            m.d.comb += valid.clear.eq(1)

        # ---- watchdog and deadlock
        clock = Signal(32)
        expired = Signal()
        moving = Signal()
        rewind = Signal()
        m.d.sync += moving.eq(sched.finished | self.beat | progress)
        m.d.comb += expired.eq((clock == 1) & ~moving)
        with m.If(moving | rewind):
            m.d.sync += clock.eq(self.watchdog)
        with m.Elif(clock.any()):
            m.d.sync += clock.eq(clock - 1)
        quiet = Signal(range(_DEADLOCK_CYCLES + 1))
        locked = Signal()
        m.d.comb += locked.eq(quiet == _DEADLOCK_CYCLES)
        with m.If(run & blocked & ~sched.running & ~locked):
            m.d.sync += quiet.eq(quiet + 1)
        with m.Else():
            m.d.sync += quiet.eq(0)

        stopping = Signal()  # the host's reset came while no command could be blamed
        failures = Cat(Const(0, 1), *(self.engine(e).error.valid for e in ENGINES))
        with m.If(run & ~fault):
            m.d.sync += [
                fault.eq(failures.any() | stop | self.reset | stopping | expired | locked | sched.overflow),
                fault_located.eq(0),
                fault_engine.eq(0),
            ]
            oldest = Signal(len(Engine))
            for e in ENGINES:
                m.d.comb += oldest[e].eq(sched.waiting[e] & ~sched.waiting[:e].any())
            with m.If(failures.any()):
                for e in reversed(ENGINES):
                    with m.If(failures[e]):
                        m.d.sync += [fault_code.eq(self.engine(e).error.code), fault_engine.eq(1 << e)]
                        offset = {Engine.LOAD: self.load_offset, Engine.STORE: self.store_offset}.get(e)
                        if offset is not None:
                            m.d.sync += [fault_located.eq(1), fault_offset.eq(offset)]
                        else:
                            m.d.sync += fault_located.eq(0)
            with m.Elif(stop):
                m.d.sync += [
                    fault_code.eq(stop_code),
                    fault_located.eq(stop_located),
                    fault_offset.eq(stop_offset),
                ]
            with m.Elif(sched.overflow):
                m.d.sync += [fault_code.eq(Error.TOKEN_OVERFLOW), fault_engine.eq(sched.posting)]
            with m.Elif(locked):
                m.d.sync += [fault_code.eq(Error.DEADLOCK), fault_engine.eq(oldest)]
            with m.Elif(self.reset | stopping):
                m.d.sync += [fault_code.eq(Error.ABORTED), fault_engine.eq(oldest)]
            with m.Else():
                m.d.sync += [fault_code.eq(Error.WATCHDOG), fault_engine.eq(oldest)]

        # ---- from bell to interrupt
        refuse_base, refuse_align, refuse_window = Signal(), Signal(), Signal()
        end = Signal(34)
        empty = Signal()
        wait = Signal(range(_ABORT_CYCLES))
        told = Signal()
        blame = Signal(24)
        # A base that is not a multiple of 4096 is an error of its own, and then the offset is 0.
        address = absolute(self.base, fault_offset) | Mux(refuse_base, self.base[:12], 0)
        m.d.comb += blame.eq(index)
        for e in ENGINES:
            with m.If(fault_engine[e]):
                m.d.comb += blame.eq(sched.indices[e])
        bad_start = Signal(8)

        # ---- bells
        accepted = Signal()
        open_ = Signal()  # bells are heard
        m.d.comb += accepted.eq(self.bell & open_ & ~main)
        if self.requests:
            m.d.comb += self.request_busy.eq(wanted_request | serving)
            with m.If(self.request_bell):
                with m.If(open_ & ~self.request_busy):
                    m.d.sync += [
                        wanted_request.eq(1),
                        self.refused.eq(0),
                        self.request_done.eq(0),
                        self.request_error.eq(0),
                        self.request_cycles.eq(0),
                    ]
                with m.Else():
                    m.d.sync += self.refused.eq(1)
            total = Signal(33)
            m.d.comb += total.eq(self.request_cycles + 1)
            with m.If(self.request_busy):
                m.d.sync += self.request_cycles.eq(total[:32] | total[32].replicate(32))

        with m.FSM(name="state") as state:
            with m.State("IDLE"):
                m.d.comb += fresh.eq(1)
                # What rang before a reset is stopped by it, even if it has not started.
                m.d.sync += [wait.eq(0), fault.eq(0), told.eq(0), stopping.eq((stopping | self.reset) & wanted_request)]
                with m.If(wanted_request):
                    m.d.sync += [serving.eq(1), wanted_request.eq(0)]
                    m.next = "SUM"
                with m.Elif(self.reset):
                    m.next = "RESET"
                with m.Elif(accepted | main):
                    m.next = "SUM"
            with m.State("RESET"):
                # Nothing runs: only the engines are reset.
                m.d.comb += [fresh.eq(1), self.abort.eq(1), self.bus_abort.eq(1)]
                m.d.sync += wait.eq(wait + 1)
                with m.If((wait == _ABORT_CYCLES - 1) & self.bus_idle):
                    m.next = "IDLE"
            with m.State("SUM"):
                m.d.comb += [fresh.eq(1), rewind.eq(1)]
                m.d.sync += [
                    end.eq(origin + (commands << exact_log2(COMMAND_BYTES))),
                    empty.eq(commands == 0),
                    refuse_base.eq(self.base[:12].any()),
                    refuse_align.eq(origin[:5].any()),
                ]
                m.next = "COMPARE"
            with m.State("COMPARE"):
                m.d.comb += [fresh.eq(1), rewind.eq(1)]
                m.d.sync += refuse_window.eq(end > self.size)
                m.next = "BEGIN"
            with m.State("BEGIN"):
                m.d.comb += [fresh.eq(1), rewind.eq(1)]
                with m.If(refuse_base):
                    m.d.comb += bad_start.eq(Error.BASE_ALIGNMENT)
                with m.Elif(empty):
                    m.d.comb += bad_start.eq(Error.PROGRAM_LENGTH)
                with m.Elif(refuse_align):
                    m.d.comb += bad_start.eq(Error.PROGRAM_ALIGNMENT)
                with m.Elif(refuse_window):
                    m.d.comb += bad_start.eq(Error.PROGRAM_WINDOW)
                m.d.sync += [
                    fault_code.eq(bad_start),
                    fault_engine.eq(0),
                    fault_located.eq(~empty | refuse_base),
                    fault_offset.eq(Mux(refuse_base, 0, origin)),
                ]
                with m.If(bad_start.any()):
                    m.d.sync += fault.eq(1)
                    m.next = "BLAME"
                with m.Else():
                    m.d.sync += run.eq(1)
                    with m.If(serving):
                        m.d.sync += self.request_waited.eq(self.request_cycles)
                    m.next = "RUN"
            with m.State("RUN"):
                with m.If(fault | ended | leaving):
                    m.d.sync += run.eq(0)
                with m.If(fault):
                    m.next = "BLAME"
                with m.Elif(ended | leaving):
                    m.next = "FLUSH"
            with m.State("BLAME"):
                # What is done has to leave the queues first, or the wrong command would be named.
                with m.If(sched.settled):
                    m.d.sync += [
                        self.error_code.eq(fault_code),
                        self.error_command.eq(blame),
                        self.error_request.eq(serving),
                        self.error_address.eq(Mux(fault_located, address, 0)),
                    ]
                    m.d.comb += rewind.eq(1)
                    m.next = "DRAIN"
            with m.State("DRAIN"):
                m.d.comb += [fresh.eq(1), self.abort.eq(1), self.bus_abort.eq(1)]
                with m.If(wait != _ABORT_CYCLES - 1):
                    m.d.sync += wait.eq(wait + 1)
                with m.Elif(self.bus_idle):
                    m.d.comb += self.irq_error.eq(~told)
                    m.d.sync += [main.eq(0), serving.eq(0), wanted_request.eq(0), leaving.eq(0)]
                    m.next = "IDLE"
                with m.If(expired & ~told):
                    m.d.comb += self.irq_error.eq(1)
                    m.d.sync += told.eq(1)
            with m.State("FLUSH"):
                m.d.comb += self.bus_abort.eq(1)
                with m.If(self.bus_idle):
                    m.next = "FINISH"
                with m.If(expired):
                    m.d.sync += [
                        fault.eq(1),
                        fault_code.eq(Error.WATCHDOG),
                        fault_engine.eq(0),
                        fault_located.eq(0),
                    ]
                    m.next = "BLAME"
            with m.State("FINISH"):
                m.d.comb += fresh.eq(1)
                with m.If(leaving):
                    m.d.sync += [leaving.eq(0), serving.eq(1), wanted_request.eq(0)]
                    m.next = "SUM"
                with m.Elif(serving):
                    m.d.comb += self.irq_request.eq(1)
                    m.d.sync += serving.eq(0)
                    m.next = "IDLE"
                    with m.If(main | accepted):
                        m.next = "SUM"
                with m.Else():
                    m.d.comb += self.irq_done.eq(1)
                    m.d.sync += main.eq(0)
                    m.next = "IDLE"
        with m.If(accepted):
            m.d.comb += self.cleared.eq(1)
            m.d.sync += [
                main.eq(1),
                place.eq(0),
                self.done.eq(0),
                self.error.eq(0),
                self.error_code.eq(0),
                self.error_command.eq(0),
                self.error_request.eq(0),
                self.error_address.eq(0),
            ]
        with m.If(self.irq_done):
            m.d.sync += self.done.eq(1)
        with m.If(self.irq_request):
            m.d.sync += self.request_done.eq(1)
        with m.If(self.irq_error):
            m.d.sync += [
                self.error.eq(self.error | main),
                self.request_error.eq(self.request_error | wanted_request | serving),
            ]
        stopped = Cat(state.ongoing(name) for name in ("RESET", "BLAME", "DRAIN")).any()
        m.d.comb += open_.eq(~stopped & ~(state.ongoing("IDLE") & self.reset))
        with m.If(self.reset & ~state.ongoing("IDLE") & ~stopped):
            m.d.sync += stopping.eq(1)
        m.d.comb += [
            self.busy.eq(main | stopped),
            self.request_running.eq(serving),
            self.draining.eq(state.ongoing("DRAIN")),
            self.counting.eq(main & ~told),
            self.finished.eq(sched.finished & self.counting),
        ]

        # ---- to the engines; what they finish while a fault is being blamed still counts
        for e in ENGINES:
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

        with m.If(sched.executing[Engine.ARRAY]):
            m.d.sync += self.phase.eq(sched.phases[Engine.ARRAY])
        with m.Elif(sched.executing[Engine.HEAD]):
            m.d.sync += self.phase.eq(sched.phases[Engine.HEAD])
        with m.Else():
            m.d.sync += self.phase.eq(0)
        return m
