"""A training step of a compact convolutional transformer, as another project's training graph makes it.

Its graph holds LoRA as products, a loss, all gradients and SGD; its outputs are the updated values. The float reading
reads the network alone, and makes the same step with its own gradients.
"""

import numpy as np

from gradloom.graph.descent import Momentum
from gradloom.graph.losses import cross_entropy
from gradloom.graph.mathematics import FloatReading
from gradloom.graph.onnx.load import load_network, network_of

from ..graph.corpus import CORPUS

__all__ = ["FILES", "OF", "hear", "subject"]

OF = "values"
_STEP = "deeploy/CCT_Train/CCT2_LoRA1"
_RUNS = ("deeploy/CCT/FP32/CCT_1_16_16_8", "deeploy/Autoencoder1D")
FILES = (
    *(f"{_STEP}/{name}" for name in ("network_infer.onnx", "inputs.npz", "outputs.npz")),
    *(f"{run}/{name}" for run in _RUNS for name in ("network.onnx", "inputs.npz", "outputs.npz")),
)


def subject():
    """Gradients of a network of the same kind, to four digits."""
    network = network_of(CORPUS["cct-11"]())
    reading = FloatReading(network)
    found = reading.forward(np.random.default_rng(5).standard_normal((2, *network.inputs[0].shape)))
    name = network.outputs[0].tensor.name
    _, last = cross_entropy(found[name], np.array([1, 2]).repeat(found[name][0].size // found[name].shape[-1]))
    gradients = reading.backward(found, {name: last}, set(reading.values))
    return {weight: f"{np.abs(each).sum():.3e}" for weight, each in gradients.items()}


def hear(witness, folder):
    """Values that differ from others' by more than a bound derived from float32."""
    said = {}
    for run in _RUNS:
        network = load_network(witness / run / "network.onnx")
        given, want = (np.load(witness / run / f"{name}.npz") for name in ("inputs", "outputs"))
        (made,) = FloatReading(network).run(given[given.files[0]])
        differing = np.abs(made - want["output"]) > 1e-5 * np.abs(want["output"]).max()
        said[run.rpartition("/")[2]] = {"differing": int(differing.sum()), "compared": made.size}
    network = load_network(witness / _STEP / "network_infer.onnx")
    given, want = (np.load(witness / _STEP / f"{name}.npz") for name in ("inputs", "outputs"))
    ours = {origin: weight for weight, origin in network.origins.items()}
    learners = {name: ours[name.removesuffix("_updated")] for name in want.files}
    reading = FloatReading(network, dtype=np.float32)
    start = dict(reading.values)
    found = reading.forward(given["input"])
    port = network.outputs[0]
    _, last = cross_entropy(port.given(found[port.tensor.name]), given["labels"])
    last = last.reshape(found[port.tensor.name].shape)
    Momentum(0.01)(reading.values, reading.backward(found, {port.tensor.name: last}, set(learners.values())))
    differing = compared = 0
    for name, weight in learners.items():
        old, new = (x if x.shape == want[name].shape else x.T for x in (start[weight], reading.values[weight]))
        # A part in 100,000 of the largest change, and the last place of the largest value, which float32 rounds to.
        bound = 1e-5 * np.abs(want[name] - old).max() + np.spacing(np.abs(want[name]).max())
        differing += int((np.abs(new - want[name]) > bound).sum())
        compared += new.size
    said["CCT2_LoRA1"] = {"differing": differing, "compared": compared}
    return said
