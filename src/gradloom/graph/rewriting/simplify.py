"""Makes a file's list smaller: what only names a layout goes, layers take what is folded into them."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from ..base import Operation
from ..builder import stem_of
from ..network import Network
from ..operations import Activation, Add, Convolution, Linear, Multiply, Norm, Pad, Rearrange
from .editor import Editor
from .patterns import adapter, attention, attention_scale, function, norm, softmax
from .views import BATCH, View

__all__ = ["simplified"]

#: Samples of a view that stands for no file.
_SAMPLES = 7919


def simplified(network: Network) -> Network:
    """The same network with fewer operations.

    Rearranged values that are rearranged again are so once, or not at all; BatchNorm and other factors and sums of a
    channel become the weights of the layer before; functions, norms and attention that are written out get their name.
    """
    made = Editor(network)
    made.sweep()
    # What is written out gets its name before a part of it moves behind an arrangement.
    made.apply(_folded, _single, _composed, _affine, _padded, function, norm, softmax)
    made.apply(_folded, _single, _composed, _risen, _affine, _padded, function, norm, softmax)
    made.apply(attention, _composed, _risen)
    made.apply(attention_scale, _composed, _risen, _affine, _folded, adapter)
    _ports(made)
    made.sweep()
    return made.network()


def _composition(
    first: tuple[tuple[int, ...], tuple[int, ...]], second: tuple[tuple[int, ...], tuple[int, ...]], view: View
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Sizes and order of two arrangements, one after the other."""
    sizes, order = first
    atoms = {axis: n for n, axis in enumerate(axis for axis, size in enumerate(sizes) if size > 1)}
    axes = ((BATCH,), *((atoms[axis],) if axis in atoms else () for axis in order))
    held = View(view.tensor, tuple(size for size in sizes if size > 1), axes, _SAMPLES)
    found = held.reshaped((_SAMPLES, *second[0]))
    if found is None:
        return None
    moved = found.moved([0, *(1 + axis for axis in second[1])])
    # What stays together is one.
    line = View(moved.tensor, moved.sizes, ((BATCH,), moved.flat(range(len(moved.axes)))), _SAMPLES).merged()
    return line.sizes or (1,), line.axes[1] or (0,)


def _composed(made: Editor, each: Operation) -> bool:
    """One arrangement of two, none where nothing moves."""
    if not isinstance(each, Rearrange):
        return False
    if each.order == tuple(range(len(each.order))) and each.i[0].shape == each.o.shape:
        made.remove(each, each.i[0])
        return True
    before = made.made(each.i[0])
    if not isinstance(before, Rearrange):
        return False
    found = _composition((before.sizes, before.order), (each.sizes, each.order), View(each.o, (), (), 1))
    if found is None:
        return False
    made.change(each, [Rearrange(before.i, each.o, *found)])
    return True


def _risen(made: Editor, each: Operation) -> bool:
    """Arrangements come before functions of every value, where they may meet others."""
    if not isinstance(each, Rearrange):
        return False
    before = made.made(each.i[0])
    if not isinstance(before, Activation) or before.kind != "affine" or not made.is_inner(each.i[0]):
        return False
    middle = replace(each.o, name=made.free(f"{each.o.name}~"))
    made.change(each, [Rearrange(before.i, middle, each.sizes, each.order), replace(before, i=(middle,), o=each.o)])
    return True


def _affine(made: Editor, each: Operation) -> bool:
    """``1 x + 0`` goes."""
    if isinstance(each, Activation) and each.kind == "affine" and each.parameters == (1.0, 0.0):
        made.remove(each, each.i[0])
        return True
    return False


def _single(made: Editor, each: Operation) -> bool:
    """One number for all values, which is no layer's, is a function's."""
    if not isinstance(each, Add | Multiply) or isinstance(each, Add) and each.subtract:
        return False
    for at in (0, 1):
        value = made.parameter(each.i[at])
        if value is not None and value.size == 1:
            given = (value.item(), 0.0) if isinstance(each, Multiply) else (1.0, value.item())
            made.change(each, [Activation((each.i[1 - at],), each.o, "affine", given)])
            return True
    return False


def _padded(made: Editor, each: Operation) -> bool:
    """Zeros in front of a convolution are the convolution's."""
    if not isinstance(each, Convolution) or each.transposed:
        return False
    before = made.made(each.i[0])
    if not isinstance(before, Pad) or before.mode != "constant" or before.value or len(before.pads) != len(each.pads):
        return False
    pads = tuple((a + c, b + d) for (a, b), (c, d) in zip(each.pads, before.pads))
    made.change(each, [replace(each, i=before.i, pads=pads)])
    return True


def _folded(made: Editor, each: Operation) -> bool:
    """A factor or a sum a feature becomes the layer's before."""
    if not isinstance(each, Add | Multiply) or isinstance(each, Add) and each.subtract:
        return False
    for at in (0, 1):
        value, layer = made.parameter(each.i[at]), made.made(each.i[1 - at])
        if value is None or value.size not in (1, each.o.features) or value.shape[-1] != value.size:
            continue
        if not isinstance(layer, Linear | Convolution | Norm) or not made.is_inner(layer.o):
            continue
        if layer.o.shape != each.o.shape:
            continue
        name = next(weight.name for weight in made.made(each.i[at]).weights)  # type: ignore[union-attr]
        if _into(made, each, layer, np.broadcast_to(value.ravel(), each.o.features), name):
            return True
    return False


def _into(made: Editor, each: Operation, layer: Linear | Convolution | Norm, value: np.ndarray, name: str) -> bool:
    factor = isinstance(each, Multiply)
    if isinstance(layer, Norm) and factor and layer.bias:
        return False
    parts = [weight.name.rpartition(".")[2] for weight in layer.weights]
    part = "weight" if factor else "bias"
    if not parts:
        own = _unlike(made, stem_of(name) or layer.layer, part, value)
    else:
        own = made.own(layer.layer, parts)
    at, old = f"{own}.{part}", made.values.get(f"{own}.bias")
    changed: dict[str, Any] = {}
    if not factor:
        made.values[at] = old + value if layer.bias and old is not None else value.copy()
        changed["bias"] = True
    elif isinstance(layer, Norm):
        made.values[at] = made.values[at] * value if layer.gain else value.copy()
        changed["gain"] = True
    else:
        made.values[at] = _scaled(layer, made.values[at], value)
        if layer.bias and old is not None:
            made.values[f"{own}.bias"] = old * value
    if name in made.origins and part not in parts:
        made.origins[at] = made.origins[name]
    made.fuse(layer, each, replace(layer, layer=own, o=each.o, **changed))
    return True


def _unlike(made: Editor, layer: str, part: str, value: np.ndarray) -> str:
    """A layer's name, changed where a layer of this name has other weights."""
    number, found = 1, layer
    while (held := made.values.get(f"{found}.{part}")) is not None and not np.array_equal(held.ravel(), value):
        number += 1
        found = f"{layer}#{number}"
    return found


def _scaled(layer: Linear | Convolution, weight: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Weights whose outputs are times ``value``."""
    if isinstance(layer, Convolution) and layer.transposed:
        per = weight.reshape(layer.groups, -1, *weight.shape[1:])
        factors = value.reshape(layer.groups, 1, -1, *(1 for _ in layer.kernel))
        return np.asarray(per * factors).reshape(weight.shape)
    return weight * value.reshape(-1, *(1 for _ in weight.shape[1:]))


def _ports(made: Editor) -> None:
    """What is rearranged at once, or last, is so outside."""
    for port in list(made.outputs):
        while isinstance(before := made.made(port.tensor), Rearrange):
            found = _composition((before.sizes, before.order), (port.sizes, port.order), View(before.o, (), (), 1))
            # Classes stay one row, in their order.
            is_row = len(port.shape) == 1
            if found is None or (is_row and (before.i[0].rows > 1 or list(found[1]) != sorted(found[1]))):
                break
            new = replace(port, tensor=before.i[0], sizes=found[0], order=found[1])
            made.port(port, new)
            port = new
    made.sweep()
    for n, port in enumerate(made.inputs):
        readers = made.readers(port.tensor)
        if made.is_result(port.tensor) or not readers or not _alike(readers):
            continue
        first = readers[0]
        assert isinstance(first, Rearrange)
        taken = replace(port, tensor=first.o, sizes=first.sizes, order=first.order)
        for each in readers[1:]:
            made.remove(each, first.o)
        made.operations = [each for each in made.operations if each.o != first.o]
        made.inputs[n] = taken
        made._index()


def _alike(readers: Iterable[Operation]) -> bool:
    seen = {(each.sizes, each.order, each.o.shape) if isinstance(each, Rearrange) else None for each in readers}
    return len(seen) == 1 and None not in seen
