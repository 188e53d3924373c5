"""Networks of images to ONNX, with the adapters of a fine-tune in them.

Each layer's input goes through the codes from which its adapter learnt, and through A and B to the logits. onnxruntime
computes in float32: a value beside a threshold may get the neighbouring code of what float64 gives.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradloom.rtl.formats.codebook import NF4

from .network import ConvLayer, DenseLayer, LayerNetwork

__all__ = ["NetworkGraph", "network_onnx"]

_OPSET, _IR = 18, 8
_BLOCK = 64
#: Largest code of 8 bits.
_INT8 = 127


def network_onnx(
    network: LayerNetwork, adapters: Sequence[tuple[np.ndarray, np.ndarray]] | None = None, codes: str = "none"
) -> bytes:
    """The ONNX file of a network, opset 18, in float32.

    Input ``pixels [n, c, h, w]``: bytes over 255. Output ``logits [n, classes]``; a network of one logit has two of
    them, the first 0. ``adapters``: ``(A [rank, size], B [classes, rank])`` of every layer, B with the scale in it;
    ``codes``: what they see inputs through, ``nf4``, ``int8`` or ``none``.
    """
    import onnx

    graph = NetworkGraph(onnx)
    graph.network(network, adapters, codes)
    helper = onnx.helper
    made = helper.make_model(
        helper.make_graph(
            graph.nodes,
            network.name,
            [helper.make_tensor_value_info("pixels", onnx.TensorProto.FLOAT, ["n", *network.input_shape])],
            [helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, ["n", network.classes])],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR,
        producer_name="gradloom",
    )
    onnx.checker.check_model(made, full_check=True)
    return bytes(made.SerializeToString(deterministic=True))


class NetworkGraph:
    """Nodes and constants of a graph in the making."""

    def __init__(self, onnx: Any) -> None:
        self.helper, self.to_tensor = onnx.helper, onnx.numpy_helper.from_array
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._held: set[str] = set()

    def constant(self, name: str, value: Any, dtype: Any = np.float32) -> str:
        """A constant, which is there once by its name."""
        if name not in self._held:
            self._held.add(name)
            self.constants.append(self.to_tensor(np.ascontiguousarray(value, dtype), name))
        return name

    def add(self, kind: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        """A node, by its output's name."""
        self.nodes.append(self.helper.make_node(kind, list(inputs), [output], name=f"{kind}_{output}", **attributes))
        return output

    def network(
        self,
        network: LayerNetwork,
        adapters: Sequence[tuple[np.ndarray, np.ndarray]] | None,
        codes: str,
        x: str = "pixels",
    ) -> None:
        """The base network on ``x``, and the sum of its logits and the adapters', ``logits``."""
        ends = []
        if (network.pixel_map.scale != 1).any():
            x = self.add("Mul", [x, self.constant("pixel_scale", network.pixel_map.scale)], "scaled")
        if network.pixel_map.shift.any():
            x = self.add("Add", [x, self.constant("pixel_shift", network.pixel_map.shift)], "shifted")
        for at, (name, layer) in enumerate(zip(network.layer_names, network.layers)):
            if adapters is not None:
                ends.append(self._adapter(x, f"adapter_{name}", network.taps[at], adapters[at], codes))
            x = self._layer(x, name, layer)
        if ends:
            self.add("Sum", [x, *ends], "logits")
        else:
            self.add("Identity", [x], "logits")

    def _layer(self, x: str, name: str, layer: ConvLayer | DenseLayer) -> str:
        weights = [self.constant(f"{name}.weight", layer.weight), self.constant(f"{name}.bias", layer.bias)]
        if isinstance(layer, DenseLayer):
            x = self.add("Gemm", [self.add("Flatten", [x], f"{name}_flat"), *weights], f"{name}_sum", transB=1)
        else:
            x = self.add("Conv", [x, *weights], f"{name}_sum", strides=layer.stride, pads=layer.pads)
            if layer.pool > 1:
                sides = [layer.pool, layer.pool]
                x = self.add("MaxPool", [x], f"{name}_pooled", kernel_shape=sides, strides=sides)
        return self.add("Relu", [x], f"{name}_relu") if layer.relu else x

    def _adapter(self, x: str, name: str, size: int, adapter: tuple[np.ndarray, np.ndarray], codes: str) -> str:
        x = self.add("Flatten", [x], f"{name}_flat")
        if codes != "none":
            x = self._coded(x, name, size, codes)
        for which, matrix in zip("AB", adapter):
            x = self.add("MatMul", [x, self.constant(f"{name}.{which}", matrix.T)], f"{name}_{which}")
        return x

    def _coded(self, x: str, name: str, size: int, codes: str) -> str:
        """``[n, size]`` through codes in blocks of 64, and back."""
        short = -size % _BLOCK
        if short:
            x = self.add("Pad", [x, self.constant(f"{name}_short", [0, 0, 0, short], np.int64)], f"{name}_padded")
        blocks = self.constant(f"{name}_blocks", [0, (size + short) // _BLOCK, _BLOCK], np.int64)
        x = self.add("Reshape", [x, blocks], f"{name}_cut")
        last = self.constant("last_axis", [-1], np.int64)
        absmax = self.add("ReduceMax", [self.add("Abs", [x], f"{name}_abs"), last], f"{name}_absmax", keepdims=1)
        zero = self.add("Equal", [absmax, self.constant("zero", 0)], f"{name}_zero")
        divisor = self.add("Where", [zero, self.constant("one", 1), absmax], f"{name}_divisor")
        x = self.add("Div", [x, divisor], f"{name}_unit")
        if codes == "int8":
            most = self.constant("int8_most", _INT8)
            x = self.add("Round", [self.add("Mul", [x, most], f"{name}_steps")], f"{name}_code")
            x = self.add("Mul", [x, self.add("Div", [absmax, most], f"{name}_step")], f"{name}_decoded")
        else:
            x = self.add("Unsqueeze", [x, last], f"{name}_apart")
            # A code is the number of thresholds below the value.
            x = self.add("Greater", [x, self.constant("nf4_thresholds", NF4.thresholds)], f"{name}_above")
            x = self.add("Cast", [x], f"{name}_ones", to=self.helper.TensorProto.INT32)
            x = self.add("ReduceSum", [x, last], f"{name}_code", keepdims=0)
            x = self.add("Gather", [self.constant("nf4_levels", NF4.levels), x], f"{name}_level")
            x = self.add("Mul", [x, absmax], f"{name}_decoded")
        x = self.add("Flatten", [x], f"{name}_row")
        if not short:
            return x
        bounds = [self.constant(f"{name}_{end}", [value], np.int64) for end, value in (("start", 0), ("end", size))]
        return self.add("Slice", [x, *bounds, self.constant("row_axis", [1], np.int64)], f"{name}_seen")
