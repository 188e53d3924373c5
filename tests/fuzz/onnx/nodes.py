"""Nodes and constants of a made-up ONNX file, in all their forms."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

__all__ = ["Nodes"]

_OPSETS = (7, 9, 11, 12, 13, 15, 17, 18, 20, 22)


class Nodes:
    """Nodes as they are made; ``seed`` decides the opset and every form."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.opset = int(self.rng.choice(_OPSETS))
        self.nodes: list[Any] = []
        self.held: list[Any] = []
        self.count = 0

    def one(self, *choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def name(self, kind: str = "v") -> str:
        self.count += 1
        return f"{kind}{self.count}"

    def node(self, kind: str, inputs: Sequence[str], **attributes: Any) -> str:
        made = self.sizes(kind, inputs, **attributes)
        roll = self.rng.random()
        if roll < 0.06:
            self.nodes.append(helper.make_node("Softsign", [made], [self.name("dead")]))
        elif roll < 0.12:
            made = self.again("Identity", made)
        elif roll < 0.15:
            made = self.again("Dropout", made)
        return made

    def sizes(self, kind: str, inputs: Sequence[str], **attributes: Any) -> str:
        """A node, and no other one behind it, which numbers of integers would not go through."""
        made = self.name(kind.lower())
        self.nodes.append(helper.make_node(kind, list(inputs), [made], **attributes))
        return made

    def again(self, kind: str, value: str) -> str:
        made = self.name("same")
        self.nodes.append(helper.make_node(kind, [value], [made]))
        return made

    def held_as(self, value: Any) -> str:
        array, name = np.asarray(value), self.name("k")
        forms = ["initializer", "initializer", "constant", "identity"]
        if self.opset >= 12 and array.ndim < 2 and array.dtype in (np.int64, np.float32):
            forms.append("list")
        form = self.one(*forms)
        if form in ("initializer", "identity"):
            self.held.append(numpy_helper.from_array(array, name))
            return self.again("Identity", name) if form == "identity" else name
        given: dict[str, Any] = {"value": numpy_helper.from_array(array, name)}
        if form == "list":
            kind = "float" if array.dtype.kind == "f" else "int"
            given = {f"value_{kind}s": array.tolist()} if array.ndim else {f"value_{kind}": array.item()}
        self.nodes.append(helper.make_node("Constant", [], [name], **given))
        return name

    def weights(self, *shape: int, scale: float = 0.6) -> np.ndarray:
        return (scale * self.rng.standard_normal(shape)).astype(np.float32)

    def axes(self, kind: str, value: str, axes: list[int], newer: int = 13, **more: Any) -> str:
        if self.opset >= newer:
            return self.node(kind, [value, self.held_as(np.array(axes, np.int64))], **more)
        return self.node(kind, [value], axes=axes, **more)

    def slice(self, value: str, axis: int, start: int, end: int) -> str:
        if self.opset < 10:
            return self.node("Slice", [value], starts=[start], ends=[end], axes=[axis])
        return self.node("Slice", [value, *(self.held_as(np.array([each])) for each in (start, end, axis))])

    def size_of(self, value: str, axis: int) -> str:
        """As PyTorch asks for it: a vector of one size."""
        size = self.sizes("Gather", [self.sizes("Shape", [value]), self.held_as(np.int64(axis))], axis=0)
        if self.opset >= 13:
            return self.sizes("Unsqueeze", [size, self.held_as(np.array([0]))])
        return self.sizes("Unsqueeze", [size], axes=[0])
