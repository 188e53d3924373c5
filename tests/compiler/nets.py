"""Lists of operations with drawn weights."""

from math import prod

import numpy as np

from gradloom.graph.base import Tensor
from gradloom.graph.network import Network, Port
from gradloom.graph.operations import Activation, Add, Convolution, Linear, Multiply, Parameter, Reduce

__all__ = ["conv", "headed", "marked", "network", "residual", "tensor"]


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


def residual():
    """A residual block of images whose sides are no powers of two, 5 channels, rows that fill tiles in part."""
    x, a, b, s, m, y = (
        Tensor(name, sides, features)
        for name, sides, features in (
            ("x", (7, 5), 3),
            ("a", (7, 5), 5),
            ("b", (7, 5), 5),
            ("s", (7, 5), 5),
            ("m", (1, 1), 5),
            ("y", (1, 1), 6),
        )
    )
    shape = {"kernel": (3, 3), "stride": (1, 1), "pads": ((1, 1), (1, 1)), "dilation": (1, 1)}
    listed = (
        Convolution((x,), a, "first", **shape),
        Activation((a,), b, "relu"),
        Convolution((b,), s, "second", **shape),
        Add((s, b), Tensor("sum", (7, 5), 5)),
        Activation((Tensor("sum", (7, 5), 5),), Tensor("r", (7, 5), 5), "relu"),
        Reduce((Tensor("r", (7, 5), 5),), m, "mean", True),
        Linear((m,), y, "last"),
    )
    random = np.random.default_rng(0)
    values = {w.name: random.standard_normal(w.shape) / 3 for each in listed for w in each.weights}
    ports = [Port(t.name, t.shape, t, t.shape, tuple(range(len(t.shape)))) for t in (x, y)]
    return Network(listed, values, (ports[0],), (ports[1],))
