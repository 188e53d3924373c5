"""Codes of elements, and words of codes.

::

    PACK:    element --+--> of v: how far below its scale, at random ---------------+
                       +--> multiplied --> unit --+--> 8 bits, at random -----------+--> code
                                                  +--> nearest levels of NF4 -------+
    UNPACK:  code --> level, scale --> multiplied, normalised --> word
                  +--> of v: a power of two --------------------------+
"""

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Mux, Signal, Value, signed

from ...formats.adamw import FRACTION, LARGEST
from ...formats.weights.linear import LEVEL
from ...formats.weights.packed import FINE, GAPS, LEVELS, LONG, NOISE, TOP
from ...stream.delay import delay, registered
from .pack_walk import ENCODED, EXPONENT, HIGHEST, SIZE

__all__ = ["CodeParts", "DecodedWord", "decode", "encode", "read_code"]


@dataclass(frozen=True)
class CodeParts:
    """The meaning of a code, 4 cycles after it: ``level``, ``negative``, ``scale``; of ``v``, its ``word``."""

    level: Value
    negative: Value
    scale: Value
    v: Value
    word: Value


@dataclass(frozen=True)
class DecodedWord:
    """A word of a code, and whether it was ``clipped``."""

    word: Value
    clipped: Value


def read_code(m, unit, taken, block, batch, tops):
    """Looks up the meaning of a code, and its block's scale."""
    args = unit.args
    # A code is there 2 cycles after it was asked for.
    index = delay(m, taken.within[:3], 1)
    wide = taken.word.word_select(index[:2], 8)
    byte = taken.word.word_select(index[1:3], 8)
    value = registered(m, Mux(args.wide, wide, Mux(index[0], byte[:4], byte[4:])), 8)
    look = tops.stored.read_port(domain="comb")
    number = delay(m, Cat(block, batch), 1)
    m.d.comb += look.addr.eq(number[2:])
    below = registered(m, look.data.word_select(number[:2], 8))
    of = delay(m, block, 2)
    top = Mux(of, tops.tops[1], tops.tops[0])
    # Cycle 3: the scale; the level.
    scale = registered(m, top - 255 + below)
    none = registered(m, ~below.any())
    level, negative = Signal(LEVEL.frac + 1, reset_less=True), Signal(reset_less=True)
    with m.If(args.wide):
        number = Mux(value[7], value[:7], 128 - value[:7])
        m.d.sync += [level.eq(number << 9), negative.eq(~value[7])]
    with m.Else():
        with m.Switch(value[:4]):
            for each, amount in enumerate(LEVELS):
                with m.Case(each):
                    m.d.sync += [level.eq(abs(amount)), negative.eq(int(amount < 0))]
    some = registered(m, value.any())
    last = registered(m, value)
    v = registered(m, of) & args.moments
    # Cycle 4.
    bad = none | scale[-1]
    place = Mux(args.wide, scale, scale >> LONG) - Mux(args.wide, 255 - last, 15 - last[:4])
    place4 = registered(m, place)
    none4 = registered(m, bad | ~some)
    v4 = registered(m, v)
    # Cycle 5.
    high = place4 > Mux(args.wide, TOP[LONG], 254)
    low = place4 < Mux(args.wide, 1 << LONG, 1)
    wide_word = Cat(Const(0, FRACTION - LONG), Mux(high, TOP[LONG], place4[:11]))
    narrow_word = Cat(Const(0, FRACTION), Mux(high, 254, place4[:8]))
    word = registered(m, Mux(none4 | low, 0, Mux(args.wide, wide_word, narrow_word)))
    return CodeParts(
        level=registered(m, Mux(bad, 0, level)),
        negative=registered(m, negative),
        scale=registered(m, scale[:12]),
        v=registered(m, v4),
        word=word,
    )


def encode(m, unit, elements, multiplied):
    """The code of an element, :data:`ENCODED` cycles after ``read``; the element is there after 2."""
    args = unit.args
    long = _encode_v(m, args, elements)
    units, noise, negative = _units(m, elements, multiplied)
    wide = _encode_wide(m, units, noise, negative)
    narrow = _encode_narrow(m, units, noise, negative)
    long, is_long = delay(m, long, ENCODED - 5), delay(m, elements.v, ENCODED - 2)
    return Mux(is_long, long, Mux(args.wide, delay(m, wide, ENCODED - 10), narrow))


def _encode_v(m, args, elements):
    """The code of a second moment: how far its float is below the scale. Cycles: 3 sum, 4 distance, 5 code."""
    scale, element, chance = elements.scale, elements.element, elements.noise
    bits = element[:SIZE]
    noise = Mux(args.wide, chance[32 - (FRACTION - LONG) :], chance[32 - FRACTION :])
    total = registered(m, bits + noise)
    place = Mux(args.wide, total[FRACTION - LONG :], total[FRACTION:])
    high = Mux(args.wide, TOP[LONG], 254)
    own = registered(m, Mux(args.wide, scale, scale >> LONG))
    some = delay(m, bits.any(), 2)
    off = registered(m, own - Mux(place > high, high, place), signed(14))
    most = Mux(args.wide, 255, 15)
    code = Mux(off >= most, 1, most - off)
    return registered(m, Mux(some, code, 0), 8)


def _units(m, elements, multiplied):
    """An element over its block's scale, at 9, without its sign; a random word and the sign with it."""
    # The unit is there 6 cycles after the element: 8.
    raw = multiplied.product[LEVEL.frac : LEVEL.frac + 17]
    one = 1 << LEVEL.frac
    unit = registered(m, Mux(raw > one, one, raw), 17)  # 9
    negative, noise = delay(m, elements.element[-1], 7), delay(m, elements.noise, 7)
    return unit, noise, negative


def _encode_wide(m, unit, noise, negative):
    """An 8-bit code of a unit, at 10, rounded at random."""
    number = (unit + noise[32 - NOISE["wide"] :]) >> NOISE["wide"]
    number = Mux(number[7], 127, number[:7])
    return registered(m, Mux(negative, 128 - number, 128 + number), 8)  # 10


def _encode_narrow(m, unit, noise, negative):
    """A code of NF4, at 14: four looks, then at random by how far above its level the unit is."""
    own = registered(m, Mux(negative, -unit, unit), signed(18))  # 10
    found, units = Const(0, 0), own
    for stage in range(4):
        step = 8 >> stage
        level = Signal(signed(18), init=LEVELS[step])
        for prefix in range(1, 1 << stage):
            with m.If(found == prefix):
                m.d.comb += level.eq(LEVELS[prefix * 2 * step + step])
        bit = units >= level
        found = Cat(bit, found)
        if stage % 2:
            found, units = registered(m, found), registered(m, units)  # 11, 12
    base, gap = Signal(signed(18)), Signal(15)
    with m.Switch(found):
        for number, (level, distance) in enumerate(zip(LEVELS, GAPS)):
            with m.Case(number):
                m.d.comb += [base.eq(level), gap.eq(distance)]
    above = registered(m, (units - base)[:15], 15)  # 13
    noise = delay(m, noise[32 - NOISE["narrow"] :], 3)
    odds = registered(m, gap * Cat(Const(1, 1), noise), 24)
    below = registered(m, found)
    return registered(m, below + ((above << 9) > odds), 4)  # 14


def decode(m, unit, code, floats, multiplied):
    """Words of codes, :data:`DECODED` cycles after ``code``."""
    args = unit.args
    # A code's level is there after 4 cycles, its product after 7, which leaves the normaliser after 11.
    scale = delay(m, code.scale, 7)
    exponent = Signal(signed(11))
    m.d.comb += exponent.eq(scale[FINE:] + 1 - floats.down)
    some = floats.normal[-1] & (exponent >= 1)
    over = some & Mux(args.moments, exponent > 254, exponent > HIGHEST)
    fraction = floats.normal[SIZE - 1 - FRACTION : SIZE - 1]
    m.d.comb += [multiplied.low.eq(HIGHEST - exponent), multiplied.into.eq(floats.normal)]
    sign = delay(m, code.negative, 7) & some
    floated = Mux(over, LARGEST, Cat(fraction, exponent[:EXPONENT]))
    word = Mux(delay(m, code.v, 6), delay(m, code.word, 6), Mux(some, Cat(floated[:SIZE], sign), 0))
    over = over & ~delay(m, code.v, 6)
    some, over3, sign = delay(m, some, 3), delay(m, over, 3), delay(m, sign, 3)
    size = (multiplied.shifted | over3.replicate(SIZE)) & some.replicate(SIZE)
    word = Mux(args.moments, delay(m, word, 3), Cat(size ^ sign.replicate(SIZE), sign))
    return DecodedWord(word=word, clipped=over3)
