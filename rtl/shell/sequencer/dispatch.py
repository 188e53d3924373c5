"""Dispatch: decodes commands, decides predicates, fills queues.

It executes CONTROL commands itself.
"""

from types import SimpleNamespace

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..bus.read_dma import FetchBeat
from ..engines import CONTROL
from ..registers.errors import Error
from ..signature import COMMAND_BYTES, Command, ControlOpcode, ControlOperands
from .scheduler import Entry
from .valid import ValidBits

__all__ = ["Dispatch"]


class Dispatch(wiring.Component):
    """Dispatches the commands of a program in order.

    It ends at END, at YIELD for a request, or at ``stop``.

    Parameters
    ----------
    data_bits : :class:`int`
        Bus width: 64, 128 or 256.
    slots : :class:`int`
        Valid bits.
    requests : :class:`bool`
        Without them YIELD is unknown.
    engines : :class:`int`
        Engines of the machine; commands of others are refused.

    Members
    -------
    run : ``In(1)``
        High while commands may be dispatched; low at least a cycle between programs.
    fresh : ``In(1)``
        Between programs, and in the last cycle before ``run``: ``index`` is that of the first command. It is kept when
        ``run`` falls, as a fault may name it some cycles later.
    first, commands : ``In(24)``
        Index of the first command, and how many there are. Held from a cycle before ``run`` on.
    i : ``In(stream.Signature(FetchBeat(data_bits)))``, i_offset : ``In(32)``
        The program's beats, and their offset.
    o : ``Out(stream.Signature(Entry))``
        Commands for the engines.
    control_request, control_wait, control_post, control_done, control_grant, forget
        To and from :class:`~gradloom.rtl.shell.sequencer.scheduler.Scheduler`.
    idle : ``In(1)``
        No command is queued or under way, and all that were done have posted.
    interrupted : ``In(1)``
        A request waits for the program's next YIELD.
    cache_clear : ``In(1)``
        Pulse: clear valid bits.
    stop : ``Out(1)``, stop_code : ``Out(8)``, stop_located : ``Out(1)``, stop_offset : ``Out(32)``
        The command at ``index`` is wrong; the last only with ``stop_located``.
    blocked : ``Out(1)``
        Cannot go on before a command is done or a token is posted.
    progress, ended, leave : ``Out(1)``
        Pulses: a command is behind; END; the program leaves at a YIELD, and goes on behind ``index``.
    index : ``Out(24)``
        The command's place in the program.
    dropped : ``Out(1)``
        Pulse: a predicate held.
    looked_up : ``Out(1)``, hits, misses : ``Out(32)``
        Pulse, and what LOOKUP found.
    """

    def __init__(self, *, data_bits, slots, requests, engines):
        self.engines = engines
        self.data_bits = data_bits
        self.requests = requests
        self._valid = ValidBits(slots=slots)
        super().__init__(
            {
                "run": In(1),
                "fresh": In(1),
                "first": In(24),
                "commands": In(24),
                "i": In(stream.Signature(FetchBeat(data_bits))),
                "i_offset": In(32),
                "o": Out(stream.Signature(Entry)),
                "control_request": Out(1),
                "control_wait": Out(16),
                "control_post": Out(16),
                "control_done": Out(1),
                "control_grant": In(1),
                "forget": Out(1),
                "idle": In(1),
                "interrupted": In(1),
                "cache_clear": In(1),
                "stop": Out(1),
                "stop_code": Out(8),
                "stop_located": Out(1),
                "stop_offset": Out(32),
                "blocked": Out(1),
                "progress": Out(1),
                "ended": Out(1),
                "leave": Out(1),
                "index": Out(24),
                "dropped": Out(1),
                "looked_up": Out(1),
                "hits": Out(32),
                "misses": Out(32),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.valid = valid = self._valid
        command = Signal(Command)
        remaining = Signal(24)
        # Whether none remain, or one, from registers: a count stays for three cycles at least.
        none, one = Signal(), Signal()
        m.d.sync += [none.eq(remaining == 0), one.eq(remaining == 1)]
        part = Signal(range(max(self._parts, 2)))
        is_control, known, queued = Signal(), Signal(), Signal()
        # What CONTROL is asked for, of which one is high; none for what is unknown.
        does = {opcode: Signal(name=f"does_{opcode.name.lower()}") for opcode in self._executed}
        slot, count, mark = Signal(32), Signal(32), Signal()
        entry = self.o.payload
        m.d.comb += [
            valid.slot.eq(slot),
            valid.count.eq(count),
            valid.mark.eq(mark),
            entry.engine.eq(command.engine),
            entry.wait.eq(command.wait),
            entry.post.eq(command.post),
            entry.phase.eq(command.phase),
            entry.index.eq(self.index),
            entry.command.opcode.eq(command.opcode),
            entry.command.args.eq(command.args),
            self.control_wait.eq(command.wait),
            self.control_post.eq(command.post),
        ]
        asked = SimpleNamespace(slot=slot, count=count, mark=mark)
        step = [self.index.eq(self.index + 1), remaining.eq(remaining - 1), none.eq(one)]

        with m.FSM(init="HALT") as state:
            with m.State("HALT"):
                m.d.sync += [remaining.eq(self.commands), part.eq(0)]
                with m.If(self.fresh):
                    m.d.sync += self.index.eq(self.first)
                with m.If(self.run):
                    m.next = "COLLECT"
            self._collect(m, command, none, part)
            with m.State("DECODE"):
                m.d.sync += [
                    is_control.eq(command.engine == CONTROL),
                    known.eq(command.engine < self.engines),
                    queued.eq((command.engine != CONTROL) & (command.engine < self.engines)),
                    slot.eq(command.slot),
                    count.eq(command.count),
                    mark.eq(0),
                    *(each.eq(command.opcode == opcode) for opcode, each in does.items()),
                ]
                with m.If(command.predicated):
                    m.next = "ASK"
                with m.Else():
                    m.next = "DISPATCH"
            self._ask(m)
            self._dispatch(m, command, is_control, known, does, asked, step)
            self._execute(m, does)
            self._finish_control(m, mark)
            with m.State("POST"):
                # The scheduler reads the post mask in this cycle.
                m.next = "NEXT"
            with m.State("NEXT"):
                m.d.comb += self.progress.eq(1)
                m.d.sync += step
                m.next = "COLLECT"
            if self.requests:
                self._yield(m)
            with m.State("STUCK"):
                with m.If(~self.run):
                    m.next = "HALT"
        m.d.comb += [
            self.o.valid.eq(state.ongoing("DISPATCH") & self.run & queued),
            self.hits.eq(valid.hits),
            self.misses.eq(count - valid.hits),
        ]
        with m.If(self.cache_clear):
            m.d.comb += valid.clear.eq(1)
        return m

    @property
    def _executed(self):
        """What CONTROL can be asked for."""
        known = (*ControlOpcode,)
        return known if self.requests else tuple(each for each in known if each != ControlOpcode.YIELD)

    @property
    def _parts(self):
        """Beats of a command."""
        return COMMAND_BYTES * 8 // self.data_bits

    def _refuse(self, m, code):
        """Ends the program at this command."""
        m.d.comb += [self.stop.eq(1), self.stop_code.eq(code)]
        m.next = "STUCK"

    def _collect(self, m, command, none, part):
        """State that puts a command together from beats."""
        beat = self.i.payload
        with m.State("COLLECT"):
            # Also without a beat: the last one in a place is the command's. So the state alone enables these registers.
            for place in range(self._parts):
                with m.If(part == place):
                    m.d.sync += command.as_value().word_select(place, self.data_bits).eq(beat.data)
            with m.If(~self.run):
                m.next = "HALT"
            with m.Elif(none):
                self._refuse(m, Error.PROGRAM_UNENDED)
            with m.Elif(self.i.valid):
                m.d.comb += self.i.ready.eq(1)
                m.d.sync += part.eq(part + 1)
                with m.If(beat.resp[1]):
                    m.d.comb += [self.stop_located.eq(1), self.stop_offset.eq(self.i_offset)]
                    self._refuse(m, Mux(beat.resp[0], Error.FETCH_DECERR, Error.FETCH_SLVERR))
                with m.Elif(part == self._parts - 1):
                    m.d.sync += part.eq(0)
                    m.next = "DECODE"

    def _ask(self, m):
        """States that decide on a predicate.

        A command whose slots are all valid is dropped.
        """
        valid = self._valid
        with m.State("ASK"):
            m.d.comb += valid.start.eq(~valid.busy)
            with m.If(~self.run):
                m.next = "HALT"
            with m.Elif(~valid.busy):
                m.next = "ANSWER"
        with m.State("ANSWER"):
            with m.If(~self.run):
                m.next = "HALT"
            with m.Elif(valid.done):
                with m.If(valid.outside):
                    self._refuse(m, Error.SLOT_RANGE)
                with m.Elif(valid.complete):
                    m.d.comb += self.dropped.eq(1)
                    m.next = "NEXT"
                with m.Else():
                    m.next = "DISPATCH"

    def _dispatch(self, m, command, is_control, known, does, asked, step):
        """State that queues a command.

        A CONTROL command waits here for its tokens and conditions.
        """
        control = data.View(ControlOperands, command.args)
        with m.State("DISPATCH"):
            with m.If(~self.run):
                m.next = "HALT"
            with m.Elif(~known):
                self._refuse(m, Error.UNKNOWN_ENGINE)
            with m.Elif(is_control):
                m.d.comb += [self.control_request.eq(1), self.blocked.eq(1)]
                m.d.sync += [
                    asked.slot.eq(control.slot),
                    asked.count.eq(control.count),
                    asked.mark.eq(does[ControlOpcode.MARK]),
                ]
                with m.If(self.control_grant):
                    m.next = "EXECUTE"
            with m.Else():
                m.d.comb += self.blocked.eq(~self.o.ready)
                with m.If(self.o.ready):
                    # As NEXT, a cycle earlier.
                    m.d.comb += self.progress.eq(1)
                    m.d.sync += step
                    m.next = "COLLECT"

    def _execute(self, m, does):
        """State that begins a CONTROL command.

        END, FENCE and YIELD wait until all before them are done.
        """
        valid = self._valid
        waiting = {ControlOpcode.END: "STUCK", ControlOpcode.FENCE: "POST"}
        if self.requests:
            waiting[ControlOpcode.YIELD] = "YIELD"
        with m.State("EXECUTE"):
            with m.If(~self.run):
                m.next = "HALT"
            with m.Elif(~Cat(does.values()).any()):
                self._refuse(m, Error.UNKNOWN_OPCODE)
            for opcode, state in waiting.items():
                with m.Elif(does[opcode]):
                    m.d.comb += self.blocked.eq(~self.idle)
                    with m.If(self.idle):
                        m.d.comb += self.control_done.eq(1)
                        if opcode == ControlOpcode.END:
                            m.d.comb += self.ended.eq(1)
                        m.next = state
            with m.Elif(does[ControlOpcode.CLEAR]):
                m.d.comb += valid.clear.eq(1)
                m.next = "CLEAR"
            with m.Else():
                m.d.comb += valid.start.eq(~valid.busy)
                with m.If(~valid.busy):
                    m.next = "RANGE"

    def _finish_control(self, m, mark):
        """States that wait for the valid bits."""
        valid = self._valid
        with m.State("RANGE"):
            with m.If(~self.run):
                m.next = "HALT"
            with m.Elif(valid.done):
                with m.If(valid.outside):
                    self._refuse(m, Error.SLOT_RANGE)
                with m.Else():
                    m.d.comb += [self.control_done.eq(1), self.looked_up.eq(~mark)]
                    m.next = "POST"
        with m.State("CLEAR"):
            with m.If(~self.run):
                m.next = "HALT"
            with m.Elif(~valid.busy):
                m.d.comb += self.control_done.eq(1)
                m.next = "POST"

    def _yield(self, m):
        """States behind a YIELD: the program goes on, or leaves for a request."""
        with m.State("YIELD"):
            # As POST, and its own post is forgotten with the others.
            m.d.comb += self.forget.eq(1)
            m.next = "NEXT"
            with m.If(self.interrupted):
                m.next = "LEAVE"
        with m.State("LEAVE"):
            m.d.comb += [self.progress.eq(1), self.leave.eq(1)]
            m.next = "STUCK"
