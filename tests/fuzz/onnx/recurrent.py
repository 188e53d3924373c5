"""Recurrent networks as exporters write them: the same layers in many forms, and some that mean something else."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .nodes import Nodes

__all__ = ["HARMFUL", "Drawn", "draw"]

_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
#: What makes a network another one than layers in a row.
HARMFUL = (
    "clip",
    "coupled",
    "lengths",
    "peepholes",
    "start",
    "activations",
    "reverse",
    "states added",
    "skip",
    "unknown",
    "two answers",
    "summed",
    "first step",
    "flattened",
    "softmax of sequences",
    "bias of steps",
    "batches for steps",
    "front axes",
)


@dataclass
class Drawn:
    """A network. ``harmful``: what in it is, "" of none. ``order``: axes of its answer, as ``n``, ``t`` and ``c``."""

    model: onnx.ModelProto
    feeds: dict[str, np.ndarray]
    x: np.ndarray
    harmful: str
    order: str
    kind: str
    tail: list[str]


def draw(seed: int, harmful: str = "") -> Drawn:
    """The same for the same seed."""
    return _Maker(seed, harmful).network()


@dataclass
class _Value:
    """A value, and its axes: sequences n, steps t, channels c, directions d."""

    name: str
    axes: str
    width: int
    extra: dict[str, Any] = field(default_factory=dict)


class _Maker(Nodes):
    def __init__(self, seed: int, harmful: str) -> None:
        super().__init__(seed)
        self.harmful = harmful
        self.inputs: list[Any] = []
        self.feeds: dict[str, np.ndarray] = {}
        self.n, self.steps, self.channels = (int(self.rng.integers(*ends)) for ends in ((2, 4), (4, 9), (2, 6)))

    # Layouts

    def to(self, value: _Value, axes: str) -> _Value:
        """``value`` with its axes in another order."""
        if value.axes == axes:
            return value
        order = [value.axes.index(each) for each in axes]
        return _Value(self.node("Transpose", [value.name], perm=order), axes, value.width)

    def dense(self, value: _Value, width: int) -> _Value:
        value = self.to(value, value.axes.replace("c", "") + "c")
        weight, bias = self.weights(value.width, width), self.weights(width, scale=0.3)
        if len(value.axes) == 2 and self.one(True, False):
            turned = self.one(True, False)
            inputs = [value.name, self.held_as(weight.T if turned else weight), self.held_as(bias)]
            made = self.node("Gemm", inputs, alpha=1.0, beta=1.0, transB=int(turned))
            return _Value(made, value.axes, width)
        made = self.node("MatMul", [value.name, self.held_as(weight)])
        if self.one(True, True, False):
            pair = [made, self.held_as(bias)]
            made = self.node("Add", pair if self.one(True, False) else pair[::-1])
        return _Value(made, value.axes, width)

    def normal(self, value: _Value) -> _Value:
        """Numbers of each channel, scaled and shifted."""
        form = self.one("sub div", "mul add", "batch", "rsub")
        one, two = self.weights(value.width), (0.5 + self.rng.random(value.width)).astype(np.float32)
        if form == "batch":
            value = self.to(value, "nct" if "t" in value.axes else "nc")
            held = [two, one, self.weights(value.width), two]
            inputs = [value.name, *map(self.held_as, held)]
            return _Value(self.node("BatchNormalization", inputs, epsilon=0.01), value.axes, value.width)
        value = self.to(value, value.axes.replace("c", "") + "c")
        first, second = [("Sub", one), ("Div", two)] if form == "sub div" else [("Mul", two), ("Add", one)]
        made = value.name
        if form == "rsub":
            made = self.node("Sub", [self.held_as(np.float32(1.5)), made])
        for kind, held in (first, second):
            made = self.node(kind, [made, self.held_as(held)])
        return _Value(made, value.axes, value.width)

    # The network

    def input(self) -> _Value:
        open_batch, open_steps = self.rng.random(2) < 0.5
        if self.harmful in ("bias of steps", "flattened", "front axes"):
            open_steps = False
        order = self.one("ntc", "tnc")
        sizes = {"n": "batch" if open_batch else self.n, "t": "length" if open_steps else self.steps}
        self.fixed = not open_batch, not open_steps
        self.front = self.one(
            "", "", "normal", "dense", "dense relu", "conv", "conv relu pool", "tokens", "normal conv"
        )
        if self.front == "tokens":
            self.x = self.rng.integers(0, 9, (self.n, self.steps))
            self.feeds["x"] = self.x if order == "ntc" else self.x.T
            self.inputs.append(helper.make_tensor_value_info("x", TensorProto.INT64, [sizes[a] for a in order[:2]]))
            table = self.held_as(self.weights(9, self.channels, scale=1.0))
            return _Value(self.node("Gather", [table, "x"]), order, self.channels)
        self.x = self.rng.standard_normal((self.n, self.steps, self.channels)).astype(np.float32)
        self.feeds["x"] = self.x.transpose(["ntc".index(each) for each in order])
        sizes["c"] = self.channels
        self.inputs.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, [sizes[each] for each in order]))
        return _Value("x", order, self.channels)

    def turned(self, value: _Value) -> _Value:
        """Numbers of each step where those of each channel should be."""
        form = self.one("vector", "weights", "batch")
        if form == "batch":
            value = self.to(value, "ntc")
            held = [self.weights(self.steps), self.weights(self.steps), self.weights(self.steps), np.ones(self.steps)]
            inputs = [value.name, *(self.held_as(each.astype(np.float32)) for each in held)]
            return _Value(self.node("BatchNormalization", inputs), "ntc", value.width)
        value = self.to(value, "nct")
        if form == "vector":
            made = self.node("Mul", [value.name, self.held_as(self.weights(self.steps))])
        else:
            made = self.node("MatMul", [value.name, self.held_as(self.weights(self.steps, self.steps))])
        return _Value(made, "nct", value.width)

    def fronts(self, value: _Value) -> _Value:
        if self.harmful == "front axes":
            return self.turned(value)
        for each in self.front.split():
            if each == "normal":
                value = self.normal(value)
            elif each == "dense":
                value = self.dense(value, int(self.rng.integers(2, 6)))
            elif each == "relu":
                value = _Value(self.node("Relu", [value.name]), value.axes, value.width)
            elif each == "conv":
                value, kernel = self.to(value, "nct"), self.one(1, 3)
                width = int(self.rng.integers(2, 6))
                inputs = [value.name, self.held_as(self.weights(width, value.width, kernel))]
                inputs.append(self.held_as(self.weights(width)))
                made = self.node("Conv", inputs, pads=[kernel // 2] * 2, strides=[1], kernel_shape=[kernel])
                value = _Value(made, "nct", width)
            elif each == "pool":
                made = self.node("MaxPool", [value.name], kernel_shape=[2], strides=[1], pads=[0, 1])
                value = _Value(made, "nct", value.width)
        return value

    def start(self, source: str, directions: int, units: int, batch: int) -> str:
        """A start state of zeros; ``batch``: that axis of the source."""
        shape, zero = (directions, self.n, units), np.float32(0.7 if self.harmful == "start" else 0)
        forms = ["none"] if self.harmful != "start" else []
        if self.fixed[0]:
            forms.append("held")
        if self.opset >= 8:
            forms.append("expand")
        if self.opset >= 9:
            forms.append("fill")
        if self.harmful != "start":
            forms.append("input")
        form = self.one(*(forms or ["held"]))
        if form == "none":
            return ""
        if form == "held":
            return self.held_as(np.full(shape, zero))
        if form == "input":
            name = self.name("start")
            sizes = [directions, self.n if self.fixed[0] else "batch", units]
            self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes))
            self.feeds[name] = np.zeros(shape, np.float32)
            return name
        parts = [self.held_as(np.array([directions])), self.size_of(source, batch), self.held_as(np.array([units]))]
        size = self.sizes("Concat", parts, axis=0)
        if form == "fill":
            value = numpy_helper.from_array(np.array([zero], np.float32))
            return self.node("ConstantOfShape", [size], value=value)
        return self.node("Expand", [self.held_as(np.full((1, 1, 1), zero)), size])

    def recurrent(self, value: _Value, units: int) -> _Value:
        """All hidden states; in ``extra`` the names of the last ones."""
        kind, ways = self.kind, self.ways
        value = self.to(value, "tnc")
        rows = _GATES[kind] * units
        # Small enough that an error does not grow from step to step.
        own = [self.weights(ways, rows, n, scale=0.8 / n) for n in (value.width, units)]
        inputs = [value.name, *map(self.held_as, own)]
        inputs.append(self.held_as(self.weights(ways, 2 * rows)) if self.one(True, True, False) else "")
        lengths = np.full(self.n, self.steps - 1, np.int32)
        inputs.append(self.held_as(lengths) if self.harmful == "lengths" else "")
        inputs.append(self.start(value.name, ways, units, 1))
        inputs.append(self.start(value.name, ways, units, 1) if kind == "LSTM" else "")
        if self.harmful == "peepholes":
            inputs.append(self.held_as(self.weights(ways, 3 * units)))
        elif kind == "LSTM" and self.rng.random() < 0.1:
            inputs.append(self.held_as(np.zeros((ways, 3 * units), np.float32)))
        while not inputs[-1]:
            inputs.pop()
        given: dict[str, Any] = {"hidden_size": units}
        if ways == 2 or self.rng.random() < 0.3:
            given["direction"] = "bidirectional" if ways == 2 else "forward"
        if kind == "GRU":
            given["linear_before_reset"] = self.one(0, 1)
        own = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}[kind]
        if self.rng.random() < 0.3:
            given["activations"] = own * ways
        more = {
            "clip": {"clip": 0.3},
            "coupled": {"input_forget": 1},
            "activations": {"activations": [*own[:-1], "Relu"] * ways},
            "reverse": {"direction": "reverse"},
        }
        given |= more.get(self.harmful, {})
        y, last, c = (self.name(each) for each in ("y", "h", "c"))
        outputs = [y, last, c] if kind == "LSTM" else [y, last]
        self.nodes.append(helper.make_node(kind, inputs, outputs, name=self.name(kind), **given))
        if ways == 1 and self.one(True, False):
            flat, axes = self.axes("Squeeze", y, [1]), "tnc"
        else:
            turned = self.node("Transpose", [y], perm=[0, 2, 1, 3])
            flat, axes = self.node("Reshape", [turned, self.held_as(np.array([0, 0, -1]))]), "tnc"
        return _Value(flat, axes, ways * units, {"h": last, "c": c if kind == "LSTM" else last, "units": units})

    def picked(self, value: _Value, layers: list[_Value]) -> _Value:
        """Hidden states that reach the answer."""
        forms = ["gather", "slice", "mean", "max", "all", "pool"] + (
            ["h"] if self.ways == 1 else ["ends", "joined", "way", "part"]
        )
        if len({each.width for each in layers}) == 1 < len(layers):
            forms.append("stacked")
        form = self.one(*forms)
        width = value.width
        if form in ("gather", "slice", "mean", "max", "all") and self.one(True, False):
            value = self.to(value, "ntc")
        at = value.axes.index("t")
        rest = value.axes.replace("t", "")
        if form == "gather":
            index = self.steps - 1 if self.fixed[1] and self.one(True, False) else -1
            return _Value(self.node("Gather", [value.name, self.held_as(np.int64(index))], axis=at), rest, width)
        if form == "slice":
            cut = self.slice(value.name, at, -1, self.one(1 << 31, 1 << 40))
            return _Value(self.axes("Squeeze", cut, [at]), rest, width)
        if form in ("mean", "max"):
            kind = {"mean": "ReduceMean", "max": "ReduceMax"}[form]
            return _Value(self.axes(kind, value.name, [at], newer=18, keepdims=0), rest, width)
        if form == "pool":
            value = self.to(value, "nct")
            made = self.node(self.one("GlobalAveragePool", "GlobalMaxPool"), [value.name])
            return _Value(self.one(self.flat, lambda v: self.axes("Squeeze", v, [2]))(made), "nc", width)
        last = layers[-1].extra["h"]
        if form == "h":
            ways: list[Any] = [
                lambda: self.axes("Squeeze", last, [0]),
                lambda: self.node("Gather", [last, self.held_as(np.int64(self.one(0, -1)))], axis=0),
                lambda: self.node("Reshape", [last, self.held_as(np.array([-1, width]))]),
            ]
            return _Value(self.one(*ways)(), "nc", width)
        if form == "stacked":
            joined = self.node("Concat", [each.extra["h"] for each in layers], axis=0)
            index = self.one(-1, len(layers) * self.ways - 1, *([-2] if self.ways == 2 else []))
            width = width // self.ways
            return _Value(self.node("Gather", [joined, self.held_as(np.int64(index))], axis=0), "nc", width)
        if form == "way":
            width = width // 2
            return _Value(self.node("Gather", [last, self.held_as(np.int64(self.one(0, -1)))], axis=0), "nc", width)
        if form == "part":
            # As PyTorch users take the ends of both directions, or one.
            value, half = self.to(value, "ntc"), width // 2
            made = []
            for index, start in self.one(((-1, 0), (0, half)), ((-1, 0),), ((-1, half),)):
                step = self.node("Gather", [value.name, self.held_as(np.int64(index))], axis=1)
                made.append(self.slice(step, 1, start, self.one(start + half, 1 << 40) if start else half))
            joined = made[0] if len(made) == 1 else self.node("Concat", made, axis=1)
            return _Value(joined, "nc", half * len(made))
        if form == "joined":
            parts = [
                self.node("Gather", [last, self.held_as(np.int64(at))], axis=0) for at in self.one((0, 1), (-2, -1))
            ]
            return _Value(self.node("Concat", parts, axis=self.one(1, -1)), "nc", width)
        if form == "ends":
            turned = self.node("Transpose", [last], perm=[1, 0, 2])
            return _Value(self.flat(turned), "nc", width)
        return value

    def flat(self, value: str) -> str:
        if self.one(True, False):
            return self.node("Flatten", [value], axis=1)
        return self.node("Reshape", [value, self.held_as(np.array([0, -1]))])

    def tail(self, value: _Value) -> _Value:
        self.tailed: list[str] = []
        classes = int(self.rng.integers(1, 5))
        forms = [
            "D",
            "D",
            "D",
            "D sigmoid",
            "D softmax",
            "D log",
            "r D",
            "D r D",
            "t D softmax",
            "N D",
            "D D",
            "s",
            "D clip D",
        ]
        for each in self.one(*forms).split():
            self.tailed.append(each)
            if each == "D":
                value = self.dense(value, classes)
            elif each == "N":
                value = self.normal(value)
            elif each == "clip":
                if self.opset >= 11:
                    ends = [self.held_as(np.float32(end)) for end in (-0.2, 0.4)]
                    made = self.node("Clip", [value.name, *ends])
                else:
                    made = self.node("Clip", [value.name], min=-0.2, max=0.4)
                value = _Value(made, value.axes, value.width)
            elif each in ("softmax", "log"):
                value = self.to(value, value.axes.replace("c", "") + "c")
                axis = self.one(-1, len(value.axes) - 1)
                kind = {"softmax": "Softmax", "log": "LogSoftmax"}[each]
                axis = axis if self.opset >= 11 else len(value.axes) - 1
                value = _Value(self.node(kind, [value.name], axis=axis), value.axes, value.width)
            else:
                kind = {"sigmoid": "Sigmoid", "s": "Sigmoid", "r": "Relu", "t": "Tanh"}[each]
                value = _Value(self.node(kind, [value.name]), value.axes, value.width)
        if "t" in value.axes and self.one(True, False):
            at, self.tailed = value.axes.index("t"), [*self.tailed, "over steps"]
            kind = self.one("ReduceMean", "ReduceMax")
            made = self.axes(kind, value.name, [at], newer=18, keepdims=0)
            value = _Value(made, value.axes.replace("t", ""), value.width)
        return value

    def spoilt(self, value: _Value, all_steps: _Value, layers: list[_Value]) -> _Value:
        """What stands behind the recurrent layers means something else."""
        kind, name, axes, width = self.harmful, value.name, value.axes, value.width
        if kind == "unknown":
            return _Value(self.node(self.one("Softsign", "Exp", "Softplus", "Abs"), [name]), axes, width)
        if kind == "summed":
            value = all_steps
            at = value.axes.index("t")
            made = (
                self.node("ReduceSum", [value.name, self.held_as(np.array([at]))], keepdims=0)
                if self.opset >= 13
                else (self.node("ReduceSum", [value.name], axes=[at], keepdims=0))
            )
            return _Value(made, value.axes.replace("t", ""), value.width)
        if kind == "first step":
            at = all_steps.axes.index("t")
            made = self.node("Gather", [all_steps.name, self.held_as(np.int64(self.one(0, 1, -2)))], axis=at)
            return _Value(made, all_steps.axes.replace("t", ""), all_steps.width)
        if kind == "states added":
            last = layers[-1].extra
            made = self.node("Add", [last["h"], last["c"] if self.kind == "LSTM" else last["h"]])
            return _Value(self.flat(self.node("Transpose", [made], perm=[1, 0, 2])), "nc", width)
        if kind == "flattened":
            value = self.to(all_steps, "ntc")
            made = self.node("Reshape", [value.name, self.held_as(np.array([-1, self.steps * value.width]))])
            return _Value(made, "nc", self.steps * value.width)
        if kind == "softmax of sequences":
            return _Value(self.node("Softmax", [name], axis=axes.index("n")), axes, width)
        if kind == "bias of steps":
            value = self.to(all_steps, "nct")
            made = self.node("Add", [value.name, self.held_as(self.weights(self.steps))])
            made = self.node("GlobalAveragePool", [made])
            return _Value(self.flat(made), "nc", value.width)
        if kind == "batches for steps":
            value = self.to(all_steps, "tnc")
            made = self.node("Gather", [value.name, self.held_as(np.int64(-1))], axis=1)
            return _Value(made, "tc".replace("t", "n"), value.width)
        return value

    def network(self) -> Drawn:
        self.kind, self.ways = self.one(*_GATES), self.one(1, 1, 2)
        if self.harmful in ("coupled", "peepholes"):
            self.kind = "LSTM"
        if self.harmful in ("reverse", "bias of steps"):
            self.ways = 1
        value = self.fronts(self.input())
        seen, layers = value, []
        for number in range(self.one(1, 1, 2, 3)):
            if number and self.rng.random() < 0.25:
                value = self.dense(value, int(self.rng.integers(2, 6)))
            units = self.steps if self.harmful == "bias of steps" else int(self.rng.integers(2, 6))
            value = self.recurrent(value, units)
            layers.append(value)
        every = value
        if self.harmful == "skip":
            value = self.dense(value, seen.width)
            other = self.to(seen, value.axes)
            value = _Value(self.node("Add", [value.name, other.name]), value.axes, value.width)
            every = value
        value = self.spoilt(self.picked(value, layers), every, layers)
        answer = self.tail(value)
        outputs = [answer.name]
        if self.harmful == "two answers":
            outputs.append(self.node("Sigmoid", [self.dense(value, 3).name]))
        elif self.rng.random() < 0.3:
            outputs.append(layers[-1].extra["h"])
        # Nodes of PyTorch's chains may stand in any order of a valid file, and so do these.
        infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        graph = helper.make_graph(self.nodes, "drawn", self.inputs, infos, self.held)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
        return Drawn(model, self.feeds, self.x, self.harmful, answer.axes, self.kind, self.tailed)
