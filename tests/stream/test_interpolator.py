"""Functions by tables of chords: the unit is its model, a word a cycle, and stands still while it is not enabled."""

import numpy as np
import pytest

from gradloom.rtl.formats.interpolation import Interpolation
from gradloom.rtl.stream.interpolator import Interpolator
from gradloom.sim.bench.engine import simulate


@pytest.mark.parametrize(
    "table", [Interpolation(function="exp2"), Interpolation(function="log2", index=4, frac_in=12, frac_out=9)], ids=str
)
@pytest.mark.parametrize("chance", [1, 0.5])
def test_words_are_those_of_the_model_so_many_cycles_later(table, chance):
    unit, random = Interpolator(table=table), np.random.default_rng(3)
    assert (len(unit.enable), len(unit.x), len(unit.y)) == (1, table.frac_in, table.frac_out + 1)
    words = [0, (1 << table.frac_in) - 1, *random.integers(0, 1 << table.frac_in, 200).tolist()]
    found = []

    async def process(ctx):
        for word in words:
            ctx.set(unit.x, word)
            ctx.set(unit.enable, 0)
            while random.random() >= chance:
                await ctx.tick()
            ctx.set(unit.enable, 1)
            await ctx.tick()
            found.append(ctx.get(unit.y))

    simulate(unit, process)
    late = unit.latency - 1
    assert found[late:] == table(words)[: len(words) - late].tolist()


def test_a_block_of_memory_is_for_one_family_alone():
    unit = Interpolator(table=Interpolation(function="exp2"))
    assert unit.primitive(family="ecp5", name="power").startswith("module power (")
    for family in ("xcup", "xc7", "ice40"):
        assert unit.primitive(family=family, name="power") is None


@pytest.mark.parametrize("function", ["rsqrt", "silu_slope"])
def test_a_function_that_falls_is_refused(function):
    with pytest.raises(ValueError, match=f"function='{function}': must be one that rises"):
        Interpolator(table=Interpolation(function=function))
