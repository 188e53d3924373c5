"""Nodes at the edges of what is taken: equal to onnxruntime, or refused in a line that names the node."""

from math import prod

import numpy as np
import pytest

from gradloom.graph.base import Tensor
from gradloom.graph.mathematics import FloatReading
from gradloom.graph.onnx.load import network_of
from gradloom.graph.rewriting.views import BATCH, whole

from .made import Maker, agreement


def heads(g, *, count=2, width=12, groups=None, **more):
    """An Attention of tokens side by side, with projections."""
    groups = groups or count
    q, k, v = (g.linear(g.x, width, width // count * each) for each in (count, groups, groups))
    return g("Attention", q, k, v, q_num_heads=count, kv_num_heads=groups, **more)


def split(g, **more):
    """An Attention whose heads are an axis."""
    parts = (g("Transpose", g.shape(g.linear(g.x, 12, 12), -1, 5, 3, 4), perm=[0, 2, 1, 3]) for _ in range(3))
    return g("Attention", *parts, **more)


TAKEN = {
    "attention of tokens": (23, (5, 12), heads),
    "attention with a scale": (23, (5, 12), lambda g: heads(g, scale=0.3)),
    "attention with heads apart": (23, (5, 12), split),
    "attention that is plain in words": (23, (5, 12), lambda g: split(g, is_causal=0, softcap=0.0)),
    "an index from the end": (13, (6, 5), lambda g: g("Gather", g.x, g.constant(-2, dtype=np.int64), axis=1)),
    "indices from the end": (13, (6, 5), lambda g: g("Gather", g.x, g.integers(-3, -1), axis=2)),
    "gemm with factors": (13, (6,), lambda g: g("Gemm", g.x, g.w(6, 4), g.w(4), alpha=0.5, beta=2.0)),
    "gemm with one bias": (13, (6,), lambda g: g("Gemm", g.x, g.w(6, 4), g.constant([0.7]))),
    "gemm without a bias": (13, (6,), lambda g: g("Gemm", g.x, g.w(4, 6), transB=1, alpha=3.0)),
    "a matrix before a value": (13, (6, 5), lambda g: g("MatMul", g.w(4, 6), g.x)),
    "a matrix of four axes": (13, (3, 6, 5), lambda g: g("MatMul", g.x, g.w(1, 1, 5, 4))),
    "a product with one head": (13, (6, 5), lambda g: g("MatMul", g.x, g("Transpose", g("Relu", g.x), perm=[0, 2, 1]))),
    "a product by letters": (13, (6, 5), lambda g: g("Einsum", g.x, g.w(5, 4), equation="btc,co->bto")),
    "its result turned": (13, (6, 5), lambda g: g("Einsum", g.x, g.w(6, 4), equation="btc, to -> boc")),
    "scores by letters": (13, (2, 6, 5), lambda g: g("Einsum", g.x, g("Relu", g.x), equation="bhqd,bhkd->bhkq")),
    "values by letters, one of them a row": (
        13,
        (6, 5),
        lambda g: g("Einsum", g.x, g.axes("ReduceMean", g.x, [1], keepdims=0), equation="btc,bc->bt"),
    ),
    "softmax of a middle axis": (13, (6, 5, 4), lambda g: g("Softmax", g.x, axis=2)),
    "softmax of all from an axis on": (11, (6, 5), lambda g: g("Softmax", g.x)),
    "softmax of old, the last axis": (11, (6, 5), lambda g: g("Softmax", g.x, axis=-1)),
    "log-softmax": (13, (6, 5), lambda g: g("LogSoftmax", g.x, axis=1)),
    "orders that are no one order": (
        13,
        (6, 4),
        lambda g: g("Transpose", g.shape(turned(g, g.shape(g("Relu", g.x), -1, 8, 3)), -1, 2, 12), perm=[0, 2, 1]),
    ),
    "the same at once": (
        13,
        (8, 3),
        lambda g: g("Relu", g("Transpose", g.shape(turned(g, g.x), -1, 2, 12), perm=[0, 2, 1])),
    ),
    "an axis that goes": (13, (1, 6, 1), lambda g: g("Squeeze", g("Relu", g.x), g.integers(-1))),
    "all axes of 1 that go": (13, (1, 6, 1), lambda g: g("Squeeze", g("Relu", g.x))),
    "axes that come": (13, (6, 5), lambda g: g("Unsqueeze", g("Relu", g.x), g.integers(-1, 1))),
    "every second": (13, (9, 5), lambda g: g("Slice", g.x, *(g.integers(n) for n in (1, 8, 1, 2)))),
    "the last rows": (13, (9, 5), lambda g: g("Slice", g.x, *(g.integers(n) for n in (-3, 1 << 60, -2)))),
    "features, one of three": (13, (4, 9), lambda g: g("Slice", g.x, *(g.integers(n) for n in (2, 9, 2, 3)))),
    "all of an axis": (13, (9, 5), lambda g: g("Slice", g("Relu", g.x), g.integers(0), g.integers(9), g.integers(1))),
    "one of each": (13, (6, 5), lambda g: g("Slice", g.x, g.integers(2, 3), g.integers(3, 4), g.integers(1, 2))),
    "parts": (13, (9, 5), lambda g: g("Split", g.x, g.integers(2, 3, 4), axis=1, outputs=3)[1]),
    "a row by its number": (13, (9, 5), lambda g: g("Gather", g.x, g.constant(-2, dtype=np.int64), axis=1)),
    "the first row": (13, (9, 5), lambda g: g("Gather", g.x, g.constant(0, dtype=np.int64), axis=1)),
    "rows by their numbers": (13, (9, 5), lambda g: g("Gather", g.x, g.integers(1, 4, 7), axis=1)),
    "a feature by its number": (13, (9, 5), lambda g: g("Gather", g.x, g.constant(3, dtype=np.int64), axis=-1)),
    "images out of channels": (13, (8, 3, 3), lambda g: g("DepthToSpace", g.x, blocksize=2)),
    "images out of channels, columns last": (13, (8, 3, 3), lambda g: g("DepthToSpace", g.x, blocksize=2, mode="CRD")),
    "channels out of images": (13, (2, 4, 6), lambda g: g("SpaceToDepth", g.x, blocksize=2)),
    "no pad": (13, (3, 4), lambda g: g("Pad", g("Relu", g.x), g.integers(0, 0, 0, 0, 0, 0))),
    "a pad of another value": (
        13,
        (3, 4, 5),
        lambda g: g("Pad", g.x, g.integers(0, 0, 1, 0, 0, 0, 2, 3), g.constant(0.5)),
    ),
    "a pad of axes by name": (
        18,
        (3, 4, 5),
        lambda g: g("Pad", g.x, g.integers(1, 2), g.constant(-1.5), g.integers(-1)),
    ),
    "a pad of the last axis": (13, (3, 4), lambda g: g("Pad", g.x, g.integers(0, 0, 1, 0, 0, 2))),
    "a pad of channels": (13, (3, 4, 5), lambda g: g("Pad", g.x, g.integers(0, 1, 0, 0, 0, 2, 0, 0))),
    "a bound from below": (13, (3, 4), lambda g: g("Max", g.constant(0.2), g.x)),
    "a bound from above": (13, (3, 4), lambda g: g("Min", g.x, g.constant(0.2))),
    "no bounds": (13, (3, 4), lambda g: g("Clip", g("Relu", g.x))),
    "one bound": (13, (3, 4), lambda g: g("Clip", g.x, "", g.constant(0.4))),
    "bounds of a range": (13, (3, 4), lambda g: g("Clip", g.x, g.constant(0.0), g.constant(3.4e38))),
    "a slope": (13, (3, 4), lambda g: g("PRelu", g.x, g.constant([0.3]))),
    "slopes": (13, (3, 4), lambda g: g("PRelu", g.x, g.near(3, 1))),
    "slopes of features": (13, (3, 4), lambda g: g("PRelu", g.x, g.near(4))),
    "a root": (13, (3, 4), lambda g: g("Sqrt", g("Abs", g.x))),
    "a power": (13, (3, 4), lambda g: g("Pow", g("Abs", g.x), g.constant(1.5))),
    "a sum of three": (13, (3, 4), lambda g: g("Sum", g.constant([2.0]), g.x, g("Relu", g.x))),
    "a sum of one": (13, (3, 4), lambda g: g("Sum", g("Relu", g.x))),
    "a constant less a value": (13, (3, 4), lambda g: g("Sub", g.constant(2.0), g.x)),
    "a value less constants": (13, (3, 4), lambda g: g("Sub", g.x, g.w(3, 4))),
    "a constant by a value": (13, (3, 4), lambda g: g("Div", g.constant(2.0), g("Exp", g.x))),
    "a value by constants": (13, (3, 4), lambda g: g("Div", g.x, g.near(3, 1))),
    "a value by a value": (13, (3, 4), lambda g: g("Div", g.x, g("Exp", g.x))),
    "a value less a value": (13, (3, 4), lambda g: g("Sub", g.x, g("Exp", g.x))),
    "a constant of more rows": (13, (1, 4), lambda g: g("Add", g.x, g.w(3, 1))),
    "both repeated": (13, (3, 4), lambda g: g("Mul", g("ReduceMax", g.x, axes=[1]), g("ReduceMax", g.x, axes=[2]))),
    "gelu of a simplifier": (13, (4,), lambda g: g("Gelu", g.x, domain="com.microsoft")),
    "gelu of a simplifier with a bias": (13, (4,), lambda g: g("FastGelu", g.x, g.w(4), domain="com.microsoft")),
    "quick gelu": (13, (4,), lambda g: g("QuickGelu", g.x, domain="com.microsoft", alpha=1.702)),
    "selu": (13, (4,), lambda g: g("Selu", g.x, alpha=1.5, gamma=1.1)),
    "an image twice as large, axes by name": (
        18,
        (2, 3, 5),
        lambda g: g("Resize", g.x, "", g.constant([2.0, 3.0]), axes=[2, 3], mode="nearest"),
    ),
    "the same, sizes": (
        18,
        (2, 3, 5),
        lambda g: g("Resize", g.x, "", "", g.integers(7, 4), axes=[2, 3], mode="linear"),
    ),
    "a smaller image": (13, (2, 7, 5), lambda g: resized(g, 4, 3, nearest_mode="ceil")),
    "a smaller image, the later of two": (13, (2, 6, 4), lambda g: resized(g, 4, 2, nearest_mode="round_prefer_ceil")),
    "a smaller image, the earlier": (13, (2, 6, 4), lambda g: resized(g, 4, 2, nearest_mode="floor")),
    "an image by its corners": (
        13,
        (2, 3, 1),
        lambda g: resized(g, 5, 1, mode="linear", coordinate_transformation_mode="align_corners"),
    ),
    "an image by halves, one pixel": (
        13,
        (2, 3, 4),
        lambda g: resized(g, 6, 1, mode="linear", coordinate_transformation_mode="pytorch_half_pixel"),
    ),
    "an image by its first pixel": (
        13,
        (2, 3, 4),
        lambda g: resized(g, 7, 6, mode="linear", coordinate_transformation_mode="asymmetric"),
    ),
    "an upsampling of old": (9, (2, 3, 4), lambda g: g("Upsample", g.x, g.constant([1.0, 1, 2, 3]), mode="nearest")),
    "a larger image, padded above": (13, (3, 4), lambda g: back(g, sides=1, auto_pad="SAME_UPPER", strides=[2])),
    "a larger image, padded below": (13, (3, 4), lambda g: back(g, sides=1, auto_pad="SAME_LOWER", strides=[2])),
    "a larger image of a size": (13, (3, 4, 4), lambda g: back(g, output_shape=[8, 7], strides=[2, 2])),
    "a larger image without pads": (13, (3, 4, 4), lambda g: back(g, auto_pad="VALID", dilations=[1, 2])),
    "a larger image with pads": (
        13,
        (3, 4, 4),
        lambda g: back(g, pads=[0, 1, 1, 0], output_padding=[1, 0], strides=[2, 1]),
    ),
    "a convolution without pads": (13, (3, 6, 6), lambda g: g.conv(g.x, 3, 4, 3, auto_pad="VALID", strides=[2, 2])),
    "a convolution padded above": (
        13,
        (3, 5, 6),
        lambda g: g.conv(g.x, 3, 4, 2, auto_pad="SAME_UPPER", strides=[2, 2]),
    ),
    "a convolution padded below": (
        13,
        (3, 5, 6),
        lambda g: g.conv(g.x, 3, 4, 2, auto_pad="SAME_LOWER", strides=[2, 2]),
    ),
    "means with the pads": (
        13,
        (3, 5, 5),
        lambda g: g("AveragePool", g.x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
    ),
    "means without the pads": (13, (3, 5, 5), lambda g: g("AveragePool", g.x, kernel_shape=[3, 3], pads=[1, 0, 1, 0])),
    "a mean of all": (13, (3, 5, 4), lambda g: g("AveragePool", g.x, kernel_shape=[5, 4])),
    "a largest of all": (13, (3, 5, 4), lambda g: g("MaxPool", g.x, kernel_shape=[5, 4])),
    "a largest of a row": (13, (3, 5), lambda g: g("MaxPool", g.x, kernel_shape=[2], strides=[2], ceil_mode=1)),
    "largest, apart": (13, (3, 7, 7), lambda g: g("MaxPool", g.x, kernel_shape=[3, 3], dilations=[2, 2])),
    "a length": (13, (6, 5), lambda g: g("ReduceL2", g.x, axes=[-1])),
    "sums of sizes": (13, (6, 5), lambda g: g("ReduceL1", g.x, axes=[1], keepdims=0)),
    "sums of squares": (13, (6, 5), lambda g: g("ReduceSumSquare", g.x, axes=[2])),
    "the least": (13, (2, 6, 5), lambda g: g("ReduceMin", g.x, axes=[2, 3])),
    "the least of some": (13, (2, 6, 5), lambda g: g("ReduceMin", g.x, axes=[1, 3], keepdims=0)),
    "no axes": (18, (6,), lambda g: g("ReduceMean", g("Relu", g.x), noop_with_empty_axes=1)),
    "a sum of an axis of 1": (13, (1, 5), lambda g: g("ReduceMax", g("Relu", g.x), axes=[1], keepdims=0)),
    "rows repeated": (13, (1, 5), lambda g: g("Expand", g("Relu", g.x), g.integers(1, 4, 5))),
    "more axes": (13, (5,), lambda g: g("Expand", g("Unsqueeze", g("Relu", g.x), g.integers(1)), g.integers(1, 3, 5))),
    "tiles": (13, (3, 4), lambda g: g("Tile", g("Relu", g.x), g.integers(1, 2, 3))),
    "a batch norm": (13, (3, 4), lambda g: g.batch_norm(g("Relu", g.x), 3)),
    "a norm of two axes": (
        17,
        (3, 4, 5),
        lambda g: g("LayerNormalization", g.x, g.near(4, 5), g.w(4, 5), axis=-2, epsilon=1e-2),
    ),
    "a norm without a bias": (17, (3, 5), lambda g: g("LayerNormalization", g.x, g.near(5))),
    "a norm of groups": (21, (6, 5), lambda g: g("GroupNormalization", g.x, g.near(6), g.w(6), num_groups=3)),
    "a norm of each image": (13, (3, 4, 4), lambda g: g("InstanceNormalization", g.x, g.near(3), g.w(3))),
}


def turned(g, x):
    """Rows as columns."""
    return g("Transpose", x, perm=[0, 2, 1])


def resized(g, *sides, **more):
    """A Resize of two channels to sides."""
    samples = g("Slice", g("Shape", g.x), g.integers(0), g.integers(1))
    return g("Resize", g.x, "", "", g("Concat", samples, g.integers(2, *sides), axis=0), **more)


def back(g, sides=2, **more):
    """A convolution from 3 channels to 4, transposed."""
    return g("ConvTranspose", g.x, g.w(3, 4, *[3] * sides), **more)


def run(name, model):
    network = network_of(model)
    return agreement(model, network, FloatReading(network))[0]


@pytest.mark.parametrize("name", TAKEN)
def test_a_node_computes_what_onnxruntime_does(name):
    opset, shape, make = TAKEN[name]
    g = Maker(opset, *shape)
    assert run(name, g.model(make(g))) <= 1e-5


def joined(first, *, differs=False):
    """A sum of rows of two samples as one axis, the samples first or last in it, and a table that repeats by sample."""
    g = Maker(13, 6, 5, batch=2)
    rows = g.random.standard_normal((6, 5))
    table = np.tile(rows, (2, 1)) if first else np.repeat(rows, 2, axis=0)
    table[-1, -1] += differs
    x = g.x if first else g("Transpose", g.x, perm=[1, 0, 2])
    made = g.shape(g("Add", g.shape(x, 12, 5), g.constant(table)), *((2, 6, 5) if first else (6, 2, 5)))
    return g.model(g("Relu", made if first else g("Transpose", made, perm=[1, 0, 2])))


@pytest.mark.parametrize("first", [True, False])
def test_a_constant_of_two_samples_is_one_of_each(first):
    model = joined(first)
    network = network_of(model)
    assert agreement(model, network, FloatReading(network), samples=4)[0] <= 1e-5
    with pytest.raises(ValueError, match="its constant differs from sample to sample"):
        network_of(joined(first, differs=True))


def halves(g):
    """Tokens whose features are of two axes."""
    return g("Transpose", g.shape(g.x, -1, 6, 2, 3), perm=[0, 1, 3, 2])


REFUSED = {
    "attention with a mask": (23, (5, 12), lambda g: g("Attention", *[split_parts(g)] * 3, g.w(5, 5)), "has a mask"),
    "attention of the past": (
        23,
        (5, 12),
        lambda g: g("Attention", *[split_parts(g)] * 3, "", g.w(1, 3, 2, 4), g.w(1, 3, 2, 4), outputs=3)[0],
        "has a cache",
    ),
    "attention to the past": (23, (5, 12), lambda g: split(g, is_causal=1), "attribute is_causal=1 is not supported"),
    "attention with a cap": (23, (5, 12), lambda g: split(g, softcap=5.0), "attribute softcap=5.0 is not supported"),
    "a turned input": (13, (6,), lambda g: g("Gemm", g.x, g.w(1, 4), transA=1), "transA=1: not supported"),
    "a bias of rows": (13, (6,), lambda g: g("Gemm", g.x, g.w(6, 4), g.w(4, 1)), "bias has shape [4, 1]"),
    "several matrices": (13, (3, 6, 5), lambda g: g("MatMul", g.x, g.w(3, 5, 4)), "weights have shape [3, 5, 4]"),
    "a vector": (13, (6, 5), lambda g: g("MatMul", g.x, g.w(5)), "weights have shape [5]: must be a matrix"),
    "three values": (
        13,
        (6, 5),
        lambda g: g("Einsum", g.x, g.w(5, 4), g.w(4), equation="btc,co,o->bto"),
        "must be of two values, of letters, with a result",
    ),
    "no result": (13, (6, 5), lambda g: g("Einsum", g.x, g.w(5, 4), equation="btc,co"), "with a result"),
    "dots": (13, (6, 5), lambda g: g("Einsum", g.x, g.w(5, 4), equation="...c,co->...o"), "of letters"),
    "a diagonal": (13, (6, 5), lambda g: g("Einsum", g.x, g.w(5, 5), equation="btc,cc->bt"), "of letters"),
    "no sum": (13, (6, 5), lambda g: g("Einsum", g.x, g.w(5), equation="btc,c->btc"), "is no product of matrices"),
    "a sum of one alone": (13, (6, 5), lambda g: g("Einsum", g.x, g.w(5, 4), equation="btc,co->bo"), "is no product"),
    "a matrix a token": (
        13,
        (6, 5),
        lambda g: g("Einsum", g.x, g.w(6, 5, 4), equation="btc,tco->bto"),
        "has a matrix for each t",
    ),
    "softmax of samples and all": (11, (6,), lambda g: g("Softmax", g.x, axis=0), "is over the samples"),
    "no such axis": (13, (6,), lambda g: g("Split", g.x, axis=2, outputs=1), "axis"),
    "a part of the samples": (
        13,
        (6,),
        lambda g: g("Slice", g.x, g.integers(0), g.integers(1), g.integers(0)),
        "takes a part of axis 0, which has the samples",
    ),
    "backwards": (
        13,
        (6, 5),
        lambda g: g("Slice", g.x, *(g.integers(n) for n in (5, 0, 1, -1))),
        "steps=-1: must be above 0",
    ),
    "nothing": (
        13,
        (6, 5),
        lambda g: g("Slice", g.x, g.integers(3), g.integers(3), g.integers(1)),
        "takes nothing of axis 1",
    ),
    "rows in no order": (13, (9, 5), lambda g: g("Gather", g.x, g.integers(1, 4, 5), axis=1), "[1, 4, 5] is no row"),
    "rows twice": (13, (9, 5), lambda g: g("Gather", g.x, g.integers(1, 1), axis=1), "[1, 1] is no row"),
    "rows as a table": (
        13,
        (9, 5),
        lambda g: g("Gather", g.x, g.constant([[1, 2]], dtype=np.int64), axis=1),
        "[1, 2] is no row of equal steps",
    ),
    "samples behind samples": (13, (3,), lambda g: g("Concat", g.x, g("Relu", g.x), axis=0), "which has the samples"),
    "a pad of samples": (13, (3,), lambda g: g("Pad", g.x, g.integers(1, 0, 0, 0)), "pads the samples"),
    "less than there is": (
        13,
        (3, 4, 5),
        lambda g: g("Pad", g.x, g.integers(0, 0, -1, 0, 0, 0, 0, 0)),
        "takes values away: not supported",
    ),
    "a pad that goes round": (
        19,
        (3, 4, 5),
        lambda g: g("Pad", g.x, g.integers(0, 0, 1, 0, 0, 0, 0, 0), mode="wrap"),
        "mode='wrap': must be constant, edge or reflect",
    ),
    "cubes": (13, (2, 3, 4), lambda g: resized(g, 6, 8, mode="cubic"), "mode='cubic'"),
    "a part of an image": (
        13,
        (2, 3, 4),
        lambda g: g(
            "Resize",
            g.x,
            g.constant([0.0] * 4 + [1.0] * 4),
            g.constant([1.0, 1, 2, 2]),
            coordinate_transformation_mode="tf_crop_and_resize",
        ),
        "coordinate_transformation_mode='tf_crop_and_resize': not supported",
    ),
    "a smooth image": (18, (2, 3, 4), lambda g: resized(g, 6, 8, mode="linear", antialias=1), "antialias=1"),
    "more channels": (13, (2, 3, 4), lambda g: g("Resize", g.x, "", g.constant([1.0, 2, 1, 1])), "samples or channels"),
    "sides in parts": (
        13,
        (2, 3, 5),
        lambda g: g("Resize", g.x, "", g.constant([1.0, 1, 1.5, 1])),
        "make no whole sides of",
    ),
    "a convolution of a volume": (13, (2, 3, 3, 3), lambda g: g("MaxPool", g.x, kernel_shape=[2] * 3), "has 3 sides"),
    "a larger result than its windows": (
        13,
        (3, 4, 4),
        lambda g: back(g, output_shape=[9, 9], strides=[1, 1]),
        "larger than its windows",
    ),
    "a batch norm that learns": (
        14,
        (3, 4),
        lambda g: g("BatchNormalization", g.x, g.near(3), g.w(3), g.w(3), g.near(3), training_mode=1, outputs=3)[0],
        "training_mode=1",
    ),
    "a variance below 0": (
        13,
        (3, 4),
        lambda g: g("BatchNormalization", g.x, g.near(3), g.w(3), g.w(3), g.constant([1.0, -1.0, 1.0])),
        "its variance is below 0",
    ),
    "a norm's mean": (
        17,
        (3, 5),
        lambda g: g("Add", *g("LayerNormalization", g.x, g.near(5), outputs=2)),
        "its mean or deviation is used",
    ),
    "a norm over samples": (17, (5,), lambda g: g("LayerNormalization", g.x, g.near(5), axis=0), "over the samples"),
    "all samples": (13, (5,), lambda g: g("ReduceMean", g.x), "is over the samples"),
    "samples again": (13, (5,), lambda g: g("Tile", g.x, g.integers(2, 1)), "repeats the samples"),
    "half floats": (13, (3,), lambda g: g("Cast", g("Cast", g.x, to=10), to=1), "rounds to float16"),
    "short floats": (13, (3,), lambda g: g("Cast", g("Cast", g.x, to=16), to=1), "rounds to bfloat16"),
    "whole numbers": (13, (3,), lambda g: g("Cast", g("Cast", g.x, to=6), to=1), "makes other numbers than floating"),
    "bounds of each": (13, (3,), lambda g: g("Max", g.x, g.w(3)), "its bound must be one for all values"),
    "the larger value": (13, (3,), lambda g: g("Max", g.x, g("Exp", g.x)), "of several values that the network"),
    "the largest of three": (13, (3,), lambda g: g("Max", g.x, g.w(1), g.w(1)), "of several values"),
    "slopes of all": (13, (3, 4), lambda g: g("PRelu", g.x, g.near(3, 4)), "expected one value a channel"),
    "slopes of two axes": (
        13,
        (6, 6),
        lambda g: g("PRelu", g.shape(halves(g), -1, 6, 6), g.near(6)),
        "its channels are of several axes",
    ),
    "exponents of each": (13, (3,), lambda g: g("Pow", g.x, g.near(3)), "its exponent must be one for all values"),
    "a division by 0": (13, (3,), lambda g: g("Div", g.x, g.constant([1.0, 0.0, 2.0])), "divides by 0"),
    "another alpha": (
        13,
        (4,),
        lambda g: g("QuickGelu", g.x, domain="com.microsoft", alpha=1.5),
        "alpha must be 1.702",
    ),
}


def split_parts(g):
    return g("Transpose", g.shape(g.linear(g.x, 12, 12), -1, 5, 3, 4), perm=[0, 2, 1, 3])


@pytest.mark.parametrize("name", REFUSED)
def test_a_node_is_refused_by_name(name):
    opset, shape, make, said = REFUSED[name]
    g = Maker(opset, *shape)
    model = g.model(make(g))
    with pytest.raises(ValueError, match="node '/net/") as error:
        network_of(model)
    assert said in str(error.value) and "\n" not in str(error.value)


def _memory(view):
    """Places in memory of a file's values for one sample, in the file's order."""
    order = [atom for axis in view.axes for atom in axis if atom != BATCH]
    return np.arange(prod(view.sizes)).reshape(view.sizes).transpose(order).reshape(view.shape)


@pytest.mark.parametrize("seed", range(40))
def test_a_reshape_of_a_file_for_one_sample_keeps_values_and_where_samples_are_numbered(seed):
    """What lies outside of the samples' number stays outside, however axes are split and joined."""
    rng = np.random.default_rng(seed)
    sides = [int(rng.choice([1, 2, 3, 4, 6, 12])) for _ in range(3)]
    view = whole(Tensor("x", (sides[0], sides[1]), 2 * sides[2]), 1)
    for _ in range(6):
        view = view.moved([int(each) for each in rng.permutation(len(view.axes))])
        sizes = list(view.shape)
        # A size as two, then neighbours as one.
        at = int(rng.integers(len(sizes)))
        part = int(rng.choice([each for each in range(1, sizes[at] + 1) if sizes[at] % each == 0]))
        sizes[at : at + 1] = [part, sizes[at] // part]
        if rng.integers(2):
            at = int(rng.integers(len(sizes) - 1))
            sizes[at : at + 2] = [sizes[at] * sizes[at + 1]]
        made = view.reshaped(sizes)
        assert made is not None and made.shape == tuple(sizes) and made.batch == 1
        assert np.array_equal(_memory(made).ravel(), _memory(view).ravel())
        outside = []
        for each in (view, made):
            flat = [atom for axis in each.axes for atom in axis]
            outside.append(prod(each.size(atom) for atom in flat[: flat.index(BATCH)]))
        # Inside an axis there is no place for it: the last one ends with it.
        begins = [prod(sizes[:number]) for number in range(len(sizes) + 1)]
        assert outside[1] == (outside[0] if outside[0] in begins else begins[-1])
        assert sum(axis.count(BATCH) for axis in made.axes) == 1
        view = made if rng.integers(2) else made.merged()
        assert np.array_equal(_memory(view), _memory(made))
