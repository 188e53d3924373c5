"""Tiles whose rows and columns are read alike."""

import random

import pytest

from gradloom.rtl.engines.product.turning import TurningMemory
from gradloom.sim.bench.engine import simulate
from gradloom.sim.bench.mutants import mutant

SLOTS = 2


def packed(line):
    return sum(byte << 8 * n for n, byte in enumerate(line))


def read_lines(unit, banks, count=300):
    """Lines that are read, a cycle each, and the bytes that these are."""
    rng = random.Random(banks)
    tiles = [[[rng.randrange(256) for _ in range(64)] for _ in range(64)] for _ in range(SLOTS)]
    expected, found = [], []

    async def play(ctx):
        for slot in range(SLOTS):
            for row in range(64):
                for beat in range(2):
                    part = packed(tiles[slot][row][32 * beat : 32 * beat + 32])
                    ctx.set(unit.write, {"valid": 1, "slot": slot, "row": row, "beat": beat, "data": part})
                    await ctx.tick()
        ctx.set(unit.write.valid, 0)
        blank = 0
        for number in range(count + unit.latency):
            slot, line, turn = rng.randrange(SLOTS), rng.randrange(64), rng.randrange(2)
            first = rng.randrange(64) if number % 2 else 0
            ctx.set(unit.read, {"slot": slot, "line": line, "first": first, "turn": turn})
            ctx.set(unit.blank, blank)
            blank = rng.randrange(4) == 0
            places = [(first + n) % 64 for n in range(banks)]
            whole = [tiles[slot][n][line] if turn else tiles[slot][line][n] for n in places]
            expected.append(0 if blank else packed(whole))
            await ctx.tick()
            if number >= unit.latency - 1:
                found.append(ctx.get(unit.o))

    simulate(unit, play)
    return found, expected[: len(found)]


@pytest.mark.parametrize("banks", [32, 64])
def test_lines_are_rows_and_columns_from_any_element_on(banks):
    found, expected = read_lines(TurningMemory(banks=banks, slots=SLOTS), banks)
    assert found == expected


def test_rows_in_place_of_columns_are_found():
    found, expected = read_lines(mutant(TurningMemory, "straight")(banks=32, slots=SLOTS), 32)
    assert found != expected
