"""Expressions of quantised graphs, without layouts and names."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...files.onnx_file import RefusedNode
from ..coding import Coding

__all__ = [
    "Activated",
    "AffineForm",
    "Clipped",
    "CodedForm",
    "Complement",
    "Convolved",
    "Expression",
    "Joined",
    "Mapped",
    "MergedForm",
    "PartForm",
    "Pending",
    "Pooled",
    "ProductForm",
    "Rectified",
    "Reduced",
    "ResultForm",
    "StackedDirections",
    "Sum",
    "Variable",
    "Weights",
    "added",
    "behind",
    "channels",
    "scaled",
    "taken",
]


@dataclass(frozen=True, eq=False)
class Weights:
    """Constant codes and their scale.

    ``axis``: along which the scale varies, -1 where it does not.
    """

    codes: np.ndarray
    scale: np.ndarray
    axis: int = -1

    @property
    def real(self) -> np.ndarray:
        """Real values of the codes."""
        shape = [-1 if n == self.axis else 1 for n in range(self.codes.ndim)] if self.axis >= 0 else []
        return _single(self.codes.astype(np.float32) * self.scale.reshape(shape).astype(np.float32))

    def transposed(self, order: list[int]) -> "Weights":
        """Axes in another order."""
        return Weights(self.codes.transpose(order), self.scale, order.index(self.axis) if self.axis >= 0 else -1)

    def by_output(self, axis: int) -> tuple[np.ndarray, np.ndarray]:
        """Codes with the outputs in front, and a scale for each output.

        ``axis`` : that of the outputs in the codes of this object.
        """
        if self.axis not in (-1, axis):
            raise RefusedNode(
                f"its weights have a scale for each index of axis {self.axis}: expected one scale, or "
                f"one for each output, along axis {axis}"
            )
        codes = np.moveaxis(self.codes, axis, 0)
        return codes, np.broadcast_to(self.scale.reshape(-1), (len(codes),)).astype(np.float64)


def _single(values: np.ndarray) -> np.ndarray:
    """Rounded to float32, as interpreters of ONNX have them."""
    return values.astype(np.float32).astype(np.float64)


class Expression:
    """A value that depends on the graph's inputs."""


@dataclass(frozen=True, eq=False)
class Variable(Expression):
    """An input of a graph.

    ``width``: its channels, 0 where they are not known.
    """

    name: str
    width: int = 0


@dataclass(frozen=True, eq=False)
class PartForm(Expression):
    """A part of an input, which only a state may begin with."""

    source: Expression


@dataclass(frozen=True, eq=False)
class Mapped(Expression):
    """A value as the host maps it; see :class:`~.host.HostStep`."""

    source: Expression
    kind: str
    value: np.ndarray
    name: str


@dataclass(frozen=True, eq=False)
class ResultForm(Expression):
    """States of recurrent nodes.

    ``what``: hidden states of ``all`` steps, of the ``last`` or ``first``, their ``mean`` or ``max``; ``end``: those
    that each direction ends with; ``state``: the cell states that each ends with; ``states``: all cell states.

    ``layer``: number of the layer; ``ways``: directions side by side, 0 forward and 1 backward; ``units``: elements of
    each.
    """

    what: str
    layer: int
    ways: tuple[int, ...]
    units: int


@dataclass(frozen=True, eq=False)
class StackedDirections(Expression):
    """Results of single directions, one behind another along an axis."""

    items: tuple[ResultForm, ...]


@dataclass(frozen=True, eq=False)
class AffineForm(Expression):
    """Sum of products of quantised weights and sources, and a bias.

    A term: source, codes ``[outputs, n]``, scales.
    """

    terms: tuple[tuple[Expression, np.ndarray, np.ndarray], ...]
    bias: np.ndarray
    name: str


@dataclass(frozen=True, eq=False)
class Convolved(Expression):
    """A convolution: codes ``[outputs, inputs, kernel]``.

    Of a plane they are ``[outputs, inputs, kernel, kernel]``. ``strides`` and ``pads`` are by axis, ``axes`` the labels
    of these, and ``sizes`` how many elements the source has along them, 0 where that is not known. ``channel`` is the
    label of the channels.
    """

    source: Expression
    codes: np.ndarray
    scale: np.ndarray
    bias: np.ndarray
    strides: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    axes: tuple[str, ...]
    sizes: tuple[int, ...]
    name: str
    channel: str = ""

    @property
    def kernel(self) -> tuple[int, ...]:
        """Sizes of the kernel."""
        return self.codes.shape[2:]


@dataclass(frozen=True, eq=False)
class Pooled(Expression):
    """Greatest of a kernel's values; fields as of :class:`Convolved`.

    ``channels``: of the result. Once the kernel goes along the steps alone, ``inputs`` are the channels of the source
    and ``groups`` ``[channels, n]`` those that each is the greatest of.
    """

    source: Expression
    channels: int
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    axes: tuple[str, ...]
    sizes: tuple[int, ...]
    name: str
    inputs: int = 0
    groups: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class MergedForm(Expression):
    """Two axes of a value as one: their labels and sizes in order."""

    source: Expression
    labels: tuple[str, str]
    sizes: tuple[int, int]
    name: str


@dataclass(frozen=True, eq=False)
class Pending(Expression):
    """Integers of a QuantizeLinear, before their DequantizeLinear."""

    source: Expression
    step: float
    lo: int
    hi: int
    name: str


@dataclass(frozen=True, eq=False)
class CodedForm(Expression):
    """A value behind a quantiser."""

    source: Expression
    coding: Coding


@dataclass(frozen=True, eq=False)
class Clipped(Expression):
    """A value between bounds."""

    source: Expression
    lo: float
    hi: float
    name: str


@dataclass(frozen=True, eq=False)
class Rectified(Expression):
    """ReLU."""

    source: Expression
    name: str


@dataclass(frozen=True, eq=False)
class Reduced(Expression):
    """``last``, ``mean`` or ``max`` over the steps of other values."""

    kind: str
    source: Expression
    name: str


@dataclass(frozen=True, eq=False)
class Activated(Expression):
    """``sigmoid`` or ``tanh``; ``softmax`` or ``log_softmax`` of channels."""

    kind: str
    source: Expression
    name: str


@dataclass(frozen=True, eq=False)
class ProductForm(Expression):
    """Of two values, element by element."""

    a: Expression
    b: Expression
    name: str


@dataclass(frozen=True, eq=False)
class Sum(Expression):
    """Of two values."""

    a: Expression
    b: Expression
    name: str


@dataclass(frozen=True, eq=False)
class Complement(Expression):
    """A constant, which is 1 or nearly so, minus a value."""

    source: Expression
    name: str
    one: float = 1.0


@dataclass(frozen=True, eq=False)
class Joined(Expression):
    """Values behind each other along the channels."""

    parts: tuple[Expression, ...]


def behind(value: Expression, made: Callable[[Expression], Expression]) -> Expression:
    """What is ``made`` of a value, with the value's ends behind it."""
    if isinstance(value, (Clipped, Rectified)):
        return replace(value, source=behind(value.source, made))
    return made(value)


def channels(value: Expression) -> int:
    """How many channels a value has; 0 where that is not known."""
    if isinstance(value, Variable):
        return value.width
    if isinstance(value, (AffineForm, Convolved)):
        return len(value.bias)
    if isinstance(value, Pooled):
        return value.channels
    if isinstance(value, ResultForm):
        return len(value.ways) * value.units
    if isinstance(value, MergedForm):
        return value.sizes[0] * value.sizes[1]
    if isinstance(value, Joined):
        widths = [channels(part) for part in value.parts]
        return sum(widths) if all(widths) else 0
    if isinstance(value, (ProductForm, Sum)):
        return channels(value.a) or channels(value.b)
    if isinstance(value, Mapped) and value.kind == "Gather":
        return value.value.shape[1]
    return channels(value.source) if hasattr(value, "source") else 0


def taken(value: Expression, first: int, last: int) -> Expression:
    """Channels ``first`` to ``last`` (exclusive) of a value."""
    if first == 0 and last == channels(value):
        return value
    if isinstance(value, AffineForm):
        terms = tuple((source, codes[first:last], scale[first:last]) for source, codes, scale in value.terms)
        return AffineForm(terms, value.bias[first:last], value.name)
    if isinstance(value, CodedForm):
        levels = value.coding.levels
        coding = (
            replace(value.coding, levels=levels[first:last])
            if levels is not None and len(levels) > 1
            else (value.coding)
        )
        return CodedForm(taken(value.source, first, last), coding)
    if isinstance(value, (Pending, Clipped, Activated, Complement)):
        return replace(value, source=taken(value.source, first, last))
    if isinstance(value, (ProductForm, Sum)):
        return replace(value, a=taken(value.a, first, last), b=taken(value.b, first, last))
    if isinstance(value, Joined):
        at = 0
        for part in value.parts:
            if (at, at + channels(part)) == (first, last):
                return part
            at += channels(part)
    raise RefusedNode(f"channels {first} to {last - 1} of its input: only gates can be taken apart")


def product(value: Expression, codes: np.ndarray, scale: np.ndarray, name: str) -> AffineForm:
    """Of weights ``[outputs, n]`` and a value."""
    if codes.ndim != 2 or not codes.size:
        raise RefusedNode(f"its weights have shape {list(codes.shape)}: expected [outputs, channels]")
    parts = value.parts if isinstance(value, Joined) else (value,)
    widths = [channels(part) for part in parts]
    if len(parts) == 1:
        widths = [widths[0] or codes.shape[1]]
    if sum(widths) != codes.shape[1]:
        raise RefusedNode(f"its weights take {codes.shape[1]} channels, its input has {sum(widths)}")
    ends = np.cumsum(widths)
    terms = tuple((part, codes[:, end - width : end], scale) for part, width, end in zip(parts, widths, ends))
    return AffineForm(terms, np.zeros(len(codes)), name)


def added(a: Expression, b: Expression | np.ndarray, name: str) -> Expression:
    """``a + b``; ``b`` may be constant."""
    if isinstance(b, np.ndarray):
        if not isinstance(a, (AffineForm, Convolved)):
            raise RefusedNode("it adds a constant to what is no product with weights")
        if b.size not in (1, len(a.bias)):
            raise RefusedNode(f"its constant has {b.size} elements: expected {len(a.bias)}, one a channel")
        return replace(a, bias=_single(a.bias + b.reshape(-1)))
    if isinstance(a, AffineForm) and isinstance(b, AffineForm):
        if len(a.bias) != len(b.bias):
            raise RefusedNode(f"it adds {len(b.bias)} channels to {len(a.bias)}")
        return AffineForm(a.terms + b.terms, a.bias + b.bias, name)
    return Sum(a, b, name)


def scaled(value: Expression, factor: np.ndarray, name: str) -> Expression:
    """A value times a constant, one or one a channel."""
    if isinstance(value, AffineForm):
        each = factor.reshape(-1)
        return replace(
            value,
            terms=tuple((source, codes, _single(scale * each)) for source, codes, scale in value.terms),
            bias=_single(value.bias * each),
        )
    if isinstance(value, Convolved):
        each = factor.reshape(-1)
        return replace(value, scale=_single(value.scale * each), bias=_single(value.bias * each))
    if isinstance(value, CodedForm) and factor.size == 1 and factor.item() > 0:
        coding: Any = value.coding
        return CodedForm(value.source, replace(coding, scale=float(np.float32(coding.scale * factor.item()))))
    raise RefusedNode("it multiplies by a constant what is neither a product with weights nor a quantiser's result")
