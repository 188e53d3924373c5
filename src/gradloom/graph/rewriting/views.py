"""How a file's axes lie in a tensor.

Files transpose, split and join axes, which moves no value: a :class:`View` follows them. A tensor's sample is a row of
*atoms*, sizes in memory's order, the last one fastest; each axis of the file is some of them. Axes of size 1 have none.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import gcd, prod

from ..base import Tensor

__all__ = ["BATCH", "View", "common", "whole"]

#: The atom that numbers the samples; it lies in no tensor.
BATCH = -1

Axes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class View:
    """Axes of a value of the file on a tensor.

    Attributes
    ----------
    sizes : tuple of int
        Of the atoms, none of them 1.
    axes : tuple of tuples of int
        Atoms of each axis of the file, the outermost first; :data:`BATCH` is among them.
    batch : int
        Samples for which the file was written.
    """

    tensor: Tensor
    sizes: tuple[int, ...]
    axes: Axes
    batch: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes, the samples included."""
        return tuple(prod(self.size(atom) for atom in axis) for axis in self.axes)

    def size(self, atom: int) -> int:
        """Of one atom."""
        return self.batch if atom == BATCH else self.sizes[atom]

    def inner(self, axis: int) -> tuple[int, ...]:
        """Atoms of an axis that lie in the tensor."""
        return tuple(atom for atom in self.axes[axis] if atom != BATCH)

    def flat(self, axes: Iterable[int]) -> tuple[int, ...]:
        """Atoms of some axes, without the samples'."""
        return tuple(atom for axis in axes for atom in self.inner(axis))

    def extent(self, atoms: Iterable[int]) -> int:
        """How many values atoms number."""
        return prod(self.sizes[atom] for atom in atoms)

    @property
    def features(self) -> tuple[int, ...] | None:
        """The last atoms, which are the tensor's features; None where one of them is in features and rows."""
        first = len(self.sizes)
        while first and self.extent(range(first, len(self.sizes))) < self.tensor.features:
            first -= 1
        found = tuple(range(first, len(self.sizes)))
        return found if self.extent(found) == self.tensor.features else None

    def moved(self, order: Sequence[int]) -> "View":
        """A Transpose."""
        return replace(self, axes=tuple(self.axes[axis] for axis in order))

    def on(self, tensor: Tensor) -> "View":
        """The same axes on a tensor of the same size."""
        return replace(self, tensor=tensor)

    def split(self, atom: int, sizes: Sequence[int]) -> "View":
        """An atom as several."""

        def after(each: int) -> tuple[int, ...]:
            if each == atom:
                return tuple(range(atom, atom + len(sizes)))
            return (each + len(sizes) - 1,) if each > atom else (each,)

        axes = tuple(tuple(new for each in axis for new in after(each)) for axis in self.axes)
        return replace(self, sizes=(*self.sizes[:atom], *sizes, *self.sizes[atom + 1 :]), axes=axes)

    def merged(self) -> "View":
        """Neighbours of one axis that are neighbours in memory as one atom."""
        for axis in self.axes:
            for one, other in zip(axis, axis[1:]):
                if one >= 0 and other == one + 1:
                    sizes = (*self.sizes[:one], self.sizes[one] * self.sizes[other], *self.sizes[other + 1 :])
                    axes = tuple(tuple(each - (each > one) for each in atoms if each != other) for atoms in self.axes)
                    return replace(self, sizes=sizes, axes=axes).merged()
        return self

    def reshaped(self, shape: Sequence[int]) -> "View | None":
        """A Reshape; None where its axes are no atoms of this view, in whatever way they are split."""
        if tuple(shape) == self.shape:
            return self
        view = self
        flat = [atom for axis in view.axes for atom in axis]
        before = flat.index(BATCH) if view.batch == 1 else None
        if before is not None:
            flat.remove(BATCH)
        axes: list[tuple[int, ...]] = []
        at = 0
        for size in shape:
            taken: list[int] = []
            while size > 1:
                atom = flat[at]
                own = view.size(atom)
                if size % own:
                    part = gcd(size, own)
                    if atom == BATCH or part == 1 or (part != size and part != own):
                        return None
                    view = view.split(atom, (part, own // part))
                    flat = [each + (each > atom) for each in flat]
                    flat.insert(at + 1, atom + 1)
                    axes = [tuple(each + (each > atom) for each in axis) for axis in axes]
                    taken = [each + (each > atom) for each in taken]
                    own = part
                    if before is not None and before > at:
                        before += 1
                taken.append(atom)
                size //= own
                at += 1
            axes.append(tuple(taken))
        if at != len(flat):
            return None
        return replace(view, axes=tuple(axes if before is None else _with_batch(axes, before)))


def _with_batch(axes: list[tuple[int, ...]], before: int) -> list[tuple[int, ...]]:
    """Axes with the one sample of a file that is written for one, behind ``before`` atoms.

    It is an axis of 1 if there is one at this place, else the outermost part of the axis that begins here; before the
    last axis, which are most often the features, the innermost part of the axis that ends.
    """
    seen, found = 0, None
    for number, axis in enumerate(axes):
        if seen == before and (found is None or axes[found]):
            found = number
        if seen == before and not axis:
            break
        seen += len(axis)
    if before and found is not None and found == len(axes) - 1 and axes[found]:
        axes[found - 1] = (*axes[found - 1], BATCH)
    elif found is None:
        axes[-1] = (*axes[-1], BATCH)
    else:
        axes[found] = (BATCH, *axes[found])
    return axes


def whole(tensor: Tensor, batch: int, axes: Sequence[int] | None = None) -> View:
    """A view whose axes are the samples and then the tensor's sides and features, in the order ``axes``."""
    numbers: list[tuple[int, ...]] = []
    sizes: list[int] = []
    for size in tensor.shape:
        numbers.append((len(sizes),) if size > 1 else ())
        if size > 1:
            sizes.append(size)
    order = range(len(numbers)) if axes is None else axes
    return View(tensor, tuple(sizes), ((BATCH,), *(numbers[each] for each in order)), batch)


def common(one: View, other: View) -> tuple[View, View] | None:
    """Two views with the same atoms in each axis that both have; None where their sizes have no common parts."""
    for axis in range(len(one.axes)):
        at = 0
        while True:
            mine, theirs = one.inner(axis), other.inner(axis)
            if not mine or not theirs or at == max(len(mine), len(theirs)):
                break
            if at >= min(len(mine), len(theirs)):
                return None
            a, b = one.sizes[mine[at]], other.sizes[theirs[at]]
            if a > b:
                if a % b:
                    return None
                one = one.split(mine[at], (b, a // b))
            elif b > a:
                if b % a:
                    return None
                other = other.split(theirs[at], (a, b // a))
            at += 1
    return one, other
