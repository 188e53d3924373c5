"""The shell on a bus: the laws are in ``*_laws.py``, one simulation runs all of a file."""


import pytest

from gradloom.sim.run import runner

from . import bench


@pytest.mark.parametrize("data_bits", [128, 256])
@pytest.mark.parametrize("laws", ["shell_laws", "request_laws", "limit_laws"])
def test_the_shell_obeys_its_laws_on_the_bus(laws, data_bits, tmp_path):
    where = bench.built(data_bits)
    runner.run_cocotb(
        where,
        top="shell_bench",
        module=f"tests.shell.{laws}",
        directory=tmp_path,
        environment={"DATA_BITS": str(data_bits)},
    )
