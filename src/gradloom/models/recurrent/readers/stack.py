"""Recurrent layers of a graph, as its nodes are read.

A layer has one direction or two; its input is that of the network, or all hidden states of the layer before it.
"""

from dataclasses import dataclass, field

from ...files.onnx_file import RefusedNode
from ..coding import Coding
from ..lstm import LstmCell
from .expressions import CodedForm, Expression, ResultForm
from .parts import check_coding, core

__all__ = ["Stack"]


@dataclass(eq=False)
class _Layer:
    """Cells by direction, and their input.

    ``source``: expression of the input; ``time``: label of its axis of steps; ``seen``: its quantiser within the cells.
    """

    source: Expression
    time: str
    cells: dict[bool, LstmCell] = field(default_factory=dict)
    seen: Coding | None = None

    @property
    def units(self) -> int:
        """Channels of the hidden states of all directions."""
        return sum(cell.units for cell in self.cells.values())


class Stack:
    """Recurrent layers, from the input on."""

    def __init__(self) -> None:
        self.layers: list[_Layer] = []

    def add(
        self, cell: LstmCell, source: Expression, time: str, *, backward: bool = False, seen: Coding | None = None
    ) -> int:
        """Takes a cell that sees ``source``; returns the number of its layer.

        ``time``: label of the axis of the steps. ``backward``: it runs from the last step to the first. ``seen``:
        quantiser of the input within the cell.
        """
        number = self._number(source)
        if number == len(self.layers):
            self.layers.append(_Layer(source, time))
        layer = self.layers[number]
        for other in layer.cells.values():
            if cell.inputs != other.inputs:
                raise RefusedNode(f"it takes {cell.inputs} channels, node {other.name!r} beside it {other.inputs}")
            check_coding(cell.hidden, other.hidden, "hidden state of two directions")
            check_coding(other.hidden, cell.hidden, "hidden state of two directions")
        if backward in layer.cells:
            raise RefusedNode(
                "a second recurrent node with the same input and direction: only stacked nodes, and two directions, "
                "are supported"
            )
        if number:
            self._check_below(cell, source, seen, self.layers[number - 1])
        elif layer.seen is not None and seen is not None:
            check_coding(seen, layer.seen, "input")
        layer.seen = layer.seen or seen
        layer.cells[backward] = cell
        return number

    def _number(self, source: Expression) -> int:
        """Number of the layer that sees ``source``."""
        result, last = core(source), len(self.layers) - 1
        if isinstance(result, ResultForm):
            if result.what != "all" or result.layer < last - 1:
                raise RefusedNode("its input is not all hidden states of the recurrent node before it")
            return result.layer + 1
        if self.layers and core(self.layers[0].source) is not result:
            raise RefusedNode("its input is neither that of the recurrent node before it nor all its hidden states")
        return 0

    @staticmethod
    def _check_below(cell: LstmCell, source: Expression, seen: Coding | None, below: _Layer) -> None:
        """A layer's input must be the hidden states of all directions below."""
        result, hidden = core(source), next(iter(below.cells.values())).hidden
        assert isinstance(result, ResultForm)
        if len(result.ways) != len(below.cells):
            raise RefusedNode("its input is one direction of the recurrent nodes before it: only both are supported")
        if cell.inputs != below.units:
            raise RefusedNode(f"it takes {cell.inputs} channels, the recurrent nodes before it give {below.units}")
        while isinstance(source, CodedForm):
            check_coding(source.coding, hidden, "hidden state of the layer before")
            source = source.source
        if seen is not None:
            check_coding(seen, hidden, "hidden state of the layer before")

    def pairs(self) -> list[tuple[LstmCell, LstmCell | None]]:
        """Forward and backward cell of each layer."""
        for layer in self.layers:
            if False not in layer.cells:
                raise ValueError(
                    f"node {layer.cells[True].name!r}: it runs backward alone: only beside a node that runs forward"
                )
        return [(layer.cells[False], layer.cells.get(True)) for layer in self.layers]
