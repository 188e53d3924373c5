"""The memory model is for every simulator that there is."""

import subprocess
from pathlib import Path

import pytest

from gradloom.sim.run.builds import runner


@pytest.mark.skipif(runner.find_icarus() is None, reason="Icarus Verilog is not installed")
@pytest.mark.parametrize("data_bits", [32, 128, 256])
def test_icarus_reads_the_memory_model(data_bits):
    model = Path(runner.__file__).parents[2] / "bench" / "harness" / "axi_memory.sv"
    done = subprocess.run(
        [runner.find_icarus(), "-g2012", "-tnull", "-s", "axi_memory", f"-Paxi_memory.DATA_BITS={data_bits}", model],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
