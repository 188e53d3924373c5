"""Tables of chords beside the functions, which are written down anew here; slopes are differences of these."""

import math

import numpy as np
import pytest

from gradloom.rtl.formats import adamw, vector
from gradloom.rtl.formats.interpolation import Interpolation
from gradloom.rtl.formats.tiles import functions
from gradloom.rtl.formats.tiles.tables import FIXED_TABLES, INDEX, TABLES


def _gelu_tanh(z):
    return z / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))


def _gelu(z):
    return z / 2 * (1 + np.vectorize(math.erf)(z / math.sqrt(2)))


def _silu(z):
    return z / 2 * (1 + np.tanh(z / 2))


def _slope(of, z):
    return (of(z + 1e-5) - of(z - 1e-5)) / 2e-5


FUNCTIONS = {
    "exp2": lambda x: 2**x - 1,
    "log2": lambda x: np.log2(1 + x),
    "sqrt": np.sqrt,
    "inverse": lambda x: 1 - 1 / (1 + x),
    "sigmoid": lambda x: (1 + np.tanh(8 * x)) / 2,
    "silu_slope": lambda x: _slope(_silu, 16 * x),
    "gelu_tanh_gate": lambda x: (1 + np.tanh(math.sqrt(2 / math.pi) * (16 * x + 0.044715 * (16 * x) ** 3))) / 2,
    "gelu_tanh_slope": lambda x: _slope(_gelu_tanh, 16 * x),
    "normal": lambda x: (1 + np.vectorize(math.erf)(8 * x / math.sqrt(2))) / 2,
    "gelu_slope": lambda x: _slope(_gelu, 8 * x),
    "rsqrt": lambda x: 1 / np.sqrt(1 + x),
    "rsqrt_half": lambda x: 1 / np.sqrt(2 + 2 * x),
}


def tables():
    """Those of the machines, each once."""
    found = [each for module in (adamw, vector, functions) for each in vars(module).values()]
    for each in found:
        if isinstance(each, tuple | dict):
            found += each.values() if isinstance(each, dict) else each
    return list({(each.function, each.frac_in): each for each in found if isinstance(each, Interpolation)}.values())


def test_machines_have_a_table_of_each_function():
    assert {each.function for each in tables()} == set(FUNCTIONS)


def test_tables_that_a_program_writes_fill_ultra_rams():
    """Three bits of a table's number tell them apart; an ultra RAM has 4096 words."""
    assert TABLES - FIXED_TABLES == 1 << 3 and (TABLES - FIXED_TABLES) << INDEX == 4096
    assert len(functions.FIXED) == FIXED_TABLES


@pytest.mark.parametrize("table", tables(), ids=lambda table: table.function)
def test_a_chord_is_as_near_as_its_pieces_allow(table):
    """Half a sagitta, of the least curvature that the piece's ends and middle have, and two roundings."""
    first = 0.25 if table.function == "sqrt" else 0.0
    x = np.arange(int(first * 2**table.frac_in), 2**table.frac_in, max(1, 2 ** (table.frac_in - 15)) + 1)
    true = FUNCTIONS[table.function](x / 2**table.frac_in)
    off = np.abs(table(x) / 2**table.frac_out - true)
    ends = np.linspace(first, 1, int((1 - first) * 2**table.index) + 1)
    of = FUNCTIONS[table.function]
    sagitta = np.abs((of(ends[:-1]) + of(ends[1:])) / 2 - of((ends[:-1] + ends[1:]) / 2)).max()
    # The first piece of 2**x - 1 begins at 0 and not below, with a whole sagitta.
    bound = sagitta * (1 if table.function == "exp2" else 0.55) + 1.6 * 2.0**-table.frac_out
    assert off.max() <= bound and table.error >= off.max()
    assert table.error <= 1.3 * bound, "the bound that is told is no better than the chords"


def test_words_of_the_tables_are_those_of_the_machines():
    """Fraction bits of argument and result; the gates' argument is up to 16."""
    assert {(each.function, each.index, each.frac_in, each.frac_out) for each in tables()} == {
        ("sqrt", 7, 20, 20),
        ("inverse", 7, 20, 17),
        ("sigmoid", 9, 20, 16),
        ("silu_slope", 9, 20, 16),
        ("gelu_tanh_gate", 9, 20, 16),
        ("gelu_tanh_slope", 9, 20, 16),
        ("rsqrt", 7, 16, 17),
        ("rsqrt_half", 7, 16, 17),
        ("exp2", 9, 20, 17),
        ("log2", 8, 20, 20),
        ("normal", 9, 20, 16),
        ("gelu_slope", 9, 20, 16),
    }


@pytest.mark.parametrize(
    "given", [{"function": "sine"}, {"index": 0}, {"index": 20}, {"index": 7, "frac_in": 7}], ids=str
)
def test_tables_that_cannot_be_are_refused(given):
    with pytest.raises(ValueError, match=f"{next(iter(given))}="):
        Interpolation(**{"function": "exp2"} | given)
    assert Interpolation(function="exp2", index=1, frac_in=2)(3) > 0
