"""Functions by table are the functions, within bounds that their formats give."""

import math

import numpy as np
import pytest

from gradloom.rtl.formats.tiles import functions
from gradloom.rtl.formats.tiles.codes import WIDE, coded
from gradloom.rtl.formats.tiles.functions import Chords, Curve, Mirror, Times
from gradloom.rtl.formats.tiles.norm import FACTOR
from gradloom.rtl.formats.tiles.tables import INDEX
from gradloom.sim.reference.tiles import vector

_ERF = np.vectorize(math.erf)


def sigmoid(x):
    return 0.5 + 0.5 * np.tanh(x / 2)


def density(x):
    return np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def slope_of(f):
    """By differences of the fourth order."""
    h = 1e-3

    def made(x):
        return (8 * (f(x + h) - f(x - h)) - (f(x + 2 * h) - f(x - 2 * h))) / (12 * h)

    return made


#: Each with its value and its slope, as mathematics has them.
FUNCTIONS = {
    "SiLU": (functions.SILU, lambda x: x * sigmoid(x), slope_of(lambda x: x * sigmoid(x))),
    "GELU": (
        functions.GELU,
        lambda x: x * (0.5 + 0.5 * _ERF(x / math.sqrt(2))),
        lambda x: 0.5 + 0.5 * _ERF(x / math.sqrt(2)) + x * density(x),
    ),
    "GELU tanh": (functions.GELU_TANH, gelu_tanh, slope_of(gelu_tanh)),
    "sigmoid": (functions.LOGISTIC, sigmoid, lambda x: sigmoid(x) * (1 - sigmoid(x))),
    "tanh": (functions.TANH, np.tanh, lambda x: 1 - np.tanh(x) ** 2),
    "hard sigmoid": (
        functions.hard_sigmoid(1 / 6, 0.5),
        lambda x: np.clip(x / 6 + 0.5, 0, 1),
        lambda x: np.where(np.abs(x) < 3, 1 / 6, 0),
    ),
    "hard swish": (
        functions.HARD_SWISH,
        lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
        lambda x: np.where(np.abs(x) < 3, x / 3 + 0.5, x > 0),
    ),
    "ReLU6": (functions.clip(0, 6), lambda x: np.clip(x, 0, 6), lambda x: (x > 0) & (x < 6)),
    "clip": (functions.clip(-1, 1), lambda x: np.clip(x, -1, 1), lambda x: np.abs(x) < 1),
    "clip of one side": (functions.clip(-0.75, 4), lambda x: np.clip(x, -0.75, 4), lambda x: (x > -0.75) & (x < 4)),
    "leaky ReLU": (functions.leaky(0.1), lambda x: np.where(x < 0, 0.1 * x, x), lambda x: np.where(x < 0, 0.1, 1)),
    "ELU": (
        functions.selu(0.7),
        lambda x: np.where(x < 0, 0.7 * np.expm1(x), x),
        lambda x: np.where(x < 0, 0.7 * np.exp(x), 1),
    ),
    "SELU": (
        functions.selu(1.67326, 1.0507),
        lambda x: 1.0507 * np.where(x < 0, 1.67326 * np.expm1(x), x),
        lambda x: 1.0507 * np.where(x < 0, 1.67326 * np.exp(x), 1),
    ),
    "hard sigmoid of others": (
        functions.hard_sigmoid(0.25, 0.75),
        lambda x: np.clip(x / 4 + 0.75, 0, 1),
        lambda x: np.where((x > -3) & (x < 1), 0.25, 0),
    ),
    "quick GELU": (functions.QUICK_GELU, lambda x: x * sigmoid(1.702 * x), slope_of(lambda x: x * sigmoid(1.702 * x))),
    "softplus": (functions.SOFTPLUS, lambda x: np.logaddexp(x, 0), sigmoid),
    "mish": (
        functions.MISH,
        lambda x: x * np.tanh(np.logaddexp(x, 0)),
        slope_of(lambda x: x * np.tanh(np.logaddexp(x, 0))),
    ),
    "magnitude": (functions.leaky(-1), np.abs, np.sign),
}
#: Odd codes of many scales, so that no argument is where a function jumps; then some beyond all ranges.
X = (2.0 ** np.arange(-19, -5)[:, None] * np.arange(-2047, 2048, 2)).reshape(-1, 1)
X = coded(np.concatenate([X, [[-100.1], [100.1]]]), WIDE).values
DY = coded(np.random.default_rng(0).standard_normal(X.shape), WIDE).values


def value(x, function):
    made = vector.function(x, function.value)
    if not function.line:
        return made
    return vector.add(*(coded(part, WIDE).values for part in (vector.scaled(x, function.line, positive=True), made)))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients_are_within_the_tables_errors(name):
    function, exact, slope = FUNCTIONS[name]
    made = value(X, function)
    bound = function.value.error * (np.abs(X) if function.value.times else 1)
    # A sum is under x's exponent, and both of its parts were stored.
    unit = 2.0 ** (np.ceil(np.log2(np.abs(X).max())) - WIDE + 1) * (function.line > 0)
    # A line's slope has 17 bits.
    unit = unit + 2.0**-FACTOR * np.abs(X) * (function.line not in (0, 1))
    far = 2e-7 * np.maximum(np.abs(X), 1)
    assert (np.abs(made - exact(X)) <= bound + unit + far).all()
    gradient = vector.function_back(DY, X, function.slope)
    assert (np.abs(gradient - DY * slope(X)) <= (function.slope.error + 2e-7) * np.abs(DY)).all()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_errors_are_a_few_units_of_sixteen_bits(name):
    """Kinks and jumps lie where pieces begin."""
    function, _, _ = FUNCTIONS[name]
    for curve in (function.value, function.slope):
        assert curve.error <= 10 * 2.0**-16 * 2.0**curve.exponent


def test_a_limit_within_a_piece_is_as_far_off_as_the_table_says():
    function = functions.clip(0, 5.003)
    assert function.value.error > 4e-4 > functions.clip(0, 6).value.error
    # Its slope jumps where the nearest piece begins.
    edge = round(5.003 * 64) / 64
    x = coded(np.array([[edge - 0.01], [edge + 0.01], [-1.0]]), WIDE).values
    np.testing.assert_allclose(vector.function_back(np.ones_like(x), x, function.slope), [[1], [0], [0]], atol=1e-4)


def test_operands_name_fixed_tables_or_those_that_a_program_wrote():
    assert functions.SILU.value.operands() == {"table": 0, "range": 4, "mirror": 1, "times": 1, "exponent": 0}
    assert functions.LOGISTIC.value.operands()["table"] == 0 == functions.LOGISTIC.value.operands()["times"]
    assert functions.leaky(0.1).value.operands(6)["table"] == 6
    for curve, table in ((functions.TANH.value, None), (functions.leaky(0.1).value, 5)):
        with pytest.raises(ValueError, match=r"table=\w+: must be the number of a table"):
            curve.operands(table)


def test_words_of_a_table_are_its_pieces():
    base, slope = functions.selu(1.0).value.tables[1].table
    words = functions.packed_pieces(functions.selu(1.0).value.tables[1]).astype(np.int64).ravel()
    assert len(words) == 1 << INDEX and base.min() < 0 and slope.min() < 0
    np.testing.assert_array_equal((words << 46) >> 46, base)
    np.testing.assert_array_equal((words << 34) >> 52, slope)


def test_what_no_table_holds_is_refused():
    with pytest.raises(ValueError, match="exponent=0: a value is 4 times as large as a table's"):
        _ = Chords(lambda x: np.full_like(x, 8.0), 3).table
    with pytest.raises(ValueError, match=r"exponent=0: a rise of a piece is 1\.2\d* times"):
        _ = Chords(lambda x: np.sin(5 * x) / 4, 4).table
    with pytest.raises(ValueError, match="range=8: must be from 0 to 7"):
        Curve(tables=(Chords(np.tanh, 8),), mirror=Mirror.OPPOSITE, range=8, times=Times.NOTHING)
    with pytest.raises(ValueError, match="mirror=OWN: has 1 tables"):
        Curve(tables=(Chords(np.tanh, 3),), mirror=Mirror.OWN, range=3)
    with pytest.raises(ValueError, match="least=2: must be below most=1"):
        functions.clip(2, 1)
    with pytest.raises(ValueError, match=r"alpha=-1.5, gain=1.0: must be above 0"):
        functions.selu(-1.5)
    with pytest.raises(ValueError, match="gain=0: must be above 0"):
        functions.hard_sigmoid(0, 1)
