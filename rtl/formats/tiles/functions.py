"""Functions of one variable that the element engine looks up, and their slopes.

A function is ``g(x)``, or ``x g(x)`` where that keeps small results exact. ``g`` is a table of pieces for arguments
from 0 to a power of two; beyond, it stays what it is at the end. Below 0 a symmetry says it, or a table of its own.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..interpolation import Interpolation
from ..vector import SIGMOID, SILU_SLOPE
from .element import FACTOR_FRAC, RANGE
from .tables import BASE, INDEX, SLOPE

__all__ = [
    "ENTROPY",
    "FIXED",
    "GELU",
    "COSINE",
    "GELU_TANH",
    "HARD_SWISH",
    "INVERSE",
    "LOGISTIC",
    "MISH",
    "QUICK_GELU",
    "SILU",
    "SINE",
    "SOFTPLUS",
    "SOFTSIGN",
    "TANH",
    "Chords",
    "Curve",
    "TableFunction",
    "Mirror",
    "Times",
    "clip",
    "exponential",
    "hard_sigmoid",
    "leaky",
    "packed_pieces",
    "root",
    "selu",
]

Values = NDArray[Any]
#: Points of a piece at which a chord is compared with its curve.
_POINTS = 33


class Mirror(IntEnum):
    """What g is for arguments below 0."""

    SAME = 0  #: g(-x) = g(x)
    REST = 1  #: 1 - g(x)
    OPPOSITE = 2  #: -g(x)
    OWN = 3  #: the table with the next odd number


class Times(IntEnum):
    """What g is multiplied with, besides a where b is the argument."""

    NOTHING = 0
    ARGUMENT = 1
    THIRD = 2


@dataclass(frozen=True, eq=False)
class Chords:
    """A table of a function of ``x`` from 0 to ``2**range``, of which it has ``2**-exponent``.

    Each piece is a chord moved so that its largest distances from the curve on both sides are equal. A piece ends with
    the value before its end: a function may jump where a piece begins.
    """

    function: Callable[[Values], Values]
    range: int
    exponent: int = 0

    @cached_property
    def _chords(self) -> tuple[Values, Values, float]:
        """Values where pieces begin, rises, and the largest distance."""
        step = 2.0 ** (self.range - INDEX)
        inside = np.clip(np.linspace(0, 1, _POINTS), 1e-9, 1 - 1e-9)
        y = self.function((np.arange(1 << INDEX)[:, None] + inside) * step) * 2.0**-self.exponent
        left, rise = y[:, :1], y[:, -1:] - y[:, :1]
        off = y - left - rise * inside
        middle = (off.max(1) + off.min(1)) / 2
        return left[:, 0] + middle, rise[:, 0], float(np.abs(off - middle[:, None]).max())

    @property
    def table(self) -> tuple[Values, Values]:
        """``(base, slope)`` integers of each piece; a slope is the rise over the whole piece."""
        left, rise, _ = self._chords
        base, slope = (np.round(each * 2.0**FACTOR_FRAC).astype(np.int64) for each in (left, rise))
        for name, values, bits in (("value", base, BASE.width), ("rise of a piece", slope, SLOPE.width)):
            if np.abs(values).max() >= 1 << bits - 1:
                least = np.abs(values).max() / (1 << bits - 1)
                raise ValueError(f"exponent={self.exponent}: a {name} is {least:.3g} times as large as a table's")
        return base, slope

    @property
    def error(self) -> float:
        """Bound of the table's absolute error, roundings included."""
        return self._chords[2] * 1.02 + 1.5 * 2.0**-FACTOR_FRAC


@dataclass(frozen=True, kw_only=True, eq=False)
class Curve:
    """``g`` as FUNCTION's operands say it.

    Parameters
    ----------
    tables : tuple
        For arguments from 0 on; with ``Mirror.OWN`` a second one for the magnitude of those below.
    range : int
        Arguments are below ``2**range``; those beyond are as its end.
    times : Times
        What it is multiplied with.
    exponent : int
        Of the result, whose table is ``2**-exponent`` as large.
    """

    tables: tuple[Interpolation | Chords, ...]
    mirror: Mirror
    range: int
    times: Times = Times.NOTHING
    exponent: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.range < 1 << RANGE:
            raise ValueError(f"range={self.range}: must be from 0 to {(1 << RANGE) - 1}")
        if len(self.tables) != 1 + (self.mirror == Mirror.OWN):
            raise ValueError(f"mirror={self.mirror.name}: has {len(self.tables)} tables")

    @cached_property
    def pieces(self) -> NDArray[np.int64]:
        """Base and slope of each piece, ``[sign, 2, pieces]``."""
        made = np.array([each.table for each in self.tables])
        return np.concatenate([made, made]) if len(made) == 1 else made

    @property
    def error(self) -> float:
        """Bound of g's absolute error for arguments in range.

        An argument is cut to its bits, which moves g by less than a unit.
        """
        return (max(each.error for each in self.tables) + 2.0**-FACTOR_FRAC) * 2.0**self.exponent

    @property
    def fixed(self) -> int | None:
        """Number of its table, if the engine has it at all times."""
        return FIXED.index(self.tables[0]) if self.tables[0] in FIXED else None

    def operands(self, table: int | None = None) -> dict[str, int]:
        """Operands of FUNCTION but ``gate``; ``table`` is the first, even of two."""
        number = self.fixed if table is None else table
        if number is None or (self.mirror == Mirror.OWN and number % 2):
            raise ValueError(f"table={table}: must be the number of a table, even of two")
        return {
            "table": number,
            "range": self.range,
            "mirror": int(self.mirror),
            "times": int(self.times),
            "exponent": self.exponent,
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class TableFunction:
    """A function and the slope with which its gradient is multiplied.

    ``line``: the function is ``value``, and for x above 0 ``line * x`` more.
    """

    value: Curve
    slope: Curve
    line: float = 0.0


def packed_pieces(table: Interpolation | Chords) -> NDArray[np.uint32]:
    """Words of a TABLE command, ``[64, 8]``: its rows."""
    base, slope = table.table
    words = (base & ((1 << BASE.width) - 1)) | (slope & ((1 << SLOPE.width) - 1)) << BASE.width
    return words.astype(np.uint32).reshape(-1, 8)


_NORMAL = Interpolation(function="normal", index=INDEX, frac_in=20, frac_out=FACTOR_FRAC)
_GELU_SLOPE = Interpolation(function="gelu_slope", index=INDEX, frac_in=20, frac_out=FACTOR_FRAC)
#: Tables that the engine has at all times.
FIXED = (SIGMOID, SILU_SLOPE, _NORMAL, _GELU_SLOPE)


def _sigmoid(x: Values) -> Values:
    return 1 / (1 + np.exp(-x))


def _hard_sigmoid(x: Values) -> Values:
    return np.minimum(x / 6 + 0.5, 1)


_ROOT, _CUBE = math.sqrt(2 / math.pi), 0.044715


def _tanh_factor(x: Values) -> Values:
    return _sigmoid(2 * _ROOT * (x + _CUBE * x**3))


def _tanh_slope(x: Values) -> Values:
    factor = _tanh_factor(x)
    return factor + x * factor * (1 - factor) * 2 * _ROOT * (1 + 3 * _CUBE * x**2)


def _pair(
    value: Interpolation | Chords,
    slope: Interpolation | Chords,
    range: int,  # noqa: A002
    mirrors: tuple[Mirror, Mirror] = (Mirror.REST, Mirror.REST),
    times: Times = Times.ARGUMENT,
) -> TableFunction:
    """A function by one table of each."""
    return TableFunction(
        value=Curve(tables=(value,), range=range, mirror=mirrors[0], times=times),
        slope=Curve(tables=(slope,), range=range, mirror=mirrors[1]),
    )


SILU = _pair(SIGMOID, SILU_SLOPE, 4)
GELU = _pair(_NORMAL, _GELU_SLOPE, 3)
GELU_TANH = _pair(Chords(_tanh_factor, 3), Chords(_tanh_slope, 3), 3)
LOGISTIC = _pair(SIGMOID, Chords(lambda x: _sigmoid(x) * _sigmoid(-x), 4), 4, (Mirror.REST, Mirror.SAME), Times.NOTHING)
TANH = _pair(
    Chords(np.tanh, 3), Chords(lambda x: np.cosh(x) ** -2.0, 3), 3, (Mirror.OPPOSITE, Mirror.SAME), Times.NOTHING
)
_QUICK = 1.702
QUICK_GELU = _pair(
    Chords(lambda x: _sigmoid(_QUICK * x), 3),
    Chords(lambda x: _sigmoid(_QUICK * x) * (1 + _QUICK * x * _sigmoid(-_QUICK * x)), 3),
    3,
)
_HARD = Chords(_hard_sigmoid, 3)
HARD_SWISH = _pair(_HARD, Chords(lambda x: np.where(x < 3, x / 3 + 0.5, 1), 3), 3)


def _sided(
    above: Callable[[Values], Values],
    below: Callable[[Values], Values],
    range: int,  # noqa: A002
    exponent: int = 0,
    times: Times = Times.NOTHING,
) -> Curve:
    """A curve with a table for each sign; ``below`` is of the magnitude."""
    tables = Chords(above, range, exponent), Chords(below, range, exponent)
    return Curve(tables=tables, mirror=Mirror.OWN, range=range, exponent=exponent, times=times)


def _between(least: float, most: float, height: float, size: int) -> Curve:
    """``height`` between two limits, which are rounded to where pieces begin; else 0."""
    step = 2.0 ** (size - INDEX)
    low, high = (round(each / step) * step for each in (least, most))

    def within(x: Values) -> Values:
        return ((x > low) & (x < high)) * height

    return _sided(within, lambda x: within(-x), size)


def clip(least: float, most: float) -> TableFunction:
    """x, limited. Limits that are no multiples of a 512th of the range are within half a piece."""
    if not least < most:
        raise ValueError(f"least={least}: must be below most={most}")
    # Both limits are inside of the range, behind whose end is what stands before it.
    size = math.frexp(max(abs(least), abs(most), 0.5))[1]
    return TableFunction(
        value=_sided(lambda x: np.clip(x, least, most), lambda x: np.clip(-x, least, most), size, size),
        slope=_between(least, most, 1.0, size),
    )


def leaky(slope: float) -> TableFunction:
    """x above 0, ``slope`` times x below."""
    one, other = np.ones_like, lambda x: np.full_like(x, slope)
    return TableFunction(value=_sided(one, other, 0, times=Times.ARGUMENT), slope=_sided(one, other, 0))


def hard_sigmoid(gain: float, shift: float) -> TableFunction:
    """``gain x + shift``, limited to 0 and 1; limits as of :func:`clip`."""
    if gain <= 0:
        raise ValueError(f"gain={gain}: must be above 0")
    # The constants of a file are float32.
    least, most = round(-shift / gain, 5), round((1 - shift) / gain, 5)
    size = math.frexp(max(abs(least), abs(most), 0.5))[1]

    def value(x: Values) -> Values:
        return np.clip((x - least) / (most - least), 0, 1)

    return TableFunction(
        value=_sided(value, lambda x: value(-x), size), slope=_between(least, most, 1 / (most - least), size)
    )


def selu(alpha: float, gain: float = 1.0) -> TableFunction:
    """``gain`` times x above 0, times ``alpha (exp(x) - 1)`` below: ELU with a gain of 1."""
    if alpha <= 0 or gain <= 0:
        raise ValueError(f"alpha={alpha}, gain={gain}: must be above 0")
    # Pieces rise by less than a 32nd of a table's unit.
    size = max(math.frexp(0.999 * gain * max(alpha, 1))[1], 0)
    return TableFunction(
        value=_sided(np.zeros_like, lambda x: gain * alpha * np.expm1(-x), 4, size),
        slope=_sided(lambda x: np.full_like(x, gain), lambda x: gain * alpha * np.exp(-x), 4, size),
        line=gain,
    )


def _mish(x: Values) -> Values:
    return np.tanh(np.logaddexp(x, 0))


def _mish_slope(x: Values) -> Values:
    factor = _mish(x)
    return factor + x * (1 - factor**2) * _sigmoid(x)


MISH = TableFunction(
    value=_sided(_mish, lambda x: _mish(-x), 4, times=Times.ARGUMENT),
    slope=_sided(_mish_slope, lambda x: _mish_slope(-x), 4),
)
SOFTPLUS = TableFunction(
    value=Curve(tables=(Chords(lambda x: np.log1p(np.exp(-x)), 4),), mirror=Mirror.SAME, range=4),
    slope=LOGISTIC.value,
    line=1.0,
)


def _mirrored(function: Callable[[Values], Values], range: int, exponent: int, mirror: Mirror) -> Curve:  # noqa: A002
    """A curve by the table of one sign."""
    return Curve(tables=(Chords(function, range, exponent),), mirror=mirror, range=range, exponent=exponent)


SOFTSIGN = TableFunction(
    value=_mirrored(lambda x: x / (1 + x), 5, 1, Mirror.OPPOSITE),
    slope=_mirrored(lambda x: (1 + x) ** -2.0, 4, 1, Mirror.SAME),
)
#: Of arguments to 64, which are 10 periods.
_SINE, _COSINE = _mirrored(np.sin, 6, 2, Mirror.OPPOSITE), _mirrored(np.cos, 6, 2, Mirror.SAME)
SINE = TableFunction(value=_SINE, slope=_COSINE)
COSINE = TableFunction(value=_COSINE, slope=_mirrored(lambda x: -np.sin(x), 6, 2, Mirror.OPPOSITE))


def _inverse(x: Values) -> Values:
    return 1 / np.maximum(x, 1 / 8)


#: 1 / x within a quarter for magnitudes from an eighth to 128.
INVERSE = TableFunction(
    value=_mirrored(_inverse, 7, 8, Mirror.OPPOSITE),
    slope=_mirrored(lambda x: -(_inverse(np.maximum(x, 0.5)) ** 2), 7, 8, Mirror.SAME),
)


def root(exponent: float) -> TableFunction:
    """``x ** exponent`` for x from 0 to 16; the slope is that of 1/64 and more."""
    if not 0 < exponent < 2:
        raise ValueError(f"exponent={exponent:g}: must be above 0 and below 2")

    def slope(x: Values) -> Values:
        made: Values = exponent * np.maximum(x, 1 / 64) ** (exponent - 1)
        return made

    return TableFunction(
        value=_mirrored(lambda x: x**exponent, 4, _scale(lambda x: x**exponent, 4), Mirror.SAME),
        slope=_mirrored(slope, 4, _scale(slope, 4), Mirror.SAME),
    )


def _scale(function: Callable[[Values], Values], range: int) -> int:  # noqa: A002
    """The least exponent with which a table holds a function."""
    ends = function(np.arange((1 << INDEX) + 1) * 2.0 ** (range - INDEX))
    rise, most = np.abs(np.diff(ends)).max(), np.abs(ends).max()
    return max(math.frexp(rise * 1.001)[1] + 5, math.frexp(most * 1.01)[1] - 1, 0)


def exponential(gain: float) -> TableFunction:
    """``exp(gain x)`` for magnitudes to 4 / gain."""
    if not 1 / 32 <= gain <= 2 or math.frexp(gain)[0] != 0.5:
        raise ValueError(f"gain={gain:g}: must be a power of two from 1/32 to 2")
    size = 2 - math.frexp(gain)[1] + 1
    return TableFunction(
        value=_sided(lambda x: np.exp(gain * x), lambda x: np.exp(-gain * x), size, 5),
        slope=_sided(lambda x: gain * np.exp(gain * x), lambda x: gain * np.exp(-gain * x), size, 5),
    )


def _entropy(p: Values) -> Values:
    return -p * np.log(p)


#: ``-p ln p`` of shares p, from 0 to 1.
ENTROPY = Curve(tables=(Chords(_entropy, 0),), mirror=Mirror.SAME, range=0)
