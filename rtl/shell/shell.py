"""The shell: registers, program, bus, counters and interrupt."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..hierarchy import place
from .bus.axi import AXI4Signature, AXILiteSignature
from .bus.read_dma import ReadDMA
from .bus.read_ports import ReadPorts, burst_words
from .bus.write_dma import WriteDMA
from .bus.write_ports import WritePorts
from .counters import Counters
from .registers.axilite import RegisterFile
from .sequencer.sequencer import Sequencer
from .signature import EngineSignature, Health, LoadBeat, Trace, store_request
from .table import PROGRAM_FORMAT, TABLE_FORMAT, machine_table, table_words

__all__ = ["Shell"]


class Shell(wiring.Component):
    """Registers, sequencer, DMA and counters, with a port for each engine.

    Parameters
    ----------
    engines : :class:`~.engines.Engines`
        Of the machine; each has a port of its name.
    parameters : mapping
        Integers by name, for the machine table.
    loop : pair of :class:`~.engines.Engine` and :class:`~.engines.Loop`, optional
        For the machine table.
    data_bits : :class:`int`
        Width of a beat: 64, 128 or 256.
    addr_bits, id_bits : :class:`int`
        Address and id width of the managers.
    slots : :class:`int`
        Valid bits of the forward cache.
    outstanding : :class:`int`
        Bursts in flight in each direction, of each port.
    depth : :class:`int`
        Commands of an engine that are queued or under way.
    requests : :class:`int`
        1: a request may run between parts of a program; see :class:`~.sequencer.Sequencer`.
    forwards : :class:`int`
        1: STORE may send its beats to a load port, too; see :class:`~.bus.write_dma.WriteDMA`.
    ports : :class:`int`
        AXI4 managers: 1, 2 or 4. Several share the addresses by stripes; see :mod:`~.bus.read_ports`.
    port_bits : :class:`int`, optional
        Width of each manager; ``data_bits`` unless given.

    Members
    -------
    s_axi : ``In(AXILiteSignature(addr_bits=12, data_bits=32))``
    m_axi, m_axi_1, ... : ``Out(AXI4Signature())``
        One for each of ``ports``.
    irq : ``Out(1)``
        High while an enabled interrupt is pending.
    array, ... : ``Out(EngineSignature())``
        The engines that are not in the shell, by name.
    o_load : ``Out(stream.Signature(LoadBeat(data_bits, ports)))``
        What LOAD read.
    refuse_load : ``In(1)``
        A cycle behind a beat that was taken: it has no place; see ``refuse`` of :class:`~.bus.read_dma.ReadDMA`.
    o_request : ``Out(stream.Signature(store_request(forwards)))``
        Which source STORE wants beats of.
    ahead : ``Out(1)``, where a store port is told ahead
        See :class:`~.bus.write_dma.WriteDMA`.
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

    Attributes
    ----------
    managers : list
        Names of the AXI4 managers.
    """

    def __init__(
        self,
        engines,
        *,
        parameters=None,
        loop=None,
        data_bits=128,
        addr_bits=64,
        id_bits=1,
        slots=16384,
        outstanding=16,
        depth=16,
        requests=0,
        forwards=0,
        ports=1,
        port_bits=None,
    ):
        if not 32 <= addr_bits <= 64:
            raise ValueError(f"addr_bits is {addr_bits!r}, must be 32 to 64")
        self.table = machine_table(engines, parameters or {}, loop)
        self.engines = engines
        self.data_bits = data_bits
        self.slots = slots
        port_bits = port_bits or data_bits
        bus = {"data_bits": data_bits, "addr_bits": addr_bits, "id_bits": id_bits}
        flight = {"outstanding": ports * outstanding, "longest": burst_words(data_bits, port_bits)}
        self._read = ReadDMA(**bus, **flight, ports=len(engines.loads))
        self._write = WriteDMA(**bus, **flight, forwards=forwards, ahead=engines.ahead)
        self._sequencer = Sequencer(
            engines,
            data_bits=data_bits,
            slots=slots,
            depth=depth,
            requests=bool(requests),
            forwards=forwards,
            longest=flight["longest"],
        )
        self._ports = None
        if ports > 1:
            shared = {**bus, "ports": ports, "port_bits": port_bits, "outstanding": outstanding}
            self._ports = ReadPorts(**shared), WritePorts(**shared)
        self.managers = ["m_axi", *(f"m_axi_{n}" for n in range(1, ports))]
        super().__init__(
            {
                "s_axi": In(AXILiteSignature(addr_bits=12, data_bits=32)),
                **dict.fromkeys(self.managers, Out(AXI4Signature(**bus | {"data_bits": port_bits}))),
                "irq": Out(1),
                **{e.name: Out(EngineSignature()) for e in engines.own},
                "o_load": Out(stream.Signature(LoadBeat(data_bits, len(engines.loads)))),
                "refuse_load": In(1),
                "o_request": Out(stream.Signature(store_request(forwards))),
                **({"ahead": Out(1)} if engines.ahead else {}),
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
        m.submodules.counters = counters = Counters(len(self.engines.phases))
        m.submodules.sequencer = seq = self._sequencer
        # Units of their own: what comes from the engines is late in its cycle and has little logic left.
        read = place(m, "read", self._read, platform)
        write = place(m, "write", self._write, platform)

        connect(m, flipped(self.s_axi), registers.bus)
        connect(m, seq.engine_load, read.port)
        connect(m, seq.engine_store, write.port)
        for e in self.engines.own:
            connect(m, seq.engine(e), flipped(getattr(self, e.name)))
        connect(m, seq.o_fetch, read.i_fetch)
        connect(m, read.o_fetch, seq.i_fetch)
        connect(m, read.o, flipped(self.o_load))
        m.d.comb += [read.refuse.eq(self.refuse_load), write.refuse.eq(self.refuse_store)]
        connect(m, write.o_request, flipped(self.o_request))
        if self.engines.ahead:
            m.d.comb += self.ahead.eq(write.ahead)
        connect(m, flipped(self.i_store), write.i)

        for dma, buses in self._manage(m, platform):
            for inner, outer in buses:
                for name, member in inner.signature.members.items():
                    ours, theirs = getattr(outer, name), getattr(inner, name)
                    m.d.comb += ours.eq(theirs) if member.flow is Out else theirs.eq(ours)
            m.d.comb += [dma.base.eq(seq.base), dma.size.eq(seq.size), dma.abort.eq(seq.bus_abort)]

        self._control(m, registers, counters)
        self._tell(m, registers, counters)
        return m

    def _manage(self, m, platform):
        """Of each DMA, pairs of an inner bus and the manager whose channels it drives."""
        outer = [getattr(self, name) for name in self.managers]
        both = self._read, self._write
        if self._ports is None:
            return [(dma, [(dma.axi, outer[0])]) for dma in both]
        for name, dma, unit in zip(("read_ports", "write_ports"), both, self._ports):
            place(m, name, unit, platform)
            connect(m, dma.axi, unit.wide)
        inner = [[getattr(unit, f"port_{n}") for n in range(len(outer))] for unit in self._ports]
        return [(dma, list(zip(buses, outer))) for dma, buses in zip(both, inner)]

    def _control(self, m, registers, counters):
        """Connects registers to the sequencer, and events to their readers.

        Events go to interrupts and counters.
        """
        seq, read, write = self._sequencer, self._read, self._write
        stored, pulse = registers.stored, registers.pulse
        # Writing another identity makes what is cached worthless.
        identity = Signal.like(stored.BASE_ID.value)
        changed = Signal()
        m.d.sync += [identity.eq(stored.BASE_ID.value), changed.eq(identity != stored.BASE_ID.value)]
        m.d.comb += [
            registers.busy.program.eq(seq.busy),
            registers.busy.request.eq(seq.request_busy),
            seq.bell.eq(pulse.CONTROL.bell),
            seq.reset.eq(pulse.CONTROL.reset),
            seq.request_bell.eq(pulse.CONTROL.request),
            seq.cache_clear.eq(pulse.CACHE_CLEAR.clear | changed),
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

    def _tell(self, m, registers, counters):
        """The machine's table, counters and state for the host to read."""
        seq, value = self._sequencer, registers.value
        word = Signal(32)
        m.d.sync += word.eq(0)
        with m.Switch(registers.stored.TABLE_PLACE.word):
            for place, bits in enumerate(table_words(self.table)):
                with m.Case(place):
                    m.d.sync += word.eq(bits)

        for name in Counters.OWN:
            m.d.comb += value[name].eq(counters.value[name])
        m.d.comb += [
            value.MACHINE.table_format.eq(TABLE_FORMAT),
            value.MACHINE.program_format.eq(PROGRAM_FORMAT),
            value.MACHINE.engines.eq(len(self.engines.own)),
            value.MACHINE.phases.eq(len(self.engines.phases)),
            value.TABLE_WORD.bytes.eq(word),
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
