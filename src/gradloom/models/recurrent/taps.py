"""Taps of a recurrent network: what adapters see of a sequence.

Direct-to-output adapters need no backward pass through time: of a sequence they see some sums of codes, once it has
ended. All sums are of codes that the cell makes anyway, so that hardware adds and shifts.
"""

from dataclasses import dataclass
from math import prod

import numpy as np

from gradloom.output import some
from gradloom.rtl.formats.cell import TAP_QUARTERS

from ..network import DenseLayer, LayerNetwork
from .lstm import LstmCell
from .network import Dense as Head
from .network import RecurrentNetwork

__all__ = [
    "NORM",
    "PARTS",
    "QUARTERS",
    "TapPart",
    "TapSums",
    "check_head",
    "own_samples",
    "parts_of",
    "scales_for",
    "tap_channels",
    "tap_network",
]

#: Kinds of parts of the taps, in the order in which a cell has them: last hidden state; of an LSTM, tanh of the last
#: cell state; sum of the hidden states of all steps; of the first cell, sum of the input over each quarter of steps.
#: The input is that of the last convolution; a step has as many samples of it as it goes on by.
PARTS = ("h", "tanh c", "sum of h", "input")
QUARTERS = TAP_QUARTERS
#: Root mean square of a part's norm, which its scale brings it near to.
NORM = 4.0
#: Elements of a row of the array's image; a cell's parts fill whole beats, of so many.
_ROW, _BEAT = 16, 4
#: Fraction bits of an activation; room of a sum.
_FRAC, _MOST_SHIFT = 16, 20


@dataclass(frozen=True, kw_only=True)
class TapPart:
    """A part of the taps.

    ``kind``: of :data:`PARTS`. ``layer``, ``way``: of its cell; the backward direction is way 1. ``size``: elements,
    zeros behind them too. ``name``: its kind, and of several cells the cell.
    """

    kind: str
    layer: int
    way: int
    size: int
    name: str


@dataclass(frozen=True, kw_only=True)
class TapSums:
    """Sizes and scales of the taps.

    Parameters
    ----------
    parts : tuple of TapPart
    shifts : tuple of int
        Of each part: a sum of codes is shifted left by so many bits; then it is an activation of 16 fraction bits.
    """

    parts: tuple[TapPart, ...]
    shifts: tuple[int, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Elements of each part."""
        return tuple(part.size for part in self.parts)

    @property
    def elements(self) -> int:
        """Of all parts."""
        return sum(self.sizes)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of the image that holds them; zeros are behind the last part."""
        return 1, -(-self.elements // _ROW), _ROW

    def part(self, kind: str, layer: int = 0, way: int = 0) -> tuple[slice, int]:
        """Place of a part, and its shift."""
        at = next(n for n, each in enumerate(self.parts) if (each.kind, each.layer, each.way) == (kind, layer, way))
        start = sum(self.sizes[:at])
        return slice(start, start + self.sizes[at]), self.shifts[at]

    def shift_of_each(self) -> np.ndarray:
        """Shift of each element."""
        return np.repeat(self.shifts, self.sizes)


def tap_channels(network: RecurrentNetwork, parallel: int = 1) -> int:
    """Channels of the last convolution's input, or of the network's, filled to a multiple of ``parallel``."""
    own = network.last_conv.inputs if network.last_conv is not None else network.layers[0][0].inputs
    return -(-own // parallel) * parallel


def own_samples(network: RecurrentNetwork) -> tuple[int, int]:
    """First of a step's own samples in its window, and their number."""
    conv = network.last_conv
    if conv is None:
        return 0, 1
    kernel = conv.kernel
    own = min(conv.stride, kernel)
    return min(conv.pads[0], kernel - own), own


def parts_of(network: RecurrentNetwork, parallel: int = 1) -> tuple[TapPart, ...]:
    """The parts, cell by cell from the input on, each layer's backward cell behind its forward one.

    ``parallel``: of the design; sums of each quarter are followed by zeros to a multiple of it.
    """
    found = []
    cells = [
        (layer, way, cell)
        for layer, pair in enumerate(network.layers)
        for way, cell in enumerate(pair)
        if cell is not None
    ]
    for number, (layer, way, cell) in enumerate(cells):
        own = dict.fromkeys(PARTS[:3], cell.units)
        if not isinstance(cell, LstmCell):
            del own["tanh c"]
        if number == 0:
            own["input"] = QUARTERS * tap_channels(network, parallel)
        own[list(own)[-1]] += -sum(own.values()) % _BEAT
        of = f" of layer {layer}" + ", backward" * way if len(cells) > 1 else ""
        found += [TapPart(kind=kind, layer=layer, way=way, size=size, name=kind + of) for kind, size in own.items()]
    return tuple(found)


def scales_for(network: RecurrentNetwork, sums: np.ndarray, parallel: int = 1) -> TapSums:
    """Taps whose scales bring each part's norm near to :data:`NORM`.

    ``sums``: of codes, ``[n, elements]``, of the data that the network was trained on, or of data like it.
    ``parallel``: see :func:`parts_of`.
    """
    parts = parts_of(network, parallel)
    shifts, at = [], 0
    for part in parts:
        norm = float(np.sqrt((sums[:, at : at + part.size].astype(np.float64) ** 2).sum(axis=1).mean()))
        shifts.append(int(np.clip(np.rint(np.log2(NORM * 2**_FRAC / max(norm, 1.0))), 0, _MOST_SHIFT)))
        at += part.size
    return TapSums(parts=parts, shifts=tuple(shifts))


def check_head(network: RecurrentNetwork) -> Head:
    """The dense layer behind a recurrent node.

    :class:`ValueError` unless it makes the logits of a sequence.
    """
    head = network.head
    if head is None or network.pick == "all":
        none = "no dense layer right" if network.tail else "no dense layer"
        raise ValueError(
            f"{network.name}: has {none if head is None else 'a dense layer on each step'} behind its "
            "recurrent node: adapters need the logits of a sequence, of the last state or of the mean"
        )
    if network.backward is not None and network.pick == "last":
        raise ValueError(
            f"{network.name}: its dense layer takes the backward direction's state of the last step, its first: "
            "adapters need the states that each direction ends with, or the mean"
        )
    if network.behind:
        raise ValueError(
            f"{network.name}: has {some(len(network.behind), 'dense layer')} with activations in front of its last: "
            "adapters need the logits of one dense layer behind the hidden states"
        )
    network.check_logits("a fine-tune needs")
    return head


def tap_network(network: RecurrentNetwork, taps: TapSums, steps: int) -> LayerNetwork:
    """The dense layer behind a recurrent node, as a network on its taps.

    The machine for images runs it.

    ``steps``: that reach the head, for one that takes their mean. The layer's input is the one tap of its adapter.
    """
    head, layer = check_head(network), len(network.layers) - 1
    kind, count = ("sum of h", steps) if network.pick == "mean" else ("h", 1)
    scales = np.broadcast_to(head.scale, (len(head.bias),))[:, None]
    weight = np.zeros((len(head.bias), prod(taps.shape)))
    for way, cell in enumerate(network.layers[-1]):
        if cell is not None:
            place, shift = taps.part(kind, layer, way)
            own = head.weight[:, way * network.cell.units :][:, : cell.units]
            at = place.start
            weight[:, at : at + cell.units] = own * scales * (cell.hidden.scale * 2.0 ** (_FRAC - shift) / count)
    return LayerNetwork(
        name=network.name, input_shape=taps.shape, layers=(DenseLayer(weight=weight, bias=head.bias, name="taps"),)
    )
