"""The shell on a bus: the laws are in ``*_laws.py``, one simulation runs all of a file."""

import sys
from pathlib import Path

import pytest

from gradloom.sim import runner

sys.path.insert(0, str(Path(__file__).parent))
import bench  # noqa: E402


@pytest.mark.parametrize("data_bits", [128, 256])
@pytest.mark.parametrize("laws", ["shell_laws", "request_laws", "limit_laws"])
def test_the_shell_obeys_its_laws_on_the_bus(laws, data_bits, tmp_path):
    where = bench.built(data_bits)
    runner.run_cocotb(
        where,
        top="shell_bench",
        module=laws,
        directory=tmp_path,
        environment={"DATA_BITS": str(data_bits)},
    )
