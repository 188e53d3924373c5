"""Formats of AdamW: moments in memory, widths and tables of a step."""

from amaranth.lib import data

from .interpolation import Interpolation

__all__ = [
    "BETA",
    "BIAS",
    "EPS",
    "EXPONENTS",
    "FRACTION",
    "GRADIENT_LIMIT",
    "GUARD",
    "INVERSE",
    "LARGEST",
    "NOTHING",
    "ROOT",
    "SQRT",
    "GradientArgument",
    "gradient_argument",
]

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
#: Exponents of gradients are at least ``-GRADIENT_LIMIT`` and below it; others are the nearest of these.
GRADIENT_LIMIT = 1 << 9

#: ``arg`` of a LOAD of gradients. 0: beats of 32-bit words. With ``codes`` whole rows of a record of 16-bit codes: they
#: become 24-bit words with the codes in their upper bits, a beat for each four features.
GradientArgument = data.StructLayout(
    {
        "features": 6,  #: features of a row, less 1
        "codes": 1,  #: rows are codes
        "header": 1,  #: the first beat is the record's header; else its exponent is that of the last header
        "_pad": 24,
    }
)


def gradient_argument(features: int, *, header: bool = True) -> int:
    """``arg`` of a LOAD of rows of a record of gradients."""
    return int(
        GradientArgument.const({"features": features - 1, "codes": 1, "header": int(header), "_pad": 0}).as_bits()
    )
