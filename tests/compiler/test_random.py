"""Networks of 2 to 12 operations at random: arranged and folded they compute the same, and programs are integers."""

from dataclasses import replace
from math import prod

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, reject, settings
from hypothesis import strategies as st

from gradloom.compiler.passes.arranging import arranged
from gradloom.compiler.passes.folding import folded
from gradloom.graph.mathematics import FloatReading
from gradloom.graph.operations import (
    Activation,
    Add,
    Attention,
    Concat,
    Larger,
    Linear,
    Multiply,
    Norm,
    Pad,
    Parameter,
    Pool,
    Prelu,
    Rearrange,
    Reduce,
    Slice,
    Softmax,
    Upsample,
)
from gradloom.sim.run.machine import MachineRunner

from ..deep import DEEP
from ..tiles import ROOMY
from .nets import conv, headed, marked, tensor
from .same import ORDERS, steps

#: Values of a sample at most.
_MOST = 6000


class Growing:
    """A list of operations that grows at its end."""

    def __init__(self, draw, x):
        self.draw, self.operations, self.t = draw, [], x

    def name(self):
        return f"t{len(self.operations)}"

    def put(self, operation):
        self.operations.append(operation)
        self.t = operation.o

    def conv(self):
        kernel = tuple(self.draw(st.integers(1, min(3, side))) for side in self.t.sides)
        pads = tuple(self.draw(st.integers(0, k - 1)) for k in kernel)
        stride = tuple(self.draw(st.integers(1, 2)) for _ in kernel)
        groups = self.draw(st.sampled_from([n for n in (1, 1, 3, self.t.features) if self.t.features % n == 0]))
        features = groups * self.draw(st.integers(1, max(1, 70 // groups)))
        made = conv(self.t, self.name(), features, kernel, pads=pads, stride=stride, groups=groups, bias=self.flag())
        rank = self.draw(st.integers(0, 3)) if groups == 1 else 0
        self.put(replace(made, rank=rank, positive=self.flag()))

    def linear(self):
        o = tensor(self.name(), *self.t.sides, self.draw(st.integers(1, 90)))
        self.put(Linear((self.t,), o, o.name, bias=self.flag(), rank=self.draw(st.integers(0, 2)), scale=0.5))

    def flag(self):
        return self.draw(st.booleans())

    def of(self, kind, *parts, **more):
        self.put(kind(parts, replace(self.t, name=self.name()), **more))

    def function(self):
        kind = self.draw(st.sampled_from(("relu", "silu", "gelu", "affine")))
        self.put(Activation((self.t,), replace(self.t, name=self.name()), kind, (0.7, 0.0) if kind == "affine" else ()))

    def met(self):
        """Another branch that joins this one."""
        first = self.t
        self.linear()
        self.operations[-1] = replace(self.operations[-1], o=replace(self.t, features=first.features))
        self.t = self.operations[-1].o
        self.of(self.draw(st.sampled_from((Add, Multiply, Larger))), first, self.t, positive=self.flag())

    def table(self):
        o = replace(self.t, name=self.name())
        self.operations.append(Parameter((), o, o.name))
        self.of(self.draw(st.sampled_from((Add, Multiply))), self.t, o)

    def pool(self):
        kind = self.draw(st.sampled_from(("max", "mean")))
        kernel = tuple(min(3, side) for side in self.t.sides)
        pads = tuple((self.draw(st.integers(0, k // 2)), self.draw(st.integers(0, k // 2))) for k in kernel)
        stride = tuple(self.draw(st.integers(1, 2)) for _ in kernel)
        sides = tuple((side + sum(pad) - k) // s + 1 for side, k, pad, s in zip(self.t.sides, kernel, pads, stride))
        given = {"kernel": kernel, "stride": stride, "pads": pads, "dilation": (1,) * len(kernel)}
        self.put(Pool((self.t,), tensor(self.name(), *sides, self.t.features), kind, **given))

    def norm(self):
        groups = self.draw(st.sampled_from([n for n in (1, 1, 2, 3, self.t.features) if self.t.features % n == 0]))
        over_rows = self.flag()
        # Rows of a group are one of the machine.
        if prod(self.t.shape if over_rows else self.t.shape[-1:]) // groups > 256:
            return
        how = {"groups": groups, "over_rows": over_rows, "gain": self.flag(), "bias": self.flag()}
        self.of(Norm, self.t, layer=self.name(), eps=1e-2, centred=self.flag(), **how)

    def prelu(self):
        self.of(Prelu, self.t, layer=self.name(), slopes=self.draw(st.sampled_from((1, self.t.features))))

    def softmax(self):
        self.of(Softmax, self.t, log=self.flag())

    def moved(self):
        """Rows and features in another order; each row is a command."""
        if prod(self.t.shape) > 1200:
            return
        count, axes = len(self.t.shape), self.draw(st.permutations(range(len(self.t.shape))))
        shape = [self.t.shape[axis] for axis in axes[:count]]
        self.put(Rearrange((self.t,), tensor(self.name(), *shape), self.t.shape, tuple(axes)))

    def padded(self):
        mode = self.draw(st.sampled_from(("constant", "edge", "reflect")))
        most = [min(side - 1, 3) if mode == "reflect" else 2 for side in self.t.sides]
        pads = tuple((self.draw(st.integers(0, n)), self.draw(st.integers(0, n))) for n in most)
        sides = [side + sum(pad) for side, pad in zip(self.t.sides, pads)]
        self.put(Pad((self.t,), tensor(self.name(), *sides, self.t.features), pads, mode))

    def some(self):
        """Some places of a side, or some features."""
        shape, axis = list(self.t.shape), self.draw(st.integers(0, len(self.t.sides)))
        start, step = self.draw(st.integers(0, shape[axis] - 1)), self.draw(st.integers(1, 3))
        shape[axis] = (shape[axis] - start - 1) // step + 1
        self.put(Slice((self.t,), tensor(self.name(), *shape), axis, start, step))

    def risen(self):
        mode = self.draw(st.sampled_from(("linear", "nearest")))
        places = self.draw(st.sampled_from(("half_pixel", "asymmetric", "align_corners")))
        sides = [self.draw(st.integers(side, 2 * side)) for side in self.t.sides]
        self.put(Upsample((self.t,), tensor(self.name(), *sides, self.t.features), mode, places))

    def reduced(self):
        self.put(Reduce((self.t,), tensor(self.name(), *self.t.sides, 1), "mean", False))

    def gated(self):
        """The largest of all rows, or their mean, times all."""
        first = self.t
        o = tensor(self.name(), *(1 for _ in first.sides), first.features)
        self.put(Reduce((first,), o, self.draw(st.sampled_from(("max", "mean"))), True))
        self.put(Activation((self.t,), replace(self.t, name=self.name()), "sigmoid"))
        kind = self.draw(st.sampled_from((Add, Multiply)))
        self.put(kind((first, self.t), replace(first, name=self.name())))

    def joined(self):
        first = self.t
        parts = []
        for features in (8, 24):
            o = tensor(self.name(), *first.sides, features)
            self.put(Linear((first,), o, o.name))
            parts.append(o)
        self.put(Concat(tuple(parts), tensor(self.name(), *first.sides, 32), len(first.sides)))

    def attend(self):
        if len(self.t.sides) != 1:
            return
        rows = prod(self.t.sides)
        parts = []
        for _ in range(3):
            o = tensor(self.name(), rows, 16)
            self.operations.append(Linear((self.t,), o, o.name))
            parts.append(o)
        self.put(Attention(tuple(parts), tensor(self.name(), rows, 16), heads=2, scale=0.3))

    steps = (
        *("conv", "linear", "function", "met", "table", "pool", "norm", "joined", "attend", "prelu", "softmax"),
        *("moved", "padded", "some", "risen", "reduced", "gated"),
    )


@st.composite
def networks(draw):
    sides = tuple(draw(st.integers(1, 12)) for _ in range(draw(st.integers(1, 2))))
    x = tensor("x", *sides, draw(st.integers(1, 20)))
    growing = Growing(draw, x)
    growing.conv()
    while len(growing.operations) < draw(st.integers(1, 10)):
        before = len(growing.operations), growing.t
        getattr(growing, draw(st.sampled_from(Growing.steps)))()
        if prod(growing.t.shape) > _MOST:
            growing.t = before[1]
            del growing.operations[before[0] :]
            break
    network = headed(marked(growing.operations) if draw(st.booleans()) else growing.operations, [x])
    names = sorted(
        weight.name
        for each in network.operations
        if isinstance(each, Linear) or type(each).__name__ == "Convolution"
        for weight in each.weights
        if getattr(each, "groups", 1) == 1
    )
    return network, draw(st.lists(st.sampled_from(names), min_size=1, max_size=4, unique=True))


DRAWN = given(
    networks(),
    st.integers(1, 5),
    st.sampled_from((None, "classes", "labels", "values")),
    st.booleans(),
    st.integers(0, 1),
)
DRAWS = settings(
    max_examples=500 if DEEP else 20, deadline=None, derandomize=not DEEP, suppress_health_check=list(HealthCheck)
)


def taken(*given, **more):
    """Steps of a network that the machine takes; one that needs more tiles at once than there are slots is refused."""
    try:
        steps(*given, **more)
    except ValueError as refused:
        if "needs more tiles at once than its slots" not in str(refused):
            raise
        reject()


@DRAWS
@DRAWN
def test_any_network_is_the_integers(made, samples, loss, folds, order):
    network, learners = made
    listed = arranged(network).network
    ready = folded(listed, learners) if folds else listed
    feeds = {each.name: np.random.default_rng(3).standard_normal((samples, *each.shape)) for each in network.inputs}
    (one,), (other,) = (FloatReading(each).run(feeds) for each in (network, ready))
    np.testing.assert_allclose(other, one, rtol=0, atol=1e-9 * max(1, np.abs(one).max()))
    taken(ready, learners if loss else (), samples=samples, loss=loss, order=ORDERS[order])


@pytest.fixture(scope="module")
def device():
    with MachineRunner.simulated(ROOMY, timing={"read_latency": 9}) as made:
        yield made


def _fetched():
    """Whose fetch is asked for in the cycle in which a burst of a LOAD could leave."""
    x = tensor("x", 7, 1)
    return headed([conv(x, "t0", 1, 1, rank=1)], [x], bias=True), ["head.bias"]


@DRAWS
@DRAWN
@example(_fetched(), 4, None, False, 0)
def test_any_network_is_the_integers_in_simulated_rtl(device, made, samples, loss, folds, order):
    """Every word and counter, and the cycles of every command; the machine chooses the order."""
    network, learners = made
    listed = arranged(network).network
    ready = folded(listed, learners) if folds else listed
    taken(ready, learners if loss else (), samples=samples, loss=loss, machine=device, config=ROOMY)
