"""Operands that change from run to run of a program.

A program is lowered once, with :class:`Varying` integers where a run may bring others: offsets of a text, exponents, an
optimiser's constants. Sums and differences keep the variables, so each operand that follows from them shows how.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradloom.rtl.shell.signature import Command

from .assembler import Assembler, Instruction, fields

__all__ = ["Patch", "Varying", "patched", "patches"]

_WORD = 32


class Varying(int):
    """An integer, and the variables that it is a sum of.

    ``terms`` has their names with the sign, 1 or -1.

    Addition and subtraction keep them; all else takes the integer as it is now. Where the outcome must follow the
    variables, no other arithmetic is allowed: tests compare patched programs with programs lowered anew.
    """

    terms: Mapping[str, int]

    def __new__(cls, value: int, terms: Mapping[str, int] | str) -> "Varying":
        """``terms``: the name of one variable, or a sign by name."""
        made = super().__new__(cls, value)
        made.terms = {terms: 1} if isinstance(terms, str) else {name: sign for name, sign in terms.items() if sign}
        return made

    def _with(self, value: Any, other: Any, sign: int, own: int = 1) -> Any:
        if not isinstance(value, int):
            return value
        terms = {name: own * each for name, each in self.terms.items()}
        if isinstance(other, Varying):
            for name, each in other.terms.items():
                terms[name] = terms.get(name, 0) + sign * each
        return Varying(value, terms)

    def __add__(self, other: int) -> Any:
        return self._with(int.__add__(self, other), other, 1)

    __radd__ = __add__

    def __sub__(self, other: int) -> Any:
        return self._with(int.__sub__(self, other), other, -1)

    def __rsub__(self, other: int) -> Any:
        return self._with(int.__rsub__(self, other), other, 1, -1)

    def __neg__(self) -> Any:
        return 0 - self


@dataclass(frozen=True, kw_only=True)
class Patch:
    """A field of a command that varies.

    ``width`` bits from ``position`` on in a 32-bit ``word`` of it hold ``constant`` plus the variables in ``terms``,
    each with its sign.
    """

    command: int
    word: int
    position: int
    width: int
    signed: bool
    constant: int
    terms: tuple[tuple[str, int], ...]

    def value(self, variables: Mapping[str, int]) -> int:
        """What it holds."""
        return self.constant + sum(sign * variables[name] for name, sign in self.terms)


def patches(instructions: Sequence[Instruction], variables: Mapping[str, int]) -> list[Patch]:
    """Every field of a program that varies.

    ``variables`` has the values of the program as it was lowered. Of a field that reaches into a second word, the part
    in the first one varies: values that change the other are refused when a program is patched. Raises
    :class:`ValueError` where such a field has a sign, or a variable counts more than once.
    """
    start = fields(Command)["args"][0]
    made = []
    for place, each in enumerate(instructions):
        varying = {name: value for name, value in each.operands.items() if isinstance(value, Varying) and value.terms}
        for name, value in varying.items():
            offset, width, signed = fields(each.engine.layout(each.opcode))[name]
            word, position = divmod(start + offset, _WORD)
            room = _WORD - position
            if (width > room and signed) or set(map(abs, value.terms.values())) != {1}:
                raise ValueError(f"{name}: a field in two words, or a multiple of a variable, cannot be patched")
            width = min(width, room)
            made.append(
                Patch(
                    command=place,
                    word=word,
                    position=position,
                    width=width,
                    signed=signed,
                    constant=(int(value) if signed else int(value) & (1 << width) - 1)
                    - sum(sign * variables[term] for term, sign in value.terms.items()),
                    terms=tuple(value.terms.items()),
                )
            )
    return made


def patched(program: Assembler, before: Mapping[str, int], now: Mapping[str, int]) -> Assembler:
    """A program with other values of its variables, which were lowered with those of ``before``.

    :class:`ValueError` where a field cannot hold one.
    """
    made, done = Assembler(), 0
    for place, each in enumerate(program.instructions):
        moved = {
            name: int(value) + sum(sign * (now[term] - before[term]) for term, sign in value.terms.items())
            for name, value in each.operands.items()
            if isinstance(value, Varying) and value.terms
        }
        if moved:
            made.extend(program, done, place)
            tokens = {"wait": each.wait, "post": each.post, "phase": each.phase, "slots": each.slots}
            made.add(each.engine, each.opcode, **tokens, **each.operands | moved)  # type: ignore[arg-type]
            done = place + 1
    made.extend(program, done)
    return made
