"""Adapter lanes: adapter words of a column, and their optimisers."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradloom.rtl.formats.images import PARAMETER, VELOCITY
from gradloom.rtl.hierarchy import place
from gradloom.rtl.stream.delay import delay
from gradloom.rtl.units.optimizer import LANE_CONFIG, NORM, OptimizerLane

from ..parameters import LANES

__all__ = ["AdapterLanes"]


class AdapterLanes(wiring.Component):
    """Feeds A into a column in every panel and learns it from the sums.

    Words enter at the column's head and sums leave at its foot. It never stalls.

    In column ``c`` of a panel, word ``a`` is ``A[c, panels * a + panel]``: the panels' lanes have their addresses in
    common. Forward: a word a cycle, 2 cycles after its address. Gradient: a sum a cycle; the word learnt from it is
    in memory ``latency`` cycles later. ``read``, ``gradient`` until then, and ``write`` exclude each other.

    Parameters
    ----------
    depth : int
        Words.
    panels : int

    Members
    -------
    read : ``In({valid, address})`` -> ``w`` : the words, 2 cycles later.
    gradient : ``In({valid, address})``, in the cycle of its sums ``g``.
    write : ``In({valid, address, data})``, from memory.
    config : see :class:`OptimizerLane`; held while gradients are under way.
    saturated, underflowed : how many of the words learnt in a cycle.
    norm_i, norm_o : see :class:`OptimizerLane`; of all panels.
    """

    read_latency = 2
    latency = LANES

    def __init__(self, *, depth, panels):
        self.depth = depth
        self.panels = panels
        address = ceil_log2(depth)
        self.address = data.StructLayout({"valid": 1, "address": address})
        words = data.ArrayLayout(PARAMETER.shape, panels)
        super().__init__(
            {
                "read": In(self.address),
                "w": Out(words),
                "gradient": In(self.address),
                "g": In(signed(48)).array(panels),
                "write": In(data.StructLayout({"valid": 1, "address": address, "data": words})),
                "config": In(LANE_CONFIG),
                "saturated": Out(range(panels + 1)),
                "underflowed": Out(range(panels + 1)),
                "norm_i": In(NORM),
                "norm_o": Out(NORM),
            }
        )

    def elaborate(self, platform):
        m = Module()

        # What is learnt: its velocity is read at once, its word when the velocity is known, and each is written
        # when it is there. The second register of a read is the block RAM's own.
        gradient = [self.gradient]
        for name in ("word", "velocity_write", "word_write"):
            gradient.append(Signal(self.address, name=name))
        to_word = OptimizerLane.w_wait
        to_velocity = 2 + OptimizerLane.velocity_latency
        for old, new, cycles in zip(
            gradient, gradient[1:], (to_word, to_velocity - to_word, self.latency - 1 - to_velocity), strict=False
        ):
            m.d.comb += [
                new.valid.eq(delay(m, old.valid, cycles, reset_less=False)),
                new.address.eq(delay(m, old.address, cycles)),
            ]
        _, word, velocity_end, word_end = gradient
        taken = delay(m, self.gradient.valid, 2, reset_less=False)

        norm = self.norm_i
        saturated, underflowed = [], []
        for panel in range(self.panels):
            words = memory.Memory(shape=PARAMETER.shape, depth=self.depth, init=[])
            velocity = memory.Memory(shape=VELOCITY.shape, depth=self.depth, init=[])
            m.submodules[f"words_{panel}"], m.submodules[f"velocity_{panel}"] = words, velocity
            word_read, word_write = words.read_port(), words.write_port()
            velocity_read, velocity_write = velocity.read_port(), velocity.write_port()
            step = place(m, f"step_{panel}", OptimizerLane(), platform)
            w, v = Signal(PARAMETER.shape, name=f"w_{panel}"), Signal(VELOCITY.shape, name=f"v_{panel}")
            m.d.sync += [w.eq(word_read.data), v.eq(velocity_read.data)]
            m.d.comb += [
                # One memory read serves both directions.
                word_read.en.eq(self.read.valid | word.valid),
                word_read.addr.eq(Mux(word.valid, word.address, self.read.address)),
                velocity_read.en.eq(self.gradient.valid),
                velocity_read.addr.eq(self.gradient.address),
                self.w[panel].eq(w),
                step.config.eq(self.config),
                step.i.valid.eq(taken),
                step.i.v.eq(v),
                step.i.g.eq(delay(m, self.g[panel], 2)),
                step.w.eq(w),
                step.norm_i.eq(norm),
                velocity_write.en.eq(velocity_end.valid),
                velocity_write.addr.eq(velocity_end.address),
                velocity_write.data.eq(step.velocity.v),
                word_write.en.eq(word_end.valid | self.write.valid),
                word_write.addr.eq(Mux(self.write.valid, self.write.address, word_end.address)),
                word_write.data.eq(Mux(self.write.valid, self.write.data[panel], step.o.w)),
            ]
            norm = step.norm_o
            saturated.append(step.o.saturated)
            underflowed.append(step.o.underflowed)
        m.d.comb += [
            self.saturated.eq(sum(Cat(flag) for flag in saturated)),
            self.underflowed.eq(sum(Cat(flag) for flag in underflowed)),
            self.norm_o.eq(norm),
        ]
        return m
