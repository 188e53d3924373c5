"""Networks in two parts, of which the first runs once for a batch."""

import numpy as np
import pytest

from gradloom.compiler.integers.reading import IntegerNetwork
from gradloom.compiler.passes.dividing import divided
from gradloom.graph.operations import Add, Linear, Multiply, Norm, Parameter, Upsample
from gradloom.preset import PRESETS
from gradloom.program.memory import PAGE
from gradloom.sim.reference.tiles.program import TileMachine
from gradloom.systems.networks.program.programs import KeptBatches, lowered, runs
from gradloom.systems.networks.program.steps import MachineSteps

from ..nets import conv, headed, tensor
from ..same import rules_of

CONFIG = PRESETS["tile-kv260"].config


def residual():
    """A kernel that learns behind a layer of 8 by 8 pixels, which is added to what it makes."""
    x = tensor("x", 8, 8, 5)
    first = conv(x, "first", 20, 3, pads=1, positive=True)
    second = conv(first.o, "second", 20, 3, pads=1)
    both = Add((second.o, first.o), tensor("both", 8, 8, 20), positive=True)
    return headed([first, second, both], [x]), ("second.weight", "head.bias")


def table():
    """A position table that both parts read, and rows that are no multiple of a tile's."""
    x, t = tensor("x", 10, 12), tensor("table", 10, 12)
    places = Parameter((), t, "places")
    first = Add((x, t), tensor("first", 10, 12))
    inner = Linear((first.o,), tensor("inner", 10, 12), "inner", rank=2)
    times = Multiply((inner.o, t), tensor("times", 10, 12))
    return headed([places, first, inner, times], [x]), ("inner.lora_A.weight", "inner.lora_B.weight")


def risen():
    """Pixels that are read twice as often as they are kept."""
    x = tensor("x", 4, 4, 8)
    first = conv(x, "first", 12, 3, pads=1)
    up = Upsample((first.o,), tensor("up", 8, 8, 12), "nearest", "asymmetric")
    return headed([first, up, conv(up.o, "second", 20, 3, pads=1)], [x]), ("second.weight",)


def shortcut():
    """An input that crosses as it is, in codes of both widths."""
    x = tensor("x", 6, 16)
    norm = Norm((x,), tensor("norm", 6, 16), "norm", eps=1e-5)
    first, second = (Linear((t,), tensor(name, 6, 16), name) for t, name in ((norm.o, "first"), (x, "second")))
    both = Add((first.o, x), tensor("both", 6, 16))
    last = Add((both.o, second.o), tensor("last", 6, 16))
    return headed([norm, first, second, both, last], [x]), ("first.weight", "second.weight")


CASES = {each.__name__: each for each in (residual, table, risen, shortcut)}


def batches(net, count, samples):
    random = np.random.default_rng(3)
    (port,), classes = net.inputs, net.outputs[0].tensor.features
    for _ in range(count):
        x = random.standard_normal((samples, *port.tensor.shape))
        yield {port.tensor.name: x}, np.eye(classes)[random.integers(0, classes, samples)]


@pytest.mark.parametrize("name", CASES)
def test_what_is_kept_is_what_runs_each_time(name):
    """Masters and losses of steps; with places for all batches, for some, and for one; and of the reference."""
    net, learners = CASES[name]()
    parts, exact = divided(net, learners), IntegerNetwork(net, learners)
    rules, given = rules_of(exact), list(batches(net, 3, 3))
    order, found = (0, 1, 2, 1, 0, 2, 0), []
    for count in (1, 2, 3):
        programs = lowered(CONFIG, parts, samples=3, loss="classes", rules=rules, batches=count)
        steps = MachineSteps(programs, TileMachine(CONFIG, programs.length), IntegerNetwork(net, learners), "classes")
        losses = [steps(*given[batch], batch) for batch in order]
        found.append((losses, {n: matrix.tolist() for n, matrix in steps.matrices().items()}))
        assert [each.saturated for each in steps.ran] == [0] * len(runs(programs, order))
    assert found[0] == found[1] == found[2]
    # With places for all, the first part runs once for each batch.
    assert len(runs(programs, order)) == len(order) + 3


@pytest.mark.parametrize("name", CASES)
def test_parts_are_the_whole_in_the_reference(name):
    net, learners = CASES[name]()
    parts = divided(net, learners)
    assert parts.trunk is not None
    whole, trunk, rest = (
        IntegerNetwork(net, learners),
        IntegerNetwork(parts.trunk),
        IntegerNetwork(parts.rest, learners),
    )
    ((inputs, target),) = batches(net, 1, 5)
    found = whole.forward(inputs)
    made = rest.forward(inputs | {n: held.exact for n, held in trunk.results(inputs).items()})
    last = whole.falling("classes", found[whole.port.tensor.name], target)[1]
    for n in made:
        np.testing.assert_array_equal(made[n].exact, found[n].exact, err_msg=n)
    one, other = whole.backward(found, last), rest.backward(made, last)
    assert set(one) == set(other) == set(learners)
    for n in one:
        np.testing.assert_array_equal(one[n], other[n], err_msg=n)


def test_nothing_is_left_to_keep_where_the_first_layer_learns():
    net, _ = residual()
    parts = divided(net, ("first.weight",))
    assert parts.trunk is None and [port.name for port in parts.rest.inputs] == ["x"]
    assert parts.crossing == ()


def test_an_operation_that_only_names_is_its_readers():
    net, learners = table()
    parts = divided(net, learners)
    assert [t.name for t in parts.crossing] == ["first"]
    assert any(isinstance(each, Parameter) for each in parts.rest.operations)
    assert any(isinstance(each, Parameter) for each in parts.trunk.operations)
    net, learners = risen()
    assert [t.name for t in divided(net, learners).crossing] == ["first"]


def test_batches_beyond_the_places_share_the_last():
    kept = KeptBatches(2)
    assert [kept.take(batch) for batch in (0, 1, 0, 2, 1, 1)] == [
        (0, False),
        (1, False),
        (0, True),
        (1, False),
        (1, False),
        (1, True),
    ]


def test_memory_that_is_full_keeps_as_many_batches_as_fit():
    net, learners = residual()
    parts, rules = divided(net, learners), rules_of(IntegerNetwork(net, learners))
    whole = lowered(CONFIG, parts, samples=3, loss="classes", rules=rules, batches=9)
    assert whole.sets.count == 9
    for limit, count in ((whole.length, 9), (whole.length - 1, 8), (1000, 1)):
        some = lowered(CONFIG, parts, samples=3, loss="classes", rules=rules, batches=9, limit=limit)
        assert some.sets.count == count and (some.length <= limit or count == 1), limit
    # Bursts end at pages: transfers of all sets have the same.
    moved = {whole.sets.at(own, number) - own for own, _ in whole.sets.areas for number in range(9)}
    assert {each % PAGE for each in moved} == {0} and len(moved) > 9
    with pytest.raises(ValueError, match="number=9: must be from 0 to 8"):
        whole.sets.at(whole.sets.areas[0][0], 9)
    with pytest.raises(ValueError, match="offset=0: is in no set"):
        whole.sets.at(0, 1)


def test_state_of_an_interrupted_run_has_what_is_kept():
    net, learners = residual()
    rules = rules_of(IntegerNetwork(net, learners))
    programs = lowered(CONFIG, divided(net, learners), samples=3, loss="classes", rules=rules, batches=2)
    spans = [range(at, at + size) for at, size in programs.state]
    for place in range(2):
        for some in programs.step.inputs.values():
            for tiles in (programs.sets.tiles(each, place) for each in some):
                assert any(tiles.offset in span and tiles.offset + tiles.size - 1 in span for span in spans)
