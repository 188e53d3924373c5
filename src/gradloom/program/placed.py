"""A program and its data, with their places in the window."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from gradloom.rtl.shell.engines import CONTROL, LOAD, STORE, Engine, LoadPort
from gradloom.rtl.shell.signature import ControlOpcode

from .assembler import Assembler, Instruction
from .memory import PAGE, AreaKind, MemoryMap, rounded

__all__ = ["Place", "PlacedProgram", "Program", "Written"]


@runtime_checkable
class Program(Protocol):
    """A program with its place in memory."""

    @property
    def config(self) -> Any:
        """Configuration of the machine that runs it."""

    @property
    def instructions(self) -> Sequence[Instruction]:
        """Its commands."""

    @property
    def offset(self) -> int:
        """Its place in the window."""

    @property
    def length(self) -> int:
        """Bytes from the start of the window to the end of all that it uses."""

    def contents(self) -> Iterable[tuple[int, bytes]]:
        """Contents that the host writes before the bell, by offset.

        The program is among them.
        """


@dataclass(frozen=True, kw_only=True)
class Written:
    """A :class:`Program` whose data are in memory already.

    ``code``: its commands as memory has them.
    """

    config: Any
    instructions: Sequence[Instruction] = field(repr=False)
    code: bytes = field(repr=False)
    offset: int

    @property
    def length(self) -> int:
        """See :class:`Program`."""
        return self.offset + len(self.code)

    def contents(self) -> Iterator[tuple[int, bytes]]:
        """See :class:`Program`."""
        yield self.offset, self.code


@dataclass(frozen=True)
class Place:
    """An array of 32-bit words in the window.

    Parameters
    ----------
    offset : int
        In bytes.
    shape : tuple of int
    """

    offset: int
    shape: tuple[int, ...]

    @property
    def length(self) -> int:
        """Its length."""
        return 4 * math.prod(self.shape)

    def words(self, content: bytes) -> np.ndarray:
        """The array, from its bytes."""
        return np.frombuffer(content, "<i4").reshape(self.shape).astype(np.int64)

    def rows(self, first: int, last: int) -> "Place":
        """Rows ``first`` to ``last`` (exclusive), as far as there are."""
        row, last = self[0], min(last, self.shape[0])
        return Place(self.offset + first * row.length, (last - first, *row.shape))

    def __getitem__(self, index: int) -> "Place":
        """Row ``index`` of the outermost dimension."""
        shape = self.shape[1:]
        return Place(self.offset + index * 4 * math.prod(shape), shape)


class PlacedProgram(Assembler):
    """Collects the commands of a program and the arrays that it needs.

    The arrays have 32-bit words and are in memory before the program starts.

    Places are given from the start of the window; the program lies behind them, from ``offset`` on.

    Parameters
    ----------
    config : ShellParameters
        Of the machine that runs it.
    first : int
        Offset of the first array.
    memory : MemoryMap, optional
        Where there is more in the window: arrays are placed behind it.
    """

    def __init__(self, config: Any, first: int = 0, memory: MemoryMap | None = None) -> None:
        super().__init__()
        self.config, self.engines = config, config.machine.engines
        #: What :meth:`put` has placed, by offset.
        self.arrays: list[tuple[int, bytes]] = []
        self.memory = MemoryMap(first) if memory is None else memory

    def room(self, *shape: int, kind: AreaKind = AreaKind.STEP) -> Place:
        """Place of an array that the program writes."""
        name = f"array {len(self.memory.offsets)}"
        return Place(self.memory.place(name, 4 * math.prod(shape), kind), shape)

    def put(self, words: ArrayLike) -> Place:
        """Place of an array that is there before the program runs."""
        array = np.asarray(words)
        if array.size and not -1 << 31 <= array.min() <= array.max() < 1 << 31:
            raise ValueError(f"words from {array.min()} to {array.max()}: must fit 32 bits")
        place = self.room(*array.shape, kind=AreaKind.FROZEN)
        self.arrays.append((place.offset, array.astype("<i4").tobytes()))
        return place

    def load(self, place: Place, engine: str, port: str, *, arg: int = 0, **more: Any) -> None:
        """A LOAD of an array to a port.

        ``more``: tokens and phase, as :meth:`add` takes them.
        """
        dest = self.engines.named(engine).load(port)
        self.add(LOAD, offset=place.offset, beats=self._beats(place), dest=dest, arg=arg, **more)

    def store(
        self,
        place: Place,
        engine: str,
        port: str,
        *,
        arg: int = 0,
        to: tuple[str, str] | None = None,
        to_arg: int = 0,
        only: bool = False,
        **more: Any,
    ) -> None:
        """A STORE of an array from a port.

        ``to``: engine and load port that take the record, too, with the ``arg`` of a LOAD, ``to_arg``; with ``only``,
        memory does not, and ``place`` says only how long the record is. ``more``: tokens and phase, as :meth:`add`
        takes them.
        """
        source = self.engines.named(engine).store(port)
        if only and to is None:
            raise ValueError("only: a STORE that leaves memory as it is must have a load port, to")
        if to is not None:
            more |= self._forward(to, to_arg, only)
        offset = 0 if only else place.offset
        self.add(STORE, offset=offset, beats=self._beats(place), source=source, arg=arg, **more)

    def _forward(self, to: tuple[str, str], to_arg: int, only: bool) -> dict[str, int]:
        """Operands of a STORE that a load port takes, too."""
        dest = self.engines.named(to[0]).load(to[1])
        if not self.config.forwards:
            raise ValueError(f"to={dest}: this machine has no forwards; set forwards=1")
        takers = [each for each in self.engines.loads if isinstance(each.port, LoadPort) and each.port.forwards]
        if dest not in takers:
            raise ValueError(f"to={dest}: takes no forwards; must be one of {', '.join(map(str, takers)) or 'none'}")
        return {"to": dest, "to_arg": to_arg, "forward": 1, "only": int(only)}

    def do(self, engine: str, opcode: int, **more: Any) -> None:
        """A command of an engine.

        ``more``: operands, tokens and phase, as :meth:`add` takes them.
        """
        own: Engine = self.engines.named(engine)
        self.add(own, opcode, **more)

    def end(self) -> None:
        """The last command."""
        self.add(CONTROL, ControlOpcode.END)

    @property
    def offset(self) -> int:
        """Of the program."""
        return rounded(self.memory.used, PAGE)

    @property
    def length(self) -> int:
        """From the start of the window to the end of the program."""
        return self.offset + len(self.code)

    def contents(self) -> Iterator[tuple[int, bytes]]:
        """Memory contents that the host writes before it rings the bell.

        Yields them by offset; the program is last.
        """
        yield from self.arrays
        yield self.offset, self.code

    def _beats(self, place: Place) -> int:
        beats, rest = divmod(place.length, self.config.data_bits // 8)
        if rest:
            raise ValueError(f"array of {place.shape} words: must fill whole beats of {self.config.data_bits} bits")
        return beats
