"""Programs of networks on models of the engines are the reference of tensors, code for code, counts included."""

from dataclasses import replace

import numpy as np
import pytest

from gradloom.compiler.lowering import lower
from gradloom.compiler.passes.doubling import doubled
from gradloom.graph.operations import (
    Activation,
    Add,
    Attention,
    Concat,
    Larger,
    Linear,
    MatMul,
    Multiply,
    Norm,
    Parameter,
    Rearrange,
    Reduce,
    Softmax,
    Upsample,
)
from gradloom.program.tiles import jobs
from gradloom.program.tiles.drafts import Block, Term
from gradloom.program.tiles.tiling import Tiler
from gradloom.rtl.formats.tiles.codes import EDGE, NARROW, coded
from gradloom.rtl.formats.tiles.element import ElementOpcode
from gradloom.rtl.shell.engines import LOAD
from gradloom.sim.reference.tiles.program import TileMachine

from .nets import conv, headed, network, tensor
from .same import CONFIG, ORDERS, steps

#: Sides, features, features of the result, and how the convolution is.
CONVOLUTIONS = {
    "odd sides": ((9, 7), 5, 20, {"kernel": 3, "pads": 1}),
    "a stride": ((9, 7), 70, 40, {"kernel": 3, "pads": 1, "stride": 2}),
    "a side with a stride": ((6, 8), 8, 8, {"kernel": (3, 1), "pads": (1, 0), "stride": (1, 3)}),
    "a dilation": ((9, 9), 3, 6, {"kernel": 3, "pads": 2, "dilation": 2}),
    "groups": ((6, 5), 24, 72, {"kernel": 3, "pads": 1, "groups": 3}),
    "a group a channel": ((7, 5), 72, 72, {"kernel": 3, "pads": 1, "groups": 72}),
    "transposed": ((3, 5), 24, 16, {"kernel": 2, "stride": 2, "transposed": True}),
    "transposed, in groups": ((4, 3), 12, 18, {"kernel": 3, "stride": 2, "transposed": True, "groups": 3}),
    "steps": ((23,), 6, 12, {"kernel": 5, "pads": 2, "dilation": 3, "stride": 2}),
    "a place": ((5, 5), 20, 66, {"kernel": 1}),
    "a place with a stride": ((7, 5), 20, 30, {"kernel": 1, "stride": 2}),
    "a place with a stride, of three tiles": ((7, 5), 20, 150, {"kernel": 1, "stride": 2}),
    "many features of taps": ((5,), 70, 130, {"kernel": 2, "stride": 2}),
    "a large kernel": ((9, 10), 3, 4, {"kernel": 7, "pads": 3}),
    "all of an image": ((4, 6), 9, 60, {"kernel": (4, 6)}),
    "places that none reads": ((8, 64), 9, 10, {"kernel": (2, 1), "stride": (4, 1)}),
}


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_and_their_gradients_of_what_they_read(name, positive):
    sides, features, made, how = CONVOLUTIONS[name]
    x = tensor("x", *sides, 7)
    first = Linear((x,), tensor("first", *sides, features), "first")
    second = conv(first.o, "second", made, positive=positive, **how)
    steps(network([first, second], [x]), samples=1)
    steps(headed([first, second], [x]), ("first.weight", "first.bias"), samples=3, loss="classes", order=ORDERS[0])


@pytest.mark.parametrize("name", [name for name in CONVOLUTIONS if "group" not in name])
def test_kernels_that_learn(name):
    sides, features, made, how = CONVOLUTIONS[name]
    x = tensor("x", *sides, features)
    second = conv(x, "second", made, **how)
    learners = ["second.weight", "second.bias"]
    if "transposed" not in name:
        second = replace(second, rank=3)
        learners += ["second.lora_A.weight", "second.lora_B.weight"]
    steps(headed([second], [x]), learners, samples=2, loss="classes", count=2, order=ORDERS[1])


@pytest.mark.parametrize(
    ("features", "kernel", "sums"),
    [(12, 1, 1), (12, 3, 1), (150, 3, 2)],
    ids=["of own rows", "of others", "more than are held"],
)
def test_gradients_by_convolutions_that_read_one_tensor_are_one_sum(features, kernel, sums):
    """A tensor that a third reader, a sum, reads too; a kernel beside it that is a product of rows, or by address."""
    x = tensor("x", 6, 7, 5)
    first = conv(x, "first", features, 1)
    wide = replace(conv(first.o, "wide", features, 3, pads=1), rank=2)
    short = replace(conv(first.o, "short", features, kernel, pads=kernel // 2), rank=2)
    listed = [first, wide, short]
    for n, other in enumerate((short.o, first.o)):
        listed.append(Add((listed[-1].o if n else wide.o, other), tensor(f"sum{n}", 6, 7, features)))
    learners = ["first.weight", *(f"{layer}.lora_{of}.weight" for layer in ("wide", "short") for of in "AB")]
    step, _, _ = steps(headed(listed, [x]), learners, samples=3, loss="classes", count=2, order=ORDERS[1])
    names = [each.name for each in step.values]
    assert names.count("first.part") == sums and names.count("first.gradient") == sums


@pytest.mark.parametrize(
    ("features", "made", "rank", "sums"),
    [(500, 10, 0, 5), (10, 500, 0, 5), (630, 10, 0, 10), (1090, 10, 0, 18), (1090, 10, 2, 18), (10, 1090, 0, 18)],
)
def test_convolutions_of_many_channels(features, made, rank, sums):
    """Two taps of 8 tiles of channels are held at once; of more than 8 all taps of a tile of channels are.

    Lines of 16: a tap's rows of a tile lie in two tiles, of 18 tiles of channels each, forward or back.
    """
    x = tensor("x", 6, 16, 5)
    first = conv(x, "first", features, 1)
    second = replace(conv(first.o, "second", made, 3, pads=1), rank=rank)
    adapters = ["second.lora_A.weight", "second.lora_B.weight"] if rank else []
    step, _, _ = steps(
        headed([first, second], [x]), ["first.bias", *adapters], samples=1, loss="classes", order=ORDERS[0]
    )
    names = [each.name for each in step.values]
    name = "second.part" if features > made else "first.part.part"
    assert sum(each.startswith(name) and each[len(name) :].isdigit() for each in names) == sums


@pytest.mark.parametrize(
    ("features", "side", "kernel", "codes", "sums"),
    [(500, 16, 1, 1, 0), (570, 16, 1, 1, 3), (300, 16, 1, 2, 3), (500, 24, 3, 1, 8)],
)
def test_strides_whose_rows_are_of_more_tiles_than_slots_hold(features, side, kernel, codes, sums):
    """Rows of a tile lie in four tiles, of 24 pixels a line in five, of each tile of channels and of second codes."""
    x = tensor("x", side, side, 5)
    first = conv(x, "first", features, 1)
    net = headed([first, conv(first.o, "second", 10, kernel, stride=2)], [x])
    net = doubled(net, {"second": codes}) if codes > 1 else net
    step, _, _ = steps(net, ["first.bias"], samples=1, loss="classes", order=ORDERS[0])
    assert sum(each.name.removeprefix("second.part").isdigit() for each in step.values) == sums


@pytest.mark.parametrize("order", ORDERS)
def test_tokens_are_posted_by_fewer_commands_where_many_would_be_there(order, monkeypatch):
    """A counter holds 255; here two. Those of other kinds stay as they are."""
    x = tensor("x", 3, 300)
    net = headed([Linear((x,), tensor("first", 3, 300), "first")], [x])
    found, untaken = [], jobs._untaken
    monkeypatch.setattr(jobs, "_untaken", lambda *given: found.append(untaken(*given)) or found[-1])
    monkeypatch.setattr(jobs, "_UNTAKEN", 2)
    steps(net, ("first.bias",), samples=150, loss="classes", order=order)
    assert len(found) > 1 and max(found[-1].values()) < max(found[0].values())


def test_gradients_of_inputs_that_are_wanted():
    """As of a part of a network; nothing in it learns."""
    x, z = tensor("x", 9, 70), tensor("z", 9, 70)
    first = Linear((x,), tensor("first", 9, 70), "first")
    net = network([first, Multiply((first.o, z), tensor("product", 9, 70))], [x, z])
    step = lower(CONFIG, net, samples=2, loss="values", wanted=("x",))
    memory, random = TileMachine(CONFIG, step.program.length), np.random.default_rng(0)
    for offset, content in step.program.contents():
        memory.write(offset, content)
    values = {name: random.standard_normal((18, 70)) for name in step.inputs}
    for name, places in step.inputs.items():
        for tiles in places:
            memory.write(tiles.offset, tiles.pack(coded(values[name], tiles.bits)))
    memory.run(step.written(1))
    weight, shift = net.values["first.weight"], net.values["first.bias"]
    y = (values["x"] @ weight.T + shift) * values["z"]
    wanted = 2 / y.size * (y - values["target"]) * values["z"] @ weight
    assert set(step.shown) == {"error", "x.gradient"}
    tiles = step.shown["x.gradient"]
    found = tiles.unpack(memory.read(tiles.offset, tiles.size)).values
    assert np.abs(found - wanted).max() < 0.05 * np.abs(wanted).max()


def test_tiles_of_zeros_of_a_matrix_are_not_read():
    """Neither forward nor back; one tile of the result has none but its bias."""
    x = tensor("x", 9, 5)
    first = Linear((x,), tensor("first", 9, 256), "first")
    net = headed([first, Linear((first.o,), tensor("second", 9, 192), "second")], [x])
    values, blocks = dict(net.values), np.kron([[1, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]], np.ones((64, 64)))
    values["second.weight"] = values["second.weight"] * blocks
    sparse = replace(net, values=values)
    few, all_of = (
        steps(each, ("first.bias",), samples=2, loss="classes", order=ORDERS[0])[0].program.instructions
        for each in (sparse, net)
    )
    read = [sum(each.operands["beats"] for each in some if each.engine == LOAD) for some in (few, all_of)]
    # Of 12 tiles forward, and as many back, all but 3, 4 with those that stand for none.
    assert read[1] - read[0] >= (9 - 1 + 9 - 1) * (EDGE * 2 + 1)


def test_sums_over_many_rows_have_parts_that_leave_slots_to_others():
    x = tensor("x", 50, 48, 3)
    first = replace(conv(x, "first", 5, 1), rank=2)
    step, _, _ = steps(
        headed([first], [x]), ("first.lora_A.weight", "first.lora_B.weight"), samples=1, loss="classes", order=ORDERS[0]
    )
    names = [each.name for each in step.values]
    assert (
        names.count("first.lora_A.weight.gradient.part9") == 1
        and names.count("first.lora_A.weight.gradient.part10") == 0
    )


@pytest.mark.parametrize("learners", [("lora_A",), ("lora_B",), ("weight", "lora_A")])
def test_adapters_behind_a_layer_that_learns(learners):
    x = tensor("x", 8, 6, 5)
    first = conv(x, "first", 12, 3, pads=1)
    second = replace(conv(first.o, "second", 20, 3, pads=1, positive=True), rank=3)
    some = ["first.bias", *(f"second.{name}.weight" for name in learners if "lora" in name)]
    some += ["second.weight"] * ("weight" in learners)
    steps(headed([first, second], [x]), some, samples=3, loss="classes", count=2, order=ORDERS[0])


@pytest.mark.parametrize("order", ORDERS)
def test_an_adapter_of_which_only_b_learns_beside_the_first_layer(order):
    x = tensor("x", 5, 10, 11)
    first = replace(conv(x, "first", 3, (2, 1), stride=(2, 1)), rank=2)
    steps(headed([first], [x]), ("first.lora_B.weight", "first.weight"), samples=4, loss="values", order=order)


@pytest.mark.parametrize("learner", ["weight", "lora_B.weight"])
def test_what_nobody_reads_is_not_made(learner):
    """Nothing comes back through B where A does not learn and nothing stands in front."""
    x = tensor("x", 6, 11, 1)
    only = replace(conv(x, "only", 1, 1, stride=(1, 2), bias=False), rank=1)
    step, _, _ = steps(headed([only], [x]), [f"only.{learner}"], samples=2, loss="classes", order=ORDERS[0])
    assert all(value.places for value in step.values if value.name.endswith((".back", ".hidden")))


def test_adapters_behind_an_upsampling():
    x = tensor("x", 8, 8, 8)
    first = conv(x, "first", 12, 3, pads=1)
    up = Upsample((first.o,), tensor("up", 16, 16, 12), "nearest", "asymmetric")
    second = replace(conv(up.o, "second", 20, 3, pads=1), rank=4)
    learners = ["first.weight", "second.lora_A.weight", "second.lora_B.weight", "second.weight"]
    steps(headed([first, up, second], [x]), learners, samples=2, loss="classes", count=2, order=ORDERS[1])


@pytest.mark.parametrize(("samples", "rows", "features", "made"), [(1, 1, 3, 2), (9, 7, 130, 66), (3, 64, 64, 128)])
def test_linear_layers_that_learn_beside_their_adapters(samples, rows, features, made):
    x = tensor("x", rows, features)
    first = Linear((x,), tensor("first", rows, 12), "first", rank=2, positive=True)
    second = Linear((first.o,), tensor("second", rows, made), "second", rank=2)
    learners = [weight.name for each in (first, second) for weight in each.weights]
    net = network([first, second], [x])
    _, _, losses = steps(net, learners, samples=samples, loss="values", count=2, order=ORDERS[0])
    assert losses[0] > 0


def test_sums_of_more_tiles_than_the_engine_holds():
    """Of features, of rows, and of taps."""
    x = tensor("x", 2200)
    first = Linear((x,), tensor("first", 70), "first", positive=True)
    second = Linear((first.o,), tensor("second", 3), "second")
    learners = ("first.bias", "second.weight")
    steps(network([first, second], [x]), learners, samples=3, loss="values", order=ORDERS[0])
    wide = tensor("x", 12, 12, 70)
    third = conv(wide, "third", 66, 5, pads=2, positive=True)
    fourth = replace(conv(third.o, "fourth", 5, 5, pads=2), rank=2)
    learners = ("third.bias", "fourth.lora_A.weight", "fourth.lora_B.weight")
    steps(headed([third, fourth], [wide]), learners, samples=1, loss="classes", order=ORDERS[1])
    rows = tensor("x", 300, 8)
    fifth = Linear((rows,), tensor("fifth", 300, 8), "fifth")
    steps(network([fifth], [rows]), ("fifth.weight", "fifth.bias"), samples=7, loss="values")


def test_a_layer_without_a_bias_and_one_that_is_read_twice():
    x = tensor("x", 10, 8)
    first = Linear((x,), tensor("first", 10, 16), "first", bias=False)
    again = Linear((first.o,), tensor("again", 10, 16), "again", bias=False)
    both = Add((first.o, again.o), tensor("both", 10, 16), positive=True)
    steps(headed([first, again, both], [x], bias=False), ("first.weight", "again.weight"), samples=4, loss="classes")


@pytest.mark.parametrize("subtract", [False, True])
@pytest.mark.parametrize(("samples", "rows"), [(3, 16), (2, 70), (20, 1)])
def test_sums_with_tables(samples, rows, subtract):
    x = tensor("x", rows, 12)
    table = Parameter((), tensor("table", rows, 12), "table")
    one = Parameter((), tensor("one", 1, 12), "one")
    first = Linear((x,), tensor("first", rows, 12), "first")
    operations = [table, one, first]
    operations.append(Add((first.o, table.o), tensor("met", rows, 12), subtract))
    operations.append(Add((operations[-1].o, one.o), tensor("twice", rows, 12), positive=True))
    operations.append(Multiply((operations[-1].o, table.o), tensor("scaled", rows, 12)))
    steps(headed(operations, [x]), ("first.weight",), samples=samples, loss="classes", order=ORDERS[1])


def test_a_gate_a_channel():
    x = tensor("x", 6, 5, 20)
    first = conv(x, "first", 20, 3, pads=1)
    mean = Reduce((first.o,), tensor("part", 1, 1, 20), "mean", True, positive=True)
    gate = Linear((mean.o,), tensor("gate", 1, 1, 20), "gate")
    shut = Multiply((first.o, gate.o), tensor("shut", 6, 5, 20))
    steps(headed([first, mean, gate, shut], [x]), samples=3)
    # Only what stands behind may learn: a gate has no gradient.
    last = conv(shut.o, "last", 9, 1)
    steps(headed([first, mean, gate, shut, last], [x]), ("last.weight",), samples=3, loss="classes")


@pytest.mark.parametrize("kind", ["mean", "sum"])
@pytest.mark.parametrize(("samples", "sides"), [(1, (3, 3)), (5, (7, 9)), (2, (129,))])
def test_means_and_sums_of_rows(samples, sides, kind):
    x = tensor("x", *sides, 10)
    first = Linear((x,), tensor("first", *sides, 68), "first")
    ones = tuple(1 for _ in sides)
    total = Reduce((first.o,), tensor("total", *ones, 68), kind, True)
    last = Linear((total.o,), tensor("last", *ones, 3), "last")
    steps(network([first, total, last], [x]), ("first.weight", "last.weight"), samples=samples, loss="values")


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        ("relu", ()),
        ("silu", ()),
        ("gelu", ()),
        ("gelu_tanh", ()),
        ("sigmoid", ()),
        ("tanh", ()),
        ("hard_swish", ()),
        ("clip", (0.0, 6.0)),
        ("leaky_relu", (0.1,)),
        ("elu", (1.3,)),
        ("selu", (1.67326, 1.0507)),
        ("softplus", ()),
        ("mish", ()),
        ("quick_gelu", ()),
        ("hard_sigmoid", (0.3, 0.4)),
        ("abs", ()),
        ("affine", (0.75, 0.0)),
    ],
)
def test_functions_of_values(kind, parameters):
    x = tensor("x", 9, 7, 5)
    first = conv(x, "first", 20, 3, pads=1)
    second = Activation((first.o,), tensor("second", 9, 7, 20), kind, parameters)
    steps(headed([first, second], [x]), ("first.weight",), samples=2, loss="classes")


@pytest.mark.parametrize("features", [32, 128])
def test_norms_of_rows(features):
    x = tensor("x", 20, 8)
    first = Linear((x,), tensor("first", 20, features), "first")
    norm = Norm((first.o,), tensor("norm", 20, features), "norm", eps=1e-5)
    steps(headed([first, norm], [x]), ("first.weight",), samples=5, loss="classes", order=ORDERS[0])


@pytest.mark.parametrize("sides", [(4, 4), (16, 8)])
def test_norms_of_groups(sides):
    x = tensor("x", *sides, 8)
    first = conv(x, "first", 16, 3, pads=1)
    norm = Norm((first.o,), tensor("norm", *sides, 16), "norm", eps=1e-3, over_rows=True, groups=4)
    steps(headed([first, norm], [x]), ("first.weight",), samples=3, loss="classes", order=ORDERS[1])


@pytest.mark.parametrize(("rows", "features", "heads"), [(16, 64, 2), (64, 256, 2), (8, 32, 4)])
def test_attention(rows, features, heads):
    x = tensor("x", rows, 12)
    parts = [Linear((x,), tensor(name, rows, features), name, rank=2) for name in "qkv"]
    seen = Attention(tuple(each.o for each in parts), tensor("seen", rows, features), heads, 0.17)
    learners = [weight.name for each in parts for weight in each.adapter]
    steps(headed([*parts, seen], [x]), learners, samples=5, loss="classes", order=ORDERS[0])


def test_attention_to_another_tensor():
    x, other = tensor("x", 16, 12), tensor("other", 8, 20)
    parts = [Linear((t,), tensor(name, *t.sides, 32), name) for name, t in zip("qkv", (x, other, other))]
    seen = Attention(tuple(each.o for each in parts), tensor("seen", 16, 32), 2, 0.25)
    steps(headed([*parts, seen], [x, other]), [f"{name}.weight" for name in "qkv"], samples=4, loss="classes")


def test_features_side_by_side_from_an_upsampling():
    x = tensor("x", 8, 8, 8)
    first = conv(x, "first", 24, 3, pads=1)
    low = conv(first.o, "low", 16, 3, pads=1, stride=2)
    # 4 x 4 pixels are no tile of 64 rows: an image of 8 x 8 is upsampled.
    up = Upsample((first.o,), tensor("up", 16, 16, 24), "nearest", "asymmetric")
    second = conv(up.o, "second", 40, 3, pads=1)
    far = conv(second.o, "far", 16, 2, stride=4)
    both = Concat((low.o, far.o), tensor("both", 4, 4, 32), 2)
    named = Rearrange((both.o,), tensor("named", 16, 32), (16 * 32,), (0,))
    operations = [first, low, up, second, far, both, named]
    steps(headed(operations, [x]), ("first.weight",), samples=2, loss="classes")


@pytest.mark.parametrize("last", [64, 40])
def test_whole_tiles_side_by_side_are_what_they_were_apart(last):
    """Nothing joins them, forward or back; 70 rows are two tiles."""
    x = tensor("x", 35, 9)
    first, second = (Linear((x,), tensor(name, 35, size), name) for name, size in (("first", 128), ("second", last)))
    both = Concat((first.o, second.o, first.o), tensor("both", 35, 256 + last), 1)
    more = Concat((second.o, both.o), tensor("more", 35, 256 + 2 * last), 1)
    gates = Activation((more.o,), tensor("gates", 35, 256 + 2 * last), "silu")
    third, fourth = (Linear((t,), tensor(name, 35, 7), name) for name, t in (("third", both.o), ("fourth", gates.o)))
    listed = [first, second, both, more, gates, third, fourth, Add((third.o, fourth.o), tensor("sum", 35, 7))]
    learners = ["first.weight", "second.bias", "third.weight"]
    step, *_ = steps(headed(listed, [x]), learners, samples=2, loss="classes", count=2, order=ORDERS[1])
    joins = [each for each in step.program.instructions if joined(each)]
    # Behind 40 features a tile has parts of two.
    assert bool(joins) == (last < EDGE)


def joined(each):
    return each.engine.name == "element" and each.opcode == ElementOpcode.JOIN


def test_inputs_and_results_side_by_side_have_places_of_their_own():
    """The host writes and reads them whole."""
    x, z = tensor("x", 9, 64), tensor("z", 9, 64)
    first = Linear((x,), tensor("first", 9, 64), "first")
    whole = Concat((first.o, z), tensor("whole", 9, 128), 1)
    for listed in ([first, whole], [first, whole, Linear((whole.o,), tensor("last", 9, 5), "last")]):
        step, *_ = steps(network(listed, [x, z]), samples=2)
        assert sum(map(joined, step.program.instructions)) == 2


def test_gradients_by_linear_layers_that_read_one_tensor_are_one_sum():
    x = tensor("x", 16, 12)
    first = Linear((x,), tensor("first", 16, 70), "first")
    parts = [Linear((first.o,), tensor(name, 16, 32), name, rank=2) for name in "qkv"]
    seen = Attention(tuple(each.o for each in parts), tensor("seen", 16, 32), 2, 0.25)
    learners = ["first.weight", *(f"{name}.lora_{of}.weight" for name in "qkv" for of in "AB")]
    step, *_ = steps(headed([first, *parts, seen], [x]), learners, samples=4, loss="classes", count=2)
    names = [each.name for each in step.values]
    assert names.count("first.part") == 1 and "first.gradient" not in names


def test_a_softmax_inside():
    x = tensor("x", 6, 9)
    first = Linear((x,), tensor("first", 6, 11), "first")
    shares = Softmax((first.o,), tensor("shares", 6, 11))
    steps(headed([first, shares], [x]), ("first.weight",), samples=4, loss="values", count=2)


@pytest.mark.parametrize(("sides", "samples"), [((15, 15), 16), ((7, 7), 70), ((32, 32), 9), ((5, 25), 16)])
def test_means_of_more_rows_than_are_held_at_once(sides, samples):
    x = tensor("x", *sides, 3)
    first = Linear((x,), tensor("first", *sides, 5), "first")
    steps(headed([first], [x]), ("first.weight",), samples=samples, loss="classes", order=ORDERS[0])


def test_tiles_that_no_slots_hold_are_refused():
    """A mean of rows that nothing divides, and a job of more blocks than there are slots."""
    x = tensor("x", 2053, 3)
    with pytest.raises(ValueError, match=r"product\.w: a product needs 33 tiles at once, there are 32 slots"):
        steps(headed([Linear((x,), tensor("first", 2053, 5), "first")], [x]), samples=1)
    tiler = Tiler(CONFIG)
    tiles = tiler.read(tiler.value("x", EDGE, 33 * EDGE), NARROW)
    given = {"tiles": 0, "k_to": EDGE - 1, "w_turn": 0}
    terms = [Term(Block.of(tiles, [(0, k)]), Block.of(tiles, [(0, k)]), given) for k in range(33)]
    y = tiler.value("y", EDGE, EDGE)
    tiler.product(y, (0, 0), terms)
    tiler.show(tiler.read(y, NARROW))
    with pytest.raises(ValueError, match="a job of product needs more tiles at once than its slots .* have"):
        tiler.write()


@pytest.mark.parametrize("loss", ["classes", "labels", "values", "weighted"])
def test_a_loss_falls(loss):
    x = tensor("x", 10)
    net = network([Linear((x,), tensor("y", 4), "only")], [x])
    net.values["only.weight"][:] *= 4
    _, machine, losses = steps(net, ("only.weight", "only.bias"), samples=40, loss=loss, count=12)
    # Inputs and targets are drawn for each step, so what falls is what the drawn weights are worse by.
    assert np.mean(losses[-4:]) < np.mean(losses[:4])


def test_a_program_that_keeps_only_its_results():
    x = tensor("x", 9, 7, 5)
    operations = [conv(x, "first", 20, 3, pads=1, positive=True)]
    operations.append(conv(operations[-1].o, "second", 20, 3, pads=1))
    learners = ("first.weight", "head.weight")
    whole, _, _ = steps(headed(operations, [x]), learners, samples=2, loss="classes")
    some, _, _ = steps(headed(operations, [x]), learners, samples=2, loss="classes", whole=False)
    assert len(some.program.instructions) <= len(whole.program.instructions)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("samples", "sides", "rows", "deep", "made"), [(5, (), 16, 8, 70), (3, (4,), 8, 16, 20)])
def test_products_within_samples(samples, sides, rows, deep, made, turned):
    x = tensor("x", *sides, rows, 7)
    inner = 100 if turned else deep
    a = Linear((x,), tensor("a", *sides, rows, inner), "a")
    other = tensor("other", *sides, deep, 9)
    b = Linear((other,), tensor("b", *sides, deep, inner if turned else made), "b")
    both = MatMul((a.o, b.o), tensor("both", *sides, rows, deep if turned else made), turned, positive=True)
    steps(headed([a, b, both], [x, other]), ("a.weight", "b.weight"), samples=samples, loss="classes", order=ORDERS[0])


@pytest.mark.parametrize(("samples", "rows"), [(3, 64), (70, 8), (2, 128)])
def test_pooling_of_a_sequence(samples, rows):
    x = tensor("x", rows, 12)
    first = Linear((x,), tensor("first", rows, 66), "first")
    score = Linear((first.o,), tensor("score", rows, 1), "score")
    row = Rearrange((score.o,), tensor("row", 1, rows), (rows,), (0,))
    column = Rearrange((row.o,), tensor("column", rows, 1), (rows,), (0,))
    last = Linear((column.o,), tensor("last", rows, 5), "last")
    operations = [first, score, row, column, last]
    if rows <= 64:
        shares = Softmax((row.o,), tensor("shares", 1, rows))
        mixed = MatMul((shares.o, first.o), tensor("mixed", 1, 66))
        operations = [first, score, row, shares, mixed, Linear((mixed.o,), tensor("last", 1, 5), "last")]
    learners = ("first.weight", "score.weight", "score.bias", "last.weight")
    steps(network(operations, [x]), learners, samples=samples, loss="values", order=ORDERS[1])


def test_the_larger_of_two_tensors():
    x = tensor("x", 9, 7, 5)
    first, second = (conv(x, name, 20, 3, pads=1) for name in ("first", "second"))
    both = Larger((first.o, second.o), tensor("both", 9, 7, 20), positive=True)
    learners = ("first.weight", "second.weight")
    steps(headed([first, second, both], [x]), learners, samples=3, loss="classes", order=ORDERS[0])
    # What stands in front of one of them alone learns.
    steps(headed([first, second, both], [x]), learners[1:], samples=1, loss="classes")


def test_a_bias_far_below_its_sums_is_lost_in_both():
    x = tensor("x", 6, 12)
    made = network([Linear((x,), tensor("y", 6, 5), "y")], [x])
    _, memory, _ = steps(made, samples=2, scale=1e9)
    assert memory.models["product"].lost == 2 * 6 * 5
