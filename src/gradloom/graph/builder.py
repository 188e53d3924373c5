"""Puts a list of operations together, with names and weights of its own."""

import re
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from .base import Operation, Tensor
from .operations import Parameter, Rearrange
from .rewriting.views import View

__all__ = ["Builder", "stem_of"]

#: Names that exporters make up.
_MADE_UP = re.compile(r"(onnx::|val_|const|_to_copy|node_|t?\d)", re.IGNORECASE)


#: How the names of a layer's weights end.
_END = re.compile(r"[._/](weight|bias|kernel|gamma|beta)$", re.IGNORECASE)


def stem_of(name: str) -> str | None:
    """The layer's name in that of its weight or bias; None where it has no such end."""
    found = _END.search(name)
    return name[: found.start()] if found and not _MADE_UP.match(name) else None


class Builder:
    """A list that grows.

    Attributes
    ----------
    operations : list of Operation
    values : dict
        Weights by name.
    origins : dict
        The file's names of weights.
    """

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.values: dict[str, np.ndarray] = {}
        self.origins: dict[str, str] = {}
        self._names: set[str] = set()

    def tensor(self, hint: str, sides: Sequence[int], features: int) -> Tensor:
        """A new tensor, whose name is the hint where that is free."""
        name, number = hint, 1
        while name in self._names:
            number += 1
            name = f"{hint}#{number}"
        self._names.add(name)
        return Tensor(name, tuple(sides), features)

    def emit(
        self, kind: Any, i: Sequence[Tensor], hint: str, sides: Sequence[int], features: int, *given: Any, **named: Any
    ) -> Tensor:
        """Appends an operation of class ``kind``; its result.

        :class:`ValueError` names a weight that is known and has another shape than the operation's.
        """
        o = self.tensor(hint, sides, features)
        made = kind(tuple(i), o, *given, **named)
        for each in made.weights:
            found = self.values[each.name].shape if each.name in self.values else each.shape
            if found != each.shape:
                raise ValueError(f"{each.name} has shape {list(found)}: must be {list(each.shape)}")
        self.operations.append(made)
        return o

    def layer(self, names: Sequence[str | None], node: str, values: Sequence[np.ndarray | None]) -> str:
        """A layer's name, from those of its weight and bias in the file, or the node's.

        A layer that stands twice in a network has one name, if its weights are the same.
        """
        given = [name for name in names if name and not _MADE_UP.match(name)]
        ends = [stem for name in given if (stem := stem_of(name))]
        if ends:
            found = ends[0]
        elif given and given[0] == names[0]:
            found = given[0]
        else:
            found = node.strip("/").rpartition("/")[0].replace("/", ".") or node.strip("/")
        return self.weights(found, dict(zip(("weight", "bias"), values)), dict(zip(("weight", "bias"), names)))

    def weights(
        self, prefix: str, values: dict[str, np.ndarray | None], origins: dict[str, str | None] | None = None
    ) -> str:
        """Takes weights ``prefix.part``; the prefix, changed where another layer has it."""
        name, number = prefix, 1
        while not all(
            value is None or f"{name}.{part}" not in self.values or _same(self.values[f"{name}.{part}"], value)
            for part, value in values.items()
        ):
            number += 1
            name = f"{prefix}#{number}"
        for part, value in values.items():
            if value is not None:
                self.values[f"{name}.{part}"] = value
                if origins and origins.get(part):
                    self.origins[f"{name}.{part}"] = str(origins[part])
        return name

    def parameter(self, value: np.ndarray, hint: str, origin: str | None = None) -> Tensor:
        """A tensor ``[*sides, features]`` of weights."""
        name, number = hint, 1
        while name in self.values and not _same(self.values[name], value):
            number += 1
            name = f"{hint}#{number}"
        self.values[name] = value
        if origin:
            self.origins[name] = origin
        return self.emit(Parameter, (), name, value.shape[:-1], value.shape[-1], name)

    def arranged(self, view: View, groups: Sequence[Sequence[int]]) -> View:
        """A view on a tensor whose sides and features are ``groups`` of atoms, each once.

        Appends a :class:`Rearrange` unless the tensor is so already.
        """
        order = [atom for group in groups for atom in group]
        shape = tuple(view.extent(group) for group in groups)
        stays = order == list(range(len(view.sizes)))
        if stays and shape == view.tensor.shape:
            return view
        hint = f"{view.tensor.name.partition('~')[0]}~"
        tensor = self.emit(Rearrange, (view.tensor,), hint, shape[:-1], shape[-1], view.sizes, tuple(order))
        place = {atom: number for number, atom in enumerate(order)}
        axes = tuple(tuple(place.get(atom, atom) for atom in axis) for axis in view.axes)
        return View(tensor, tuple(view.sizes[atom] for atom in order), axes, view.batch)

    def in_order(self, view: View, axes: Sequence[int]) -> View:
        """A view on a tensor whose sides and features are whole axes of the file, in this order.

        All other axes must be the samples, or 1.
        """
        return self.arranged(view, [view.inner(axis) for axis in axes])

    def with_features(self, view: View, axes: Sequence[int]) -> tuple[View, np.ndarray | None]:
        """A view on a tensor whose features are some axes of the file; and where each feature is in these axes.

        The rows stay where they are, if the axes lie behind them in whatever order; None for the axes' own.
        """
        atoms = view.flat(axes)
        first = len(view.sizes) - len(atoms)
        features = sorted(atoms)
        if features != list(range(first, len(view.sizes))):
            rest = [each for each in range(len(view.axes)) if each not in axes and view.inner(each)]
            return self.arranged(view, [*(view.inner(each) for each in rest), atoms]), None
        if view.tensor.features != view.extent(atoms):
            rows = view.tensor.sides
            if prod(rows) != prod(view.sizes[:first]):
                rows = tuple(view.sizes[:first])
            tensor = view.tensor
            hint = f"{tensor.name.partition('~')[0]}~"
            order = tuple(range(len(view.sizes)))
            view = view.on(
                self.emit(Rearrange, (tensor,), hint, rows, view.extent(atoms), view.sizes or (1,), order or (0,))
            )
        if list(atoms) == features:
            return view, None
        numbers = np.arange(view.extent(atoms)).reshape([view.sizes[atom] for atom in atoms])
        return view, numbers.transpose(np.argsort(atoms)).ravel()


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and np.array_equal(one, other)
