"""Quantised recurrent networks: real numbers and equal integers."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from .cells import RnnCell
from .coding import Coding, told_of
from .front import Conv, IntegerConv, Pool
from .host import Answering, FloatDense, Function, HostStep, seen
from .lstm import Gate, LstmCell

__all__ = ["Cell", "Dense", "Integers", "RecurrentNetwork"]

#: Sums of products stay below it; multiply-add-shift has room for them in 64 bits.
_MOST_SUM = 1 << 31


class Cell(Protocol):
    """A quantised cell of any kind."""

    @property
    def gates(self) -> dict[str, Gate]:
        """By name."""

    @property
    def hidden(self) -> Coding:
        """Of the hidden state."""

    @property
    def name(self) -> str:
        """Of the node."""

    @property
    def units(self) -> int:
        """Width of the hidden state."""

    @property
    def inputs(self) -> int:
        """Channels of the input."""

    def integers(self, source: Coding) -> Any:
        """The cell in integers; ``source``: coding of its input."""


@dataclass(frozen=True, eq=False)
class Dense:
    """The layer of logits.

    Logits are ``scale * (weight * code * scale of the hidden state) + bias``; ``weight``: ``[classes, hidden]``.
    """

    weight: np.ndarray
    scale: np.ndarray
    bias: np.ndarray
    name: str = ""


@dataclass(frozen=True, eq=False)
class RecurrentNetwork(Answering):
    """Layers over time, a recurrent cell and a dense layer.

    Attributes
    ----------
    input : Coding
        Of the input.
    front : tuple of Conv or Pool
    cell : LstmCell, GruCell or RnnCell
    head : Dense, optional
    pick : str
        Hidden states that reach the head: ``last``, ``mean`` or ``all``; of two directions also ``ends``, those that
        each direction ends with. Without a head they reach the tail, and ``max`` is one more.
    below : tuple
        Recurrent layers in front of ``cell``, each as forward and backward cell.
    backward : LstmCell, GruCell or RnnCell, optional
        Runs from the last step to the first, beside ``cell``.
    behind : tuple of RnnCell
        Dense layers with activations between the hidden states that ``pick`` names, which are not their mean, and the
        head: plain cells whose recurrent weights are 0, which run a step.
    before, tail : tuple
        What the host computes in front of the input's quantiser, and behind the head.
    """

    name: str
    input: Coding
    front: tuple[Conv | Pool, ...]
    cell: Cell
    head: Dense | None = None
    pick: str = "last"
    below: tuple[tuple[Cell, Cell | None], ...] = ()
    backward: Cell | None = None
    before: tuple[HostStep, ...] = ()
    tail: tuple[FloatDense | Function, ...] = ()
    behind: tuple[RnnCell, ...] = ()

    def codes(self, x: np.ndarray) -> np.ndarray:
        """Codes of numbers ``[n, steps, channels]``, or tokens ``[n, steps]``."""
        return self.input.codes(seen(self.before, x))

    @property
    def layers(self) -> tuple[tuple[Cell, Cell | None], ...]:
        """Recurrent layers, forward and backward, from the input on."""
        return (*self.below, (self.cell, self.backward))

    @property
    def reached(self) -> Coding:
        """Coding of what reaches the head."""
        return self.behind[-1].hidden if self.behind else self.cell.hidden

    @property
    def channels(self) -> int:
        """Channels of a sample."""
        return self.front[0].inputs if self.front else self.layers[0][0].inputs

    @property
    def units(self) -> int:
        """Channels of the hidden states of the last layer, both directions."""
        return self.cell.units + (0 if self.backward is None else self.backward.units)

    @property
    def lstm(self) -> LstmCell:
        """The cell, which must be an LSTM, and the only one."""
        if self.below or self.backward is not None:
            count = sum(1 if backward is None else 2 for _, backward in self.layers)
            raise ValueError(
                f"{self.name}: has {count} recurrent cells, stacked or of two directions: must be one LSTM; "
                "gradloom infer --engine reference runs it"
            )
        return self.as_lstm(self.cell)

    def as_lstm(self, cell: Cell) -> LstmCell:
        """One of the cells, which must be an LSTM."""
        if not isinstance(cell, LstmCell):
            kind = type(cell).__name__.removesuffix("Cell").upper()
            raise ValueError(f"{self.name}: its recurrent node is a {kind}: must be an LSTM")
        return cell

    @property
    def last_conv(self) -> Conv | None:
        """The convolution right in front of the cell, if there is one."""
        return self.front[-1] if self.front and isinstance(self.front[-1], Conv) else None

    @property
    def source(self) -> Coding:
        """Coding of what reaches :attr:`last_conv`, or the cell."""
        if self.last_conv is None:
            return self.cell_input
        return self.front[-2].coding if len(self.front) > 1 else self.input

    @property
    def cell_input(self) -> Coding:
        """Coding of what reaches the recurrent layers."""
        return self.front[-1].coding if self.front else self.input

    @cached_property
    def integers(self) -> "Integers":
        """All quantisers in integers."""
        return Integers(self)


@dataclass
class Integers:
    """A network's quantisers in integers."""

    network: RecurrentNetwork
    front: tuple[IntegerConv | Pool, ...] = field(init=False)
    #: :class:`IntegerCell`, IntegerGru or IntegerRnn.
    cell: Any = field(init=False)
    #: Of all recurrent layers, forward and backward.
    layers: tuple[tuple[Any, Any], ...] = field(init=False)
    #: IntegerRnn of each dense layer in front of the head.
    behind: tuple[Any, ...] = field(init=False)

    def __post_init__(self) -> None:
        network = self.network
        sources = [network.input, *(conv.coding for conv in network.front)]
        self.front = tuple(
            layer if isinstance(layer, Pool) else IntegerConv.of(layer, source)
            for layer, source in zip(network.front, sources)
        )
        source, layers = network.cell_input, []
        for cell, backward in network.layers:
            layers.append((cell.integers(source), None if backward is None else backward.integers(source)))
            source = cell.hidden
        self.layers = tuple(layers)
        self.cell = self.layers[-1][0]
        sources = [source, *(cell.hidden for cell in network.behind)]
        self.behind = tuple(cell.integers(source) for cell, source in zip(network.behind, sources))

    @property
    def cells(self) -> Iterator[Any]:
        """All cells, from the input on, and the dense layers behind them."""
        recurrent = (cell for layer in self.layers for cell in layer if cell is not None)
        return (*recurrent, *self.behind).__iter__()

    def check(self) -> None:
        """Checks that every sum fits the machine's words, once they are made."""
        reaches = [(cell, what, ends) for cell in self.cells for what, ends in cell.reach.items()]
        for cell, what, (low, high) in reaches:
            if max(-low, high) >= _MOST_SUM:
                raise ValueError(
                    f"node {cell.cell.name!r}: its {what} sums reach {low} to {high}: at most "
                    f"{_MOST_SUM - 1}; use narrower codes, or fewer channels"
                )

    def quantizers(self) -> Iterator[dict[str, object]]:
        """The arithmetic of each quantiser, with its numbers."""
        for number, layer in enumerate(self.front):
            if isinstance(layer, IntegerConv):
                yield told_of(f"conv {number}", layer.conv.coding.name, layer.requantizer, layer.reach)
        for cell in self.cells:
            yield from cell.quantizers()
