"""AdamW of one word after another: floats in and out, a step for the word's own format."""
from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..formats.adamw import BETA, BIAS, EPS, EXPONENTS, FRACTION, GUARD, INVERSE, LARGEST, NOTHING, ROOT, SQRT
from ..formats.linear import ACTIVATION, MASTER
from ..hierarchy import place
from ..stream.delay import delay
from ..stream.interpolator import Interpolator

__all__ = ["AdamOperands", "AdamLane", "Moment"]

_MANTISSA = FRACTION + 1
#: Bits of an aligned sum of two mantissas.
_WINDOW = _MANTISSA + GUARD + 1

#: A moment: float32 without infinities.
Moment = data.StructLayout({"fraction": FRACTION, "exponent": EXPONENTS, "sign": 1})

#: What a lane takes of a command.
AdamOperands = data.StructLayout({
    "beta1": BETA, "beta2": BETA, "eps": EPS, "eps_exponent": signed(10), "gradient": signed(10),
    "exponent": signed(11)})


class _Stages:
    """Values by the cycle in which they are there."""

    def __init__(self, m):
        self.m = m
        self.lines = {}

    def put(self, name, cycle, value):
        """``value``, made of what is there in the cycle before, is there in ``cycle`` and from then on."""
        value = Value.cast(value)
        register = Signal(value.shape(), name=name, reset_less=True)
        self.m.d.sync += register.eq(value)
        self.lines[name] = cycle, [register]

    def __call__(self, name, cycle):
        first, line = self.lines[name]
        while len(line) <= cycle - first:
            line.append(delay(self.m, line[-1], 1))
        return line[cycle - first]

    def normalise(self, name, cycle, value, steps):
        """Shifts up until the top bit is 1, by at most the sum of ``steps``; the distance is ``name_down``."""
        taken = []
        for n, step in enumerate(steps):
            value = Value.cast(value)
            empty = ~value[len(value) - step:].any()
            taken = [*taken, empty]
            self.put(f"{name}_{n}", cycle + n, Mux(empty, (value << step)[:len(value)], value))
            self.put(f"{name}_taken_{n}", cycle + n, Cat(*taken))
            value = self(f"{name}_{n}", cycle + n)
            held = self(f"{name}_taken_{n}", cycle + n)
            taken = [held[k] for k in range(n + 1)]
        last = cycle + len(steps) - 1
        self.lines[name] = last, [value]
        # The largest step was decided first.
        self.lines[f"{name}_down"] = last, [Cat(*reversed(taken))]

    def align(self, name, cycle, one, other):
        """Two ``(exponent, mantissa)``: ``name_high`` and ``name_low``, shifted down, under ``name_exponent``.

        There in ``cycle`` + 3, with ``name_first``: whether the high one is ``one``.
        """
        (e1, a), (e2, b) = one, other
        ways = []
        for n, (x, y) in enumerate(((e1, e2), (e2, e1))):
            self.put(f"{name}_way_{n}", cycle, x - y)
            ways.append(self(f"{name}_way_{n}", cycle))
        for key, value in (("a", a), ("b", b), ("e1", e1), ("e2", e2)):
            self.put(f"{name}_{key}", cycle, value)
        a, b, e1, e2 = (self(f"{name}_{key}", cycle) for key in ("a", "b", "e1", "e2"))
        first = ~ways[0][-1]
        distance = Mux(first, ways[0], ways[1])
        self.put(f"{name}_first", cycle + 1, first)
        self.put(f"{name}_exponent", cycle + 1, Mux(first, e1, e2))
        self.put(f"{name}_high", cycle + 1, Mux(first, a, b))
        self.put(f"{name}_lower", cycle + 1, Mux(first, b, a))
        self.put(f"{name}_distance", cycle + 1, distance[:5] | distance[5:-1].any().replicate(5))
        self.put(f"{name}_coarse", cycle + 2,
                 self(f"{name}_lower", cycle + 1) >> (self(f"{name}_distance", cycle + 1) & 0b11000))
        self.put(f"{name}_low", cycle + 3,
                 self(f"{name}_coarse", cycle + 2) >> self(f"{name}_distance", cycle + 2)[:3])


class AdamLane(wiring.Component):
    """New moments of a word, and the step that they make; a word a cycle, 7 multipliers.

    With the moments of the command before, ``m' = beta1 m + g`` and ``v' = beta2 v + g**2``, and the step is
    ``round(product * rate * 2**-shift)``, ``product`` being the mantissa of ``m' / (sqrt(v') + eps)``. Bit for bit
    this is ``adamw`` of the reference.

    Members
    -------
    operands : :data:`AdamOperands`; stable while words are under way.
    g, m, v : gradient, moments.
    new_m, new_v : after :attr:`m_latency` and :attr:`v_latency` cycles, with ``m_over``, ``v_over`` where clipped.
    product, shift, beyond, negative : after :attr:`latency` cycles; ``beyond``: the step is larger than any word.
    """

    m_latency, v_latency, latency = 21, 18, 35

    def __init__(self):
        super().__init__({
            "operands": In(AdamOperands), "g": In(signed(ACTIVATION.width)), "m": In(Moment), "v": In(Moment),
            "new_m": Out(Moment), "m_over": Out(1), "new_v": Out(Moment), "v_over": Out(1),
            "product": Out(_MANTISSA), "shift": Out(6), "beyond": Out(1), "negative": Out(1),
        })

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
            self.new_m.eq(word), self.m_over.eq(at("m_over", self.m_latency)),
            self.new_v.eq(at("v_word", self.v_latency)), self.v_over.eq(at("v_over", self.v_latency)),
        ]
        return m

    def _gradient(self, at):
        """``mantissa`` in cycle 6, its ``grade`` (exponent) and ``square`` in 7."""
        at.put("size", 1, Mux(self.g[-1], -self.g, self.g)[:ACTIVATION.width])
        at.put("g_sign", 1, self.g[-1])
        at.normalise("mantissa", 2, at("size", 1), (16, 8, 4, 2, 1))
        mantissa = at("mantissa", 6)
        at.put("grade", 7, Mux(mantissa[-1], self.operands.gradient - at("mantissa_down", 6), NOTHING))
        at.put("square", 7, mantissa * mantissa[_MANTISSA - BETA:])

    @staticmethod
    def _mantissa(word):
        return Mux(word.exponent.any(), Cat(word.fraction, Const(1, 1)), 0)

    def _decayed(self, at, name, cycle, word, beta):
        """``name_decayed``, the mantissa times beta, in ``cycle`` + 2; ``name_old``, ``name_was``: exponent, sign."""
        at.put(f"{name}_in", 1, word)
        word = Moment(at(f"{name}_in", cycle))
        at.put(f"{name}_mantissa", cycle + 1, self._mantissa(word))
        at.put(f"{name}_old", cycle + 1, word.exponent)
        at.put(f"{name}_was", cycle + 1, word.sign)
        at.put(f"{name}_decayed", cycle + 2, at(f"{name}_mantissa", cycle + 1) * beta)

    def _pack(self, at, name, cycle, total, exponent, sign, steps):
        """``name_word`` and ``name_over`` of a sum, ``len(steps)`` + 3 cycles after ``cycle``."""
        at.normalise(f"{name}_sum", cycle + 1, total, steps)
        at.put(f"{name}_e", cycle + 1, exponent)
        at.put(f"{name}_s", cycle + 1, sign)
        done = cycle + len(steps)
        top = at(f"{name}_sum", done)
        at.put(f"{name}_new", done + 1, at(f"{name}_e", done).as_signed() + 1 - at(f"{name}_sum_down", done))
        at.put(f"{name}_rounded", done + 1, (top[GUARD:] + 1) >> 1)
        at.put(f"{name}_none", done + 1, ~top[-1])
        new, rounded = at(f"{name}_new", done + 1), at(f"{name}_rounded", done + 1)
        at.put(f"{name}_carried", done + 2, new + rounded[FRACTION + 1])
        at.put(f"{name}_zero", done + 2, at(f"{name}_none", done + 1) | (new < 1))
        at.put(f"{name}_fraction", done + 2, rounded[:FRACTION])
        carried, zero = at(f"{name}_carried", done + 2), at(f"{name}_zero", done + 2)
        over = ~zero & (carried > 254)
        word = Mux(over, LARGEST, Cat(at(f"{name}_fraction", done + 2), carried[:EXPONENTS]))
        at.put(f"{name}_over", done + 3, over)
        at.put(f"{name}_word", done + 3, Mux(zero, 0, Cat(word[:MASTER.width - 1], at(f"{name}_s", done + 2))))

    def _first(self, at):
        self._decayed(at, "m", 5, self.m, self.operands.beta1)
        at.align("m", 8, (at("m_old", 7), at("m_decayed", 7)[BETA - GUARD:]),
                 (at("grade", 7), Cat(Const(0, GUARD), at("mantissa", 7))))
        high, low = at("m_high", 11), at("m_low", 11)
        minus = at("m_was", 11) ^ at("g_sign", 11)
        at.put("m_total", 12, Mux(minus, high - low, high + low)[:_WINDOW + 1].as_signed())
        at.put("m_side", 12, Mux(at("m_first", 11), at("m_was", 11), at("g_sign", 11)))
        total = at("m_total", 12)
        negative = total[-1]
        at.put("m_size", 13, Mux(negative, -total, total)[:_WINDOW])
        at.put("m_sign", 13, at("m_side", 12) ^ negative)
        self._pack(at, "m", 13, at("m_size", 13), at("m_exponent", 13), at("m_sign", 13), (16, 8, 4, 2, 1))

    def _second(self, at):
        self._decayed(at, "v", 6, self.v, self.operands.beta2)
        at.put("grade_twice", 8, (at("grade", 7) << 1) - (BIAS - _MANTISSA))
        at.align("v", 9, (at("v_old", 8), at("v_decayed", 8)[BETA - GUARD:]),
                 (at("grade_twice", 8), at("square", 8)[BETA - GUARD:]))
        at.put("v_total", 13, (at("v_high", 12) + at("v_low", 12))[:_WINDOW])
        self._pack(at, "v", 13, at("v_total", 13), at("v_exponent", 13), Const(0, 1), (2, 1))

    def _root(self, m, platform, at):
        """``total``, root and eps in units of ``2**(height - ROOT)``, in cycle 28."""
        word = Moment(at("v_word", 18))
        fraction = Cat(word.fraction[4:], Const(1, 1))
        at.put("u", 19, Mux(word.exponent[0], fraction >> 1, fraction))
        at.put("v_none", 19, ~word.exponent.any())
        at.put("half", 19, ((word.exponent + 1) >> 1) - 63)
        root = place(m, "root", Interpolator(table=SQRT), platform)
        m.d.comb += [root.enable.eq(1), root.x.eq(at("u", 19))]
        none = at("v_none", 22)
        at.put("root", 23, Mux(none, 0, root.y[:ROOT] | root.y[ROOT].replicate(ROOT)))
        at.put("level", 23, Mux(none, NOTHING, at("half", 22)))
        at.align("e", 24, (at("level", 23), at("root", 23)),
                 (self.operands.eps_exponent, Cat(Const(0, ROOT - EPS), self.operands.eps)))
        at.put("total", 28, (at("e_high", 27) + at("e_low", 27))[:ROOT + 1])

    def _step(self, m, platform, at):
        total = at("total", 28)
        small = ~total[ROOT]
        at.put("x", 29, Mux(small, total << 1, total)[:ROOT])
        at.put("height", 29, at("e_exponent", 28).as_signed() - small)
        at.put("nothing", 29, ~total.any())
        inverse = place(m, "inverse", Interpolator(table=INVERSE), platform)
        m.d.comb += [inverse.enable.eq(1), inverse.x.eq(at("x", 29))]
        at.put("inverse", 33, Mux(at("nothing", 32), 0, ~inverse.y[:BETA]))
        word = Moment(at("m_word", 32))
        at.put("m_new", 33, self._mantissa(word))
        at.put("m_up", 33, word.exponent)
        at.put("height_down", 33, at("height", 32) + self.operands.exponent)
        at.put("quotient", 34, at("m_new", 33) * at("inverse", 33))
        at.put("down", 34, at("height_down", 33) - at("m_up", 33))
        at.put("some", 34, at("m_new", 33)[-1] & ~at("nothing", 33))
        down, beyond = at("down", 34), Signal()
        m.d.comb += beyond.eq(down[-1])
        at.put("product", 35, at("quotient", 34)[BETA:])
        at.put("shift", 35, Mux(beyond, 0, down[:6] | down[6:-1].any().replicate(6)))
        at.put("beyond", 35, beyond & at("some", 34))
        m.d.comb += [
            self.product.eq(at("product", 35)), self.shift.eq(at("shift", 35)), self.beyond.eq(at("beyond", 35)),
            self.negative.eq(Moment(at("m_word", 35)).sign),
        ]
