"""The parts of a model that a training step never changes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from gradloom.models.filled import Filled
from gradloom.models.language import EMBEDDING, HEAD, LanguageModel
from gradloom.models.pack import QuantizedLinear
from gradloom.rtl.formats.rounding import saturate
from gradloom.rtl.formats.vector import TERM
from gradloom.rtl.formats.weights.blocks import dequantize_scales
from gradloom.rtl.formats.weights.linear import WEIGHT
from gradloom.rtl.formats.weights.tiles import fraction_bits
from gradloom.rtl.formats.weights.weight_stream import BOOKS, pack_stream
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.sim.reference import linear as reference

from ..coded_head import coded_head
from ..operations.base import Operation
from ..operations.blocks.head import HEAD_MATRIX
from ..operations.elements import Biased, Rope
from ..operations.products import Product
from ..operations.tensors import EDGE, Codes, HeadCodes, MatrixRows
from ..operations.vector import frac_of
from ..order import order
from ..quantized import Quantized
from ..reference.llama import Llama

__all__ = ["Frozen"]

#: A word of the head has so many bits less than a weight.
_HALF = WEIGHT.width - 16


@dataclass
class Frozen:
    """The parts of a model that never change, as floats and as words.

    Parameters
    ----------
    model : LanguageModel
        Filled to whole tiles: see :meth:`of`.
    tensor : callable
        A tensor of it by Hugging Face's name.
    linear : callable
        A quantised linear of it by its name.
    head_part : int
        Of the machine, see :class:`~..operations.transformer.StepOperations`.

    What is held has the machine's order (:mod:`~..order`).
    """

    model: LanguageModel
    tensor: Callable[[str], np.ndarray]
    linear: Callable[[str], QuantizedLinear]
    head_part: int = 16
    held: dict[str, QuantizedLinear] = field(default_factory=dict)
    words: dict[str, np.ndarray] = field(default_factory=dict)
    biases: dict[str, np.ndarray] = field(default_factory=dict)
    frac: dict[str, int] = field(default_factory=dict)
    saturated: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, checkpoint: Quantized, head_part: int = 16) -> "Frozen":
        """Those of a checkpoint, filled."""
        held = Filled(checkpoint)
        return cls(held.model, held.tensor, checkpoint.linear, head_part)

    def load(self, operations: Sequence[Operation]) -> None:
        """Makes words of the matrices that the operations use."""
        for operation in operations:
            if isinstance(operation, Product) and isinstance(operation.weight, Codes):
                self._codes(operation.weight)
            elif isinstance(operation, Product) and isinstance(operation.weight, MatrixRows):
                self._head()
            elif isinstance(operation, Biased) and operation.bias not in self.biases:
                self.biases[operation.bias] = self.ordered(operation.bias)
                self.frac[operation.bias] = frac_of(float(np.abs(self.biases[operation.bias]).max()) or 1.0, TERM)

    def ordered(self, name: str) -> np.ndarray:
        """A vector in the machine's order, float64."""
        values, rows = self.tensor(name).astype(np.float64), order(self.model, name.rpartition(".")[0])
        return values if rows is None else values[rows]

    def _codes(self, weight: Codes) -> None:
        name = weight.name
        if name in self.words:
            return
        if isinstance(weight, HeadCodes):
            held = self._coded_head.part(weight.first, weight.outputs)
        else:
            held, rows = self.linear(name), order(self.model, name)
            held = held if rows is None else held.ordered(rows)
        self.held[name] = held
        largest = np.abs(dequantize_scales(held.scale_codes, held.absmax2, held.offset)).max()
        self.frac[name] = fraction_bits(largest, WEIGHT.width)
        words, self.saturated[name] = reference.decoded(
            held.codes,
            held.scale_codes.reshape(len(held.codes), -1),
            held.absmax2,
            held.offset,
            frac=self.frac[name],
            book=BOOKS[held.shape.bits],
        )
        self.words[name] = words.astype(np.int32)

    def _head(self) -> None:
        if HEAD_MATRIX in self.words:
            return
        head = self.head
        frac = fraction_bits(head, 16)
        self.frac[HEAD_MATRIX] = frac + _HALF
        words = np.clip(np.rint(head * 2.0**frac), -(1 << 15), (1 << 15) - 1)
        self.words[HEAD_MATRIX] = words.astype(np.int32) << _HALF

    @cached_property
    def embedding(self) -> np.ndarray:
        """A row a token; every step takes some."""
        return self.tensor(EMBEDDING)

    @cached_property
    def head(self) -> np.ndarray:
        """The head's matrix, its rows padded to whole tiles."""
        head = self.embedding if self.model.tied else self.tensor(HEAD)
        return np.pad(head, ((0, -len(head) % EDGE), (0, 0)))

    @cached_property
    def _coded_head(self) -> QuantizedLinear:
        return coded_head(Llama(self.model, self.tensor))

    def angles(self, operations: Iterable[Operation], count: int, start: int = 0) -> dict[str, np.ndarray]:
        """Words of the angles of ``count`` positions from ``start`` on, by their name."""
        angles = {each.angles.name: each.angles for each in operations if isinstance(each, Rope)}
        return {name: each.words(self.model.turns(count, start, each.kind)) for name, each in angles.items()}

    def added(self, operations: Iterable[Operation]) -> dict[str, np.ndarray]:
        """Words of the biases, a row a token, by the name of their rows."""
        made = {}
        for each in operations:
            if isinstance(each, Biased):
                words = np.rint(self.biases[each.bias] * 2.0 ** self.frac[each.bias]).astype(np.int64)
                made[each.b.name] = np.tile(saturate(words, TERM.lo, TERM.hi)[0], (each.b.tensor.rows, 1))
        return made

    def matrix(self, weight: Codes | MatrixRows) -> np.ndarray:
        """Words of a matrix, or of some of its rows."""
        words = self.words[weight.name]
        return words[weight.first : weight.first + weight.outputs] if isinstance(weight, MatrixRows) else words

    def exact(self, weight: Codes | MatrixRows) -> np.ndarray:
        """The same as floats, as the model means them."""
        if isinstance(weight, MatrixRows):
            return self.head[weight.first : weight.first + weight.outputs].astype(np.float64)
        return self.held[weight.name].weight().astype(np.float64)

    def stream(self, name: str, config: LanguageConfig) -> bytes:
        """A matrix as it lies in a machine's memory."""
        if name == HEAD_MATRIX:
            words = (self.words[name] >> _HALF).astype("<i2")
            return words.reshape(len(words) // EDGE, EDGE, -1, EDGE).swapaxes(1, 2).tobytes()
        held = self.held[name]
        shape = replace(held.shape, span=config.span)
        return pack_stream(shape, held.codes, held.scale_codes, held.absmax2, held.offset).tobytes()
