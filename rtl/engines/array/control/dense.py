"""Control of dense layers, which are output-stationary."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..commands import DenseOperands

__all__ = ["DenseControl"]


class DenseControl(wiring.Component):
    """Runs DENSE: an element of every sample, and its weights, a cycle.

    A command takes ``inputs + rows + 2`` cycles.

    Members
    -------
    i : stream of :data:`~.commands.DenseOperands`; the next is taken when the sums may drain.
    beat : element ``address`` of all rows meets the weights at ``weight``. ``first``: sums begin.
    drain : the sums may leave, ``rows`` cycles after the last beat.
    hold : no command may start.
    """

    def __init__(self, config):
        self.config = config
        super().__init__(
            {
                "i": In(stream.Signature(DenseOperands)),
                "beat": Out(
                    data.StructLayout({"valid": 1, "first": 1, "address": ceil_log2(config.dense_depth), "weight": 16})
                ),
                "drain": Out(1),
                "hold": In(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        busy, beats, first = Signal(), Signal(), Signal()
        left = Signal(16)
        gap = Signal(range(self.config.rows + 1))
        address, weight = Signal.like(self.beat.address), Signal(16)
        m.d.comb += [
            self.i.ready.eq(~busy & ~self.hold),
            self.idle.eq(~busy),
            self.beat.valid.eq(beats),
            self.beat.first.eq(first),
            self.beat.address.eq(address),
            self.beat.weight.eq(weight),
            self.drain.eq(gap == 1),
        ]
        # The operands are there whenever a command may come: the path from its queue ends at two registers.
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [busy.eq(1), beats.eq(1)]
        with m.If(~busy):
            m.d.sync += [
                first.eq(1),
                left.eq(self.i.p.inputs - 1),
                address.eq(self.i.p["from"]),
                weight.eq(self.i.p.weights),
            ]
        with m.Elif(beats):
            m.d.sync += [first.eq(0), left.eq(left - 1), address.eq(address + 1), weight.eq(weight + 1)]
            with m.If(left == 0):
                m.d.sync += [beats.eq(0), gap.eq(self.config.rows)]
        with m.If(gap != 0):
            m.d.sync += gap.eq(gap - 1)
            with m.If(gap == 1):
                m.d.sync += busy.eq(0)
        return m
