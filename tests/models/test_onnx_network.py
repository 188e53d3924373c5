"""A network with its adapter in onnxruntime has the logits of our own floating point."""

import numpy as np
import onnxruntime
import pytest

from gradloom.models.network import ConvLayer, DenseLayer, LayerNetwork, PixelMap
from gradloom.models.onnx_network import network_onnx
from gradloom.systems.images.mathematics import FloatCache, adapter_logits

RANDOM = np.random.default_rng(12)


def drawn(*shape):
    return RANDOM.normal(0, 0.3, shape)


def network(classes=5):
    """Strides, uneven pads, pools that leave rows over, layers without ReLU, pixels that are scaled by channel."""
    layers = (
        ConvLayer(weight=drawn(4, 3, 3, 5), bias=drawn(4), stride=(1, 2), pads=(1, 2, 0, 1), relu=True, pool=2),
        ConvLayer(weight=drawn(6, 4, 2, 2), bias=drawn(6)),
        DenseLayer(weight=drawn(20, 6 * 5 * 2), bias=drawn(20), relu=True),
        DenseLayer(weight=drawn(classes, 20), bias=drawn(classes)),
    )
    pixels = PixelMap(scale=np.array([2.0, 1.5, 0.5]).reshape(3, 1, 1), shift=np.array(-0.5))
    return LayerNetwork(name="odd", input_shape=(3, 13, 15), layers=layers, pixel_map=pixels)


def answered(content, images):
    session = onnxruntime.InferenceSession(content)
    (found,) = session.run(None, {"pixels": images.astype(np.float32) / np.float32(255)})
    return found


IMAGES = RANDOM.integers(0, 256, (40, 3, 13, 15), dtype=np.uint8)


@pytest.mark.parametrize("codes", ["nf4", "int8", "none"])
@pytest.mark.parametrize("classes", [5, 1])
def test_onnxruntime_has_the_logits_of_our_floating_point(codes, classes):
    made = network(classes)
    adapters = [(drawn(2, size), drawn(made.classes, 2)) for size in made.taps]
    kept = FloatCache.of(made, IMAGES, cache=codes)
    expected = adapter_logits(adapters, kept.taps, kept.logits)
    found = answered(network_onnx(made, adapters, codes), IMAGES)
    # A value beside a threshold may have the other code in float32: that changes a few logits a little.
    apart = np.abs(found - expected).max(axis=1)
    assert np.median(apart) <= 1e-5 * np.abs(expected).max()
    assert np.linalg.norm(found - expected) <= 1e-3 * np.linalg.norm(expected)
    assert (found.argmax(axis=1) == expected.argmax(axis=1)).mean() >= 0.95
    plain = FloatCache.of(made, IMAGES, cache="none")
    other = adapter_logits(adapters, plain.taps, plain.logits)
    assert codes == "none" or np.linalg.norm(found - other) > 1e-3 * np.linalg.norm(other)


def test_a_network_without_an_adapter_is_itself():
    made = network()
    expected = FloatCache.of(made, IMAGES, cache="none").logits
    np.testing.assert_allclose(answered(network_onnx(made), IMAGES), expected, atol=1e-5 * np.abs(expected).max())


def test_a_block_of_zeros_stays_zeros():
    made = network()
    adapters = [(drawn(2, size), drawn(5, 2)) for size in made.taps]
    dark = np.zeros_like(IMAGES[:2])
    kept = FloatCache.of(made, dark, cache="nf4")
    expected = adapter_logits(adapters, kept.taps, kept.logits)
    np.testing.assert_allclose(answered(network_onnx(made, adapters, "nf4"), dark), expected, rtol=1e-4, atol=1e-4)
