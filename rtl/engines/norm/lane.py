"""One lane of the norm engine: an element a cycle."""

from enum import IntEnum
from functools import partial

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ...formats.rounding import saturate_hdl
from ...formats.tiles.codes import WIDE, WORD
from ...formats.tiles.norm import (
    ALIGNED,
    BIAS_LIFT,
    DEEP,
    FACTOR,
    LEAST_ARGUMENT,
    LIFT,
    POWER,
    PULL,
    PULL_WORD,
    REST,
    SPREAD,
    UNIT,
)
from ...formats.vector import EXP2, EXPONENT_FRAC, POWER_FRAC, ROOT_FRAC
from ...hierarchy import place
from ...stream.delay import delay, registered
from ...systolic.slices import MultiplyAdd

__all__ = ["GroupWord", "GradientWord", "HALVES", "Kind", "NormLane", "PRODUCT"]

#: Bits of a normalised value; of its product with 18 bits.
_NORMALISED = ALIGNED
PRODUCT = _NORMALISED + PULL
#: Bits of a score in halves of the common unit. Halves that round down fall to a larger unit as if they had been made
#: under it, so the largest score does not depend on the order of tiles.
HALVES = WIDE + 1
#: What is known of a group after SUMS, or of a row of a softmax: ``sum`` is its level.
GroupWord = data.StructLayout({"sum": signed(32), "mantissa": ROOT_FRAC, "exponent": 5})
#: ... after BACK_SUMS, or of a row of a softmax: ``mean`` is its largest score, or the pull of its gradient.
GradientWord = data.StructLayout({"mean": signed(PULL_WORD), "along": signed(PULL)})
#: A softmax's argument, and that less a level.
_ARGUMENT = signed((-LEAST_ARGUMENT).bit_length() + EXPONENT_FRAC + 1)
#: A shift in two cycles, by its upper bits and by its lower ones: of four choices each a LUT of six inputs takes two.
_FINE = 2
_COARSE = 0b111100


def _uniform(bits):
    """All are equal: the sign."""
    return bits.all() | ~bits.any()


class Kind(IntEnum):
    """What the lanes make of a beat: a pass over operands."""

    SUMS = 0  # x, and its square
    NORM = 1
    BACK_SUMS = 2  # gradient times gain, and its product with the normalised value
    BACK = 3
    LARGEST = 4  # x, in halves
    POWERS = 5  # powers of two above the largest
    SHARES = 6  # ... above the level
    PULLS = 7  # a · b
    SOFT_BACK = 8


class NormLane(wiring.Component):
    """Words of an element, by four multipliers in a row, and a small one behind the table of powers that is of LUTs.

    ::

        x --> shift --> less the mean, aligned --+
        a, b of a softmax, less largest or pull -+--> · root or factor --+--> table --> power
                                                                         |
        gain, dy · gain, along, x --------------------------------------> · --> less mean, + bias
                                                                         |
                                                       root, a --------> · --> word

    Never held: results come :attr:`latency` cycles after operands, which are of stage 0.

    Members
    -------
    kind : held, as are all up to ``bias_down``.
    size : log2 of a group's values. factor, near : of a softmax: mantissa, and the shift that makes an argument of it.
    gain_down, bias_down : shifts of gain and bias.
    a, b, gain, bias : codes, stage 0. counts : the element is one of the row, stage 0; else it counts as 0.
    down, narrow : shifts of x, or of a softmax's dy, and of products of the two codes, stage 1.
    level : the row's largest score, or its pull, stage 4.
    group, slope : what is known of the element's group, stage 0. shift, fine : of its root, stage 0.
    word, second : results; ``second`` goes with a word that is added up.
    clipped : how many values were, with ``word``.
    """

    latency = 25

    def __init__(self):
        code = signed(WIDE)
        super().__init__(
            {
                "kind": In(Kind),
                "size": In(4),
                "factor": In(FACTOR),
                "near": In(6),
                "gain_down": In(5),
                "bias_down": In(6),
                "a": In(code),
                "b": In(code),
                "gain": In(code),
                "bias": In(code),
                "counts": In(1),
                "down": In(5),
                "narrow": In(6),
                "level": In(signed(PULL_WORD)),
                "group": In(GroupWord),
                "slope": In(GradientWord),
                "shift": In(6),
                "fine": In(5),
                "word": Out(signed(WORD)),
                "second": Out(signed(PRODUCT)),
                "clipped": Out(2),
            }
        )

    def elaborate(self, platform):
        m = Module()
        register, later = partial(registered, m), partial(delay, m)
        # Of a few cycles: registers have a reset here, so that they are no shift register, a LUT a bit.
        soon = partial(delay, m, reset_less=False)
        # What the kind is, in registers: a LUT of a choice has no room for its bits.
        sums, norms, back_sums, backs, largest, powers, pulls, soft_back = (
            register(self.kind == each)
            for each in (
                *(Kind.SUMS, Kind.NORM, Kind.BACK_SUMS, Kind.BACK),
                *(Kind.LARGEST, Kind.POWERS, Kind.PULLS, Kind.SOFT_BACK),
            )
        )
        back = register((self.kind == Kind.BACK_SUMS) | (self.kind == Kind.BACK))
        norm = register((self.kind == Kind.NORM) | (self.kind == Kind.BACK_SUMS) | (self.kind == Kind.BACK))
        power = register((self.kind == Kind.POWERS) | (self.kind == Kind.SHARES))
        group1, slope1 = register(self.group), register(self.slope)
        a1, b1 = (register(Mux(self.counts, each, 0)) for each in (self.a, self.b))
        gain1, bias1 = register(self.gain), register(self.bias)

        # Stages 2 to 4: x, or a softmax's dy, under the group's exponent; 2 to 7: dy times gain, or a times b.
        x3 = register((register(Mux(soft_back, b1, a1)) << 1) >> register(self.down), signed(HALVES))
        # mutant rounds-twice: x4 = register(Mux(largest, (x3 + 1) >> 1 << 1, (x3 + 1) >> 1), signed(HALVES))
        x4 = register(Mux(largest, x3, (x3 + 1) >> 1), signed(HALVES))
        other = Mux(pulls, b1, gain1)
        product = register(register(register(Mux(back, b1, a1)) * register(other, signed(WIDE))))
        rounded7, words7 = self._rounded(m, product, later(self.narrow, 3)), Signal(signed(PULL))
        m.d.comb += words7.eq(rounded7)

        # Stages 5 to 8: less the mean, aligned with the root.
        scaled5 = register(x4 << self.size, signed(WIDE + 15))
        d6 = register(scaled5 - soon(group1.sum, 4), signed(33))
        aligned8, wide8 = self._window(m, d6, DEEP, later(self.shift, 6), ALIGNED)
        # mutant wraps: over = Const(0, 1)
        over = wide8 | ~_uniform(aligned8[ALIGNED - 1 :])
        negative8 = later(d6[-1], 2)
        fitting = Mux(over, Cat(~negative8.replicate(ALIGNED - 1), negative8), aligned8[:ALIGNED]).as_signed()
        # mutant counts-beyond: over9 = register(over & norm)
        over9 = register(over & norm & later(self.counts, 8))
        # Stage 5: less the row's largest score, or its pull.
        less5 = register(Mux(power, x4, x4 << LIFT) - self.level, signed(ALIGNED))
        # Stages 9 to 11: times the root's mantissa, or the factor.
        mantissa1 = group1.mantissa
        x9 = register(Mux(norm, fitting, soon(less5, 3)), signed(ALIGNED))
        y9 = register(Mux(norm, later(mantissa1, 7), self.factor), unsigned(FACTOR))
        scaled11 = register(register(x9 * Cat(y9, Const(0, 1)).as_signed()))
        # Stages 12 and 13: normalised, or a gradient's term.
        half12 = register(Mux(norm, scaled11 >> DEEP + ROOT_FRAC - UNIT - 1, scaled11 >> FACTOR - 1), signed(28))
        # mutant rounds-down: unit13 = register(half12 >> 1, signed(_NORMALISED))
        unit13 = register((half12 + 1) >> 1, signed(_NORMALISED))
        power22 = self._power(m, scaled11, powers, later(group1.sum, 13))

        # Stages 14 to 16: times gain, gradient, its part along x or itself.
        gain4 = self._rounded(m, gain1, Cat(self.gain_down, Const(0, 1)))
        x7 = soon(x4, 3)
        words13, x13 = soon(words7, 6), soon(x7, 6)
        f13 = Mux(sums | norms, Mux(sums, x13, later(gain4, 9)), Mux(back_sums, words13, later(slope1.along, 12)))
        # Stages 13 to 15: the bias in units of these products, which a norm adds to them.
        bias15 = self._rounded(m, later(bias1, 11) << UNIT + BIAS_LIFT, self.bias_down, code=True)
        multiply = place(m, "multiply", MultiplyAdd(a=_NORMALISED, b=PULL, width=PRODUCT + 1), platform)
        m.d.comb += [
            multiply.a.eq(Mux(sums, x13, unit13)),
            multiply.b.eq(f13),
            multiply.c.eq(bias15),
            multiply.add.eq(norms),
        ]
        product16 = multiply.p
        # Stages 17 to 20: gradient less mean and part along x.
        pull17 = register(product16 >> UNIT - 1)
        less17 = register(soon(words13, 3) - later(slope1.mean, 15), signed(26))
        pull18 = register((pull17 + 1) >> 1)
        rest19 = register(register(less17) - pull18)
        # mutant wraps-rest: kept, beyond = rest19[:REST].as_signed(), Const(0, 1)
        kept, beyond = saturate_hdl(rest19, signed(REST))
        over20 = register(beyond & backs & later(self.counts, 19))
        # Stages 20 to 24: times the root's mantissa, or a.
        x20 = register(Mux(backs, kept, soon(unit13, 6)), signed(_NORMALISED))
        y20 = register(Mux(backs, Cat(later(mantissa1, 18), Const(0, 1)).as_signed(), later(a1, 18)), signed(PULL))
        product22 = register(register(x20 * y20))
        fine22 = later(self.fine, 22)
        # mutant one-root: coarse23 = register(product22 << SPREAD)
        coarse23 = register((product22 << SPREAD) >> (fine22 & 0b11100))
        word24 = register(coarse23 >> register(fine22[:_FINE]))

        # Stage 25. What is added up is chosen early.
        plain8 = register(Mux(register(sums | largest), x7, rounded7), signed(2 * WIDE))
        product24, power24 = later(product16, 8), soon(power22, 2)
        added = sums | back_sums | largest | pulls
        upper, lower = register(norms | power), register(added | power)
        made = Mux(upper, Mux(lower, power24, product24), Mux(lower, later(plain8, 16), word24))
        m.d.sync += self.word.eq(made)
        m.d.sync += [self.second.eq(product24), self.clipped.eq(later(over9, 15) + later(over20, 4))]
        return m

    @staticmethod
    def _window(m, value, lift, shift, bits):
        """Lower bits of ``value << lift >> shift``, 2 cycles later.

        There are at least ``bits``, with the sign; the second result tells that these are not all.
        """
        kept = bits + (1 << _FINE) - 1
        register = partial(registered, m)
        coarse = register(((value << lift) >> (shift & _COARSE))[:kept].as_signed(), signed(kept))
        beyond = Cat(~_uniform(value[first:]) for first in range(kept - 1 - lift, len(value) - 1, 1 << _FINE))
        return register(coarse >> register(shift[:_FINE])), register(register((beyond >> shift[_FINE:])[0]))

    @staticmethod
    def _rounded(m, value, shift, *, code=False):
        """``value * 2**-shift`` to the nearest integer, 3 cycles later.

        ``shift`` has 6 bits. ``code``: most of the lower bits of ``value`` are 0.
        """
        coarse = Signal(signed(len(value) + 1), reset_less=True)
        fine = Signal.like(coarse, reset_less=True)
        # By the lower bits first: a code far to the left has few bits until it goes far.
        first = 0b001111 if code else _COARSE
        rest = delay(m, shift, 1)
        m.d.sync += [coarse.eq((value << 1) >> (shift & first)), fine.eq(coarse >> (rest & (first ^ 0b111111)))]
        return registered(m, (fine + 1) >> 1, signed(len(value)))

    def _power(self, m, product, powers, level14):
        """A power of two with 27 fraction bits.

        Its argument is ``product`` shifted, of stage 11; unless ``powers``, less a level, of stage 14. Stage 22 has it.
        """
        register = partial(registered, m)
        # Stages 12 to 15.
        fine13, wide13 = self._window(m, product, POWER - POWER_FRAC, self.near, _ARGUMENT.width - 1)
        least = LEAST_ARGUMENT << EXPONENT_FRAC
        # mutant unlimited: argument14 = register(fine13, _ARGUMENT)
        argument14 = register(Mux(wide13 | ~_uniform(fine13[_ARGUMENT.width - 2 :]), least, fine13), _ARGUMENT)
        above15 = register(argument14 - Mux(powers, 0, level14), _ARGUMENT)
        # Stages 16 to 20: the table, and how far the power is shifted right.
        rest = EXP2.rest
        base, slope = EXP2.table
        low_bits, high_bits = int(slope.max()).bit_length(), int(base.max()).bit_length()
        m.submodules.table = table = Memory(
            shape=unsigned(low_bits + high_bits),
            depth=1 << EXP2.index,
            init=[int(s) | int(b) << low_bits for b, s in zip(base, slope)],
        )
        read = table.read_port()
        m.d.comb += read.addr.eq(above15[rest:EXPONENT_FRAC])
        rest17 = delay(m, above15[:rest], 2)
        slope17, base17 = register(read.data[:low_bits]), register(read.data[low_bits:])
        # A slope times what is left of the argument, a bit of the slope after the other: the base, rounded, and three
        # sums of rows, then two, then one.
        rows = [Mux(bit, rest17, 0) << n for n, bit in enumerate(slope17)]
        sums = [
            register((base17 << rest) + (1 << rest - 1)),
            *(register(sum(rows[first : first + 3])) for first in range(0, len(rows), 3)),
        ]
        sums19 = [register(sum(sums[n : n + 2])) for n in range(0, len(sums), 2)]
        whole = -above15[EXPONENT_FRAC:].as_signed()
        distance16 = register(whole)
        # Nothing is left of what does not count.
        far17 = register(Mux(distance16[6:].any() | ~delay(m, self.counts, 16), 63, distance16[:6]), 6)
        # mutant shorter: value20 = register((sums19[0] + (1 << POWER_FRAC + rest)) >> rest, unsigned(POWER_FRAC + 2))
        value20 = register((sum(sums19) + (1 << POWER_FRAC + rest)) >> rest, unsigned(POWER_FRAC + 2))
        # Stages 21 and 22.
        far20 = delay(m, far17, 3)
        coarse21 = register((value20 << POWER - POWER_FRAC) >> (far20 & _COARSE))
        return register(coarse21 >> register(far20[:_FINE]))
