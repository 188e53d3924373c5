"""Elementwise operations on codes of tiles, and the engine's commands.

A code is ``code * 2**at``; a result a word times a power of two. Arrays of exponents broadcast with those of codes;
exponents of tiles of zeros may be any that are not above the others.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradloom.rtl.formats.element import EXPONENT_LIMIT, FACTOR_FRAC, LIFT, TABLES, ElementOpcode, ElementOperands
from gradloom.rtl.formats.interpolation import Interpolation
from gradloom.rtl.formats.linear import half_up
from gradloom.rtl.formats.tile_codes import EDGE, WIDE, ZERO
from gradloom.rtl.formats.tile_records import BEAT

from .tile_ports import ResultSlots, TileSlots

__all__ = [
    "ElementModel",
    "add",
    "aligned",
    "equal",
    "factors",
    "geglu",
    "geglu_gate_back",
    "larger",
    "mask",
    "multiply",
    "scaled",
    "silu",
    "silu_back",
    "squares",
]

Words = NDArray[np.int64]
#: Words, and the exponent of each row or element.
Result = tuple[Words, Any]

_SIGMOID, _SILU_SLOPE, _NORMAL, _GELU_SLOPE = TABLES
_BEAT = 8


def aligned(words: Words, up: Any) -> Words:
    """``words * 2**up``, to the nearest integer."""
    up = np.asarray(up, np.int64)
    return np.where(up >= 0, words << np.clip(up, 0, 40), half_up(words, np.clip(-up, 0, 62)))


def factors(codes: Words, at: Any, table: tuple[Interpolation, int]) -> Words:
    """A table's values at ``code * 2**at``, 16 fraction bits.

    Below zero they are 1 less that of the opposite.
    """
    function, whole = table
    most = (1 << function.frac_in) - 1
    up = np.asarray(at + function.frac_in - whole)
    magnitude = np.abs(codes)
    argument = np.where(up >= 0, magnitude << np.clip(up, 0, 40), magnitude >> np.clip(-up, 0, 62))
    found = function(np.minimum(argument, most))
    return np.where(codes < 0, (1 << FACTOR_FRAC) - found, found)


def add(one: Words, one_at: Any, other: Words, other_at: Any, *, subtract: bool = False) -> Result:
    """The sum, under the larger exponent and with 8 bits more than a code."""
    one, other, at = _met(one, one_at, other, other_at)
    return one - other if subtract else one + other, at


def _met(one: Words, one_at: Any, other: Words, other_at: Any) -> tuple[Words, Words, Any]:
    """Both under the larger exponent and with 8 bits more than a code, and the exponent."""
    top = np.maximum(one_at, other_at)
    return aligned(one, one_at - top + LIFT), aligned(other, other_at - top + LIFT), top - LIFT


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


def silu(codes: Words, at: Any) -> Result:
    """``x sigmoid(x)``."""
    return codes * factors(codes, at, _SIGMOID), at - FACTOR_FRAC


def silu_back(incoming: Words, its: Any, codes: Words, at: Any) -> Result:
    """Gradient of x."""
    return incoming * factors(codes, at, _SILU_SLOPE), its - FACTOR_FRAC


def geglu(value: Words, value_at: Any, gate: Words, gate_at: Any) -> Result:
    """``value · gelu(gate)``; with the gradient as value, that of value."""
    term = half_up(gate * factors(gate, gate_at, _NORMAL), LIFT)
    return term * value, gate_at + value_at + LIFT - FACTOR_FRAC


def geglu_gate_back(value: Words, value_at: Any, gate: Words, gate_at: Any, incoming: Words, its: Any) -> Result:
    """Gradient of the gate."""
    slope = half_up(value * factors(gate, gate_at, _GELU_SLOPE), LIFT)
    return slope * incoming, value_at + its + LIFT - FACTOR_FRAC


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
        """STORE of one record; see :meth:`~.tile_ports.ResultSlots.store`."""
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
        if op in (ElementOpcode.SCALE, ElementOpcode.WORDS) and not (
            -EXPONENT_LIMIT <= given["exponent"] < EXPONENT_LIMIT
        ):
            raise ValueError(f"{op.name}: exponent {given['exponent']}")
        words, exponents = getattr(self, f"_{op.name.lower()}")(given, rows, -(-features // _BEAT))
        slot, first = given["o"], given["o_row"]
        words = np.maximum(words, 0) if given["positive"] else words
        words, exponents = words[:, :features], np.broadcast_to(exponents, (rows, 1))
        if given["fresh"]:
            self.results.clear(slot)
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

    def _silu(self, given: Mapping[str, int], rows: int, beats: int) -> Result:
        return silu(*self._read("a", given, rows, given["a_beat"], beats))

    def _silu_back(self, given: Mapping[str, int], rows: int, beats: int) -> Result:
        return silu_back(*self._both(given, rows, beats))

    def _geglu(self, given: Mapping[str, int], rows: int, beats: int) -> Result:
        return geglu(*self._both(given, rows, beats))

    def _geglu_back(self, given: Mapping[str, int], rows: int, beats: int) -> Result:
        incoming, its, gate, gate_at = self._both(given, rows, beats)
        value = self._read("c", given, rows, given["a_beat"], beats)
        return geglu_gate_back(*value, gate, gate_at, incoming, its)

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
        size = -(-(given["features"] + 1) // 4) * BEAT
        if len(self.queue) < rows * size:
            raise ValueError(f"WORDS: {len(self.queue)} bytes of words, needs {rows * size}")
        taken, self.queue = self.queue[: rows * size], self.queue[rows * size :]
        return np.frombuffer(taken, "<i4").astype(np.int64).reshape(rows, -1), given["exponent"]
