"""Norms and softmaxes on codes of tiles; the engine's commands.

A group's values lie along axes 1 and 3 of arrays of four axes: images, rows of an image, groups of a row, features of a
group. Groups have any size here; those of the engine have a power of two.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradloom.rtl.formats.rounding import saturate
from gradloom.rtl.formats.tiles.codes import EDGE, LEAST, WIDE
from gradloom.rtl.formats.tiles.norm import (
    ALIGNED,
    BIAS_LIFT,
    DEEP,
    EPS,
    EPS_SPAN,
    FACTOR,
    LEAST_ARGUMENT,
    LIFT,
    NARROWED,
    POWER,
    PULL,
    PULL_WORD,
    REST,
    ROW_TILES,
    SIZE,
    SPREAD,
    UNIT,
    NormOpcode,
)
from gradloom.rtl.formats.vector import EXP2, EXPONENT_FRAC, LOG2, POWER_FRAC, ROOT_FRAC
from gradloom.rtl.formats.weights.linear import half_up

from .tiles.ports import ResultSlots, TileSlots
from .vector import reciprocal_roots

__all__ = [
    "GAINS",
    "RESULTS",
    "NormModel",
    "Statistics",
    "gradient",
    "gradient_sums",
    "narrowed",
    "normalised",
    "exponents",
    "levels",
    "pull_of",
    "scaled_unit",
    "soft_gradient",
    "softmax",
    "statistics",
    "under",
]

Words = NDArray[np.int64]

#: Slots of gains and biases, and of results.
GAINS, RESULTS = 32, 4
_ALONG = (1, 3)
_ONE = 1 << EXPONENT_FRAC


@dataclass(frozen=True, eq=False)
class Statistics:
    """What is known of each group of x.

    ``sum``: of its words. ``mantissa * 2**-(17 + exponent + half)``: reciprocal root of size² times variance plus eps,
    in the square of their unit.
    """

    sum: Words
    mantissa: Words
    exponent: Words
    half: Words | int


def _signed(bits: int) -> tuple[int, int]:
    return -(1 << bits - 1), (1 << bits - 1) - 1


def _mean(total: Words, size: int) -> Words:
    """``total / size`` to the nearest integer, ties up."""
    return (2 * total + size) // (2 * size)


def statistics(words: Words, size: int, top: Any, eps: tuple[int, int]) -> Statistics:
    """Sums of groups, and their reciprocal roots.

    Parameters
    ----------
    words : array of four axes
        Codes under the exponent ``top``.
    size : int
        Values of a group.
    eps : mantissa, exponent
        Of eps · size².
    """
    one = words.sum(_ALONG, keepdims=True)
    variance = size * (words * words).sum(_ALONG, keepdims=True) - one * one
    up = eps[1] - 2 * np.asarray(top, np.int64)
    # Where eps would end above 60 bits, the variance is shifted down to it.
    down = np.maximum(up - EPS_SPAN, 0)
    down = down + (down & 1)
    up = up - down
    beside = eps[0] << np.clip(up, 0, EPS_SPAN) >> np.clip(-up, 0, 63)
    mantissa, exponent = reciprocal_roots(np.maximum(beside + (variance >> np.minimum(down, 63)), 1))
    return Statistics(one, mantissa, exponent, down >> 1)


def normalised(words: Words, size: int, found: Statistics) -> tuple[Words, int]:
    """Normalised values, 16 fraction bits, and how many were clipped."""
    shift = np.minimum(found.exponent + found.half, 63)
    aligned, lost = saturate((size * words - found.sum) << DEEP >> shift, *_signed(ALIGNED))
    return half_up(aligned * found.mantissa, DEEP + ROOT_FRAC - UNIT), lost


def scaled_unit(unit: Words, gain: Words, gain_at: Any, bias: Words, bias_at: Any) -> tuple[Words, Words]:
    """Words and exponents of ``unit · gain + bias``."""
    own, its = np.asarray(gain_at, np.int64), np.asarray(bias_at, np.int64)
    top = np.maximum(own, its - BIAS_LIFT)
    factor = half_up(gain, np.minimum(top - own, 31))
    term = half_up(bias << UNIT + BIAS_LIFT, np.minimum(BIAS_LIFT + top - its, 63))
    return unit * factor + term, top - UNIT


def narrowed(dy: Words, gain: Words, at: Any, top: Any) -> Words:
    """``dy · gain`` in 18 bits; ``at``: its exponent, ``top``: the largest.

    Units are ``2**(top + 13)``.
    """
    return half_up(dy * gain, np.minimum(NARROWED + np.asarray(top, np.int64) - at, 63))


def gradient_sums(words: Words, unit: Words, size: int) -> tuple[Words, Words, int]:
    """Mean of each group's gradient, and of its products with x.

    The third result tells how many were clipped.
    """
    mean = _mean(words.sum(_ALONG, keepdims=True), size)
    along, lost = saturate(_mean((words * unit).sum(_ALONG, keepdims=True), size << UNIT), *_signed(PULL))
    return mean, along, lost


def gradient(
    words: Words, unit: Words, size: int, sums: tuple[Words, Words], found: Statistics, least: Any
) -> tuple[Words, int]:
    """Gradients of x, and how many were clipped on their way.

    ``least``: the least exponent of roots among groups of the same tile. Units are ``2**(top + 13 - 17 - 4 - least -
    half + log2 size)``, over those of x; the logarithm is rounded down.
    """
    mean, along = sums
    rest, lost = saturate(words - mean - half_up(unit * along, UNIT), *_signed(REST))
    made = half_up(rest * found.mantissa * size, size.bit_length() - 1)
    return made << SPREAD >> np.maximum(found.exponent - least, 0), lost


def _powers(t: Words) -> Words:
    """``2**t`` with 27 fraction bits; ``t`` has 20 and is at most 0."""
    whole = np.minimum(-(t >> EXPONENT_FRAC), 63)
    return ((1 << POWER_FRAC) + EXP2(t & (_ONE - 1))) << (POWER - POWER_FRAC) >> whole


def under(codes: Words, at: Any, top: Any) -> Words:
    """Codes in units of ``2**top``; ``at``: their own exponents."""
    return half_up(codes, np.minimum(np.asarray(top, np.int64) - at, 31))


def exponents(codes: Words, largest: Words, at: Any, factor: tuple[int, int]) -> Words:
    """Powers of two of each score above its row's largest, 20 fraction bits.

    ``codes``: ``[rows, keys]`` in units of ``2**at``. ``factor``: mantissa and exponent, to base 2.
    """
    below = (codes - largest) * factor[0]
    down = np.clip(POWER_FRAC - POWER - (np.asarray(at, np.int64) + factor[1]), 0, 63)
    return np.maximum(below << (POWER - POWER_FRAC) >> down, LEAST_ARGUMENT << EXPONENT_FRAC)


def levels(total: Words) -> Words:
    """Logarithms of sums of powers, to base 2 with 20 fraction bits."""
    bit = np.frexp(np.maximum(total, 1).astype(np.float64))[1].astype(np.int64) - 1
    fraction = np.maximum(total, 1) << EXPONENT_FRAC >> bit
    return ((bit - POWER) << EXPONENT_FRAC) + LOG2(fraction - _ONE)


def softmax(codes: Words, at: Any, factor: tuple[int, int]) -> tuple[Words, int]:
    """Words of each row's softmax, and their exponent; see :func:`exponents`."""
    t = exponents(codes, codes.max(1, keepdims=True), at, factor)
    return _powers(t - levels(_powers(t).sum(1, keepdims=True))), -POWER


def pull_of(total: Words, p_at: Any, dp_at: Any, least: int = 0) -> tuple[Words, Any, int]:
    """Rows' pulls from sums of p · dp, the exponent of gradients that they go with, and how many were clipped.

    ``p_at``, ``dp_at``: exponents of codes. A pull is in units of ``2**-8`` of such a gradient's. ``least``: bits that
    sums lose at least.
    """
    p_at = np.asarray(p_at, np.int64)
    shift = np.maximum(-LIFT - p_at, least)
    pull, lost = saturate(half_up(total, np.minimum(shift, 63)), *_signed(PULL_WORD))
    return pull, p_at + dp_at + shift + LIFT, lost


def soft_gradient(
    p: Words, p_at: Any, dp: Words, dp_at: Any, pull: tuple[Words, Any], factor: tuple[int, int]
) -> tuple[Words, Words]:
    """Gradients of scores: words and exponents; ``pull``: of rows, and their exponent."""
    words, its = pull
    top = np.maximum(dp_at, its)
    lifted = under(dp, dp_at, top) << LIFT
    term = half_up((lifted - (words >> np.minimum(top - its, 63))) * factor[0], FACTOR)
    return term * p, np.asarray(p_at, np.int64) + top - LIFT + FACTOR + factor[1]


class NormModel:
    """The engine's commands on its slots, word for word.

    Attributes
    ----------
    saturated, underflowed : int
        As the engine counts them.
    """

    def __init__(self, config: Any) -> None:
        slots = self.slots = config.norm_slots
        self.operands = {port: TileSlots(slots, WIDE, short=port == "a") for port in "ab"}
        self.operands["gain"] = TileSlots(GAINS, WIDE, rows=1)
        self.results = ResultSlots(RESULTS)
        self.clipped = 0
        # Of SUMS: groups by index, as the engine keeps them.
        self.size, self.group, self.by_row = 1, 0, 0
        self.top, self.gradient_top = LEAST, 0
        #: Exponent that the pulls of rows go with.
        self.pull_at = 0
        self.least = self.half = 0
        self.kept = np.zeros((5, EDGE), np.int64)
        #: Of rows of a softmax: what was gathered last, of how many tiles, so far in halves of its unit or as a sum.
        self.gathered: NormOpcode | None = None
        self.tiles = 0
        self.so_far = np.zeros(EDGE, np.int64)

    @property
    def saturated(self) -> int:
        """Words that the engine or STORE clipped."""
        return self.clipped + self.results.saturated

    @property
    def underflowed(self) -> int:
        """Words that STORE made 0."""
        return self.results.underflowed

    def load(self, port: str, arg: int, data: bytes) -> None:
        """LOAD of whole records; see :meth:`~.tiles.ports.TileSlots.load`."""
        self.operands[port].load(port, arg, data)

    def store(self, port: str, arg: int, beats: int) -> bytes:
        """STORE of one record; see :meth:`~.tiles.ports.ResultSlots.store`."""
        return self.results.store(port, arg, beats)

    def run(self, opcode: int, operands: Mapping[str, int]) -> None:
        """A command; :class:`ValueError` where the engine refuses it."""
        given = _Operands(operands)
        rule = {
            NormOpcode.SUMS: self._sums,
            NormOpcode.NORM: self._norm,
            NormOpcode.BACK_SUMS: self._back_sums,
            NormOpcode.BACK: self._back,
            NormOpcode.SOFTMAX: self._softmax,
            NormOpcode.SOFTMAX_BACK: self._softmax_back,
            NormOpcode.LARGEST: self._largest,
            NormOpcode.POWERS: self._sum_of_powers,
            NormOpcode.SHARES: self._shares,
            NormOpcode.PULLS: self._pulls,
            NormOpcode.SOFT_BACK: self._soft_back,
        }[NormOpcode(opcode)]
        _refuse(given.a_row + given.rows > EDGE, "rows beyond the tile")
        rule(given)

    def _tiles(self, port: str, slot: int, count: int, given: "_Operands") -> tuple[Words, Words]:
        """Codes of rows of tiles, ``[tiles, rows, features]``, and exponents."""
        _refuse(slot + count > self.slots, "slots")
        at = np.s_[slot : slot + count]
        kept = self.operands[port]
        return kept.codes[at, given.a_row :][:, : given.rows, : given.features], kept.at[at]

    def _grouped(self, x: Words) -> Words:
        """Four axes from ``[tiles, rows, features]``."""
        if self.by_row:
            return x.transpose(1, 0, 2).reshape(x.shape[1], 1, 1, -1)
        return x.reshape(1, x.shape[0] * x.shape[1], x.shape[2] >> self.group, 1 << self.group)

    def _index(self, given: "_Operands") -> Any:
        """Where the groups of a command are kept."""
        return np.s_[given.a_row : given.a_row + given.rows] if self.by_row else np.s_[: given.features >> self.group]

    def _found(self, given: "_Operands") -> Statistics:
        one, mantissa, exponent, *_ = (self._spread(each, given) for each in self.kept)
        return Statistics(one, mantissa, exponent, self.half)

    def _spread(self, kept: Words, given: "_Operands") -> Words:
        return kept[self._index(given)].reshape((-1, 1, 1, 1) if self.by_row else (1, 1, -1, 1))

    def _sums(self, given: "_Operands") -> None:
        size = given.tiles * (given.features if given.by_row else given.rows << given.group)
        _refuse(size & size - 1 != 0 or size > 1 << SIZE, "size")
        _refuse(bool(given.tiles & given.tiles - 1), "tiles")
        _refuse(not given.by_row and (given.group > 6 or given.features % (1 << given.group) != 0), "group")
        _refuse(given.mantissa >> EPS != 0 or given.exponent > 0, "eps")
        self.gathered = None
        codes, at = self._tiles("a", given.a, given.tiles, given)
        self.by_row, self.group, self.size = given.by_row, given.group, size
        self.top = max(int(at.max()), LEAST)
        words = half_up(codes, np.minimum(self.top - at, 31)[:, None, None])
        eps = given.mantissa, given.exponent + 2 * (size.bit_length() - 1)
        found = statistics(self._grouped(words), size, self.top, eps)
        self.half, self.least = int(found.half), int(found.exponent.min())
        for kept, each in zip(self.kept, (found.sum, found.mantissa, found.exponent)):
            kept[self._index(given)] = each.reshape(-1)

    def _unit(self, port: str, slot: int, count: int, given: "_Operands") -> Words:
        codes, at = self._tiles(port, slot, count, given)
        _refuse(not self.by_row and given.features % (1 << self.group) != 0, "group")
        _refuse(int(at.max()) > self.top, "exponent above that of the sums")
        words = half_up(codes, np.minimum(self.top - at, 31)[:, None, None])
        unit, lost = normalised(self._grouped(words), self.size, self._found(given))
        self.clipped += lost
        return unit

    def _result(self, given: "_Operands", words: Words, exponent: Any) -> None:
        _refuse(given.o >= RESULTS or given.o_row + given.rows > EDGE, "result")
        if given.fresh:
            self.results.clear(given.o)
        self.results.write(given.o, given.o_row, 0, words.reshape(given.rows, given.features), exponent)

    def _norm(self, given: "_Operands") -> None:
        unit = self._unit("a", given.a, 1, given).reshape(given.rows, -1)
        kept, slots = self.operands["gain"], [given.gain, given.bias]
        (gain, bias), (gain_at, bias_at) = (kept.codes[slots, :, : given.features], kept.at[slots])
        self._result(given, *scaled_unit(unit, gain, gain_at, bias, bias_at))

    def _narrowed(self, count: int, given: "_Operands", top: int | None = None) -> Words:
        """Gradients times gains."""
        dy, at = self._tiles("b", given.b, count, given)
        step = count if self.by_row else 1
        _refuse(given.gain + step > GAINS, "gain")
        gains = np.s_[given.gain : given.gain + step]
        at = at + self.operands["gain"].at[gains]
        if top is None:
            self.gradient_top = int(at.max())
        _refuse(int(at.max()) > self.gradient_top, "exponent above that of the sums")
        gain = self.operands["gain"].codes[gains, :, : given.features]
        return self._grouped(narrowed(dy, gain, at[:, None, None], self.gradient_top))

    def _back_sums(self, given: "_Operands") -> None:
        size = given.tiles * (given.features if self.by_row else given.rows << self.group)
        _refuse(size != self.size, "another size than that of the sums")
        self.gathered = None
        unit = self._unit("a", given.a, given.tiles, given)
        mean, along, lost = gradient_sums(self._narrowed(given.tiles, given), unit, size)
        self.clipped += lost
        for kept, each in zip(self.kept[3:], (mean, along)):
            kept[self._index(given)] = each.reshape(-1)

    def _back(self, given: "_Operands") -> None:
        unit = self._unit("a", given.a, 1, given)
        words = self._narrowed(1, given, self.gradient_top)
        mean, along = (self._spread(each, given) for each in self.kept[3:])
        made, lost = gradient(words, unit, self.size, (mean, along), self._found(given), self.least)
        self.clipped += lost
        unit_of = self.gradient_top + NARROWED + self.size.bit_length() - 1 - ROOT_FRAC - SPREAD
        self._result(given, made, unit_of - self.least - self.half - self.top)

    # -- softmaxes -----------------------------------------------------------------------------------------------

    def _softmax(self, given: "_Operands") -> None:
        """All passes over one tile."""
        given.tiles, given.more = 1, 0
        for each in (self._largest, self._sum_of_powers, self._shares):
            each(given)

    def _softmax_back(self, given: "_Operands") -> None:
        given.tiles, given.more, given.first = 1, 0, 0
        _refuse(any(at > -LIFT for _, at in self._row("a", given.a, given)), "probabilities above 128")
        self._pulls(given, 0)
        self._soft_back(given)

    def _row(self, port: str, slot: int, given: "_Operands", first: int = 0) -> list[tuple[Words, int]]:
        """Codes ``[rows, keys]`` of each tile of rows, and its exponent; all but the last are full."""
        _refuse(slot + given.tiles > self.slots, "slots")
        kept, rows = self.operands[port], np.s_[given.a_row : given.a_row + given.rows]
        keys = [EDGE] * (given.tiles - 1) + [given.features]
        return [(kept.codes[n, rows, first:many], int(kept.at[n])) for n, many in enumerate(keys, slot)]

    def _goes_on(self, opcode: NormOpcode, given: "_Operands") -> None:
        """Begins rows, or goes on with them."""
        _refuse(bool(given.more) and self.tiles + given.tiles > ROW_TILES, "tiles of a row")
        if given.more and self.gathered != opcode:
            raise ValueError(f"more={given.more}: what was gathered last is {self.gathered}, must be {opcode!r}")
        self.gathered, self.tiles = opcode, given.tiles + (self.tiles if given.more else 0)

    def _gather(self, given: "_Operands", found: list[Words], kind: np.ufunc, fall: int = 0) -> Words:
        """Sums, or the largest, of all tiles so far; ``fall``: shift of those before."""
        at = np.s_[given.a_row : given.a_row + given.rows]
        whole = kind.reduce(np.concatenate(found, axis=1), axis=1)
        self.so_far[at] = kind(self.so_far[at] >> min(fall, 63), whole) if given.more else whole
        made: Words = self.so_far[at]
        return made

    def _by_row(self, number: int, given: "_Operands") -> Words:
        kept: Words = self.kept[number, given.a_row : given.a_row + given.rows, None]
        return kept

    def _largest(self, given: "_Operands") -> None:
        tiles = self._row("a", given.a, given)
        self._goes_on(NormOpcode.LARGEST, given)
        before, self.top = self.top, max(at for _, at in tiles)
        if given.more:
            self.top = max(self.top, before)
        # Halves round down: of those of a smaller unit the larger unit's are made.
        found = [2 * codes >> min(self.top - at, 31) for codes, at in tiles]
        made = self._gather(given, found, np.maximum, self.top - before)
        self._by_row(3, given)[:, 0] = half_up(made, 1)

    def _exponents(self, codes: Words, at: int, given: "_Operands") -> Words:
        factor = given.mantissa, given.exponent
        return exponents(under(codes, at, self.top), self._by_row(3, given), self.top, factor)

    def _sum_of_powers(self, given: "_Operands") -> None:
        tiles = self._row("a", given.a, given)
        _refuse(max(at for _, at in tiles) > self.top, "exponent above that of the largest")
        if not given.more:
            _follow(self.gathered, NormOpcode.LARGEST)
        self._goes_on(NormOpcode.POWERS, given)
        made = self._gather(given, [_powers(self._exponents(codes, at, given)) for codes, at in tiles], np.add)
        self._by_row(0, given)[:, 0] = levels(made)

    def _shares(self, given: "_Operands") -> None:
        given.tiles = 1
        ((codes, at),) = self._row("a", given.a, given)
        _refuse(at > self.top, "exponent above that of the largest")
        _follow(self.gathered, NormOpcode.POWERS)
        self._result(given, _powers(self._exponents(codes, at, given) - self._by_row(0, given)), -POWER)

    def _pulls(self, given: "_Operands", least: int | None = None) -> None:
        least = given.exponent if least is None else least
        _refuse(not 0 <= least < 64, "bits that sums lose")
        p, dp = (self._row(port, slot, given, given.first) for port, slot in (("a", given.a), ("b", given.b)))
        self._goes_on(NormOpcode.PULLS, given)
        before = self.top, self.gradient_top
        self.top, self.gradient_top = (max(at for _, at in each) for each in (p, dp))
        if given.more:
            self.top, self.gradient_top = max(self.top, before[0]), max(self.gradient_top, before[1])
        top, found = self.top + self.gradient_top, []
        for (one, at), (other, its) in zip(p, dp):
            found.append(half_up(one * other, min(top - at - its, 63)))
        total = self._gather(given, found, np.add, top - sum(before))
        pull, self.pull_at, lost = pull_of(total, self.top, self.gradient_top, least)
        self.clipped += lost
        self._by_row(3, given)[:, 0] = pull

    def _soft_back(self, given: "_Operands") -> None:
        given.tiles = 1
        ((p, at),), ((dp, its),) = self._row("a", given.a, given), self._row("b", given.b, given)
        _refuse(not -512 <= given.exponent < 512, "exponent")
        _follow(self.gathered, NormOpcode.PULLS)
        pull = self._by_row(3, given), self.pull_at
        self._result(given, *soft_gradient(p, at, dp, its, pull, (given.mantissa, given.exponent)))


class _Operands:
    """Operands of a command by name, sizes as they are."""

    a: int
    b: int
    o: int
    gain: int
    bias: int
    tiles: int
    rows: int
    features: int
    a_row: int
    o_row: int
    fresh: int
    by_row: int
    group: int
    mantissa: int
    exponent: int
    more: int
    first: int

    def __init__(self, operands: Mapping[str, int]) -> None:
        for name in self.__annotations__:
            setattr(self, name, int(operands.get(name, 0)) + (name in ("tiles", "rows", "features")))


def _follow(gathered: NormOpcode | None, wanted: NormOpcode) -> None:
    """The engine does not look: a program must not ask."""
    if gathered != wanted:
        raise ValueError(f"{wanted!r} must be what was gathered last, it is {gathered!r}")


def _refuse(bad: bool, what: str) -> None:
    if bad:
        raise ValueError(f"BAD_OPERAND: {what}")
