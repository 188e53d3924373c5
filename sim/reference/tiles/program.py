"""Runs a program of the diffusion machine on models of its engines.

Memory is bytes. Commands wait in queues for tokens as in the shell, and those that could start may start in any order:
a program whose tokens suffice leaves the same memory in every order.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gradloom.program.assembler import Instruction
from gradloom.program.placed import Program
from gradloom.rtl.formats.tiles.element import ElementOpcode
from gradloom.rtl.formats.tiles.records import BEAT

from ..element import ElementModel
from ..norm import NormModel
from ..product import ProductModel
from ..update import UpdateModel

__all__ = ["TileHealth", "TileMachine"]


class _Model(Protocol):
    @property
    def saturated(self) -> int: ...

    def load(self, port: str, arg: int, content: bytes, /) -> None: ...

    def run(self, opcode: int, operands: dict[str, int], /) -> None: ...

    def store(self, port: str, arg: int, beats: int, /) -> bytes: ...


@dataclass(frozen=True, kw_only=True)
class TileHealth:
    """Counters of a program that the engines tell."""

    saturated: int
    underflowed: int


class TileMachine:
    """The machine's memory and engines.

    It has the methods of :class:`~..run.machine.TileMachine`.

    Parameters
    ----------
    config
        Of the machine.
    size : int
        Bytes of memory.
    eager : sequence of str, optional
        Engines, LOAD and STORE among them, in the order in which commands that can start do; without, commands start
        in the program's order.
    """

    def __init__(self, config: Any, size: int, eager: Sequence[str] | None = None) -> None:
        self.memory, self.eager = bytearray(size), eager
        self.update = UpdateModel()
        self.element = ElementModel(config)
        self.models: dict[str, _Model] = {
            "product": ProductModel(config),
            "element": self.element,
            "norm": NormModel(config),
            "update": self.update,
        }

    @property
    def saturated(self) -> int:
        """Values that all engines clipped."""
        return sum(each.saturated for each in self.models.values())

    @property
    def underflowed(self) -> int:
        """Values that became 0 in all engines."""
        return sum(getattr(each, "underflowed", 0) for each in self.models.values())

    def write(self, offset: int, content: bytes) -> None:
        """Puts bytes into memory."""
        self.memory[offset : offset + len(content)] = content

    def read(self, offset: int, length: int) -> bytes:
        """Bytes of memory."""
        return bytes(self.memory[offset : offset + length])

    def run(self, program: Program) -> TileHealth:
        """Puts a program and its data into memory, and runs it to its end."""
        for offset, content in program.contents():
            self.write(offset, content)
        before = self.saturated, self.underflowed
        self.execute(program.instructions)
        return TileHealth(saturated=self.saturated - before[0], underflowed=self.underflowed - before[1])

    def execute(self, instructions: Sequence[Instruction]) -> None:
        """Commands on what is in memory.

        :class:`RuntimeError` where no command can start.
        """
        eager = self.eager
        queues: dict[str, deque[Instruction]] = {}
        for each in instructions:
            if each.engine.name == "control":
                # END.
                continue
            queues.setdefault(each.engine.name, deque()).append(each)
        place = {id(each): n for n, each in enumerate(instructions)}
        tokens = [0] * 16
        while any(queues.values()):
            able = [name for name, queue in queues.items() if queue and self._able(queue[0], tokens)]
            if not able:
                heads = {name: place[id(queue[0])] for name, queue in queues.items() if queue}
                raise RuntimeError(f"no command can start; at the heads are {heads}, tokens {tokens}")
            name = min(able, key=eager.index if eager else lambda n: place[id(queues[n][0])])
            each = queues[name].popleft()
            for token in each.wait:
                tokens[token] -= 1
            try:
                self._do(each)
            except ValueError as error:
                raise ValueError(f"command {place[id(each)]}, {name}: {error}") from None
            for token in each.post:
                tokens[token] += 1

    def _able(self, each: Instruction, tokens: Sequence[int]) -> bool:
        if any(not tokens[token] for token in each.wait):
            return False
        if each.engine.name == "store":
            source: Any = each.operands["source"]
            made = self.update.made.get(source.port.name, b"") if source.engine == "update" else None
            return made is None or len(made) >= each.operands["beats"] * BEAT
        if each.engine.name == "update":
            count = each.operands["beats"] * BEAT // 4
            update = self.update
            return min(len(update.gradients), len(update.words), len(update.moments) // 2) >= count
        if each.engine.name == "element" and each.opcode in (ElementOpcode.WORDS, ElementOpcode.TABLE):
            rows = each.operands["rows"] + 1
            features = each.operands["features"] + 1 if each.opcode == ElementOpcode.WORDS else 8
            return len(self.element.queue) >= rows * -(-features // 8) * BEAT
        return True

    def _do(self, each: Instruction) -> None:
        given: dict[str, Any] = each.operands
        if each.engine.name == "load":
            content = bytes(self.memory[given["offset"] : given["offset"] + given["beats"] * BEAT])
            self.models[given["dest"].engine].load(given["dest"].port.name, given["arg"], content)
        elif each.engine.name == "store":
            model = self.models[given["source"].engine]
            content = model.store(given["source"].port.name, given["arg"], given["beats"])
            if given.get("forward"):
                self.models[given["to"].engine].load(given["to"].port.name, given["to_arg"], content)
            if not given.get("only"):
                self.memory[given["offset"] : given["offset"] + len(content)] = content
        else:
            self.models[each.engine.name].run(each.opcode, given)
