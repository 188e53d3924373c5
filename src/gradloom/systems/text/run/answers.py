"""A model's answer in the machine's integers: by the reference, and on a machine that keeps keys and values.

:mod:`gradloom.firmware.jobs.answering` has the order of its programs, which are of one token or of several, some of
them guesses. They are lowered once for each 64 positions; position, and row of the cache, are patched.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle, islice
from pathlib import Path

import numpy as np

from gradloom.firmware.jobs.answering import TokenLoop
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

__all__ = ["TOGETHER", "AnswerImage", "AnswerMachine", "PromptForward", "TokenProgram", "TokenReply", "prompt_of"]

#: Bits to spare in tensors, whose exponents follow from the prompt and hold for the answer.
_HEADROOM = 4
#: Tokens of a program at most.
TOGETHER = 8


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


@dataclass
class TokenReply:
    """What a model says behind a prompt, each token chosen by ``draw``: unless given, the likeliest.

    ``saturated`` counts words that the formats clipped, those of wrong guesses too; ``loop`` its programs.
    """

    prompt: PromptForward
    draw: Draw = field(default_factory=Draw)
    saturated: int = 0
    loop: TokenLoop = field(default_factory=TokenLoop)

    def __post_init__(self) -> None:
        self.frac = self.prompt.fracs(of_any_text(largest(self.prompt.exact())), headroom=_HEADROOM)

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
        before: IntegerStep | None = None

        def run(position: int, tokens: Sequence[int]) -> Callable[[int], int]:
            nonlocal before
            decoding = self.decoding(position, *tokens)
            before = decoding.integers(before)
            self.saturated += before.saturated
            logits = before.values[decoding.decode.logits.name]
            if machine is not None:
                logits = machine.run(decoding, before)
            # The machine's are to base 2.
            unit = math.log(2) * 2.0 ** -decoding.fracs[decoding.decode.logits.name]
            return lambda number: self.draw(logits[number, : self.prompt.frozen.model.vocab] * unit)

        return self.loop.tokens(given, count, self.prompt.together, run, ends=ends)


@dataclass(frozen=True)
class TokenProgram:
    """A program for the positions of a tile of the cache, with values of its variables, and its places."""

    program: Assembler
    variables: Mapping[str, int]
    layout: Layout
    start: int


class AnswerImage:
    """A model in a machine's memory, with programs of tokens.

    Parameters
    ----------
    reply : TokenReply
    positions : int
        Tokens of prompt and answer.
    config : LanguageConfig
    tell : callable
        Told what takes long.

    ``contents``: bytes by name, whose places are in ``layout``. ``programs``: by the tile of the cache and the number
    of tokens. ``rows``: of such a tile.
    """

    def __init__(
        self, reply: TokenReply, positions: int, config: LanguageConfig, *, tell: Callable[[str], None]
    ) -> None:
        self.config, self.reply, frozen = config, reply, reply.prompt.frozen
        first = reply.decoding(0, reply.prompt.tokens[0])
        self.rows = reply.prompt.step.tokens
        self.layout = layout = Layout()
        place_frozen(reply.prompt, layout)
        contents = {name: frozen.stream(name, config) for name in layout.offsets}
        # No moments: nothing learns.
        tables = {name: words for name, words in first.tables().items() if words.ndim < 3 and name != TARGETS}
        counts = [sorted({1, reply.prompt.together(at * self.rows)}) for at in range(-(-positions // self.rows))]
        for count in sorted({each for several in counts for each in several}):
            tables |= frozen.added(replace(first.decode, count=count).operations)
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
        self.contents = contents
        self.programs = {
            (at, count): self._lowered(replace(first.decode, position=at * self.rows, count=count))
            for at, several in enumerate(counts)
            for count in several
        }

    def _lowered(self, decode: Decode) -> TokenProgram:
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
        return TokenProgram(program, variables, layout, rounded(layout.end, PAGE))


class AnswerMachine:
    """A machine that holds a model, and keeps keys and values from token to token.

    :class:`ValueError` where model and programs need more memory than a board has reserved.

    Parameters
    ----------
    reply, positions, config, tell
        See :class:`AnswerImage`.
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
        self.image = AnswerImage(reply, positions, config, tell=tell)
        needed = max(each.start + len(each.program.code) for each in self.image.programs.values())
        self.machine = linear_machine(config, needed, tell, files) if host is None else MachineRunner(host)
        room = getattr(getattr(self.machine.host, "transport", None), "window_size", needed)
        if needed > room:
            raise ValueError(
                f"tokens={positions}: the model and the programs of so many, the prompt's with them, need {needed:,} "
                f"bytes of memory, the board has reserved {room:,}: make the buffer larger (size of its node in the "
                f"overlay, cma= on the kernel's command line)"
            )
        tell("writing the model to memory")
        for name, content in self.image.contents.items():
            self.machine.write(self.image.layout[name], content)

    def run(self, decoding: Decoding, reference: IntegerStep) -> np.ndarray:
        """Logits behind each token, ``[tokens, vocabulary]`` in whole tiles, read as one block.

        :class:`~gradloom.sim.run.counted.MismatchError` where they, a counter or the cycles of a command differ from
        reference and forecast.
        """
        decode, frozen = decoding.decode, decoding.prompt.frozen
        rows = self.image.rows
        made = self.image.programs[decode.position // rows, decode.count]
        tables = frozen.angles(decode.operations, decode.count, decode.position)
        self.machine.write(made.layout[decode.input.name], tile_rows(decoding.words, EDGE))
        for name, content in as_bytes(tables).items():
            self.machine.write(made.layout[name], content)
        variables = {"position": decode.position, "row": 4 * EDGE * (decode.position % rows)}
        program = patched(made.program, made.variables, variables)
        ran = self.machine.run(
            Written(config=self.config, instructions=program.instructions, code=program.code, offset=made.start)
        )
        count, features = decode.logits.rows, decode.logits.features
        read = self.machine.read(made.layout[decode.logits.name], 4 * count * features)
        logits = untile_rows(read, count, features, EDGE)
        check_words({"logits": logits}, {"logits": reference.values[decode.logits.name]})
        ran.check(saturated=reference.saturated)
        self.cycles += ran.counters.cycles
        self.told += 0 if ran.forecast is None else ran.forecast.total
        return logits

    def close(self) -> None:
        """Ends the simulation, if it is one."""
        self.machine.close()
