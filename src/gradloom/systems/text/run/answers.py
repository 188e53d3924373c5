"""A model's answer in the machine's integers: by the reference, and on a machine that keeps keys and values.

A token's program is lowered once for each 64 positions; position, and row of the cache, are patched.
"""

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
from gradloom.rtl.formats.weights.tiles import tile_rows
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.sim.run.counted import check_words
from gradloom.sim.run.machine import MachineHost, MachineRunner

from ..operations.base import Operation
from ..operations.decode import Decode
from ..operations.elements import Softmax
from ..operations.exponents import of_any_text
from ..operations.instant import InstantStep
from ..operations.scaling import Norm
from ..operations.tensors import EDGE, Tensor
from ..operations.transformer import TARGETS, StepOperations
from ..program.layout import Layout
from ..program.step import lower
from ..reference.integers import IntegerStep
from .decode import Decoding
from .frozen import Frozen
from .linear import linear_machine
from .step import place_frozen
from .training import Training, as_bytes, largest

__all__ = ["AnswerMachine", "PromptForward", "TokenReply", "prompt_of"]

#: Bits to spare in tensors, whose exponents follow from the prompt and hold for the answer.
_HEADROOM = 4


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
    """

    blocks: Mapping[int, Adapter] = field(default_factory=dict)
    coded: bool = False
    rows: int = EDGE

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
            *step.head_products(normed, logits, coded=self.coded),
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
    )


@dataclass
class TokenReply:
    """What a model says behind a prompt, each token the likeliest; of equals the lowest.

    ``saturated`` counts words that the formats clipped.
    """

    prompt: PromptForward
    saturated: int = 0

    def __post_init__(self) -> None:
        self.frac = self.prompt.fracs(of_any_text(largest(self.prompt.exact())), headroom=_HEADROOM)

    def decoding(self, position: int, token: int) -> Decoding:
        """The token at a position."""
        return Decoding(self.prompt, self.frac, position, token, self.prompt.coded)

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
        text, before = list(given), None
        vocab = self.prompt.frozen.model.vocab
        for position in range(len(given) + count - 1):
            decoding = self.decoding(position, text[position])
            before = decoding.integers(before)
            self.saturated += before.saturated
            logits = before.values[decoding.decode.logits.name]
            if machine is not None:
                logits = machine.run(decoding, before)
            if position < len(given) - 1:
                continue
            token = int(np.argmax(logits[0, :vocab]))
            if token in ends:
                return
            text.append(token)
            yield token


@dataclass(frozen=True)
class _TokenProgram:
    """A token's program for the positions of a tile of the cache, with values of its variables, and its places."""

    program: Assembler
    variables: Mapping[str, int]
    start: int
    logits: int


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
        first, frozen = reply.decoding(0, reply.prompt.tokens[0]), reply.prompt.frozen
        self.rows = reply.prompt.step.tokens
        self.layout = layout = Layout()
        place_frozen(reply.prompt, layout)
        contents = {name: frozen.stream(name) for name in layout.offsets}
        # No moments: nothing learns.
        tables = {name: words for name, words in first.tables().items() if words.ndim < 3 and name != TARGETS}
        contents |= as_bytes(tables) | reply.prompt.start_data(reply.frac)
        del contents[reply.prompt.step.input.name]
        for name, content in contents.items():
            layout.place(name, len(content))
        layout.tensor(first.decode.input)
        tell("a token's program")
        whole = [replace(first.decode, position=at, whole=True) for at in range(0, positions, self.rows)]
        caches = [
            each for layer in reply.prompt.step.layers for which in "kv" for each in whole[-1].cache(layer, which)
        ]
        # Rows that no token has written yet are multiplied by zero, and must not saturate.
        contents |= {each.name: bytes(4 * each.rows * each.features) for each in caches}
        for each in caches:
            layout.tensor(each)
        self.programs = [self._lowered(each, reply) for each in whole]
        needed = max(each.start + len(each.program.code) for each in self.programs)
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

    def _lowered(self, decode: Decode, reply: TokenReply) -> _TokenProgram:
        layout, variables = self.layout.copy(), {"position": decode.position, "row": 0}
        for layer in decode.step.layers:
            for which in "kv":
                last = decode.cache(layer, which)[-1]
                layout.offsets[decode.own(last).name] = Varying(layout[last.name], "row")
        limit = Varying(decode.position, "position")
        operations = [replace(each, limit=limit) if isinstance(each, Softmax) else each for each in decode.operations]
        frac = decode.fracs({**reply.prompt.frozen.frac, **reply.frac})
        program = lower(operations, frac, layout, self.config)
        return _TokenProgram(program, variables, rounded(layout.end, PAGE), layout[decode.logits.name])

    def run(self, decoding: Decoding, reference: IntegerStep) -> np.ndarray:
        """Logits of the next token, ``[1, vocabulary]`` in whole tiles.

        :class:`~gradloom.sim.run.counted.MismatchError` where they, a counter or the cycles of a command differ from
        reference and forecast.
        """
        decode, made = decoding.decode, self.programs[decoding.position // self.rows]
        self.machine.write(self.layout[decode.input.name], tile_rows(decoding.words, EDGE))
        angles = decoding.prompt.frozen.angles(decode.operations, 1, decode.position)
        for name, content in as_bytes(angles).items():
            self.machine.write(self.layout[name], content)
        variables = {"position": decode.position, "row": 4 * EDGE * (decode.position % self.rows)}
        program = patched(made.program, made.variables, variables)
        ran = self.machine.run(
            Written(config=self.config, instructions=program.instructions, code=program.code, offset=made.start)
        )
        read = self.machine.read(made.logits, 4 * decode.logits.features)
        logits = np.frombuffer(read, "<i4").astype(np.int64)[None]
        check_words({"logits": logits}, {"logits": reference.values[decode.logits.name]})
        ran.check(saturated=reference.saturated)
        self.cycles += ran.counters.cycles
        self.told += 0 if ran.forecast is None else ran.forecast.total
        return logits

    def close(self) -> None:
        """Ends the simulation, if it is one."""
        self.machine.close()
