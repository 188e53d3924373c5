"""Products of few bits in LUTs, to save DSP slices."""

from amaranth.hdl import Cat, Mux, Signal, Value

__all__ = ["narrow_product", "NarrowProduct"]


def narrow_product(a, b):
    """``a * b`` of an unsigned ``b`` of few bits, as a sum.

    Synthesis maps an expression with ``*`` to a DSP slice.
    """
    return sum((Mux(b[n], a << n, 0) for n in range(1, len(b))), Mux(b[0], a, 0))


class NarrowProduct:
    """``a * b`` with a signed ``b`` of 8 bits.

    It works in steps of one carry chain each.

    Two bits of ``b`` make a digit of -2 to 2, so that a bit of ``a`` times a digit is a function of five. Negative ones
    are complements, which lack 1: a chain has room for one such 1, so one is left to the user of the product.

    Members
    -------
    value, rest : in the second cycle after ``a`` and ``b``; the product is their sum.
    """

    bits = 8

    def __init__(self, m, a, b):
        a, b = Value.cast(a), Value.cast(b)
        assert len(b) == self.bits
        rows, ones = zip(*(self._row(a, b, n) for n in range(0, self.bits, 2)))
        pairs = []
        for n in (0, 2):
            low, high = rows[n], Cat(ones[n + 1].replicate(2), rows[n + 1]).as_signed()
            pairs.append(self._registered(m, _sum(low, high, ones[n])))
        rest, last = (self._registered(m, ones[n]) for n in (1, 3))
        self.value = self._registered(m, _sum(pairs[0], Cat(last.replicate(4), pairs[1]).as_signed(), last))
        self.rest = self._registered(m, rest)

    @staticmethod
    def _registered(m, value):
        register = Signal(value.shape(), reset_less=True)
        m.d.sync += register.eq(value)
        return register

    @staticmethod
    def _row(a, b, n):
        """``a`` times the digit of ``b`` from bit ``n`` on.

        Returns this product or its complement, and whether it is the complement.
        """
        below, here, above = b[n - 1] if n else 0, b[n], b[n + 1]
        one, two = here ^ below, Mux(here, ~above & below, above & ~below) if n else above & ~here
        size = Cat(a, a[-1]) & one.replicate(len(a) + 1) | Cat(0, a)[: len(a) + 1] & two.replicate(len(a) + 1)
        return (size ^ above.replicate(len(a) + 1)).as_signed(), above


def _sum(a, b, carry):
    """``a + b + carry``, signed, by one chain."""
    return (Cat(1, a).as_signed() + Cat(carry, b).as_signed())[1:].as_signed()
