"""A network: its operations, its weights, and where a sample goes in and comes out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from .base import Operation, Tensor

__all__ = ["Network", "Port", "Tie"]


@dataclass(frozen=True)
class Port:
    """An input or a result as the file has it, and its tensor.

    ``shape``: of a sample in the file. The values of the side that gives are seen as ``sizes``, whose axes are put in
    ``order``, and read as the side that takes. ``index``: an input's tensor has these of them, -1 is a zero.
    """

    name: str
    shape: tuple[int, ...]
    tensor: Tensor
    sizes: tuple[int, ...]
    order: tuple[int, ...]
    index: np.ndarray | None = field(default=None, compare=False)

    def taken(self, x: np.ndarray) -> np.ndarray:
        """A network's input ``[samples, *sides, features]`` from the file's ``[samples, *shape]``."""
        if x.shape[1:] != self.shape:
            raise ValueError(f"input {self.name!r} has shape {list(x.shape[1:])}: must be {list(self.shape)}")
        if self.index is None:
            return self._turned(x, self.tensor.shape)
        whole = np.pad(self._turned(x, (-1,)), ((0, 0), (0, 1)))
        return whole[:, self.index].reshape(len(x), *self.tensor.shape)

    def given(self, y: np.ndarray) -> np.ndarray:
        """The file's result from the network's."""
        return self._turned(y, self.shape)

    def wanted(self, y: np.ndarray) -> np.ndarray:
        """A result as the network makes it, from the file's ``[samples, *shape]``."""
        turned = [self.sizes[each] for each in self.order]
        seen = y.reshape(len(y), *turned).transpose(0, *(1 + self.order.index(n) for n in range(len(turned))))
        return seen.reshape(len(y), *self.tensor.shape)

    def _turned(self, x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        seen = x.reshape(len(x), *self.sizes).transpose(0, *(1 + each for each in self.order))
        return seen.reshape(len(x), *shape)


@dataclass(frozen=True)
class Tie:
    """A weight that repeats the values of a smaller one, of ``shape``.

    ``index``: which of these each value is, -1 is a zero.
    """

    shape: tuple[int, ...]
    index: np.ndarray

    def there(self, small: np.ndarray) -> np.ndarray:
        """The weight."""
        made: np.ndarray = np.append(small.reshape(-1), 0.0)[self.index]
        return made

    def back(self, value: np.ndarray) -> np.ndarray:
        """The smaller one."""
        made, is_there = np.empty(prod(self.shape)), self.index >= 0
        made[self.index[is_there]] = value[is_there]
        return made.reshape(self.shape)


@dataclass(frozen=True)
class Network:
    """Operations in an order in which tensors are made before they are read.

    Attributes
    ----------
    values : mapping
        Weights by name, as PyTorch has them.
    origins : mapping
        The file's name of weights that are one of its own, in its layout or another.
    ties : mapping
        Of weights that learn as smaller ones.
    """

    operations: tuple[Operation, ...]
    values: Mapping[str, np.ndarray]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    origins: Mapping[str, str] = field(default_factory=dict)
    ties: Mapping[str, Tie] = field(default_factory=dict)

    @property
    def parameters(self) -> int:
        """Numbers in all weights."""
        return sum(prod(each.shape) for each in self.values.values())

    @property
    def result(self) -> Port:
        """The output; a network with several is refused."""
        if len(self.outputs) != 1:
            raise ValueError(f"model: has {len(self.outputs)} results: targets are of one; export it with one")
        return self.outputs[0]

    def learnt(self, name: str) -> np.ndarray:
        """A weight as it learns."""
        value = np.asarray(self.values[name], np.float64)
        return self.ties[name].back(value) if name in self.ties else value

    def with_operations(
        self,
        operations: Sequence[Operation],
        values: Mapping[str, np.ndarray] | None = None,
        outputs: Iterable[Port] | None = None,
    ) -> "Network":
        """The same with other operations, and only the weights that they need."""
        held = self.values if values is None else values
        needed = {weight.name for each in operations for weight in each.weights}
        return Network(
            tuple(operations),
            {name: value for name, value in held.items() if name in needed},
            self.inputs,
            self.outputs if outputs is None else tuple(outputs),
            {name: origin for name, origin in self.origins.items() if name in needed},
            {name: tie for name, tie in self.ties.items() if name in needed},
        )
