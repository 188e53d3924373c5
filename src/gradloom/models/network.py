"""A network: convolutions and dense layers, with derived shapes."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

import numpy as np

from gradloom.rtl.formats.fixed import Fixed

__all__ = ["ConvLayer", "DenseLayer", "LayerNetwork", "PixelMap", "windows"]


def windows(size: int, kernel: int, stride: int, pads: tuple[int, int]) -> int:
    """Places of a kernel along an axis of ``size`` elements.

    There is none where it is below 1. ``pads``: elements before and behind.
    """
    return (size + sum(pads) - kernel) // stride + 1


def _frozen(name: str, value, ndim: int) -> np.ndarray:
    array = np.array(value, dtype=np.float64)
    if array.ndim != ndim:
        raise ValueError(f"{name} has shape {array.shape}: expected {ndim} dimensions")
    if 0 in array.shape:
        raise ValueError(f"{name} has shape {array.shape}: every dimension must be at least 1")
    if not np.isfinite(array).all():
        bad = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(f"{name}{list(bad)} is {array[bad]}: weights must be finite")
    array.setflags(write=False)
    return array


def _ints(name: str, value, count: int, least: int) -> tuple[int, ...]:
    values = tuple(int(v) for v in value)
    if len(values) != count or min(values) < least:
        raise ValueError(f"{name}={values}: expected {count} integers of at least {least}")
    return values


def _check_bias(name: str, bias: np.ndarray, outputs: int) -> None:
    if len(bias) != outputs:
        raise ValueError(f"{name} has {len(bias)} values: expected {outputs}, one for each output")


@dataclass(frozen=True, kw_only=True, eq=False)
class ConvLayer:
    """Convolution, bias, ReLU and max-pooling.

    ReLU and max-pooling are optional.

    Parameters
    ----------
    weight : float array ``[o, i, kh, kw]``
    bias : float array ``[o]``
    stride : ``(sh, sw)``
    pads : ``(top, left, bottom, right)``
        Zeros around the image; each less than the kernel's side.
    relu : bool
    pool : int
        Side and stride of the max-pool; 1 is none. Rows and columns left over are dropped.
    name : str
        The layer's name in the model it came from; the adapter is saved under it.
    """

    weight: np.ndarray
    bias: np.ndarray
    stride: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    relu: bool = False
    pool: int = 1
    name: str = ""

    def __post_init__(self):
        put = object.__setattr__
        put(self, "weight", _frozen("conv weight", self.weight, 4))
        put(self, "bias", _frozen("conv bias", self.bias, 1))
        put(self, "stride", _ints("conv stride", self.stride, 2, 1))
        put(self, "pads", _ints("conv pads", self.pads, 4, 0))
        put(self, "relu", bool(self.relu))
        put(self, "pool", int(self.pool))
        _check_bias("conv bias", self.bias, self.weight.shape[0])
        for side, pad in zip("top left bottom right".split(), self.pads):
            kernel = self.weight.shape[2 if side in ("top", "bottom") else 3]
            if pad >= kernel:
                raise ValueError(f"conv pads: {side}={pad} must be less than the kernel's {kernel}")
        if self.pool < 1:
            raise ValueError(f"conv pool={self.pool}: the side of the max-pool must be at least 1")

    @property
    def parameters(self) -> int:
        return self.weight.size + self.bias.size

    @property
    def outputs(self) -> int:
        """Output channels."""
        return self.weight.shape[0]

    @property
    def inputs(self) -> int:
        """Input channels."""
        return self.weight.shape[1]

    @property
    def kernel(self) -> tuple[int, int]:
        return self.weight.shape[2], self.weight.shape[3]

    def convolved(self, shape: tuple[int, ...]) -> tuple[int, int, int]:
        """``(c, h, w)`` before the max-pool, for an input of ``shape``."""
        if len(shape) != 3:
            raise ValueError(f"a convolution needs an input of (c, h, w), not of shape {shape}")
        c, h, w = shape
        if c != self.inputs:
            raise ValueError(f"input has {c} channels: the weight expects {self.inputs}")
        (kh, kw), (sh, sw), (top, left, bottom, right) = self.kernel, self.stride, self.pads
        oh, ow = windows(h, kh, sh, (top, bottom)), windows(w, kw, sw, (left, right))
        if h + top + bottom < kh or w + left + right < kw:
            raise ValueError(f"kernel {kh}x{kw} is larger than the padded input {h + top + bottom}x{w + left + right}")
        return self.outputs, oh, ow

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, int, int]:
        """``(c, h, w)`` after the max-pool, for an input of ``shape``."""
        c, h, w = self.convolved(shape)
        if h < self.pool or w < self.pool:
            raise ValueError(f"pool={self.pool} is larger than the convolution's output {h}x{w}")
        return c, h // self.pool, w // self.pool

    def macs(self, shape: tuple[int, ...]) -> int:
        """Multiply-accumulates a sample, for an input of ``shape``."""
        c, h, w = self.convolved(shape)
        return h * w * self.weight.size


@dataclass(frozen=True, kw_only=True, eq=False)
class DenseLayer:
    """Matrix product of the flattened input, bias and optional ReLU.

    The input is in NCHW order.

    Parameters
    ----------
    weight : float array ``[o, i]``
    bias : float array ``[o]``
    relu : bool
    name : str
        The layer's name in the model it came from; the adapter is saved under it.
    """

    weight: np.ndarray
    bias: np.ndarray
    relu: bool = False
    name: str = ""

    def __post_init__(self):
        put = object.__setattr__
        put(self, "weight", _frozen("dense weight", self.weight, 2))
        put(self, "bias", _frozen("dense bias", self.bias, 1))
        put(self, "relu", bool(self.relu))
        _check_bias("dense bias", self.bias, self.weight.shape[0])

    @property
    def parameters(self) -> int:
        return self.weight.size + self.bias.size

    @property
    def outputs(self) -> int:
        return self.weight.shape[0]

    @property
    def inputs(self) -> int:
        return self.weight.shape[1]

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int]:
        """``(outputs,)`` for any input shape with ``inputs`` elements."""
        if prod(shape) != self.inputs:
            raise ValueError(f"input of shape {shape} has {prod(shape)} elements: the weight expects {self.inputs}")
        return (self.outputs,)

    def macs(self, shape: tuple[int, ...]) -> int:
        """Multiply-accumulates a sample."""
        return self.weight.size


@dataclass(frozen=True, kw_only=True, eq=False)
class PixelMap:
    """``scale * p + shift`` of a pixel ``p``, a byte over 255.

    By default it is ``p`` itself.

    The host applies it when it makes words of images, so that zeros that pad the first convolution are zeros of its
    input, as in ONNX.

    Parameters
    ----------
    scale, shift : float arrays that broadcast to an image ``(c, h, w)``
    """

    scale: np.ndarray = field(default_factory=lambda: np.array(1.0))
    shift: np.ndarray = field(default_factory=lambda: np.array(0.0))

    def __post_init__(self):
        for name in ("scale", "shift"):
            array = np.array(getattr(self, name), np.float64)
            if not np.isfinite(array).all():
                raise ValueError(
                    f"{name} of the pixels has {int((~np.isfinite(array)).sum())} values that are NaN or "
                    f"infinite: all must be finite"
                )
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether it maps an image of ``shape`` to one of the same shape."""
        try:
            return np.broadcast_shapes(self.scale.shape, self.shift.shape, shape) == shape
        except ValueError:
            return False

    def then(self, scale: np.ndarray | float, shift: np.ndarray | float) -> "PixelMap":
        """This map, followed by ``scale * x + shift``."""
        return PixelMap(scale=np.asarray(scale * self.scale), shift=np.asarray(scale * self.shift + shift))

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Activations of pixels, ``[..., c, h, w]``, float64.

        The pixels are already divided by 255.
        """
        return np.asarray(values, np.float64) * self.scale + self.shift

    def activations(self, images: np.ndarray) -> np.ndarray:
        """Activations of uint8 images ``[..., c, h, w]``, float64."""
        return self(np.asarray(images, np.float64) / 255)

    def words(self, images: np.ndarray, fmt: Fixed) -> np.ndarray:
        """Activations of uint8 images as words of ``fmt``.

        Images with a word beyond the format are refused: :class:`ValueError` says how many.
        """
        values = self.activations(images)
        nearest = np.rint(values * 2.0**fmt.frac)
        beyond = int(((nearest < fmt.lo) | (nearest > fmt.hi)).sum())
        if beyond:
            raise ValueError(
                f"images: {beyond:,} of {values.size:,} pixels ({100 * beyond / values.size:.2g} %) are outside the "
                f"format of activations, {fmt.lo * fmt.step:g} to {fmt.hi * fmt.step:.6g}, after the network's own "
                f"scaling of its input, up to {float(np.abs(values).max()):.6g}: scale the input less"
            )
        return nearest.astype(np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerNetwork:
    """Layers in a row; the outputs of the last are the logits.

    The last one is a :class:`DenseLayer`. Where it has one output ``z``, it gets a first one that is always 0:
    cross-entropy of ``(0, z)`` is binary cross-entropy of ``z``, and the larger of both is class 1 where ``z`` is above
    0.

    Parameters
    ----------
    name : str
    input_shape : ``(c, h, w)``
    layers : sequence of :class:`ConvLayer` and :class:`DenseLayer`
        Nameless layers are given ``conv1, conv2, …`` and ``fc1, fc2, …``. Names must differ.
    pixel_map : :class:`~PixelMap`
        What makes the first layer's input of an image.

    Attributes
    ----------
    one_logit : bool
        Whether the last layer had one output.
    """

    name: str
    input_shape: tuple[int, int, int]
    layers: tuple[ConvLayer | DenseLayer, ...] = field(repr=False)
    pixel_map: PixelMap = field(default=PixelMap(), repr=False)
    one_logit: bool = field(init=False, default=False)

    def __post_init__(self):
        put = object.__setattr__
        put(self, "input_shape", _ints("input_shape", self.input_shape, 3, 1))
        put(self, "layers", tuple(self.layers))
        if not self.pixel_map.fits(self.input_shape):
            raise ValueError(
                f"pixel_map has arrays of {self.pixel_map.scale.shape} and {self.pixel_map.shift.shape}: "
                f"both must broadcast to an image of {self.input_shape}"
            )
        if not self.layers:
            raise ValueError("layers is empty: a network has at least one layer")
        for index, layer in enumerate(self.layers):
            if not isinstance(layer, (ConvLayer, DenseLayer)):
                raise ValueError(f"layers[{index}] is a {type(layer).__name__}: expected Conv or Dense")
        last = self.layers[-1]
        if not isinstance(last, DenseLayer) or last.relu:
            raise ValueError("the last layer gives the logits: it must be a Dense without ReLU")
        if last.outputs == 1:
            put(self, "one_logit", True)
            weight, bias = (np.concatenate([np.zeros_like(each), each]) for each in (last.weight, last.bias))
            put(self, "layers", (*self.layers[:-1], replace(last, weight=weight, bias=bias)))
        names = self.layer_names
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"layer name {name!r} occurs {names.count(name)} times: names must differ")
        _ = self.shapes  # refuses layers that do not fit each other

    @cached_property
    def layer_names(self) -> tuple[str, ...]:
        """A name for every layer, given or made."""
        given = {layer.name for layer in self.layers}
        names, count = [], {"conv": 0, "fc": 0}
        for layer in self.layers:
            kind = "conv" if isinstance(layer, ConvLayer) else "fc"
            count[kind] += 1
            while not layer.name and f"{kind}{count[kind]}" in given:
                count[kind] += 1
            names.append(layer.name or f"{kind}{count[kind]}")
        return tuple(names)

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shape of every layer's input, and at the end of the logits."""
        shapes: list[tuple[int, ...]] = [self.input_shape]
        for name, layer in zip(self.layer_names, self.layers):
            try:
                shapes.append(layer.output_shape(shapes[-1]))
            except ValueError as error:
                raise ValueError(f"layer {name}: {error}") from None
        return tuple(shapes)

    @cached_property
    def taps(self) -> tuple[int, ...]:
        """Elements of every layer's input, in NCHW order.

        An adapter of that layer has this input.
        """
        return tuple(prod(shape) for shape in self.shapes[:-1])

    @property
    def classes(self) -> int:
        """Number of logits."""
        return self.layers[-1].outputs

    @cached_property
    def parameters(self) -> int:
        """Weights and biases in all."""
        return sum(layer.parameters for layer in self.layers)

    @cached_property
    def layer_macs(self) -> tuple[int, ...]:
        """Multiply-accumulates of every layer's forward pass, a sample."""
        return tuple(layer.macs(shape) for layer, shape in zip(self.layers, self.shapes))

    @property
    def macs(self) -> int:
        """Multiply-accumulates of a forward pass, a sample."""
        return sum(self.layer_macs)

    def adapter_parameters(self, rank: int) -> int:
        """Parameters of direct-to-output adapters of ``rank`` on every layer."""
        return sum(rank * (n + self.classes) for n in self.taps)
