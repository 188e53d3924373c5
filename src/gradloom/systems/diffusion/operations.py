"""Operations of a UNet's forward pass.

An operation names its tensors and its weights; it knows no values. A tensor is a matrix of an image's tokens, a row a
pixel or a token of the prompt, a column a channel: no operation turns images into tokens. The mathematics (``sim``) and
the list of products (:mod:`.products`) are readings of the same list, forward in its order and backward against it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from gradloom.program import operations
from gradloom.program.operations import Function, Weight

__all__ = [
    "Activation",
    "Add",
    "Attention",
    "Concat",
    "Convolution",
    "GroupNorm",
    "LayerNorm",
    "Linear",
    "Operation",
    "Shift",
    "Tensor",
    "Upsample",
    "Weight",
    "adapted",
]


@dataclass(frozen=True)
class Tensor(operations.Tensor):
    """A tensor ``[rows, features]`` of every image.

    ``side``: pixels in a row of it, 0 for tokens that are no pixels.
    """

    side: int = 0


@dataclass(frozen=True)
class Operation(Function[Tensor]):
    """Makes ``o`` of the tensors ``i``, with frozen weights by diffusers' name and of its shape."""


@dataclass(frozen=True)
class _Weighted(Operation):
    layer: str
    bias: bool = field(default=True, kw_only=True)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of ``layer.weight``."""
        return (self.o.features, self.i[0].features)

    @property
    def weights(self) -> tuple[Weight, ...]:
        """``weight``, and ``bias`` where there is one."""
        bias = (Weight(f"{self.layer}.bias", (self.o.features,)),) if self.bias else ()
        return (Weight(f"{self.layer}.weight", self.shape), *bias)


@dataclass(frozen=True)
class Linear(_Weighted):
    """``o = x W' + bias``, with an adapter of ``rank`` beside it, or 0.

    ``pixels``: diffusers has it as 1×1 convolution.
    """

    rank: int = field(default=0, kw_only=True)
    pixels: bool = field(default=False, kw_only=True)

    @property
    def learns(self) -> bool:
        """See :class:`Operation`."""
        return self.rank > 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of ``layer.weight``."""
        return super().shape + (1, 1) * self.pixels


@dataclass(frozen=True)
class Convolution(_Weighted):
    """3×3, padded by 1, with ``stride`` 1 or 2."""

    stride: int = field(default=1, kw_only=True)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of ``layer.weight``."""
        return super().shape + (3, 3)


@dataclass(frozen=True)
class _Norm(_Weighted):
    eps: float = field(default=1e-5, kw_only=True)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of ``layer.weight``."""
        return (self.o.features,)


@dataclass(frozen=True)
class GroupNorm(_Norm):
    """Normalises groups of channels over all rows of an image."""

    groups: int = field(default=1, kw_only=True)


@dataclass(frozen=True)
class LayerNorm(_Norm):
    """Normalises every row."""


@dataclass(frozen=True)
class Activation(Operation):
    """``kind``: silu, or geglu.

    The latter halves the features: ``x · gelu(gate)`` with the gate behind.
    """

    kind: str


@dataclass(frozen=True)
class Attention(Operation):
    """``i`` is q, k, v: softmax(q k' / √d) v for each of ``heads``."""

    heads: int


@dataclass(frozen=True)
class Add(Operation):
    """The sum of two tensors."""


@dataclass(frozen=True)
class Shift(Operation):
    """Adds the one row of the second tensor to every row of the first."""


@dataclass(frozen=True)
class Concat(Operation):
    """The features of two tensors side by side."""


@dataclass(frozen=True)
class Upsample(Operation):
    """Every pixel four times, as a square."""


def adapted(listed: Iterable[Operation]) -> list[Linear]:
    """The linear layers with an adapter."""
    return [each for each in listed if isinstance(each, Linear) and each.rank]
