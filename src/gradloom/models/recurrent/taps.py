"""Taps of a recurrent network: what adapters see of a sequence.

Direct-to-output adapters need no backward pass through time: of a sequence they see some sums of codes, once it has
ended. All sums are of codes that the cell makes anyway, so that hardware adds and shifts.
"""

from dataclasses import dataclass
from math import prod

import numpy as np

from gradloom.rtl.formats.cell import TAP_QUARTERS

from ..network import Dense, Network
from .network import Dense as Head
from .network import RecurrentNetwork

__all__ = [
    "NORM",
    "PARTS",
    "QUARTERS",
    "TapSums",
    "check_head",
    "own_samples",
    "scales_for",
    "sizes_of",
    "tap_channels",
    "tap_network",
]

#: Parts of the taps in their order: last hidden state; tanh of the last cell state; sum of the hidden states of all
#: steps; sum of the input over each quarter of the steps. The input is that of the last convolution; a step has as many
#: samples of it as it goes on by.
PARTS = ("h", "tanh c", "sum of h", "input")
QUARTERS = TAP_QUARTERS
#: Root mean square of a part's norm, which its scale brings it near to.
NORM = 4.0
#: Elements of a row of the array's image.
_ROW = 16
#: Fraction bits of an activation; room of a sum.
_FRAC, _MOST_SHIFT = 16, 20


@dataclass(frozen=True, kw_only=True)
class TapSums:
    """Sizes and scales of the taps.

    Parameters
    ----------
    sizes : tuple of int
        Elements of each of :data:`PARTS`.
    shifts : tuple of int
        A sum of codes is shifted left by so many bits: then it is an activation of 16 fraction bits.
    """

    sizes: tuple[int, ...]
    shifts: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Of all parts."""
        return sum(self.sizes)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of the image that holds them; zeros are behind the last part."""
        return 1, -(-self.elements // _ROW), _ROW

    def part(self, name: str) -> slice:
        """Place of a part."""
        at = PARTS.index(name)
        start = sum(self.sizes[:at])
        return slice(start, start + self.sizes[at])

    def shift_of_each(self) -> np.ndarray:
        """Shift of each element."""
        return np.repeat(self.shifts, self.sizes)


def tap_channels(network: RecurrentNetwork) -> int:
    """Channels of the last convolution's input, or of the network's."""
    return network.last_conv.inputs if network.last_conv is not None else network.cell.inputs


def own_samples(network: RecurrentNetwork) -> tuple[int, int]:
    """First of a step's own samples in its window, and their number."""
    conv = network.last_conv
    if conv is None:
        return 0, 1
    kernel = conv.kernel
    own = min(conv.stride, kernel)
    return min(conv.pads[0], kernel - own), own


def sizes_of(network: RecurrentNetwork, parallel: int = 1) -> tuple[int, ...]:
    """Elements of each part.

    ``parallel``: of the design; sums of each quarter are followed by zeros to a multiple of it.
    """
    units = network.cell.units
    return units, units, units, QUARTERS * -(-tap_channels(network) // parallel) * parallel


def scales_for(network: RecurrentNetwork, sums: np.ndarray, parallel: int = 1) -> TapSums:
    """Taps whose scales bring each part's norm near to :data:`NORM`.

    ``sums``: of codes, ``[n, elements]``, of the data that the network was trained on, or of data like it.
    ``parallel``: see :func:`sizes_of`.
    """
    sizes = sizes_of(network, parallel)
    shifts, at = [], 0
    for size in sizes:
        norm = float(np.sqrt((sums[:, at : at + size].astype(np.float64) ** 2).sum(axis=1).mean()))
        shifts.append(int(np.clip(np.rint(np.log2(NORM * 2**_FRAC / max(norm, 1.0))), 0, _MOST_SHIFT)))
        at += size
    return TapSums(sizes=sizes, shifts=tuple(shifts))


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
    network.check_logits("a fine-tune needs")
    return head


def tap_network(network: RecurrentNetwork, taps: TapSums, steps: int) -> Network:
    """The dense layer behind a recurrent node, as a network on its taps.

    The machine for images runs it.

    ``steps``: that reach the head, for one that takes their mean. The layer's input is the one tap of its adapter.
    """
    head = check_head(network)
    name, count = ("h", 1) if network.pick == "last" else ("sum of h", steps)
    place = taps.part(name)
    unit = network.cell.hidden.scale * 2.0 ** (_FRAC - taps.shifts[PARTS.index(name)]) / count
    weight = np.zeros((len(head.bias), prod(taps.shape)))
    weight[:, place] = head.weight * np.broadcast_to(head.scale, (len(head.bias),))[:, None] * unit
    return Network(
        name=network.name, input_shape=taps.shape, layers=(Dense(weight=weight, bias=head.bias, name="taps"),)
    )
