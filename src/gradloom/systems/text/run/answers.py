"""A model's answer in the machine's integers: by the reference, and on a machine that keeps keys and values.

A program verifies several tokens in about the time of one, for both read every weight. The text itself gives guesses:
what stood behind the same tokens before. A guess counts only where the logits before it choose it, so the answer is
that of token by token; a prompt needs no guesses.

Programs of one token and of several are lowered once for each 64 positions; position, and row of the cache, are
patched.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle, islice
from pathlib import Path

import numpy as np

from gradloom.models.adapters.lora import Adapter
from gradloom.program.assembler import Assembler
from gradloom.program.memory import PAGE, rounded
from gradloom.program.patches import Varying, patched
from gradloom.program.placed import Written
from gradloom.rtl.formats.weights.tiles import tile_rows, untile_rows
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.sim.run.counted import check_words
from gradloom.sim.run.machine import MachineHost, MachineRunner

from ..operations.base import Operation
from ..operations.blocks.head import TARGETS, head_products
from ..operations.decode import Decode
from ..operations.elements import Softmax
from ..operations.exponents import of_any_text
from ..operations.instant import InstantStep
from ..operations.scaling import Norm
from ..operations.tensors import EDGE, Tensor
from ..operations.transformer import StepOperations
from ..program.layout import Layout
from ..program.step import lower
from ..reference.drawn import Draw
from ..reference.integers import IntegerStep
from .decode import Decoding
from .frozen import Frozen
from .linear import linear_machine
from .step import place_frozen
from .training import Training, as_bytes, largest

__all__ = ["TOGETHER", "AnswerMachine", "PromptForward", "TokenReply", "guessed", "prompt_of"]

#: Bits to spare in tensors, whose exponents follow from the prompt and hold for the answer.
_HEADROOM = 4
#: Tokens of a program at most.
TOGETHER = 8
#: Tokens at most of what is found again.
_FOUND = 3


@dataclass(kw_only=True)
class PromptForward(Training):
    """A text forward, up to its logits.

    Parameters
    ----------
    blocks : mapping
        InstantFT's adapters by block; in place of ``adapters``.
    coded : bool
        The head is in codes.
    rows : int
        See :class:`~..operations.instant.InstantStep`.
    depth : int
        Rows of operands that the machine holds.
    """

    blocks: Mapping[int, Adapter] = field(default_factory=dict)
    coded: bool = False
    rows: int = EDGE
    depth: int = 1 << 20

    def together(self, position: int) -> int:
        """Tokens of a program that begins at a position: :data:`TOGETHER`, or one where these have no room."""
        model = self.frozen.model
        shared = model.heads // model.kv_heads
        operands = max(
            shared * (position // self.step.tokens + 1),
            *(max(each.outputs, each.inputs) // EDGE for each in model.linears),
        )
        room = Decode.room(self.step, position), self.rows // shared, self.depth // operands
        return TOGETHER if TOGETHER <= min(room) else 1

    def _operations(self) -> list[Operation]:
        model, after, count = self.frozen.model, self.layers[-1] + 1, len(self.tokens)
        ranks = {name: each.rank for name, each in self.loras.items()}
        self.step = step = StepOperations(model, count, ranks, self.layers)
        self.instant = (
            InstantStep(model, count, self.blocks[self.layers[0]].rank, self.layers, self.rows) if self.blocks else None
        )
        added, output = ([], step.output) if self.instant is None else self.instant.added()
        normed = step.tensor(after, "normed", model.hidden)
        logits = step.tensor(after, "logits", -(-model.vocab // EDGE) * EDGE)
        return [
            *(each for layer in self.layers for each in step.forward(layer)),
            *added,
            Norm(output.all(), "norm", normed.all(), model.norm_eps),
            *head_products(normed.all(), logits, coded=self.coded),
        ]

    def _starting(self) -> Iterator[tuple[Tensor, np.ndarray]]:
        yield self.step.input, self.frozen.embedding[np.asarray(self.tokens)]
        if self.instant is not None:
            yield from self.instant.constants().items()
            yield from self.instant.stacked(self.blocks).items()

    def _norms(self) -> list[str]:
        return [name for name in super()._norms() if name != "norm.back"]


def prompt_of(
    frozen: Frozen,
    tokens: Sequence[int],
    adapters: Mapping[str, Adapter],
    blocks: Mapping[int, Adapter],
    config: LanguageConfig,
    *,
    coded: bool,
) -> PromptForward:
    """The text that an answer's exponents follow from: 64 tokens, of which the prompt's are repeated.

    The last one is the token with the largest embedding, so that every other one has room.
    """
    widest = int(np.abs(frozen.embedding).max(axis=1).argmax())
    text = [*islice(cycle(tokens), min(EDGE, frozen.model.context) - 1), widest]
    return PromptForward(
        frozen=frozen,
        tokens=text,
        adapters=adapters,
        layers=range(frozen.model.layers),
        blocks=blocks,
        coded=coded,
        rows=min(EDGE, config.tokens),
        depth=config.depth,
    )


def guessed(text: Sequence[int], count: int) -> list[int]:
    """What may stand behind a text: what stood behind its last tokens where the most of them stood before, last.

    ``count`` tokens, or none where the last one is new.
    """
    made = list(text)
    for size in range(min(_FOUND, len(text) - 1), 0, -1):
        for start in range(len(text) - size - 1, -1, -1):
            if made[start : start + size] == made[len(text) - size : len(text)]:
                # Behind a place so near to the end that it ends, the guess goes on with itself.
                for at in range(start + size, start + size + count):
                    made.append(made[at])
                return made[len(text) :]
    return []


@dataclass
class TokenReply:
    """What a model says behind a prompt, each token chosen by ``draw``: unless given, the likeliest.

    ``saturated`` counts words that the formats clipped, those of wrong guesses too. ``programs`` have run, of which
    ``answering`` gave the ``said`` tokens of the answer.
    """

    prompt: PromptForward
    draw: Draw = field(default_factory=Draw)
    saturated: int = 0
    programs: int = 0
    answering: int = 0
    said: int = 0

    def __post_init__(self) -> None:
        self.frac = self.prompt.fracs(of_any_text(largest(self.prompt.exact())), headroom=_HEADROOM)

    @property
    def answered(self) -> float:
        """Tokens of the answer a program that gave some."""
        return self.said / max(self.answering, 1)

    def decoding(self, position: int, *tokens: int) -> Decoding:
        """Tokens from a position on, as the machine reads the cache."""
        return Decoding(self.prompt, self.frac, position, tokens, self.prompt.coded, whole=True)

    def tokens(
        self,
        given: Sequence[int],
        count: int,
        machine: "AnswerMachine | None" = None,
        *,
        ends: frozenset[int] = frozenset(),
    ) -> Iterator[int]:
        """At most ``count`` tokens behind those ``given``; one of ``ends`` is the last and is not given.

        The reference makes each; a ``machine`` too, and :class:`~gradloom.sim.run.counted.MismatchError` says where it
        differs.
        """
        text, before, position, last = list(given), None, 0, len(given) + count
        vocab = self.prompt.frozen.model.vocab
        while True:
            most = self.prompt.together(position)
            known = text[position : position + most]
            # More than the answer takes is no use.
            known += guessed(text, min(most, last - 1 - position) - len(known)) if len(known) < most else []
            # What fills a program counts for nothing, and its rows of the cache are written again.
            decoding = self.decoding(position, *known, *(most - len(known)) * known[-1:] * (len(known) > 1))
            before = decoding.integers(before)
            self.saturated += before.saturated
            self.programs += 1
            logits = before.values[decoding.decode.logits.name]
            if machine is not None:
                logits = machine.run(decoding, before)
            # The machine's are to base 2.
            unit = math.log(2) * 2.0 ** -decoding.fracs[decoding.decode.logits.name]
            answering = False
            for each, row in zip(known[1:] + [-1], logits[: len(known), :vocab]):
                position += 1
                if position < len(text):
                    continue
                token = self.draw(row * unit)
                if token in ends:
                    return
                text.append(token)
                self.answering += not answering
                answering = True
                self.said += 1
                yield token
                if len(text) == last:
                    return
                if token != each:
                    break


@dataclass(frozen=True)
class _TokenProgram:
    """A program for the positions of a tile of the cache, with values of its variables, and its places."""

    program: Assembler
    variables: Mapping[str, int]
    layout: Layout
    start: int


class AnswerMachine:
    """A machine that holds a model, and keeps keys and values from token to token.

    :class:`ValueError` where model and programs need more memory than a board has reserved.

    Parameters
    ----------
    reply : TokenReply
    positions : int
        Tokens of prompt and answer.
    config : LanguageConfig
    tell : callable
        Told what takes long.
    host : MachineHost, optional
        The way to a machine in place of simulated RTL.
    files : sequence of Path
        Verilog that is simulated; none: that of the configuration.

    ``cycles`` of all tokens; ``told``: their forecast, which there is of simulated RTL.
    """

    def __init__(
        self,
        reply: TokenReply,
        positions: int,
        config: LanguageConfig,
        *,
        tell: Callable[[str], None],
        host: MachineHost | None = None,
        files: Sequence[Path] = (),
    ) -> None:
        self.config, self.cycles, self.told = config, 0, 0
        self.reply, frozen = reply, reply.prompt.frozen
        first = reply.decoding(0, reply.prompt.tokens[0])
        self.rows = reply.prompt.step.tokens
        self.layout = layout = Layout()
        place_frozen(reply.prompt, layout)
        contents = {name: frozen.stream(name, config) for name in layout.offsets}
        # No moments: nothing learns.
        tables = {name: words for name, words in first.tables().items() if words.ndim < 3 and name != TARGETS}
        contents |= as_bytes(tables) | reply.prompt.start_data(reply.frac)
        del contents[reply.prompt.step.input.name]
        for name, content in contents.items():
            layout.place(name, len(content))
        tell("the programs")
        last = replace(first.decode, position=(positions - 1) // self.rows * self.rows)
        caches = [each for layer in reply.prompt.step.layers for which in "kv" for each in last.cache(layer, which)]
        # Rows that no token has written yet are multiplied by zero, and must not saturate.
        contents |= {each.name: bytes(4 * each.rows * each.features) for each in caches}
        for each in caches:
            layout.tensor(each)
        self.programs = {
            (at, count): self._lowered(replace(first.decode, position=at * self.rows, count=count))
            for at in range(-(-positions // self.rows))
            for count in sorted({1, reply.prompt.together(at * self.rows)})
        }
        needed = max(each.start + len(each.program.code) for each in self.programs.values())
        self.machine = linear_machine(config, needed, tell, files) if host is None else MachineRunner(host)
        room = getattr(getattr(self.machine.host, "transport", None), "window_size", needed)
        if needed > room:
            raise ValueError(
                f"tokens={positions}: the model and the programs of so many, the prompt's with them, need {needed:,} "
                f"bytes of memory, the board has reserved {room:,}: make the buffer larger (size of its node in the "
                f"overlay, cma= on the kernel's command line)"
            )
        tell("writing the model to memory")
        for name, content in contents.items():
            self.machine.write(layout[name], content)

    def _lowered(self, decode: Decode) -> _TokenProgram:
        reply, layout, variables = self.reply, self.layout.copy(), {"position": decode.position, "row": 0}
        layout.tensor(decode.input)
        for layer in decode.step.layers:
            for which in "kv":
                last = decode.cache(layer, which)[-1]
                layout.offsets[decode.own(last).name] = Varying(layout[last.name], "row")
        limit = Varying(decode.position, "position")
        operations = [replace(each, limit=limit) if isinstance(each, Softmax) else each for each in decode.operations]
        frac = decode.fracs({**reply.prompt.frozen.frac, **reply.frac})
        program = lower(operations, frac, layout, self.config)
        return _TokenProgram(program, variables, layout, rounded(layout.end, PAGE))

    def run(self, decoding: Decoding, reference: IntegerStep) -> np.ndarray:
        """Logits behind each token, ``[tokens, vocabulary]`` in whole tiles, read as one block.

        :class:`~gradloom.sim.run.counted.MismatchError` where they, a counter or the cycles of a command differ from
        reference and forecast.
        """
        decode, frozen = decoding.decode, decoding.prompt.frozen
        made = self.programs[decode.position // self.rows, decode.count]
        tables = frozen.angles(decode.operations, decode.count, decode.position) | frozen.added(decode.operations)
        self.machine.write(made.layout[decode.input.name], tile_rows(decoding.words, EDGE))
        for name, content in as_bytes(tables).items():
            self.machine.write(made.layout[name], content)
        variables = {"position": decode.position, "row": 4 * EDGE * (decode.position % self.rows)}
        program = patched(made.program, made.variables, variables)
        ran = self.machine.run(
            Written(config=self.config, instructions=program.instructions, code=program.code, offset=made.start)
        )
        rows, features = decode.logits.rows, decode.logits.features
        read = self.machine.read(made.layout[decode.logits.name], 4 * rows * features)
        logits = untile_rows(read, rows, features, EDGE)
        check_words({"logits": logits}, {"logits": reference.values[decode.logits.name]})
        ran.check(saturated=reference.saturated)
        self.cycles += ran.counters.cycles
        self.told += 0 if ran.forecast is None else ran.forecast.total
        return logits

    def close(self) -> None:
        """Ends the simulation, if it is one."""
        self.machine.close()
