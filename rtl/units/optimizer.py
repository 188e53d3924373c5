"""SGD with momentum on Q4.12 words, one word a cycle and lane."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from gradloom.rtl.formats.fixed import Rounding
from gradloom.rtl.formats.images import PARAMETER, VELOCITY
from gradloom.rtl.hierarchy import place
from gradloom.rtl.stream.delay import delay
from gradloom.rtl.systolic.slices import MultiplyAdd

from ..latencies import OPTIMIZER

__all__ = [
    "LANE_CONFIG",
    "MAGNITUDE",
    "NORM",
    "OPTIMIZER_CONFIG",
    "VelocityMode",
    "OptimizerLane",
    "OptimizerStep",
    "lane_config",
]

#: Bits of ``abs(g)`` but for the largest, 23 of them fraction bits.
MAGNITUDE = 24
#: A sum of 16 of them.
NORM = unsigned(MAGNITUDE + 5)

_GRADIENT_SUM = 48  # bits of a gradient sum: a DSP slice's accumulator
_FACTOR_FRAC = 16  # fraction bits of what multiplies the velocity
_NOISE_ORDER = 31  # the noise is x[n] = x[n-31] ^ x[n-28]: one XOR a bit, up to 28 bits at once


class VelocityMode:
    """Velocity before the gradient is added to it."""

    ZERO = 0  #: nothing: plain SGD
    KEEP = 1  #: itself: one more microbatch of the same step
    DECAY = 2  #: ``mu`` times itself: momentum


#: Quasi-static configuration: held from the first word of a pass until its last has come out.
#: ``q``: the gradient exponent is ``24 - 4 * q``. ``mu``: unsigned Q0.16.
OPTIMIZER_CONFIG = data.StructLayout({"q": 2, "v_mode": 2, "apply": 1, "mu": 16})
#: The same as a lane wants it. ``hold``: do not apply. ``factor``: what the velocity is multiplied by, 0 to 1 in
#: Q1.16.
LANE_CONFIG = data.StructLayout({"q": 2, "hold": 1, "factor": _FACTOR_FRAC + 1})


def lane_config(m, config):
    """:data:`LANE_CONFIG` of an :data:`OPTIMIZER_CONFIG`."""
    out = Signal(LANE_CONFIG)
    m.d.comb += [out.q.eq(config.q), out.hold.eq(~config.apply)]
    with m.Switch(config.v_mode):
        with m.Case(VelocityMode.KEEP):
            m.d.comb += out.factor.eq(1 << _FACTOR_FRAC)
        with m.Case(VelocityMode.DECAY):
            m.d.comb += out.factor.eq(config.mu)
    return out


class OptimizerLane(wiring.Component):
    """Updates one parameter a cycle.

    It is a pipeline with ``valid`` only, and never stalls.

    With ``e = 24 - 4 * q`` and ``g`` an integer of ``e + offset`` fraction bits::

        v'  = saturate(nearest_even(factor * v + g))        g cut to 39 fraction bits where it has more
        w'  = w if hold else saturate(rounding(w - v'))

    Latency is 9 cycles, that of v' 5; throughput is one word a cycle; one DSP slice, which adds and rounds v'.

    Parameters
    ----------
    offset : :class:`int`
        Fraction bits of a gradient sum beyond the exponent: 9 for dA, 16 for dB.
    rounding : :class:`Rounding`
        How ``w'`` is rounded. ``v'`` is always rounded to nearest even.
    seed : :class:`int`
        Start of the noise of stochastic rounding, 1..2**31-1. Word ``n`` after reset takes bits
        ``11 * n`` onward of the sequence ``x[n] = x[n-31] ^ x[n-28]``, whose first 31 bits are
        those of ``seed * 0x9E3779B1``, lowest first.

    Members
    -------
    config : ``In(LANE_CONFIG)``
    i : ``In({valid, v: Fixed(27, 23), g: signed(48)})``
    w : ``In(Fixed(16, 12))`` : of the word that came at ``i`` ``w_wait`` cycles before.
    velocity : ``Out({valid, v})`` : ``velocity_latency`` cycles after ``i``.
    o : ``Out({valid, w, saturated, underflowed})``
        ``saturated``: ``v'`` or ``w'`` was clipped. ``underflowed``: ``v'`` is not zero but too small to move
        ``w``. Flags are 0 when not ``valid``.
    norm_i, norm_o : ``In(NORM)``, ``Out(NORM)``
        A cycle later, and more by ``abs(g)`` of a word that came at ``i`` a cycle before: cut to 23 fraction bits
        and clipped to 2 (:data:`MAGNITUDE`). Lanes stand in a row; what a row puts out adds up to the norm.
    """

    latency = OPTIMIZER
    w_wait = 5
    velocity_latency = 5
    norm_latency = 2

    def __init__(self, *, offset=9, rounding=Rounding.NEAREST_EVEN, seed=1):
        if not -1 <= offset <= 24:
            raise ValueError(f"offset={offset}: a gradient sum has -1..24 fraction bits beyond its exponent")
        if not 0 < seed < 1 << _NOISE_ORDER:
            raise ValueError(f"seed={seed}: the noise needs a seed in 1..{(1 << _NOISE_ORDER) - 1}")
        self.offset = offset
        self.rounding = Rounding(rounding)
        self.seed = seed
        super().__init__(
            {
                "config": In(LANE_CONFIG),
                "i": In(data.StructLayout({"valid": 1, "v": VELOCITY.shape, "g": signed(_GRADIENT_SUM)})),
                "w": In(PARAMETER.shape),
                "velocity": Out(data.StructLayout({"valid": 1, "v": VELOCITY.shape})),
                "o": Out(data.StructLayout({"valid": 1, "w": PARAMETER.shape, "saturated": 1, "underflowed": 1})),
                "norm_i": In(NORM),
                "norm_o": Out(NORM),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config

        def register(value, name):
            # Data needs no reset: `valid` says what counts.
            q = Signal(value.shape(), name=name, reset_less=True)
            m.d.sync += q.eq(value)
            return q

        valid = [self.i.valid]
        for n in range(self.latency):
            valid.append(Signal(name=f"valid{n + 1}"))
            m.d.sync += valid[-1].eq(valid[-2])

        # Stage 1: g in the units of the product. What does not fit has a sum with any velocity that does not
        # fit either, on the same side.
        width = VELOCITY.width + _FACTOR_FRAC + 1
        frac = VELOCITY.frac + _FACTOR_FRAC
        g, g_over = Signal(signed(width)), Signal()
        with m.Switch(config.q):
            for q in range(4):
                with m.Case(q):
                    up = frac - (24 - 4 * q + self.offset)
                    shifted = Cat(Const(0, up), self.i.g).as_signed() if up > 0 else self.i.g >> -up
                    spill = shifted[width - 1 :]
                    m.d.comb += [g.eq(shifted), g_over.eq(spill.any() & ~spill.all())]
        g1, g1_over, sign1 = register(g, "g1"), register(g_over, "g1_over"), register(self.i.g[-1], "sign1")

        # To the norm: a carry makes a negative number's magnitude out of its complement. Sums are written as
        # differences here and below, because of those synthesis knows which operand the carry chain passes by.
        low = frac - VELOCITY.frac
        bits, above = g1[low : low + MAGNITUDE], g1[low + MAGNITUDE :]
        beyond = g1_over | Mux(sign1, ~above.all(), above.any())
        term = Mux(valid[1], Mux(sign1, ~bits, bits) | beyond.replicate(MAGNITUDE), 0)
        rest = Cat(~(sign1 & valid[1]), ~term, Const(-1, NORM.width - MAGNITUDE))
        m.d.sync += self.norm_o.eq((Cat(Const(0, 1), self.norm_i) - rest) >> 1)

        # Stages 2 and 3: the product, g, and half a unit.
        half = _FACTOR_FRAC - 1
        mac = MultiplyAdd(a=VELOCITY.width, b=_FACTOR_FRAC + 2, width=width + 1, half=half)
        place(m, "mac", mac, platform)
        m.d.comb += [mac.a.eq(self.i.v), mac.b.eq(config.factor), mac.c.eq(register(g1, "g2")), mac.add.eq(1)]
        g_over = register(register(g1_over, "g2_over"), "g3_over")
        g_sign = register(register(sign1, "sign2"), "sign3")

        # Stages 4 and 5: v'. Clipped words pass through zero, then, if they were positive, all ones: resets and
        # sets of registers, which take no logic. Where it was a tie, rounding half up is undone for odd numbers.
        def clip(value, over, sign, bits, name):
            zero = register(Mux(over, 0, value), f"{name}_zero")
            sign, high = register(sign, f"{name}_sign"), register(over & ~sign, f"{name}_high")
            return Cat(register(Mux(high, (1 << bits) - 1, zero), f"{name}_low"), register(sign, name)).as_signed()

        top = VELOCITY.width - 1
        rounded = mac.p >> half + 1
        even = Cat(rounded[0] & ~mac.tie, rounded[1:top])
        spill = rounded[top:]
        over = Signal()
        m.d.comb += over.eq(g_over | (spill.any() & ~spill.all()))
        v5 = clip(even, over, Mux(g_over, g_sign, rounded[-1]), top, "v5")
        m.d.comb += [self.velocity.valid.eq(valid[5]), self.velocity.v.eq(v5)]

        # Stages 6 and 7: w - v', as whole units and a borrow that rounds. No velocity is no update.
        drop = VELOCITY.frac - PARAMETER.frac
        v_low, v_high = v5[:drop], v5[drop:].as_signed()
        rest = v_low.any()
        if self.rounding is Rounding.FLOOR:
            borrow = rest
        elif self.rounding is Rounding.STOCHASTIC:
            borrow = v_low > self._noise(m, valid[5], drop)[:drop]
        else:
            borrow = v_low[-1] & (v_low[:-1].any() | (self.w[0] ^ v_high[0]))
        w6 = register(self.w, "w6")
        v6 = register(Mux(config.hold, 0, v_high).as_signed(), "v6")
        borrow6, rest6 = register(borrow & ~config.hold, "borrow6"), register(rest & ~config.hold, "rest6")
        w7 = register((Cat(Const(0, 1), w6).as_signed() - Cat(borrow6, v6).as_signed()) >> 1, "w7")
        still7 = register(Mux(borrow6, v6.all(), rest6 & ~v6.any()), "still7")

        # Stages 8 and 9: w'.
        top = PARAMETER.width - 1
        w_over = w7[top] ^ w7[top + 1]
        w9 = clip(w7[:top], w_over, w7[top + 1], top, "w9")
        m.d.comb += [self.o.valid.eq(valid[9]), self.o.w.eq(w9)]
        m.d.sync += [
            self.o.saturated.eq(valid[8] & register(w_over | delay(m, over, 4), "over8")),
            self.o.underflowed.eq(valid[8] & register(still7, "still8")),
        ]
        return m

    def _noise(self, m, advance, bits):
        # Bit 0 is the oldest. A step takes `bits` of them and appends as many: no two words share a bit.
        # The seed is scattered because the sequence takes long to leave a state of few ones.
        state = Signal(_NOISE_ORDER, init=self.seed * 0x9E3779B1 % (1 << _NOISE_ORDER))
        with m.If(advance):
            m.d.sync += state.eq(Cat(state[bits:], state[:bits] ^ state[3 : 3 + bits]))
        return state


class OptimizerStep(wiring.Component):
    """:class:`OptimizerLane` s side by side between two streams.

    Throughput is one beat a cycle; latency is 11 cycles; neither ``ready`` depends on the other
    side's combinationally. Lane ``n`` of stochastic rounding is seeded with ``seed + n``.

    Parameters
    ----------
    lanes : :class:`int`
        Words in a beat.
    offset, rounding, seed
        Of :class:`OptimizerLane`.

    Members
    -------
    config : ``In(OPTIMIZER_CONFIG)``
    i : ``In(stream.Signature(ArrayLayout({w, v, g}, lanes)))``
    o : ``Out(stream.Signature(ArrayLayout({w, v, saturated, underflowed, magnitude}, lanes)))``
    """

    latency = OptimizerLane.latency + 2

    def __init__(self, *, lanes, offset=9, rounding=Rounding.NEAREST_EVEN, seed=1):
        if lanes < 1:
            raise ValueError(f"lanes={lanes}: a step needs at least 1 lane")
        self.lanes = lanes
        self.offset = offset
        self.rounding = Rounding(rounding)
        self.seed = seed
        self.word = data.StructLayout({"w": PARAMETER.shape, "v": VELOCITY.shape, "g": signed(_GRADIENT_SUM)})
        self.result = data.StructLayout(
            {"w": PARAMETER.shape, "v": VELOCITY.shape, "saturated": 1, "underflowed": 1, "magnitude": MAGNITUDE + 1}
        )
        super().__init__(
            {
                "config": In(OPTIMIZER_CONFIG),
                "i": In(stream.Signature(data.ArrayLayout(self.word, lanes))),
                "o": Out(stream.Signature(data.ArrayLayout(self.result, lanes))),
            }
        )

    def elaborate(self, platform):
        m = Module()

        # A lane cannot be held, so a beat enters only when the queue has room for all that are under way.
        depth = self.latency + 2
        m.submodules.queue = queue = SyncFIFOBuffered(width=len(self.o.p.as_value()), depth=depth)
        pending = Signal(range(depth + 1))
        take = self.i.valid & self.i.ready
        give = self.o.valid & self.o.ready
        m.d.sync += pending.eq(pending + take - give)
        m.d.comb += self.i.ready.eq(pending != depth)

        result = Signal(data.ArrayLayout(self.result, self.lanes))
        beat = self.i.p
        config = lane_config(m, self.config)
        for n in range(self.lanes):
            lane = OptimizerLane(offset=self.offset, rounding=self.rounding, seed=self.seed + n)
            place(m, f"lane{n}", lane, platform)
            m.d.comb += [
                lane.config.eq(config),
                lane.i.valid.eq(take),
                lane.i.v.eq(beat[n].v),
                lane.i.g.eq(beat[n].g),
                lane.w.eq(delay(m, beat[n].w, lane.w_wait)),
                result[n].w.eq(lane.o.w),
                result[n].saturated.eq(lane.o.saturated),
                result[n].underflowed.eq(lane.o.underflowed),
                result[n].v.eq(delay(m, lane.velocity.v, lane.latency - lane.velocity_latency)),
                result[n].magnitude.eq(delay(m, lane.norm_o, lane.latency - lane.norm_latency)),
            ]
        m.d.comb += [
            queue.w_data.eq(result),
            queue.w_en.eq(lane.o.valid),
            self.o.payload.eq(queue.r_data),
            self.o.valid.eq(queue.r_rdy),
            queue.r_en.eq(self.o.ready),
        ]
        return m
