"""Layers of two codes: programs on models of the engines are the reference, and close to numbers."""

import numpy as np
import pytest

from gradloom.compiler.integers.reading import IntegerNetwork
from gradloom.compiler.passes.doubling import doubled
from gradloom.graph.mathematics import FloatReading
from gradloom.graph.operations import Linear, Parameter, Rearrange, Rest, Upsample
from gradloom.rtl.formats.tiles.codes import NARROW, coded

from ..nets import conv, headed, network, tensor
from ..same import ORDERS, steps


def chain():
    """A layer of the input, one of places, one by address, one of channels in groups."""
    x = tensor("x", 9, 8, 70)
    first = Linear((x,), tensor("first", 9, 8, 20), "first", positive=True)
    place = conv(first.o, "place", 66, 1)
    window = conv(place.o, "window", 66, 3, pads=1)
    thin = conv(window.o, "thin", 66, 3, pads=1, stride=2, groups=66)
    return [first, place, window, thin], x


@pytest.mark.parametrize(
    "layers",
    [{"first": 2}, {"place": 2, "head": 1}, {"window": 1}, {"first": 1, "place": 2, "window": 2, "thin": 2, "head": 2}],
)
def test_the_program_is_the_reference(layers):
    operations, x = chain()
    steps(doubled(headed(operations, [x]), layers), samples=2)
    learners = ("head.weight", "head.bias")
    steps(doubled(headed(operations, [x]), layers), learners, samples=2, loss="classes", count=2, order=ORDERS[0])


def test_gradients_pass_by_first_codes():
    """A layer behind which another learns."""
    operations, x = chain()
    learners, made = ("first.bias", "place.weight"), doubled(headed(operations, [x]), {"place": 2, "head": 1})
    steps(made, learners, samples=1, loss="classes", order=ORDERS[1])


def test_two_codes_are_a_hundred_times_closer():
    x = tensor("x", 130, 70)
    layers = [Linear((x,), tensor("a", 130, 40), "a", positive=True)]
    layers.append(Linear((layers[0].o,), tensor("b", 130, 9), "b"))
    plain, given = network(layers, [x]), np.random.default_rng(7).standard_normal((1, 130, 70))
    want = FloatReading(plain).run(given)[0].reshape(130, 9)

    def away(made, **more):
        found = IntegerNetwork(made).result({"x": given, **more}).exact
        return np.sqrt(np.square(found - want).mean() / np.square(want).mean())

    both = doubled(plain, {"a": 2, "b": 2})
    assert [type(each) for each in both.operations] == [Linear, Rest, Linear]
    first, second = (port.tensor.name for port in both.inputs)
    codes = IntegerNetwork(plain).taken({"x": given})["x"].narrow.values
    rest = {second: (given[0] - codes)[None]}
    assert first == "x" and away(both, **rest) < 0.01 * away(plain) < 1e-3
    # Inputs alone: what is lost is what weights of one code lose.
    values = {name: coded(value, NARROW).values if value.ndim > 1 else value for name, value in plain.values.items()}
    want = FloatReading(plain.with_operations(plain.operations, values)).run(given)[0].reshape(130, 9)
    assert away(doubled(plain, {"a": 1, "b": 1}), **rest) < 0.01 * away(plain)


def test_what_has_no_second_code_is_refused():
    x = tensor("x", 4, 5, 6)
    up = Upsample((x,), tensor("up", 8, 10, 6), "nearest", "asymmetric")
    last = conv(up.o, "last", 7, 3, pads=1)
    with pytest.raises(ValueError, match="precise=last: reads an upsampled tensor"):
        doubled(network([up, last], [x]), {"last": 1})


def test_an_input_by_another_name_has_its_second_code_from_the_host():
    x = tensor("x", 4, 5, 6)
    flat = Rearrange((x,), tensor("flat", 20, 6), (120,), (0,))
    made = doubled(network([flat, Linear((flat.o,), tensor("y", 20, 9), "last")], [x]), {"last": 1})
    assert [port.tensor.name for port in made.inputs] == ["x", "x~rest"]
    assert [type(each) for each in made.operations] == [Rearrange, Rearrange, Linear]
    steps(made, samples=2)


def test_a_table_has_one_code():
    x, table = tensor("x", 20, 6), Parameter((), tensor("t", 20, 6), "t")
    with pytest.raises(ValueError, match="precise=last: reads the table t"):
        doubled(network([table, Linear((table.o,), tensor("y", 20, 9), "last")], [x]), {"last": 1})
