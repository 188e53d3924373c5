"""Functions of single values: exact, with their slopes, and found again in what files write."""

import math

import numpy as np
import pytest

from gradloom.graph.functions import FUNCTIONS, erf, named

PARAMETERS = {
    "clip": (-1.0, 2.0),
    "leaky_relu": (0.1,),
    "elu": (1.3,),
    "selu": (1.67, 1.05),
    "hard_sigmoid": (0.2, 0.5),
    "affine": (2.0, 1.0),
    "power": (3.0,),
    "exp_of": (0.25,),
}


def test_erf_of_float32_is_within_its_steps():
    x = np.linspace(-7, 7, 20_001, dtype=np.float32)
    made = erf(x)
    assert made.dtype == np.float32 and np.abs(made - [math.erf(each) for each in x]).max() < 7e-8


def test_erf_is_exact():
    x = np.linspace(-7, 7, 40001)
    assert np.abs(erf(x) - [math.erf(each) for each in x]).max() < 4e-16


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_slope_is_the_functions_own(name):
    function, given = FUNCTIONS[name], PARAMETERS.get(name, ())
    x = np.linspace(0.1, 4, 50) if name == "log" else np.linspace(-4, 4, 51) + 0.013
    slope = (function.of(x + 1e-6, *given) - function.of(x - 1e-6, *given)) / 2e-6
    np.testing.assert_allclose(function.slope(x, *given), slope, rtol=1e-6, atol=1e-8)


def test_what_looks_alike_has_another_name():
    assert named(lambda x: x * np.clip(x + 3, 0, 6) / 6) == ("hard_swish", ())
    assert named(lambda x: x * 0.5 * (1 + erf(x * np.float32(0.70710677)))) == ("gelu", ())
    assert named(FUNCTIONS["gelu_tanh"].of) == ("gelu_tanh", ())
    assert named(lambda x: 3 * (x - 2)) == ("affine", (3.0, -6.0))
    assert named(lambda x: np.where(x > 0, x, np.float32(0.1) * x))[0] == "leaky_relu"
    assert named(lambda x: x / (1 + np.abs(x))) == ("softsign", ())
    # Bounds far out are no identity, and a factor that is 2 % off no GELU.
    assert named(lambda x: np.clip(x, -20, 20)) is None
    assert named(lambda x: x * 0.5 * (1 + erf(x * 0.72))) is None
