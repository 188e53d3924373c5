"""Operations of the last norm, the logits, the loss, and the gradient of what enters them."""

from dataclasses import dataclass
from itertools import zip_longest

from gradloom.models.language import LanguageModel

from ..base import Operation
from ..elements import Add, Loss
from ..products import Product
from ..scaling import Norm, NormBackward
from ..tensors import EDGE, HeadCodes, MatrixRows, Tensor, TensorSlice
from ..vectors import LAST_NORM, StepVectors
from .rows import TextBlock, blocks

__all__ = ["HEAD_MATRIX", "LOSS", "TARGETS", "LossHead", "head_products"]

TARGETS, LOSS = "targets", "loss"
HEAD_MATRIX = "head"
#: Tiles of logits that a command makes: a field of 8 bits counts them.
_MOST = 128


@dataclass(frozen=True)
class LossHead:
    """Those of a step, by blocks: logits of a text are large, and a block's are gone when its gradient is made.

    Parameters
    ----------
    model : LanguageModel
    after : int
        Number behind the last layer.
    part : int
        Tiles of logits whose gradient is the input of a product.
    learnt : StepVectors
    x, dx : Tensor
        What enters, and its gradient.
    """

    model: LanguageModel
    after: int
    part: int
    learnt: StepVectors
    x: Tensor
    dx: Tensor

    def operations(self) -> list[Operation]:
        """From ``x`` to the loss, and back to its gradient."""
        made: list[Operation] = []
        parts = blocks(self.x.rows)
        for block, before in zip_longest(parts, [None, *parts]):
            # A block's loss is made under the next one's logits.
            made += [] if block is None else self._foretold(block)
            made += [] if before is None else self._back(before)
        total = self.learnt.norm_sum(LAST_NORM)
        return made + [each for block in reversed(parts) for each in block.part(total, None, once=True)]

    def _own(self, block: TextBlock, name: str, features: int) -> Tensor:
        return Tensor(f"{self.after}.{block.named(name)}", block.rows, features)

    def _logits(self, block: TextBlock) -> tuple[Tensor, Tensor]:
        """Logits of a block, and their gradient."""
        vocab = -(-self.model.vocab // EDGE) * EDGE
        return self._own(block, "logits", vocab), self._own(block, "dlogits", vocab)

    def _foretold(self, block: TextBlock) -> list[Operation]:
        normed = block.of(Tensor(f"{self.after}.normed", self.x.rows, self.model.hidden).all())
        logits, d = self._logits(block)
        return [
            Norm(block.of(self.x.all()), "norm", normed, self.model.norm_eps),
            *head_products(normed, logits),
            Loss(logits.all(), block.named(TARGETS), d.all(), block.named(LOSS), self.model.vocab),
        ]

    def _back(self, block: TextBlock) -> list[Operation]:
        hidden, made, (_, d) = self.model.hidden, list[Operation](), self._logits(block)
        before: Tensor | None = None
        for first in range(0, d.tiles, self.part):
            count = min(self.part, d.tiles - first)
            part = self._own(block, f"part.{first}", hidden)
            rows = MatrixRows(HEAD_MATRIX, count * EDGE, hidden, first * EDGE)
            made.append(Product(d.part(first, count), rows, part.all(), backward=True))
            if before is not None:
                total = self._own(block, f"sum.{first}", hidden)
                made.append(Add(before.all(), part.all(), total.all()))
                part = total
            before = part
        assert before is not None
        x, dx, u = block.of(self.x.all()), block.of(self.dx.all()), self.learnt.norm_u(LAST_NORM)
        back = NormBackward(x, before.all(), "norm.back", dx, self.model.norm_eps, u and block.of(u))
        return [*made, back]


def head_products(normed: TensorSlice, logits: Tensor, *, coded: bool = False) -> list[Operation]:
    """Logits from normed rows; ``coded``: by a head in codes, in place of one in words."""
    made: list[Operation] = []
    for first in range(0, logits.tiles, _MOST):
        count = min(_MOST, logits.tiles - first)
        sizes = count * EDGE, normed.count * EDGE, first * EDGE
        # Whole groups of scales are in each part: it has as many rows as a group has blocks, or a multiple.
        weight = HeadCodes(f"{HEAD_MATRIX}.{first}", *sizes) if coded else MatrixRows(HEAD_MATRIX, *sizes)
        made.append(Product(normed, weight, logits.part(first, count)))
    return made
