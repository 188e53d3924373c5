"""Makes ``digits.npz`` and trains ``digits.onnx`` on it.

A maintainer's tool: nothing imports it. It needs scikit-learn, for the images alone, and onnx::

    pip install scikit-learn onnx==1.20.1
    python make_digits.py -o .

The images are 8 x 8 with 17 grey levels, scaled to bytes. The network (convolution 1 to 8 of 2 x 2, ReLU, max-pool,
dense 128 to 32, ReLU, dense 32 to 10; 4,498 parameters) sees 897 of the 1,797 images, upright, for 40 epochs of Adam
(rate 2e-3, batches of 32), in numpy; which images follows from a fixed order. The other 900 it never sees. Windows
are small as each of their elements asks for a row of the array.
"""

import argparse
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits

CHANNELS, EDGE, HIDDEN, EPOCHS, BATCH, RATE = 8, 2, 32, 40, 32, 2e-3
ELEMENTS = EDGE * EDGE
BASE = 897


def order(count):
    return np.argsort(np.random.PCG64([0, 0x5EED]).random_raw(count), kind="stable")


def train(images, labels, seed):
    random = np.random.Generator(np.random.PCG64(seed))
    p = [
        random.normal(0, np.sqrt(2 / ELEMENTS), (CHANNELS, ELEMENTS)),
        np.zeros(CHANNELS),
        random.normal(0, np.sqrt(2 / (16 * CHANNELS)), (HIDDEN, 16 * CHANNELS)),
        np.zeros(HIDDEN),
        random.normal(0, np.sqrt(2 / HIDDEN), (10, HIDDEN)),
        np.zeros(10),
    ]
    mean, square = ([np.zeros_like(each) for each in p] for _ in range(2))
    step = 0
    for _ in range(EPOCHS):
        visit = random.permutation(len(images))
        for start in range(0, len(visit), BATCH):
            part = visit[start : start + BATCH]
            n = len(part)
            padded = np.pad(images[part] / 255, ((0, 0), (0, EDGE - 1), (0, EDGE - 1)))
            windows = np.stack([padded[:, i : i + 8, j : j + 8] for i in range(EDGE) for j in range(EDGE)], 1)
            windows = windows.reshape(n, ELEMENTS, 64)
            convolved = np.einsum("oc,ncp->nop", p[0], windows) + p[1][:, None]
            pools = convolved.reshape(n, CHANNELS, 4, 2, 4, 2).transpose(0, 1, 2, 4, 3, 5).reshape(n, CHANNELS, 16, 4)
            most, pooled = pools.argmax(-1), np.maximum(pools.max(-1), 0)
            flat = pooled.reshape(n, -1)
            before = flat @ p[2].T + p[3]
            hidden = np.maximum(before, 0)
            z = hidden @ p[4].T + p[5]
            dz = np.exp(z - z.max(1, keepdims=True))
            dz /= dz.sum(1, keepdims=True)
            dz[np.arange(n), labels[part]] -= 1
            dz /= n
            dh = (dz @ p[4]) * (before > 0)
            dpool = np.zeros_like(pools)
            np.put_along_axis(dpool, most[..., None], ((dh @ p[2]).reshape(pooled.shape) * (pooled > 0))[..., None], -1)
            dconv = dpool.reshape(n, CHANNELS, 4, 4, 2, 2).transpose(0, 1, 2, 4, 3, 5).reshape(n, CHANNELS, 64)
            gradients = [
                np.einsum("nop,ncp->oc", dconv, windows),
                dconv.sum((0, 2)),
                dh.T @ flat,
                dh.sum(0),
                dz.T @ hidden,
                dz.sum(0),
            ]
            step += 1
            for i, g in enumerate(gradients):
                mean[i] = 0.9 * mean[i] + 0.1 * g
                square[i] = 0.999 * square[i] + 0.001 * g**2
                p[i] = p[i] - RATE * (mean[i] / (1 - 0.9**step)) / (np.sqrt(square[i] / (1 - 0.999**step)) + 1e-8)
    return p


def write(p, path):
    names = ("conv.weight", "conv.bias", "fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias")
    shapes = ((CHANNELS, 1, EDGE, EDGE), None, None, None, None, None)
    weights = [
        numpy_helper.from_array(each.reshape(shape or each.shape).astype(np.float32), name)
        for each, shape, name in zip(p, shapes, names)
    ]
    nodes = [
        helper.make_node(
            "Conv",
            ["image", *names[:2]],
            ["c"],
            name="conv",
            kernel_shape=[EDGE, EDGE],
            pads=[0, 0, EDGE - 1, EDGE - 1],
        ),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", *names[2:4]], ["h"], name="fc1", transB=1),
        helper.make_node("Relu", ["h"], ["g"]),
        helper.make_node("Gemm", ["g", *names[4:]], ["logits"], name="fc2", transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    onnx.save(model, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", "--output", type=Path, default=Path("."))
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    digits = load_digits()
    images = np.rint(digits.images * 255 / 16).astype(np.uint8)
    labels = digits.target.astype(np.uint8)
    np.savez_compressed(options.output / "digits.npz", images=images, labels=labels)
    base = order(len(images))[:BASE]
    write(train(images[base], labels[base].astype(np.int64), options.seed), options.output / "digits.onnx")


if __name__ == "__main__":
    main()
