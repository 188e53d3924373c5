"""A lane of the head, for one class."""

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradloom.rtl.formats.fixed import product_sum_width
from gradloom.rtl.formats.images import PARAMETER
from gradloom.rtl.hierarchy import place
from gradloom.rtl.stream.delay import delay
from gradloom.rtl.systolic.slices import MultiplyAdd
from gradloom.rtl.units.lora_gradient import GRADIENT_WIDTH, dh_width, sum_width

__all__ = ["place_lanes"]


class _ClassLane(wiring.Component):
    """One class of the head: a column of B, three multipliers, sums of dB.

    Lanes stand in a row. Rank indices and operands pass from lane to lane, a cycle each, so that lane c does
    in cycle t + c what lane 0 does in cycle t; the sum of dh passes along with them.

    Members
    -------
    forward_i, forward_o : ``{k, first}``, and a cycle later ``h``: logits.
        ``z`` holds the sum in the 4th cycle after the last ``forward_i``.
    backward_i, backward_o : ``{k, first, valid}``, and a cycle later ``h``: gradients.
    d : d' of this class for the operands that follow, taken when ``d_load``; 0 after ``d_clear``.
    dh_i, dh_o : sums; ``dh_i`` is taken 3 cycles after its ``backward_i``.
    read, read_k, b, db : while ``read``, words ``read_k`` of B and dB, a cycle later.
    write, write_k, write_b : writes a word of B.
    """

    def __init__(self, *, depth, rows, classes, activation):
        self.activation = activation
        self.depth = depth
        self.rows = rows
        self.classes = classes
        k = ceil_log2(depth)
        self.sum_width = sum_width(rows, activation)
        self.dh_width = dh_width(classes)
        self.z_width = product_sum_width(activation.width, PARAMETER.width, depth)
        forward = data.StructLayout({"k": k, "first": 1})
        backward = data.StructLayout({"k": k, "first": 1, "valid": 1})
        super().__init__(
            {
                "forward_i": In(forward),
                "forward_o": Out(forward),
                "forward_h_i": In(activation.shape),
                "forward_h_o": Out(activation.shape),
                "z": Out(signed(self.z_width)),
                "backward_i": In(backward),
                "backward_o": Out(backward),
                "backward_h_i": In(activation.shape),
                "backward_h_o": Out(activation.shape),
                "d": In(signed(GRADIENT_WIDTH)),
                "d_load": In(1),
                "d_clear": In(1),
                "dh_i": In(signed(self.dh_width)),
                "dh_o": Out(signed(self.dh_width)),
                "read": In(1),
                "read_k": In(k),
                "b": Out(PARAMETER.shape),
                "db": Out(signed(self.sum_width)),
                "write": In(1),
                "write_k": In(k),
                "write_b": In(PARAMETER.shape),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.b_memory = b_memory = Memory(shape=PARAMETER.shape, depth=self.depth, init=[])
        m.submodules.db_memory = db_memory = Memory(shape=signed(self.sum_width), depth=self.depth, init=[])
        b_write = b_memory.write_port()
        b_forward, b_backward = b_memory.read_port(), b_memory.read_port()
        db_write, db_read = db_memory.write_port(), db_memory.read_port()
        m.d.comb += [
            b_write.en.eq(self.write),
            b_write.addr.eq(self.write_k),
            b_write.data.eq(self.write_b),
            self.b.eq(b_backward.data),
            self.db.eq(db_read.data),
        ]
        m.d.sync += [
            self.forward_o.eq(self.forward_i),
            self.forward_h_o.eq(self.forward_h_i),
            self.backward_o.eq(self.backward_i),
            self.backward_h_o.eq(self.backward_h_i),
        ]

        z = MultiplyAdd(a=self.activation.width, b=PARAMETER.width, width=self.z_width)
        z = place(m, "z_mac", z, platform)
        # Whether the multipliers add comes from registers beside them, as their operands do.
        adds, adds_db = Signal(init=1, reset_less=True), Signal(init=1, reset_less=True)
        m.d.sync += adds.eq(~delay(m, self.forward_i.first, 2))
        m.d.comb += [
            b_forward.addr.eq(self.forward_i.k),
            z.a.eq(self.forward_h_i),
            z.b.eq(b_forward.data),
            z.c.eq(z.p),
            z.add.eq(adds),
            self.z.eq(z.p),
        ]

        d = Signal(signed(GRADIENT_WIDTH))
        with m.If(self.d_clear):
            m.d.sync += d.eq(0)
        with m.Elif(self.d_load):
            m.d.sync += d.eq(self.d)

        dh = MultiplyAdd(a=PARAMETER.width, b=GRADIENT_WIDTH, width=self.dh_width)
        dh = place(m, "dh_mac", dh, platform)
        m.d.comb += [
            b_backward.addr.eq(Mux(self.read, self.read_k, self.backward_i.k)),
            dh.a.eq(b_backward.data),
            dh.b.eq(d),
            dh.c.eq(self.dh_i),
            dh.add.eq(1),
            self.dh_o.eq(dh.p),
        ]

        # A sum of dB is read in cycle 1 and written in cycle 4 of its operand.
        db = MultiplyAdd(a=self.activation.width, b=GRADIENT_WIDTH, width=self.sum_width)
        db = place(m, "db_mac", db, platform)
        tag = [self.backward_i]
        for n in range(4):
            tag.append(Signal(self.backward_i.shape(), name=f"tag{n + 1}"))
            m.d.sync += tag[-1].eq(tag[-2])
        # mutant first-too-early: m.d.sync += adds_db.eq(~tag[1].first)
        m.d.sync += adds_db.eq(~tag[2].first)
        m.d.comb += [
            db_read.addr.eq(Mux(self.read, self.read_k, tag[1].k)),
            db.a.eq(self.backward_h_i),
            db.b.eq(d),
            db.c.eq(delay(m, db_read.data, 1)),
            db.add.eq(adds_db),
            db_write.addr.eq(tag[4].k),
            db_write.data.eq(db.p),
            db_write.en.eq(tag[4].valid),
        ]
        return m


def place_lanes(m, platform, head, start):
    """Places a lane a class, in a row."""
    # They load d long after the start and so may clear it a cycle late: judging ends in a register.
    starting = delay(m, start, 1)
    lanes = []
    for c in range(head.max_classes):
        lane = _ClassLane(
            depth=head.max_taps * head.rank, rows=head.rows, classes=head.max_classes, activation=head.activation
        )
        lanes.append(place(m, f"lane_{c}", lane, platform))
        if c:
            before = lanes[c - 1]
            m.d.comb += [
                lane.forward_i.eq(before.forward_o),
                lane.forward_h_i.eq(before.forward_h_o),
                lane.backward_i.eq(before.backward_o),
                lane.backward_h_i.eq(before.backward_h_o),
                lane.dh_i.eq(before.dh_o),
            ]
        m.d.comb += lane.d_clear.eq(starting)
    return lanes
