"""The machine's LoRA step of a compact transformer beside the values that another project's training graph makes."""

import os
from pathlib import Path

import numpy as np
import pytest

from gradloom.compiler.integers.reading import IntegerNetwork
from gradloom.compiler.lowering import lower
from gradloom.compiler.passes.arranging import arranged
from gradloom.compiler.passes.folding import folded
from gradloom.graph.onnx.load import load_network
from gradloom.sim.time.forecast import forecast

from ..compiler.same import CONFIG, ORDERS, rules_of, steps

FOLDER = Path(os.environ.get("WITNESS", "witness")) / "deeploy" / "CCT_Train" / "CCT2_LoRA1"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="others' files: WITNESS names their folder")
#: Of SGD.
RATE = 0.01


@pytest.fixture(scope="module")
def step():
    """The network for the machine, what learns by the other's name, the input, and the updated values."""
    network = load_network(FOLDER / "network_infer.onnx")
    given, want = (dict(np.load(FOLDER / f"{name}.npz")) for name in ("inputs", "outputs"))
    ours = {origin: weight for weight, origin in network.origins.items()}
    learners = {ours[name.removesuffix("_updated")]: value for name, value in want.items()}
    return folded(arranged(network).network, learners), learners, given


def test_the_integers_update_is_the_others(step):
    network, learners, given = step
    exact, port = IntegerNetwork(network, tuple(learners)), network.inputs[0]
    found = exact.forward({port.tensor.name: port.taken(given["input"].astype(float))})
    classes = exact.port.tensor.features
    _, last = exact.falling("classes", found[exact.port.tensor.name], np.eye(classes)[given["labels"]])
    gradients = exact.backward(found, last)
    whole = []
    for name, want in learners.items():
        old = np.asarray(network.values[name])
        change = (want if want.shape == old.shape else want.T) - old
        made = -RATE * gradients[name].reshape(old.shape)
        whole.append((change.ravel(), made.ravel()))
        # A bias in front of a softmax over rows has no gradient.
        if np.abs(change).max() > 0:
            assert _cosine(change, made) >= 0.98, name
    assert _cosine(*(np.concatenate(each) for each in zip(*whole))) >= 0.99


def test_a_step_takes_the_cycles_of_the_plan(step):
    network, learners, _ = step
    exact = IntegerNetwork(network, tuple(learners))
    made = lower(CONFIG, network, samples=8, loss="classes", rules=rules_of(exact))
    assert forecast(made.program).total / 8 <= 120_000


def test_the_program_is_the_integers(step):
    network, learners, _ = step
    steps(network, tuple(learners), samples=2, loss="classes", order=ORDERS[0], whole=False)


def _cosine(one, other):
    return float((one * other).sum() / np.sqrt(np.square(one).sum() * np.square(other).sum()))
