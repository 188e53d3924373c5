"""Operations of a network, whatever its kind.

A tensor is a matrix of a sample, see :class:`~.base.Tensor`; the channels of an image are its features. All readings
(mathematics, gradients, integers, a plan, a program) go through one list of these operations, forward in its order and
backward against it.
"""

from dataclasses import dataclass, field
from math import prod

from .base import Operation, Weight

__all__ = [
    "Activation",
    "Add",
    "Attention",
    "Concat",
    "Convolution",
    "Gated",
    "Larger",
    "Linear",
    "MatMul",
    "Multiply",
    "Norm",
    "Pad",
    "Parameter",
    "Pool",
    "Prelu",
    "Rearrange",
    "Reduce",
    "Rest",
    "Slice",
    "Softmax",
    "Upsample",
    "Weighted",
]


@dataclass(frozen=True)
class Parameter(Operation):
    """A tensor of weights, the same for every sample: a position table, a class token, a scale.

    ``name``: of the weights ``[*sides, features]``.
    """

    name: str

    @property
    def weights(self) -> tuple[Weight, ...]:
        """The table."""
        return (Weight(self.name, self.o.shape),)


@dataclass(frozen=True)
class Weighted(Operation):
    """Has a layer's name: ``layer.weight``, and ``layer.bias`` where ``bias``."""

    layer: str
    bias: bool = field(default=True, kw_only=True)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of ``layer.weight``, as PyTorch has it."""
        return (self.o.features,)

    @property
    def weights(self) -> tuple[Weight, ...]:
        """``weight``, and ``bias`` where there is one."""
        bias = (Weight(f"{self.layer}.bias", (self.o.features,)),) if self.bias else ()
        return (Weight(f"{self.layer}.weight", self.shape), *bias)


@dataclass(frozen=True)
class _Adapted(Weighted):
    """May have a LoRA adapter of ``rank`` beside it, whose product counts ``scale`` times.

    With the :class:`Rest` of its tensor as a second one its products take two codes of what it reads; ``codes``: of
    its weight.
    """

    codes: int = field(default=1, kw_only=True)
    rank: int = field(default=0, kw_only=True)
    scale: float = field(default=1.0, kw_only=True)

    @property
    def factors(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Shapes of A and B, as PEFT has them."""
        raise NotImplementedError

    @property
    def adapter(self) -> tuple[Weight, ...]:
        """A and B; nothing without an adapter."""
        if not self.rank:
            return ()
        return tuple(Weight(f"{self.layer}.lora_{part}.weight", shape) for part, shape in zip("AB", self.factors))

    @property
    def weights(self) -> tuple[Weight, ...]:
        """Its own, then the adapter's."""
        return (*super().weights, *self.adapter)


@dataclass(frozen=True)
class Linear(_Adapted):
    """``o = x W' + bias`` for every row."""

    @property
    def shape(self) -> tuple[int, ...]:
        """``[outputs, inputs]``."""
        return (self.o.features, self.i[0].features)

    @property
    def factors(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """``[rank, inputs]`` and ``[outputs, rank]``."""
        return (self.rank, self.i[0].features), (self.o.features, self.rank)


@dataclass(frozen=True)
class Convolution(_Adapted):
    """Convolution over all sides of the tensor, one or two.

    ``kernel``, ``stride``, ``dilation``: a number a side. ``pads``: zeros before and behind each side. ``transposed``:
    the gradient of such a convolution, from its result's size to its input's; its sides are those of ``o``.
    """

    kernel: tuple[int, ...] = field(kw_only=True)
    stride: tuple[int, ...] = field(kw_only=True)
    pads: tuple[tuple[int, int], ...] = field(kw_only=True)
    dilation: tuple[int, ...] = field(kw_only=True)
    groups: int = field(default=1, kw_only=True)
    transposed: bool = field(default=False, kw_only=True)

    @property
    def shape(self) -> tuple[int, ...]:
        """``[outputs, inputs / groups, *kernel]``, transposed ``[inputs, outputs / groups, *kernel]``."""
        first, second = self.o.features, self.i[0].features
        if self.transposed:
            first, second = second, first
        return (first, second // self.groups, *self.kernel)

    @property
    def factors(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """A has the kernel, B is 1×1."""
        return (self.rank, self.i[0].features, *self.kernel), (self.o.features, self.rank, *(1 for _ in self.kernel))


@dataclass(frozen=True)
class Norm(Weighted):
    """Divides the values of a group by their deviation, then scales and shifts every feature.

    A group is a part of the features, of one row or of all ``over_rows``: LayerNorm is one group of a row, GroupNorm
    ``groups`` of all rows, InstanceNorm a group a feature. Of ``part`` rows each, unless that is 0, groups are of
    those ``over_rows``. RMSNorm is not ``centred``: its mean stays. The tensor may have more features than the result,
    behind: they count in a group's mean and deviation alone.
    """

    eps: float = field(kw_only=True)
    over_rows: bool = field(default=False, kw_only=True)
    part: int = field(default=0, kw_only=True)
    groups: int = field(default=1, kw_only=True)
    centred: bool = field(default=True, kw_only=True)
    gain: bool = field(default=True, kw_only=True)

    @property
    def weights(self) -> tuple[Weight, ...]:
        """``weight`` where ``gain``, and ``bias``."""
        return super().weights[0 if self.gain else 1 :]

    @property
    def span(self) -> int:
        """Rows of a group."""
        return (self.part or self.o.rows) if self.over_rows else 1


@dataclass(frozen=True)
class Activation(Operation):
    """A function of every value, a name of :data:`.functions.FUNCTIONS` with its parameters."""

    kind: str
    parameters: tuple[float, ...] = ()


@dataclass(frozen=True)
class Gated(Operation):
    """``x · f(gate)``: the first half of the features times a function of the second, as :class:`Activation` has it."""

    kind: str


@dataclass(frozen=True)
class Prelu(Operation):
    """Negative values times ``layer.weight``, a slope a feature or one for all."""

    layer: str
    slopes: int

    @property
    def weights(self) -> tuple[Weight, ...]:
        """The slopes."""
        return (Weight(f"{self.layer}.weight", (self.slopes,)),)


@dataclass(frozen=True)
class Softmax(Operation):
    """Softmax over the features of a row; ``log``: its logarithm."""

    log: bool = False


@dataclass(frozen=True)
class MatMul(Operation):
    """Products of the last side and the features, for all sides before: ``a b``, or ``a b'`` where ``turned``."""

    turned: bool = False


@dataclass(frozen=True)
class Attention(Operation):
    """``i`` is q, k, v: softmax(scale · q k') v for each of ``heads``.

    Features are the heads side by side. A fourth tensor is added to the scores: ``[queries, keys]``, sides ``(heads,
    queries)`` where the heads differ.
    """

    heads: int
    scale: float


@dataclass(frozen=True)
class Add(Operation):
    """The sum of two tensors, or their difference.

    A side, or the features, of one of them may be 1: it counts for all.
    """

    subtract: bool = False


@dataclass(frozen=True)
class Multiply(Operation):
    """The product of two tensors, value by value; for sides of 1 see :class:`Add`."""


@dataclass(frozen=True)
class Larger(Operation):
    """The larger of two tensors of one shape, value by value; of equals the first has the gradient."""


@dataclass(frozen=True)
class Pool(Operation):
    """Maximum or mean of windows over all sides.

    Windows may overlap, and reach over the end. ``counted``: pads are values of a mean; what lies beyond them never is.
    """

    kind: str
    kernel: tuple[int, ...] = field(kw_only=True)
    stride: tuple[int, ...] = field(kw_only=True)
    pads: tuple[tuple[int, int], ...] = field(kw_only=True)
    dilation: tuple[int, ...] = field(kw_only=True)
    counted: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class Reduce(Operation):
    """``kind`` is mean, sum or max: over all rows, whose sides are 1 then, or over the features of each."""

    kind: str
    over_rows: bool


@dataclass(frozen=True)
class Rest(Operation):
    """What codes of 8 bits leave of a tensor: nothing, where numbers are exact; gradients pass by it."""


@dataclass(frozen=True)
class Concat(Operation):
    """Tensors behind one another along an axis: a side's number, or the number of sides for the features."""

    axis: int


@dataclass(frozen=True)
class Slice(Operation):
    """Every ``step``-th from ``start`` on, along an axis as in :class:`Concat`."""

    axis: int
    start: int
    step: int = 1


@dataclass(frozen=True)
class Pad(Operation):
    """``pads`` before and behind each side.

    ``mode``: constant with ``value``, edge, reflect.
    """

    pads: tuple[tuple[int, int], ...]
    mode: str = "constant"
    value: float = 0.0


@dataclass(frozen=True)
class Upsample(Operation):
    """Sides to those of ``o``.

    ``mode``: nearest or linear. ``places``: how a place of the result is one of the tensor's, ONNX' name
    (half_pixel, align_corners, asymmetric, pytorch_half_pixel). ``rounding``: of nearest, ONNX' name.
    """

    mode: str
    places: str
    rounding: str = "floor"


@dataclass(frozen=True)
class Rearrange(Operation):
    """The same values in another order.

    Those of a sample are seen as ``sizes``, whose axes are put in ``order``, and read as the result.
    """

    sizes: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def is_label(self) -> bool:
        """Whether rows and features stay what they are: only the sides have other names."""
        return self.order == tuple(range(len(self.order))) and self.i[0].features == self.o.features

    def __post_init__(self) -> None:
        count = self.i[0].rows * self.i[0].features
        if sorted(self.order) != list(range(len(self.sizes))) or prod(self.sizes) != count:
            raise ValueError(f"{self.o.name}: sizes {self.sizes} in order {self.order} are not {count} values")
        if self.o.rows * self.o.features != count:
            raise ValueError(f"{self.o.name}: has {self.o.shape}, of {count} values")
