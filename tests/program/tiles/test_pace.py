"""Cycles by which commands are ordered: rows, tiles and columns of a product, readings of elements and norms."""

from functools import partial

import pytest

from gradloom.program.tiles import pace
from gradloom.program.tiles.pace import _LATENCY
from gradloom.rtl.formats.tiles.element import ElementOpcode
from gradloom.rtl.formats.tiles.norm import NormOpcode
from gradloom.rtl.formats.tiles.product import ProductOpcode
from gradloom.rtl.machines.configs.diffusion import DiffusionConfig

EIGHT, SIXTEEN = (DiffusionConfig(norm_lanes=lanes) for lanes in (8, 16))
cycles = partial(pace.cycles, config=EIGHT)


@pytest.mark.parametrize(
    "opcode, operands, expected",
    [
        # Fewer rows than the array has take as long: weights come meanwhile.
        ("PRODUCT", {"rows": 9, "tiles": 2, "columns": 31}, 3 * 64),
        ("PRODUCT", {"rows": 63, "tiles": 2, "columns": 32}, 3 * 64 * 2),
        ("BIAS", {"rows": 9, "tiles": 2, "columns": 31}, 10),
        ("SCAN", {"rows": 9, "tiles": 2, "reach": 3}, 3 * 4),
    ],
)
def test_a_product_takes_a_row_a_cycle(opcode, operands, expected):
    assert cycles("product", getattr(ProductOpcode, opcode), operands) == expected


def test_an_update_takes_four_cycles_a_beat():
    assert cycles("update", 0, {"beats": 9}) == 36


def test_elements_take_a_beat_of_eight_a_cycle():
    operands = {"rows": 9, "features": 16, "tiles": 1}
    assert cycles("element", ElementOpcode.ADD, operands) == 2 * 10 * 3 + _LATENCY


def test_norms_read_a_row_more_than_once():
    """Those of a softmax that add it up take 8 cycles at least."""
    narrow, wide = ({"rows": 9, "features": each, "tiles": 0} for each in (15, 127))
    one, two = (cycles("norm", NormOpcode.SOFTMAX, each) - _LATENCY for each in (narrow, wide))
    assert one == 10 * (2 + 8 + 8) and two == 10 * 3 * 16
    # Of 16 lanes four are added up at once.
    one, two = (pace.cycles("norm", NormOpcode.SOFTMAX, each, config=SIXTEEN) - _LATENCY for each in (narrow, wide))
    assert one == 10 * (1 + 4 + 4) and two == 10 * 3 * 8
    rows = {"rows": 9, "features": 15, "tiles": 2}
    assert pace.cycles("norm", NormOpcode.LARGEST, rows, config=SIXTEEN) == 10 * (2 * 4 + 1) + _LATENCY
