"""Cycle, traffic and health counters."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .engines import COUNTED
from .registers.axilite import RegisterFile
from .signature import Health

__all__ = ["Counters"]


class Counters(wiring.Component):
    """The counters of the register map; they saturate.

    They clear at the bell.

    Phase counters share one adder: a small memory holds those of the phases that are not counting.

    Parameters
    ----------
    phases : :class:`int`
        Of the machine, at most 16; the registers of others read 0.

    Members
    -------
    clear : ``In(1)``
        All counters become 0.
    counting : ``In(1)``, phase : ``In(4)``
        This cycle counts, and to which phase.
    finished, dropped, read_beat, write_beat : ``In(1)``
    looked_up : ``In(1)``, hits, misses : ``In(32)``
    health : ``In(Health)``
    raddr : ``In(12)``
        Address that is being read.
    value : ``Out(RegisterFile.Value)``
        Only the counters' members are driven; all phase counters show the one at ``raddr``.
    """

    OWN = (
        "CYCLES_LO",
        "CYCLES_HI",
        "COMMANDS_DONE",
        "COMMANDS_DROPPED",
        "CACHE_HITS",
        "CACHE_MISSES",
        "READ_BEATS",
        "WRITE_BEATS",
        "SATURATED",
        "UNDERFLOWED",
        "GRADIENT_NORM_LO",
        "GRADIENT_NORM_HI",
        *(f"PHASE_CYCLES{i}" for i in range(COUNTED)),
    )

    def __init__(self, phases=COUNTED):
        self.phases = phases
        super().__init__(
            {
                "clear": In(1),
                "counting": In(1),
                "phase": In(4),
                "finished": In(1),
                "dropped": In(1),
                "read_beat": In(1),
                "write_beat": In(1),
                "looked_up": In(1),
                "hits": In(32),
                "misses": In(32),
                "health": In(Health),
                "raddr": In(12),
                "value": Out(RegisterFile.Value),
            }
        )

    def elaborate(self, platform):
        m = Module()

        def counter(amount, *names, endless=False):
            count = Signal(32 * len(names), name=names[0].lower())
            total = Signal(len(count) + 1, name=f"{names[0].lower()}_next")
            # Events are a cycle late, so that whoever makes them has its own cycle for it.
            amount_ = Signal(len(amount), name=f"{names[0].lower()}_amount")
            m.d.sync += amount_.eq(Mux(self.clear, 0, amount))
            m.d.comb += total.eq(count + amount_)
            m.d.sync += count.eq(total[:-1])
            shown = count
            # What one event a cycle cannot fill within the life of a program needs no saturation.
            if not endless:
                over, full = (Signal(name=f"{names[0].lower()}_{name}") for name in ("over", "full"))
                m.d.sync += [over.eq(total[-1]), full.eq(full | over)]
                shown = count | (over | full).replicate(len(count))
                with m.If(self.clear):
                    m.d.sync += [over.eq(0), full.eq(0)]
            with m.If(self.clear):
                m.d.sync += count.eq(0)
            for i, name in enumerate(names):
                m.d.comb += self.value[name].value.eq(shown[32 * i : 32 * i + 32])

        counter(self.counting, "CYCLES_LO", "CYCLES_HI", endless=True)
        counter(self.finished, "COMMANDS_DONE", endless=True)
        counter(self.dropped, "COMMANDS_DROPPED", endless=True)
        counter(Mux(self.looked_up, self.hits, 0), "CACHE_HITS")
        counter(Mux(self.looked_up, self.misses, 0), "CACHE_MISSES")
        counter(self.read_beat, "READ_BEATS")
        counter(self.write_beat, "WRITE_BEATS")
        counter(self.health.saturated, "SATURATED")
        counter(self.health.underflowed, "UNDERFLOWED")
        counter(self.health.norm, "GRADIENT_NORM_LO", "GRADIENT_NORM_HI")

        # The last bit stays: the count went beyond the others.
        memory = Memory(shape=33, depth=self.phases, init=[])
        m.submodules.phases = memory
        wr = memory.write_port()
        rd, host = memory.read_port(domain="comb"), memory.read_port(domain="comb")
        used = Signal(self.phases)  # since the bell
        counting = Signal()
        phase = Signal(4)
        known = Signal()  # bit ``phase`` of ``used``, looked up a cycle before it is wanted
        before, total = Signal(33), Signal(33)
        m.d.sync += [
            counting.eq(self.counting & ~self.clear),
            phase.eq(self.phase),
            known.eq((used.bit_select(self.phase, 1) | (counting & (phase == self.phase))) & ~self.clear),
        ]
        m.d.comb += [
            rd.addr.eq(phase),
            before.eq(Mux(known, rd.data, 0)),
            wr.addr.eq(phase),
            wr.en.eq(counting),
            total.eq(before[:32] + 1),
            wr.data.eq(Cat(total[:32], total[32] | before[32])),
            host.addr.eq(self.raddr[2:6]),
        ]
        with m.If(counting):
            m.d.sync += used.eq(used | Cat((phase == i) for i in range(COUNTED)))
        with m.If(self.clear):
            # mutant keeps-a-phase: m.d.sync += used.eq(1)
            m.d.sync += used.eq(0)
        for i in range(COUNTED):
            m.d.comb += self.value[f"PHASE_CYCLES{i}"].value.eq(
                Mux(used.bit_select(host.addr, 1), host.data[:32] | host.data[32].replicate(32), 0)
            )
        return m
