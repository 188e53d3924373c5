"""Convolutions and pools over steps and features, as layers over steps.

A graph may have a plane of steps and features for each channel. A layer over steps alone has each pair of channel and
feature as a channel; its weights are those of the plane's kernel wherever it lies on the features, and 0 elsewhere.
"""

from dataclasses import replace

import numpy as np

from ...files.onnx_file import RefusedNode
from ...network import windows
from .expressions import AffineForm, Clipped, CodedForm, Convolved, Expression, MergedForm, Pooled, Rectified, channels

__all__ = ["over_steps"]

#: Elements of a layer's weights over steps, at most.
_MOST = 1 << 26


def over_steps(value: Expression, time: str) -> Expression:
    """A value in front of the recurrent node, with layers over steps.

    Parameters
    ----------
    value : Expression
    time : str
        Label of the axis of the steps.
    """
    if isinstance(value, MergedForm):
        first, second = value.sizes
        order = np.arange(first * second)
        if value.labels[0] in _spatial(value.source):  # features before channels
            order = order.reshape(second, first).T.reshape(-1)
        if time in value.labels:
            raise RefusedNode(f"node {value.name!r}: it joins the steps with another axis")
        return _permuted(over_steps(value.source, time), order)
    if isinstance(value, CodedForm):
        inner, levels = over_steps(value.source, time), value.coding.levels
        if levels is not None and len(levels) > 1 and isinstance(value.source, Convolved):
            levels = np.repeat(levels, channels(inner) // len(levels), axis=0)
        return CodedForm(inner, replace(value.coding, levels=levels))
    if isinstance(value, (Rectified, Clipped)):
        return replace(value, source=over_steps(value.source, time))
    if isinstance(value, AffineForm):
        if len(value.terms) != 1:
            raise RefusedNode(
                f"node {value.name!r}: it adds two products: only one may be in front of the recurrent node"
            )
        ((source, codes, scale),) = value.terms
        inner, wide = over_steps(source, time), codes[:, :, None]
        return Convolved(inner, wide, scale, value.bias, (1,), ((0, 0),), (time,), (0,), value.name)
    if isinstance(value, Convolved):
        return _convolved(replace(value, source=over_steps(value.source, time)), time)
    if isinstance(value, Pooled):
        return _pooled(replace(value, source=over_steps(value.source, time)), time)
    return value


def _axes(value: Convolved | Pooled, time: str) -> int:
    """Which axis of a kernel is that of the steps."""
    if time not in value.axes:
        raise RefusedNode(f"node {value.name!r}: its kernel does not go along the steps: only over time is supported")
    return value.axes.index(time)


def _places(value: Convolved | Pooled, other: int) -> tuple[int, int]:
    """Features before and behind a layer."""
    size, kernel = value.sizes[other], value.kernel[other]
    if not size:
        raise RefusedNode(
            f"node {value.name!r}: the number of its features is not known: export it with fixed features"
        )
    made = windows(size, kernel, value.strides[other], value.pads[other])
    if made < 1:
        raise RefusedNode(f"node {value.name!r}: its kernel of {kernel} is wider than the {size} features")
    return size, made


def _convolved(value: Convolved, time: str) -> Convolved:
    at = _axes(value, time)
    pads, strides = (value.pads[at],), (value.strides[at],)
    if len(value.axes) == 1:
        return replace(value, pads=pads, strides=strides)
    other = 1 - at
    size, made = _places(value, other)
    codes = value.codes if at == 0 else value.codes.swapaxes(2, 3)  # [outputs, inputs, steps, features]
    outputs, inputs, steps, kernel = codes.shape
    if outputs * made * inputs * size * steps > _MOST:
        raise RefusedNode(
            f"node {value.name!r}: over steps alone its weights have {outputs * made * inputs * size * steps:,} "
            f"elements: at most {_MOST:,}"
        )
    wide = np.zeros((outputs, made, inputs, size, steps), codes.dtype)
    for place in range(made):
        first = place * value.strides[other] - value.pads[other][0]
        own = np.arange(max(first, 0), min(first + kernel, size))
        wide[:, place, :, own] = codes[..., own - first].transpose(3, 0, 1, 2)
    return replace(
        value,
        codes=wide.reshape(outputs * made, inputs * size, steps),
        scale=np.repeat(value.scale, made),
        bias=np.repeat(value.bias, made),
        pads=pads,
        strides=strides,
        axes=(time,),
        sizes=(0,),
    )


def _pooled(value: Pooled, time: str) -> Pooled:
    at = _axes(value, time)
    kernel, pads, strides = (value.kernel[at],), (value.pads[at],), (value.strides[at],)
    inputs = value.channels
    groups = np.arange(inputs)[:, None]
    if len(value.axes) == 2:
        other = 1 - at
        size, made = _places(value, other)
        first = np.arange(made) * value.strides[other] - value.pads[other][0]
        # A place that is padding counts as the nearest there is, which the window has too.
        own = np.clip(first[:, None] + np.arange(value.kernel[other]), 0, size - 1)
        inputs *= size
        groups = (np.arange(value.channels)[:, None, None] * size + own).reshape(value.channels * made, -1)
    return replace(
        value,
        kernel=kernel,
        pads=pads,
        strides=strides,
        axes=(time,),
        sizes=(0,),
        inputs=inputs,
        groups=groups,
        channels=len(groups),
    )


def _spatial(value: Expression) -> tuple[str, ...]:
    """Labels of the axes along which the last kernel goes."""
    while isinstance(value, (CodedForm, Rectified, Clipped)):
        value = value.source
    return value.axes if isinstance(value, (Convolved, Pooled)) else ()


def _permuted(value: Expression, order: np.ndarray) -> Expression:
    """Channels in another order."""
    if (order == np.arange(len(order))).all():
        return value
    if isinstance(value, CodedForm):
        levels = value.coding.levels
        if levels is not None and len(levels) > 1:
            levels = levels[order]
        return CodedForm(_permuted(value.source, order), replace(value.coding, levels=levels))
    if isinstance(value, (Rectified, Clipped)):
        return replace(value, source=_permuted(value.source, order))
    if isinstance(value, Convolved):
        return replace(value, codes=value.codes[order], scale=value.scale[order], bias=value.bias[order])
    assert isinstance(value, Pooled) and value.groups is not None
    return replace(value, groups=value.groups[order])
