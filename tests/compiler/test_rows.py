"""A row of each sample beside all of its rows."""

from gradloom.graph.operations import Add, Linear, Reduce

from .nets import conv, headed, tensor
from .same import steps


def test_a_row_of_a_sample_gets_the_sum_of_its_gradients():
    x = tensor("x", 6, 5, 20)
    first = conv(x, "first", 20, 3, pads=1)
    mean = Reduce((first.o,), tensor("mean", 1, 1, 20), "mean", True)
    row = Linear((mean.o,), tensor("row", 1, 1, 20), "row")
    met = Add((first.o, row.o), tensor("met", 6, 5, 20))
    steps(headed([first, mean, row, met], [x]), ("first.weight", "row.weight"), samples=3, loss="classes")
