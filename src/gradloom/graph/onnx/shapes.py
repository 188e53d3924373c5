"""Nodes that move values, or only name them in another way."""

from dataclasses import replace
from math import prod

import numpy as np

from gradloom.models.files.onnx_file import RefusedNode
from gradloom.models.files.onnx_graph import Node

from ..operations import Concat, Pad, Slice
from ..rewriting.views import BATCH, View
from .reader import Reader, taken

__all__: list[str] = []


def axis_of(number: int, view: View) -> int:
    """An axis, which files also count from the end."""
    if not -len(view.axes) <= number < len(view.axes):
        raise RefusedNode(f"axis {number}: its input has {len(view.axes)}")
    return number % len(view.axes)


def as_shape(reader: Reader, view: View, shape: tuple[int, ...]) -> View:
    """A view with other axes, whatever values must move for them."""
    found = view.reshaped(shape)
    if found is None:
        if shape[0] != view.shape[0] or view.axes[0] != (BATCH,):
            raise RefusedNode(f"from {list(view.shape)} to {list(shape)}: the samples must stay axis 0")
        line = reader.build.arranged(view, [(), view.flat(range(len(view.axes)))])
        rows = View(line.tensor, (line.tensor.features,), ((BATCH,), (0,)), view.batch)
        found = rows.reshaped((shape[0], *shape[1:]))
        if found is None:
            raise RefusedNode(f"from {list(view.shape)} to {list(shape)}: these sizes have no common parts")
    return found


@taken("Reshape", "Flatten")
def reshape(reader: Reader, node: Node) -> None:
    """The shape is the graph's."""
    for name in ("allowzero", "axis"):
        node.attribute(name)
    node.check_row(1)
    reader.put(node, as_shape(reader, reader.view(node), reader.shape(node)))


@taken("Squeeze", "Unsqueeze")
def squeeze(reader: Reader, node: Node) -> None:
    """Axes of 1 go or come."""
    view, shape = reader.view(node), reader.shape(node)
    axes = node.integers(1, "axes", "axes")
    if node.kind == "Unsqueeze":
        gone = {each % len(shape) for each in axes or ()}
        old = iter(view.axes)
        reader.put(node, replace(view, axes=tuple(() if n in gone else next(old) for n in range(len(shape)))))
        return
    gone = {axis_of(each, view) for each in axes} if axes else {n for n, size in enumerate(view.shape) if size == 1}
    if any(view.axes[each] for each in gone):
        reader.put(node, as_shape(reader, view, shape))
    else:
        reader.put(node, replace(view, axes=tuple(each for n, each in enumerate(view.axes) if n not in gone)))


@taken("Transpose")
def transpose(reader: Reader, node: Node) -> None:
    """Axes change places; no value does."""
    view = reader.view(node)
    order = node.attribute("perm") or list(range(len(view.axes)))[::-1]
    if sorted(order) != list(range(len(view.axes))):
        raise RefusedNode(f"perm={order}: must be an order of {len(view.axes)} axes")
    reader.put(node, view.moved(order))


@taken("Identity", "Cast", "Dropout")
def same(reader: Reader, node: Node) -> None:
    """The same values."""
    if node.kind == "Cast":
        node.attribute("saturate")
        kind = node.attribute("to")
        if kind in (10, 16):
            raise RefusedNode(
                f"rounds to {'float16' if kind == 10 else 'bfloat16'}, whose values are others: export the network in "
                "float32 (model.float())"
            )
        if kind not in (1, 11):
            raise RefusedNode("makes other numbers than floating point of a value that the network computes")
    reader.put(node, reader.view(node))


def in_memory(view: View, free: int | None = None) -> list[int]:
    """Axes other than the samples' by their place in memory, those of 1 before the axis that follows in the file."""
    places: list[tuple[int, int]] = []
    after = len(view.sizes)
    for axis in reversed(range(len(view.axes))):
        inner = view.inner(axis)
        if inner:
            after = min(inner)
        if inner or axis == free:
            places.append((after if inner or axis == free else 0, axis))
    return [axis for _, axis in sorted(places)]


def pieces(reader: Reader, view: View, axis: int) -> tuple[View, int, int]:
    """A view on a tensor with an axis of its own for one of the file's: the view, that axis, values within a step."""
    atoms, features = view.inner(axis), view.features
    if atoms and features and atoms == features[: len(atoms)] and len(atoms) < len(features):
        return view, len(view.tensor.sides), view.extent(features[len(atoms) :])
    order = in_memory(view, axis)
    shape = tuple(view.extent(view.inner(each)) for each in order)
    memory = [atom for each in order for atom in view.inner(each)]
    if memory != list(range(len(view.sizes))) or shape != view.tensor.shape:
        inner = [n for n, own in enumerate(_dims(view)) if own == atoms and atoms]
        if inner:
            return view, inner[0], 1
        view = reader.build.in_order(view, order)
    return view, order.index(axis), 1


def _dims(view: View) -> list[tuple[int, ...] | None]:
    """Atoms of each of a tensor's sides and of its features, None where one of them reaches over an end."""
    found: list[tuple[int, ...] | None] = []
    at = 0
    for size in view.tensor.shape:
        own: list[int] = []
        while at < len(view.sizes) and view.extent(own) < size:
            own.append(at)
            at += 1
        if view.extent(own) != size:
            return [None] * len(view.tensor.shape)
        found.append(tuple(own))
    return found


def sliced(reader: Reader, view: View, axis: int, start: int, count: int, step: int, hint: str) -> View:
    """A part of one axis."""
    if count == view.shape[axis]:
        return view
    if BATCH in view.axes[axis]:
        raise RefusedNode(f"takes a part of axis {axis}, which has the samples")
    if count < 1:
        raise RefusedNode(f"takes nothing of axis {axis}")
    view, place, inner = pieces(reader, view, axis)
    if inner > 1 and step != 1:
        view = reader.build.in_order(view, in_memory(view, axis))
        place, inner = in_memory(view, axis).index(axis), 1
    shape = list(view.tensor.shape)
    shape[place] = count * inner
    o = reader.build.emit(Slice, (view.tensor,), hint, shape[:-1], shape[-1], place, start * inner, step)
    atoms = view.inner(axis)
    # One atom stands for the axis now.
    for one, other in zip(atoms, atoms[1:]):
        if other != one + 1:
            raise RefusedNode(f"takes a part of axis {axis}, which is of several parts")
    first = atoms[0]
    sizes = (*view.sizes[:first], *([count] if count > 1 else []), *view.sizes[first + len(atoms) :])
    shift = len(view.sizes) - len(sizes)
    axes = tuple(
        ((first,) if count > 1 else ())
        if number == axis
        else tuple(each - shift if each > first else each for each in own)
        for number, own in enumerate(view.axes)
    )
    return View(o, sizes, axes, view.batch)


@taken("Slice")
def slice_(reader: Reader, node: Node) -> None:
    """Parts of any axes."""
    view = reader.view(node)
    starts = node.integers(1, "starts", "starts") or []
    ends = node.integers(2, "ends", "ends") or []
    axes = node.integers(3, "axes", "axes", list(range(len(starts)))) or []
    steps = node.integers(4, "steps", "steps", [1] * len(starts)) or []
    for start, end, axis, step in zip(starts, ends, axes, steps):
        axis = axis_of(axis, view)
        if step < 0:
            raise RefusedNode(f"steps={step}: must be above 0")
        span = range(view.shape[axis])[start:end:step]
        view = sliced(reader, view, axis, span.start, len(span), step, node.outputs[0])
    reader.put(node, view)


@taken("Split")
def split(reader: Reader, node: Node) -> None:
    """As many slices."""
    view = reader.view(node)
    axis = axis_of(node.attribute("axis", 0), view)
    node.attribute("num_outputs")
    node.integers(1, "split", "sizes")
    at = 0
    for number, name in enumerate(node.outputs):
        count = reader.graph.shapes[name][axis] if name else 0
        if name:
            reader.put(node, sliced(reader, view, axis, at, count, 1, name), number)
        at += count


@taken("Gather")
def gather(reader: Reader, node: Node) -> None:
    """A constant index, or a row of them with equal steps, of values that the network computes."""
    view = reader.view(node)
    axis = axis_of(node.attribute("axis", 0), view)
    index = node.constant(1, "index")
    if not ((-view.shape[axis] <= index) & (index < view.shape[axis])).all():
        raise RefusedNode(f"its index {index.ravel()[:6].tolist()} lies beyond an axis of {view.shape[axis]}")
    places = (index.ravel() % view.shape[axis]).tolist()
    steps = set(np.diff(places).tolist()) or {1}
    if index.ndim > 1 or len(steps) > 1 or min(steps) < 1:
        raise RefusedNode(f"its index {index.ravel()[:6].tolist()} is no row of equal steps: not supported")
    view = sliced(reader, view, axis, places[0], len(places), steps.pop(), node.outputs[0])
    if not index.ndim:
        view = replace(view, axes=(*view.axes[:axis], *view.axes[axis + 1 :]))
    reader.put(node, view)


@taken("Concat")
def concat(reader: Reader, node: Node) -> None:
    """Constants become parameters."""
    count = len(node.inputs)
    lead = max(
        (reader.view(node, n) for n in range(count) if reader.is_computed(node, n)),
        key=lambda each: len(each.merged().sizes),
        default=None,
    )
    if lead is None:
        raise RefusedNode("all of its inputs are constants")
    lead = lead.merged()
    axis = axis_of(node.attribute("axis"), lead)
    if BATCH in lead.axes[axis]:
        raise RefusedNode(f"puts values behind one another along axis {axis}, which has the samples")
    order = in_memory(lead, axis)
    # A file may join axes that no other input has in one piece.
    tensors = []
    for n in range(count):
        if reader.is_computed(node, n):
            tensors.append(reader.build.in_order(reader.view(node, n), order).tensor)
            continue
        value = reader.constant(node, n)
        samples = next(each for each, own in enumerate(lead.axes) if BATCH in own)
        if samples in order:
            raise RefusedNode("puts a constant behind values whose samples share an axis with others")
        if not (value == value.take([0], samples)).all():
            raise RefusedNode("its constant differs from sample to sample")
        value = value.take(0, samples)
        value = np.squeeze(
            value.transpose(
                [each - (each > samples) for each in order]
                + [n for n in range(value.ndim) if n + (n >= samples) not in order]
            ),
            axis=tuple(range(len(order), value.ndim)),
        )
        tensors.append(reader.build.parameter(value, node.source(n), node.source(n)))
    place = order.index(axis)
    shape = list(tensors[0].shape)
    shape[place] = sum(each.shape[place] for each in tensors)
    o = reader.build.emit(Concat, tensors, node.outputs[0], shape[:-1], shape[-1], place)
    sizes: list[int] = []
    atoms: dict[int, tuple[int, ...]] = {}
    for each, size in zip(order, shape):
        atoms[each] = (len(sizes),) if size > 1 else ()
        sizes += [size] * (size > 1)
    axes = tuple((*(b for b in own if b == BATCH), *atoms.get(n, ())) for n, own in enumerate(lead.axes))
    reader.put(node, View(o, tuple(sizes), axes, lead.batch))


@taken("Pad")
def pad(reader: Reader, node: Node) -> None:
    """Sides alone."""
    view = reader.view(node)
    rank = len(view.axes)
    given = node.integers(1, "pads", "pads") or []
    axes = node.integers(3, "", "axes") if node.optional(3) is not None else list(range(rank))
    mode = node.attribute("mode", "constant")
    value = float(node.constant(2, "value").item()) if node.optional(2) is not None else node.attribute("value", 0.0)
    pairs = {axis_of(a, view): (given[n], given[n + len(given) // 2]) for n, a in enumerate(axes or ())}
    if mode not in ("constant", "edge", "reflect"):
        raise RefusedNode(f"mode={mode!r}: must be constant, edge or reflect")
    if mode == "reflect" and any(max(pair) >= view.shape[axis] for axis, pair in pairs.items() if any(pair)):
        raise RefusedNode(f"pads={given} of {list(view.shape)}: must be smaller than the axes that are reflected")
    moved = sorted(axis for axis, pair in pairs.items() if any(pair))
    if not moved:
        reader.put(node, view)
        return
    reader.alone(view)
    if 0 in moved:
        raise RefusedNode("pads the samples")
    if rank > 2 and 1 not in moved:
        order = [*range(2, rank), 1]
    else:
        order = [*moved, *(n for n in range(1, rank) if n not in moved)]
        if len(moved) == rank - 1:
            order.append(0)
    view = reader.build.arranged(view, [view.inner(n) for n in order])
    both = tuple(pairs.get(n, (0, 0)) for n in order[:-1])
    if any(low < 0 or high < 0 for low, high in both):
        raise RefusedNode("takes values away: not supported")
    sides = [size + sum(pair) for size, pair in zip(view.tensor.sides, both)]
    o = reader.build.emit(Pad, (view.tensor,), node.outputs[0], sides, view.tensor.features, both, mode, float(value))
    reader.put(node, _on_axes(o, order, rank, view.batch))


def _on_axes(tensor, order: list[int], rank: int, batch: int) -> View:
    sizes: list[int] = []
    axes: list[tuple[int, ...]] = [()] * rank
    for axis, size in zip(order, tensor.shape):
        if axis and size > 1:
            axes[axis] = (len(sizes),)
            sizes.append(size)
    axes[0] = (BATCH,)
    return View(tensor, tuple(sizes), tuple(axes), batch)


@taken("DepthToSpace", "SpaceToDepth")
def depth(reader: Reader, node: Node) -> None:
    """Pixels out of channels, and back, as views."""
    view = reader.view(node)
    n, c, h, w = view.shape
    b = node.attribute("blocksize")
    mode = node.attribute("mode", "DCR")
    if node.kind == "SpaceToDepth":
        parts = as_shape(reader, view, (n, c, h // b, b, w // b, b)).moved([0, 3, 5, 1, 2, 4])
    elif mode == "DCR":
        parts = as_shape(reader, view, (n, b, b, c // b**2, h, w)).moved([0, 3, 4, 1, 5, 2])
    else:
        parts = as_shape(reader, view, (n, c // b**2, b, b, h, w)).moved([0, 1, 4, 2, 5, 3])
    shape = reader.shape(node)
    if prod(shape) != prod(parts.shape):
        raise RefusedNode(f"blocksize={b} does not divide {list(view.shape)}")
    reader.put(node, as_shape(reader, parts, shape))
