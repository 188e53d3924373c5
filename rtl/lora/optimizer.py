"""The optimiser at lane width: SGD with momentum on Q4.12 words, one word a cycle and lane."""
from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from gradloom.rtl.config import PARAMETER, VELOCITY
from gradloom.rtl.formats.fixed import Fixed, Rounding, round_shift_hdl, saturate_hdl
from gradloom.rtl.hierarchy import place

__all__ = ["GRADIENT", "OPTIMIZER_CONFIG", "VelocityMode", "OptimizerLane", "OptimizerStep"]

#: A gradient as the optimiser sees it, in the units of the velocity.
GRADIENT = Fixed(width=36, frac=VELOCITY.frac)

_GRADIENT_SUM = 48      # bits of a gradient sum: a DSP slice's accumulator
_NOISE_ORDER = 31       # the noise is x[n] = x[n-31] ^ x[n-28]: one XOR a bit, up to 28 bits at once


class VelocityMode:
    """What the velocity is before the gradient is added to it."""

    ZERO = 0    #: nothing: plain SGD
    KEEP = 1    #: itself: one more microbatch of the same step
    DECAY = 2   #: ``mu`` times itself: momentum


#: Quasi-static configuration: held from the first word of a pass until its last has come out.
#: ``q``: the gradient exponent is ``24 - 4 * q``. ``mu``: unsigned Q0.16.
OPTIMIZER_CONFIG = data.StructLayout({"q": 2, "v_mode": 2, "apply": 1, "mu": 16})


class OptimizerLane(wiring.Component):
    """Updates one parameter a cycle; a valid-only pipeline that never stalls.

    With ``e = 24 - 4 * q`` and ``g`` an integer of ``e + offset`` fraction bits::

        g23 = nearest_even(g), saturated to Fixed(36, 23)
        v'  = saturate({ZERO: 0, KEEP: v, DECAY: nearest_even(mu * v)}[v_mode] + g23)
        w'  = saturate(rounding(w - v')) if apply else w

    Latency is 9 cycles; throughput is one word a cycle; one multiplier.

    Parameters
    ----------
    offset : :class:`int`
        Fraction bits of a gradient sum beyond the exponent: 9 for dA, 16 for dB.
    rounding : :class:`Rounding`
        How ``w'`` is rounded. ``g23`` and ``mu * v`` are always rounded to nearest even.
    seed : :class:`int`
        Start of the noise of stochastic rounding, 1..2**31-1. Word ``n`` after reset takes bits
        ``11 * n`` onward of the sequence ``x[n] = x[n-31] ^ x[n-28]``, whose first 31 bits are
        those of ``seed * 0x9E3779B1``, lowest first.

    Members
    -------
    config : ``In(OPTIMIZER_CONFIG)``
    i : ``In({valid, w: Fixed(16, 12), v: Fixed(27, 23), g: signed(48)})``
    o : ``Out({valid, w, v, saturated, underflowed, magnitude})``
        ``saturated``: ``g23``, ``v'`` or ``w'`` was clipped. ``underflowed``: ``v'`` is not zero
        but too small to move ``w``. ``magnitude``: ``abs(g23)``, unsigned, 23 fraction bits.
        Flags are 0 when not ``valid``.
    """

    latency = 9

    def __init__(self, *, offset=9, rounding=Rounding.NEAREST_EVEN, seed=1):
        if not -1 <= offset <= 24:
            raise ValueError(f"offset={offset}: a gradient sum has -1..24 fraction bits beyond its exponent")
        if not 0 < seed < 1 << _NOISE_ORDER:
            raise ValueError(f"seed={seed}: the noise needs a seed in 1..{(1 << _NOISE_ORDER) - 1}")
        self.offset = offset
        self.rounding = Rounding(rounding)
        self.seed = seed
        super().__init__({
            "config": In(OPTIMIZER_CONFIG),
            "i": In(data.StructLayout({"valid": 1, "w": PARAMETER.shape, "v": VELOCITY.shape,
                                       "g": signed(_GRADIENT_SUM)})),
            "o": Out(data.StructLayout({"valid": 1, "w": PARAMETER.shape, "v": VELOCITY.shape,
                                        "saturated": 1, "underflowed": 1, "magnitude": GRADIENT.width})),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config

        def register(value, name):
            # Data needs no reset: `valid` says what counts. Shift registers then cost no flip-flops.
            q = Signal(value.shape(), name=name, reset_less=True)
            m.d.sync += q.eq(value)
            return q

        def delay(value, cycles, name):
            for n in range(cycles):
                value = register(value, f"{name}_{n}")
            return value

        valid = [self.i.valid]
        for n in range(self.latency):
            valid.append(Signal(name=f"valid{n + 1}"))
            m.d.sync += valid[-1].eq(valid[-2])

        # Stage 1: fraction bits of every q brought to those of q = 0, so that one rounder serves all.
        aligned = Signal(signed(_GRADIENT_SUM + 12), reset_less=True)
        with m.Switch(config.q):
            for q in range(4):
                with m.Case(q):
                    m.d.sync += aligned.eq(Cat(Const(0, 4 * q), self.i.g).as_signed() if q else self.i.g)
        v1 = register(self.i.v, "v1")
        mu1 = register(Cat(config.mu, Const(0, 1)).as_signed(), "mu1")

        # Stages 2 and 3: g23; product.
        g2 = register(round_shift_hdl(aligned, 24 + self.offset - GRADIENT.frac), "g2")
        g3, g_over = saturate_hdl(g2, GRADIENT.shape)
        g3, g_over = register(g3, "g3"), register(g_over, "g_over")
        product = delay(v1 * mu1, 2, "product")
        v3 = delay(v1, 2, "v3")
        mu_v = round_shift_hdl(product, 16)

        # Stages 4 to 6: v'.
        start = Signal(VELOCITY.shape, reset_less=True)
        with m.Switch(config.v_mode):
            with m.Case(VelocityMode.KEEP):
                m.d.sync += start.eq(v3)
            with m.Case(VelocityMode.DECAY):
                m.d.sync += start.eq(mu_v)
            with m.Default():
                m.d.sync += start.eq(0)
        g4 = register(g3, "g4")
        v5 = register(start + g4, "v5")
        v6, v_over = saturate_hdl(v5, VELOCITY.shape)
        v6, v_over = register(v6, "v6"), register(v_over, "v_over")

        # Stages 7 to 9: w'.
        drop = VELOCITY.frac - PARAMETER.frac
        w6 = delay(self.i.w, 6, "w6")
        difference = register(Cat(Const(0, drop), w6).as_signed() - v6, "difference")
        w8 = register(round_shift_hdl(difference, drop, self.rounding, self._noise(m, valid[7], drop)), "w8")
        w8_old = delay(w6, 2, "w8_old")
        moved = register(v6.any(), "moved")
        moved = register(moved & config.apply, "moved_8")
        w9, w_over = saturate_hdl(w8, PARAMETER.shape)

        magnitude = register(Mux(g4[-1], -g4, g4)[:GRADIENT.width], "magnitude_5")
        over = register(g_over, "over4")
        over = register(over, "over5")
        over = register(over, "over6") | v_over
        over = delay(over, 2, "over8") | (w_over & config.apply)
        m.d.sync += [
            self.o.valid.eq(valid[8]),
            self.o.w.eq(Mux(config.apply, w9, w8_old)),
            self.o.v.eq(delay(v6, 2, "v8")),
            self.o.saturated.eq(valid[8] & over),
            self.o.underflowed.eq(valid[8] & moved & (w8 == w8_old)),
            self.o.magnitude.eq(delay(magnitude, 3, "magnitude_8")),
        ]
        return m

    def _noise(self, m, advance, bits):
        if self.rounding is not Rounding.STOCHASTIC:
            return None
        # Bit 0 is the oldest. A step takes `bits` of them and appends as many: no two words share a bit.
        # The seed is scattered because the sequence takes long to leave a state of few ones.
        state = Signal(_NOISE_ORDER, init=self.seed * 0x9E3779B1 % (1 << _NOISE_ORDER))
        with m.If(advance):
            m.d.sync += state.eq(Cat(state[bits:], state[:bits] ^ state[3:3 + bits]))
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
        self.result = data.StructLayout({"w": PARAMETER.shape, "v": VELOCITY.shape, "saturated": 1,
                                         "underflowed": 1, "magnitude": GRADIENT.width})
        super().__init__({
            "config": In(OPTIMIZER_CONFIG),
            "i": In(stream.Signature(data.ArrayLayout(self.word, lanes))),
            "o": Out(stream.Signature(data.ArrayLayout(self.result, lanes))),
        })

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
        for n in range(self.lanes):
            lane = OptimizerLane(offset=self.offset, rounding=self.rounding, seed=self.seed + n)
            place(m, f"lane{n}", lane, platform)
            m.d.comb += [
                lane.config.eq(self.config),
                lane.i.valid.eq(take),
                *(getattr(lane.i, f).eq(getattr(self.i.p[n], f)) for f in self.word.members),
                *(getattr(result[n], f).eq(getattr(lane.o, f)) for f in self.result.members),
            ]
        m.d.comb += [
            queue.w_data.eq(result),
            queue.w_en.eq(lane.o.valid),
            self.o.payload.eq(queue.r_data),
            self.o.valid.eq(queue.r_rdy),
            queue.r_en.eq(self.o.ready),
        ]
        return m
