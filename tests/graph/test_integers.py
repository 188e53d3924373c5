"""The tile machine's formats, emulated on networks: what holds, and what a power of two a tile loses."""

from pathlib import Path

import numpy as np
import pytest

from gradloom.graph.integers import IntegerReading
from gradloom.graph.mathematics import FloatReading
from gradloom.graph.methods import lora
from gradloom.graph.onnx.load import load_network, network_of
from gradloom.graph.operations import Linear
from gradloom.rtl.formats.tiles.codes import NARROW, WIDE, coded

from .corpus import CORPUS
from .made import Maker

GOLDEN = Path(__file__).parents[1] / "golden/networks"


def away(made, want):
    return np.sqrt(np.square(made - want).mean() / np.square(want).mean())


def test_a_power_of_two_a_column_of_weights_halves_the_error():
    """The autoencoder's weights reach 9.1: one power of two a tile is too coarse for them, and rows do not help."""
    network, x = load_network(GOLDEN / "mlperf_ad01.onnx"), np.load(GOLDEN / "mlperf_ad01.npz")["x"]
    (want,) = FloatReading(network).run(x)
    tiles, rows, columns = (
        away(IntegerReading(network, **given).run(x)[0], want)
        for given in ({}, {"by_rows": True}, {"by_columns": True})
    )
    assert columns < 0.08 and columns < 0.5 * tiles
    assert rows > 0.8 * tiles


def test_codes_of_sixteen_bits_are_nearly_float():
    network, x = load_network(GOLDEN / "mlperf_ad01.onnx"), np.load(GOLDEN / "mlperf_ad01.npz")["x"]
    precise = {each.layer: 2 for each in network.operations if isinstance(each, Linear)}
    (want,) = FloatReading(network).run(x)
    assert away(IntegerReading(network, precise=precise).run(x)[0], want) < 2e-3


def test_every_tensor_is_codes_of_its_tiles():
    network = network_of(CORPUS["cct-14"]())
    reading = IntegerReading(network)
    found = reading.forward(np.random.default_rng(1).standard_normal((3, *network.inputs[0].shape)))
    for name, x in found.items():
        flat = x.reshape(-1, x.shape[-1])
        if "~" not in name and len(x) > 1:
            np.testing.assert_array_equal(coded(flat, WIDE).values, flat, err_msg=name)
    for name in reading.values:
        if name.endswith(".weight") and reading.values[name].ndim == 2:
            held = reading.weight(name)
            np.testing.assert_array_equal(coded(held, NARROW).values, held)


def test_a_product_is_of_codes_of_eight_bits_and_its_sum_of_sixteen():
    network = network_of(CORPUS["autoencoder-11"]())
    reading, x = IntegerReading(network), np.random.default_rng(2).standard_normal((70, 24))
    found = reading.forward(x)
    first = network.operations[0]
    given = coded(x, WIDE).values
    np.testing.assert_array_equal(found[first.i[0].name], given)
    w, b = (reading.values[weight.name] for weight in first.weights)
    want = coded(given, NARROW).values @ coded(w.T, NARROW).values + b
    np.testing.assert_array_equal(found[first.o.name], coded(want, WIDE).values)


@pytest.mark.parametrize("turned", [True, False])
def test_rows_of_a_factor_have_exponents_unless_a_product_sums_over_them(turned):
    g = Maker(13, 6, 6)
    other = g("Relu", g.x)
    network = network_of(g.model(g("MatMul", g.x, g("Transpose", other, perm=[0, 2, 1]) if turned else other)))
    reading = IntegerReading(network, by_rows=True)
    x = np.random.default_rng(3).standard_normal((1, 6, 6)) * np.logspace(0, 3, 6)[:, None]

    def rows(x, bits):
        return np.concatenate([coded(row[None], bits).values for row in x])

    given = rows(x[0], WIDE)
    held = np.maximum(given, 0)
    product = rows(given, NARROW) @ (rows(held, NARROW).T if turned else coded(held, NARROW).values)
    np.testing.assert_array_equal(reading.run(x)[0][0], rows(product, WIDE))


def test_gradients_of_an_adapter_point_where_float_ones_do():
    network = network_of(CORPUS["cct-14"]())
    learning = lora(network, "linear", rank=1)
    random = np.random.default_rng(6)
    x = random.standard_normal((4, *network.inputs[0].shape))
    made = []
    for reading in (FloatReading(learning.network), IntegerReading(learning.network)):
        for weight in learning.learners:
            shape = reading.values[weight].shape
            reading.values[weight] = np.random.default_rng(len(weight)).standard_normal(shape) * 0.2
        found = reading.forward(x)
        name = learning.network.outputs[0].tensor.name
        last = {name: np.random.default_rng(9).standard_normal(found[name].shape)}
        gradients = reading.backward(found, last, learning.learners)
        made.append(np.concatenate([gradients[weight].ravel() for weight in learning.learners]))
    one, other = made
    assert one @ other / np.linalg.norm(one) / np.linalg.norm(other) > 0.998
