"""Convolutions, pools, and other nodes over an image's sides."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradloom.models.files.onnx_file import RefusedNode
from gradloom.models.files.onnx_graph import Node

from ..operations import Convolution, Pool, Reduce, Upsample
from ..rewriting.views import BATCH, View
from .elementwise import applied
from .reader import Reader, taken
from .shapes import axis_of

__all__: list[str] = []


def _sides(view: View) -> int:
    count = len(view.axes) - 2
    if count not in (1, 2):
        raise RefusedNode(f"its input has {count} sides: must have 1 or 2")
    return count


def _listed(node: Node, name: str, count: int, default: int = 1) -> tuple[int, ...]:
    """Numbers from ``default`` on, ``count`` of them, ``default`` where the node has none."""
    given = node.attribute(name) or [default] * count
    if len(given) != count or min(given) < default:
        raise RefusedNode(f"{name}={given}: must be {count} numbers of {default} or more")
    return tuple(given)


def _kernel(node: Node, weight: np.ndarray, count: int) -> tuple[int, ...]:
    """Sides of the weights, which the node may say too."""
    kernel = weight.shape[2:]
    if len(kernel) != count or (node.attribute("kernel_shape") or list(kernel)) != list(kernel):
        said = f" and kernel_shape={node.attribute('kernel_shape')}" * node.has("kernel_shape")
        raise RefusedNode(f"weights {list(weight.shape)}{said} do not fit an input of {count} sides")
    return kernel


def _pads(
    node: Node,
    sides: Sequence[int],
    out: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
) -> tuple[tuple[int, int], ...]:
    """Zeros before and behind each side."""
    count, auto = len(sides), node.attribute("auto_pad", "NOTSET")
    given = _listed(node, "pads", 2 * count, 0)
    if auto == "NOTSET":
        return tuple((given[n], given[n + count]) for n in range(count))
    if auto == "VALID":
        return ((0, 0),) * count
    found = []
    for n in range(count):
        total = (out[n] - 1) * stride[n] + dilation[n] * (kernel[n] - 1) + 1 - sides[n]
        if total < 0:
            # onnxruntime leaves out values before the first window, the definition does not.
            raise RefusedNode(
                f"auto_pad={auto}: its windows leave out {-total} of {sides[n]}: give pads in their place"
            )
        less = total // 2
        found.append((less, total - less) if auto == "SAME_UPPER" else (total - less, less))
    return tuple(found)


def _convolved(
    reader: Reader,
    node: Node,
    view: View,
    weight: np.ndarray,
    bias: np.ndarray | None,
    sides: Sequence[int],
    count: int,
    given: dict[str, Any],
) -> None:
    layer = reader.build.layer((node.source(1), node.optional(2)), node.name, (weight, bias))
    has_bias = bias is not None
    o = reader.build.emit(Convolution, (view.tensor,), node.outputs[0], sides, count, layer, bias=has_bias, **given)
    reader.put(node, reader.image(o))


@taken("Conv")
def conv(reader: Reader, node: Node) -> None:
    """One or two sides, any kernel, stride, padding, dilation, groups."""
    view, weight = reader.view(node), node.weights(1)
    count = _sides(view)
    bias = node.weights(2, "bias") if node.optional(2) is not None else None
    kernel, out = _kernel(node, weight, count), reader.shape(node)[2:]
    stride, dilation = _listed(node, "strides", count), _listed(node, "dilations", count)
    view = reader.channels_last(view)
    pads = _pads(node, view.tensor.sides, out, kernel, stride, dilation)
    groups = node.attribute("group", 1)
    if groups < 1 or weight.shape[1] * groups != view.tensor.features or len(weight) % groups:
        raise RefusedNode(f"weights {list(weight.shape)} in {groups} groups do not fit {view.tensor.features} channels")
    given = {"kernel": kernel, "stride": stride, "pads": pads, "dilation": dilation, "groups": groups}
    _convolved(reader, node, view, weight, bias, out, len(weight), given)


@taken("ConvTranspose")
def conv_transpose(reader: Reader, node: Node) -> None:
    """The gradient of a convolution; its result's size is the file's."""
    view, weight = reader.view(node), node.weights(1)
    count = _sides(view)
    bias = node.weights(2, "bias") if node.optional(2) is not None else None
    kernel, out, groups = _kernel(node, weight, count), reader.shape(node)[2:], node.attribute("group", 1)
    node.attribute("output_shape")
    stride, dilation = _listed(node, "strides", count), _listed(node, "dilations", count)
    more = _listed(node, "output_padding", count, 0)
    if any(each >= max(pair) for each, pair in zip(more, zip(stride, dilation))):
        raise RefusedNode(f"output_padding={list(more)}: must be smaller than strides or dilations")
    view = reader.channels_last(view)
    auto = node.attribute("auto_pad", "NOTSET")
    if auto != "NOTSET" or node.has("output_shape"):
        total = [
            stride[n] * (view.tensor.sides[n] - 1) + dilation[n] * (kernel[n] - 1) + 1 - out[n] for n in range(count)
        ]
        node.attribute("pads")
        lows = [t // 2 if auto == "SAME_UPPER" else t - t // 2 for t in total]
        if min(total) < 0:
            raise RefusedNode("its result is larger than its windows: not supported with output_shape or auto_pad")
        pads = tuple((low, t - low) for low, t in zip(lows, total))
    else:
        ends = _listed(node, "pads", 2 * count, 0)
        pads = tuple((ends[n], ends[n + count]) for n in range(count))
    given = {"kernel": kernel, "stride": stride, "pads": pads, "dilation": dilation, "groups": groups}
    _convolved(reader, node, view, weight, bias, out, weight.shape[1] * groups, {**given, "transposed": True})


@taken("MaxPool", "AveragePool")
def pool(reader: Reader, node: Node) -> None:
    """Windows that may overlap and reach over the end."""
    view = reader.view(node)
    count = _sides(view)
    if any(node.outputs[1:]):
        raise RefusedNode("its indices are used: not supported")
    node.attribute("storage_order")
    node.attribute("ceil_mode")
    kernel, out = _listed(node, "kernel_shape", count), reader.shape(node)[2:]
    stride, dilation = _listed(node, "strides", count), _listed(node, "dilations", count)
    view = reader.channels_last(view)
    sides = view.tensor.sides
    pads = _pads(node, sides, out, kernel, stride, dilation)
    if any(most >= side for pair, side in zip(pads, kernel) for most in pair):
        raise RefusedNode(f"pads={[*zip(*pads)]} of a window {list(kernel)}: must be smaller than it")
    if any((o - 1) * step >= side + low for o, step, side, (low, _) in zip(out, stride, sides, pads)):
        raise RefusedNode(f"ceil_mode=1: a window of {list(out)} begins behind its input's sides {list(sides)}")
    counted = bool(node.attribute("count_include_pad", 0))
    kind = "max" if node.kind == "MaxPool" else "mean"
    if kernel == sides and not np.any(pads) and set(dilation) == {1}:
        _all_rows(reader, node, view, kind)
        return
    o = reader.build.emit(
        Pool,
        (view.tensor,),
        node.outputs[0],
        out,
        view.tensor.features,
        kind,
        kernel=kernel,
        stride=stride,
        pads=pads,
        dilation=dilation,
        counted=counted,
    )
    reader.put(node, reader.image(o))


@taken("GlobalAveragePool", "GlobalMaxPool")
def global_pool(reader: Reader, node: Node) -> None:
    """All rows."""
    view = reader.channels_last(reader.view(node))
    _all_rows(reader, node, view, "max" if node.kind == "GlobalMaxPool" else "mean")


def _all_rows(reader: Reader, node: Node, view: View, kind: str) -> None:
    o = reader.build.emit(Reduce, (view.tensor,), node.outputs[0], _ones(view), view.tensor.features, kind, True)
    channels = (0,) if o.features > 1 else ()
    axes = ((BATCH,), channels, *((),) * (len(view.axes) - 2))
    reader.put(node, View(o, (o.features,) if o.features > 1 else (), axes, view.batch))


def _ones(view: View) -> tuple[int, ...]:
    return tuple(1 for _ in view.tensor.sides)


@taken("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare")
def reduce(reader: Reader, node: Node) -> None:
    """Over all rows, over the features, or over any axes that are then made features."""
    view = reader.view(node)
    given = node.integers(1, "axes", "axes")
    keep = node.attribute("keepdims", 1)
    if not given and node.attribute("noop_with_empty_axes", 0):
        reader.put(node, view)
        return
    node.attribute("noop_with_empty_axes")
    axes = {axis_of(n, view) for n in given} if given else set(range(len(view.axes)))
    if any(BATCH in view.axes[n] for n in axes):
        raise RefusedNode("is over the samples: not supported")
    hint, own = node.outputs[0], sorted(axes)
    kind, before, behind = _REDUCED[node.kind]
    if before:
        view = applied(reader, view, f"{hint}~each", *before)
    made = reduced(reader, view, own, kind, f"{hint}~all" if behind else hint)
    if behind:
        made = applied(reader, made, hint, *behind)
    if node.kind == "ReduceL2":
        # Of means, which have fewer bits in front than sums.
        made = applied(reader, made, hint, "affine", view.extent(view.flat(own)) ** 0.5, 0)
    if not keep:
        made = View(made.tensor, made.sizes, tuple(a for n, a in enumerate(made.axes) if n not in axes), made.batch)
    reader.put(node, made)


_Applied = tuple[Any, ...]
#: What is reduced, and functions before and behind.
_REDUCED: dict[str, tuple[str, _Applied, _Applied]] = {
    "ReduceMean": ("mean", (), ()),
    "ReduceSum": ("sum", (), ()),
    "ReduceMax": ("max", (), ()),
    "ReduceMin": ("max", ("affine", -1, 0), ("affine", -1, 0)),
    "ReduceL1": ("sum", ("abs",), ()),
    "ReduceL2": ("mean", ("power", 2), ("power", 0.5)),
    "ReduceSumSquare": ("sum", ("power", 2), ()),
}


def reduced(reader: Reader, view: View, axes: Sequence[int], kind: str, hint: str) -> View:
    """A mean, sum or maximum over axes, which stay as axes of 1."""
    gone = set(view.flat(axes))
    if not gone:
        return view
    features = view.features
    rows = None if features is None else set(range(len(view.sizes))) - set(features)
    if gone and gone == rows and features:
        o = reader.build.emit(Reduce, (view.tensor,), hint, _ones(view), view.tensor.features, kind, True)
        shift = min(features)
        kept = tuple(
            () if n in axes else tuple(a if a == BATCH else a - shift for a in own) for n, own in enumerate(view.axes)
        )
        return View(o, view.sizes[shift:], kept, view.batch)
    view, _ = reader.build.with_features(view, axes)
    count = len(view.flat(axes))
    o = reader.build.emit(Reduce, (view.tensor,), hint, view.tensor.sides, 1, kind, False)
    left = len(view.sizes) - count
    return View(o, view.sizes[:left], tuple(() if n in axes else own for n, own in enumerate(view.axes)), view.batch)


@taken("Resize", "Upsample")
def resize(reader: Reader, node: Node) -> None:
    """Nearest and linear, to the size that the file says."""
    view = reader.view(node)
    if node.kind == "Resize":
        for at, what in ((1, "regions"), (2, "scales"), (3, "sizes")):
            if node.optional(at) is not None and reader.is_computed(node, at):
                raise RefusedNode(f"its {what} are computed by the network")
    old = node.kind == "Upsample" or len(node.inputs) < 3
    mode = node.attribute("mode", "nearest")
    places = "asymmetric" if old else node.attribute("coordinate_transformation_mode", "half_pixel")
    rounding = "floor" if old else node.attribute("nearest_mode", "round_prefer_floor")
    for name in (
        "cubic_coeff_a",
        "exclude_outside",
        "extrapolation_value",
        "keep_aspect_ratio_policy",
        "axes",
        "scales",
    ):
        node.attribute(name)
    if node.attribute("antialias", 0):
        raise RefusedNode("antialias=1: not supported")
    if mode not in ("nearest", "linear"):
        raise RefusedNode(f"mode={mode!r}: must be nearest or linear")
    if places not in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"):
        raise RefusedNode(f"coordinate_transformation_mode={places!r}: not supported")
    shape = reader.shape(node)
    if shape[:2] != view.shape[:2]:
        raise RefusedNode("changes samples or channels")
    scales = node.constant(2, "scales") if not old and node.optional(2) is not None else None
    if scales is not None and scales.size:
        axes = node.attribute("axes") or range(len(shape))
        exact = {axis_of(n, view): view.shape[n] * scale for n, scale in zip(axes, scales.ravel())}
        if any(abs(made - shape[n]) > 1e-4 for n, made in exact.items()):
            raise RefusedNode(f"scales {scales.ravel().tolist()} make no whole sides of {list(view.shape)}")
    view = reader.channels_last(view)
    o = reader.build.emit(
        Upsample, (view.tensor,), node.outputs[0], shape[2:], view.tensor.features, mode, places, rounding
    )
    reader.put(node, reader.image(o))
