"""Softmax, cross-entropy and its gradient on a stream of logits."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradloom.rtl.formats.images import ACTIVATION, PROBABILITY
from gradloom.rtl.formats.interpolation import Interpolation
from gradloom.rtl.formats.rounding import round_shift_hdl
from gradloom.rtl.hierarchy import place
from gradloom.rtl.stream.delay import delay
from gradloom.rtl.stream.interpolator import Interpolator

__all__ = ["SoftmaxCrossEntropy"]

_FRAC = 20  # fraction bits of a base-2 logarithm
_LOG2E = 94548  # log2(e) * 2**16, less a half that is added by a shift
_LN2 = 90852  # ln(2) * 2**17
_CLAMP = 63  # shifts beyond it leave nothing of any word here
_EXP2 = Interpolation(function="exp2", frac_in=_FRAC, frac_out=20)
_LOG2 = Interpolation(function="log2", frac_in=21, frac_out=_FRAC)


class SoftmaxCrossEntropy(wiring.Component):
    """Probabilities, loss and gradient of vectors of logits.

    It takes one logit a cycle.

    The sum of exponentials is kept in units of a power of two that follows the running maximum,
    so a rescaling is a shift and there is no divider: ``p = 2**(z * log2(e) - log2(sum))``. The
    vector waits in a queue for its sum while the next one enters.

    Bit for bit this is ``softmax_cross_entropy`` of the reference, whose probabilities are within
    2**-15 of softmax and whose loss is within 2**-15 and 3e-6 of itself.

    Latency from a vector's last logit to its first ``d`` is 23 cycles and to its loss
    ``22 + length``; throughput is one logit a cycle over back-to-back vectors while both outputs
    are taken and at most 13 vectors are under way. Five multipliers.

    Parameters
    ----------
    max_length : :class:`int`
        Logits in a vector, 2..65536. A longer vector is cut and ``error`` raised.

    Members
    -------
    i : ``In(stream.Signature({z: Fixed(24, 16), target: 1, first: 1, last: 1}))``
        Logits; ``target`` marks the one that should win. ``first`` is not looked at: a vector starts after a
        ``last``.
    o : ``Out(stream.Signature({d: Fixed(18, 16), first: 1, last: 1}))``
        Probability minus target.
    o_loss : ``Out(stream.Signature({loss: unsigned(25), correct: 1}))``
        A vector's loss, 16 fraction bits, no later than its last ``d``; 0 if there was no target.
        ``correct``: the target is the first of the largest logits.
    error : ``Out(1)``
        High for a cycle when a vector was cut.
    """

    def __init__(self, *, max_length):
        if not 2 <= max_length <= 65536:
            raise ValueError(f"max_length={max_length}: must be from 2 to 65536")
        self.max_length = max_length
        super().__init__(
            {
                "i": In(
                    stream.Signature(data.StructLayout({"z": ACTIVATION.shape, "target": 1, "first": 1, "last": 1}))
                ),
                "o": Out(stream.Signature(data.StructLayout({"d": PROBABILITY.shape, "first": 1, "last": 1}))),
                "o_loss": Out(stream.Signature(data.StructLayout({"loss": 25, "correct": 1}))),
                "error": Out(1),
            }
        )

    #: Cycles from a vector's last logit taken to its first ``d`` valid, ``o`` and ``o_loss`` ready.
    latency = 23

    def elaborate(self, platform):
        m = Module()
        log_shape = signed(9 + _FRAC)  # |z| * log2(e) < 185
        sum_shape = signed(10 + _FRAC)

        # A pipeline that cannot be held feeds two queues: what is under way must fit in them.
        depth = self.max_length + self.latency + 4
        vectors = 16
        m.submodules.logs = logs = SyncFIFOBuffered(width=len(Const(0, log_shape)) + 2, depth=depth)
        m.submodules.sums = sums = SyncFIFOBuffered(width=len(Const(0, sum_shape)) + 1, depth=vectors)
        pending = Signal(range(depth + 1))
        pending_vectors = Signal(range(vectors + 1))
        room = Signal()
        take = Signal()
        pop = Signal()
        pop_last = Signal()
        index = Signal(range(self.max_length))
        first, cut, last = Signal(init=1), Signal(), Signal()
        m.d.comb += [
            self.i.ready.eq(room),
            take.eq(self.i.valid & room),
            cut.eq(index == self.max_length - 1),
            last.eq(self.i.p.last | cut),
        ]
        m.d.sync += [
            # One less than full is asked for, because the answer is a register.
            room.eq((pending < depth - 2) & (pending_vectors < vectors - 2)),
            pending.eq(pending + take - pop),
            pending_vectors.eq(pending_vectors + (take & last) - pop_last),
            self.error.eq(take & cut & ~self.i.p.last),
        ]
        with m.If(take):
            m.d.sync += [first.eq(last), index.eq(Mux(last, 0, index + 1))]

        self._pass_1(m, platform, take, first, last, logs, sums, sum_shape)
        self._pass_2(m, platform, logs, sums, log_shape, sum_shape, pop, pop_last)
        return m

    def _pass_1(self, m, platform, take, first, last, logs, sums, sum_shape):
        guard = ceil_log2(self.max_length)
        sum_frac = _FRAC + 1 + guard
        sum_width = sum_frac + guard + 1
        assert sum_width <= _CLAMP

        control = data.StructLayout({"valid": 1, "first": 1, "last": 1, "target": 1})
        stage = [Signal(control, name="stage0")]
        m.d.comb += [
            stage[0].valid.eq(take),
            stage[0].first.eq(first),
            stage[0].last.eq(last),
            stage[0].target.eq(self.i.p.target),
        ]
        for n in range(15):
            stage.append(Signal(control, name=f"stage{n + 1}"))
            m.d.sync += stage[-1].eq(stage[-2])

        # Stages 1 to 4: logarithm to base 2 of the exponential.
        z1 = delay(m, self.i.p.z, 1)
        z2 = delay(m, z1, 1)
        product = delay(m, z1 * Const(_LOG2E, signed(18)), 1)
        scaled = delay(m, product + (z2 >> 1), 1)
        t4 = Signal(signed(9 + _FRAC), reset_less=True)
        m.d.sync += t4.eq(round_shift_hdl(scaled, 12))
        m.d.comb += [logs.w_data.eq(Cat(t4, stage[4].target, stage[4].last)), logs.w_en.eq(stage[4].valid)]

        # Whether the first of the largest so far is the target.
        best = Signal(ACTIVATION.shape, reset_less=True)
        correct = Signal()
        with m.If(stage[1].valid & (stage[1].first | (z1 > best))):
            m.d.sync += [best.eq(z1), correct.eq(stage[1].target)]

        # Stages 5 to 7: its power of two; how far it and the sum lie below the running maximum.
        whole = t4[_FRAC:].as_signed()
        power = place(m, "power", Interpolator(table=_EXP2), platform)
        m.d.comb += [power.enable.eq(1), power.x.eq(t4[:_FRAC])]
        top = Signal(signed(9), reset_less=True)
        top_before = delay(m, top, 1)
        whole5 = delay(m, whole, 1)
        with m.If(stage[4].valid & (stage[4].first | (whole > top))):
            m.d.sync += top.eq(whole)
        below = Signal(6, reset_less=True)
        fall = Signal(6, reset_less=True)
        gap, step = Signal(9), Signal(9)
        m.d.comb += [gap.eq(top - whole5), step.eq(top - top_before)]
        m.d.sync += [
            below.eq(gap[:6] | gap[6:].any().replicate(6)),
            # The first logit shifts out what the vector before left.
            fall.eq(step[:6] | (step[6:].any() | stage[5].first).replicate(6)),
        ]
        below7 = delay(m, below, 1)

        # Stages 8 and 9: the sum. Only this addition, shift included, is a loop.
        term = Signal(sum_frac + 1, reset_less=True)
        word = Cat(Const(0, sum_frac - 20), power.y[:20], Const(1, 1))
        m.d.sync += term.eq(word >> below7)
        fall8 = delay(m, fall, 2)
        total = Signal(sum_width, reset_less=True)
        with m.If(stage[8].valid):
            # mutant sum-a-bit-short: m.d.sync += total.eq(((total >> fall8) + term)[:sum_width - 1])
            m.d.sync += total.eq((total >> fall8) + term)

        # Stages 10 to 15: its logarithm.
        k = Signal(range(guard + 1), reset_less=True)
        total10 = Signal(sum_width, reset_less=True)
        m.d.sync += [total10.eq(total), k.eq(0)]
        for n in range(1, guard + 1):
            with m.If(total[sum_frac + n]):
                m.d.sync += k.eq(n)
        x = Signal(21, reset_less=True)
        with m.Switch(k):
            for n in range(guard + 1):
                with m.Case(n):
                    m.d.sync += x.eq(total10[sum_frac + n - 21 : sum_frac + n])
        log = place(m, "log", Interpolator(table=_LOG2), platform)
        m.d.comb += [log.enable.eq(1), log.x.eq(x)]
        # The maximum is that of stage 5, k of stage 10, the table's answer of stage 14.
        exponent = delay(m, delay(m, top, 5) + k, 1)
        log_sum = delay(m, Cat(Const(0, _FRAC), delay(m, exponent, 3)).as_signed() + log.y, 1)
        m.d.comb += [
            sums.w_data.eq(Cat(log_sum[: len(Const(0, sum_shape))], delay(m, correct, 13))),
            sums.w_en.eq(stage[15].valid & stage[15].last),
        ]

    def _pass_2(self, m, platform, logs, sums, log_shape, sum_shape, pop, pop_last):
        step = Signal()
        m.d.comb += [
            step.eq((~self.o.valid | self.o.ready) & (~self.o_loss.valid | self.o_loss.ready)),
            pop.eq(step & logs.r_rdy & sums.r_rdy),
            logs.r_en.eq(pop),
        ]
        log_bits, sum_bits = len(Const(0, log_shape)), len(Const(0, sum_shape))
        t = logs.r_data[:log_bits].as_signed()
        target, last = logs.r_data[log_bits], logs.r_data[log_bits + 1]
        log_sum, correct = sums.r_data[:sum_bits].as_signed(), sums.r_data[sum_bits]
        m.d.comb += [pop_last.eq(pop & last), sums.r_en.eq(pop_last)]

        control = data.StructLayout({"valid": 1, "target": 1, "first": 1, "last": 1, "correct": 1})
        first = Signal(init=1)
        with m.If(pop):
            m.d.sync += first.eq(last)
        stage = [Signal(control, name="late0")]
        m.d.comb += [
            stage[0].valid.eq(pop),
            stage[0].target.eq(target),
            stage[0].first.eq(first),
            stage[0].last.eq(last),
            stage[0].correct.eq(correct),
        ]

        def register(value, shape, name):
            q = Signal(shape, name=name, reset_less=True)
            with m.If(step):
                m.d.sync += q.eq(value)
            return q

        for n in range(5):
            stage.append(Signal(control, name=f"late{n + 1}"))
            with m.If(step):
                m.d.sync += stage[-1].eq(stage[-2])

        # Stage 1: logarithm of the probability, at most 0.
        v1 = register(t - log_sum, signed(11 + _FRAC), "v1")
        v = Signal.like(v1)
        m.d.comb += v.eq(Mux(v1[-1], v1, 0))

        # Stages 2 to 5: the probability.
        power = place(m, "power_late", Interpolator(table=_EXP2), platform)
        m.d.comb += [power.enable.eq(step), power.x.eq(v[:_FRAC])]
        down = Signal(11)
        m.d.comb += down.eq(-v[_FRAC:].as_signed())
        shift = register(down[:5] | down[5:].any().replicate(5), 5, "shift2")
        shift = register(register(shift, 5, "shift3"), 5, "shift4")
        p5 = register(Cat(power.y[:20], Const(1, 1)) >> shift, 21, "p5")

        # Stages 2 to 5: the loss.
        v2 = register(v >> 3, signed(27), "v2")
        product = register(v2 * Const(-_LN2, signed(18)), signed(45), "product3")
        product = register(product, signed(45), "product4")
        loss5 = register(round_shift_hdl(product, 18), unsigned(25), "loss5")

        late = stage[5]
        held = Signal(25, reset_less=True)
        loss = Mux(late.target, loss5, Mux(late.first, 0, held))
        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.If(self.o_loss.ready):
            m.d.sync += self.o_loss.valid.eq(0)
        with m.If(step):
            m.d.sync += [
                self.o.valid.eq(late.valid),
                self.o.p.d.eq(round_shift_hdl(Cat(p5, Const(0, 1)).as_signed(), 4) - (late.target << 16)),
                self.o.p.first.eq(late.first),
                self.o.p.last.eq(late.last),
                self.o_loss.valid.eq(late.valid & late.last),
                self.o_loss.p.loss.eq(loss),
                self.o_loss.p.correct.eq(late.correct),
            ]
            with m.If(late.valid):
                m.d.sync += held.eq(loss)
