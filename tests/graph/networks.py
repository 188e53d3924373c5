"""Whole networks for tests, each as some exporter writes it."""

import numpy as np

from .listed import network
from .made import Maker


@network(11, 13, 18)
def resnet(opset):
    g = Maker(opset, 3, 16, 16)
    x = g("Relu", g.batch_norm(g.conv(g.x, 3, 8, 7, bias=False, strides=[2, 2], pads=[3] * 4), 8))
    x = g("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    y = g("Relu", g.batch_norm(g.conv(x, 8, 8, 3, bias=False, pads=[1] * 4), 8))
    x = g("Relu", g("Add", g.batch_norm(g.conv(y, 8, 8, 3, bias=False, pads=[1] * 4), 8), x))
    y = g("Relu", g.batch_norm(g.conv(x, 8, 16, 3, bias=False, pads=[1] * 4, strides=[2, 2]), 16))
    y = g.batch_norm(g.conv(y, 16, 16, 3, bias=False, pads=[1] * 4), 16)
    x = g("Relu", g("Add", y, g.batch_norm(g.conv(x, 8, 16, 1, bias=False, strides=[2, 2]), 16)))
    return g.model(g.gemm(g("Flatten", g("GlobalAveragePool", x)), 16, 5))


@network(11, 18)
def ds_cnn(opset):
    """Frozen for one sample, as is common."""
    g = Maker(opset, 1, 49, 10, batch=1)
    x = g("Relu", g.conv(g.x, 1, 16, (10, 4), strides=[2, 2], pads=[4, 1, 5, 1]))
    for _ in range(2):
        x = g("Relu", g.conv(x, 16, 16, 3, group=16, pads=[1] * 4))
        x = g("Relu", g.conv(x, 16, 16, 1))
    x = g("AveragePool", x, kernel_shape=[25, 5])
    return g.model(g("Softmax", g.gemm(g.shape(x, 1, 16), 16, 12), axis=1))


@network(13, 18)
def mobilenet(opset):
    """Inverted residuals."""
    g = Maker(opset, 3, 12, 12)
    zero, six = g.constant(0.0), g.constant(6.0)

    def block(x, i, o, stride):
        y = g("Clip", g.batch_norm(g.conv(x, i, 4 * i, 1, bias=False), 4 * i), zero, six)
        y = g.conv(y, 4 * i, 4 * i, 3, bias=False, group=4 * i, pads=[1] * 4, strides=[stride, stride])
        y = g("Clip", g.batch_norm(y, 4 * i), zero, six)
        y = g.batch_norm(g.conv(y, 4 * i, o, 1, bias=False), o)
        return g("Add", x, y) if i == o and stride == 1 else y

    x = g("Clip", g.batch_norm(g.conv(g.x, 3, 8, 3, bias=False, strides=[2, 2], pads=[1] * 4), 8), zero, six)
    x = block(block(block(x, 8, 8, 1), 8, 12, 2), 12, 12, 1)
    x = g.axes("ReduceMean", x, [2, 3], keepdims=0) if opset > 13 else g("Flatten", g("GlobalAveragePool", x))
    return g.model(g.gemm(x, 12, 4))


@network(13, 18)
def efficientnet(opset):
    g = Maker(opset, 3, 12, 10)

    def swish(x):
        return g("Mul", x, g("Sigmoid", x))

    x = swish(g.conv(g.x, 3, 8, 3, strides=[2, 2], pads=[0, 0, 1, 1]))
    y = swish(g.conv(x, 8, 8, 5, group=8, pads=[2] * 4))
    s = g.conv(swish(g.conv(g.axes("ReduceMean", y, [2, 3], keepdims=1), 8, 2, 1)), 2, 8, 1)
    x = g("Add", g.conv(g("Mul", y, g("Sigmoid", s)), 8, 8, 1), x)
    return g.model(g.gemm(g("Flatten", g("GlobalAveragePool", x)), 8, 4))


@network(11, 14, 20)
def cct(opset):
    g = Maker(opset, 3, 8, 8, batch=1)
    x = g("Relu", g.conv(g.x, 3, 12, 3, bias=False, pads=[1] * 4))
    x = g("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    x = g("Transpose", g.shape(x, 1, 12, 16), perm=[0, 2, 1])
    x = g("Add", x, g.w(1, 16, 12, name="positional_emb", scale=0.2))
    for _ in range(2):
        x = g("Add", x, g.attention(g.layer_norm(x, 12), 16, 12, 2))
        x = g.layer_norm(x, 12)
        x = g("Add", x, g.linear(g.gelu(g.linear(x, 12, 24)), 24, 12))
    x = g.layer_norm(x, 12)
    shares = g("Softmax", g("Transpose", g.linear(x, 12, 1), perm=[0, 2, 1]), axis=-1)
    return g.model(g.gemm(g.axes("Squeeze", g("MatMul", shares, x), [1]), 12, 5))


@network(13, 17, 20)
def vit(opset):
    """A class token, and the heads' parts cut from one product."""
    g = Maker(opset, 3, 8, 8)
    x = g.conv(g.x, 3, 12, 4, strides=[4, 4])
    x = g("Transpose", g.shape(x, 0, 12, -1), perm=[0, 2, 1])
    count = g("Gather", g("Shape", g.x), g.constant(0, dtype=np.int64), axis=0)
    token = g(
        "Expand",
        g.w(1, 1, 12, name="cls_token"),
        g("Concat", g.axes("Unsqueeze", count, [0]), g.integers(1, 12), axis=0),
    )
    x = g("Add", g("Concat", token, x, axis=1), g.w(1, 5, 12, name="pos_embed", scale=0.2))
    for _ in range(2):
        y = g.shape(g.linear(g.layer_norm(x, 12), 12, 36), 0, 5, 3, 2, 6)
        y = g("Transpose", y, perm=[2, 0, 3, 1, 4])
        if opset > 13:
            q, k, v = (g("Gather", y, g.constant(n, dtype=np.int64), axis=0) for n in range(3))
        else:
            q, k, v = (g.axes("Squeeze", each, [0]) for each in g("Split", y, outputs=3, axis=0))
        scores = g("MatMul", g("Mul", q, g.constant(6**-0.5)), g("Transpose", k, perm=[0, 1, 3, 2]))
        y = g("Transpose", g("MatMul", g("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        x = g("Add", x, g.linear(g.shape(y, 0, 5, 12), 12, 12))
        x = g("Add", x, g.linear(g.gelu(g.linear(g.layer_norm(x, 12), 12, 24)), 24, 12))
    x = g("Gather", g.layer_norm(x, 12), g.constant(0, dtype=np.int64), axis=1)
    return g.model(g.gemm(x, 12, 5))


@network(14, 18)
def transformer_of_steps(opset):
    """torch.nn.MultiheadAttention: steps before samples, samples and heads in one axis."""
    g = Maker(opset, 7, 6, batch=1)
    x = g.linear(g.x, 6, 12)
    y = g("Transpose", x, perm=[1, 0, 2])
    y = g.linear(y, 12, 36)
    y = g.axes("Squeeze", g("Transpose", g.axes("Unsqueeze", g.shape(y, 7, 1, 3, 12), [0]), perm=[3, 1, 2, 0, 4]), [3])
    q, k, v = (g("Gather", y, g.constant(n, dtype=np.int64), axis=0) for n in range(3))
    q, k, v = (g("Transpose", g.shape(each, 7, 2, 6), perm=[1, 0, 2]) for each in (q, k, v))
    q, k, v = (g.shape(each, 1, 2, 7, 6) for each in (q, k, v))
    root = g.constant(6**-0.25)
    scores = g("MatMul", g("Mul", q, root), g("Mul", g("Transpose", k, perm=[0, 1, 3, 2]), root))
    y = g("Transpose", g("MatMul", g("Softmax", scores, axis=-1), v), perm=[2, 0, 1, 3])
    y = g("Transpose", g.shape(g.gemm(g.shape(y, 7, 12), 12, 12), 7, 1, 12), perm=[1, 0, 2])
    x = g.layer_norm(g("Add", x, y), 12)
    return g.model(g.gemm(g.axes("ReduceMean", x, [1], keepdims=0), 12, 4))


@network(13, 20)
def cross_attention(opset):
    g = Maker(opset, 6, 12)
    other = g.input("prompt", 4, 12)
    x = g("Add", g.x, g.attention(g.layer_norm(g.x, 12), 6, 12, 3, other, 4))
    return g.model(g.linear(x, 12, 5))


@network(18)
def attention_with_bias(opset):
    g = Maker(opset, 6, 12)
    q, k, v = (g("Transpose", g.shape(g.linear(g.x, 12, 12), -1, 6, 2, 6), perm=[0, 2, 1, 3]) for _ in range(3))
    scores = g("Mul", g("MatMul", q, g("Transpose", k, perm=[0, 1, 3, 2])), g.constant(0.4))
    shares = g("Softmax", g("Add", scores, g.w(1, 2, 6, 6, name="table")), axis=-1)
    return g.model(g.shape(g("Transpose", g("MatMul", shares, v), perm=[0, 2, 1, 3]), -1, 6, 12))


@network(11, 18)
def tcn(opset):
    """Causal, dilated, of one side."""
    g = Maker(opset, 4, 30)
    x = g.x
    for n, (i, o) in enumerate(((4, 8), (8, 8))):
        d = 2**n
        y = g("Pad", x, g.integers(0, 0, 2 * d, 0, 0, 0), g.constant(0.0))
        y = g("Relu", g.batch_norm(g.conv(y, i, o, 3, sides=1, dilations=[d]), o))
        x = g("Relu", g("Add", y, g.conv(x, i, o, 1, sides=1) if i != o else x))
    return g.model(g.gemm(g("Gather", x, g.constant(-1, dtype=np.int64), axis=2), 8, 6))


@network(13)
def tcn_chomped(opset):
    """Padded on both ends, and cut."""
    g = Maker(opset, 4, 30)
    x = g.conv(g.x, 4, 8, 3, sides=1, dilations=[2], pads=[4, 4])
    x = g("Relu", g("Slice", x, g.integers(0), g.integers(-4), g.integers(2)))
    return g.model(g.gemm(g.axes("Squeeze", g("GlobalAveragePool", x), [2]), 8, 6))


@network(11, 18)
def unet(opset):
    g = Maker(opset, 2, 8, 12)
    a = g("Relu", g.conv(g.x, 2, 6, 3, pads=[1] * 4))
    b = g("Relu", g.conv(g("MaxPool", a, kernel_shape=[2, 2], strides=[2, 2]), 6, 12, 3, pads=[1] * 4))
    up = g("ConvTranspose", b, g.w(12, 6, 2, 2), g.w(6), strides=[2, 2])
    c = g("Relu", g.conv(g("Concat", up, a, axis=1), 12, 6, 3, pads=[1] * 4))
    return g.model(g.conv(c, 6, 1, 1))


@network(13, 21)
def unet_of_noise(opset):
    """Group norms, SiLU, nearest upsampling, a shift by another input."""
    g = Maker(opset, 4, 8, 8)
    time = g.input("time", 5)

    def norm(x, c):
        if opset >= 21:
            return g("GroupNormalization", x, g.near(c), g.w(c, scale=0.1), num_groups=2)
        y = g("InstanceNormalization", g.shape(x, 0, 2, -1), g.constant(np.ones(2)), g.constant(np.zeros(2)))
        return g("Add", g("Mul", g.shape(y, -1, c, side, side), g.near(c, 1, 1)), g.w(c, 1, 1, scale=0.1))

    def silu(x):
        return g("Mul", x, g("Sigmoid", x))

    side = 8
    x = g.conv(g.x, 4, 8, 3, pads=[1] * 4)
    shift = g.axes("Unsqueeze", g.gemm(silu(time), 5, 8), [2, 3])
    y = g("Add", g.conv(silu(norm(x, 8)), 8, 8, 3, pads=[1] * 4), shift)
    x = g("Add", x, g.conv(silu(norm(y, 8)), 8, 8, 3, pads=[1] * 4))
    side = 4
    y = g.conv(x, 8, 8, 3, strides=[2, 2], pads=[1] * 4)
    y = g(
        "Resize",
        y,
        "",
        g.constant([1, 1, 2, 2]),
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    side = 8
    y = g.conv(g("Concat", g.conv(y, 8, 8, 3, pads=[1] * 4), x, axis=1), 16, 4, 1)
    return g.model(y)


@network(11)
def autoencoder(opset):
    g = Maker(opset, 24, batch=1)
    x = g.x
    for i, o in ((24, 16), (16, 4), (4, 16), (16, 24)):
        x = g.gemm(x, i, o)
        x = g("Relu", x) if o != 24 else x
    return g.model(x)


@network(13)
def keras(opset):
    """tf2onnx: images with their channels last, turned around each layer."""
    g = Maker(opset, 12, 12, 3)
    x = g("Transpose", g.x, perm=[0, 3, 1, 2])
    x = g("Relu", g.conv(x, 3, 8, 3, strides=[2, 2], pads=[0, 0, 1, 1]))
    y = g("Add", g("Mul", g("Transpose", x, perm=[0, 2, 3, 1]), g.near(8)), g.w(8))
    x = g("Transpose", g("Relu", y), perm=[0, 3, 1, 2])
    x = g("Transpose", g("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), perm=[0, 2, 3, 1])
    x = g("Add", g("MatMul", g.shape(x, -1, 72), g.w(72, 5, scale=0.1)), g.w(5))
    return g.model(g("Softmax", x, axis=-1))


@network(18)
def convnext(opset):
    g = Maker(opset, 3, 8, 8)
    x = g.conv(g.x, 3, 8, 2, strides=[2, 2])
    y = g("Transpose", g.conv(x, 8, 8, 7, group=8, pads=[3] * 4), perm=[0, 2, 3, 1])
    y = g.linear(g.gelu(g.linear(g.layer_norm(y, 8), 8, 32)), 32, 8)
    y = g("Transpose", g("Mul", g.near(8, name="gamma"), y), perm=[0, 3, 1, 2])
    return g.model(g.gemm(g.axes("ReduceMean", g("Add", x, y), [-2, -1], keepdims=0), 8, 4))


@network(18)
def shufflenet(opset):
    g = Maker(opset, 4, 6, 6)
    x = g.conv(g.x, 4, 8, 3, pads=[1] * 4)
    a, b = g("Split", x, g.integers(4, 4), outputs=2, axis=1)
    b = g("Relu", g.conv(g.conv(b, 4, 4, 3, group=4, pads=[1] * 4), 4, 4, 1))
    y = g("Transpose", g.shape(g("Concat", a, b, axis=1), -1, 2, 4, 6, 6), perm=[0, 2, 1, 3, 4])
    return g.model(g.conv(g.shape(y, -1, 8, 6, 6), 8, 4, 1))


@network(13)
def inception(opset):
    g = Maker(opset, 3, 9, 9)
    x = g.conv(g.x, 3, 6, 3)
    parts = [
        g.conv(x, 6, 4, 1),
        g.conv(g.conv(x, 6, 4, 1), 4, 5, 5, pads=[2] * 4),
        g.conv(g("AveragePool", x, kernel_shape=[3, 3], pads=[1] * 4), 6, 3, 1),
    ]
    return g.model(g.gemm(g("Flatten", g("Concat", *parts, axis=1)), 12 * 49, 4))


@network(16)
def swin_window(opset):
    """Attention in windows, for which a row's windows are an axis before."""
    g = Maker(opset, 4, 4, 8)
    x = g("Transpose", g.shape(g.x, -1, 2, 2, 2, 2, 8), perm=[0, 1, 3, 2, 4, 5])
    x = g.shape(x, -1, 4, 8)
    q, k, v = (g.linear(x, 8, 8) for _ in range(3))
    shares = g("Softmax", g("MatMul", q, g("Transpose", k, perm=[0, 2, 1])), axis=-1)
    y = g("Transpose", g.shape(g("MatMul", shares, v), -1, 2, 2, 2, 2, 8), perm=[0, 1, 3, 2, 4, 5])
    return g.model(g.shape(y, -1, 4, 4, 8))


@network(20)
def simplified(opset):
    """What onnxruntime's simplifier leaves: its own GELU, norms before their opset."""
    g = Maker(12, 6, 8)
    x = g("LayerNormalization", g.x, g.near(8), g.w(8), epsilon=1e-5)
    return g.model(g.linear(g("Gelu", g.linear(x, 8, 16), domain="com.microsoft"), 16, 4))
