"""Functions of single values: what they are, their slopes, and how an expression gets its name."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["FUNCTIONS", "Formula", "named"]

_ROOT2, _TANH = math.sqrt(2), math.sqrt(2 / math.pi)
_CUBE = 0.044715


@dataclass(frozen=True)
class Formula:
    """``of(x, *parameters)``, and its derivative by x."""

    of: Callable[..., np.ndarray]
    slope: Callable[..., np.ndarray]


def erf(x: np.ndarray) -> np.ndarray:
    """The error function, within 2e-16 of its values near 1 and 1e-15 elsewhere; of float32 within 7e-8.

    Taylor steps of the fourth order, of float32 of the second, from a table of 2**-7 steps: numpy has none of its own.
    """
    if x.dtype not in _TABLES:
        made: np.ndarray = erf(x.astype(np.float64)).astype(x.dtype)
        return made
    number = x.dtype.type
    clipped = np.clip(x, number(-_END), number(_END))
    place = np.rint((clipped + number(_END)) * number(_STEPS)).astype(np.int32)
    at = place.astype(x.dtype) / number(_STEPS) - number(_END)
    h = clipped - at
    values, slopes = _TABLES[x.dtype]
    if x.dtype == np.float32:
        small: np.ndarray = values[place] + h * slopes[place] * (1 - at * h)
        return small
    # Derivatives of erf over its slope are Hermite polynomials.
    series = 1 + h * (
        -at + h * ((4 * at * at - 2) / 6 + h * ((12 * at - 8 * at**3) / 24 + h * (12 - 48 * at**2 + 16 * at**4) / 120))
    )
    found: np.ndarray = values[place] + h * slopes[place] * series
    return found


_END, _STEPS = 6.0, 128
_AT = [n / _STEPS - _END for n in range(int(2 * _END * _STEPS) + 1)]
#: Values and slopes at every step, by type.
_TABLES = {
    np.dtype(kind): (
        np.array([math.erf(x) for x in _AT], kind),
        np.array([2 / math.sqrt(math.pi) * math.exp(-x * x) for x in _AT], kind),
    )
    for kind in (np.float32, np.float64)
}


def sigmoid(x: np.ndarray) -> np.ndarray:
    """``1 / (1 + exp(-x))``, without overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1) / (1 + small)


def _normal(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + erf(x / _ROOT2))


def _gelu_slope(x: np.ndarray) -> np.ndarray:
    return _normal(x) + x * np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(_TANH * (x + _CUBE * x**3)))


def _gelu_tanh_slope(x: np.ndarray) -> np.ndarray:
    t = np.tanh(_TANH * (x + _CUBE * x**3))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * _TANH * (1 + 3 * _CUBE * x * x)


def _silu_slope(x: np.ndarray) -> np.ndarray:
    s = sigmoid(x)
    return s * (1 + x * (1 - s))


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _mish_slope(x: np.ndarray) -> np.ndarray:
    t = np.tanh(_softplus(x))
    return t + x * (1 - t * t) * sigmoid(x)


def _quick_slope(x: np.ndarray) -> np.ndarray:
    s = sigmoid(1.702 * x)
    return s * (1 + 1.702 * x * (1 - s))


def _within(x: np.ndarray, low: float, high: float) -> np.ndarray:
    return ((x > low) & (x < high)).astype(x.dtype)


def _power_slope(x: np.ndarray, exponent: float) -> np.ndarray:
    slope: np.ndarray = exponent * x ** (exponent - 1)
    return slope


#: By name. At a corner the slope is that of PyTorch.
FUNCTIONS: dict[str, Formula] = {
    "relu": Formula(lambda x: np.maximum(x, 0), lambda x: (x > 0).astype(x.dtype)),
    "clip": Formula(lambda x, low, high: np.clip(x, low, high), _within),
    "leaky_relu": Formula(lambda x, slope: np.where(x < 0, slope * x, x), lambda x, slope: np.where(x > 0, 1.0, slope)),
    "elu": Formula(
        lambda x, a: np.where(x < 0, a * np.expm1(np.minimum(x, 0)), x),
        lambda x, a: np.where(x < 0, a * np.exp(np.minimum(x, 0)), 1.0),
    ),
    "selu": Formula(
        lambda x, a, gain: gain * np.where(x < 0, a * np.expm1(np.minimum(x, 0)), x),
        lambda x, a, gain: gain * np.where(x < 0, a * np.exp(np.minimum(x, 0)), 1.0),
    ),
    "sigmoid": Formula(sigmoid, lambda x: sigmoid(x) * (1 - sigmoid(x))),
    "tanh": Formula(np.tanh, lambda x: 1 - np.tanh(x) ** 2),
    "hard_sigmoid": Formula(
        lambda x, gain, shift: np.clip(gain * x + shift, 0, 1),
        lambda x, gain, shift: gain * _within(gain * x + shift, 0, 1),
    ),
    "hard_swish": Formula(
        lambda x: x * np.clip(x / 6 + 0.5, 0, 1), lambda x: np.where(x <= -3, 0.0, np.where(x >= 3, 1.0, x / 3 + 0.5))
    ),
    "silu": Formula(lambda x: x * sigmoid(x), _silu_slope),
    "quick_gelu": Formula(lambda x: x * sigmoid(1.702 * x), _quick_slope),
    "gelu": Formula(lambda x: x * _normal(x), _gelu_slope),
    "gelu_tanh": Formula(_gelu_tanh, _gelu_tanh_slope),
    "softplus": Formula(_softplus, sigmoid),
    "softsign": Formula(lambda x: x / (1 + np.abs(x)), lambda x: 1 / (1 + np.abs(x)) ** 2),
    "mish": Formula(lambda x: x * np.tanh(_softplus(x)), _mish_slope),
    "affine": Formula(lambda x, gain, shift: gain * x + shift, lambda x, gain, shift: np.full_like(x, gain)),
    "power": Formula(lambda x, exponent: x**exponent, _power_slope),
    "exp": Formula(np.exp, np.exp),
    "exp_of": Formula(lambda x, gain: np.exp(gain * x), lambda x, gain: gain * np.exp(gain * x)),
    "inverse": Formula(lambda x: 1 / x, lambda x: -1 / (x * x)),
    "log": Formula(np.log, lambda x: 1 / x),
    "erf": Formula(erf, lambda x: 2 / math.sqrt(math.pi) * np.exp(-x * x)),
    "abs": Formula(np.abs, np.sign),
    "step": Formula(lambda x: (x > 0).astype(x.dtype), np.zeros_like),
    "sin": Formula(np.sin, np.cos),
    "cos": Formula(np.cos, lambda x: -np.sin(x)),
}

#: What an expression of several operations is looked up as.
_COMPOUND: tuple[tuple[str, tuple[float, ...]], ...] = (
    ("gelu", ()),
    ("gelu_tanh", ()),
    ("quick_gelu", ()),
    ("silu", ()),
    ("hard_swish", ()),
    ("hard_sigmoid", (1 / 6, 0.5)),
    ("hard_sigmoid", (0.2, 0.5)),
    ("mish", ()),
    ("softplus", ()),
    ("sigmoid", ()),
    ("tanh", ()),
    ("softsign", ()),
    ("abs", ()),
    ("relu", ()),
    ("clip", (0.0, 6.0)),
)
_FAR = np.array([16, 32, 64, 128, 256, 512.0])
_POINTS = np.concatenate([-_FAR[::-1], np.linspace(-9, 9, 721), _FAR])


def named(expression: Callable[[np.ndarray], np.ndarray]) -> tuple[str, tuple[float, ...]] | None:
    """Name and parameters of the function that an expression computes, None for none.

    The expression is compared at 733 points up to 512, to 2e-6 of the largest of one and the value: the constants of a
    file are float32.
    """
    with np.errstate(all="ignore"):
        found = expression(_POINTS)
    if not np.isfinite(found).all():
        return None
    for name, parameters in _COMPOUND:
        if _agree(found, FUNCTIONS[name].of(_POINTS, *parameters)):
            return name, parameters
    at = _POINTS.searchsorted([0, 1])
    shift = float(found[at[0]])
    gain = float(found[at[1]]) - shift
    if _agree(found, gain * _POINTS + shift):
        return "affine", (gain, shift)
    slope = -float(found[_POINTS.searchsorted(-1)])
    # One above 1 or below 0 is another function's: files name this one by what it is beside ReLU.
    return ("leaky_relu", (slope,)) if 0 < slope < 1 and _agree(found, np.maximum(_POINTS, slope * _POINTS)) else None


def _agree(one: np.ndarray, other: Sequence[float] | np.ndarray) -> bool:
    other = np.asarray(other)
    return one.shape == other.shape and bool((np.abs(one - other) <= 2e-6 * np.maximum(1, np.abs(other))).all())
