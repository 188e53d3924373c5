"""Operators for tests, each as some exporter writes it, between two layers."""

import numpy as np

from .listed import CORPUS, operator


def _functions():
    for kind, given in (
        ("Relu", {}),
        ("LeakyRelu", {"alpha": 0.2}),
        ("Elu", {"alpha": 0.7}),
        ("Selu", {}),
        ("Sigmoid", {}),
        ("Tanh", {}),
        ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}),
        ("Softplus", {}),
        ("Softsign", {}),
        ("HardSwish", {}),
        ("Mish", {}),
        ("Gelu", {"approximate": "tanh"}),
    ):
        since = {"HardSwish": 14, "Mish": 18, "Gelu": 20}.get(kind, 11)

        def make(g, x, kind=kind, given=given):
            return g.conv(g(kind, x, **given), 8, 3, 1)

        make.since = since
        operator(kind.lower(), 3, 5, 7)(make)


_functions()


@operator("relu6", 3, 5, 7)
def relu6(g, x):
    return g("Clip", x, g.constant(0.0), g.constant(6.0))


@operator("prelu", 3, 5, 7)
def prelu(g, x):
    return g.conv(g("PRelu", x, g.constant(g.random.uniform(0, 1, (8, 1, 1)), "act.weight")), 8, 3, 1)


@operator("silu_written", 3, 5, 7)
def silu(g, x):
    return g.conv(g("Mul", x, g("Sigmoid", x)), 8, 3, 1)


@operator("hard_swish_written", 3, 5, 7)
def hard_swish(g, x):
    y = g("Clip", g("Add", x, g.constant(3.0)), g.constant(0.0), g.constant(6.0))
    return g.conv(g("Mul", x, g("Div", y, g.constant(6.0))), 8, 3, 1)


@operator("gelu_written", 6, 5)
def gelu(g, x):
    return g.linear(
        g("Mul", g("Mul", x, g("Add", g("Erf", g("Div", x, g.constant(2**0.5))), g.constant(1.0))), g.constant(0.5)),
        8,
        4,
    )


@operator("gelu_tanh_written", 6, 5)
def gelu_tanh(g, x):
    cube = g("Mul", g("Mul", x, g("Mul", x, x)), g.constant(0.044715))
    t = g("Tanh", g("Mul", g("Add", x, cube), g.constant((2 / np.pi) ** 0.5)))
    return g.linear(g("Mul", g("Mul", g.constant(0.5), x), g("Add", t, g.constant(1.0))), 8, 4)


@operator("layer_norm_written", 6, 5)
def layer_norm(g, x):
    return g.linear(g.layer_norm(x, 8, written=True), 8, 4)


@operator("layer_norm", 6, 5)
def layer_norm_node(g, x):
    return g.linear(g.layer_norm(x, 8, written=False), 8, 4)


layer_norm_node.since = 17
for _opset in (11, 13):
    CORPUS.pop(f"layer_norm-{_opset}")


@operator("rms_norm_written", 6, 5)
def rms_norm(g, x):
    mean = g.axes("ReduceMean", g("Pow", x, g.constant(2.0)), [-1])
    root = g("Sqrt", g("Add", mean, g.constant(1e-6)))
    y = g("Mul", x, g("Reciprocal", root)) if g.opset > 13 else g("Div", x, root)
    return g.linear(g("Mul", g.near(8, name="norm.weight"), y), 8, 4)


@operator("group_norm_traced", 3, 5, 7)
def group_norm(g, x):
    y = g("InstanceNormalization", g.shape(x, 0, 4, -1), g.constant(np.ones(4)), g.constant(np.zeros(4)))
    y = g.shape(y, -1, 8, 5, 7)
    y = g("Add", g("Mul", y, g.near(8, 1, 1)), g.w(8, 1, 1, scale=0.1))
    return g.conv(y, 8, 3, 1)


@operator("instance_norm", 3, 5, 7)
def instance_norm(g, x):
    return g.conv(g("InstanceNormalization", x, g.near(8), g.w(8, scale=0.1)), 8, 3, 1)


@operator("channel_norm_written", 3, 5, 7)
def channel_norm(g, x):
    centred = g("Sub", x, g.axes("ReduceMean", x, [1]))
    mean = g.axes("ReduceMean", g("Mul", centred, centred), [1])
    y = g("Div", centred, g("Sqrt", g("Add", mean, g.constant(1e-6))))
    return g.conv(g("Add", g("Mul", y, g.near(8, 1, 1)), g.w(8, 1, 1, scale=0.1)), 8, 3, 1)


@operator("batch_norm_folded", 3, 5, 7)
def batch_norm(g, x):
    return g.conv(g("Relu", g.batch_norm(x, 8)), 8, 3, 1)


@operator("batch_norm_alone", 3, 5, 7)
def batch_norm_alone(g, x):
    return g.conv(g.batch_norm(g("Relu", x), 8), 8, 3, 1)


@operator("softmax", 6, 5)
def softmax(g, x):
    return g("Softmax", g.linear(x, 8, 4), axis=-1)


@operator("log_softmax", 6)
def log_softmax(g, x):
    return g("LogSoftmax", g.gemm(x, 8, 4), axis=-1)


@operator("softmax_tokens", 6, 5)
def softmax_tokens(g, x):
    return g("Transpose", g("Softmax", g("Transpose", g.linear(x, 8, 4), perm=[0, 2, 1]), axis=2), perm=[0, 2, 1])


@operator("max_pool_overlapping", 3, 9, 7)
def max_pool(g, x):
    return g.conv(g("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]), 8, 3, 1)


@operator("max_pool_ceil", 3, 8, 7)
def max_pool_ceil(g, x):
    return g.conv(g("MaxPool", x, kernel_shape=[3, 2], strides=[2, 2], ceil_mode=1), 8, 3, 1)


@operator("average_pool", 3, 9, 7)
def average_pool(g, x):
    return g.conv(g("AveragePool", x, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1]), 8, 3, 1)


@operator("average_pool_counted", 3, 9, 7)
def average_pool_counted(g, x):
    y = g("AveragePool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], count_include_pad=1)
    return g.conv(y, 8, 3, 1)


@operator("average_pool_ceil", 3, 8, 7)
def average_pool_ceil(g, x):
    return g.conv(g("AveragePool", x, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1), 8, 3, 1)


@operator("global_average", 3, 5, 7)
def global_average(g, x):
    return g.gemm(g("Flatten", g("GlobalAveragePool", x), axis=1), 8, 4)


@operator("global_max", 3, 5, 7)
def global_max(g, x):
    return g.gemm(g("Flatten", g("GlobalMaxPool", x), axis=1), 8, 4)


@operator("reduce_mean", 3, 5, 7)
def reduce_mean(g, x):
    return g.gemm(g.axes("ReduceMean", x, [2, 3], keepdims=0), 8, 4)


@operator("reduce_mean_width", 3, 5, 7)
def reduce_mean_width(g, x):
    return g.linear(g("Transpose", g.axes("ReduceMean", x, [3], keepdims=0), perm=[0, 2, 1]), 8, 4)


@operator("gate", 3, 5, 7)
def gate(g, x):
    y = g.conv(g("Relu", g.conv(g("GlobalAveragePool", x), 8, 2, 1)), 2, 8, 1)
    return g.conv(g("Mul", x, g("Sigmoid", y)), 8, 3, 1)


@operator("gate_of_rows", 3, 5, 7)
def gate_of_rows(g, x):
    return g("Mul", g("Sigmoid", g.conv(x, 8, 1, 1)), x)


@operator("concat", 3, 5, 7)
def concat(g, x):
    return g.conv(g("Concat", x, g("Relu", x), axis=1), 16, 3, 1)


@operator("concat_rows", 3, 5, 7)
def concat_rows(g, x):
    return g.conv(g("Concat", x, g("Relu", x), axis=3), 8, 3, 3)


@operator("split_channels", 3, 5, 7)
def split_channels(g, x):
    if g.opset >= 18:
        a, b = g("Split", x, g.integers(3, 5), outputs=2, axis=1)
    elif g.opset >= 13:
        a, b = g("Split", x, g.integers(3, 5), outputs=2, axis=1)
    else:
        a, b = g("Split", x, outputs=2, axis=1, split=[3, 5])
    return g("Concat", g.conv(a, 3, 4, 1), g("Relu", b), axis=1)


@operator("glu", 6, 5)
def glu(g, x):
    a, b = (
        g("Split", x, g.integers(4, 4), outputs=2, axis=-1)
        if g.opset >= 13
        else g("Split", x, outputs=2, axis=-1, split=[4, 4])
    )
    return g.linear(g("Mul", a, g("Sigmoid", b)), 4, 3)


@operator("slice", 3, 6, 7)
def slice_(g, x):
    y = g("Slice", x, g.integers(1, 0), g.integers(6, 2**40), g.integers(2, 3), g.integers(2, 2))
    return g.conv(y, 8, 3, 1)


@operator("space_to_depth_slices", 3, 6, 8)
def focus(g, x):
    parts = [
        g("Slice", x, g.integers(a, b), g.integers(99, 99), g.integers(2, 3), g.integers(2, 2))
        for a in (0, 1)
        for b in (0, 1)
    ]
    return g.conv(g("Concat", *parts, axis=1), 32, 3, 1)


@operator("pad", 3, 5, 7)
def pad(g, x):
    return g.conv(g("Pad", x, g.integers(0, 0, 1, 2, 0, 0, 0, 1), g.constant(0.0)), 8, 3, 3, strides=[2, 2])


@operator("pad_reflect", 3, 5, 7)
def pad_reflect(g, x):
    return g.conv(g("Pad", x, g.integers(0, 0, 1, 2, 0, 0, 2, 1), mode="reflect"), 8, 3, 3)


@operator("pad_edge", 3, 5, 7)
def pad_edge(g, x):
    return g.conv(g("Pad", x, g.integers(0, 0, 1, 2, 0, 0, 2, 1), mode="edge"), 8, 3, 3)


@operator("upsample_nearest", 3, 3, 5)
def upsample(g, x):
    y = g(
        "Resize",
        x,
        g.constant([]) if g.opset < 13 else "",
        g.constant([1, 1, 2, 3]),
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    return g.conv(y, 8, 3, 3)


@operator("upsample_linear", 3, 3, 5)
def upsample_linear(g, x):
    y = g(
        "Resize",
        x,
        g.constant([]) if g.opset < 13 else "",
        g.constant([1, 1, 2, 2]),
        mode="linear",
        coordinate_transformation_mode="pytorch_half_pixel",
    )
    return g.conv(y, 8, 3, 3)


@operator("upsample_corners", 3, 3, 5)
def upsample_corners(g, x):
    y = g("Resize", x, "", "", g.integers(2, 8, 7, 9), mode="linear", coordinate_transformation_mode="align_corners")
    return g.conv(y, 8, 3, 3)


for _opset in (11, 13, 18, 21):  # a size of the samples is in it
    CORPUS.pop(f"upsample_corners-{_opset}")


@operator("conv_stride_dilation", 3, 11, 9)
def conv_any(g, x):
    return g.conv(x, 8, 6, (3, 5), strides=[2, 1], dilations=[2, 1], pads=[2, 1, 0, 2])


@operator("conv_groups", 3, 5, 7)
def conv_groups(g, x):
    return g.conv(g("Relu", g.conv(x, 8, 12, 3, group=4)), 12, 4, 1, group=2)


@operator("conv_depthwise", 3, 5, 7)
def conv_depthwise(g, x):
    return g.conv(g.conv(x, 8, 8, 3, group=8, strides=[2, 2], pads=[1, 1, 1, 1]), 8, 4, 1)


@operator("conv_multiplied", 3, 5, 7)
def conv_multiplied(g, x):
    return g.conv(x, 8, 16, 3, group=8, bias=False)


@operator("conv_same", 3, 6, 7)
def conv_same(g, x):
    return g.conv(g.conv(x, 8, 6, 4, auto_pad="SAME_UPPER", strides=[2, 2]), 6, 4, 2, auto_pad="SAME_LOWER")


@operator("conv_transpose", 3, 3, 5)
def conv_transpose(g, x):
    return g("ConvTranspose", x, g.w(8, 3, 3, 3), g.w(3), strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1])


@operator("conv_transpose_same", 3, 3, 5)
def conv_transpose_same(g, x):
    y = g("ConvTranspose", x, g.w(8, 3, 3, 3), strides=[2, 2], auto_pad="SAME_UPPER")
    return g("ConvTranspose", y, g.w(3, 2, 4, 3), strides=[1, 2], auto_pad="SAME_LOWER")


@operator("conv_transpose_groups", 3, 3, 5)
def conv_transpose_groups(g, x):
    y = g("ConvTranspose", x, g.w(8, 2, 2, 3), strides=[2, 1], group=4, dilations=[1, 2])
    return g("Relu", g.batch_norm(y, 8))


@operator("shuffle", 3, 5, 7)
def shuffle(g, x):
    y = g("Transpose", g.shape(x, -1, 2, 4, 5, 7), perm=[0, 2, 1, 3, 4])
    return g.conv(g.shape(y, -1, 8, 5, 7), 8, 4, 1, group=2)


@operator("pixel_shuffle", 3, 5, 7)
def pixel_shuffle(g, x):
    return g.conv(g("DepthToSpace", x, blocksize=2, mode="CRD"), 2, 3, 3)


@operator("space_to_depth", 3, 6, 4)
def space_to_depth(g, x):
    return g.conv(g("SpaceToDepth", x, blocksize=2), 32, 3, 1)


@operator("mixer", 6, 5)
def mixer(g, x):
    y = g("Transpose", g.linear(g("Transpose", x, perm=[0, 2, 1]), 6, 6), perm=[0, 2, 1])
    return g("Add", x, g("MatMul", g.w(6, 6), y))


@operator("arithmetic", 3, 5, 7)
def arithmetic(g, x):
    y = g("Sub", g.constant(1.0), g("Div", x, g.near(8, 1, 1)))
    return g.conv(g("Div", g("Neg", y), g("Add", g("Exp", y), g.constant(1.0))), 8, 3, 1)


@operator("powers", 3, 5, 7)
def powers(g, x):
    y = g("Sqrt", g("Add", g("Pow", x, g.constant(2.0)), g.constant(0.5)))
    return g.conv(g("Sub", g("Max", g("Abs", x), g.constant(0.3)), g("Reciprocal", y)), 8, 3, 1)


@operator("flatten_channels", 3, 4, 5)
def flatten(g, x):
    return g.gemm(g("Relu", g.gemm(g("Flatten", x), 160, 12)), 12, 4)


@operator("reduced_otherwise", 3, 5, 7)
def reduced_otherwise(g, x):
    low, length = g.axes("ReduceMin", x, [2, 3]), g.axes("ReduceL2", x, [2, 3])
    squares, sizes = g.axes("ReduceSumSquare", x, [2, 3]), g.axes("ReduceL1", x, [2, 3])
    return g.conv(g("Sum", low, length, squares, sizes, g.constant(0.5)), 8, 3, 1)


@operator("unit_length", 6, 5)
def unit_length(g, x):
    length = g("Clip", g.axes("ReduceL2", x, [-1]), g.constant(1e-12))
    return g.linear(g("Div", x, length), 8, 4)


@operator("repeated", 6, 5)
def repeated(g, x):
    y = g("Expand", g.axes("ReduceMean", x, [1]), g.integers(1, 6, 8))
    return g("Tile", g.linear(g("Concat", x, y, axis=2), 16, 4), g.integers(1, 2, 3))


@operator("distances", 5)
def distances(g, x):
    apart = g("Sub", g.axes("Unsqueeze", x, [1]), g.w(1, 4, 8))
    near = g("Exp", g("Mul", g.axes("ReduceSum", g("Mul", apart, apart), [2], keepdims=0), g.constant(-0.2)))
    return g.gemm(near, 4, 3)


def einsum(g, x):
    y = g("Einsum", x, g.w(6, 6), equation="btc,ts->bsc")
    scores = g("Einsum", y, x, equation="bqc, bkc -> bkq")
    return g("Einsum", g.w(8, 4), g("Einsum", scores, x, equation="bkq,bqc->bkc"), equation="cd,bkc->bkd")


einsum.since = 12
operator("einsum", 6, 5)(einsum)


@operator("gelu_behind_einsum", 6, 5)
def gelu_behind(g, x):
    """Its last factor would move behind the arrangement, away from the rest."""
    y = g("Transpose", g.linear(g("Transpose", x, perm=[0, 2, 1]), 6, 6), perm=[0, 2, 1])
    return g.linear(g("Add", x, gelu_of(g, y)), 8, 4)


def gelu_of(g, x):
    half = g("Add", g("Erf", g("Div", x, g.constant(2**0.5))), g.constant(1.0))
    return g("Mul", g("Mul", x, half), g.constant(0.5))


def masked(g, far):
    made = np.zeros((6, 6))
    made[np.triu_indices(6, 1)] = far
    return g.constant(made, "mask")


@operator("mask_of_infinity", 6, 5)
def mask_of_infinity(g, x):
    scores = g("Add", g("MatMul", x, g("Transpose", x, perm=[0, 2, 1])), masked(g, -np.inf))
    return g.linear(g("MatMul", g("Softmax", scores, axis=-1), x), 8, 4)


@operator("filled_mask", 6, 5)
def filled_mask(g, x):
    hidden = g.constant(np.triu(np.ones((6, 6)), 1), "hidden", bool)
    scores = g("Where", hidden, g.constant(-np.inf), g("MatMul", x, g("Transpose", x, perm=[0, 2, 1])))
    return g.linear(g("MatMul", g("Softmax", scores, axis=-1), x), 8, 4)


def chosen(g, x):
    even = g.constant(np.arange(8) % 2 == 0, "even", bool)
    y = g("Where", even, x, g("Tanh", x))
    y = g("Where", g("Greater", y, g.constant(0.0)), y, g("Mul", y, g.constant(0.1)))
    return g.linear(g("Where", g("LessOrEqual", y, g.constant(0.4)), y, g.constant(0.4)), 8, 4)


chosen.since = 12
operator("chosen", 6, 5)(chosen)


@operator("softplus_written", 6, 5)
def softplus_written(g, x):
    log = g("Log", g("Add", g("Exp", x), g.constant(1.0)))
    return g.linear(g("Where", g("Greater", x, g.constant(20.0)), x, log), 8, 4)
