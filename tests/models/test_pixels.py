"""Networks that normalise their images themselves: the host does it, and words are within the format of onnxruntime."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from gradloom.models.network import ConvLayer, DenseLayer, LayerNetwork, PixelMap
from gradloom.models.onnx_import import load_onnx
from gradloom.rtl.formats.images import ACTIVATION, PARAMETER
from gradloom.rtl.machines.configs.images import ImageConfig
from gradloom.systems.images.baselines import BaselineTrainer
from gradloom.systems.images.integers import fill_cache
from gradloom.systems.images.mathematics import FloatCache, layer_forward, windows
from gradloom.systems.images.program.lowering import lower

from .test_onnx_import import FIXTURES, runtime

SCALED = sorted(path.name for path in FIXTURES.glob("scaled_*.onnx"))


def images_for(network, count=6, seed=1):
    return np.random.default_rng(seed).integers(0, 256, (count, *network.input_shape)).astype(np.uint8)


def bound_of(network, images):
    """How far the machine's logits may be from exact ones, from its formats alone.

    A word is off by half a last place, a weight too; a layer adds up what each does to its sums, and rounds once.
    """
    half, weight = ACTIVATION.step / 2, PARAMETER.step / 2
    x, off = network.pixel_map.activations(images), half
    for layer in network.layers:
        seen = windows(layer, x) if isinstance(layer, ConvLayer) else x.reshape(len(x), -1, 1)
        most = np.abs(seen).sum(axis=1).max() + off * seen.shape[1]
        off = weight * most + off * np.abs(layer.weight).reshape(layer.outputs, -1).sum(axis=1).max() + 2 * half
        x = layer_forward(layer, x)
    return off, x


@pytest.mark.parametrize("name", SCALED)
def test_the_machines_integers_are_what_onnxruntime_computes(name):
    network = load_onnx(FIXTURES / name)
    images = images_for(network)
    bound, exact = bound_of(network, images)
    config = ImageConfig()
    made = fill_cache(lower(network, config, 1), network.pixel_map.words(images, config.activation))
    words, saturated = made.logits, made.saturated
    expected = runtime(FIXTURES / name, (images / 255).astype(np.float32))
    # What float32 adds to onnxruntime's own.
    assert np.abs(ACTIVATION.decode(words) - expected).max() < bound + 1e-5 * max(1, np.abs(expected).max())
    # It would notice.
    assert not saturated.any() and bound < 0.05 * np.ptp(exact)


@pytest.mark.parametrize("name", SCALED)
def test_float_engines_begin_with_the_same_activations(name):
    network = load_onnx(FIXTURES / name)
    images = images_for(network)
    expected = runtime(FIXTURES / name, (images / 255).astype(np.float32))
    for logits in (
        FloatCache.of(network, images, cache="none").logits,
        BaselineTrainer(network, "full").forward(network.pixel_map.activations(images)),
    ):
        np.testing.assert_allclose(logits, expected, atol=1e-4 * np.abs(expected).max())
    assert BaselineTrainer(network, "full").accuracy(images, expected.argmax(axis=1)) == 1


def test_padding_is_zero_after_the_map_and_not_before():
    """An image that the map makes zero throughout gives the bias alone, at the edges too."""
    layers = (
        ConvLayer(weight=np.ones((1, 1, 3, 3)), bias=np.array([0.5]), pads=(1, 1, 1, 1)),
        DenseLayer(weight=np.eye(4, 16), bias=np.zeros(4)),
    )
    network = LayerNetwork(
        name="n", input_shape=(1, 4, 4), layers=layers, pixel_map=PixelMap(scale=np.array(5.0), shift=np.array(-1.0))
    )
    words = network.pixel_map.words(np.full((1, 1, 4, 4), 51, np.uint8), ACTIVATION)
    assert not words.any()
    logits = fill_cache(lower(network, ImageConfig(), 1), words).logits
    np.testing.assert_array_equal(ACTIVATION.decode(logits), np.full((1, 4), 0.5))


def test_without_a_map_a_pixel_is_a_byte_over_255():
    images = np.array([0, 51, 255], np.uint8).reshape(1, 1, 3)
    np.testing.assert_array_equal(PixelMap().activations(images).ravel(), [0, 0.2, 1])
    np.testing.assert_array_equal(PixelMap().words(images, ACTIVATION).ravel(), [0, 13107, 65536])


@pytest.mark.parametrize("bits", [18, 24])
def test_pixels_beyond_the_format_are_refused_with_their_share(bits):
    fmt = ImageConfig(activation_bits=bits).activation
    images = np.array([255] * 3 + [0] * 5, np.uint8).reshape(2, 1, 2, 2)
    within = PixelMap(scale=np.array(fmt.hi * fmt.step))
    assert within.words(images, fmt).max() == fmt.hi
    with pytest.raises(ValueError, match=r"^images: 3 of 8 pixels \(38 %\) are outside .*-128 to 12.*, up to 128\b"):
        PixelMap(scale=np.array(128.0)).words(images, fmt)
    assert PixelMap(scale=np.array(-128.0)).words(images, fmt).min() == fmt.lo


def test_a_map_that_is_no_map_of_the_image_is_refused():
    layers = (DenseLayer(weight=np.ones((2, 4)), bias=np.zeros(2)),)
    with pytest.raises(ValueError, match=r"pixel_map has arrays of \(3, 1, 1\) and \(\): .* an image of \(1, 2, 2\)"):
        LayerNetwork(name="n", input_shape=(1, 2, 2), layers=layers, pixel_map=PixelMap(scale=np.ones((3, 1, 1))))
    with pytest.raises(ValueError, match="scale of the pixels has 1 values that are NaN"):
        PixelMap(scale=np.array([np.inf, 1]))


def inside(path, mean, std):
    """The network of ``path`` with ``(x - mean) / std`` before it, as one file."""
    model = onnx.load(path)
    image = model.graph.input[0].name
    for node in model.graph.node:
        node.input[:] = ["prepared" if name == image else name for name in node.input]
    model.graph.initializer.extend(
        numpy_helper.from_array(np.float32(value), name) for name, value in (("mean", mean), ("std", std))
    )
    for place, parts in enumerate(((image, "mean", "centred", "Sub"), ("centred", "std", "prepared", "Div"))):
        model.graph.node.insert(place, helper.make_node(parts[3], parts[:2], [parts[2]], name=parts[2]))
    return model


def test_a_fine_tune_and_its_predictions_see_the_same_normalised_images(tmp_path):
    """Predictions are right as often as the fine-tune said, and the base's are onnxruntime's."""
    from gradloom import finetune, infer
    from gradloom.models.datasets import DATA, default_split

    data = default_split(degrees=90).limited(train=40, test=60)
    held = {name: getattr(data, name) for name in ("x_train", "y_train", "x_test", "y_test")}
    np.savez(tmp_path / "data.npz", **held)
    np.savez(tmp_path / "x.npz", x=data.x_test)
    onnx.save(inside(DATA / "lenet5.onnx", 0.25, 0.5), tmp_path / "m.onnx")
    asked, mine = {"data": tmp_path / "data.npz"}, str(tmp_path / "m.onnx")
    for engine in ("reference", "float"):
        metrics = finetune(mine, board="kv260", output=tmp_path / engine, engine=engine, epochs=2, **asked)
        labels = infer(mine, data=tmp_path / "x.npz", engine=engine, adapter=tmp_path / engine)["labels"]
        assert np.mean(np.array(labels) == data.y_test) == metrics["accuracy_after"]
    base = infer(mine, data=tmp_path / "x.npz")["labels"]
    expected = runtime(tmp_path / "m.onnx", (data.x_test / 255).astype(np.float32))
    assert base == expected.argmax(axis=1).tolist()
    assert base != infer("lenet5", data=tmp_path / "x.npz")["labels"]
