"""Elementwise operations on codes of tiles, and the engine's commands.

A code is ``code * 2**at``; a result a word times a power of two. Arrays of exponents broadcast with those of codes;
exponents of tiles of zeros may be any that are not above the others.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradloom.rtl.formats.tiles.codes import EDGE, WIDE, ZERO
from gradloom.rtl.formats.tiles.element import EXPONENT_LIMIT, FACTOR_FRAC, LIFT, ElementOpcode, ElementOperands
from gradloom.rtl.formats.tiles.functions import FIXED, Curve, Mirror, Times
from gradloom.rtl.formats.tiles.records import BEAT
from gradloom.rtl.formats.tiles.tables import ARGUMENT, BASE, FIXED_TABLES, INDEX, SLOPE, TABLES
from gradloom.rtl.formats.weights.linear import half_up

from .tiles.ports import ResultSlots, TileSlots

__all__ = [
    "ElementModel",
    "Looked",
    "add",
    "aligned",
    "alone",
    "equal",
    "factors",
    "larger",
    "mask",
    "multiply",
    "product",
    "scaled",
    "squares",
    "term",
]

Words = NDArray[np.int64]
#: Words, and the exponent of each row or element.
Result = tuple[Words, Any]

_BEAT = 8


def aligned(words: Words, up: Any) -> Words:
    """``words * 2**up``, to the nearest integer."""
    up = np.asarray(up, np.int64)
    return np.where(up >= 0, words << np.clip(up, 0, 40), half_up(words, np.clip(-up, 0, 62)))


@dataclass(frozen=True)
class Looked:
    """A function by table as a command names it.

    ``pieces``: base and slope of each piece, of arguments from 0 on and of those below: ``[2, 2, pieces]``.
    """

    pieces: Words
    range: int
    mirror: int
    exponent: int = 0

    @classmethod
    def of(cls, curve: Curve) -> "Looked":
        """Of a curve."""
        return cls(curve.pieces, curve.range, curve.mirror, curve.exponent)


def factors(codes: Words, at: Any, curve: Looked) -> Words:
    """Values of g at ``code * 2**at``, 16 fraction bits."""
    rest = ARGUMENT - INDEX
    up = np.asarray(at + ARGUMENT - curve.range)
    magnitude, below = np.abs(codes), codes < 0
    argument = np.where(up >= 0, magnitude << np.clip(up, 0, 40), magnitude >> np.clip(-up, 0, 62))
    argument = np.minimum(argument, (1 << ARGUMENT) - 1)
    base, slope = curve.pieces[below.astype(int), :, argument >> rest].transpose(-1, *range(codes.ndim))
    found = base + half_up(slope * (argument & ((1 << rest) - 1)), rest)
    one = 1 << FACTOR_FRAC
    mirrored = {Mirror.REST: one - found, Mirror.OPPOSITE: -found}.get(Mirror(curve.mirror), found)
    return np.where(below, mirrored, found)


def _met(one: Words, one_at: Any, other: Words, other_at: Any) -> tuple[Words, Words, Any]:
    """Both under the larger exponent and with 8 bits more than a code, and the exponent."""
    top = np.maximum(one_at, other_at)
    return aligned(one, one_at - top + LIFT), aligned(other, other_at - top + LIFT), top - LIFT


def add(one: Words, one_at: Any, other: Words, other_at: Any, *, subtract: bool = False) -> Result:
    """The sum, under the larger exponent and with 8 bits more than a code."""
    one, other, at = _met(one, one_at, other, other_at)
    return one - other if subtract else one + other, at


def larger(one: Words, one_at: Any, other: Words, other_at: Any) -> Result:
    """The larger one."""
    one, other, at = _met(one, one_at, other, other_at)
    return np.maximum(one, other), at


def equal(one: Words, one_at: Any, other: Words, other_at: Any, incoming: Words, its: Any) -> Result:
    """``incoming`` where both are equal to half a unit of the larger exponent.

    A maximum that was rounded to codes of a larger exponent than its own counts as it.
    """
    one, other, _ = _met(one, one_at, other, other_at)
    half = 1 << LIFT - 1
    return np.where((one - other >= -half) & (one - other < half), incoming, 0) << FACTOR_FRAC, its - FACTOR_FRAC


def mask(incoming: Words, its: Any, codes: Words) -> Result:
    """``incoming`` where a code is above 0."""
    return np.where(codes > 0, incoming, 0) << FACTOR_FRAC, its - FACTOR_FRAC


def multiply(one: Words, one_at: Any, other: Words, other_at: Any) -> Result:
    """The product, exact."""
    return one * other << LIFT, one_at + other_at - LIFT


def squares(codes: Words, at: Any, axes: int | tuple[int, ...]) -> Result:
    """Sums over axes, each under the largest exponent of its values.

    ``codes`` and ``at`` have the same shape.
    """
    top = at.max(axes, keepdims=True)
    return aligned(codes, at - top + LIFT).sum(axes), top.squeeze(axes) - LIFT


def scaled(codes: Words, at: Any, mantissa: int, exponent: int) -> Result:
    """Codes times a constant of 17 bits."""
    return codes * mantissa, at + exponent


def alone(codes: Words, at: Any, curve: Looked) -> Result:
    """``g(x)``."""
    return factors(codes, at, curve), curve.exponent - FACTOR_FRAC


def product(one: Words, one_at: Any, codes: Words, at: Any, curve: Looked) -> Result:
    """``one · g(x)``."""
    return one * factors(codes, at, curve), one_at + curve.exponent - FACTOR_FRAC


def term(one: Words, one_at: Any, other: Words, other_at: Any, codes: Words, at: Any, curve: Looked) -> Result:
    """``one · (other · g(x))``; the product in brackets is rounded by 8 bits."""
    inner = half_up(other * factors(codes, at, curve), LIFT)
    return inner * one, one_at + other_at + curve.exponent + LIFT - FACTOR_FRAC


class ElementModel:
    """Commands of the element engine on its slots.

    Parameters
    ----------
    config
        Configuration of the machine, with ``element_slots`` and ``element_results``.

    Attributes
    ----------
    saturated, underflowed : int
        Words that STORE clipped; that it made 0.
    """

    def __init__(self, config: Any) -> None:
        self.slots = {port: TileSlots(config.element_slots, WIDE) for port in "abc"}
        self.queue = b""
        #: Base and slope of each piece.
        self.tables = np.zeros((TABLES, 2, 1 << INDEX), np.int64)
        self.tables[:FIXED_TABLES] = [each.table for each in FIXED]
        self.results = ResultSlots(config.element_results)

    @property
    def saturated(self) -> int:
        """Words that STORE clipped."""
        return self.results.saturated

    @property
    def underflowed(self) -> int:
        """Words that STORE made 0."""
        return self.results.underflowed

    def load(self, port: str, arg: int, data: bytes) -> None:
        """LOAD of whole records, or of words.

        :class:`ValueError` where the engine refuses a beat.
        """
        if port == "words":
            self.queue += data
            return
        self.slots[port].load(port, arg, data)

    def store(self, port: str, arg: int, beats: int) -> bytes:
        """STORE of one record; see :meth:`~.tiles.ports.ResultSlots.store`."""
        return self.results.store(port, arg, beats)

    def run(self, opcode: int, operands: Mapping[str, int]) -> None:
        """A command. Operands that are missing are 0.

        :class:`ValueError` where the engine ends in BAD_OPERAND.
        """
        op = ElementOpcode(opcode)
        given = {name: operands.get(name, 0) for name in ElementOperands.members if name[0] != "_"}
        rows, features = given["rows"] + 1, given["features"] + 1
        if given["o"] >= len(self.results.peaks) or given["o_row"] + rows > EDGE:
            raise ValueError(f"{op.name}: rows {given['o_row']} to {given['o_row'] + rows} of o {given['o']}")
        if op in (ElementOpcode.SCALE, ElementOpcode.WORDS, ElementOpcode.FUNCTION) and not (
            -EXPONENT_LIMIT <= given["exponent"] < EXPONENT_LIMIT
        ):
            raise ValueError(f"{op.name}: exponent {given['exponent']}")
        if given["fresh"]:
            self.results.clear(given["o"])
        if op == ElementOpcode.TABLE:
            self._table(given, rows)
            return
        words, exponents = getattr(self, f"_{op.name.lower()}")(given, rows, -(-features // _BEAT))
        slot, first = given["o"], given["o_row"]
        words = np.maximum(words, 0) if given["positive"] else words
        words, exponents = words[:, :features], np.broadcast_to(exponents, (rows, 1))
        self.results.write(slot, first, 0, words, exponents)

    def _read(self, port: str, given: Mapping[str, int], rows: int, first: int, beats: int) -> tuple[Words, int]:
        """Codes of rows, and their exponent; of a tile of zeros no codes."""
        side = "b" if port == "b" else "a"
        slot, row = given[port], given[f"{side}_row"]
        one = port == "b" and given["one_row"]
        kept = self.slots[port]
        if slot >= len(kept.at) or (not one and row + rows > EDGE) or first + beats > EDGE // _BEAT:
            raise ValueError(f"{port}: slot {slot}, rows from {row}, beats from {first}")
        codes = kept.codes[slot, row : row + (1 if one else rows), first * _BEAT : (first + beats) * _BEAT]
        at = int(kept.at[slot])
        return (codes if at != ZERO else np.zeros_like(codes)).repeat(rows if one else 1, axis=0), at

    def _both(self, given: Mapping[str, int], rows: int, beats: int) -> tuple[Words, int, Words, int]:
        one, one_at = self._read("a", given, rows, given["a_beat"], beats)
        other, other_at = self._read("b", given, rows, given["b_beat"], beats)
        return one, one_at, other, other_at

    def _add(self, given: Mapping[str, int], rows: int, beats: int) -> Result:
        return add(*self._both(given, rows, beats), subtract=bool(given["subtract"]))

    def _scale(self, given: Mapping[str, int], rows: int, beats: int) -> Result:
        return scaled(*self._read("a", given, rows, given["a_beat"], beats), given["mantissa"], given["exponent"])

    def _function(self, given: Mapping[str, int], rows: int, beats: int) -> Result:
        table, times = given["table"], given["times"]
        if table >= TABLES or times > Times.THIRD:
            raise ValueError(f"FUNCTION: table {table}, times {times}")
        pieces = self.tables[[table, table | int(given["mirror"] == Mirror.OWN)]]
        curve = Looked(pieces, given["range"], given["mirror"], given["exponent"])
        one = self._read("a", given, rows, given["a_beat"], beats)
        x = self._read("b", given, rows, given["b_beat"], beats) if given["gate"] else one
        third = self._read("c", given, rows, given["a_beat"], beats) if times == Times.THIRD else x
        if times == Times.NOTHING:
            return product(*one, *x, curve) if given["gate"] else alone(*x, curve)
        return term(*one, *third, *x, curve) if given["gate"] else product(*third, *x, curve)

    def _table(self, given: Mapping[str, int], rows: int) -> None:
        table, first = given["table"], given["o_row"] * _BEAT
        if not FIXED_TABLES <= table < TABLES:
            raise ValueError(f"TABLE: table {table}, must be from {FIXED_TABLES} to {TABLES - 1}")
        words = self._taken(rows * _BEAT * 4).ravel()
        base = words << 64 - BASE.width >> 64 - BASE.width
        slope = words << 64 - BASE.width - SLOPE.width >> 64 - SLOPE.width
        self.tables[table, :, first : first + rows * _BEAT] = base, slope

    def _mask(self, given: Mapping[str, int], rows: int, beats: int) -> Result:
        incoming, its, codes, _ = self._both(given, rows, beats)
        return mask(incoming, its, codes)

    def _multiply(self, given: Mapping[str, int], rows: int, beats: int) -> Result:
        return multiply(*self._both(given, rows, beats))

    def _larger(self, given: Mapping[str, int], rows: int, beats: int) -> Result:
        return larger(*self._both(given, rows, beats))

    def _equal(self, given: Mapping[str, int], rows: int, beats: int) -> Result:
        return equal(*self._both(given, rows, beats), *self._read("c", given, rows, given["a_beat"], beats))

    def _squares(self, given: Mapping[str, int], rows: int, beats: int) -> Result:
        side, slot, row, first = 1 << given["side"], given["a"], given["a_row"], given["a_beat"]
        slots, kept = -(-(row + 4 * rows) // EDGE), self.slots["a"]
        if row % 2 or side > EDGE or rows % side or slot + slots > len(kept.at) or first + beats > EDGE // _BEAT:
            raise ValueError(f"a: slot {slot}, rows from {row}, beats from {first}; side {side}, {rows} rows")
        codes = kept.codes[slot : slot + slots, :, first * _BEAT : (first + beats) * _BEAT]
        at = np.broadcast_to(kept.at[slot : slot + slots, None, None], codes.shape)
        codes = np.where(at == ZERO, 0, codes)
        shape = (rows // side, 2, side, 2, beats * _BEAT)
        codes, at = (each.reshape(-1, beats * _BEAT)[row : row + 4 * rows].reshape(shape) for each in (codes, at))
        made, exponents = squares(codes, at, (1, 3))
        return made.reshape(rows, -1), exponents.reshape(rows, -1)[:, :1]

    def _join(self, given: Mapping[str, int], rows: int, beats: int) -> Result:
        split = given["split"]
        if split > beats:
            raise ValueError(f"JOIN: {split} beats of a, the row has {beats}")
        if not split:
            codes, at = self._read("b", given, rows, given["b_beat"], beats)
            return aligned(codes, LIFT), at - LIFT
        one, one_at = self._read("a", given, rows, given["a_beat"], split)
        if split == beats:
            return aligned(one, LIFT), one_at - LIFT
        other, other_at = self._read("b", given, rows, given["b_beat"], beats - split)
        top = max(one_at, other_at)
        return np.hstack([aligned(one, one_at - top + LIFT), aligned(other, other_at - top + LIFT)]), top - LIFT

    def _words(self, given: Mapping[str, int], rows: int, beats: int) -> Result:
        size = -(-(given["features"] + 1) // 8) * BEAT
        return self._taken(rows * size).reshape(rows, -1), given["exponent"]

    def _taken(self, size: int) -> Words:
        """Words of the port."""
        if len(self.queue) < size:
            raise ValueError(f"{len(self.queue)} bytes of words, needs {size}")
        taken, self.queue = self.queue[:size], self.queue[size:]
        return np.frombuffer(taken, "<i4").astype(np.int64)
