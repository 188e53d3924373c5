"""LOAD: reads memory in bursts; the program's fetch shares its port."""

from types import SimpleNamespace

from amaranth.hdl import Cat, Const, Module, Mux, ResetInserter, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from ...stream.queue import ShortQueue
from ..registers.errors import Error
from ..signature import EngineSignature, LoadBeat, LoadOperands
from .axi import BURST_BEATS, AXI4ReadSignature, Burst, check_bursts, check_data_bits
from .window import WindowCheck, absolute, advance, measure

__all__ = ["ReadDMA", "FetchRequest", "FetchBeat"]

#: A burst of the program: ``beats`` of at most 16, not across a multiple of 16 beats.
FetchRequest = data.StructLayout({"offset": 32, "beats": 5})


def FetchBeat(data_bits=128):
    """A beat of the program and how the bus answered."""
    return data.StructLayout({"data": data_bits, "resp": 2})


#: A burst in flight: whether it is the program's, whether it ends its command, and its first byte in the window.
_BURST = data.StructLayout({"fetch": 1, "last": 1, "offset": 32})


class ReadDMA(wiring.Component):
    """The engine LOAD, and the program's way to the bus.

    Opcode 0 reads ``beats`` beats from ``offset`` (:data:`~gradloom.rtl.shell.signature.LoadOperands`) and
    sends them to ``o``. Bursts are INCR, of at most 16 beats, end on multiples of 16 beats and so never cross
    4 KB. A command is accepted as soon as the bursts of the last one were issued, so that data keeps flowing
    from one command to the next. All bursts use id 0 and are answered in order.

    From the start of a command to its first ``arvalid`` are 4 cycles; the others follow every 2nd cycle at
    most; ``o`` follows ``rvalid`` by 1 cycle, one beat a cycle; ``done`` follows the last beat on ``o`` by 1
    cycle. With a memory that answers ``L`` cycles after an address and nothing else to do, a command of ``N``
    beats takes ``cycles(N, L) = 5 + L + N`` from start to done.

    Parameters
    ----------
    data_bits : :class:`int`
        Bus width: 64, 128 or 256.
    addr_bits, id_bits : :class:`int`
        Bus address and id width.
    outstanding : :class:`int`
        Bursts in flight, a power of two.
    ports : :class:`int`
        Load ports of the machine.
    longest : :class:`int`
        Beats of a whole burst, in place of 16: 4, 8 or 16.

    Members
    -------
    port : ``In(EngineSignature())``
    o : ``Out(stream.Signature(LoadBeat(data_bits, ports)))``
        What was read. A consumer must take it in the end without a further command having to be fetched.
    refuse : ``In(1)``
        A cycle behind a beat that was taken: it has no place where it went. LOAD stops with BAD_OPERAND and the beat's
        offset; one more beat may be there until then.
    i_fetch : ``In(stream.Signature(FetchRequest))``
        Has priority over LOAD.
    o_fetch : ``Out(stream.Signature(FetchBeat(data_bits)))``
        The requester keeps room for what it asks for: a beat is there for one cycle.
    axi : ``Out(AXI4ReadSignature())``
    base : ``In(64)``
        Window's first byte, a multiple of 4096.
    size : ``In(32)``
        Window's bytes.
    abort : ``In(1)``
        Hold until ``idle``: commands and data are dropped, no burst begins, what is in flight is taken and
        dropped.
    idle : ``Out(1)``
        No burst is in flight.
    error_offset : ``Out(32)``
        Belongs to ``port.error``.
    beat : ``Out(1)``
        A beat came over the bus.
    """

    def __init__(self, *, data_bits=128, addr_bits=64, id_bits=1, outstanding=16, ports=8, longest=BURST_BEATS):
        check_data_bits(data_bits)
        check_bursts(outstanding, longest)
        self.data_bits = data_bits
        self.outstanding = outstanding
        self.ports = ports
        self.longest = longest
        #: Where a command's beats go.
        self._context = data.StructLayout({"to": ports + 1, "arg": 32})
        super().__init__(
            {
                "port": In(EngineSignature()),
                "o": Out(stream.Signature(LoadBeat(data_bits, ports))),
                "refuse": In(1),
                "i_fetch": In(stream.Signature(FetchRequest)),
                "o_fetch": Out(stream.Signature(FetchBeat(data_bits))),
                "axi": Out(AXI4ReadSignature(addr_bits=addr_bits, data_bits=data_bits, id_bits=id_bits)),
                "base": In(64),
                "size": In(32),
                "abort": In(1),
                "idle": Out(1),
                "error_offset": Out(32),
                "beat": Out(1),
            }
        )

    @staticmethod
    def cycles(beats, latency):
        """Cycles from start to ``done`` of a lone command.

        ``latency``: from address to first datum.
        """
        return 5 + latency + beats

    @property
    def _shift(self):
        """Bits of an address that count bytes in a beat."""
        return exact_log2(self.data_bits // 8)

    @property
    def _bits(self):
        """Bits of an address that count beats in a burst."""
        return exact_log2(self.longest)

    def _advanced(self, offset):
        return advance(offset, data_bits=self.data_bits, longest=self.longest)

    def elaborate(self, platform):
        m = Module()
        queue = ShortQueue if self.outstanding > 1 else SyncFIFOBuffered
        m.submodules.bursts = bursts = queue(width=_BURST.size, depth=self.outstanding)
        m.submodules.contexts = contexts = ResetInserter(self.abort)(ShortQueue(width=self._context.size, depth=4))
        m.submodules.check = check = WindowCheck(data_bits=self.data_bits)
        failed = Signal()

        # A burst and a command are in flight until their last beats have been taken.
        burst_stays = Signal()
        command_stays = Signal()
        may_burst = bursts.w_rdy & ~(burst_stays & (bursts.almost if self.outstanding > 1 else 1))
        may_begin = contexts.w_rdy & ~(command_stays & contexts.almost)
        command = self._take_commands(m, may_burst, may_begin, contexts, check)
        self._issue_bursts(m, bursts, command)
        oldest = self._receive(m, bursts)
        beat = self._hand_on(m, bursts, contexts, oldest, burst_stays, command_stays)
        self._finish_commands(m, beat)
        self._report(m, bursts, contexts, failed, command, beat, oldest.waits)
        return m

    def _take_commands(self, m, may_burst, may_begin, contexts, check):
        """Takes a command, checks it, and requests its bursts one by one.

        The command is held in registers. A refused command requests no burst.
        """
        axi, port = self.axi, self.port
        args = data.View(LoadOperands, port.command.payload.args)
        offset = Signal(32)
        beats = Signal(24)
        known = Signal()
        m.d.comb += [check.offset.eq(args.offset), check.beats.eq(args.beats), check.size.eq(self.size)]
        last, final, room = measure(m, offset, beats, data_bits=self.data_bits, longest=self.longest)

        free = Signal()  # the address register can take another burst
        issue = Signal()  # ... and a burst of LOAD's goes there
        m.d.comb += free.eq((~axi.arvalid | axi.arready) & may_burst & ~self.abort)
        m.d.comb += self.i_fetch.ready.eq(free)
        context_i = data.View(self._context, contexts.w_data)
        held = Signal(data.StructLayout({"dest": 8, "arg": 32}))
        m.d.comb += [
            context_i.to.eq(Cat(*(held.dest == port for port in range(self.ports)), held.dest >= self.ports)),
            context_i.arg.eq(held.arg),
        ]
        code = self._verdict(m, check, known)
        refused = Signal(8)

        with m.FSM() as fsm:
            with m.State("IDLE"):
                m.d.comb += port.command.ready.eq(may_begin & ~self.abort)
                m.d.sync += [
                    offset.eq(args.offset),
                    beats.eq(args.beats),
                    held.dest.eq(args.dest),
                    held.arg.eq(args.arg),
                    known.eq(port.command.payload.opcode == 0),
                ]
                with m.If(port.command.valid & port.command.ready):
                    m.next = "CHECK"
            with m.State("CHECK"):
                m.next = "DECIDE"
            with m.State("DECIDE"):
                m.d.sync += refused.eq(code)
                # mutant window-unchecked: with m.If(~known | check.empty | check.misaligned):
                with m.If(~known | check.empty | check.misaligned | check.outside):
                    m.next = "REFUSE"
                with m.Else():
                    m.d.comb += contexts.w_en.eq(1)
                    m.next = "BURST"
                with m.If(self.abort):
                    m.next = "IDLE"
            with m.State("BURST"):
                m.d.comb += issue.eq(free & ~self.i_fetch.valid)
                with m.If(issue):
                    m.d.sync += [beats.eq(beats - room), offset.eq(self._advanced(offset))]
                    m.next = "MEASURE"
                    with m.If(final):
                        m.next = "IDLE"
                with m.If(self.abort):
                    m.next = "IDLE"
            with m.State("MEASURE"):
                m.next = "BURST"
                with m.If(self.abort):
                    m.next = "IDLE"
            with m.State("REFUSE"):
                # Errors are reported in order: everything before has to be done first.
                with m.If(self.abort):
                    m.next = "IDLE"

        return SimpleNamespace(fsm=fsm, offset=offset, last=last, final=final, free=free, issue=issue, refused=refused)

    def _verdict(self, m, check, known):
        """The code of the error, if the command in the registers is refused."""
        code = Signal(8)
        with m.If(~known):
            m.d.comb += code.eq(Error.UNKNOWN_OPCODE)
        with m.Elif(check.empty):
            m.d.comb += code.eq(Error.LOAD_LENGTH)
        with m.Elif(check.misaligned):
            m.d.comb += code.eq(Error.LOAD_ALIGNMENT)
        with m.Else():
            m.d.comb += code.eq(Error.LOAD_WINDOW)
        return code

    def _issue_bursts(self, m, bursts, command):
        """Issues bursts to the address register and the queue in flight.

        The program's bursts come first.
        """
        axi, last = self.axi, command.last
        where = Mux(self.i_fetch.valid, self.i_fetch.payload.offset, command.offset)
        burst_i = data.View(_BURST, bursts.w_data)
        m.d.comb += [
            bursts.w_en.eq(command.free & (self.i_fetch.valid | command.issue)),
            burst_i.fetch.eq(self.i_fetch.valid),
            burst_i.last.eq(command.final),
            burst_i.offset.eq(where),
            axi.arsize.eq(self._shift),
            axi.arburst.eq(Burst.INCR),
            # Modifiable and bufferable, unprivileged data: what a PS port and a MIG expect.
            axi.arcache.eq(0b0011),
            axi.arprot.eq(0),
        ]
        with m.If(axi.arready):
            m.d.sync += axi.arvalid.eq(0)
        with m.If(bursts.w_en):
            m.d.sync += [
                axi.arvalid.eq(1),
                axi.araddr.eq(absolute(self.base, where)),
                axi.arlen.eq(Mux(self.i_fetch.valid, (self.i_fetch.payload.beats - 1)[: self._bits], last)),
            ]

    def _receive(self, m, bursts):
        """Takes beats into a register, which they leave for ``spare`` at most.

        That is there for the beat that its consumer does not take: so neither rready nor what a beat leaves behind
        waits for the consumers.

        Returns the beat, its ``valid`` and ``take``, and the valid bit of ``spare``.
        """
        axi = self.axi
        head = Signal(data.StructLayout({"data": self.data_bits, "resp": 2, "last": 1}))
        head_valid = Signal()
        spare_valid = Signal()
        take = Signal()
        # What nobody asked for was asked for before a reset: it is taken and dropped.
        comes = Signal()
        asked = Signal()  # a burst that the queue does not show yet
        m.d.sync += asked.eq(bursts.w_en)
        m.d.comb += [
            axi.rready.eq(~head_valid | ~spare_valid),
            comes.eq(axi.rvalid & (bursts.r_rdy | asked)),
            take.eq(head_valid & ~spare_valid),
        ]
        with m.If(axi.rready):
            m.d.sync += [head.as_value().eq(Cat(axi.rdata, axi.rresp, axi.rlast)), head_valid.eq(comes)]
        m.d.sync += self.beat.eq(comes & axi.rready)
        return SimpleNamespace(head=head, valid=head_valid, take=take, waits=spare_valid)

    def _hand_on(self, m, bursts, contexts, beat, burst_stays, command_stays):
        """Sends the oldest beat to ``o`` or ``o_fetch``.

        It leaves its register at once, for ``spare`` if ``o`` does not take it, and also when no output asks for it.
        """
        burst_o = data.View(_BURST, bursts.r_data)
        context_o = data.View(self._context, contexts.r_data)
        head, waits = beat.head, beat.waits
        mine = Signal()
        bad = Signal()
        sends = Signal()
        in_burst = Signal(self._bits)
        low = Signal(self._bits)
        took = Signal()  # a beat was taken in the cycle before
        denied = Signal()  # it was refused
        drop = Signal()  # ``abort``; a beat that leaves in its first cycle goes where nobody asks for it
        mute = Signal()  # that, or something has failed
        fails = Signal()  # something has, or does now
        passed = data.StructLayout({"data": self.data_bits, "last": 1, "to": self.ports + 1, "arg": 32})
        now = Signal(passed)
        spare = Signal(passed)
        place = Signal(32 - self._shift)
        ends_burst = Signal()  # the beat in ``spare`` does
        m.d.sync += drop.eq(self.abort)
        m.d.comb += [
            mine.eq(beat.valid & ~burst_o.fetch & ~mute),
            bad.eq(head.resp[1]),
            sends.eq(mine & ~bad),
            now.data.eq(head.data),
            now.last.eq(burst_o.last & head.last),
            now.to.eq(context_o.to),
            now.arg.eq(context_o.arg),
            self.o.valid.eq(sends | waits),
            *(self.o.payload[name].eq(Mux(waits, spare[name], now[name])) for name in passed.members),
            self.o_fetch.valid.eq(beat.take & burst_o.fetch & ~drop),
            self.o_fetch.payload.data.eq(head.data),
            self.o_fetch.payload.resp.eq(head.resp),
            bursts.r_en.eq(beat.take & head.last),
            contexts.r_en.eq(sends & ~waits & now.last),
            # mutant idle-too-early: self.idle.eq(~self.axi.arvalid),
            self.idle.eq(~bursts.r_rdy & ~self.axi.arvalid),
            low.eq(burst_o.offset[self._shift : self._shift + self._bits] + in_burst),
            denied.eq(took & self.refuse),
            burst_stays.eq(waits & ends_burst),
            command_stays.eq(waits & spare.last),
        ]
        with m.If(beat.take):
            m.d.sync += in_burst.eq(Mux(head.last, 0, in_burst + 1))
        # Whether or not it stays: what says so is late. So ``place`` is that of the last beat that ``o`` took.
        with m.If(~waits):
            m.d.sync += [
                spare.eq(now),
                ends_burst.eq(head.last),
                place.eq(Cat(low, burst_o.offset[self._shift + self._bits :])),
            ]
        m.d.sync += waits.eq(self.o.valid & ~self.o.ready & ~self.abort)
        return SimpleNamespace(
            mine=mine & ~waits,
            bad=bad,
            resp=head.resp,
            low=low,
            place=place,
            took=took,
            denied=denied,
            mute=mute,
            fails=fails,
        )

    def _finish_commands(self, m, beat):
        """Counts a command's beats and reports ``done`` with the last.

        Beats count as they leave. What comes behind a beat that is refused is done no more, though another beat may
        have been taken before that is known.
        """
        o = self.o.payload
        index = Signal(24)
        taken = Signal()
        ended = Signal()
        first = Signal(init=1)  # ``index`` is 0
        m.d.comb += [
            taken.eq(self.o.valid & self.o.ready),
            o.index.eq(index),
            o.first.eq(first),
            self.port.done.eq(ended & ~self.refuse),
        ]
        m.d.sync += [ended.eq(taken & o.last & ~beat.fails), beat.took.eq(taken)]
        with m.If(taken):
            m.d.sync += [index.eq(Mux(o.last, 0, index + 1)), first.eq(o.last)]
        with m.If(self.abort):
            m.d.sync += [ended.eq(0), beat.took.eq(0), index.eq(0), first.eq(1)]

    def _report(self, m, bursts, contexts, failed, command, beat, waits):
        """Registers the first error, which sticks until the sequencer aborts."""
        port, shift = self.port, self._shift
        burst_o = data.View(_BURST, bursts.r_data)
        # Code and place follow what is there until something fails, so that what says so need not reach all of them.
        turned_down = Signal()
        m.d.comb += turned_down.eq(command.fsm.ongoing("REFUSE") & ~contexts.r_rdy & ~waits)
        here = Cat(Const(0, shift), beat.low, burst_o.offset[shift + self._bits :])
        answered = Mux(beat.resp[0], Error.READ_DECERR, Error.READ_SLVERR)
        with m.If(~failed):
            m.d.sync += [
                port.error.code.eq(Mux(beat.denied, Error.BAD_OPERAND, Mux(turned_down, command.refused, answered))),
                self.error_offset.eq(
                    Mux(beat.denied, Cat(Const(0, shift), beat.place), Mux(turned_down, command.offset, here))
                ),
            ]
        fails = beat.fails
        m.d.comb += fails.eq(failed | (beat.mine & beat.bad) | beat.denied | turned_down)
        m.d.sync += [failed.eq(fails), port.error.valid.eq(fails), beat.mute.eq(fails | self.abort)]
        with m.If(self.abort):
            # mutant error-stays: m.d.sync += port.error.valid.eq(0)
            m.d.sync += [failed.eq(0), port.error.valid.eq(0)]
