"""Bytes of what stays in memory from step to step, by what they are for.

A step's own tensors have shared places (:mod:`~gradloom.program.lifetimes`); everything else that its program reads is
here: frozen matrices, tables, a text, adapters, moments, sums of gradients.
"""

from collections.abc import Mapping, Sequence

from gradloom.models.language import HEAD_NORMS, LanguageModel
from gradloom.program.memory import rounded
from gradloom.rtl.engines.update.parameters import UPDATE_BEATS
from gradloom.rtl.formats.weights.weight_stream import StreamShape

from ..operations.base import Operation
from ..operations.blocks.attention import IDENTITY
from ..operations.blocks.head import HEAD_MATRIX, LOSS, TARGETS
from ..operations.cores import FACTORS
from ..operations.elements import Add, Biased, Loss, Rope
from ..operations.instant import A
from ..operations.learnt.updates import Descent, Unpack, Widen
from ..operations.products import Product
from ..operations.scaling import Narrow, Norm, NormBackward, TokenSum
from ..operations.tensors import EDGE, AdapterTensors, Codes, MatrixRows, Tensor, Words
from ..operations.transformer import StepOperations
from .layout import ZEROS

__all__ = ["CLASSES", "FROZEN", "by_class", "residents"]

#: Classes of the frozen model.
FROZEN = ("codes", "scales", "padding", "head", "norms")
#: All of them, in the order in which they are printed.
CLASSES = (*FROZEN, "tables", "texts", "adapters", "working", "optimizer", "gradient_sums", "loss")

#: Class of a tensor of an adapter by the end of its name: words, codes of words, and those of moments.
_ENDS = {
    "a": "adapters",
    "b": "adapters",
    "pa": "adapters",
    "pb": "adapters",
    "ma": "optimizer",
    "mb": "optimizer",
    "pma": "optimizer",
    "pmb": "optimizer",
    "r": "adapters",
    "mr": "optimizer",
    "sr": "gradient_sums",
    "w": "adapters",
    "mw": "optimizer",
    "sw": "gradient_sums",
    "sa": "gradient_sums",
    "sb": "gradient_sums",
}


def residents(operations: Sequence[Operation], step: StepOperations, beat: int) -> dict[str, int]:
    """Bytes by name of what is in memory before and after a step.

    ``operations`` are those of ``step``; ``beat``: bytes.
    """
    rows, model = step.tokens, step.model
    # Weights of norms that learn are made of words in each step.
    narrowed = {each.y.name for each in operations if isinstance(each, Narrow)}
    made = {step.input.name: 4 * rows * model.hidden}
    for each in operations:
        match each:
            case Product():
                made |= _matrix(each.weight, model)
                if each.adapter is not None and isinstance(each.weight, Codes):
                    made |= _adapter(each.adapter, each.weight)
            case Norm() | NormBackward() if each.weight not in narrowed:
                made[each.weight] = 4 * each.x.count * EDGE
            case Narrow():
                made |= {each.words.name: 4 * each.words.tensor.features, each.gain.name: 4 * EDGE}
            case Widen():
                made[ZEROS] = UPDATE_BEATS * beat
            case TokenSum():
                made[f"{each.gain.name}.{each.x.rows}"] = 8 * each.x.rows
            case Descent():
                made[each.moments] = 8 * each.words.rows * each.words.tensor.features
                made[each.words.name] = _bytes(each.words.tensor)
            case Rope():
                made[each.angles.name] = 4 * each.angles.rows * each.angles.tiles * EDGE
            case Biased():
                made[each.b.name] = _bytes(each.b.tensor)
            case Loss():
                made |= {each.targets: 4 * each.logits.rows, each.loss: beat}
            case Add() if each.in_place:
                made[each.y.name] = 4 * each.y.rows * each.y.tensor.features
            case _:
                pass
        if isinstance(each, Product) and each.x.name == IDENTITY:
            made[IDENTITY] = _bytes(each.x.tensor)
        if isinstance(each, Product) and isinstance(each.weight, Words) and each.weight_name.endswith(FACTORS):
            made[each.weight_name] = _bytes(each.weight.tiles[0].tensor)
    for each in operations:
        if isinstance(each, Unpack):
            for held in each.tensors():
                # Moments are words only while a step updates them, in places that are shared.
                made |= {held.packed: held.shape.bytes, held.name: 0 if held.moments else held.bytes}
    return made


def _matrix(weight: object, model: LanguageModel) -> dict[str, int]:
    if isinstance(weight, Codes):
        return {weight.name: StreamShape(outputs=weight.outputs, inputs=weight.inputs).bytes}
    if isinstance(weight, MatrixRows):
        return {weight.name: 2 * -(-model.vocab // EDGE) * EDGE * weight.inputs}
    return {}


def _bytes(tensor: Tensor) -> int:
    return 4 * tensor.rows * tensor.features


def _adapter(adapter: AdapterTensors, linear: Codes) -> dict[str, int]:
    name = adapter.name
    sizes = {"a": 4 * adapter.rank * linear.inputs, "b": 4 * adapter.rank * linear.outputs}
    if adapter.made:
        # What the step makes of R is its own.
        return {f"{name}.a": sizes["a"]}
    return {f"{name}.{which}": size for which, size in sizes.items()} | {
        f"{name}.m{which}": 2 * size for which, size in sizes.items()
    }


def by_class(sizes: Mapping[str, int], model: LanguageModel) -> dict[str, int]:
    """Bytes by class, each tensor's rounded up to its place."""
    shapes = {linear.name: model.shape(linear.projection) for linear in model.linears}
    found = dict.fromkeys(CLASSES, 0)
    for name, size in sizes.items():
        room = rounded(size)
        if name in shapes:
            shape = StreamShape(outputs=shapes[name][0], inputs=shapes[name][1])
            parts = shape.outputs * shape.inputs // 2, shape.blocks + 4 * (shape.groups + 1)
            for key, part in zip(FROZEN, (*parts, room - sum(parts))):
                found[key] += part
        else:
            stem, _, end = name.rpartition(".")
            # Words beside their codes are made of them in each step.
            # A that does not learn is a table.
            table = end == "a" and f"{stem}{FACTORS[0]}" in sizes
            found["working" if f"{stem}.p{end}" in sizes else "tables" if table else _class(name)] += room
    return found


def _class(name: str) -> str:
    # A text's own has its number in front.
    name = name.rpartition(":")[2]
    stem, _, end = name.rpartition(".")
    if stem.startswith(("model.", A[:-2])) and end in _ENDS:
        return _ENDS[end]
    if name == HEAD_MATRIX:
        return "head"
    if name in ("norm", "norm.back") or end.startswith(("norm", *HEAD_NORMS.values())):
        return "norms"
    if name.partition("@")[0] == LOSS:
        return "loss"
    return "texts" if name.partition("@")[0] == TARGETS or end == "x" else "tables"
