"""Results of a forward and of a backward node, side by side."""

from typing import Any

from ..onnx_file import RefusedNode
from .expressions import Expression, Result
from .graph import Graph

__all__ = ["Directions"]

#: Results of both directions, by those of the forward and of the backward node.
_BOTH = {
    ("all", "all"): "all",
    ("mean", "mean"): "mean",
    ("last", "last"): "last",
    ("last", "end"): "ends",
    ("forward", "end"): "ends",
}


class Directions(Graph):
    """A graph in which such results are joined."""

    def _of_concat(self, node: Any, attributes: dict[str, Any]) -> Expression:
        parts = [self.values.get(name) for name in node.input]
        results = [each for each in parts if isinstance(each, Result)]
        if len(results) != 2 or len(parts) != 2:
            return super()._of_concat(node, attributes)
        first, second = results
        what = _BOTH.get((first.what, second.what))
        labels, axis = self.labels[node.input[0]], attributes.get("axis", 0)
        of_channels = axis in (1, -1) if labels is None else labels[axis] == 2 and labels == self.labels[node.input[1]]
        if first.backward or not second.backward or first.layer != second.layer or what is None or not of_channels:
            raise RefusedNode(
                "only the channels of the forward and the backward node of a layer can be joined, in this order"
            )
        return Result(what, 2, first.layer)
