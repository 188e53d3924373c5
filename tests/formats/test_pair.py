"""Two codes in an operand, by numbers that were counted apart from this code."""

import re

import numpy as np
import pytest
from amaranth.hdl import Module, Signal, signed
from amaranth.sim import Simulator

from gradloom.rtl.formats.cell import gate_sum
from gradloom.rtl.formats.pair import Pair


def values_of(inputs, *expressions):
    """A function from values of the inputs to those of the expressions."""

    def read(*given):
        m, found = Module(), []
        results = [Signal(each.shape()) for each in expressions]
        m.d.comb += [result.eq(each) for result, each in zip(results, expressions)]

        async def process(ctx):
            for signal, value in zip(inputs, given, strict=True):
                ctx.set(signal, value)
            found.extend(ctx.get(each) for each in results)

        simulator = Simulator(m)
        simulator.add_testbench(process)
        simulator.run()
        return tuple(found)

    return read


@pytest.mark.parametrize("apart, rows, width", [(15, 1, 23), (17, 4, 25), (19, 16, 27)])
def test_a_chain_is_as_long_as_its_worst_codes_allow(apart, rows, width):
    """Both lanes are read as they are at the ends of the longest chain, and not with a product more."""
    pair, most = Pair(apart), 127 * 128
    assert (pair.rows, pair.width, pair.bound) == (rows, width, 1 << apart - 1)

    total = Signal(signed(48))
    read = values_of([total], *pair.lanes(total), *pair.biased_lanes(total))

    for sign in (1, -1):
        for high in (-5, 0, 7):
            low = sign * rows * most
            assert read((high << apart) + low)[:2] == (low, high)
            assert read((high << apart) + low + pair.bound)[2:] == (low, high)
    assert (rows + 1) * most >= pair.bound
    pair.check(rows)
    pair.check(2 * rows, most=64)
    with pytest.raises(ValueError, match=re.escape(f"rows={rows + 1}: a chain of pairs {apart} bits apart is at most {rows} ")):
        pair.check(rows + 1)


def test_a_stored_pair_is_wires():
    pair = Pair(17)
    one, other, stored = Signal(signed(8)), Signal(signed(8)), Signal(16)
    read = values_of([one, other, stored], pair.word(one, other), pair.wide(stored))
    low, high = (each.ravel() for each in np.meshgrid([-127, -1, 0, 1, 127], [-127, -1, 0, 1, 127]))
    for a, b, *word in np.stack([low, high, *pair.stored(low, high)], axis=-1).tolist():
        bits = word[0] & 255 | (word[1] & 255) << 8
        assert read(a, b, bits) == (bits, (b << 17) + a)


@pytest.mark.parametrize("apart", [14, 20])
def test_codes_that_overlap_or_exceed_a_slice_are_refused(apart):
    with pytest.raises(ValueError, match=f"apart={apart}: "):
        Pair(apart)


@pytest.mark.parametrize("products, parallel, bits", [(2, 1, 19), (2, 2, 20), (2, 3, 21), (2, 4, 21), (2, 8, 22), (1, 1, 24), (1, 2, 25)])
def test_a_gates_sum_has_the_bits_of_its_chains_and_no_more(products, parallel, bits):
    assert gate_sum(products, parallel) == bits
