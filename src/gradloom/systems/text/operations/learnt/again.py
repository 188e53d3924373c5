"""Makes norms again in the backward pass, so that they need no memory.

A norm's result is an operand of the products right behind it, and of the gradients of adapters in the backward pass.
The norm's input is kept for the norm's own gradient anyway. The vector engine therefore makes the result again, beside
a product that leaves that engine idle, and the result's place is free in between. The words are the same, because
operands and fraction bits are.
"""

from collections.abc import Sequence
from dataclasses import replace

from ..base import Fracs, Operation
from ..products import Gradient, Product
from ..scaling import Norm
from ..tensors import Codes, Tensor

__all__ = ["again"]

#: Backward product beside which a norm's rows are made again, by the norm's name in its layer.
_BESIDE = {"norm1": "up_proj", "norm2": "gate_proj"}


def again(operations: Sequence[Operation], frac: Fracs) -> tuple[list[Operation], Fracs]:
    """The operations with norms made again, and all fraction bits.

    A norm is made again where gradients read what it makes, what it reads is in memory until then, and its layer has
    the product beside which it is made.
    """
    norms: dict[str, list[Norm]] = {}
    for each in operations:
        if isinstance(each, Norm):
            norms.setdefault(each.y.name, []).append(each)
    wanted = {part.name for each in operations if isinstance(each, Gradient) for _, part in each.sources.values()}
    held = _held(operations)
    beside: dict[str, dict[int, int]] = {}
    for place, each in enumerate(operations):
        if isinstance(each, Product) and each.backward and isinstance(each.weight, Codes):
            beside.setdefault(each.weight.name, {})[each.x.row] = place
    made: dict[int, list[Norm]] = {}
    other: dict[str, Tensor] = {}
    for name in sorted(wanted & set(norms)):
        parts = norms[name]
        layer, _, which = parts[0].weight.rpartition(".")
        # A block of a text beside its own product.
        places = beside.get(f"model.layers.{layer}.mlp.{_BESIDE.get(which, '')}", {})
        if not places or held.get(parts[0].x.name, len(operations)) <= max(places.values()):
            continue
        other[name] = replace(parts[0].y.tensor, name=f"{name}.again")
        for norm in parts:
            made.setdefault(places[norm.x.row], []).append(replace(norm, y=replace(norm.y, tensor=other[name])))
    found: list[Operation] = []
    for place, each in enumerate(operations):
        found += made.get(place, [])
        if isinstance(each, Gradient) and each.x.name in other:
            each = replace(each, x=replace(each.x, tensor=other[each.x.name]))
        found.append(each)
    return found, {**frac, **{tensor.name: frac[name] for name, tensor in other.items() if name in frac}}


def _held(operations: Sequence[Operation]) -> dict[str, int]:
    """The last reader of each tensor that the operations make."""
    last: dict[str, int] = {}
    made: set[str] = set()
    for place, each in enumerate(operations):
        last |= dict.fromkeys(set(each.reads) & made, place)
        made |= {part.name for part in each.results}
    return last
