"""An adapter lane: the adapter words of one array column, and the optimiser that learns them."""
from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..config import PARAMETER, VELOCITY
from ..hierarchy import place
from ..stream.delay import delay
from .optimizer import OPTIMIZER_CONFIG, OptimizerLane

__all__ = ["AdapterLane"]


class AdapterLane(wiring.Component):
    """Feeds A into a column's head and learns it from the column's foot; never stalls.

    In column ``c`` of a panel, word ``a`` is ``A[c, panels * a + panel]``. Forward: a word a cycle, 2 cycles
    after its address. Gradient: a sum a cycle; the word learnt from it is in memory ``latency`` cycles later.
    ``read``, ``gradient`` and ``write`` exclude each other.

    Parameters
    ----------
    depth : int
        Words.

    Members
    -------
    read : ``In({valid, address})`` -> ``w`` : the word, 2 cycles later.
    gradient : ``In({valid, address, pair})``, in the cycle of its sum ``g``. ``pair``: the sum is that of this
        cycle and of the one before.
    write : ``In({valid, address, data})``, from memory.
    config : see :class:`OptimizerLane`; held while gradients are under way.
    health : ``saturated``, ``underflowed``, ``magnitude`` of a learnt word.
    """

    read_latency = 2
    latency = 2 + OptimizerLane.latency + 1

    def __init__(self, *, depth):
        self.depth = depth
        address = ceil_log2(depth)
        self.address = data.StructLayout({"valid": 1, "address": address})
        super().__init__({
            "read": In(self.address),
            "w": Out(PARAMETER.shape),
            "gradient": In(self.gradient_layout(depth)),
            "g": In(signed(48)),
            "write": In(data.StructLayout({"valid": 1, "address": address, "data": PARAMETER.shape})),
            "config": In(OPTIMIZER_CONFIG),
            "health": Out(data.StructLayout({"saturated": 1, "underflowed": 1, "magnitude": 36})),
        })

    @staticmethod
    def gradient_layout(depth):
        """Where a sum goes."""
        return data.StructLayout({"valid": 1, "address": ceil_log2(depth), "pair": 1})

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = words = memory.Memory(shape=PARAMETER.shape, depth=self.depth, init=[])
        m.submodules.velocity = velocity = memory.Memory(shape=VELOCITY.shape, depth=self.depth, init=[])
        word_read, word_write = words.read_port(), words.write_port()
        velocity_read, velocity_write = velocity.read_port(), velocity.write_port()
        step = place(m, "step", OptimizerLane(), platform)

        # One memory read serves both directions; the second register is the block RAM's own.
        w, v = Signal(PARAMETER.shape), Signal(VELOCITY.shape)
        m.d.comb += [
            word_read.en.eq(self.read.valid | self.gradient.valid),
            word_read.addr.eq(self.read.address),
            velocity_read.en.eq(self.gradient.valid),
            velocity_read.addr.eq(self.gradient.address),
            self.w.eq(w),
        ]
        with m.If(self.gradient.valid):
            m.d.comb += word_read.addr.eq(self.gradient.address)
        m.d.sync += [w.eq(word_read.data), v.eq(velocity_read.data)]

        valid = delay(m, self.gradient.valid, 2, reset_less=False)
        address = delay(m, self.gradient.address, 2 + step.latency)
        g, total = Signal(self.g.shape(), reset_less=True), Signal(self.g.shape(), reset_less=True)
        m.d.sync += [g.eq(self.g), total.eq(g + Mux(delay(m, self.gradient.pair, 1), total, 0))]
        m.d.comb += [
            step.config.eq(self.config),
            step.i.valid.eq(valid),
            step.i.w.eq(w),
            step.i.v.eq(v),
            step.i.g.eq(total),
            velocity_write.en.eq(step.o.valid),
            velocity_write.addr.eq(address),
            velocity_write.data.eq(step.o.v),
            word_write.en.eq(step.o.valid | self.write.valid),
            word_write.addr.eq(address),
            word_write.data.eq(step.o.w),
            self.health.saturated.eq(step.o.saturated),
            self.health.underflowed.eq(step.o.underflowed),
            self.health.magnitude.eq(Mux(step.o.valid, step.o.magnitude, 0)),
        ]
        with m.If(self.write.valid):
            m.d.comb += [word_write.addr.eq(self.write.address), word_write.data.eq(self.write.data)]
        return m
