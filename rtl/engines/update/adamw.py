"""AdamW lanes: floating-point moments, fixed-point words."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ...formats.adamw import BETA, BIAS, EPS, EXPONENTS, FRACTION, GUARD, INVERSE, LARGEST, NOTHING, ROOT, SQRT
from ...formats.weights.linear import ACTIVATION, MASTER
from ...hierarchy import place
from ...stream.delay import delay
from ...stream.interpolator import Interpolator

__all__ = ["AdamOperands", "AdamLane", "Moment", "plus_or_minus"]

_MANTISSA = FRACTION + 1
#: Bits of an aligned sum of two mantissas.
_WINDOW = _MANTISSA + GUARD + 1

#: A moment: float32 without infinities.
Moment = data.StructLayout({"fraction": FRACTION, "exponent": EXPONENTS, "sign": 1})

#: What a lane takes of a command.
AdamOperands = data.StructLayout(
    {
        "beta1": BETA,
        "beta2": BETA,
        "eps": EPS,
        "eps_exponent": signed(10),
        "gradient": signed(10),
        "exponent": signed(11),
        "sign": 1,
    }
)


class _Stages:
    """Values by the cycle in which they are there."""

    def __init__(self, m):
        self.m = m
        self.lines = {}

    def put(self, name, cycle, value):
        """Makes ``value`` available under ``name`` from ``cycle`` on.

        ``value`` is made of values that are there in the cycle before.
        """
        value = Value.cast(value)
        register = Signal(value.shape(), name=name, reset_less=True)
        self.m.d.sync += register.eq(value)
        self.lines[name] = cycle, [register]

    def __call__(self, name, cycle):
        first, line = self.lines[name]
        while len(line) <= cycle - first:
            # A register: most lines are short, and in shift registers would be a LUT a bit.
            line.append(delay(self.m, line[-1], 1, reset_less=False))
        return line[cycle - first]

    def normalise(self, name, cycle, value, units):
        """Shifts up until the top bit is 1; ``name_down`` is the distance.

        The distance is at most three of each unit.

        The result is there ``len(units)`` - 1 cycles after ``cycle``. Each unit is a quarter of the one before.
        """
        width, down = len(value), Const(0, 0)
        for n, unit in enumerate(units):
            # Whether the top one, two, three units hold nothing; of the largest there may be one only.
            empty = [~value[width - unit * k :].any() for k in (1, 2, 3) if unit * k < width]
            count = Cat(empty[0] & (~empty[1] | empty[2]), empty[1]) if len(empty) == 3 else empty[0]
            shifted = [(value << unit * k)[:width] for k in range(len(empty) + 1)]
            choice = Mux(count[0], shifted[1], shifted[0])
            if len(empty) == 3:
                choice = Mux(count[1], Mux(count[0], shifted[3], shifted[2]), choice)
            self.put(f"{name}_{n}", cycle + n, choice)
            self.put(f"{name}_down_{n}", cycle + n, Cat(count, down))
            value, down = self(f"{name}_{n}", cycle + n), self(f"{name}_down_{n}", cycle + n)
        for key, last in ((name, value), (f"{name}_down", down)):
            self.lines[key] = cycle + len(units) - 1, [last]

    def align(self, name, cycle, one, other):
        """Aligns two ``(exponent, mantissa)`` to the larger exponent.

        ``name_high`` and ``name_low``, shifted down, under ``name_exponent``.

        They are there in ``cycle`` + 3, with ``name_first``: whether the high one is ``one``.
        """
        (e1, a), (e2, b) = one, other
        for key, value in (("ahead", e1 - e2), ("a", a), ("b", b), ("e1", e1), ("e2", e2)):
            self.put(f"{name}_{key}", cycle, value)
        ahead, a, b, e1, e2 = (self(f"{name}_{key}", cycle) for key in ("ahead", "a", "b", "e1", "e2"))
        first = ~ahead[-1]
        # The complement of what is below 0 is one less than its size.
        distance = Mux(first, ahead, ~ahead)
        self.put(f"{name}_first", cycle + 1, first)
        self.put(f"{name}_exponent", cycle + 1, Mux(first, e1, e2))
        self.put(f"{name}_high", cycle + 1, Mux(first, a, b))
        self.put(f"{name}_lower", cycle + 1, Mux(first, b, a >> 1))
        self.put(f"{name}_distance", cycle + 1, distance[:5] | distance[5:-1].any().replicate(5))
        self.put(
            f"{name}_coarse",
            cycle + 2,
            self(f"{name}_lower", cycle + 1) >> (self(f"{name}_distance", cycle + 1) & 0b11000),
        )
        self.put(f"{name}_low", cycle + 3, self(f"{name}_coarse", cycle + 2) >> self(f"{name}_distance", cycle + 2)[:3])


def _negated(value, negative):
    """``value``, or its negative where ``negative``; one carry chain."""
    return (value ^ negative.replicate(len(value))) + negative


def plus_or_minus(a, b, minus):
    """``a + b`` or ``a - b`` of words of one width, signed; one carry chain."""
    turned = (Cat(b, b[-1] if b.shape().signed else Const(0, 1)) ^ minus.replicate(len(b) + 1)).as_signed()
    # The lowest bits make the carry that a negation needs.
    return (
        Cat(Const(1, 1), a, a[-1] if a.shape().signed else Const(0, 1)).as_signed() + Cat(minus, turned).as_signed()
    )[1 : len(b) + 3].as_signed()


class AdamLane(wiring.Component):
    """New moments of a word, and the step that they make.

    A word a cycle, 6 multipliers.

    With the moments of the command before, ``m' = beta1 m + g`` and ``v' = beta2 v + g**2``, and the step is
    ``round(product * rate * 2**-shift)``, ``product`` being the mantissa of ``m' / (sqrt(v') + eps)``. Bit for bit
    this is ``adamw`` of the reference.

    With ``sign`` it is Lion: the path of v adds ``beta2 m + g`` of the old m, and the step has the size of the rate and
    the sign of that sum; the new v is 0.

    Members
    -------
    operands : :data:`AdamOperands`; stable while words are under way, but for ``gradient``, which may be each word's,
        :attr:`grade_cycle` cycles behind it.
    g, m, v : gradient, moments.
    new_m, new_v : after :attr:`m_latency` and :attr:`v_latency` cycles, with ``m_over``, ``v_over`` where clipped.
    product, shift, beyond, negative : after :attr:`latency` cycles; ``beyond``: the step is larger than any word.
    """

    m_latency, v_latency, latency = 17, 15, 32
    grade_cycle = 4

    def __init__(self):
        super().__init__(
            {
                "operands": In(AdamOperands),
                "g": In(signed(ACTIVATION.width)),
                "m": In(Moment),
                "v": In(Moment),
                "new_m": Out(Moment),
                "m_over": Out(1),
                "new_v": Out(Moment),
                "v_over": Out(1),
                "product": Out(_MANTISSA),
                "shift": Out(6),
                "beyond": Out(1),
                "negative": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        at = _Stages(m)
        self._gradient(at)
        self._first(at)
        self._second(at)
        self._root(m, platform, at)
        self._step(m, platform, at)
        word = Moment(at("m_word", self.m_latency))
        m.d.comb += [
            self.new_m.eq(word),
            self.m_over.eq(at("m_over", self.m_latency)),
            self.new_v.eq(at("v_word", self.v_latency)),
            self.v_over.eq(at("v_over", self.v_latency)),
        ]
        return m

    def _gradient(self, at):
        """``mantissa`` in cycle 4, its ``grade`` (exponent) and ``square`` in 5."""
        at.put("size", 1, _negated(self.g, self.g[-1])[: ACTIVATION.width])
        at.put("g_sign", 1, self.g[-1])
        at.normalise("mantissa", 2, at("size", 1), (16, 4, 1))
        mantissa = at("mantissa", 4)
        at.put("grade", 5, Mux(mantissa[-1], self.operands.gradient - at("mantissa_down", 4), NOTHING))
        at.put("square", 5, mantissa * mantissa[_MANTISSA - BETA :])

    @staticmethod
    def _mantissa(word):
        return Mux(word.exponent.any(), Cat(word.fraction, Const(1, 1)), 0)

    def _decayed(self, at, name, cycle, word, beta):
        """Decays a moment: ``name_decayed`` is the mantissa times beta.

        It is there in ``cycle`` + 2. ``name_old``, ``name_was``: exponent, sign.
        """
        at.put(f"{name}_in", 1, word)
        word = Moment(at(f"{name}_in", cycle))
        at.put(f"{name}_mantissa", cycle + 1, self._mantissa(word))
        at.put(f"{name}_old", cycle + 1, word.exponent)
        at.put(f"{name}_was", cycle + 1, word.sign)
        at.put(f"{name}_decayed", cycle + 2, at(f"{name}_mantissa", cycle + 1) * beta)

    def _pack(self, at, name, cycle, total, exponent, sign, units, never=0):
        """Packs a sum into ``name_word`` and ``name_over``; with ``never`` it is 0.

        They are there ``len(units)`` + 3 cycles after ``cycle``.
        """
        at.normalise(f"{name}_sum", cycle + 1, total, units)
        at.put(f"{name}_e", cycle + 1, exponent)
        at.put(f"{name}_s", cycle + 1, sign)
        done = cycle + len(units)
        top = at(f"{name}_sum", done)
        at.put(f"{name}_new", done + 1, at(f"{name}_e", done).as_signed() + 1 - at(f"{name}_sum_down", done))
        at.put(f"{name}_rounded", done + 1, (top[GUARD:] + 1) >> 1)
        at.put(f"{name}_none", done + 1, ~top[-1] | never)
        new, rounded = at(f"{name}_new", done + 1), at(f"{name}_rounded", done + 1)
        at.put(f"{name}_carried", done + 2, new + rounded[FRACTION + 1])
        at.put(f"{name}_zero", done + 2, at(f"{name}_none", done + 1) | (new < 1))
        at.put(f"{name}_fraction", done + 2, rounded[:FRACTION])
        carried, zero = at(f"{name}_carried", done + 2), at(f"{name}_zero", done + 2)
        over = ~zero & (carried > 254)
        word = Mux(over, LARGEST, Cat(at(f"{name}_fraction", done + 2), carried[:EXPONENTS]))
        at.put(f"{name}_over", done + 3, over)
        at.put(f"{name}_word", done + 3, Mux(zero, 0, Cat(word[: MASTER.width - 1], at(f"{name}_s", done + 2))))

    def _first(self, at):
        self._decayed(at, "m", 3, self.m, self.operands.beta1)
        at.align(
            "m",
            6,
            (at("m_old", 5), at("m_decayed", 5)[BETA - GUARD :]),
            (at("grade", 5), Cat(Const(0, GUARD), at("mantissa", 5))),
        )
        minus = at("m_was", 9) ^ at("g_sign", 9)
        at.put("m_total", 10, plus_or_minus(at("m_high", 9), at("m_low", 9), minus))
        at.put("m_side", 10, Mux(at("m_first", 9), at("m_was", 9), at("g_sign", 9)))
        total = at("m_total", 10)
        at.put("m_size", 11, _negated(total, total[-1])[:_WINDOW])
        at.put("m_sign", 11, at("m_side", 10) ^ total[-1])
        self._pack(at, "m", 11, at("m_size", 11), at("m_exponent", 11), at("m_sign", 11), (16, 4, 1))

    def _second(self, at):
        sign = self.operands.sign
        self._decayed(at, "v", 4, Mux(sign, self.m.as_value(), self.v.as_value()), self.operands.beta2)
        twice = (at("grade", 5) << 1) - (BIAS - _MANTISSA)
        at.put("other_grade", 6, Mux(sign, at("grade", 5), twice))
        plain = Cat(Const(0, GUARD), at("mantissa", 6))
        at.align(
            "v",
            7,
            (at("v_old", 6), at("v_decayed", 6)[BETA - GUARD :]),
            (at("other_grade", 6).as_signed(), Mux(sign, plain, at("square", 6)[BETA - GUARD :])),
        )
        # mutant adds: total = at("v_high", 10) + at("v_low", 10)
        total = plus_or_minus(at("v_high", 10), at("v_low", 10), sign & (at("v_was", 10) ^ at("g_sign", 10)))
        at.put("v_total", 11, total[:_WINDOW])
        at.put("way", 11, Mux(at("v_first", 10), at("v_was", 10), at("g_sign", 10)) ^ total[-1])
        at.put("moves", 12, at("v_total", 11).any())
        self._pack(at, "v", 11, at("v_total", 11), at("v_exponent", 11), Const(0, 1), (1,), never=sign)

    def _root(self, m, platform, at):
        """``total``, root and eps in units of ``2**(height - ROOT)``.

        They are there in cycle 25.
        """
        word = Moment(at("v_word", 15))
        fraction = Cat(word.fraction[4:], Const(1, 1))
        at.put("u", 16, Mux(word.exponent[0], fraction >> 1, fraction))
        at.put("v_none", 16, ~word.exponent.any())
        at.put("half", 16, ((word.exponent + 1) >> 1) - 63)
        root = place(m, "root", Interpolator(table=SQRT), platform)
        m.d.comb += [root.enable.eq(1), root.x.eq(at("u", 16))]
        none = at("v_none", 19)
        at.put("root", 20, Mux(none, 0, root.y[:ROOT] | root.y[ROOT].replicate(ROOT)))
        at.put("level", 20, Mux(none, NOTHING, at("half", 19)))
        at.align(
            "e",
            21,
            (at("level", 20), at("root", 20)),
            (self.operands.eps_exponent, Cat(Const(0, ROOT - EPS), self.operands.eps)),
        )
        at.put("total", 25, (at("e_high", 24) + at("e_low", 24))[: ROOT + 1])

    def _step(self, m, platform, at):
        total = at("total", 25)
        small = ~total[ROOT]
        at.put("x", 26, Mux(small, total << 1, total)[:ROOT])
        at.put("height", 26, at("e_exponent", 25).as_signed() - small)
        at.put("nothing", 26, ~total.any())
        inverse = place(m, "inverse", Interpolator(table=INVERSE), platform)
        m.d.comb += [inverse.enable.eq(1), inverse.x.eq(at("x", 26))]
        at.put("inverse", 30, Mux(at("nothing", 29), 0, ~inverse.y[:BETA]))
        word = Moment(at("m_word", 29))
        at.put("m_new", 30, self._mantissa(word))
        at.put("m_up", 30, word.exponent)
        at.put("height_down", 30, at("height", 29) + self.operands.exponent)
        at.put("quotient", 31, at("m_new", 30) * at("inverse", 30))
        down = at("height_down", 30) - at("m_up", 30)
        at.put("down", 31, Mux(self.operands.sign, self.operands.exponent, down))
        at.put("some", 31, at("m_new", 30)[-1] & ~at("nothing", 30) & ~self.operands.sign)
        down, beyond = at("down", 31), Signal()
        m.d.comb += beyond.eq(down[-1])
        # A whole step, or none.
        whole = Cat(Const(0, _MANTISSA - 1), at("moves", 31))
        at.put("product", 32, Mux(self.operands.sign, whole, at("quotient", 31)[BETA:]))
        at.put("shift", 32, Mux(beyond, 0, down[:6] | down[6:-1].any().replicate(6)))
        at.put("beyond", 32, beyond & at("some", 31))
        m.d.comb += [
            self.product.eq(at("product", 32)),
            self.shift.eq(at("shift", 32)),
            self.beyond.eq(at("beyond", 32)),
            self.negative.eq(Mux(self.operands.sign, at("way", 32), Moment(at("m_word", 32)).sign)),
        ]
