"""Reference of the update engine, word for word: SGD, AdamW and Lion."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradloom.rtl.formats.adamw import (
    BETA,
    BIAS,
    EPS,
    EXPONENTS,
    FRACTION,
    GRADIENT_LIMIT,
    GUARD,
    INVERSE,
    LARGEST,
    NOTHING,
    ROOT,
    SQRT,
)
from gradloom.rtl.formats.rounding import saturate
from gradloom.rtl.formats.tiles.codes import WIDE, ZERO
from gradloom.rtl.formats.tiles.records import BEAT
from gradloom.rtl.formats.weights.linear import ACTIVATION, MASTER, half_up

__all__ = ["UpdateModel", "adamw", "update"]

Words = NDArray[np.int64]
_MANTISSA = FRACTION + 1
#: Bits of an aligned sum of two mantissas.
_WINDOW = _MANTISSA + GUARD + 1


def update(p: Words, g: Words, *, rate: int, shift: int) -> tuple[Words, int]:
    """``(p - rate g 2**-shift, saturated)``."""
    return saturate(p - half_up(g * rate, shift), MASTER.lo, MASTER.hi)


def adamw(
    p: Words,
    g: Words,
    m: Words,
    v: Words,
    *,
    beats: int = 0,
    beta1: int,
    beta2: int,
    rate: int,
    exponent: int,
    eps: int,
    eps_exponent: int,
    gradient: int | Words,
    decay: int,
    decay_shift: int,
    sign: int = 0,
) -> tuple[Words, Words, Words, int]:
    """``(p, m, v, saturated)`` after a step of AdamW.

    The arguments are masters, gradients, moments as float32's bits, and the command's operands.

    ``m`` and ``v`` are sums, not means: ``beta1 m + g`` and ``beta2 v + g**2``. With ``sign`` it is Lion: the step has
    the sign of ``beta2 m + g``, and v is 0.
    """
    p, g, m, v = (np.asarray(words, np.int64) for words in (p, g, m, v))
    mantissa, shift = _normalised(np.abs(g), ACTIVATION.width)
    grade = np.where(g == 0, NOTHING, gradient - shift)

    def added(beta: int) -> tuple[Words, NDArray[np.bool_], Words]:
        """Magnitude, sign and exponent of ``beta m + g``."""
        was, at, old = _fields(m)
        e, a, b = _aligned(at, (beta * old) >> BETA - GUARD, grade, mantissa << GUARD)
        total = np.where(was == (g < 0), a + b, a - b)
        return np.abs(total), was ^ (total < 0), e

    def descended(change: Words, away: NDArray[np.bool_]) -> tuple[Words, int]:
        decayed = p - half_up((p >> MASTER.width - 25) * decay, BETA - (MASTER.width - 25) + 5 * decay_shift)
        return saturate(decayed - np.where(away, -change, change), MASTER.lo, MASTER.hi)

    total, m_sign, e = added(beta1)
    way = added(beta2)
    m, m_over = _packed(*_normalised(total, _WINDOW), e)
    moment = np.where(m == 0, 0, m | m_sign.astype(np.int64) << MASTER.width - 1)
    if sign:
        whole = int(half_up(np.int64(rate << _MANTISSA - 1), min(max(exponent, 0), 63)))
        new, lost = descended(np.where(way[0] == 0, 0, whole), way[1])
        return new, moment, np.zeros_like(m), lost + int(m_over.sum())

    _, v_exponent, v_mantissa = _fields(v)
    square = mantissa * (mantissa >> _MANTISSA - BETA) >> BETA - GUARD
    e, a, b = _aligned(v_exponent, (beta2 * v_mantissa) >> BETA - GUARD, 2 * grade - (BIAS - _MANTISSA), square)
    v, v_over = _packed(*_normalised(a + b, _WINDOW), e)

    _, m_exponent, m_mantissa = _fields(m)
    inverse, size = _inverse(v, eps << ROOT - EPS, eps_exponent)
    product = (m_mantissa * inverse >> BETA) * rate
    down = exponent + size - m_exponent
    beyond = (down < 0) & (m_mantissa * inverse != 0)
    product = np.where(beyond, (1 << _MANTISSA + BETA) - 1, product)
    change = half_up(product, np.clip(down, 0, 63))

    new, lost = descended(change, m_sign)
    return new, moment, v, lost + int(m_over.sum() + v_over.sum())


def _fields(words: Words) -> tuple[NDArray[np.bool_], Words, Words]:
    """Sign, exponent and mantissa."""
    exponent = words >> FRACTION & (1 << EXPONENTS) - 1
    return (
        (words >> MASTER.width - 1 & 1).astype(bool),
        exponent,
        np.where(exponent == 0, 0, words & (1 << FRACTION) - 1 | 1 << FRACTION),
    )


def _normalised(magnitude: Words, width: int) -> tuple[Words, Words]:
    """Shifted up until bit ``width - 1`` is 1, and how far."""
    shift = np.where(magnitude == 0, 0, width - np.frexp(magnitude.astype(np.float64))[1].astype(np.int64))
    return magnitude << shift, shift


def _aligned(one: Words, a: Words, other: Words, b: Words) -> tuple[Words, Words, Words]:
    """Both under the larger exponent; what falls off is lost."""
    exponent = np.maximum(one, other)
    return exponent, a >> np.minimum(exponent - one, 31), b >> np.minimum(exponent - other, 31)


def _packed(mantissa: Words, shift: Words, exponent: Words) -> tuple[Words, NDArray[np.bool_]]:
    """A moment, and whether it had to be clipped.

    Less than the smallest is 0.
    """
    exponent = exponent + 1 - shift
    word = (exponent - 1 << FRACTION) + ((mantissa >> GUARD) + 1 >> 1)
    zero = (mantissa == 0) | (exponent < 1)
    over = ~zero & (word > LARGEST)
    return np.where(zero, 0, np.where(over, LARGEST, word)), over


def _inverse(v: Words, eps: int, eps_exponent: int) -> tuple[Words, Words]:
    """``(n, e)``: ``1 / (sqrt(v) + eps)`` is ``n * 2**(-BETA - e)``.

    ``n`` is 0 for a sum of 0.
    """
    _, e, mantissa = _fields(v)
    # v is u * 4**h, u in [1/4, 1).
    u = np.where(e & 1, mantissa >> 5, mantissa >> 4)
    root = np.where(v == 0, 0, np.minimum(SQRT(np.where(v == 0, 1 << ROOT - 2, u)), (1 << ROOT) - 1))
    h, root, aligned_eps = _aligned(
        np.where(v == 0, NOTHING, (e + 1 >> 1) - 63), root, np.full_like(v, eps_exponent), np.full_like(v, eps)
    )
    total = root + aligned_eps
    low = total < 1 << ROOT
    x = np.where(low, 2 * total, total) & (1 << ROOT) - 1
    return np.where(total == 0, 0, (1 << BETA) - 1 - INVERSE(x)), h - low


class UpdateModel:
    """Commands of the update engine with ``records``, on its streams.

    Attributes
    ----------
    saturated : int
        Words and moments that were clipped.
    """

    #: Bytes and words of a beat; opcodes SGD, ADAMW, ADAMW_CODES.
    _bytes, _beat = BEAT, BEAT // 4
    _sgd, _plain, _coded = 0, 1, 4
    _names = ("beta1", "beta2", "rate", "exponent", "eps", "eps_exponent", "gradient", "decay", "decay_shift", "sign")

    def __init__(self) -> None:
        self.gradients, self.at = (np.zeros(0, np.int64) for _ in range(2))
        self.words, self.moments = (np.zeros(0, np.int64) for _ in range(2))
        self.made = {"words": b"", "moments": b""}
        self.exponent = self.saturated = 0

    def load(self, port: str, arg: int, data: bytes) -> None:
        """LOAD of whole beats: gradients, words or moments."""
        if not data or len(data) % self._bytes:
            raise ValueError(f"{port}: {len(data)} bytes, must be beats of {self._bytes}")
        if port != "directions":
            name = {"words": "words", "moments": "moments"}[port]
            setattr(self, name, np.append(getattr(self, name), np.frombuffer(data, "<i4").astype(np.int64)))
            return
        if not arg >> 6 & 1:
            words = np.frombuffer(data, "<i4").astype(np.int64) << 64 - ACTIVATION.width >> 64 - ACTIVATION.width
            exponents = np.zeros_like(words)
        else:
            words, exponents = self._codes(arg, data)
        self.gradients, self.at = np.append(self.gradients, words), np.append(self.at, exponents)

    def _codes(self, arg: int, data: bytes) -> tuple[Words, Words]:
        """Gradients of rows of codes, and the exponent of each."""
        features = (arg & 63) + 1
        if arg >> 7 & 1:
            self.exponent = int.from_bytes(data[:1], "little", signed=True)
            data = data[self._bytes :]
        whole = -(-features // (self._bytes // 2)) * (self._bytes // 2)
        codes = np.frombuffer(data, "<i2").astype(np.int64)
        if len(codes) % whole or (codes == -(1 << WIDE - 1)).any():
            raise ValueError(f"directions: {len(codes)} codes from {codes.min()}, must be rows of {whole} above -32768")
        rows = codes.reshape(-1, whole)[:, : -(-features // self._beat) * self._beat]
        words = np.zeros_like(rows) if self.exponent == ZERO else rows << ACTIVATION.width - WIDE
        return words.reshape(-1), np.full(rows.size, self.exponent)

    def run(self, opcode: int, operands: Mapping[str, int]) -> None:
        """A command of SGD, ADAMW or ADAMW_CODES.

        Operands that are missing are 0. :class:`ValueError` where the engine ends in an error, or would wait for beats.
        """
        count, adaptive = operands.get("beats", 0) * self._beat, opcode in (self._plain, self._coded)
        given = {name: operands.get(name, 0) for name in self._names}
        if opcode != self._sgd and not adaptive:
            raise ValueError(f"opcode {opcode}: must be SGD, ADAMW or ADAMW_CODES")
        small = not given["sign"] and not given["beta2"] >> BETA - 1
        if not count or (adaptive and (small or 0 < given["eps"] < 1 << EPS - 1)):
            raise ValueError(f"beats {count // self._beat}, beta2 {given['beta2']}, eps {given['eps']}")
        have = {"directions": self.gradients, "words": self.words} | ({"moments": self.moments} if adaptive else {})
        for port, words in have.items():
            need = count * (2 if port == "moments" else 1)
            if len(words) < need:
                raise ValueError(f"{port}: has {len(words)} words, the command takes {need}")
        p, g, at = self.words[:count], self.gradients[:count], self.at[:count]
        self.words, self.gradients, self.at = self.words[count:], self.gradients[count:], self.at[count:]
        if not adaptive:
            new, lost = update(p, g, rate=operands.get("rate", 0), shift=operands.get("shift", 0))
        else:
            if opcode == self._coded:
                grades = np.clip(given["gradient"] + at, -GRADIENT_LIMIT, GRADIENT_LIMIT - 1)
            else:
                grades = np.full(count, given["gradient"])
            # A beat has m of four words, then their v.
            pairs = (self.moments[: 2 * count] & 0xFFFFFFFF).reshape(-1, 2, self._beat // 2)
            self.moments = self.moments[2 * count :]
            m, v = pairs[:, 0].reshape(-1), pairs[:, 1].reshape(-1)
            rule: dict[str, Any] = {**given, "gradient": grades}
            new, m, v, lost = adamw(p, g, m, v, **rule)
            moved = np.stack([m.reshape(-1, self._beat // 2), v.reshape(-1, self._beat // 2)], axis=1)
            self.made["moments"] += moved.astype("<u4").tobytes()
        self.saturated += int(lost)
        self.made["words"] += new.astype("<i4").tobytes()

    def store(self, port: str, arg: int, beats: int) -> bytes:
        """STORE of as many beats as were made."""
        taken = self.made[port][: beats * self._bytes]
        if len(taken) < beats * self._bytes:
            raise ValueError(f"{port}: {len(taken) // self._bytes} beats were made, must be {beats}")
        self.made[port] = self.made[port][beats * self._bytes :]
        return taken
