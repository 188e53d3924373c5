"""Nodes that repeat values."""

from collections.abc import Sequence
from dataclasses import replace

from gradloom.models.files.onnx_file import RefusedNode
from gradloom.models.files.onnx_graph import Node

from ..operations import Upsample
from ..rewriting.views import BATCH, View
from .reader import Reader, taken
from .shapes import as_shape

__all__ = ["expanded"]


def expanded(reader: Reader, view: View, shape: Sequence[int], hint: str) -> View:
    """A view of ``shape``, as long or longer, whose axes of 1 are repeated: rows of an image of one pixel."""
    view = replace(view, axes=((),) * (len(shape) - len(view.axes)) + view.axes)
    wide = [n for n, (mine, size) in enumerate(zip(view.shape, shape)) if mine != size]
    if not wide:
        return view
    if any(view.shape[n] != 1 or BATCH in view.axes[n] for n in wide):
        raise RefusedNode(
            f"repeats values of {list(view.shape)} to {list(shape)}: only axes of 1 other than the samples"
        )
    view = reader.build.arranged(view, [*(() for _ in wide), tuple(range(len(view.sizes)))])
    t, count = view.tensor, len(wide)
    o = reader.build.emit(Upsample, (t,), hint, [shape[n] for n in wide], t.features, "nearest", "asymmetric")
    axes = tuple(
        (wide.index(n),) if n in wide else tuple(a if a == BATCH else a + count for a in own)
        for n, own in enumerate(view.axes)
    )
    return View(o, (*(shape[n] for n in wide), *view.sizes), axes, view.batch)


@taken("Expand")
def expand(reader: Reader, node: Node) -> None:
    """Axes of 1."""
    node.check_row(1)
    reader.repeated[node.outputs[0]] = reader.view(node)
    reader.put(node, expanded(reader, reader.view(node), reader.shape(node), node.outputs[0]))


@taken("Tile")
def tile(reader: Reader, node: Node) -> None:
    """Any axis but the samples."""
    view = reader.view(node)
    counts = node.integers(1, "", "repeats") or []
    if len(counts) != len(view.axes) or min(counts) < 1:
        raise RefusedNode(f"repeats={counts}: must be {len(view.axes)} numbers above 0")
    if any(count != 1 and BATCH in own for count, own in zip(counts, view.axes)):
        raise RefusedNode("repeats the samples")
    shape, axes = list[int](), list[tuple[int, ...]]()
    for count, size, own in zip(counts, view.shape, view.axes):
        # A new axis in front of each that is repeated.
        shape += [count, size] if count > 1 else [size]
        axes += [(), own] if count > 1 else [own]
    made = expanded(reader, replace(view, axes=tuple(axes)), shape, node.outputs[0])
    reader.put(node, as_shape(reader, made, reader.shape(node)))
