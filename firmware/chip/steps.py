"""Steps of a fine-tune by patches of one program: table and driver.

The table lies in the window. It has a row a step, of *columns*: the number of its program, offsets of a text,
constants of the optimiser. *State* words follow them as variables: exponents of adapters, which are chosen again
between steps. A *value* is a word of some commands, made of fields: each is a constant plus or minus at most two
variables. ``firmware/driver/gradloom_steps.c`` reads the same table.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..device.registers import COMMAND_BYTES

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "MAX_STEPS",
    "STATE_BYTES",
    "AdapterPlaces",
    "PatchField",
    "StepError",
    "StepTable",
    "Steps",
    "PatchValue",
    "initial_state",
]

_MAGIC = b"GLST"
_LAYOUT = 1
_HEADER = struct.Struct("<4s11I")
_ADAPTER = struct.Struct("<12I3iI")
#: Words of an adapter's state: fraction bits of a, b, h, dh, ga, gb, reaches of the last four, two zeros.
_STATE = 12
STATE_BYTES = 4 * _STATE
#: Rows that a table may have.
MAX_STEPS = 100_000
#: Programs that a table may name.
MAX_PROGRAMS = 4
#: Formats: an activation's and a weight's bits, those that a weight has less, an adapter's word more, and a dot's.
_ACTIVATION, _WEIGHT, _DROP, _SPARE, _GUARD, _HEADROOM = 24, 18, 6, 14, 8, 3


class StepError(ValueError):
    """A table that is refused, or a step that cannot be prepared."""


@dataclass(frozen=True)
class PatchField:
    """Bits of a word of a command.

    ``width`` bits from ``position`` on: ``constant`` plus the variables, each with its sign, at most two.
    """

    position: int
    width: int
    signed: bool
    constant: int
    terms: tuple[tuple[int, int], ...]

    def packed(self) -> bytes:
        """As it lies in the table."""
        if len(self.terms) > 2:
            raise ValueError(f"terms: a field has at most two variables, not {len(self.terms)}")
        words = [(index + 1) | (0x8000 if sign < 0 else 0) for index, sign in self.terms] + [0, 0]
        if max(words) > 0xFFFF or any(index + 1 >= 0x8000 for index, _ in self.terms):
            raise ValueError(f"terms: a variable is below {0x7FFF}")
        return struct.pack(
            "<IiI", self.position | self.width << 8 | self.signed << 16, self.constant, words[0] | words[1] << 16
        )


@dataclass(frozen=True)
class PatchValue:
    """A word that several commands have.

    The ``fields`` are bits of the ``word``, 0 to 7, of ``commands``; all other bits of it stay.
    """

    word: int
    fields: tuple[PatchField, ...]
    commands: tuple[int, ...]


@dataclass(frozen=True)
class AdapterPlaces:
    """Places of the tensors of an adapter that are measured.

    ``places``: offset in the window and words of a, b, h, dh, ga, gb; ``x``, ``w``, ``dy``: fraction bits of the
    linear's input, of its weights, and of its output's gradient.
    """

    places: tuple[tuple[int, int], ...]
    x: int
    w: int
    dy: int


@dataclass(frozen=True, kw_only=True)
class StepTable:
    """Table of the steps of a job.

    ``programs``: values of each. ``rows``: columns of each step, the program's number first. ``state``: offset in the
    window of the adapters' state, which :func:`initial_state` makes.
    """

    programs: tuple[tuple[PatchValue, ...], ...]
    rows: tuple[tuple[int, ...], ...]
    adapters: tuple[AdapterPlaces, ...]
    state: int

    def __post_init__(self) -> None:
        if not 1 <= len(self.rows) <= MAX_STEPS:
            raise ValueError(f"steps={len(self.rows)}: a job has from 1 to {MAX_STEPS}")
        if not 1 <= len(self.programs) <= MAX_PROGRAMS:
            raise ValueError(f"programs={len(self.programs)}: a table has from 1 to {MAX_PROGRAMS}")

    def encoded(self) -> bytes:
        """The table as it lies in memory."""
        import numpy as np

        body = bytearray()

        def put(data: bytes) -> int:
            body.extend(data)
            return _HEADER.size + len(body) - len(data)

        columns = len(self.rows[0])
        rows = put(np.array(self.rows, np.int64).astype("<u4").tobytes())
        adapters = put(
            b"".join(
                _ADAPTER.pack(*(word for place in each.places for word in place), each.x, each.w, each.dy, 0)
                for each in self.adapters
            )
        )
        heads = []
        for values in self.programs:
            records = b""
            for value in values:
                mask = sum(((1 << field.width) - 1) << field.position for field in value.fields)
                fields = put(b"".join(field.packed() for field in value.fields))
                commands = put(struct.pack(f"<{len(value.commands)}I", *value.commands))
                records += struct.pack(
                    "<6I", value.word, mask, len(value.fields), fields, len(value.commands), commands
                )
            heads.append((len(values), put(records)))
        programs = put(b"".join(struct.pack("<2I", *head) for head in heads))
        found = struct.pack(
            "<8I", len(self.rows), columns, rows, len(self.adapters), adapters, self.state, len(heads), programs
        )
        checked = found + bytes(body)
        return struct.pack("<4s3I", _MAGIC, _LAYOUT, 16 + len(checked), zlib.crc32(checked)) + checked


def initial_state(adapters: Iterable[tuple[Sequence[int], Sequence[int]]]) -> bytes:
    """State before the first step: six fraction bits and four reaches each."""
    return b"".join(struct.pack(f"<{_STATE}i", *fracs, *reaches, 0, 0) for fracs, reaches in adapters)


class Steps:
    """Prepares steps in a window: patches programs, chooses exponents.

    Parameters
    ----------
    memory : Accelerator
        Or what else has its ``fetch`` and ``store``: the window.
    table : int
        Offset of the table.
    programs : sequence of (int, int)
        Offset and commands of each program.
    first : int
        Steps that were made before the window was filled: other programs need what program 0 leaves there.

    Raises :class:`StepError` where the firmware refuses the table.
    """

    def __init__(self, memory: Any, table: int, programs: Sequence[tuple[int, int]], first: int = 0) -> None:
        self.memory, self.programs, self.first = memory, programs, first
        magic, layout, size, total, *head = _HEADER.unpack(memory.fetch(table, _HEADER.size))
        if (magic, layout) != (_MAGIC, _LAYOUT):
            raise StepError("the step table is of another layout")
        self.data = memory.fetch(table, size) if size % 4 == 0 and size >= _HEADER.size else b""
        if not self.data or zlib.crc32(self.data[16:]) != total:
            raise StepError("the step table's sum is wrong")
        self.steps, self.columns, rows, self.adapters, self._adapters, self.state, count, self._programs = head
        if count != len(programs):
            raise StepError("the step table has another number of programs")
        self._rows = rows

    def _words(self, at: int, count: int, kind: str = "I") -> tuple[int, ...]:
        return struct.unpack_from(f"<{count}{kind}", self.data, at)

    def _row(self, step: int) -> tuple[int, ...]:
        return self._words(self._rows + 4 * self.columns * step, self.columns)

    def _state(self) -> np.ndarray:
        import numpy as np

        size = STATE_BYTES * self.adapters
        return np.frombuffer(self.memory.fetch(self.state, size), "<i4").astype(np.int64)

    def prepare(self, step: int) -> int:
        """Patches the program of ``step``, from 0 on, and returns its number."""
        number = self._program(step)
        self.patch(number, [each - (each >> 31 << 32) for each in self._row(step)], self._state().tolist())
        return number

    def patch(self, number: int, row: Sequence[int], state: Sequence[int] = ()) -> None:
        """Patches a program by a row that somebody else has made, and exponents; it takes no numpy."""
        variables = [*row, *state]
        count, records = self._words(self._programs + 8 * number, 2)
        start = self.programs[number][0]
        for place in range(records, records + 24 * count, 24):
            word, mask, fields, at, commands, places = self._words(place, 6)
            bits = 0
            for n in range(fields):
                shape, constant, terms = self._words(at + 12 * n, 3, "i")
                bits |= self._field(shape, constant, terms & 0xFFFFFFFF, variables)
            for command in self._words(places, commands):
                target = start + COMMAND_BYTES * command + 4 * word
                old = int.from_bytes(self.memory.fetch(target, 4), "little")
                self.memory.store(target, ((old & ~mask) | bits).to_bytes(4, "little"))

    def _program(self, step: int) -> int:
        """That of the row, or 0 in the first steps after power-up.

        There are as many of them as rows with which the table begins have 0.
        """
        begins = not any(self._row(each)[0] for each in range(step - self.first + 1))
        return 0 if begins else self._row(step)[0]

    @staticmethod
    def _field(shape: int, constant: int, terms: int, variables: Sequence[int]) -> int:
        value = constant
        for term in (terms & 0xFFFF, terms >> 16):
            if term:
                value += variables[(term & 0x7FFF) - 1] * (-1 if term & 0x8000 else 1)
        position, width, signed = shape & 255, shape >> 8 & 255, shape >> 16 & 1
        if width < 32 and not (-(1 << width - 1) if signed else 0) <= value < 1 << width - signed:
            raise StepError("the exponents lie too far apart")
        return (value & (1 << width) - 1) << position

    def measure(self, done: int) -> None:
        """Chooses exponents again after ``done`` steps, if they are due."""
        if done % (1 << max(0, min(4, done.bit_length() - 3))):
            return
        state = self._state().reshape(-1, _STATE)
        for index in range(self.adapters):
            raw = _ADAPTER.unpack_from(self.data, self._adapters + index * _ADAPTER.size)
            self._adapter(state[index], [raw[n : n + 2] for n in range(0, 12, 2)], raw[12:15])
        self.memory.store(self.state, state.astype("<i4").tobytes())

    def _adapter(self, state: np.ndarray, places: Sequence[tuple[int, int]], given: Sequence[int]) -> None:
        bits = [self._length(*place) for place in places]
        for n in range(4):
            if bits[2 + n]:
                own = bits[2 + n] + (_DROP if n < 2 else 0) - state[2 + n]
                state[6 + n] = max(own, state[6 + n] - 1)
        for n in range(2):
            wanted = state[n] + _SPARE + _WEIGHT - 2 - bits[n]
            if bits[n] and (wanted < state[n] or wanted > state[n] + 1):
                self._rebase(*places[n], int(wanted - state[n]))
                state[n] = wanted
        (x, w, dy), (a, b) = given, state[:2]
        state[2] = _chosen(state[6], x + a, w + x - b - _GUARD)
        state[3] = _chosen(state[7], dy + b, w + dy - a - _GUARD)
        for n, top in ((4, x + state[3] - _DROP), (5, dy + state[2] - _DROP)):
            state[n] = _chosen(state[4 + n], top, top - 63)

    def _length(self, offset: int, words: int) -> int:
        import numpy as np

        found = np.frombuffer(self.memory.fetch(offset, 4 * words), "<i4")
        return int(np.bitwise_or.reduce(found ^ (found >> 31))).bit_length()

    def _rebase(self, offset: int, words: int, bits: int) -> None:
        import numpy as np

        found = np.frombuffer(self.memory.fetch(offset, 4 * words), "<i4")
        self.memory.store(offset, np.rint(found * 2.0**bits).astype("<i4").tobytes())


def _chosen(reach: int, top: int, least: int) -> int:
    low = max(top - 63, least)
    if low > top:
        raise StepError("the exponents lie too far apart")
    return max(low, min(_ACTIVATION - 1 - _HEADROOM - reach, top))


def values_of(patches: Iterable[Any], variables: Mapping[str, int]) -> tuple[PatchValue, ...]:
    """Values from fields of commands.

    Each of ``patches`` has ``command``, ``word``, ``position``, ``width``, ``signed``, ``constant`` and ``terms`` by
    the name of a variable, whose index is in ``variables``.
    """
    of_word: dict[tuple[int, int], list[PatchField]] = {}
    for each in patches:
        terms = tuple((variables[name], sign) for name, sign in each.terms)
        field = PatchField(each.position, each.width, each.signed, each.constant, terms)
        of_word.setdefault((each.command, each.word), []).append(field)
    commands: dict[tuple[int, tuple[PatchField, ...]], list[int]] = {}
    for (command, word), fields in of_word.items():
        commands.setdefault((word, tuple(fields)), []).append(command)
    return tuple(PatchValue(word, fields, tuple(found)) for (word, fields), found in commands.items())
