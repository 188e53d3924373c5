"""What the machine has no command for is refused by name, before a program is written."""

from dataclasses import replace

import numpy as np
import pytest

from gradloom.compiler.commands.curves import check_within
from gradloom.compiler.integers.reading import IntegerNetwork
from gradloom.compiler.lowering import lower
from gradloom.graph.operations import (
    Activation,
    Add,
    Attention,
    Concat,
    Gated,
    Linear,
    MatMul,
    Norm,
    Pad,
    Parameter,
    Pool,
    Rearrange,
    Reduce,
    Upsample,
)

from .nets import conv, network, tensor
from .same import CONFIG, rules_of

X = tensor("x", 6, 12)
#: An image.
IMAGE = tensor("x", 5, 7, 12)
#: One that is no operation's result.
K = tensor("k", 6, 12)
Y = replace(X, name="y")
IY = replace(IMAGE, name="y")


def norm(t, **more):
    return Norm((t,), replace(t, name="y"), "norm", eps=1e-5, **more)


FORWARD = {
    "norm: 12 features of a norm must be a power of two": ([X], [norm(X)]),
    "norm: a norm without mean, gain or bias has no command": ([X], [norm(X, centred=False)]),
    "norm: a norm cannot make values positive": ([X], [norm(X, positive=True)]),
    "norm: groups of 4 features of a row must be whole tiles": ([X], [norm(X, groups=3)]),
    "norm: groups of 3 features must be a power of two, at most 64": ([X], [norm(X, groups=4, over_rows=True)]),
    "norm: 35 rows of a group must divide 64 or be a multiple of it": (
        [IMAGE],
        [norm(IMAGE, groups=3, over_rows=True)],
    ),
    "y: a tensor that is added to the scores has no command": ([X], [Attention((X, X, X, K), Y, 2, 1.0)]),
    "y: a table behind, or rows of a table, have no product; take a linear layer": (
        [X],
        [Parameter((), tensor("p", 12, 4), "p"), MatMul((X, tensor("p", 12, 4)), tensor("y", 6, 4))],
    ),
    "y: (5, 7, 12) by (12, 4) has no command; both must be of one batch": (
        [IMAGE, tensor("p", 12, 4)],
        [MatMul((IMAGE, tensor("p", 12, 4)), tensor("y", 5, 7, 4))],
    ),
    "y: values in another order have no command; rows move, or become columns": (
        [X],
        [Rearrange((X,), tensor("y", 18, 4), (6, 4, 3), (0, 2, 1))],
    ),
    "y: pads of 2 have no command; 0, edge and reflect have": (
        [X],
        [Pad((X,), tensor("y", 8, 12), ((1, 1),), value=2.0)],
    ),
    "y: a maximum of windows that read pads with a dilation has no command": (
        [X],
        [Pool((X,), Y, "max", kernel=(3,), stride=(1,), pads=((2, 2),), dilation=(2,))],
    ),
    "norm: 2048 features of a norm take 2048 places, must be 1024 at most": (
        [tensor("x", 2, 2048)],
        [norm(tensor("x", 2, 2048))],
    ),
    "y: only twice the sides by nearest neighbours has a command": (
        [IMAGE],
        [Upsample((IMAGE,), tensor("y", 10, 14, 12), "linear", "half_pixel")],
    ),
    "y: max has no command; there are mean and sum of all rows": ([X], [Reduce((X,), tensor("y", 1, 12), "max", True)]),
    "y: log has no table: there are relu, ": ([X], [Activation((X,), Y, "log")]),
    "y: leaky_relu(3) has no table: exponent=0: a value is 1.5 times as large as a table's": (
        [X],
        [Activation((X,), Y, "leaky_relu", (3.0,))],
    ),
    "y: values times 1 plus 2 have no command": ([X], [Activation((X,), Y, "affine", (1.0, 2.0))]),
    "y: rows behind one another have no command; join features": ([X], [Concat((X, X), tensor("y", 12, 12), 0)]),
    "y: columns of tensors side by side must be multiples of 8": ([X], [Concat((X, X), tensor("y", 6, 24), 1)]),
    "y: a gate by silu has no command; gelu has": ([X], [Gated((X,), tensor("y", 6, 6), "silu")]),
    "y: 6 features beside a gate must be a multiple of 64": ([X], [Gated((X,), tensor("y", 6, 6), "gelu")]),
    "y: its first tensor has fewer rows than its second; turn them round": (
        [X],
        [Reduce((X,), tensor("one", 1, 12), "mean", True), Add((tensor("one", 1, 12), X), Y)],
    ),
    "y: rows of a tile come from 12 tiles, must be 8 at most; use smaller images or strides": (
        [tensor("x", 16, 16, 3)],
        [conv(tensor("x", 16, 16, 3), "y", 4, 2, stride=4)],
    ),
}


@pytest.mark.parametrize("message", FORWARD)
def test_no_command(message):
    inputs, operations = FORWARD[message]
    with pytest.raises(ValueError) as caught:
        lower(CONFIG, network(operations, inputs), samples=3)
    assert str(caught.value).startswith(message)


FIRST = Linear((X,), tensor("first", 6, 16), "first")
TABLE = Parameter((), tensor("table", 6, 16), "table")
OUT = tensor("y", 6, 16)
LEARNING = {
    "tables: table": ([FIRST, TABLE, Add((FIRST.o, TABLE.o), OUT)], "table"),
    "gains and biases of norms: norm.weight": ([FIRST, Norm((FIRST.o,), OUT, "norm", eps=1e-5)], "norm.weight"),
    "kernels of channels in groups: y.weight": ([conv(X, "y", 12, 3, groups=3)], "y.weight"),
}


@pytest.mark.parametrize("message", LEARNING)
def test_no_gradient(message):
    operations, learner = LEARNING[message]
    net = network(operations, [X])
    rules = rules_of(IntegerNetwork(net, (learner,)))
    with pytest.raises(ValueError) as caught:
        lower(CONFIG, net, samples=3, loss="values", rules=rules)
    whole = f"weights have no gradient in the machine: {message}; let others learn: method lora, head or instantft"
    assert str(caught.value) == whole


def test_no_loss():
    net = network([Linear((X,), tensor("y", 6, 70), "y")], [X])
    rules = rules_of(IntegerNetwork(net, ("y.weight",)))
    message = "^loss=rank: has no gradient in the machine; must be one of classes, labels, values, weighted$"
    with pytest.raises(ValueError, match=message):
        lower(CONFIG, net, samples=3, loss="rank", rules=rules)


def test_all_operations_without_a_command_are_named_at_once():
    x = tensor("x", 4, 4, 8)
    first = Activation((x,), tensor("first", 4, 4, 8), "exp")
    second = Activation((first.o,), tensor("second", 4, 4, 8), "log")
    with pytest.raises(ValueError, match=r"first: .*; second: log has no table"):
        lower(CONFIG, network([first, second], [x]), samples=1)


@pytest.mark.parametrize(
    "kind, parameters, within, beyond",
    [
        ("exp_of", (1.0,), (-1e6, 4.0), (4.1,)),  # of four times the value
        ("power", (0.5,), (0.0, 16.0, -16.0), (16.1, -16.1)),
        ("inverse", (), (0.125, -128.0), (0.12, 129.0)),
        ("sin", (), (-64.0, 64.0), (-64.1, 64.1)),
        ("tanh", (), (1e9,), ()),
    ],
)
def test_arguments_beyond_a_table_are_named(kind, parameters, within, beyond):
    each = Activation((X,), tensor("curve", 4, 8), kind, parameters)
    check_within(each, np.array([]))
    for value in within:
        check_within(each, np.array([value]))
    for value in beyond:
        with pytest.raises(ValueError, match=f"curve: {kind} of .*: must be from"):
            check_within(each, np.array([1.0, value]))
