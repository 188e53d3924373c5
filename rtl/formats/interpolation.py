"""Functions of one variable by a table of chords."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

__all__ = ["Interpolation"]


def _sigmoid(x):
    return 1 / (1 + math.exp(-x))


def _bend(x):
    """Second derivative of the sigmoid."""
    s = _sigmoid(x)
    return s * (1 - s) * (1 - 2 * s)


def _silu_slope(x):
    s = _sigmoid(x)
    return s * (1 + x * (1 - s))


def _silu_slope_bend(x):
    s = _sigmoid(x)
    return 3 * _bend(x) + x * s * (1 - s) * (1 - 6 * s * (1 - s))


#: GELU by tanh is ``x sigmoid(u(x))``, where ``u = _ROOT (x + _CUBE x³)``.
_ROOT, _CUBE = math.sqrt(8 / math.pi), 0.044715


def _gelu(x):
    """The sigmoid of u and its three first derivatives, by x."""
    u, first = _ROOT * (x + _CUBE * x**3), _ROOT * (1 + 3 * _CUBE * x**2)
    second, third = 6 * _ROOT * _CUBE * x, 6 * _ROOT * _CUBE
    s = _sigmoid(u)
    bell, bend = s * (1 - s), _bend(u)
    edge = bell * (1 - 6 * bell)
    return (
        s,
        bell * first,
        bend * first**2 + bell * second,
        edge * first**3 + 3 * bend * first * second + bell * third,
    )


def _gelu_slope(x):
    gate, slope, _, _ = _gelu(x)
    return gate + x * slope


def _gelu_slope_bend(x):
    _, _, bend, edge = _gelu(x)
    return 3 * bend + x * edge


def _normal(x):
    return 0.5 * math.erfc(-x / math.sqrt(2))


def _density(x):
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


#: The functions and their second derivatives.
_FUNCTIONS = {
    "exp2": (lambda x: math.exp2(x) - 1, lambda x: math.log(2) ** 2 * math.exp2(x)),
    "log2": (lambda x: math.log2(1 + x), lambda x: -1 / math.log(2) / (1 + x) ** 2),
    "sqrt": (lambda x: math.sqrt(max(x, 0.25)), lambda x: -(max(x, 0.25) ** -1.5) / 4),
    "inverse": (lambda x: x / (1 + x), lambda x: -2 / (1 + x) ** 3),
    "sigmoid": (lambda x: _sigmoid(16 * x), lambda x: 256 * _bend(16 * x)),
    "silu_slope": (lambda x: _silu_slope(16 * x), lambda x: 256 * _silu_slope_bend(16 * x)),
    "gelu_tanh_gate": (lambda x: _gelu(16 * x)[0], lambda x: 256 * _gelu(16 * x)[2]),
    "gelu_tanh_slope": (lambda x: _gelu_slope(16 * x), lambda x: 256 * _gelu_slope_bend(16 * x)),
    "normal": (lambda x: _normal(8 * x), lambda x: -64 * 8 * x * _density(8 * x)),
    "gelu_slope": (
        lambda x: _normal(8 * x) + 8 * x * _density(8 * x),
        lambda x: 64 * ((8 * x) ** 3 - 4 * 8 * x) * _density(8 * x),
    ),
    "rsqrt": (lambda x: (1 + x) ** -0.5, lambda x: 0.75 * (1 + x) ** -2.5),
    "rsqrt_half": (lambda x: (2 + 2 * x) ** -0.5, lambda x: 0.75 * 2**-0.5 * (1 + x) ** -2.5),
}


@dataclass(frozen=True, kw_only=True)
class Interpolation:
    """A function of ``x`` in [0, 1), itself in [0, 1.13].

    ``exp2``: ``2**x - 1``; ``log2``: ``log2(1 + x)``; ``inverse``: ``1 - 1 / (1 + x)``; ``sqrt``, for ``x`` from 1/4
    on: these rise, within [0, 1]. ``sigmoid`` and ``silu_slope``: the sigmoid of ``16 x``, and the derivative of
    ``z sigmoid(z)`` there; ``gelu_tanh_gate`` and ``gelu_tanh_slope``: GELU by tanh over ``z = 16 x``, and its
    derivative there; ``normal`` and ``gelu_slope``: the normal distribution of ``8 x``, and the derivative of
    ``z normal(z)`` there; ``rsqrt`` and ``rsqrt_half``: ``(1 + x) ** -0.5`` and ``(2 + 2 x) ** -0.5``.

    Parameters
    ----------
    function : str
    index : int
        ``2**index`` pieces. Each is a chord moved by half of its greatest distance from the curve.
    frac_in, frac_out : int
        Fraction bits of ``x`` and of the result.
    """

    function: str
    index: int = 7
    frac_in: int = 20
    frac_out: int = 20

    def __post_init__(self):
        if self.function not in _FUNCTIONS:
            raise ValueError(f"function={self.function!r}: must be one of {', '.join(_FUNCTIONS)}")
        if not 0 < self.index < self.frac_in:
            raise ValueError(f"index={self.index}: must be from 1 to frac_in - 1 = {self.frac_in - 1}")

    @property
    def rest(self):
        """Bits of ``x`` below the index."""
        return self.frac_in - self.index

    @cached_property
    def table(self):
        """``(base, slope)`` integers of each piece.

        A slope is the rise over the whole piece.
        """
        f, curvature = _FUNCTIONS[self.function]
        step = 2.0**-self.index
        base, slope = [], []
        for n in range(1 << self.index):
            left, right = f(n * step), f((n + 1) * step)
            # Parabola of the same curvature: its sagitta is step**2 / 8 times the curvature.
            sagitta = step**2 / 8 * curvature((n + 0.5) * step)
            left -= sagitta / 2
            base.append(max(0, round(left * 2**self.frac_out)))
            slope.append(round((right - f(n * step)) * 2**self.frac_out))
        return np.array(base, dtype=np.int64), np.array(slope, dtype=np.int64)

    @property
    def error(self):
        """Bound of the absolute error, roundings included."""
        curvature = _FUNCTIONS[self.function][1]
        sharpest = max(abs(curvature(n * 2.0**-self.index)) for n in range((1 << self.index) + 1))
        sagitta = 2.0 ** (-2 * self.index) / 8 * sharpest
        # exp2 is held at 0 in its first piece, whose sagitta is half of the last one's.
        return sagitta / 2 * 1.02 + 1.5 * 2.0**-self.frac_out

    def __call__(self, x):
        """The result for integers ``x``, as the hardware computes it."""
        x = np.asarray(x, dtype=np.int64)
        base, slope = self.table
        piece = x >> self.rest
        rise = slope[piece] * (x & ((1 << self.rest) - 1))
        return base[piece] + ((rise + (1 << (self.rest - 1))) >> self.rest)
