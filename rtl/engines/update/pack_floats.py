"""The normaliser, the shifter and the multiplier that PACK and UNPACK share.

::

    PACK:    word --> normalise --> float    element --> shift --> multiply --> unit of its block
    UNPACK:  level --> multiply --> normalise --> shift --> word

A float has no sign: signs go beside it.
"""

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Mux, Signal, Value, signed

from ...formats.adamw import FRACTION
from ...formats.weights.linear import LEVEL
from ...formats.weights.packed import FINE, INVERSES
from ...stream.delay import delay, registered
from .pack_walk import EXPONENT, HIGHEST, MANTISSA, SIZE

__all__ = ["Floats", "Multiplied", "make_floats", "multiply"]


@dataclass(frozen=True)
class Floats:
    """Outputs of the normaliser, 4 cycles after a word.

    ``bits``: the float of a word, or one as it was; ``negative``. ``normal``: the word with its highest bit on top,
    ``down``: by how much it moved. UNPACK's words come from the multiplier, which drives ``product``.
    """

    bits: Value
    negative: Value
    product: Signal
    normal: Value
    down: Value


@dataclass(frozen=True)
class Multiplied:
    """Outputs of the multiplier, ``product``, and of the shifter, ``shifted``.

    ``into``: a word of UNPACK for the shifter, and ``low``: how far down it goes; who decodes drives them.
    """

    low: Signal
    into: Signal
    shifted: Value
    product: Value


def make_floats(m, unit, taken):
    """Makes floats without sign, and signs, 4 cycles after ``taken``.

    The normaliser serves products of codes too.
    """
    args = unit.args
    size = taken[:SIZE] ^ (taken[-1] & ~args.moments).replicate(SIZE)
    product = Signal(SIZE, name="_product")
    value, down = registered(m, Mux(unit.unpack, product, size)), Const(0, 0)
    moves = delay(m, unit.unpack | ~args.moments, 1)
    for step in (16, 4, 1):
        empty = [~value[SIZE - step * k :].any() & moves for k in (1, 2, 3) if step * k < SIZE]
        if step == 16:
            empty = empty[:1]
        count = Cat(empty[0] & (~empty[1] | empty[2]), empty[1]) if len(empty) == 3 else empty[0]
        shifted = [(value << step * k)[:SIZE] for k in range(len(empty) + 1)]
        choice = Mux(count[0], shifted[1], shifted[0])
        if len(empty) == 3:
            choice = Mux(count[1], Mux(count[0], shifted[3], shifted[2]), choice)
        value, down = registered(m, choice), registered(m, Cat(count, down))
    # A float as it is, or made of a word.
    made = Cat(value[SIZE - 1 - FRACTION : SIZE - 1], (HIGHEST - down)[:EXPONENT])
    bits = Mux(args.moments, value, made)
    nothing = Mux(args.moments, ~value[FRACTION:].any(), ~value[-1])
    return Floats(bits=Mux(nothing, 0, bits), negative=delay(m, taken[-1], 4), product=product, normal=value, down=down)


def multiply(m, unit, scale, element, code, floats):
    """A multiplier, which PACK and UNPACK share: 17 x 17 bits.

    PACK: an element, aligned to its block's exponent, over the fraction of the block's scale; 7 cycles after
    ``element``. UNPACK: a level times that fraction; 3 cycles after it.
    """
    # What is shifted down: PACK's mantissas, words of UNPACK. Operands are registered in both.
    exponent = element[FRACTION:SIZE]
    ahead = scale[FINE:] - exponent
    mantissa = Mux(exponent.any(), Cat(Const(0, SIZE - MANTISSA), element[:FRACTION], Const(1, 1)), 0)
    low = Signal(signed(11), name="_low")  # of UNPACK
    into = Signal(SIZE, name="_into")
    distance = Mux(unit.unpack, low, ahead)
    value = registered(m, Mux(unit.unpack, into, mantissa), SIZE)
    by = registered(m, distance[:5] | distance[5:].any().replicate(5), 5)
    coarse, fine = registered(m, value >> (by & 0b11000)), registered(m, by[:3])
    shifted = registered(m, coarse >> fine)
    part = shifted[SIZE - 1 - LEVEL.frac :]
    fraction = delay(m, scale[:FINE], 3)
    inverse = Signal(17)
    with m.Switch(fraction):
        for number, amount in enumerate(INVERSES):
            with m.Case(number):
                m.d.comb += inverse.eq(amount)
    a = registered(m, Mux(unit.unpack, code.level, part), 17)
    b = registered(m, Mux(unit.unpack, Cat(code.scale[:FINE], Const(1, 1)), inverse), 17)
    product = registered(m, registered(m, a * b))
    m.d.comb += floats.product.eq(Cat(Const(0, SIZE - 22), product[:22]))
    return Multiplied(low=low, into=into, shifted=shifted, product=product)
