"""The accelerator: shell and engines, wired."""
from dataclasses import dataclass

from amaranth.hdl import ClockDomain, ClockSignal, DomainRenamer, Elaboratable, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..config import Config, LinearConfig
from ..engines.array.engine import ArrayEngine
from ..engines.encode.engine import EncodeEngine
from ..engines.head.engine import Head
from ..hierarchy import place
from ..shell.bus.axi import AXILiteSignature
from ..shell.engines import Engines
from ..shell.shell import Shell
from .collector import Collector, Source
from .engines import IMAGES, LANGUAGE
from .language import LanguageEngines
from .ports import engine_ports
from .router import Destination, Router

__all__ = ["Accelerator", "ImageEngines", "Machine", "machine_of"]


class ImageEngines(wiring.Component):
    """The array, head and encode engines, and the ways between them and memory.

    Members
    -------
    array, head, encode : commands of each. load, request, store : the shell's DMA. health : events of this cycle.
    refuse : see :class:`Router`. refuse_store : see :class:`Collector`.
    """

    def __init__(self, config):
        self.config = config
        super().__init__(engine_ports(IMAGES, config.axi_bits))

    def elaborate(self, platform):
        m = Module()
        config = self.config
        router = place(m, "router", Router(config), platform)
        array = place(m, "array", ArrayEngine(config), platform)
        head = place(m, "head", Head(
            rows=config.rows, rank=config.rank, max_taps=config.taps, max_classes=config.classes,
            activation=config.activation), platform)
        encode = place(m, "encode", EncodeEngine(config), platform)
        collector = place(m, "collector", Collector(config), platform)

        connect(m, flipped(self.load), router.i)
        connect(m, flipped(self.array), array.engine)
        connect(m, flipped(self.encode), encode.engine)
        connect(m, flipped(self.head.command), head.command)
        m.d.comb += [self.head.done.eq(head.done), self.head.error.eq(head.error)]

        for name in ("codes", "scales", "lanes", "weights", "biases", "image", "books"):
            m.d.comb += getattr(array, name).eq(getattr(router, name))
        threshold = router.books
        for unit in (array, encode):
            m.d.comb += [unit.table.en.eq(threshold.valid & threshold.beat[4]), unit.table.addr.eq(threshold.beat[:4]),
                         unit.table.data.eq(threshold.data[:len(unit.table.data)].as_signed())]

        # Not `connect`: these are plain structs, and the head's sample index may be wider than the array's.
        m.d.comb += [
            *(getattr(head.i_h, field).eq(getattr(array.h, field)) for field in ("valid", "tap", "sample", "h")),
            head.dh_address.tap.eq(array.dh.tap), head.dh_address.sample.eq(array.dh.sample),
            array.dh_data.eq(head.dh),
            *(getattr(head.i_logits, field).eq(getattr(router.logits, field))
              for field in ("valid", "half", "sample", "beat", "data")),
            *(getattr(head.i_labels, field).eq(getattr(router.labels, field))
              for field in ("valid", "half", "beat", "data")),
            head.i_b.valid.eq(router.head.valid), head.i_b.index.eq(router.head.beat),
            head.i_b.data.eq(router.head.data),
        ]
        m.d.comb += [
            array.peek.eq(encode.peek), encode.grant.eq(array.peek_grant), encode.arrives.eq(array.peek_arrives),
            encode.data.eq(array.peek_data),
            array.dump.eq(collector.dump), collector.words.eq(array.words),
        ]
        connect(m, array.taps, collector.convolution_taps)
        connect(m, encode.taps, collector.dense_taps)
        connect(m, encode.raw, collector.raw)
        connect(m, head.o_b, collector.head)
        connect(m, head.o_loss, collector.losses)
        connect(m, collector.head_ask, head.i_dump)
        connect(m, flipped(self.request), collector.request)
        m.d.comb += [self.refuse.eq(router.refuse), self.refuse_store.eq(collector.refuse)]
        connect(m, collector.o, flipped(self.store))

        m.d.sync += [
            self.health.saturated.eq(array.saturated + head.health.saturated),
            self.health.underflowed.eq(array.underflowed + head.health.underflowed),
            self.health.norm.eq(array.norm + head.health.norm),
        ]
        return m


class _Local(Elaboratable):
    """Gives what it holds a reset of its own: that of the machine, or the shell's ``abort``."""

    def __init__(self, component, abort):
        self.component = component
        self.abort = abort

    def elaborate(self, platform):
        m = Module()
        domain = ClockDomain("engines", local=True)
        m.domains += domain
        # The engines' widest net comes from a register of its own, which the machine's reset sets.
        reset = Signal(init=1)
        m.d.sync += reset.eq(self.abort)
        m.d.comb += [domain.clk.eq(ClockSignal("sync")), domain.rst.eq(reset)]
        inner = Module()
        place(inner, "unit", self.component, platform)
        m.submodules.inner = DomainRenamer("engines")(inner)
        return m


@dataclass(frozen=True)
class Machine:
    """What stands in the shell: engines by number, the component that holds them.

    ``loop``: destination and source of a memory that gives back 16-bit words, ``classes`` of each 16, for self-tests.
    """

    engines: Engines
    component: type
    loop: tuple[int, int] | None


#: By the kind of configuration.
_MACHINES = {Config: Machine(IMAGES, ImageEngines, (Destination.HEAD, Source.HEAD)),
             LinearConfig: Machine(LANGUAGE, LanguageEngines, None)}


def machine_of(config):
    """The :class:`Machine` that ``config`` is asked of."""
    return _MACHINES[type(config)]


class Accelerator(wiring.Component):
    """A fine-tuning accelerator: AXI4-Lite registers, an AXI4 manager, an interrupt.

    Parameters
    ----------
    config : :class:`Config` or :class:`~gradloom.rtl.config.LinearConfig`

    Members
    -------
    s_axi : ``In(AXILiteSignature(addr_bits=12, data_bits=32))``
    m_axi : ``Out(AXI4Signature())``, as wide as the configuration's beats : INCR bursts of up to 16 beats within
        4 KB, inside the window.
    irq : ``Out(1)`` : level, high while an enabled interrupt is pending.
    trace : which engine started or finished a command in this cycle; for test benches.
    """

    def __init__(self, config=Config()):
        self.config = config
        self._machine = machine = machine_of(config)
        self._shell = Shell(machine.engines, parameters=config.told, loop=machine.loop, **config.shell)
        super().__init__({
            "s_axi": In(AXILiteSignature(addr_bits=12, data_bits=32)),
            "m_axi": Out(self._shell.m_axi.signature),
            "irq": Out(1),
            "trace": Out(self._shell.trace.shape()),
        })

    def elaborate(self, platform):
        m = Module()
        shell = place(m, "shell", self._shell, platform)
        engines = self._machine.component(self.config)
        m.submodules.engines = _Local(engines, shell.abort)
        connect(m, flipped(self.s_axi), shell.s_axi)
        connect(m, shell.m_axi, flipped(self.m_axi))
        m.d.comb += [self.irq.eq(shell.irq), self.trace.eq(shell.trace)]
        for engine in self._machine.engines.own:
            connect(m, getattr(shell, engine.name), getattr(engines, engine.name))
        connect(m, shell.o_load, engines.load)
        connect(m, shell.o_request, engines.request)
        connect(m, engines.store, shell.i_store)
        m.d.comb += [shell.health.eq(engines.health), shell.refuse_load.eq(engines.refuse),
                     shell.refuse_store.eq(engines.refuse_store)]
        return m
