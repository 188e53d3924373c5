"""What every machine has around its engines: registers, program, bus, counters, interrupt."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from .bus.axi import AXI4Signature, AXILiteSignature
from .bus.read_dma import ReadDMA
from .bus.write_dma import WriteDMA
from .counters import Counters
from .registers.axilite import RegisterFile
from .sequencer import Sequencer
from .signature import ENGINES, Engine, EngineSignature, Health, LoadBeat, StoreRequest, Trace

__all__ = ["Shell"]


class Shell(wiring.Component):
    """Registers, sequencer, DMA and counters, with a port for each engine.

    Parameters
    ----------
    rows, panels, rank, classes : :class:`int`
        What the registers CONFIG tell; 0 to 255 each.
    data_bits : :class:`int`
        Width of ``m_axi``: 64, 128 or 256.
    addr_bits, id_bits : :class:`int`
        Address and id width of ``m_axi``.
    slots : :class:`int`
        Valid bits of the forward cache.
    outstanding : :class:`int`
        Bursts in flight in each direction.
    depth : :class:`int`
        Commands of an engine that are queued or under way.
    requests : :class:`int`
        1: a request may run between parts of a program; see :class:`~.sequencer.Sequencer`.

    Members
    -------
    s_axi : ``In(AXILiteSignature(addr_bits=12, data_bits=32))``
    m_axi : ``Out(AXI4Signature())``
    irq : ``Out(1)``
        High while an enabled interrupt is pending.
    array, head, encode : ``Out(EngineSignature())``
        The engines that are not in the shell.
    o_load : ``Out(stream.Signature(LoadBeat(data_bits)))``
        What LOAD read.
    refuse_load : ``In(1)``
        With a beat that is taken: it has no place; see ``refuse`` of :class:`~.bus.read_dma.ReadDMA`.
    o_request : ``Out(stream.Signature(StoreRequest))``
        Which source STORE wants beats of.
    refuse_store : ``In(1)``
        Such beats there are not; see ``refuse`` of :class:`~.bus.write_dma.WriteDMA`.
    i_store : ``In(stream.Signature(data_bits))``
        Those beats.
    health : ``In(Health)``
        Events of this cycle.
    abort : ``Out(1)``
        Engines go back to their state after reset: high for at least 4 cycles after an error, for 3 before a program
        begins. Streams of the shell are quiet then.
    trace : ``Out(Trace)``
        For test benches.
    """

    def __init__(
        self,
        *,
        rows,
        panels,
        rank,
        classes,
        data_bits=128,
        addr_bits=64,
        id_bits=1,
        slots=16384,
        outstanding=8,
        depth=16,
        requests=0,
    ):
        for name, value in (("rows", rows), ("panels", panels), ("rank", rank), ("classes", classes)):
            if not 0 <= value <= 255:
                raise ValueError(f"{name} is {value!r}, must be 0 to 255")
        if not 32 <= addr_bits <= 64:
            raise ValueError(f"addr_bits is {addr_bits!r}, must be 32 to 64")
        self.rows, self.panels, self.rank, self.classes = rows, panels, rank, classes
        self.data_bits = data_bits
        self.slots = slots
        bus = {"data_bits": data_bits, "addr_bits": addr_bits, "id_bits": id_bits}
        self._read = ReadDMA(**bus, outstanding=outstanding)
        self._write = WriteDMA(**bus, outstanding=outstanding)
        self._sequencer = Sequencer(data_bits=data_bits, slots=slots, depth=depth, requests=bool(requests))
        super().__init__(
            {
                "s_axi": In(AXILiteSignature(addr_bits=12, data_bits=32)),
                "m_axi": Out(AXI4Signature(**bus)),
                "irq": Out(1),
                "array": Out(EngineSignature()),
                "head": Out(EngineSignature()),
                "encode": Out(EngineSignature()),
                "o_load": Out(stream.Signature(LoadBeat(data_bits))),
                "refuse_load": In(1),
                "o_request": Out(stream.Signature(StoreRequest)),
                "refuse_store": In(1),
                "i_store": In(stream.Signature(data_bits)),
                "health": In(Health),
                "abort": Out(1),
                "trace": Out(Trace),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.registers = registers = RegisterFile(requests=self._sequencer.requests)
        m.submodules.counters = counters = Counters()
        m.submodules.sequencer = seq = self._sequencer
        m.submodules.read = read = self._read
        m.submodules.write = write = self._write

        connect(m, flipped(self.s_axi), registers.bus)
        connect(m, seq.engine_load, read.port)
        connect(m, seq.engine_store, write.port)
        for e in ENGINES:
            if e not in (Engine.LOAD, Engine.STORE):
                connect(m, seq.engine(e), flipped(getattr(self, e.name.lower())))
        connect(m, seq.o_fetch, read.i_fetch)
        connect(m, read.o_fetch, seq.i_fetch)
        connect(m, read.o, flipped(self.o_load))
        m.d.comb += [read.refuse.eq(self.refuse_load), write.refuse.eq(self.refuse_store)]
        connect(m, write.o_request, flipped(self.o_request))
        connect(m, flipped(self.i_store), write.i)

        for dma in (read, write):
            for name, member in dma.axi.signature.members.items():
                ours, theirs = getattr(self.m_axi, name), getattr(dma.axi, name)
                m.d.comb += ours.eq(theirs) if member.flow is Out else theirs.eq(ours)
            m.d.comb += [dma.base.eq(seq.base), dma.size.eq(seq.size), dma.abort.eq(seq.bus_abort)]

        stored, pulse, value = registers.stored, registers.pulse, registers.value
        # Writing another identity makes what is cached worthless.
        identity = Signal.like(stored.BASE_ID.value)
        m.d.sync += identity.eq(stored.BASE_ID.value)
        m.d.comb += [
            registers.busy.program.eq(seq.busy),
            registers.busy.request.eq(seq.request_busy),
            seq.bell.eq(pulse.CONTROL.bell),
            seq.reset.eq(pulse.CONTROL.reset),
            seq.request_bell.eq(pulse.CONTROL.request),
            seq.cache_clear.eq(pulse.CACHE_CLEAR.clear | (identity != stored.BASE_ID.value)),
            seq.base[:32].eq(stored.WINDOW_BASE_LO.value),
            seq.base[32:].eq(stored.WINDOW_BASE_HI.value),
            seq.size.eq(stored.WINDOW_SIZE.value),
            seq.program_offset.eq(stored.PROGRAM_OFFSET.value),
            seq.program_commands.eq(stored.PROGRAM_COMMANDS.value),
            seq.request_offset.eq(stored.REQUEST_OFFSET.value),
            seq.request_commands.eq(stored.REQUEST_COMMANDS.value),
            seq.watchdog.eq(stored.WATCHDOG.cycles),
            seq.load_offset.eq(read.error_offset),
            seq.store_offset.eq(write.error_offset),
            seq.beat.eq(read.beat | write.beat),
            seq.bus_idle.eq(read.idle & write.idle),
            registers.set.IRQ_STATUS.done.eq(seq.irq_done),
            registers.set.IRQ_STATUS.error.eq(seq.irq_error),
            registers.set.IRQ_STATUS.request.eq(seq.irq_request),
            self.abort.eq(seq.abort),
            self.trace.eq(seq.trace),
            counters.clear.eq(seq.cleared),
            counters.counting.eq(seq.counting),
            counters.phase.eq(seq.phase),
            counters.finished.eq(seq.finished),
            counters.dropped.eq(seq.dropped),
            counters.read_beat.eq(read.beat & seq.counting),
            counters.write_beat.eq(write.beat & seq.counting),
            counters.looked_up.eq(seq.looked_up),
            counters.hits.eq(seq.hits),
            counters.misses.eq(seq.misses),
            counters.health.eq(self.health),
            counters.raddr.eq(registers.raddr),
        ]
        m.d.sync += self.irq.eq((stored.IRQ_ENABLE.as_value() & stored.IRQ_STATUS.as_value()).any())

        for name in Counters.OWN:
            m.d.comb += value[name].eq(counters.value[name])
        m.d.comb += [
            value.CONFIG_ARRAY.rows.eq(self.rows),
            value.CONFIG_ARRAY.panels.eq(self.panels),
            value.CONFIG_ARRAY.rank.eq(self.rank),
            value.CONFIG_ARRAY.classes.eq(self.classes),
            value.CONFIG_MEMORY.data_bits.eq(self.data_bits),
            value.CONFIG_MEMORY.slots.eq(self.slots),
            value.STATUS.busy.eq(seq.busy),
            value.STATUS.done.eq(seq.done),
            value.STATUS.error.eq(seq.error),
            value.STATUS.draining.eq(seq.draining),
            value.STATUS.request_busy.eq(seq.request_busy),
            value.STATUS.request_running.eq(seq.request_running),
            value.STATUS.request_done.eq(seq.request_done),
            value.STATUS.request_error.eq(seq.request_error),
            value.STATUS.refused.eq(seq.refused),
            value.STATUS.requests.eq(seq.requests),
            value.REQUEST_WAITED.value.eq(seq.request_waited),
            value.REQUEST_CYCLES.value.eq(seq.request_cycles),
            value.ERROR_CODE.code.eq(seq.error_code),
            value.ERROR_COMMAND.index.eq(seq.error_command),
            value.ERROR_COMMAND.request.eq(seq.error_request),
            value.ERROR_ADDRESS_LO.value.eq(seq.error_address[:32]),
            value.ERROR_ADDRESS_HI.value.eq(seq.error_address[32:]),
        ]
        return m
