"""Layers of two codes that samples choose."""

import numpy as np
import pytest

import gradloom
from gradloom.graph.mathematics import FloatReading
from gradloom.graph.onnx.load import load_network
from gradloom.preset import find_preset
from gradloom.sim.time.forecast import forecast
from gradloom.systems.forward import result_of
from gradloom.systems.networks.program.precision import fitted
from gradloom.systems.networks.program.prepared import Prepared, learning_of, precise_of
from gradloom.systems.networks.task import answers

from .small import write_data, write_network

CONFIG = find_preset("tile-kv260").config
BATCH = 8


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    return load_network(write_network(tmp_path_factory.mktemp("precision") / "m.onnx"))


def pictures(seed, count=64):
    return np.random.default_rng(seed).standard_normal((count, 3, 8, 8))


def found(network, asked, loss="classes"):
    plain = Prepared(learning_of(network, loss, "none"), loss)
    told = []
    return *fitted(plain, asked, pictures(0), CONFIG, BATCH, lambda *text: told.append(text[-1])), told


def test_the_choice_is_within_the_budget_and_told(network):
    cheap, dear = (found(network, asked) for asked in ("auto", "auto:100000"))
    for (prepared, chosen, told), most in ((cheap, None), (dear, 100_000)):
        cycles = -(-forecast(prepared.forward(CONFIG, BATCH).program).total // BATCH)
        assert chosen["cycles"] == cycles <= (most or chosen["without"] * 9 // 8)
        assert prepared.precise == precise_of(network, chosen["layers"])
        assert told == [f"second codes: {chosen['layers']}; {cycles:,} cycles a sample, {chosen['without']:,} without"]
    # With cycles enough, all that the result shows.
    assert set(dear[0].precise) == {"w0", "w1", "w2"} and 2 in dear[0].precise.values()
    assert len(cheap[0].precise) < 3


def test_layers_of_the_choice_lose_less_than_others_for_no_more_cycles(network):
    """Judged by other samples: the first layer chosen is worth more than any other alone."""
    x = pictures(1, 128)
    _, chosen, _ = found(network, "auto:100000")
    first = chosen["layers"].partition(",")[0].removeprefix("inputs:")
    plain = Prepared(learning_of(network, "classes", "none"), "classes")
    want = FloatReading(plain.learning.network).run(x)[0].reshape(len(x), -1)

    def away(layer):
        prepared = found(network, f"inputs:{layer}")[0]
        got = answers(result_of(prepared.integers()), prepared, x, BATCH).reshape(len(x), -1)
        return np.square(got - want).mean()

    errors = {layer: away(layer) for layer in ("w0", "w1", "w2")}
    assert errors[first] == min(errors.values())


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("auto:", None),
        ("auto:0", "precise=auto:0: must be auto, or auto:CYCLES with a number above 0"),
        ("auto:many", "precise=auto:many: must be auto, or auto:CYCLES"),
        ("auto:9", "precise=auto:9: must be [0-9,]+ at least, the cycles without second codes"),
    ],
)
def test_budgets_are_numbers_of_cycles_that_suffice(network, asked, told):
    if told is None:
        assert found(network, asked)[1] == found(network, "auto")[1]
        return
    with pytest.raises(ValueError, match=told):
        found(network, asked)


def test_samples_to_learn_from_choose_and_others_do_not(tmp_path):
    model, data = write_network(tmp_path / "m.onnx"), write_data(tmp_path / "d.npz")
    held = dict(np.load(data))
    given = {"board": "kv260", "batch": BATCH, "precise": "auto"}
    before = gradloom.infer(model, data=data, **given)["precise"]
    np.savez(tmp_path / "other.npz", **{**held, "x_test": 9 * held["x_test"][::-1]})
    assert gradloom.infer(model, data=tmp_path / "other.npz", **given)["precise"] == before
    tuned = gradloom.finetune(model, board="kv260", data=data, epochs=1, precise="auto", output=tmp_path / "run")
    told = tuned.metrics["precise"]
    assert told["layers"] and told["cycles"] <= told["without"] * 9 // 8
    gradloom.infer(model, board="kv260", data=data, adapter=tmp_path / "run")
    with pytest.raises(ValueError, match="precise=auto: needs samples, as finetune and infer have"):
        gradloom.plan(model, board="kv260", precise="auto")
