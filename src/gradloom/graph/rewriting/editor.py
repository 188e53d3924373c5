"""Changes a list of operations, one by one."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..base import Operation, Tensor
from ..network import Network, Port
from ..operations import Parameter

__all__ = ["Editor"]


class Editor:
    """A network's list that rules change.

    Attributes
    ----------
    operations : list of Operation
    values : dict
        Weights by name.
    inputs, outputs : list of Port
    """

    def __init__(self, network: Network) -> None:
        self.operations = list(network.operations)
        self.values = dict(network.values)
        self.inputs, self.outputs = list(network.inputs), list(network.outputs)
        self.origins = dict(network.origins)
        self._index()

    def _index(self) -> None:
        self._made = {each.o.name: each for each in self.operations}
        self._readers: dict[str, list[Operation]] = {}
        for each in self.operations:
            for t in dict.fromkeys(each.i):
                self._readers.setdefault(t.name, []).append(each)
        self._users: dict[str, int] = {}
        for each in self.operations:
            for weight in each.weights:
                self._users[weight.name] = self._users.get(weight.name, 0) + 1

    def made(self, t: Tensor) -> Operation | None:
        """What makes a tensor; None for an input."""
        return self._made.get(t.name)

    def readers(self, t: Tensor) -> list[Operation]:
        """What reads a tensor."""
        return self._readers.get(t.name, [])

    def is_result(self, t: Tensor) -> bool:
        """Whether a tensor is a result of the network."""
        return any(each.tensor.name == t.name for each in self.outputs)

    def is_inner(self, t: Tensor) -> bool:
        """Whether one operation reads a tensor and nothing else does."""
        return len(self.readers(t)) == 1 and not self.is_result(t)

    def free(self, name: str) -> str:
        """A tensor's name that nothing has."""
        number, found = 1, name
        while found in self._made or any(each.tensor.name == found for each in self.inputs):
            number += 1
            found = f"{name}#{number}"
        return found

    def uses(self, weight: str) -> bool:
        """Whether an operation has a weight."""
        return weight in self._users

    def parameter(self, t: Tensor) -> np.ndarray | None:
        """Values of a tensor of weights, None where it is computed."""
        made = self.made(t)
        return self.values[made.name] if isinstance(made, Parameter) else None

    def change(self, old: Operation, new: Sequence[Operation]) -> None:
        """Puts operations in the place of one; its result is the last one's, under that name."""
        at = next(n for n, each in enumerate(self.operations) if each is old)
        self.operations[at : at + 1] = new
        self._redirect(old.o, new[-1].o)

    def remove(self, old: Operation, instead: Tensor) -> None:
        """Takes an operation away; who reads its result reads another tensor."""
        self.operations = [each for each in self.operations if each is not old]
        self._redirect(old.o, instead)

    def fuse(self, first: Operation, last: Operation, new: Operation) -> None:
        """Puts one operation in the place of two, of which only the second reads the first; the result is its own."""
        self.operations = [new if each is first else each for each in self.operations if each is not last]
        self._index()

    def _redirect(self, old: Tensor, new: Tensor) -> None:
        if old != new:

            def turned(t: Tensor) -> Tensor:
                return new if t.name == old.name else t

            self.operations = [
                replace(each, i=tuple(turned(t) for t in each.i)) if old in each.i else each for each in self.operations
            ]
            self.outputs = [replace(each, tensor=turned(each.tensor)) for each in self.outputs]
        self._index()

    def port(self, old: Port, new: Port) -> None:
        """Puts a result's port in the place of another."""
        self.outputs = [new if each is old else each for each in self.outputs]

    def own(self, layer: str, parts: Iterable[str]) -> str:
        """A layer's name whose weights no other operation has; its weights are copies where another has them."""
        parts = list(parts)
        if all(self._users.get(f"{layer}.{part}", 0) <= 1 for part in parts):
            return layer
        number = 2
        while any(f"{layer}#{number}.{part}" in self.values for part in parts):
            number += 1
        for part in parts:
            self.values[f"{layer}#{number}.{part}"] = self.values[f"{layer}.{part}"]
            if f"{layer}.{part}" in self.origins:
                self.origins[f"{layer}#{number}.{part}"] = self.origins[f"{layer}.{part}"]
        return f"{layer}#{number}"

    def sweep(self) -> bool:
        """Drops what no result needs; whether there was something."""
        needed = {each.tensor.name for each in self.outputs}
        kept: list[Operation] = []
        for each in reversed(self.operations):
            if each.o.name in needed:
                needed.update(t.name for t in each.i)
                kept.append(each)
        changed = len(kept) < len(self.operations)
        self.operations = kept[::-1]
        self._index()
        return changed

    def network(self) -> Network:
        """The list as it is now."""
        base = Network((), self.values, tuple(self.inputs), tuple(self.outputs), self.origins)
        return base.with_operations(self.operations)

    def apply(self, *rules: Any) -> None:
        """Asks each rule about each operation until none of them changes anything."""
        changed = True
        while changed:
            changed = False
            for rule in rules:
                for each in list(self.operations):
                    if self._made.get(each.o.name) is each and rule(self, each):
                        changed = True
            self.sweep()
