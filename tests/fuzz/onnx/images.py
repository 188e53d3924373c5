"""Image networks as exporters write them: the same layers in many forms, and some that mean something else."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .runtime import gamma, runtime

__all__ = ["Drawn", "draw", "error_of"]


@dataclass
class Drawn:
    """A network. ``harmful``: what in it means something that a network of layers in a row cannot; "" of none."""

    model: onnx.ModelProto
    x: np.ndarray  # samples as the model takes them
    images: np.ndarray  # the same, channels first
    harmful: str
    tail: str  # Softmax, LogSoftmax, Sigmoid or ""
    roundings: int  # from the input to a logit, at most


def draw(seed: int) -> Drawn:
    """The same for the same seed."""
    return _Maker(seed, absolute=False).network()


def error_of(seed: int, drawn: Drawn) -> np.ndarray:
    """How far float32 may take each logit from the exact one.

    A logit is a sum of products, each with no more roundings than lie on its way. In the same network of absolute
    values it is the sum of their magnitudes. ReLU and max-pool carry no error further than it is.
    """
    return gamma(drawn.roundings) * runtime(_Maker(seed, absolute=True).network().model, np.abs(drawn.x)) + 1e-30


class _Maker:
    """Nodes of a chain: each call appends one.

    ``absolute``: all constants are positive, and nothing is subtracted.
    """

    def __init__(self, seed: int, absolute: bool) -> None:
        self.rng = np.random.default_rng([seed, 46])
        self.seed, self.absolute = seed, absolute
        self.opset = int(self.rng.integers(7, 26))
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.listed: list[Any] = []
        self.roundings = 0
        self.count = 0
        self.tensor, self.shape = "image", ()
        self.linear = False
        self.harmful = ""

    # -- drawing ------------------------------------------------------------------------------------------------------

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def one_of(self, *choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def normal(self, *shape: int, scale: float = 1.0) -> np.ndarray:
        return (self.rng.standard_normal(shape) * scale).astype(np.float32)

    # -- nodes --------------------------------------------------------------------------------------------------------

    def name(self, what: str = "t") -> str:
        self.count += 1
        return f"{what}{self.count}"

    def node(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        names = [self.name() for _ in range(outputs)]
        label = self.name(kind) if self.chance(0.8) else ""
        self.nodes.append(helper.make_node(kind, list(inputs), names, name=label, **attributes))
        return names[0]

    def chain(self, kind: str, *constants: str, first: Sequence[str] = (), **attributes: Any) -> None:
        self.tensor = self.node(kind, *first, self.tensor, *constants, **attributes)

    def constant(self, array: Any, sign: int = 1) -> str:
        """A constant in one of the forms that files have it in; ``sign`` of it in absolute values."""
        array = np.asarray(array)
        if self.absolute and array.dtype.kind == "f" and sign:
            array = np.abs(array) * np.float32(sign)
        form = self.one_of("initializer", "initializer", "input", "Constant", "short", "Identity", "computed")
        if form == "computed" and array.dtype.kind == "f":
            inner, half = self.constant(array * np.float32(0.5), 0), self.constant(np.float32(2), 0)
            return self.node("Mul", inner, half)
        if form == "Identity":
            return self.node("Identity", self.constant(array, 0))
        if form == "short" and self.opset >= 12 and array.ndim <= 1 and array.dtype.kind != "b":
            kind = "float" if array.dtype.kind == "f" else "int"
            value = array.item() if array.ndim == 0 else array.tolist()
            return self.node("Constant", **{f"value_{kind}{'s' if array.ndim else ''}": value})
        name = self.name("w")
        if form == "Constant":
            return self.node("Constant", value=numpy_helper.from_array(array, name))
        self.weights.append(numpy_helper.from_array(array, name))
        if form == "input":  # as files before IR 4 have it
            self.listed.append(helper.make_tensor_value_info(name, self.weights[-1].data_type, array.shape))
        return name

    def integers(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def axes(self, kind: str, tensor: str, axes: Sequence[int]) -> str:
        """Squeeze or Unsqueeze."""
        if self.opset < 13:
            return self.node(kind, tensor, axes=list(axes))
        return self.node(kind, tensor, self.integers(*axes))

    # -- what changes nothing ------------------------------------------------------------------------------------------

    def noise(self) -> None:
        """A node, or a few, that exporters leave in a network."""
        while self.chance(0.3):
            self.one_of(self._identity, self._dropout, self._dead, self._same_shape, self._there_and_back)()

    def _identity(self) -> None:
        self.chain("Identity")

    def _dropout(self) -> None:
        if self.opset < 12:
            self.chain("Dropout", ratio=0.25)
        elif self.chance(0.5):
            self.chain("Dropout")
        else:
            self.chain("Dropout", self.constant(np.float32(0.5)), self.constant(np.array(False)))

    def _dead(self) -> None:
        dead = self.node(self.one_of("Sigmoid", "Identity", "Tanh", "Shape"), self.tensor)
        if self.chance(0.5):
            self.node("Identity", dead)

    def _same_shape(self) -> None:
        self.chain("Reshape", self.node("Shape", self.tensor))

    def _there_and_back(self) -> None:
        if self.chance(0.5):
            self.tensor = self.axes("Unsqueeze", self.tensor, [1])
            self.tensor = self.axes("Squeeze", self.tensor, [1])
        else:
            there = [0, *(1 + int(each) for each in self.rng.permutation(len(self.shape)))]
            self.chain("Transpose", perm=there)
            self.chain("Transpose", perm=np.argsort(there).tolist())

    def reshape(self, *shape: int) -> None:
        """To samples of a shape, by one of the ways to say it."""
        whole, batch = prod(self.shape), self.batch
        forms: list[Callable[[], None]] = [
            lambda: self.chain("Reshape", self.integers(-1, *shape)),
            lambda: self.chain("Reshape", self.integers(0, *shape[:-1], -1)),
            lambda: self.chain("Reshape", self._computed(shape)),
        ]
        if isinstance(batch, int):
            forms.append(lambda: self.chain("Reshape", self.integers(batch, *shape[:-1], -1)))
        if shape == (whole,):
            forms += [lambda: self.chain("Flatten", **({"axis": 1} if self.chance(0.5) else {}))] * 2
            if self.opset >= 11:
                forms.append(lambda: self.chain("Flatten", axis=-len(self.shape)))
        self.one_of(*forms)()
        self.shape = shape

    def _computed(self, shape: Sequence[int]) -> str:
        """``x.view(x.shape[0], -1)``."""
        size = self.node("Shape", self.one_of(self.tensor, "image"))
        first = self.node("Gather", size, self.constant(np.int64(0)))
        return self.node("Concat", self.axes("Unsqueeze", first, [0]), self.integers(*shape[:-1], -1), axis=0)

    # -- layers -------------------------------------------------------------------------------------------------------

    def arithmetic(self, per: Sequence[tuple[int, ...]]) -> None:
        """Scale or shift by a constant of one of the shapes ``per``."""
        kind = self.one_of("Add", "Sub", "Mul", "Div")
        value = np.asarray(self.normal(*self.one_of((), (1,), *per)), np.float32)
        if kind in ("Mul", "Div"):
            value = np.where(value < 0, value - 0.5, value + 0.5).astype(np.float32)
        name, first = self.constant(value), self.chance(0.3) and kind != "Div"
        kind = "Add" if self.absolute and kind == "Sub" else kind
        if first:
            self.chain(kind, first=[name])
        else:
            self.chain(kind, name)
        self.roundings += 1

    def batch_norm(self) -> None:
        channels = self.shape[0]
        parts = [
            self.constant(self.normal(channels)),
            self.constant(self.normal(channels)),
            self.constant(self.normal(channels), -1),
            self.constant(np.abs(self.normal(channels)) + np.float32(0.25)),
        ]
        attributes = {"epsilon": 1e-3} if self.chance(0.5) else {"epsilon": 1e-5, "momentum": 0.9}
        self.chain("BatchNormalization", *parts, **attributes)
        self.roundings += 8

    def scaled(self) -> None:
        while self.chance(0.35):
            channels = self.shape[0]
            behind = (1,) * (len(self.shape) - 1)
            if self.chance(0.4) and len(self.shape) in (1, 3):
                self.batch_norm()
            else:
                self.arithmetic([(channels, *behind), (1, channels, *behind)])
            self.noise()

    def conv(self) -> None:
        c, h, w = self.shape
        kernel = [int(self.rng.integers(1, min(side, 4) + 1)) for side in (h, w)]
        stride = [1, 1] if self.chance(0.6) else [int(each) for each in self.rng.integers(1, 3, 2)]
        outputs = int(self.rng.integers(1, 6))
        attributes: dict[str, Any] = {}
        if stride != [1, 1] or self.chance(0.5):
            attributes["strides"] = stride
        if self.chance(0.5):
            attributes |= {"kernel_shape": kernel}
        if self.chance(0.3):
            attributes |= {"dilations": [1, 1], "group": 1}
        pads = [0] * 4
        how = self.one_of("none", "pads", "pads", "auto", "Pad", "both")
        room = [int(self.rng.integers(0, kernel[at % 2])) for at in range(4)]
        if how in ("Pad", "both"):
            before = room if how == "Pad" else [each // 2 for each in room]
            self.pad(before)
            pads = list(before)
            if how == "both":
                attributes["pads"] = [each - each // 2 for each in room]
                pads = room
        elif how == "pads":
            attributes["pads"] = pads = room
        elif how == "auto":
            attributes["auto_pad"] = self.one_of("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET")
            if attributes["auto_pad"].startswith("SAME"):
                total = [max((-(-s // t) - 1) * t + k - s, 0) for s, k, t in zip((h, w), kernel, stride)]
                pads = [0, 0, *total]  # only the sums matter for the shape
        fan = c * prod(kernel)
        inputs = [self.constant(self.normal(outputs, c, *kernel, scale=fan**-0.5))]
        if self.chance(0.7):
            inputs.append(self.constant(self.normal(outputs)))
        self.chain("Conv", *inputs, **attributes)
        self.roundings += fan + 2
        sides = [(s + pads[at] + pads[at + 2] - kernel[at]) // stride[at] + 1 for at, s in enumerate((h, w))]
        self.shape = (outputs, *sides)

    def pad(self, sides: Sequence[int]) -> None:
        pads = [0, 0, *sides[:2], 0, 0, *sides[2:]]
        if self.opset < 11:
            self.chain("Pad", pads=pads, **({"mode": "constant"} if self.chance(0.5) else {"value": 0.0}))
        elif self.opset >= 18 and self.chance(0.5):
            self.chain("Pad", self.integers(*sides), self.constant(np.float32(0)), self.integers(2, -1))
        else:
            self.chain("Pad", self.integers(*pads), *([self.constant(np.float32(0))] if self.chance(0.5) else []))

    def pool(self) -> None:
        _, h, w = self.shape
        k = int(self.rng.integers(1, min(h, w, 3) + 1))
        attributes: dict[str, Any] = {"kernel_shape": [k, k], "strides": [k, k]}
        if self.chance(0.3):
            attributes["auto_pad"] = "VALID"
        elif self.chance(0.5):
            attributes["pads"] = [0] * 4
        if self.opset >= 10 and self.chance(0.3):
            attributes |= {"ceil_mode": 0, "dilations": [1, 1]}
        self.chain("MaxPool", **attributes)
        self.shape = (self.shape[0], h // k, w // k)

    def dense(self, outputs: int) -> None:
        (n,) = self.shape
        weight, bias = self.normal(outputs, n, scale=n**-0.5), self.normal(outputs)
        if self.chance(0.3):
            self.chain("MatMul", self.constant(np.ascontiguousarray(weight.T)))
            self.noise()
            if self.chance(0.8):
                name = self.constant(bias)
                self.chain("Add", name) if self.chance(0.7) else self.chain("Add", first=[name])
            self.roundings += n + 2
        else:
            attributes: dict[str, Any] = {}
            if self.chance(0.7):
                attributes["transB"] = 1
            else:
                weight = np.ascontiguousarray(weight.T)
            if self.chance(0.4):
                attributes |= {"alpha": self.one_of(0.5, 1.0, 1.7), "beta": self.one_of(0.25, 1.0, 3.0)}
            c = self.one_of(bias, bias, bias[None], bias[:1])
            needs = self.opset < 11 or self.chance(0.8)
            self.chain("Gemm", self.constant(weight), *([self.constant(c)] if needs else []), **attributes)
            self.roundings += n + 4
        self.shape = (outputs,)

    # -- what means something else -----------------------------------------------------------------------------------

    def spoil(self, place: str) -> None:
        """Something that no network of layers in a row does, or that looks so."""
        if self.place != place or self.harmful:
            return
        channels, rank = self.shape[0], len(self.shape) + 1
        plain = {"strides": [1, 1]}
        choices: dict[str, Callable[[], None]] = {
            "Clip": lambda: (
                self.chain("Clip", min=0.0, max=6.0)
                if self.opset < 11
                else self.chain("Clip", self.constant(np.float32(0)), self.constant(np.float32(6)))
            ),
            "LeakyRelu": lambda: self.chain("LeakyRelu", alpha=0.1),
            "Sigmoid": lambda: self.chain("Sigmoid"),
            "Softmax": lambda: self.chain("Softmax", axis=rank - 1),
            "branch": lambda: self.chain("Add", self.node("Sigmoid", self.tensor)),
            "twice": lambda: self.chain("Add", self.tensor),
            "over the batch": lambda: self.chain("Softmax", axis=0),
            "own divisor": lambda: self.chain("Div", first=[self.constant(np.float32(2))]),
            "NaN": lambda: self.chain("Mul", self.constant(np.float32(np.nan))),
            "zero": lambda: self.chain("Div", self.constant(np.float32(0))),
            "attribute": lambda: self.chain("Relu", slope=0.1),
            "Relu, then scale": lambda: (self.chain("Relu"), self.chain("Mul", self.constant(np.float32(-2))))[0],
            "elements": lambda: self.chain("Mul", self.constant(self.normal(*self.shape))),
            "size": lambda: self.chain("Mul", self.node("Cast", self.node("Shape", self.tensor), to=TensorProto.FLOAT)),
            "training": lambda: (
                self.chain("Dropout", self.constant(np.float32(0.5)), self.constant(np.array(True)))
                if self.opset >= 12
                else self.chain("Clip", min=-1.0)
            ),
        }
        if rank == 4 and self.shape[1:] != (1, 1):
            _, h, w = self.shape
            small = {"kernel_shape": [min(h, 2), min(w, 2)]} | plain
            depthwise = self.normal(channels, 1, 1, 1)
            choices |= {
                "group": lambda: self.chain("Conv", self.constant(depthwise), group=channels),
                "AveragePool": lambda: self.chain("AveragePool", **small),
                "GlobalAveragePool": lambda: self.chain("GlobalAveragePool"),
                "overlap": lambda: self.chain("MaxPool", **small),
                "padded pool": lambda: self.chain(
                    "MaxPool", kernel_shape=[2, 2], strides=[2, 2], pads=[1, 0, 1, 0], **({} if h > 1 else {})
                ),
                "Pad with 1": lambda: (
                    self.chain("Pad", pads=[0, 0, 1, 0, 0, 0, 0, 0], value=1.0)
                    if self.opset < 11
                    else self.chain("Pad", self.integers(0, 0, 1, 0, 0, 0, 0, 0), self.constant(np.float32(1)))
                ),
                "dilations": lambda: self.chain(
                    "Conv", self.constant(self.normal(2, channels, min(h, 2), 1)), dilations=[min(h, 2), 1]
                ),
                "axes": lambda: self.chain("Transpose", perm=[0, 1, 3, 2]),
                "batch": lambda: self.chain("Transpose", perm=[1, 0, 2, 3]),
                "columns": lambda: self.chain("Mul", self.constant(self.normal(w))),
            }
        if place == "last":  # there they are harmless
            for kind in ("Softmax", *(["Sigmoid"] if self.shape == (1,) else [])):
                del choices[kind]
        kind = sorted(choices)[self.seed % len(choices)]  # each in turn
        choices[kind]()
        if kind == "axes":
            self.shape = (channels, self.shape[2], self.shape[1])
        self.harmful = kind

    # -- the whole ----------------------------------------------------------------------------------------------------

    def network(self) -> Drawn:
        rng = self.rng
        self.place = self.one_of("", "", "", "input", "layer", "last")
        sizes: tuple[int, int, int] = (int(rng.integers(1, 4)), int(rng.integers(4, 9)), int(rng.integers(4, 9)))
        self.batch: int | str = self.one_of("n", "n", 1, 2)
        form = self.one_of("image", "image", "image", "channels last", "flat", "gray", "rows")
        if form in ("gray", "rows"):
            sizes = (1, *sizes[1:])
        images = rng.random((4, *sizes), np.float32)
        x = {
            "image": images,
            "channels last": images.transpose(0, 2, 3, 1),
            "flat": images.reshape(4, -1),
            "gray": images[:, 0, ..., None],
            "rows": images[:, 0],
        }[form]
        self.shape = x.shape[1:]
        asked = self.shape
        self.noise()
        while self.chance(0.3):  # scaled pixels, in the graph's own layout
            self.arithmetic([self.shape, (*self.shape[:-1], 1), self.shape[-1:]])
            self.noise()
        if form == "channels last":
            self.chain("Transpose", perm=[0, 3, 1, 2])
            self.shape = sizes
        elif form != "image":
            self.reshape(*sizes)
        self.spoil("input")
        self.noise()
        convs = int(rng.integers(0, 4)) or form != "image"
        for _ in range(convs):
            self.layer(self.conv)
        if self.chance(0.3):  # as Keras flattens
            self.chain("Transpose", perm=[0, 2, 3, 1])
            self.shape = (*self.shape[1:], self.shape[0])
            if self.linear and self.chance(0.5):
                self.arithmetic([self.shape[-1:]])
        self.reshape(prod(self.shape))
        self.noise()
        for _ in range(int(rng.integers(0, 3))):
            self.layer(lambda: self.dense(int(rng.integers(1, 12))), pools=False)
        classes = self.one_of(1, 2, 3, 7)
        self.dense(classes)
        self.noise()
        self.scaled()
        self.spoil("last")
        tail = self.one_of("", "", "Sigmoid") if classes == 1 else self.one_of("", "", "Softmax", "LogSoftmax")
        several = self.chance(0.04) and not self.place
        axis = {"axis": self.one_of(1, -1)} if "max" in tail and self.opset >= 13 else {}
        if tail and not self.absolute:
            self.chain(tail, **axis)
        outputs = [self.tensor]
        if several:
            outputs.append(self.node("Identity", self.nodes[0].output[0]))
            self.harmful = "outputs"
        return Drawn(
            self.model(outputs, asked), np.ascontiguousarray(x), images, self.harmful, tail, self.roundings + 8
        )

    def layer(self, make: Callable[[], None], pools: bool = True) -> None:
        make()
        self.noise()
        self.scaled()
        self.spoil("layer")
        steps = self.one_of("rp", "pr", "r", "p", "") if pools else self.one_of("r", "")
        self.linear = not steps
        for step in steps:
            turned = step == "r" and len(self.shape) == 3 and self.chance(0.2)
            if turned:
                self.chain("Transpose", perm=[0, 2, 3, 1])
            if step == "r":
                self.chain("Relu")
            else:
                self.pool()
            if turned:
                self.chain("Transpose", perm=[0, 3, 1, 2])
            self.noise()

    def model(self, outputs: Sequence[str], asked: Sequence[int]) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "drawn",
            [helper.make_tensor_value_info("image", TensorProto.FLOAT, [self.batch, *asked]), *self.listed],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
            self.weights,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=9)
