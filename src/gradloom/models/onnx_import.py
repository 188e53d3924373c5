"""Imports ONNX files by PyTorch's old and new exporters."""

from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np

from .files.onnx_file import RefusedNode, read_onnx
from .files.onnx_graph import Node
from .network import DenseLayer, LayerNetwork, PixelMap
from .onnx_chain import NO_PADS, Chain
from .onnx_operators import HANDLERS, LAYOUT

__all__ = ["load_onnx", "load_pretrained", "shipped_networks"]

#: What to do about operators that are refused.
_HINTS = {
    "Clip": "(ReLU6 or a hard activation) is not supported: the machine's activation is ReLU alone; train the network "
    "with ReLU",
    "ArgMax": "is not supported: end the network with its logits",
}
_SUPPORTED = ", ".join((*HANDLERS, "Identity", "Dropout"))


def load_onnx(path: str | Path, *, input_shape: tuple[int, int, int] | None = None) -> LayerNetwork:
    """The network in the file ``path``.

    Its external data are read too, where it has any.

    Add, Sub, Mul, Div and BatchNormalization are folded into the layer before them; before the first layer they become
    the network's ``pixel_map``. Dropout, Identity, and changes of the layout vanish. A Softmax or LogSoftmax at the end
    is left out, a Sigmoid behind one logit too: the loss is computed from the logits. A node that cannot become a part
    of a :class:`LayerNetwork` is a :class:`ValueError` that names the node and its operator.

    The images are ``[channels, height, width]``, also where the file's own input is channels-last and a Transpose
    begins the network.

    Parameters
    ----------
    input_shape : ``(c, h, w)``
        Of the images, for a network whose input is flat (``[batch, n]``). By default the first convolution's; without
        one a square image of one channel where ``n`` is a square, else one row.
    """
    path = Path(path)
    model = read_onnx(path)
    try:
        with np.errstate(all="ignore"):  # what is not finite is refused by the layers
            return _network(Chain(model, path.stem, input_shape))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _network(chain: Chain) -> LayerNetwork:
    chain.graph.each(lambda node: _read(chain, node))
    if chain.graph.outputs != [chain.tensor] or not chain.drafts:
        raise ValueError(f"output {chain.graph.outputs[0]!r} is not computed from the input by any layer")
    if chain.pads != NO_PADS:
        raise ValueError(f"{chain.label}: no Conv follows it: a Pad is supported right before one only")
    last = chain.drafts[-1].layer
    if not isinstance(last, DenseLayer) or last.relu:
        raise ValueError(
            f"{chain.label}: the network ends here: its last layer gives the logits, it must be a Dense (Gemm or "
            "MatMul) without ReLU"
        )
    if chain.given is not None and tuple(chain.given) != chain.image:
        raise ValueError(f"input_shape={tuple(chain.given)}: the network takes images of {chain.image}")
    layers, seen = [], set()
    for draft in chain.drafts:
        name = draft.layer.name
        if name and name in seen:
            name = next(f"{name}_{i}" for i in range(2, len(chain.drafts) + 2) if f"{name}_{i}" not in seen)
        seen.add(name)
        layers.append(replace(draft.layer, name=name))
    pixels = PixelMap(
        **{
            name: value if value.ndim == 0 else value.reshape(chain.image)
            for name, value in (("scale", chain.pixel_map.scale), ("shift", chain.pixel_map.shift))
        }
    )
    c, h, w = chain.image
    return LayerNetwork(name=chain.name, input_shape=(c, h, w), layers=tuple(layers), pixel_map=pixels)


def _read(chain: Chain, node: Node) -> None:
    handle = HANDLERS.get(node.kind)
    if node.domain:
        raise RefusedNode(f"operators of {node.domain!r} are not supported; supported are {_SUPPORTED}")
    if handle is None:
        hint = _HINTS.get(node.kind, f"is not supported; supported are {_SUPPORTED}")
        raise RefusedNode(f"operator {node.kind} {hint}")
    moving = [name for name in filter(None, node.inputs) if name not in chain.graph.constants]
    if moving != [chain.tensor]:
        raise RefusedNode(
            f"it takes {', '.join(map(repr, moving)) or 'constants only'}, where the chain of layers "
            f"ends at {chain.tensor!r}: branches are not supported"
        )
    if chain.end and node.kind not in LAYOUT:
        raise RefusedNode(f"it follows {chain.end}: only changes of the shape are supported there")
    if chain.pads != NO_PADS and node.kind != "Conv":
        raise RefusedNode("it follows a Pad, which is supported right before a Conv only")
    handle(chain, node)
    chain.tensor, chain.label = node.outputs[0], node.label
    if chain.pads == NO_PADS:
        chain.shape = chain.result(node)
        if prod(chain.shape) != prod(chain.own):
            raise RefusedNode(f"its result has shape {list(chain.shape)}: the layer gives {list(chain.own)}")


def shipped_networks() -> dict[str, Path]:
    """Files of the base networks in the package, by name."""
    return {name: Path(__file__).parent / "data" / f"{name}.onnx" for name in ("lenet5", "digits")}


def load_pretrained(name: str = "lenet5") -> LayerNetwork:
    """A base network in the package, trained on upright digits.

    It is LeNet-5, or ``digits`` for images of 8 x 8.
    """
    return load_onnx(shipped_networks()[name])
