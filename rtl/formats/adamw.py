"""Formats of AdamW: moments in memory, widths and tables of a step."""

from .interpolation import Interpolation

__all__ = ["FRACTION", "EXPONENTS", "BIAS", "BETA", "EPS", "GUARD", "LARGEST", "NOTHING", "SQRT", "INVERSE", "ROOT"]

#: A moment is a float32: sign, 8 bits of exponent, 23 of fraction. Exponent 0 is zero, there is no infinity.
FRACTION, EXPONENTS = 23, 8
#: A mantissa n of 24 bits under an exponent e means ``n * 2**(e - BIAS)``.
BIAS = 127 + FRACTION
#: Fraction bits of the betas, and bits of the rate's mantissa.
BETA = 17
#: Bits of eps.
EPS = 15
#: Bits that a mantissa gains while it is added.
GUARD = 3
#: The largest moment.
LARGEST = (255 << FRACTION) - 1
#: Exponent of zero where exponents are compared.
NOTHING = -1024
#: Fraction bits of a root and of root plus eps.
ROOT = 20
SQRT = Interpolation(function="sqrt", frac_in=ROOT, frac_out=ROOT)
INVERSE = Interpolation(function="inverse", frac_in=ROOT, frac_out=BETA)
