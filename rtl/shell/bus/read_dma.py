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
from .axi import AXI4ReadSignature, Burst, check_data_bits
from .window import WindowCheck, absolute, advance, measure

__all__ = ["ReadDMA", "FetchRequest", "FetchBeat"]

#: A burst of the program: ``beats`` of at most 16, not across a multiple of 16 beats.
FetchRequest = data.StructLayout({"offset": 32, "beats": 5})


def FetchBeat(data_bits=128):
    """A beat of the program and how the bus answered."""
    return data.StructLayout({"data": data_bits, "resp": 2})


#: A burst in flight: whether it is the program's, whether it ends its command, and its first byte in the window.
_BURST = data.StructLayout({"fetch": 1, "last": 1, "offset": 32})
#: Where a command's beats go.
_CONTEXT = data.StructLayout({"dest": 8, "arg": 32})


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

    Members
    -------
    port : ``In(EngineSignature())``
    o : ``Out(stream.Signature(LoadBeat(data_bits)))``
        What was read. A consumer must take it in the end without a further command having to be fetched.
    refuse : ``In(1)``
        With a beat that is taken: it has no place where it goes. LOAD stops with BAD_OPERAND and the beat's offset.
    i_fetch : ``In(stream.Signature(FetchRequest))``
        Has priority over LOAD.
    o_fetch : ``Out(stream.Signature(FetchBeat(data_bits)))``
        The requester keeps room for what it asks for.
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

    def __init__(self, *, data_bits=128, addr_bits=64, id_bits=1, outstanding=8):
        check_data_bits(data_bits)
        if outstanding not in (1, 2, 4, 8, 16, 32):
            raise ValueError(f"outstanding is {outstanding!r}, must be a power of two from 1 to 32")
        self.data_bits = data_bits
        self.outstanding = outstanding
        super().__init__(
            {
                "port": In(EngineSignature()),
                "o": Out(stream.Signature(LoadBeat(data_bits))),
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

    def elaborate(self, platform):
        m = Module()
        queue = ShortQueue if 2 <= self.outstanding <= 16 else SyncFIFOBuffered
        m.submodules.bursts = bursts = queue(width=_BURST.size, depth=self.outstanding)
        m.submodules.contexts = contexts = ResetInserter(self.abort)(SyncFIFOBuffered(width=_CONTEXT.size, depth=4))
        m.submodules.check = check = WindowCheck(data_bits=self.data_bits)
        failed = Signal()

        command = self._take_commands(m, bursts, contexts, check)
        self._issue_bursts(m, bursts, command)
        head, head_valid, take = self._receive(m, bursts)
        beat = self._hand_on(m, bursts, contexts, failed, head, head_valid, take)
        refused_beat = self._finish_commands(m, contexts, beat.index)
        self._report(m, bursts, contexts, failed, command, beat, refused_beat)
        return m

    def _take_commands(self, m, bursts, contexts, check):
        """Takes a command, checks it, and requests its bursts one by one.

        The command is held in registers. A refused command requests no burst.
        """
        axi, port = self.axi, self.port
        args = data.View(LoadOperands, port.command.payload.args)
        offset = Signal(32)
        beats = Signal(24)
        known = Signal()
        m.d.comb += [check.offset.eq(args.offset), check.beats.eq(args.beats), check.size.eq(self.size)]
        length, final, room = measure(m, offset, beats, data_bits=self.data_bits)

        free = Signal()  # the address register can take another burst
        issue = Signal()  # ... and a burst of LOAD's goes there
        m.d.comb += free.eq((~axi.arvalid | axi.arready) & bursts.w_rdy & ~self.abort)
        m.d.comb += self.i_fetch.ready.eq(free)
        context_i = data.View(_CONTEXT, contexts.w_data)
        held = Signal(_CONTEXT)
        m.d.comb += context_i.eq(held)
        code = self._verdict(m, check, known)
        refused = Signal(8)

        with m.FSM() as fsm:
            with m.State("IDLE"):
                m.d.comb += port.command.ready.eq(contexts.w_rdy & ~self.abort)
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
                    m.d.sync += [beats.eq(beats - room), offset.eq(advance(offset, data_bits=self.data_bits))]
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

        return SimpleNamespace(
            fsm=fsm, offset=offset, length=length, final=final, free=free, issue=issue, refused=refused
        )

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
        axi, length = self.axi, command.length
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
                axi.arlen.eq(Mux(self.i_fetch.valid, self.i_fetch.payload.beats, length) - 1),
            ]

    def _receive(self, m, bursts):
        """Takes beats into a skid buffer, so that rready is a register.

        Returns the oldest beat, its ``valid`` and its ``take``.
        """
        axi = self.axi
        beat = data.StructLayout({"data": self.data_bits, "resp": 2, "last": 1})
        head = Signal(beat)
        skid = Signal(beat)
        head_valid = Signal()
        skid_valid = Signal()
        take = Signal()
        come = Cat(axi.rdata, axi.rresp, axi.rlast)
        # What nobody asked for was asked for before a reset: it is taken and dropped.
        comes = Signal()
        asked = Signal()  # a burst that the queue does not show yet
        m.d.sync += asked.eq(bursts.w_en)
        m.d.comb += [axi.rready.eq(~skid_valid), comes.eq(axi.rvalid & (bursts.r_rdy | asked))]
        with m.If(~head_valid | take):
            m.d.sync += [
                head.as_value().eq(Mux(skid_valid, skid.as_value(), come)),
                head_valid.eq(skid_valid | comes),
                skid_valid.eq(0),
            ]
        with m.Elif(comes & ~skid_valid):
            m.d.sync += [skid.as_value().eq(come), skid_valid.eq(1)]
        m.d.sync += self.beat.eq(comes & axi.rready)
        return head, head_valid, take

    def _hand_on(self, m, bursts, contexts, failed, head, head_valid, take):
        """Sends the oldest beat to ``o`` or ``o_fetch``.

        It is taken when it has left, or when no output asks for it.
        """
        axi = self.axi
        burst_o = data.View(_BURST, bursts.r_data)
        context_o = data.View(_CONTEXT, contexts.r_data)
        index = Signal(24)
        mine = Signal()
        in_burst = Signal(4)
        bad = Signal()
        drop = Signal()  # ``abort``; a beat that leaves in its first cycle goes where nobody asks for it
        m.d.sync += drop.eq(self.abort)
        m.d.comb += [
            mine.eq(head_valid & ~burst_o.fetch & ~drop & ~failed),
            bad.eq(head.resp[1]),
            self.o.valid.eq(mine & ~bad),
            self.o.payload.data.eq(head.data),
            self.o.payload.first.eq(index == 0),
            self.o.payload.last.eq(burst_o.last & head.last),
            self.o.payload.dest.eq(context_o.dest),
            self.o.payload.arg.eq(context_o.arg),
            self.o.payload.index.eq(index),
            self.o_fetch.valid.eq(head_valid & burst_o.fetch & ~drop),
            self.o_fetch.payload.data.eq(head.data),
            self.o_fetch.payload.resp.eq(head.resp),
            take.eq(head_valid & (~self.o.valid | self.o.ready) & (~self.o_fetch.valid | self.o_fetch.ready)),
            bursts.r_en.eq(take & head.last),
            # mutant idle-too-early: self.idle.eq(~axi.arvalid),
            self.idle.eq(~bursts.r_rdy & ~axi.arvalid),
        ]
        with m.If(take):
            m.d.sync += in_burst.eq(Mux(head.last, 0, in_burst + 1))
        return SimpleNamespace(index=index, in_burst=in_burst, mine=mine, bad=bad, resp=head.resp)

    def _finish_commands(self, m, contexts, index):
        """Counts a command's beats and reports ``done`` with the last.

        Beats count as they leave. Returns whether a command is refused.
        """
        port = self.port
        m.d.sync += port.done.eq(0)
        refused_beat = Signal()
        m.d.comb += refused_beat.eq(self.o.valid & self.o.ready & self.refuse)
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += index.eq(index + 1)
            with m.If(self.o.payload.last):
                m.d.comb += contexts.r_en.eq(1)
                m.d.sync += [port.done.eq(~self.refuse), index.eq(0)]
        return refused_beat

    def _report(self, m, bursts, contexts, failed, command, beat, refused_beat):
        """Registers the first error, which sticks until the sequencer aborts."""
        port, shift, index = self.port, self._shift, beat.index
        burst_o = data.View(_BURST, bursts.r_data)
        low = Signal(4)
        m.d.comb += low.eq(burst_o.offset[shift : shift + 4] + beat.in_burst)
        # Code and place follow what is there until something fails, so that what says so need not reach all of them.
        turned_down = Signal()
        m.d.comb += turned_down.eq(command.fsm.ongoing("REFUSE") & ~contexts.r_rdy)
        with m.If(~failed):
            m.d.sync += [
                port.error.code.eq(
                    Mux(
                        turned_down,
                        command.refused,
                        Mux(beat.bad, Mux(beat.resp[0], Error.READ_DECERR, Error.READ_SLVERR), Error.BAD_OPERAND),
                    )
                ),
                self.error_offset.eq(
                    Mux(turned_down, command.offset, Cat(Const(0, shift), low, burst_o.offset[shift + 4 :]))
                ),
            ]
            with m.If((beat.mine & beat.bad) | refused_beat | turned_down):
                m.d.sync += [failed.eq(1), port.error.valid.eq(1)]
        with m.If(self.abort):
            # mutant error-stays: m.d.sync += [failed.eq(0), port.done.eq(0), index.eq(0)]
            m.d.sync += [failed.eq(0), port.error.valid.eq(0), port.done.eq(0), index.eq(0)]
