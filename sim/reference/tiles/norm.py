"""Norms and softmaxes on tensors, as the norm engine computes them.

Operands are arrays of values that codes of 16 bits hold. A result is an integer times a power of two, in float64, which
holds it exactly; :func:`~gradloom.rtl.formats.tiles.codes.coded` then makes codes of it.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gradloom.rtl.formats.tiles.codes import EDGE, LEAST, WIDE, coded, spread
from gradloom.rtl.formats.tiles.norm import EPS, NARROWED, PULLED, SIZE, SPREAD, constant, least_shift
from gradloom.rtl.formats.vector import ROOT_FRAC
from gradloom.rtl.formats.weights.linear import half_up

from .. import norm

__all__ = ["Pull", "TileNorm", "parts", "pulls", "softmax", "softmax_back", "values"]

Words = NDArray[np.int64]
#: Pulls of rows, and the exponents that they go with, ``[rows, 1]``.
Pull = tuple[Words, Words]


def parts(x: np.ndarray) -> tuple[Words, Words]:
    """Codes, and the exponent of each."""
    made = coded(x, WIDE)
    return made.codes.astype(np.int64), spread(made.exponents, x.shape)


def values(words: Words, exponents: Words | int) -> np.ndarray:
    """``word * 2**exponent``."""
    made: np.ndarray = np.ldexp(words.astype(np.float64), exponents)
    return made


def _rows(x: np.ndarray) -> tuple[Words, Words]:
    """Rows of codes, and the exponent of each."""
    codes, at = (each.reshape(-1, x.shape[-1]) for each in parts(x))
    return codes, at


def softmax(scores: np.ndarray, factor: float) -> np.ndarray:
    """Softmax of ``factor · scores`` over the last axis."""
    codes, at = _rows(scores)
    top = at.max(1, keepdims=True)
    words, exponent = norm.softmax(norm.under(codes, at, top), top, constant(factor * np.log2(np.e)))
    return values(words.reshape(scores.shape), exponent)


def softmax_back(p: np.ndarray, dp: np.ndarray, factor: float, pull: Pull | None = None) -> np.ndarray:
    """Gradient of the scores: ``factor · p · (dp - pull)``; unless given, the pull of a row is the sum of ``p dp``."""
    (p_codes, p_at), (codes, at) = _rows(p), _rows(dp)
    if pull is None:
        pull = _pull((p_codes, p_at), (codes, at), range(0, codes.shape[1], PULLED * EDGE))
    return values(*norm.soft_gradient(p_codes, p_at, codes, at, pull, constant(factor))).reshape(p.shape)


def pulls(y: np.ndarray, dy: np.ndarray, heads: int) -> Pull:
    """Of attention's results and their gradients, features of heads side by side: a pull for each row of each head."""
    made, size = [], y.shape[1] // heads
    sides = parts(y), parts(dy)
    for head in range(heads):
        columns = np.s_[:, size * head : size * (head + 1)]
        # Of the tiles that they lie in one after the other.
        firsts = [0, *range(EDGE - size * head % EDGE, size, EDGE)]
        one, other = ((codes[columns], at[columns]) for codes, at in sides)
        made.append(_pull(one, other, firsts, least_shift(size)))
    words, exponents = (np.concatenate(each) for each in zip(*made))
    return words, exponents


def _pull(p: tuple[Words, Words], dp: tuple[Words, Words], firsts: Sequence[int], least: int = 0) -> Pull:
    """Sums of ``p dp`` of rows, gathered from each of ``firsts`` on to the next; see :func:`.norm.pull_of`."""
    (p_codes, p_at), (codes, at) = p, dp
    total = np.zeros((len(codes), 1), np.int64)
    tops = [each[:, :1] for each in (p_at, at)]
    for first, last in zip(firsts, [*firsts[1:], codes.shape[1]]):
        some = np.s_[:, first:last]
        before = sum(tops)
        tops = [np.maximum(top, each[some].max(1, keepdims=True)) for top, each in zip(tops, (p_at, at))]
        # What tiles in front gave falls where these have larger exponents.
        total >>= np.minimum(sum(tops) - before, 63)
        down = np.minimum(sum(tops) - p_at[some] - at[some], 63)
        total += half_up(p_codes[some] * codes[some], down).sum(1, keepdims=True)
    words, exponent, _ = norm.pull_of(total, tops[0], tops[1], least)
    return words, exponent


class TileNorm:
    """GroupNorm, or LayerNorm of rows as groups.

    Groups have a power of two values in the engine, within a tile's features; here any number.

    Parameters
    ----------
    gain, bias : array ``[features]``
        Rounded to 16 bits.
    rows, groups : int
        Rows of a group, groups of a row.
    eps : float
    by_row : bool
        Groups are whole tiles of a row each, as in LayerNorm; one row and one group: they always are.
    """

    def __init__(
        self, gain: np.ndarray, bias: np.ndarray, *, rows: int, groups: int, eps: float, by_row: bool = False
    ) -> None:
        self.by_row = by_row or rows == groups == 1
        self.gain, self.gain_at = parts(gain[None])
        self.bias, self.bias_at = parts(bias[None])
        self.rows, self.groups, self.size = rows, groups, rows * len(gain) // groups
        if self.size > 1 << SIZE:
            raise ValueError(f"groups={groups}: a group has {self.size} values, must have at most {1 << SIZE}")
        self.eps = constant(eps * self.size**2, EPS)

    def _grouped(self, x: Words) -> Words:
        return x.reshape(-1, self.rows, self.groups, x.shape[1] // self.groups)

    def _unit(self, x: np.ndarray) -> tuple[Words, norm.Statistics, Words]:
        """Normalised values, what is known of their groups, exponents."""
        codes, at = (self._grouped(each) for each in parts(x))
        top = np.maximum(at.max((1, 3), keepdims=True), LEAST)
        words = half_up(codes, np.minimum(top - at, 31))
        found = norm.statistics(words, self.size, top, self.eps)
        return norm.normalised(words, self.size, found)[0], found, top

    def _least(self, exponents: Words, features: int) -> Words:
        """The least exponent of groups of the same tiles."""
        if self.by_row:
            firsts = np.arange(0, len(exponents), EDGE)
            return np.minimum.reduceat(exponents, firsts, axis=0).repeat(EDGE, axis=0)[: len(exponents)]
        tiles = np.arange(self.groups) * (features // self.groups) // EDGE
        made = exponents.copy()
        for tile in np.unique(tiles):
            at = np.s_[:, :, tiles == tile]
            made[at] = exponents[at].min(2, keepdims=True)
        return made

    def forward(self, x: np.ndarray) -> np.ndarray:
        """Normalised values times gain, plus bias."""
        unit = self._unit(x)[0].reshape(x.shape)
        return values(*norm.scaled_unit(unit, self.gain, self.gain_at, self.bias, self.bias_at))

    def backward(self, dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Gradient of x."""
        unit, found, x_top = self._unit(x)
        codes, at = parts(dy)
        at = self._grouped(at + self.gain_at)
        top = at.max((1, 3), keepdims=True)
        gain = self._grouped(np.broadcast_to(self.gain, dy.shape))
        words = norm.narrowed(self._grouped(codes), gain, at, top)
        mean, along, _ = norm.gradient_sums(words, unit, self.size)
        least = self._least(found.exponent, x.shape[1])
        made, _ = norm.gradient(words, unit, self.size, (mean, along), found, least)
        unit_of = top + NARROWED + self.size.bit_length() - 1 - ROOT_FRAC - SPREAD
        return values(made, unit_of - least - found.half - x_top).reshape(x.shape)
