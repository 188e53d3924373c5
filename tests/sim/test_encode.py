"""The encode engine in time: when it reads what the array has."""

from types import SimpleNamespace

import pytest

from gradloom.sim.time.encode import EncodeTime


@pytest.mark.parametrize(
    "dense",
    [
        [],
        [(3, 10)],
        [(3, 11)],
        [(8, 14)],
        [(11, 11)],
        [(13, 15)],
        [(12, 12), (14, 14), (15, 19)],
        [(2, 4), (17, 18), (19, 40)],
        [(18, 30)],
        [(19, 30)],
        [(40, 50)],
    ],
    ids=str,
)
@pytest.mark.parametrize("row, elements", [(0, 8), (3, 1)])
def test_elements_are_read_where_the_array_reads_none(dense, row, elements):
    """One a cycle from the second on, but those in which DENSE reads; each row further takes a cycle more."""
    engine = EncodeTime(SimpleNamespace(agenda=None))
    engine.at = 10
    engine.dense.extend(dense)
    free = (cycle for cycle in range(11, 100) if not any(first <= cycle <= last for first, last in dense))
    assert engine._reads(row, elements) == [next(free) + engine.delay + row for _ in range(elements)]
