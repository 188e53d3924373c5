"""The accelerator: shell and engines, wired."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..hierarchy import place
from ..shell.bus.axi import AXILiteSignature
from ..shell.shell import Shell
from .configs.images import ImageConfig
from .fabric import Fabric, LocalReset, attach

__all__ = ["Accelerator"]


class Accelerator(wiring.Component):
    """A fine-tuning accelerator with an AXI4-Lite and an AXI4 port.

    It has AXI4-Lite registers, one AXI4 manager or several, and an interrupt.

    Parameters
    ----------
    config : :class:`~gradloom.rtl.shell.parameters.Parameters`
        Configuration of a machine, whose ``machine`` it is.

    Members
    -------
    s_axi : ``In(AXILiteSignature(addr_bits=12, data_bits=32))``
    m_axi, m_axi_1, ... : ``Out(AXI4Signature())``, of the configuration's ``port_bits`` : INCR bursts of up to 16
        beats within 4 KB, inside the window; one for each of the configuration's ``ports``.
    irq : ``Out(1)`` : level, high while an enabled interrupt is pending.
    trace : which engine started or finished a command in this cycle; for test benches.
    """

    def __init__(self, config=ImageConfig()):
        self.config = config
        self._machine = machine = config.machine
        self._shell = Shell(machine.engines, parameters=config.known, loop=machine.loop(config), **config.shell)
        super().__init__(
            {
                "s_axi": In(AXILiteSignature(addr_bits=12, data_bits=32)),
                **{name: Out(getattr(self._shell, name).signature) for name in self._shell.managers},
                "irq": Out(1),
                "trace": Out(self._shell.trace.shape()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        shell = place(m, "shell", self._shell, platform)
        engines = Fabric(self._machine, self.config, self._shell.data_bits)
        m.submodules.engines = LocalReset(engines, shell.abort)
        connect(m, flipped(self.s_axi), shell.s_axi)
        for name in shell.managers:
            connect(m, getattr(shell, name), flipped(getattr(self, name)))
        m.d.comb += [self.irq.eq(shell.irq), self.trace.eq(shell.trace)]
        attach(m, shell, engines)
        return m
