"""Bit-exact softmax of the vector engine, on arrays.

To base 2: ``p = 2**(t - level)``, ``level = log2(sum of 2**t)``, where ``t = s * 2**-frac``. Whoever wants base e puts
log2(e) into what makes s. A row is summed in the order in which it streams, a beat of ``lanes`` elements at a time, in
units of a power of 16 that follows the largest t so far, so that a change of unit is a shift by few choices.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradloom.rtl.formats.rounding import saturate
from gradloom.rtl.formats.vector import (
    EXP2,
    EXPONENT_FRAC,
    FALL,
    FINE,
    FINE_FROM,
    GATE_LIFT,
    GUARD,
    LIFT,
    LOG2,
    POWER_FRAC,
    PROBABILITY_FRAC,
    TERM,
    UNIT,
)
from gradloom.rtl.formats.weights.linear import half_up

from .vector import VectorTensor, term_of, word_of

__all__ = ["PulledSum", "SoftmaxTensor", "levels", "pulled", "softmax", "softmax_backward"]

Words = NDArray[np.int64]
_ONE = 1 << EXPONENT_FRAC
_NEVER = -(1 << 14)


@dataclass(frozen=True, kw_only=True)
class SoftmaxTensor(VectorTensor):
    """Probabilities, less 1 at targets.

    ``loss``: sum of ``level - t`` over targets, 16 fraction bits, base 2; ``counted``: of how many tokens.
    """

    loss: int = 0
    counted: int = 0


@dataclass(frozen=True, kw_only=True)
class PulledSum:
    """Sum of ``p * dp`` of each row, in dp's units.

    ``saturated``: terms and sums that were clipped.
    """

    words: Words
    saturated: int


def _arguments(s: ArrayLike, gate_shift: int) -> Words:
    """``t``, 20 fraction bits."""
    return np.asarray(s, np.int64) << GATE_LIFT >> gate_shift


def _counts(shape: tuple[int, ...], limit: int, causal: bool) -> NDArray[np.bool_]:
    tokens, elements = (np.arange(size) for size in shape)
    return elements <= limit + causal * tokens[:, None]


def _shifts(t: Words, whole: int | Words, counts: NDArray[np.bool_]) -> Words:
    """Shift of a power at t for its term to be ``2**(t - whole)``.

    It is far enough where nothing counts.
    """
    left = LIFT - GUARD + POWER_FRAC - PROBABILITY_FRAC + whole - t // _ONE
    return np.where(counts & (left >= 0) & (left < 64), left, 63)


def _powers(t: Words) -> Words:
    return (1 << POWER_FRAC) + EXP2(t % _ONE)


def levels(s: ArrayLike, *, gate_shift: int, lanes: int, limit: int, causal: bool = False) -> Words:
    """Logarithm to base 2 of each row's sum of ``2**t``.

    It has 20 fraction bits. ``limit`` is the last element that counts, with ``causal`` of the first token, and one more
    of each that follows; ``gate_shift`` is s's fraction less 8.
    """
    t = _arguments(s, gate_shift)
    counts = _counts(t.shape, limit, causal)
    largest = np.full(len(t), _NEVER)
    total = np.zeros(len(t), np.int64)
    for start in range(0, t.shape[1], lanes):
        beat = np.s_[:, start : start + lanes]
        whole = np.where(counts[beat], t[beat] // _ONE, _NEVER)
        before, largest = largest, np.maximum(largest, whole.max(axis=1) // UNIT * UNIT + UNIT - 1)
        shift = _shifts(t[beat], largest[:, None], counts[beat])
        near = shift < FINE_FROM
        term, _ = term_of(1, _powers(t[beat]), np.where(near, shift, shift - FINE))
        fall = largest - before
        kept = np.where(fall < FALL * UNIT, total >> np.minimum(fall, FALL * UNIT), 0)
        total = kept + np.where(near, term << FINE, term).sum(axis=1)
    bit = np.frexp(total.astype(np.float64))[1].astype(np.int64) - 1
    fraction = (total >> (bit - EXPONENT_FRAC)) - _ONE
    return (largest + bit - PROBABILITY_FRAC - FINE) * _ONE + LOG2(fraction)


def softmax(
    s: ArrayLike,
    level: ArrayLike,
    *,
    gate_shift: int,
    limit: int,
    causal: bool = False,
    targets: ArrayLike | None = None,
    shift: int = 0,
) -> SoftmaxTensor:
    """``2**(t - level)`` with 22 fraction bits.

    ``targets``: an index a token, which loses 1 there; a token whose index is negative gives all 0; one whose index
    does not count, or lies beyond its row, has no target.
    """
    v = _arguments(s, gate_shift) - np.asarray(level, np.int64)[:, None]
    counts = _counts(v.shape, limit, causal)
    if targets is None:
        term, clipped = term_of(1, _powers(v), _shifts(v, 0, counts))
        hit = np.zeros(v.shape, bool)
    else:
        target = np.asarray(targets, np.int64)[:, None]
        hit = counts & (np.arange(v.shape[1]) == target)
        term, clipped = term_of(1, _powers(v), _shifts(v, 0, counts & (target >= 0)))
    word = word_of(term - (hit.astype(np.int64) << PROBABILITY_FRAC), 1, shift, clipped)
    loss = int(np.maximum(-v[hit], 0).sum()) >> (EXPONENT_FRAC - 16)
    return SoftmaxTensor(
        words=word.words, saturated=word.saturated, magnitude=word.magnitude, loss=loss, counted=int(hit.sum())
    )


def pulled(p: ArrayLike, dp: ArrayLike, *, left: int = 7) -> PulledSum:
    """How far dp goes along p. ``left`` is 7 where p counts as it is."""
    term, clipped = term_of(p, 1, left)
    total = (term * np.asarray(dp, np.int64)).sum(axis=-1)
    words, lost = saturate(half_up(total, PROBABILITY_FRAC), TERM.lo, TERM.hi)
    return PulledSum(words=words, saturated=clipped + lost)


def softmax_backward(
    p: ArrayLike, dp: ArrayLike, pull: ArrayLike, *, left: int, right: int, shift: int
) -> VectorTensor:
    """``p * (dp - pull)``: the gradient of s to base e.

    ``left`` and ``right`` are of dp and of the pull.
    """
    term, clipped = term_of(dp, 1, left, np.asarray(pull, np.int64)[..., None], 1, right, subtract=True)
    return word_of(term, p, shift, clipped)
