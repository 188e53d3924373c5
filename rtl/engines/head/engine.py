"""The head: logits, loss, gradients and the update of B."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradloom.rtl.formats.fixed import Rounding, product_sum_width
from gradloom.rtl.formats.images import ACTIVATION, PARAMETER, VELOCITY
from gradloom.rtl.formats.rounding import round_shift_hdl, saturate_hdl
from gradloom.rtl.hierarchy import place
from gradloom.rtl.shell.registers.errors import Error
from gradloom.rtl.shell.signature import EngineCommand, EngineError, Health
from gradloom.rtl.stream.delay import delay
from gradloom.rtl.stream.queue import count_up_down
from gradloom.rtl.systolic.slices import MultiplyAdd
from gradloom.rtl.units.lora_gradient import DH_DROP, GRADIENT_WIDTH, dh_width, sum_width
from gradloom.rtl.units.optimizer import OPTIMIZER_CONFIG, OptimizerLane, lane_config
from gradloom.rtl.units.softmax import SoftmaxCrossEntropy

from .commands import HeadOpcode, HeadOperands

__all__ = ["Head"]


_PERIOD = 4  # cycles before a sum of dB may be touched again
_BEAT_CLASSES = 8  # classes in a beat of B


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
        first = delay(m, self.forward_i.first, 3)
        m.d.comb += [
            b_forward.addr.eq(self.forward_i.k),
            z.a.eq(self.forward_h_i),
            z.b.eq(b_forward.data),
            z.c.eq(z.p),
            z.add.eq(~first),
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
        m.d.comb += [
            db_read.addr.eq(Mux(self.read, self.read_k, tag[1].k)),
            db.a.eq(self.backward_h_i),
            db.b.eq(d),
            db.c.eq(delay(m, db_read.data, 1)),
            # mutant first-too-early: db.add.eq(~tag[2].first),
            db.add.eq(~tag[3].first),
            db_write.addr.eq(tag[4].k),
            db_write.data.eq(db.p),
            db_write.en.eq(tag[4].valid),
        ]
        return m


class _Walk(wiring.Component):
    """Counts ``k`` as (tap, rank index) from 0 to ``last`` while ``step``.

    ``clear`` starts over.
    """

    def __init__(self, *, taps, rank):
        self.taps = taps
        self.rank = rank
        super().__init__(
            {
                "step": In(1),
                "clear": In(1),
                "k": Out(range(taps * rank)),
                "tap": Out(range(max(taps, 2))),
                "index": Out(range(max(rank, 2))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        with m.If(self.clear):
            m.d.sync += [self.k.eq(0), self.tap.eq(0), self.index.eq(0)]
        with m.Elif(self.step):
            m.d.sync += [self.k.eq(self.k + 1), self.index.eq(self.index + 1)]
            with m.If(self.index == self.rank - 1):
                m.d.sync += [self.index.eq(0), self.tap.eq(self.tap + 1)]
        return m


class Head(wiring.Component):
    """Computes logits, loss and gradients, and updates B.

    It serves the adapter outputs of a microbatch.

    STEP, for each sample s and class c, k over the ``operands.k`` rank indices::

        z  = saturate24(nearest_even(sum_k B[c, k] * h[s, k] + (base[s, c] << 12) >> 12))
        d  = softmax(z) - onehot(label[s])                       16 fraction bits, see SoftmaxCrossEntropy
        d' = saturate18(nearest_even(d * scale >> 16))
        dh[s, k] = saturate18(nearest_even(sum_c B[c, k] * d'[s, c] >> 13))
        dB[c, k] = sum_s d'[s, c] * h[s, k]                      wide enough never to wrap

    and then the optimiser's update of B from dB. ``done`` comes when all of dh can be read, :meth:`cycles`
    after the command was taken; the update goes on under whatever comes next, and the head takes no command
    and no dump before it has finished (:meth:`update_cycles`).

    The classes work side by side, each one cycle behind its neighbour, so that logits reach the softmax, and
    d' the gradients, one a cycle. 3 multipliers a class and 7 more.

    ::

                                                i_logits, i_labels
                                                     |
                                                     v
        i_h --> memory of h --+--> lanes: B h --> logits --> softmax --> losses --> o_loss
                              |                                 | d
                              |                                 v
                              +--> lanes: B d', dB <----- scale and round
                                     |      |
                dh <-- memory of dh <+      +--> optimiser --> B in the lanes --> o_b
                                                               ^
                                                               |
                                                              i_b

    Parameters
    ----------
    rows : :class:`int`
        Most samples in a command, 1..32.
    rank : :class:`int`
        Rank indices in a word of h; ``k`` must be a multiple of it.
    max_taps : :class:`int`
        Words of h a sample.
    max_classes : :class:`int`
        2..16.
    rounding, seed
        Of :class:`OptimizerLane`.
    activation : :class:`Fixed`
        Format of h, and of the frozen network's logits in 32 bits; the above is said of Q8.16.

    Members
    -------
    command : ``In(stream.Signature(EngineCommand))``
    done : ``Out(1)``
    error : ``Out(EngineError)``
        UNKNOWN_OPCODE; BAD_OPERAND: samples, k or classes out of bounds (nothing is done, no ``done``), a
        label that is no class (the step goes on), B loaded beyond its end or during an update.
    busy : ``Out(1)``
        A command, a dump or an update is under way.
    i_h : ``In({valid, tap, sample, h: ArrayLayout(Fixed(24, 16), rank)})``
        Outputs of the adapters. Not during a command.
    i_logits : ``In({valid, half, sample, beat, data: 128})``
        Logits of the frozen network, 4 x int32 of 16 fraction bits a beat.
    i_labels : ``In({valid, half, beat, data: 128})``
        16 x u8, sample ``16 * beat`` lowest.
    i_b : ``In({valid, index: 24, data: 128})``
        Beat ``2 * k + n`` holds classes ``8 * n`` onward of rank index k, 8 x int16.
    i_dump : ``In(stream.Signature({beats: 24}))``
        Asks for the first ``beats`` beats of B on ``o_b``; no ``done``.
    o_b : ``Out(stream.Signature(128))``
        As ``i_b``; classes and rank indices that do not exist are 0.
    o_loss : ``Out(stream.Signature(128))``
        For each command with ``last``: u64 sum of losses (16 fraction bits), u32 samples, u32 correct.
        Up to 4 wait here; a fifth holds ``done`` back.
    dh_address : ``In({tap, sample})``
    dh : ``Out(ArrayLayout(signed(18), rank))``
        What was at ``dh_address`` a cycle before; one fraction bit less than the gradient exponent.
    health : ``Out(Health)``
    """

    def __init__(
        self,
        *,
        rows=25,
        rank=4,
        max_taps=16,
        max_classes=10,
        rounding=Rounding.NEAREST_EVEN,
        seed=1,
        activation=ACTIVATION,
    ):
        for field, value, low, high in (
            ("rows", rows, 1, 32),
            ("rank", rank, 1, 16),
            ("max_taps", max_taps, 1, 64),
            ("max_classes", max_classes, 2, 16),
        ):
            if not isinstance(value, int) or not low <= value <= high:
                raise ValueError(f"{field}={value!r}: must be an integer from {low} to {high}")
        if not 2 <= max_taps * rank <= 255:
            raise ValueError(f"max_taps={max_taps}, rank={rank}: their product is {max_taps * rank}, must be 2 to 255")
        self.rows = rows
        self.rank = rank
        self.max_taps = max_taps
        self.max_classes = max_classes
        self.rounding = Rounding(rounding)
        self.seed = seed
        self.activation = activation
        tap, sample = range(max(max_taps, 2)), range(max(rows, 2))
        self.h_word = data.ArrayLayout(activation.shape, rank)
        self.dh_word = data.ArrayLayout(signed(GRADIENT_WIDTH), rank)
        super().__init__(
            {
                "command": In(stream.Signature(EngineCommand)),
                "done": Out(1),
                "error": Out(EngineError),
                "busy": Out(1),
                "i_h": In(data.StructLayout({"valid": 1, "tap": tap, "sample": sample, "h": self.h_word})),
                "i_logits": In(data.StructLayout({"valid": 1, "half": 1, "sample": sample, "beat": 2, "data": 128})),
                "i_labels": In(data.StructLayout({"valid": 1, "half": 1, "beat": 1, "data": 128})),
                "i_b": In(data.StructLayout({"valid": 1, "index": 24, "data": 128})),
                "i_dump": In(stream.Signature(data.StructLayout({"beats": 24}))),
                "o_b": Out(stream.Signature(128)),
                "o_loss": Out(stream.Signature(128)),
                "dh_address": In(data.StructLayout({"tap": tap, "sample": sample})),
                "dh": Out(self.dh_word),
                "health": Out(Health),
            }
        )

    def cycles(self, samples, k, classes):
        """Cycles from the acceptance of STEP to ``done``.

        Loss beats must be taken.
        """
        return (samples - 1) * max(k, classes, _PERIOD) + 2 * k + classes + self.max_classes + 42

    def update_cycles(self, k, classes):
        """Cycles from ``done`` to the first in which a command can be taken."""
        return k * classes + 12

    def elaborate(self, platform):
        m = Module()
        depth = self.max_taps * self.rank
        sample_bits = len(self.dh_address.sample)

        # Commands: taken, checked, run; B updated; meanwhile nothing is taken.
        args = Signal(HeadOperands)
        opcode = Signal(8)
        bad = Signal()
        good_k = Signal()
        start = Signal()
        finished = Signal()
        updated = Signal()
        dumped = Signal()
        label_error, b_error = Signal(), Signal()
        with m.Switch(args.k):
            with m.Case(*range(self.rank, depth + 1, self.rank)):
                m.d.comb += good_k.eq(1)
        m.d.comb += bad.eq(
            (args.samples == 0)
            | (args.samples > self.rows)
            | ~good_k
            | (args.classes == 0)
            | (args.classes > self.max_classes)
        )
        m.d.sync += [self.done.eq(0), self.error.valid.eq(label_error | b_error), self.error.code.eq(Error.BAD_OPERAND)]
        loss_ready = Signal()
        with m.FSM() as fsm:
            with m.State("idle"):
                m.d.comb += [self.i_dump.ready.eq(1), self.command.ready.eq(~self.i_dump.valid)]
                m.d.sync += [opcode.eq(self.command.p.opcode), args.eq(self.command.p.args)]
                with m.If(self.i_dump.valid):
                    m.next = "dump"
                with m.Elif(self.command.valid):
                    m.next = "check"
            with m.State("check"):
                with m.If((opcode != HeadOpcode.STEP) | bad):
                    m.d.sync += self.error.valid.eq(1)
                    with m.If(opcode != HeadOpcode.STEP):
                        m.d.sync += self.error.code.eq(Error.UNKNOWN_OPCODE)
                    m.next = "idle"
                with m.Else():
                    m.d.comb += start.eq(1)
                    m.next = "run"
            with m.State("run"):
                with m.If(finished):
                    m.next = "finish"
            with m.State("finish"):
                with m.If(loss_ready | ~args.last):
                    m.d.sync += self.done.eq(1)
                    m.next = "update"
            with m.State("update"):
                with m.If(updated):
                    m.next = "idle"
            with m.State("dump"):
                with m.If(dumped):
                    m.next = "idle"
        updating = fsm.ongoing("update")
        m.d.comb += self.busy.eq(~fsm.ongoing("idle"))

        lanes = self._lanes(m, start, platform)
        # Adapter outputs: one reader for logits, one for gradients.
        m.submodules.h_memory = h_memory = Memory(
            shape=self.rank * self.activation.width, depth=self.max_taps << sample_bits, init=[]
        )
        h_write = h_memory.write_port()
        h_forward, h_backward = h_memory.read_port(), h_memory.read_port()
        m.d.comb += [
            h_write.en.eq(self.i_h.valid),
            h_write.addr.eq(Cat(self.i_h.sample, self.i_h.tap)),
            h_write.data.eq(self.i_h.h),
        ]

        z, z_over = self._logits(m, args, start, lanes, h_forward, label_error)
        softmax = place(m, "softmax", SoftmaxCrossEntropy(max_length=self.max_classes), platform)
        m.d.comb += [
            softmax.i.valid.eq(z.valid),
            softmax.i.p.z.eq(z.z),
            softmax.i.p.target.eq(z.target),
            softmax.i.p.first.eq(z.first),
            softmax.i.p.last.eq(z.last),
            softmax.o.ready.eq(1),
            softmax.o_loss.ready.eq(1),
        ]
        self._losses(m, args, start, softmax, fsm.ongoing("finish") & args.last, loss_ready)
        d_over, dh_over = self._gradients(m, args, start, softmax, lanes, h_backward, finished)
        updates, optimizer = self._update(
            m, args, lanes, updating, updated, fsm.ongoing("dump"), dumped, b_error, platform
        )

        m.d.sync += [
            self.health.saturated.eq(z_over + d_over + dh_over + updates.saturated),
            self.health.underflowed.eq(updates.underflowed),
            self.health.norm.eq(optimizer.norm_o),
        ]
        return m

    def _lanes(self, m, start, platform):
        """A lane a class, in a row."""
        # Lanes. They load d long after the start and so may clear it a cycle late: judging ends in a register.
        starting = delay(m, start, 1)
        lanes = []
        for c in range(self.max_classes):
            lane = _ClassLane(
                depth=self.max_taps * self.rank, rows=self.rows, classes=self.max_classes, activation=self.activation
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

    def _logits(self, m, args, start, lanes, h, label_error):
        """Walks over samples and k; returns a logit a cycle."""
        sample_bits = len(self.dh_address.sample)
        samples = Signal(range(self.rows + 1))
        period = Signal(range(max(self.max_taps * self.rank, 16) + 1))
        m.submodules.forward = walk = _Walk(taps=self.max_taps, rank=self.rank)
        active = Signal()
        phase = Signal.like(period)
        sample = Signal(sample_bits)
        in_k = Signal()
        last_phase = Signal()
        longest = Mux(args.k > args.classes, args.k, args.classes)
        m.d.sync += period.eq(Mux(longest > _PERIOD, longest, _PERIOD))
        m.d.comb += [
            last_phase.eq(phase == period - 1),
            in_k.eq(active & (phase < args.k)),
            walk.step.eq(in_k),
            walk.clear.eq(start | last_phase),
        ]
        with m.If(start):
            m.d.sync += [active.eq(1), phase.eq(0), sample.eq(0), samples.eq(args.samples)]
        with m.Elif(active):
            m.d.sync += phase.eq(phase + 1)
            with m.If(last_phase):
                m.d.sync += [phase.eq(0), sample.eq(sample + 1), active.eq(sample != samples - 1)]

        # Cycle 0: word of h. 1: rank index at lane 0. 2: h at lane 0. 5: its sum, if k was the last.
        word = Array(h.data.word_select(n, self.activation.width) for n in range(self.rank))
        m.d.comb += [
            h.addr.eq(Cat(sample, walk.tap)),
            lanes[0].forward_i.k.eq(delay(m, walk.k, 1)),
            lanes[0].forward_i.first.eq(delay(m, phase == 0, 1)),
            lanes[0].forward_h_i.eq(delay(m, word[delay(m, walk.index, 1)], 1)),
        ]
        last_k = delay(m, in_k & (phase == args.k - 1), 4, reset_less=False)
        return self._collect(m, args, start, last_k, lanes, label_error)

    def _collect(self, m, args, start, last_k, lanes, label_error):
        """Picks each lane's ready sum, adds the frozen logit, and rounds."""
        sample_bits = len(self.dh_address.sample)
        lane = Signal(range(self.max_classes))
        active = Signal()
        sample = Signal(sample_bits)
        last = Signal()
        m.d.comb += last.eq(lane == args.classes - 1)
        with m.If(active):
            m.d.sync += lane.eq(lane + 1)
            with m.If(last):
                m.d.sync += [active.eq(0), sample.eq(sample + 1)]
        with m.If(last_k):
            m.d.sync += [active.eq(1), lane.eq(0)]
        with m.If(start):
            m.d.sync += sample.eq(0)

        m.submodules.logits = logits = Memory(shape=128, depth=8 << sample_bits, init=[])
        write, read = logits.write_port(), logits.read_port()
        m.d.comb += [
            write.en.eq(self.i_logits.valid),
            write.data.eq(self.i_logits.data),
            write.addr.eq(Cat(self.i_logits.beat, self.i_logits.sample, self.i_logits.half)),
            read.addr.eq(Cat((lane >> 2)[:2] if len(lane) > 2 else Const(0, 2), sample, args.half)),
        ]
        m.submodules.labels = labels = Memory(shape=128, depth=4, init=[])
        label_write, label_read = labels.write_port(), labels.read_port()
        sample5 = Signal(5)
        m.d.comb += [
            sample5.eq(sample),
            label_write.en.eq(self.i_labels.valid),
            label_write.data.eq(self.i_labels.data),
            label_write.addr.eq(Cat(self.i_labels.beat, self.i_labels.half)),
            label_read.addr.eq(Cat(sample5[4], args.half)),
        ]

        lane2 = delay(m, lane, 2)
        label2 = Signal(8, reset_less=True)
        m.d.sync += label2.eq(label_read.data.word_select(delay(m, sample5[:4], 1), 8))
        total = delay(m, Array(each.z for each in lanes)[lane], 2)
        base = delay(m, read.data.word_select(delay(m, lane[:2], 1), 32).as_signed(), 1)
        control = Cat(active, lane == 0, last & active)
        control2 = delay(m, control, 2, reset_less=False)
        m.d.sync += label_error.eq(control2[0] & control2[1] & (label2 >= args.classes))
        total = delay(m, total + Cat(Const(0, PARAMETER.frac), base).as_signed(), 1)
        total = delay(m, round_shift_hdl(total, self.activation.frac + PARAMETER.frac - ACTIVATION.frac), 1)
        clipped, over = saturate_hdl(total, ACTIVATION.shape)
        control5 = delay(m, control2, 3, reset_less=False)
        out = Signal(data.StructLayout({"z": ACTIVATION.shape, "target": 1, "valid": 1, "first": 1, "last": 1}))
        m.d.comb += [
            out.z.eq(delay(m, clipped, 1)),
            out.target.eq(delay(m, label2 == lane2, 3)),
            Cat(out.valid, out.first, out.last).eq(control5),
        ]
        return out, delay(m, over, 1) & out.valid

    def _losses(self, m, args, start, softmax, emit, ready):
        loss, correct, samples = Signal(48), Signal(32), Signal(32)
        with m.If(start & args.first):
            m.d.sync += [loss.eq(0), correct.eq(0), samples.eq(0)]
        with m.Elif(softmax.o_loss.valid):
            m.d.sync += [
                # mutant loss-of-26-bits: loss.eq((loss + softmax.o_loss.p.loss)[:26]),
                loss.eq(loss + softmax.o_loss.p.loss),
                correct.eq(correct + softmax.o_loss.p.correct),
                samples.eq(samples + 1),
            ]
        m.submodules.loss_queue = queue = SyncFIFOBuffered(width=48 + 32 + 32, depth=4)
        m.d.comb += [
            ready.eq(queue.w_rdy),
            queue.w_en.eq(emit),
            queue.w_data.eq(Cat(loss, samples, correct)),
            self.o_loss.valid.eq(queue.r_rdy),
            queue.r_en.eq(self.o_loss.ready),
            self.o_loss.payload.eq(Cat(queue.r_data[:48], Const(0, 16), queue.r_data[48:])),
        ]

    def _gradients(self, m, args, start, softmax, lanes, h, finished):
        """d' to the lanes, walk over k behind it, words of dh to their memory."""
        sample_bits = len(self.dh_address.sample)

        # d' = d * scale: operands, product, rounding, saturation.
        lane = Signal(range(self.max_classes))
        valid = softmax.o.valid
        with m.If(valid):
            m.d.sync += lane.eq(Mux(softmax.o.p.last, 0, lane + 1))
        scale = delay(m, Cat(args.scale, Const(0, 1)).as_signed(), 1)
        product = delay(m, delay(m, softmax.o.p.d, 1) * scale, 1)
        rounded = delay(m, round_shift_hdl(product, 16), 1)
        clipped, over = saturate_hdl(rounded, signed(GRADIENT_WIDTH))
        d = delay(m, clipped, 1)
        valid4 = delay(m, valid, 4, reset_less=False)
        lane4 = delay(m, lane, 4)
        d_over = delay(m, over, 1) & valid4
        for c, each in enumerate(lanes):
            m.d.comb += [each.d.eq(d), each.d_load.eq(valid4 & (lane4 == c))]

        # Cycle 0: word of h; 1: rank index at lane 0; 2: h at lane 0, d' there since then.
        begin = delay(m, valid & softmax.o.p.first, 2, reset_less=False)
        m.submodules.backward = walk = _Walk(taps=self.max_taps, rank=self.rank)
        active = Signal()
        last = Signal()
        sample = Signal(sample_bits)
        final = Signal()
        m.d.comb += [
            last.eq(active & (walk.k == args.k - 1)),
            walk.step.eq(active),
            walk.clear.eq(start | last),
            final.eq(last & (sample == args.samples - 1)),
        ]
        with m.If(last):
            m.d.sync += [active.eq(0), sample.eq(sample + 1)]
        with m.If(begin):
            m.d.sync += active.eq(1)
        with m.If(start):
            m.d.sync += [active.eq(0), sample.eq(0)]
        word = Array(h.data.word_select(n, self.activation.width) for n in range(self.rank))
        m.d.comb += [
            h.addr.eq(Cat(sample, walk.tap)),
            lanes[0].backward_i.k.eq(delay(m, walk.k, 1)),
            lanes[0].backward_i.first.eq(delay(m, sample == 0, 1)),
            lanes[0].backward_i.valid.eq(delay(m, active, 1, reset_less=False)),
            lanes[0].backward_h_i.eq(delay(m, word[delay(m, walk.index, 1)], 1)),
            lanes[0].dh_i.eq(0),
        ]

        # The last lane's sum is there in cycle 4 + classes; then rounding, saturation, its place in a word.
        wait = 4 + self.max_classes + 2
        total = delay(m, round_shift_hdl(lanes[-1].dh_o, DH_DROP), 1)
        clipped, over = saturate_hdl(total, signed(GRADIENT_WIDTH))
        dh = delay(m, clipped, 1)
        valid = delay(m, active, wait, reset_less=False)
        index = delay(m, walk.index, wait)
        address = delay(m, Cat(sample, walk.tap), wait)
        m.submodules.dh_memory = dh_memory = Memory(
            shape=self.rank * GRADIENT_WIDTH, depth=self.max_taps << sample_bits, init=[]
        )
        write, read = dh_memory.write_port(), dh_memory.read_port()
        word = Signal(self.dh_word)
        kept = Signal(self.dh_word, reset_less=True)
        for n in range(self.rank):
            m.d.comb += word[n].eq(kept[n] if n < self.rank - 1 else dh)
            with m.If(index == n):
                m.d.sync += kept[n].eq(dh)
        m.d.comb += [
            write.en.eq(valid & (index == self.rank - 1)),
            write.addr.eq(address),
            write.data.eq(word),
            read.addr.eq(Cat(self.dh_address.sample, self.dh_address.tap)),
            self.dh.eq(read.data),
            finished.eq(delay(m, final, wait - 1, reset_less=False)),
        ]
        return d_over, delay(m, over, 1) & valid

    def _update(self, m, args, lanes, updating, updated, dumping, dumped, b_error, platform):
        """B through the optimiser, word by word; loads and dumps of B."""
        depth = self.max_taps * self.rank
        k_bits = ceil_log2(depth)
        class_bits = ceil_log2(self.max_classes)
        optimizer = OptimizerLane(offset=self.activation.frac, rounding=self.rounding, seed=self.seed)
        optimizer = place(m, "optimizer", optimizer, platform)
        config = Signal(OPTIMIZER_CONFIG)
        m.d.comb += [
            config.q.eq(args.q),
            config.v_mode.eq(args.v_mode),
            config.apply.eq(args.apply),
            config.mu.eq(args.mu),
            optimizer.config.eq(lane_config(m, config)),
        ]
        m.submodules.velocity = velocity = Memory(shape=VELOCITY.shape, depth=depth << class_bits, init=[])
        v_write, v_read = velocity.write_port(), velocity.read_port()

        def walk(step, clear):
            """(k, class) in step with ``step``; ``last`` at the end."""
            k, c, last = Signal(k_bits), Signal(class_bits), Signal()
            last_c = c == args.classes - 1
            m.d.comb += last.eq(last_c & (k == args.k - 1))
            with m.If(clear):
                m.d.sync += [k.eq(0), c.eq(0)]
            with m.Elif(step):
                m.d.sync += c.eq(c + 1)
                with m.If(last_c):
                    m.d.sync += [c.eq(0), k.eq(k + 1)]
            return k, c, last

        # Cycle 0: addresses. 1: words of all lanes, one of them picked. 2: optimiser.
        issued = Signal()
        reading = Signal()
        m.d.comb += reading.eq(updating & ~issued)
        k, c, last = walk(reading, ~updating)
        m.d.sync += issued.eq(updating & (issued | last))
        c1 = delay(m, c, 1)
        m.d.comb += [
            v_read.addr.eq(Cat(c, k)),
            optimizer.i.valid.eq(delay(m, reading, 2, reset_less=False)),
            optimizer.w.eq(delay(m, Array(lane.b for lane in lanes)[c1], 1 + optimizer.w_wait)),
            optimizer.i.g.eq(delay(m, Array(lane.db for lane in lanes)[c1], 1)),
            optimizer.i.v.eq(delay(m, v_read.data, 1)),
        ]
        out = optimizer.o
        out_k, out_c, out_last = walk(out.valid, ~updating)
        m.d.comb += [
            v_write.en.eq(out.valid),
            v_write.addr.eq(Cat(out_c, out_k)),
            v_write.data.eq(delay(m, optimizer.velocity.v, optimizer.latency - optimizer.velocity_latency)),
        ]
        m.d.sync += updated.eq(out.valid & out_last)

        # Dump: cycle 0 address, 1 words, 2 queue. A beat enters only when the queue has room.
        left = Signal(24)
        beat = Signal(24)
        pending = Signal(4)
        issue = Signal()
        with m.If(self.i_dump.valid & self.i_dump.ready):
            m.d.sync += [left.eq(self.i_dump.p.beats), beat.eq(0)]
        with m.Elif(issue):
            m.d.sync += [left.eq(left - 1), beat.eq(beat + 1)]
        m.submodules.b_queue = queue = SyncFIFOBuffered(width=128, depth=4)
        m.d.comb += issue.eq(dumping & (left != 0) & ~pending[-1])
        count_up_down(m, pending, issue, self.o_b.valid & self.o_b.ready)
        m.d.comb += dumped.eq((left == 0) & ~pending[0])
        dump_k = beat >> 1
        exists = delay(m, dump_k < depth, 1)
        halves = [Cat(*(Cat(lane.b) for lane in lanes[n : n + _BEAT_CLASSES])) for n in (0, _BEAT_CLASSES)]
        picked = Mux(delay(m, beat[0], 1), halves[1], halves[0])[:128]
        m.d.comb += [
            queue.w_data.eq(delay(m, Mux(exists, picked, 0), 1)),
            queue.w_en.eq(delay(m, issue, 2, reset_less=False)),
            self.o_b.valid.eq(queue.r_rdy),
            queue.r_en.eq(self.o_b.ready),
            self.o_b.payload.eq(queue.r_data),
        ]

        load_k = self.i_b.index >> 1
        load = Signal()
        m.d.comb += load.eq(self.i_b.valid & (load_k < depth))
        m.d.sync += b_error.eq(self.i_b.valid & ((load_k >= depth) | updating))
        # A word is written a cycle after it was loaded or made, long before it is read again.
        write_k = delay(m, Mux(load, load_k, out_k), 1)
        for n, lane in enumerate(lanes):
            m.d.comb += [lane.read.eq(updating | dumping), lane.read_k.eq(Mux(dumping, dump_k, k))]
            write = Mux(load, self.i_b.index[0] == n // _BEAT_CLASSES, out.valid & (out_c == n))
            word = Mux(load, self.i_b.data.word_select(n % _BEAT_CLASSES, PARAMETER.width), out.w)
            m.d.comb += [
                lane.write.eq(delay(m, write, 1, reset_less=False)),
                lane.write_b.eq(delay(m, word, 1)),
                lane.write_k.eq(write_k),
            ]
        return out, optimizer
