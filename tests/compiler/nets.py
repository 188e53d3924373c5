"""Lists of operations with drawn weights."""

from math import prod

import numpy as np

from gradloom.graph.base import Tensor
from gradloom.graph.network import Network, Port
from gradloom.graph.operations import Convolution, Linear, Multiply, Parameter, Reduce

__all__ = ["conv", "headed", "marked", "network", "tensor"]


def tensor(name, *shape):
    """A tensor of sides and features."""
    return Tensor(name, shape[:-1], shape[-1])


def conv(i, name, features, kernel, *, stride=1, pads=0, dilation=1, transposed=False, **more):
    """A convolution whose result is ``name``; numbers stand for all sides, ``pads`` for both ends of each."""
    n = len(i.sides)
    kernel, stride, pads, dilation = (each if isinstance(each, tuple) else (each,) * n for each in given(locals()))
    spans = list(zip(i.sides, kernel, stride, pads, dilation))
    if transposed:
        sides = [(side - 1) * s + d * (k - 1) + 1 - 2 * p for side, k, s, p, d in spans]
    else:
        sides = [(side + 2 * p - d * (k - 1) - 1) // s + 1 for side, k, s, p, d in spans]
    return Convolution(
        (i,),
        tensor(name, *sides, features),
        name,
        kernel=kernel,
        stride=stride,
        pads=tuple((p, p) for p in pads),
        dilation=dilation,
        transposed=transposed,
        **more,
    )


def given(names):
    return (names[key] for key in ("kernel", "stride", "pads", "dilation"))


def network(operations, inputs, *, seed=0):
    """A network with the inputs ``inputs``, whose result is the last operation's."""
    random = np.random.default_rng(seed)
    values = {}
    for weight in (weight for each in operations for weight in each.weights):
        values[weight.name] = random.standard_normal(weight.shape) / np.sqrt(max(1, prod(weight.shape[1:])))

    def port(name, t):
        return Port(name, t.shape, t, t.shape, tuple(range(len(t.shape))))

    ports = tuple(port(t.name, t) for t in inputs)
    return Network(tuple(operations), values, ports, (port("y", operations[-1].o),))


def marked(operations):
    """The same times a table, behind which each row counts by itself."""
    t = operations[-1].o
    table = Parameter((), Tensor(f"{t.name}_table", t.sides, t.features), f"{t.name}_table")
    return [*operations, table, Multiply((t, table.o), Tensor(f"{t.name}_marked", t.sides, t.features))]


def headed(operations, inputs, classes=5, **more):
    """The same with a mean of all rows and a linear layer ``head`` behind them."""
    t = operations[-1].o
    mean = tensor("mean", *(1 for _ in t.sides), t.features)
    head = Linear((mean,), tensor("head", *mean.sides, classes), "head", **more)
    return network([*operations, Reduce((t,), mean, "mean", True), head], inputs)
