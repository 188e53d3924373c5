"""STORE: writes memory in bursts."""

from types import SimpleNamespace

from amaranth.hdl import Cat, Const, Module, Mux, ResetInserter, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from ...stream.queue import PlainQueue, stepped
from ..registers.errors import Error
from ..signature import EngineSignature, StoreOperands, store_request
from .axi import BURST_BEATS, AXI4WriteSignature, Burst, check_bursts, check_data_bits
from .window import WindowCheck, absolute, advance, measure

__all__ = ["WriteDMA"]

#: A burst that awaits its response: whether it ends its command, and its first byte in the window.
_BURST = data.StructLayout({"last": 1, "offset": 32})


class WriteDMA(wiring.Component):
    """The engine STORE.

    Opcode 0 asks a source for ``beats`` beats (``o_request``), takes them from ``i`` and writes them from
    ``offset`` on (:data:`~gradloom.rtl.shell.signature.StoreOperands`). Bursts are cut as in
    :class:`~gradloom.rtl.shell.bus.read_dma.ReadDMA`. The address of a burst is issued when all its beats are
    here, so a slow source never holds the bus. A command is accepted when the beats of the last one are here.

    ``o_request`` follows the start of a command by 3 cycles. ``awvalid`` follows the last beat of a burst on
    ``i`` by 2 cycles and the burst's first ``wvalid`` is a cycle later, one beat a cycle. ``done`` follows
    the last ``bvalid`` by 1 cycle. With a source that takes the request at once and sends from the next cycle
    on, and a memory that answers ``L`` cycles after a burst's last datum, a lone command takes :meth:`cycles`
    from start to done.

    With ``forwards`` beats that are taken may also go to a load port, which is the source's concern. A command with
    ``only`` writes nothing; its ``done`` follows its last beat on ``i`` by 2 cycles, where none before it is open.

    Parameters
    ----------
    data_bits : :class:`int`
        Bus width: 64, 128 or 256.
    addr_bits, id_bits : :class:`int`
        Bus address and id width.
    outstanding : :class:`int`
        Bursts in flight, a power of two.
    forwards : :class:`int`
        1: the operands from ``to_arg`` on count.
    longest : :class:`int`
        Beats of a whole burst, in place of 16: 4, 8 or 16.
    ahead : :class:`bool`
        The source may make a record while STORE takes the one before.

    Members
    -------
    port : ``In(EngineSignature())``
    o_request : ``Out(stream.Signature(store_request(forwards)))``
        Which source is to send how many beats, and where else; the payload is there two cycles ahead, and stays until
        the beats have been taken, or with ``ahead`` until the request is.
    ahead : ``Out(1)``, with ``ahead``
        The payload of ``o_request`` is that of the next request: its command was taken, or waits.
    refuse : ``In(1)``
        A cycle behind the payload of ``o_request``, ``valid`` or not: it asks for what is not there. STORE stops with
        BAD_OPERAND and the command's offset; nothing was asked for.
    i : ``In(stream.Signature(data_bits))``
        The beats; nothing is taken before the request is.
    axi : ``Out(AXI4WriteSignature())``
    base : ``In(64)``
        Window's first byte, a multiple of 4096.
    size : ``In(32)``
        Window's bytes.
    abort : ``In(1)``
        Hold until ``idle``: commands and beats are dropped, no burst begins, what was begun is completed.
    idle : ``Out(1)``
        No burst is in flight.
    error_offset : ``Out(32)``
        Belongs to ``port.error``.
    beat : ``Out(1)``
        A beat went over the bus.
    """

    def __init__(
        self, *, data_bits=128, addr_bits=64, id_bits=1, outstanding=16, forwards=0, longest=BURST_BEATS, ahead=False
    ):
        check_data_bits(data_bits)
        check_bursts(outstanding, longest)
        self.data_bits = data_bits
        self.outstanding = outstanding
        self.forwards = forwards
        self.longest = longest
        self.asks_ahead = ahead
        super().__init__(
            {
                "port": In(EngineSignature()),
                "o_request": Out(stream.Signature(store_request(forwards))),
                **({"ahead": Out(1)} if ahead else {}),
                "refuse": In(1),
                "i": In(stream.Signature(data_bits)),
                "axi": Out(AXI4WriteSignature(addr_bits=addr_bits, data_bits=data_bits, id_bits=id_bits)),
                "base": In(64),
                "size": In(32),
                "abort": In(1),
                "idle": Out(1),
                "error_offset": Out(32),
                "beat": Out(1),
            }
        )

    @staticmethod
    def cycles(offset, beats, latency, *, data_bits=128):
        """Cycles from start to ``done`` of a lone command.

        ``latency``: from last datum to response.
        """
        first = BURST_BEATS - offset // (data_bits // 8) % BURST_BEATS
        # A burst is sent when all of it is here, so the longest is what the bus is behind the source.
        longest = max(min(first, beats), min(max(beats - first, 0), BURST_BEATS))
        return 6 + latency + beats + longest

    @property
    def _depth(self):
        """Beats in the buffer: a burst that leaves and one that comes."""
        return 2 * self.longest

    def elaborate(self, platform):
        m = Module()
        empty = self.abort & self.idle
        # What comes crosses the chip; a burst takes it two cycles later at the soonest.
        m.submodules.beats = fifo = ResetInserter(empty)(PlainQueue(width=self.data_bits, depth=self._depth, late=True))
        m.submodules.bursts = bursts = PlainQueue(width=_BURST.size, depth=self.outstanding)  # await a response
        m.submodules.lengths = lengths = PlainQueue(width=exact_log2(self.longest), depth=4)  # await their data
        m.submodules.check = check = WindowCheck(data_bits=self.data_bits)

        command = self._command(m, check)
        code = self._verdict(m, command)
        buffer = self._collect(m, fifo, command)
        ended = self._run_commands(m, bursts, lengths, command, code, buffer)
        self._issue_bursts(m, fifo, bursts, lengths, command, buffer)
        self._send(m, fifo, bursts, lengths)
        self._report(m, bursts, ended, command.offset, buffer)
        return m

    def _command(self, m, check):
        """Holds a command, and measures its next burst a cycle later.

        Both are in registers.
        """
        args = data.View(StoreOperands, self.port.command.payload.args)
        offset = Signal(32)
        beats = Signal(24)
        known = Signal()
        m.d.comb += [check.offset.eq(args.offset), check.beats.eq(args.beats), check.size.eq(self.size)]
        last, final, room = measure(m, offset, beats, data_bits=self.data_bits, longest=self.longest)
        refuse, misaligned, outside = self.refuse, check.misaligned, check.outside
        only = Signal(name="only") if self.forwards else None
        if self.forwards:
            refuse = refuse | (only & ~self.o_request.payload.forward)
            misaligned, outside = misaligned & ~only, outside & ~only
        return SimpleNamespace(
            args=args,
            offset=offset,
            beats=beats,
            only=only,
            known=known,
            last=last,
            final=final,
            room=room,
            refuse=refuse,
            empty=check.empty,
            misaligned=misaligned,
            outside=outside,
        )

    def _verdict(self, m, command):
        """The code of the error, if the command in the registers is refused."""
        code = Signal(8)
        with m.If(~command.known):
            m.d.comb += code.eq(Error.UNKNOWN_OPCODE)
        with m.Elif(command.empty):
            m.d.comb += code.eq(Error.STORE_LENGTH)
        with m.Elif(command.misaligned):
            m.d.comb += code.eq(Error.STORE_ALIGNMENT)
        with m.Elif(command.outside):
            m.d.comb += code.eq(Error.STORE_WINDOW)
        with m.Else():
            m.d.comb += code.eq(Error.BAD_OPERAND)
        return code

    def _collect(self, m, fifo, command):
        """Takes the beats that the command asks for.

        Counts the beats that are in the buffer and in no burst yet.
        """
        last, only = command.last, command.only
        loose = Signal(range(self._depth + 1))
        issue = Signal()
        come = Signal()
        m.d.comb += come.eq(self.i.valid & self.i.ready)
        # What is only forwarded needs no room.
        keep, room = (come & ~only, fifo.w_rdy | only) if self.forwards else (come, fifo.w_rdy)
        # Whether a beat comes is known late: it is counted a cycle later, and looked at beside the count until then.
        came = Signal()
        enough = Signal()
        rest = Signal.like(loose)
        # ``loose + came`` less the burst's beats, in one carry chain, whose end tells that it is not below 0.
        short = Cat(~last, Const(~0, len(loose) - len(last)))
        m.d.comb += Cat(Signal(), rest, enough).eq(Cat(Const(1, 1), loose) + Cat(came, short))
        m.d.sync += [came.eq(keep & ~self.abort), loose.eq(Mux(issue, rest, stepped(loose, came, 0)))]

        ask = self.o_request
        pull = Signal(24)  # beats of this command that are still to come
        more = Signal()  # ``pull`` is not 0
        # What comes in the first cycle of ``abort`` is dropped with the buffer: the source need not see it.
        m.d.comb += self.i.ready.eq(room & more & ~ask.valid)
        with m.If(ask.ready):
            m.d.sync += ask.valid.eq(0)
        with m.If(come):
            m.d.sync += [pull.eq(pull - 1), more.eq(pull != 1)]
        return SimpleNamespace(loose=loose, enough=enough, issue=issue, keep=keep, pull=pull, more=more)

    def _run_commands(self, m, bursts, lengths, command, code, buffer):
        """Takes and judges commands, and issues their bursts.

        It asks the command's source for beats. A burst is issued when all its beats are here. Returns how a command
        ends without bursts: it is refused, or was forwarded.
        """
        axi, port, ask = self.axi, self.port, self.o_request
        args, offset, beats, known = command.args, command.offset, command.beats, command.known
        refused = Signal(8)
        forwarded = Signal(name="forwarded") if self.forwards else None
        names = ["source", "arg", *(("to", "to_arg", "forward", "only") if self.forwards else ())]
        tell = [ask.payload.beats.eq(args.beats), *(ask.payload[name].eq(args[name]) for name in names)]
        with m.FSM() as fsm:
            with m.State("IDLE"):
                m.d.comb += port.command.ready.eq(~self.abort)
                m.d.sync += [
                    offset.eq(args.offset),
                    beats.eq(args.beats),
                    *([] if self.asks_ahead else tell),
                    known.eq(port.command.payload.opcode == 0),
                ]
                if self.forwards:
                    m.d.sync += command.only.eq(args.only)
                with m.If(port.command.valid & port.command.ready):
                    m.next = "CHECK"
            with m.State("CHECK"):
                m.next = "DECIDE"
            with m.State("DECIDE"):
                m.d.sync += refused.eq(code)
                with m.If(self.abort):
                    m.next = "IDLE"
                # mutant window-unchecked: with m.Elif(~known | command.refuse | command.empty | command.misaligned):
                with m.Elif(~known | command.refuse | command.empty | command.misaligned | command.outside):
                    m.next = "REFUSE"
                with m.Else():
                    m.d.sync += [ask.valid.eq(1), buffer.pull.eq(ask.payload.beats), buffer.more.eq(1)]
                    m.next = "BURST"
                    if self.forwards:
                        with m.If(command.only):
                            m.next = "FORWARD"
            with m.State("BURST"):
                m.d.comb += buffer.issue.eq(
                    (~axi.awvalid | axi.awready) & bursts.w_rdy & lengths.w_rdy & buffer.enough & ~self.abort
                )
                with m.If(buffer.issue):
                    m.next = "MEASURE"
                    after = advance(offset, data_bits=self.data_bits, longest=self.longest)
                    m.d.sync += [beats.eq(beats - command.room), offset.eq(after)]
                    with m.If(command.final):
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
            if self.forwards:
                with m.State("FORWARD"):
                    # Done in order: everything before has to be first.
                    # mutant out-of-order: m.d.comb += forwarded.eq(~buffer.more)
                    m.d.comb += forwarded.eq(~buffer.more & ~bursts.r_rdy)
                    with m.If(forwarded | self.abort):
                        m.next = "IDLE"
        if self.asks_ahead:
            # The payload is that of a command which was taken, until its request is, else of the one that waits.
            holds = fsm.ongoing("CHECK") | fsm.ongoing("DECIDE") | fsm.ongoing("REFUSE") | ask.valid
            with m.If(~holds):
                # mutant ahead-of-none: m.d.sync += [*tell, self.ahead.eq(~self.abort)]
                m.d.sync += [*tell, self.ahead.eq(port.command.valid & ~self.abort)]
            with m.Elif(ask.valid & ask.ready):
                m.d.sync += self.ahead.eq(0)
        return SimpleNamespace(refuses=fsm.ongoing("REFUSE"), refused=refused, forwarded=forwarded)

    def _issue_bursts(self, m, fifo, bursts, lengths, command, buffer):
        """Issues a burst: its address, and its length to two queues.

        The queues hold the bursts that await data and a response.
        """
        axi, offset, last, issue = self.axi, command.offset, command.last, buffer.issue
        burst_i = data.View(_BURST, bursts.w_data)
        m.d.comb += [
            fifo.w_data.eq(self.i.payload),
            fifo.w_en.eq(buffer.keep),
            bursts.w_en.eq(issue),
            burst_i.last.eq(command.final),
            burst_i.offset.eq(offset),
            lengths.w_en.eq(issue),
            # mutant burst-too-long: lengths.w_data.eq(last + 1),
            lengths.w_data.eq(last),
            axi.awsize.eq(exact_log2(self.data_bits // 8)),
            axi.awburst.eq(Burst.INCR),
            axi.awcache.eq(0b0011),
            axi.awprot.eq(0),
            axi.wstrb.eq(~0),
        ]
        with m.If(axi.awready):
            m.d.sync += axi.awvalid.eq(0)
        with m.If(issue):
            m.d.sync += [axi.awvalid.eq(1), axi.awaddr.eq(absolute(self.base, offset)), axi.awlen.eq(last)]

    def _send(self, m, fifo, bursts, lengths):
        """Sends the data of the bursts that were issued, in order."""
        axi = self.axi
        sent = Signal(exact_log2(self.longest))
        ending = Signal()
        move = Signal()
        m.d.comb += [
            move.eq(lengths.r_rdy & (~axi.wvalid | axi.wready)),
            ending.eq(sent == lengths.r_data),
            fifo.r_en.eq(move),
            lengths.r_en.eq(move & ending),
            self.idle.eq(~bursts.r_rdy & ~axi.awvalid & ~axi.wvalid),
        ]
        with m.If(axi.wready):
            m.d.sync += axi.wvalid.eq(0)
        with m.If(move):
            m.d.sync += [
                axi.wvalid.eq(1),
                axi.wdata.eq(fifo.r_data),
                axi.wlast.eq(ending),
                sent.eq(Mux(ending, 0, sent + 1)),
            ]
        m.d.sync += self.beat.eq(axi.wvalid & axi.wready)

    def _report(self, m, bursts, ended, offset, buffer):
        """Takes responses and reports ``done`` with a command's last.

        Registers the first error until the abort.
        """
        axi, port, ask = self.axi, self.port, self.o_request
        failed = Signal()
        burst_o = data.View(_BURST, bursts.r_data)
        m.d.comb += [axi.bready.eq(1), bursts.r_en.eq(axi.bvalid)]
        m.d.sync += port.done.eq(0)
        # One that nobody waits for belongs to a burst from before a reset.
        with m.If(axi.bvalid & bursts.r_rdy & ~failed & ~self.abort):
            with m.If(axi.bresp[1]):
                m.d.sync += [
                    failed.eq(1),
                    port.error.valid.eq(1),
                    port.error.code.eq(Mux(axi.bresp[0], Error.WRITE_DECERR, Error.WRITE_SLVERR)),
                    self.error_offset.eq(burst_o.offset),
                ]
            with m.Else():
                m.d.sync += port.done.eq(burst_o.last)
        with m.Elif(ended.refuses & ~bursts.r_rdy & ~failed):
            m.d.sync += [
                failed.eq(1),
                port.error.valid.eq(1),
                port.error.code.eq(ended.refused),
                self.error_offset.eq(offset),
            ]
        if self.forwards:
            with m.If(ended.forwarded & ~failed):
                m.d.sync += port.done.eq(1)
        with m.If(self.abort):
            m.d.sync += [
                failed.eq(0),
                port.error.valid.eq(0),
                port.done.eq(0),
                buffer.loose.eq(0),
                # mutant more-stays:
                buffer.more.eq(0),
                ask.valid.eq(0),
            ]
