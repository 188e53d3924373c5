"""Dataflows of an INT8 array: laws are SCALE-Sim's, and nothing is faster than its multipliers."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gradloom.compiler.estimate.products import ShapedProduct, backward, forward
from gradloom.models.files.unet import SD_V1_5
from gradloom.systems.diffusion.dataflows import (
    DATAFLOWS,
    DataflowArray,
    exposed_output,
    exposed_weight,
    of_prompt,
    output_without_drain,
    riding,
)
from gradloom.systems.diffusion.unet import operations

ROOT = Path(__file__).parents[3]
#: What SCALE-Sim 3.0.0 printed for products m, k, n on an array: ``docs/examples/hardware/scale_sim.py``, ``simulate``.
SCALE_SIM = {
    ("os", 8, 8): {(8, 8, 8): 21, (8, 20, 8): 33, (16, 40, 24): 323, (7, 5, 3): 18, (100, 30, 50): 4003},
    ("os", 8, 4): {(8, 8, 8): 35, (8, 20, 8): 59, (16, 40, 24): 599, (7, 5, 3): 14, (100, 30, 50): 6759},
    ("ws", 8, 8): {(8, 64, 64): 1919},
    ("ws", 16, 16): {(64, 128, 128): 7039},
}


@pytest.fixture(scope="module")
def made():
    ops = operations(SD_V1_5, rank=8)
    return [each for each in (*forward(ops), *backward(ops)) if ".attn2.to_" in each.layer]


@pytest.mark.parametrize("key", SCALE_SIM, ids=str)
def test_exposed_dataflows_are_scale_sims(key):
    dataflow, rows, columns = key
    law = {"ws": exposed_weight, "os": output_without_drain}[dataflow]
    array = DataflowArray(rows=rows, columns=columns)
    for (m, k, n), cycles in SCALE_SIM[key].items():
        assert law(ShapedProduct("", "", m=m, k=k, n=n), array) == cycles


@pytest.mark.skipif(not os.environ.get("GRADLOOM_DEEP"), reason="SCALE-Sim takes minutes")
def test_scale_sim_says_so_today():
    done = subprocess.run(
        [sys.executable, ROOT / "docs/examples/hardware/dataflows.py", "--scale-sim"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) > 40


def test_sums_of_a_stationary_output_leave_a_row_a_cycle():
    array, product = DataflowArray(rows=8, columns=4), ShapedProduct("", "", m=20, k=30, n=9, times=2)
    tiles = 2 * 3 * 3
    assert exposed_output(product, array) - output_without_drain(product, array) == tiles * 8


@pytest.mark.parametrize(
    "array",
    [
        DataflowArray(),
        DataflowArray(columns=64, shadow=2, port_bytes=64),
        DataflowArray(rows=32, columns=16, outputs=8),
    ],
)
def test_no_dataflow_is_faster_than_its_multipliers(made, array):
    macs = sum(each.macs for each in made)
    for law in DATAFLOWS.values():
        assert sum(law(each, array) for each in made) * array.rows * array.columns >= macs
    best = riding(made, array)
    assert best.macs == macs and best.cycles >= best.array
    assert best.array * array.multipliers >= macs and best.cycles * array.port_bytes >= best.bytes


def test_stable_diffusions_adapters_ride_along(made):
    """Bounds that were set, but 1.75 over OS and 1.4 over the hybrid: these gain from turned gradients of A."""
    array = DataflowArray()
    best = riding(made, array)
    assert best.utilisation(array) >= 0.91
    total = {name: sum(law(each, array) for each in made) for name, law in DATAFLOWS.items()}
    assert total["exposed OS"] / best.cycles >= 1.73 and total["exposed hybrid"] / best.cycles >= 1.39
    known = [each for each in made if not (each.part == "base" and of_prompt(each.layer))]
    assert riding(known, array).cycles < best.cycles


def test_what_an_adapter_costs(made):
    """Without room beside the array it takes the array's time, and without bandwidth memory's."""
    best = riding(made, DataflowArray())
    assert (
        riding(made, DataflowArray(columns=64, port_bytes=64)).array
        > riding(made, DataflowArray(columns=64, shadow=2)).array
    )
    assert riding(made, replace(DataflowArray(), outputs=2)).array > 1.2 * best.array
    assert riding(made, replace(DataflowArray(), port_bytes=16)).cycles > best.cycles
    assert riding(made, replace(DataflowArray(), tokens=64)).bytes > best.bytes


def test_one_product_by_hand():
    """Two tiles of input, one of output of each half of 32 columns; an adapter of rank 2 beside them."""
    array = DataflowArray(rank=2, port_bytes=1 << 20)
    layer = {"base": (100, 64, 128), "h": (100, 2, 128), "hB": (100, 64, 2)}
    parts = [ShapedProduct("x", name, m=m, n=n, k=k) for name, (m, n, k) in layer.items()]
    # Load, skew of rows and columns; four tiles of 100 tokens; the last sums of 64 tokens, 16 a cycle.
    assert riding(parts, array).cycles == 16 + 64 + 32 - 2 + 4 * 100 + 2 * 64
    # A third rank index has no column of tiles to go beside: two tiles of input more.
    wider = [replace(parts[0]), replace(parts[1], n=3), replace(parts[2], k=3)]
    assert riding(wider, replace(array, rank=3)).cycles == riding(parts, array).cycles + 2 * 100
