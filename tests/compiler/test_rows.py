"""A row of each sample beside all of its rows."""

import numpy as np
import pytest

from gradloom.compiler.commands.rows import _runs
from gradloom.graph.operations import Add, Linear, Reduce
from gradloom.rtl.formats.tiles.codes import EDGE

from .nets import conv, headed, tensor
from .same import steps


def test_a_row_of_a_sample_gets_the_sum_of_its_gradients():
    x = tensor("x", 6, 5, 20)
    first = conv(x, "first", 20, 3, pads=1)
    mean = Reduce((first.o,), tensor("mean", 1, 1, 20), "mean", True)
    row = Linear((mean.o,), tensor("row", 1, 1, 20), "row")
    met = Add((first.o, row.o), tensor("met", 6, 5, 20))
    steps(headed([first, mean, row, met], [x]), ("first.weight", "row.weight"), samples=3, loss="classes")


@pytest.mark.parametrize("seed", range(8))
def test_rows_are_taken_in_runs_of_one_tile(seed):
    """Every row once, of its own source; nothing longer would do."""
    random = np.random.default_rng(seed)
    begins = random.integers(-1, 3 * EDGE, 12)
    rows = np.concatenate(
        [np.arange(at, at + count) if at >= 0 else [at] * count for at, count in zip(begins, [*range(6)] * 2)]
    )
    runs = list(_runs(rows))
    made = [first + (n if first >= 0 else 0) for _, first, count in runs for n in range(count)]
    assert made == rows.tolist() and [at for at, _, _ in runs] == np.cumsum([0, *(n for *_, n in runs)])[:-1].tolist()
    for (_, one, count), (_, other, _) in zip(runs, runs[1:]):
        assert one // EDGE == (one + count - 1) // EDGE or one < 0
        assert other != (one if one < 0 else one + count) or one >= 0 and other % EDGE == 0
