"""What a card brings so that a board answers prompts beside a job.

The program of one token serves all positions: keys and values of 64 tokens are read whole.
``firmware/chip/runs/soc_infer.c`` patches position, row of the cache, angles, and the adapter with its
exponents, and reads the description.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gradloom.firmware.device.registers import COMMAND_BYTES
from gradloom.program.patches import Varying
from gradloom.rtl.formats.weights.linear import WEIGHT
from gradloom.rtl.formats.weights.tiles import fraction_bits, tile_rows
from gradloom.rtl.machines.configs.language import LanguageConfig

from ..operations.blocks.head import HEAD_MATRIX
from ..operations.decode import Decode
from ..operations.elements import Softmax
from ..operations.learnt.rechosen import FRACS
from ..operations.products import Product
from ..operations.tensors import EDGE, HeadCodes
from ..operations.transformer import StepOperations
from ..program.step import lower
from ..reference.integers import IntegerStep
from ..run.frozen import Frozen
from ..run.instant import InstantTraining
from ..run.training import Training, encoded
from .layout import STATE, JobLayout
from .part import BoardPart, tabled

__all__ = ["CONTEXT", "RESIDENT", "Answers", "answers_of"]

#: Tokens of prompt and answer.
CONTEXT = EDGE
#: Adapters that a prompt may choose: none, the one the job began with, and what it has kept last.
RESIDENT = ("base", "start", "kept")
_MAGIC = b"GLAN"
#: Columns of a row.
_COLUMNS = ("program", "position", "row", "angles", "adapter")
_EMBEDDING_BITS = 16


@dataclass(kw_only=True)
class Answers:
    """A token of a model with a job's exponents.

    Parameters
    ----------
    frozen : Frozen
    training : Training
        A step of the job, whose adapters and layers the token has.
    frac : mapping
        Fraction bits of the job.
    coded : bool
        The head is in codes. A tied embedding, of which a token is a row, stays in words.
    """

    frozen: Frozen
    training: Training
    frac: Mapping[str, int]
    coded: bool = False

    def __post_init__(self) -> None:
        held = self.training.step
        self.instant = self.training.instant if isinstance(self.training, InstantTraining) else None
        self.step = StepOperations(held.model, CONTEXT, held.ranks, held.layers)
        self.frozen.load(self.decode(0).operations)

    def decode(self, position: int, *, whole: bool = False) -> Decode:
        """The operations at a position."""
        return Decode(self.step, position, whole, self.instant, self.coded)

    @cached_property
    def embedding(self) -> tuple[np.ndarray, int]:
        """Words of 16 bits, rows padded to whole tiles, and their fraction bits."""
        if self.frozen.model.tied:
            drop = WEIGHT.width - _EMBEDDING_BITS
            return self.frozen.words[HEAD_MATRIX] >> drop, self.frozen.frac[HEAD_MATRIX] - drop
        held = self.frozen.embedding
        frac = fraction_bits(held, _EMBEDDING_BITS)
        most = (1 << _EMBEDDING_BITS - 1) - 1
        words = np.clip(np.rint(held * 2.0**frac), -most - 1, most).astype(np.int32)
        return np.pad(words, ((0, -len(words) % EDGE), (0, 0))), frac

    @property
    def shift(self) -> int:
        """Bits that a word of the embedding has less than one of the input."""
        return self.decode(0).input.form.width - _EMBEDDING_BITS

    def fracs(self, decode: Decode) -> dict[str, int]:
        """Fraction bits of a token's tensors.

        Every row of the embedding fits the input.
        """
        return decode.fracs({**self.frozen.frac, **self.frac}) | {decode.input.name: self.embedding[1] + self.shift}

    def reply(
        self, prompt: Sequence[int], tokens: int, adapters: Mapping[str, np.ndarray], frac: Mapping[str, int]
    ) -> list[int]:
        """The likeliest tokens behind a prompt, by the bit-exact reference.

        ``adapters``: words of ``NAME.a`` and ``NAME.b``; ``frac``: fraction bits of :data:`FRACS` of each. Those of
        InstantFT have one name for all blocks, and the job's exponents.
        """
        made, held = list(prompt), replace(self, frac={**self.frac, **frac})
        tables = self.training.tables(self.frac) | dict(adapters)
        cache = {
            each.name: np.zeros((each.rows, each.features), np.int64)
            for layer in self.step.layers
            for which in "kv"
            for each in self.decode(0).cache(layer, which)
        }
        tables |= self.frozen.added(self.decode(0).operations)
        there = {
            name: encoded(values, self.frac[name], tensor.form)
            for name, (tensor, values) in self.training.starts.items()
        } | dict(adapters)
        for position in range(len(prompt) + tokens - 1):
            decode = self.decode(position)
            row = self.embedding[0][[made[position]]].astype(np.int64) << self.shift
            step = IntegerStep(
                there | cache | {decode.input.name: row},
                tables | self.frozen.angles(decode.operations, 1, position),
                self.frozen.matrix,
                frac=held.fracs(decode),
            )
            step.run(decode.operations)
            cache = {name: step.values[name] for name in cache}
            if position >= len(prompt) - 1:
                logits = step.values[decode.logits.name][0, : self.frozen.model.vocab]
                made.append(int(np.argmax(logits)))
        return made[len(prompt) :]


def answers_of(
    answers: Answers, job: JobLayout, learnt: Iterable[str], words: int, config: LanguageConfig, start: int
) -> BoardPart:
    """Lays out what prompts need from ``start`` on.

    ``learnt``: names of the job's adapters; ``words``: bytes of these and their exponents, which its window begins
    with.
    """
    decode, layout = answers.decode(0, whole=True), job.layout
    own = layout.copy()
    own.used = start
    rows = own.tensor(decode.input)
    caches = [each for layer in answers.step.layers for which in "kv" for each in decode.cache(layer, which)]
    cache = own.end
    for each in caches:
        own.offsets.pop(each.name, None)
        own.offsets[decode.own(each).name] = Varying(own.tensor(each), "row")
    cached = own.end - cache
    resident = [own.place(f"resident {name}", words) for name in RESIDENT]
    frac = dict(answers.fracs(decode))
    variables = {"position": 0, "row": 0, "angles": 0, "adapter": resident[0]}
    names = tuple(job.exponents.constants)
    for name in learnt:
        own.offsets[name] = Varying(resident[0] + layout[name], "adapter")
    for name in names:
        # The job's own h stays as it is.
        own.offsets.pop(f"{name}.h")
        for key in (f"{name}.{which}" for which in FRACS):
            variables[key] = frac[key]
            frac[key] = Varying(frac[key], key)
    part = BoardPart(own)
    for name, bias in answers.frozen.added(decode.operations).items():
        own.offsets[name] = part.bring(name, tile_rows(bias, EDGE))
    for weight in (each.weight for each in decode.operations if isinstance(each, Product)):
        if isinstance(weight, HeadCodes):
            part.bring(weight.name, answers.frozen.stream(weight.name, config))
    tables = [answers.frozen.angles(decode.operations, 1, position) for position in range(CONTEXT)]
    size = 4 * answers.step.model.head_dim
    stride = size * len(tables[0])
    angles = part.bring("angles", b"".join(tile_rows(words, EDGE) for each in tables for words in each.values()))
    for number, name in enumerate(tables[0]):
        own.offsets[name] = Varying(angles + size * number, "angles")
    tied = answers.frozen.model.tied
    matrix = own[HEAD_MATRIX] if tied else part.bring("embedding", _tiled(answers.embedding[0]))
    position = Varying(0, "position")
    operations = [replace(each, limit=position) if isinstance(each, Softmax) else each for each in decode.operations]
    program = lower(operations, frac, own, config)
    code = part.bring("token", program.code)
    table = part.bring("table", tabled(program, variables, names, _COLUMNS, layout[STATE]))
    part.describe(
        _MAGIC,
        code,
        len(program.code) // COMMAND_BYTES,
        table,
        CONTEXT,
        cache,
        cached,
        stride,
        rows,
        decode.input.features,
        matrix,
        answers.frozen.model.vocab,
        answers.shift,
        own[decode.logits.name],
        layout[STATE],
        words,
        *resident,
    )
    return part


def _tiled(words: np.ndarray) -> bytes:
    """Words of 16 bits, tiles of rows and features, as the head has them."""
    return words.astype("<i2").reshape(len(words) // EDGE, EDGE, -1, EDGE).swapaxes(1, 2).tobytes()
