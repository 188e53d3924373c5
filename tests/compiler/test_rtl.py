"""A LoRA step of a small network in simulated RTL of the whole machine."""

from dataclasses import asdict

import numpy as np
import pytest

from gradloom.compiler.commands.gathers import shifts
from gradloom.compiler.commands.tied import repeated_rows
from gradloom.graph.base import Tensor
from gradloom.graph.network import Network, Port
from gradloom.graph.operations import Activation, Add, Attention, Convolution, Linear, Norm, Reduce
from gradloom.sim.reference.tiles.program import TileMachine as Models
from gradloom.sim.run.machine import MachineRunner
from gradloom.systems.networks.program.prepared import Prepared, learning_of, precise_of
from gradloom.systems.networks.program.programs import runs
from gradloom.systems.networks.program.steps import MachineSteps

from ..tiles import LEAST, ROOMY
from .nets import conv, headed, tensor


def network():
    """A residual block of images whose sides are no powers of two, 5 channels with a norm, more classes than a tile."""
    x, a, b, s, n, m, y = (
        Tensor(name, sides, features)
        for name, sides, features in (
            ("x", (7, 5), 3),
            ("a", (7, 5), 5),
            ("b", (7, 5), 5),
            ("s", (7, 5), 5),
            ("n", (7, 5), 5),
            ("m", (1, 1), 5),
            ("y", (1, 1), 70),
        )
    )
    shape = {"kernel": (3, 3), "stride": (1, 1), "pads": ((1, 1), (1, 1)), "dilation": (1, 1)}
    listed = (
        Convolution((x,), a, "first", **shape),
        Activation((a,), b, "relu"),
        Convolution((b,), s, "second", **shape),
        Add((s, b), Tensor("sum", (7, 5), 5)),
        Activation((Tensor("sum", (7, 5), 5),), Tensor("r", (7, 5), 5), "relu"),
        Norm((Tensor("r", (7, 5), 5),), n, "norm", eps=1e-3),
        Reduce((n,), m, "mean", True),
        Linear((m,), y, "last"),
    )
    random = np.random.default_rng(0)
    values = {w.name: random.standard_normal(w.shape) / 3 for each in listed for w in each.weights}
    ports = [Port(t.name, t.shape, t, t.shape, tuple(range(len(t.shape)))) for t in (x, y)]
    return Network(listed, values, (ports[0],), (ports[1],))


@pytest.mark.parametrize(
    ("method", "targets", "precise"),
    [("lora", "second,last", None), ("lora", "second,last", "ends,inputs:second"), ("instantft", "*", None)],
)
def test_steps_leave_the_memory_of_the_models_in_the_cycles_of_the_forecast(method, targets, precise):
    """Three of two batches, adapters beside a convolution and the last layer: every byte, counter and command's cycles.

    What depends on no adapter runs once for each batch. Classes have weights. The first and the last layer may have
    two codes.
    """
    same(learning_of(network(), "classes", method, targets=targets, rank=2), precise, 5)


def test_a_norm_of_more_rows_than_slots_hold():
    """Groups of 3 channels, of 1,024 rows: by parts, forward and back."""
    x, first = tensor("x", 32, 32, 3), tensor("first", 32, 32, 6)
    norm = Norm((first,), tensor("norm", 32, 32, 6), "norm", eps=1e-5, over_rows=True, groups=2)
    whole = headed([Linear((x,), first, "first"), norm], [x], 70)
    same(learning_of(whole, "classes", "lora", targets="first,head", rank=2), None, 3, ROOMY, samples=1)


@pytest.mark.parametrize("keys", [100, 256])
def test_attention_over_several_tiles_of_keys(keys):
    """Forward and back: rows of probabilities are gathered over tiles, the last of which may be narrow."""
    x = tensor("x", keys, 12)
    parts = [Linear((x,), tensor(name, keys, 20), f"{name}_layer") for name in "qkv"]
    seen = Attention(tuple(each.o for each in parts), tensor("seen", keys, 20), 2, 0.25)
    learning = learning_of(headed([*parts, seen], [x], 70), "classes", "lora", targets="*", rank=2)
    same(learning, None, 3, ROOMY, samples=1)


def test_channels_of_several_tiles_come_alone():
    """A kernel of 70 channels in groups reads one tile of each row, forward and back."""
    x, wide = tensor("x", 7, 5, 3), tensor("wide", 7, 5, 70)
    thin = conv(wide, "thin", 70, 3, pads=1, groups=70, positive=True)
    whole = headed([Linear((x,), wide, "first"), thin], [x], 70)
    same(learning_of(whole, "classes", "lora", targets="first,head", rank=2), None, 3)


def test_convolutions_that_read_one_tensor_make_one_gradient():
    """Folded, with adapters beside all: rows that no tap reaches have no place."""
    x = tensor("x", 4, 8, 3)
    first = conv(x, "first", 8, 1, positive=True)
    wide, short = conv(first.o, "wide", 8, 3, pads=1, stride=2), conv(first.o, "short", 8, 1, stride=2)
    total = Add((wide.o, short.o), tensor("total", 2, 4, 8), positive=True)
    learning = learning_of(headed([first, wide, short, total], [x], 70), "classes", "lora", targets="*", rank=2)
    each, rows = taps_of(Prepared(learning, "classes").network, "wide.lora_A.weight")
    assert sum(rows.counts) == 3 * (8 + 2) and rows.total == 3 * 16 and shifts(each, rows, 4) is None
    same(learning, None, 3)


def test_rows_that_are_shifted_by_lines():
    """A folded kernel: what comes by a line's taps lies in two tiles, of which the second has parts of two images."""
    x = tensor("x", 16, 8, 3)
    first = conv(x, "first", 16, 1, positive=True)
    second = conv(first.o, "second", 16, 3, pads=1)
    learning = learning_of(headed([first, second], [x], 70), "classes", "lora", targets="second", rank=2)
    each, rows = taps_of(Prepared(learning, "classes").parts.rest, "second.lora_A.weight")
    assert shifts(each, rows, 3) is not None
    same(learning, None, 5, samples=3)


def taps_of(network, name):
    """Whose weight it is, and its rows by tap."""
    each = next(each for each in network.operations for weight in each.weights if weight.name == name)
    return each, repeated_rows(each, name, network.ties[name])


def same(learning, precise, count, config=LEAST, samples=4):
    """Three steps of two batches in RTL and in models, by ``count`` programs."""
    prepared = Prepared(learning, "classes", weighted=True, precise=precise_of(learning.network, precise))
    programs = prepared.programs(config, samples, prepared.rules(1e-2), batches=2)
    random = np.random.default_rng(1)
    batches = [
        (
            prepared.inputs(random.standard_normal((samples, *learning.network.inputs[0].shape))),
            np.diag(np.arange(1, 71) / 30)[random.integers(0, 70, samples)],
        )
        for _ in range(2)
    ]
    with MachineRunner.simulated(config, timing={"read_latency": 9}) as device:
        models = Models(config, programs.length)
        expected, made = (MachineSteps(programs, each, prepared.integers(), "classes") for each in (models, device))
        for batch in (0, 1, 0):
            assert made(*batches[batch], batch) == expected(*batches[batch], batch)
            memories = (np.frombuffer(each.read(0, programs.length), np.uint8) for each in (device, models))
            assert not np.flatnonzero(np.not_equal(*memories)).size
    wanted = runs(programs, (0, 1, 0))
    assert len(wanted) == count
    for of, ran, health in zip(wanted, made.ran, expected.ran, strict=True):
        assert ran.check(**asdict(health))["commands"] == len(of.program)
