"""LSTMs with random weights, for tests and measurements."""

from dataclasses import replace

import numpy as np

from .coding import Coding
from .front import Conv
from .lstm import GATES, Gate, LstmCell
from .network import Dense, RecurrentNetwork

__all__ = ["KINDS", "example_codes", "example_lstm", "example_network"]

#: Options of :func:`example_lstm` by what is special in the network.
KINDS: dict[str, dict[str, bool]] = {
    "shifts": {},
    "multipliers": {"powers": False},
    "coupled": {"coupled": True},
    "complement": {"complement": True},
    "unsigned": {"unsigned": True},
    "unclipped": {"clipped": False},
}


def example_lstm(
    seed: int,
    units: int,
    inputs: int,
    *,
    powers: bool = True,
    coupled: bool = False,
    complement: bool = False,
    unsigned: bool = False,
    clipped: bool = True,
) -> RecurrentNetwork:
    """An LSTM with random weights.

    Weights have 8 bits, activations 6, the cell state 8.

    Parameters
    ----------
    seed, units, inputs : int
    powers : bool
        Scales are powers of two, so that requantisers become shifts and ties occur; else each row has a scale of its
        own, and requantisers become multipliers.
    coupled : bool
        The input gate is 1 minus the forget gate.
    complement : bool
        The forget gate is the greatest code minus the input gate.
    unsigned : bool
        Codes of the input are 0 to 255.
    clipped : bool
        The cell state has a quantiser.
    """
    rng = np.random.default_rng(seed)
    scale = 2.0**-5 if powers else 0.0271
    source = Coding(scale, *((0, 255) if unsigned else (-32, 31)))
    state = Coding(2.0**-5, -128, 127) if powers else Coding(0.0417, -100, 90)
    if not clipped:
        state = Coding(2.0**-5, -64, 63)
    squashed = Coding(2.0**-5, -32, 31)
    gates = {}
    for name in GATES:
        if (coupled and name == "input") or (complement and name == "forget"):
            continue
        w, u = (np.clip(rng.normal(0, 32, (units, width)), -127, 127).astype(np.int64) for width in (inputs, units))
        scales = np.full(units, 2.0**-7) if powers else rng.uniform(0.003, 0.02, units)
        bias = rng.integers(-64, 65, units) * scales * scale if powers else rng.uniform(-1, 1, units)
        output = squashed if name == "cell" else Coding(2.0**-6, 0, 64 if coupled else 63)
        accumulator = Coding(2.0**-3 if powers else 0.19, -32, 31)
        gates[name] = Gate(
            w, u, scales, scales, bias, accumulator, "tanh" if name == "cell" else "sigmoid", output, f"{name} gate"
        )
    cell = LstmCell(
        gates,
        state,
        state,
        state if clipped else None,
        None,
        squashed,
        Coding(scale, -32, 31),
        name="cell",
        one=63 * complement,
    )
    return RecurrentNetwork("example", source, (), cell)


def example_network(
    seed: int, units: int, channels: int, *, kernel: int, stride: int, outputs: int, classes: int, powers: bool = True
) -> RecurrentNetwork:
    """A convolution, an LSTM and a dense layer with random weights.

    Windows have ``kernel * channels`` codes; the convolution has zeros of a sample on both sides and a ReLU.
    """
    rng = np.random.default_rng(seed + 1000)
    made = example_lstm(seed, units, outputs, powers=powers)
    weight = np.clip(rng.normal(0, 32, (outputs, channels, kernel)), -127, 127).astype(np.int64)
    scale = np.full(outputs, 2.0**-8) if powers else rng.uniform(0.002, 0.006, outputs)
    bias = rng.integers(-64, 65, outputs) * scale * made.input.scale
    coding = Coding(made.input.scale, 0, 31)
    conv = Conv(weight, scale, bias, stride, (1, 1), coding, "conv")
    dense = np.clip(rng.normal(0, 40, (classes, units)), -127, 127).astype(np.int64)
    head = Dense(dense, rng.uniform(0.001, 0.01, classes), rng.normal(0, 1, classes), "dense")
    return replace(made, input=Coding(2.0**-4, -128, 127), front=(conv,), head=head)


def example_codes(network: RecurrentNetwork, rng: np.random.Generator, count: int, steps: int) -> np.ndarray:
    """Random codes ``[count, steps, channels]`` of the network's input."""
    source = network.input
    return rng.integers(source.lo, source.hi + 1, (count, steps, network.channels))
