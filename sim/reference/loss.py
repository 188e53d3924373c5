"""Bit-exact softmax, cross-entropy and its gradient."""

from typing import NamedTuple

import numpy as np

from gradloom.rtl.formats.interpolation import Interpolation
from gradloom.rtl.formats.rounding import round_shift

__all__ = ["CrossEntropy", "softmax_cross_entropy", "probability_bound", "loss_bound"]

_FRAC = 20  # fraction bits of a base-2 logarithm
_LOG2E = (94548, 1)  # log2(e) * 2**16 = 94548 + 2**-1, to 4e-7
_LN2 = 90852  # ln(2) * 2**17
_EXP2 = Interpolation(function="exp2", frac_in=_FRAC, frac_out=20)
_LOG2 = Interpolation(function="log2", frac_in=21, frac_out=_FRAC)


class CrossEntropy(NamedTuple):
    """Gradient and loss of each vector, and whether it is correct.

    ``d`` (probability minus target) and ``loss`` have 16 fraction bits.
    """

    d: np.ndarray
    loss: np.ndarray
    correct: np.ndarray


def softmax_cross_entropy(z, target, *, max_length: int = 16) -> CrossEntropy:
    """Softmax of each row of ``z`` against a one-hot target.

    Parameters
    ----------
    z : (vectors, length) integers
        Q8.16, in the order in which the hardware takes them.
    target : (vectors,) integers
        Index of the target; any index outside the row means none.
    max_length : int
        Of the unit; the fraction bits of its sum follow from it.
    """
    z = np.asarray(z, dtype=np.int64)
    count, length = z.shape
    rows = np.arange(count)
    target = np.asarray(target, dtype=np.int64)
    onehot = np.arange(length) == target[:, None]
    guard = (max_length - 1).bit_length()
    sum_frac = _FRAC + 1 + guard

    # Pass 1: the sum of 2**t in units of 2**top, where top is the running maximum of t's integer part.
    t = round_shift(z * _LOG2E[0] + (z >> _LOG2E[1]), 12)
    whole = t >> _FRAC
    top = np.maximum.accumulate(whole, axis=1)
    power = (1 << 20) + _EXP2(t & ((1 << _FRAC) - 1))
    term = (power << (sum_frac - 20)) >> np.minimum(top - whole, 63)
    fall = np.minimum(np.diff(top, axis=1), 63)
    total = term[:, 0]
    for n in range(1, length):
        total = (total >> fall[:, n - 1]) + term[:, n]

    # Its logarithm: total = 2**(sum_frac + k) * (1 + x).
    k = np.frexp(total.astype(np.float64))[1] - 1 - sum_frac
    x = ((total << (guard + 1 - k)) >> (sum_frac + guard + 1 - 21)) & ((1 << 21) - 1)
    log_sum = ((top[:, -1] + k) << _FRAC) + _LOG2(x)

    # Pass 2: 2**(t - log_sum).
    v = np.minimum(t - log_sum[:, None], 0)
    power = (1 << 20) + _EXP2(v & ((1 << _FRAC) - 1))
    p = round_shift(power >> np.minimum(-(v >> _FRAC), 31), 4)
    has = onehot.any(axis=1)
    at = np.where(has, target, 0)
    loss = np.where(has, round_shift((v[rows, at] >> 3) * -_LN2, 18), 0)
    correct = np.argmax(z, axis=1) == target
    return CrossEntropy(p - (onehot.astype(np.int64) << 16), loss, correct.astype(np.int64))


#: Bounds of relative errors: of a rounded logarithm's power, of an interpolated power (a chord held at 0 is
#: off by all of its sagitta), of log2(e), of ln(2).
_ROUNDED = np.log(2) * 2.0 ** -(_FRAC + 1)
_POWER = 1.02 * np.log(2) ** 2 * 2.0**-14 / 8 + 1.5 * 2.0**-20
_SCALE = abs((_LOG2E[0] + 0.5) / 2**16 * np.log(2) - 1)
_BACK = abs(_LN2 / 2**17 / np.log(2) - 1)
#: Bound of the error of the natural logarithm of the sum: powers, bits shifted out, table, bits of x cut off.
_LOG = _ROUNDED + _POWER + 2.0**-20 + np.log(2) * _LOG2.error + 2.0**-21


def probability_bound(length: int) -> float:
    """Bound of ``|p - softmax(z)|``, from formats and tables alone.

    It is below 2**-15 up to 65536 classes.
    """
    spread = 1 / np.e + np.log(2) + np.log(length) / 4  # how a scaled z moves p, at the most
    return _ROUNDED + _POWER + _LOG + _SCALE * spread + 2.0**-20 + 2.0**-17


def loss_bound(length: int, loss):
    """Bound of the error of a loss of that size.

    It is 2**-15 and three millionths of it.
    """
    cut = np.log(2) * 2.0**-17 + 2.0**-17
    return _LOG + _ROUNDED + cut + (_SCALE + _BACK) * (np.asarray(loss) + np.log(length))
