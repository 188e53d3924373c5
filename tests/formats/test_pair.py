"""Two codes in an operand, by numbers that were counted apart from this code."""

import re

import numpy as np
import pytest
from amaranth.hdl import Signal, signed

from gradloom.rtl.formats.cell import gate_sum
from gradloom.rtl.formats.pair import Pair

from .values import values_of


@pytest.mark.parametrize("apart, rows, width", [(15, 1, 23), (17, 4, 25), (19, 16, 27)])
def test_a_chain_is_as_long_as_its_worst_codes_allow(apart, rows, width):
    """Both lanes are read as they are at the ends of the longest chain, and not with a product more."""
    pair, most, total = Pair(apart), 127 * 128, Signal(signed(48))
    assert (pair.rows, pair.width, pair.bound) == (rows, width, 1 << apart - 1)
    wanted = [(sign * rows * most, high) for sign in (1, -1) for high in (-5, 0, 7)]
    sums = [(high << apart) + low for low, high in wanted]
    assert values_of([total], pair.lanes(total), [(each,) for each in sums]) == wanted
    assert values_of([total], pair.biased_lanes(total), [(each + pair.bound,) for each in sums]) == wanted
    assert (rows + 1) * most >= pair.bound
    pair.check(rows)
    pair.check(2 * rows, most=64)
    with pytest.raises(ValueError, match=re.escape(f"a chain of pairs {apart} bits apart is at most {rows} products")):
        pair.check(rows + 1)


def test_a_stored_pair_is_wires():
    pair, one, other, stored = Pair(17), Signal(signed(8)), Signal(signed(8)), Signal(16)
    low, high = (each.ravel() for each in np.meshgrid([-127, -1, 0, 1, 127], [-127, -1, 0, 1, 127]))
    lower, upper = pair.stored(low, high)
    bits = lower & 255 | (upper & 255) << 8
    found = values_of([one, other, stored], (pair.word(one, other), pair.wide(stored)), zip(low, high, bits))
    assert found == [*zip(bits.tolist(), ((high << 17) + low).tolist())]


@pytest.mark.parametrize("apart", [14, 20])
def test_codes_that_overlap_or_exceed_a_slice_are_refused(apart):
    with pytest.raises(ValueError, match=f"apart={apart}: "):
        Pair(apart)


@pytest.mark.parametrize(
    "products, parallel, bits", [(2, 1, 19), (2, 2, 20), (2, 3, 21), (2, 4, 21), (2, 8, 22), (1, 1, 24), (1, 2, 25)]
)
def test_a_gates_sum_has_the_bits_of_its_chains_and_no_more(products, parallel, bits):
    assert gate_sum(products, parallel) == bits
