"""A system whose accelerator only says what it is, built once."""

from pathlib import Path

import pytest

import gradloom.sim
from gradloom.rtl.shell.table import PROGRAM_FORMAT, TABLE_FORMAT
from gradloom.rtl.soc import soc_sources
from gradloom.sim.run.device import build_harness

MEMORY = 1 << 20
#: The table of the quiet accelerator.
MACHINE = "a=1"


@pytest.fixture(scope="session")
def program():
    bench = Path(gradloom.sim.__file__).parent / "bench/harness"
    quiet = Path(__file__).with_name("quiet_accelerator.sv")
    return build_harness(
        "soc",
        [quiet, *soc_sources(), bench / "soc_bus.sv", bench / "uart_listener.sv"],
        parameters={"BYTES": MEMORY, "DATA_BITS": 64, "ADDRESS": 32},
        defines=[f"FORMATS={TABLE_FORMAT | PROGRAM_FORMAT << 8}"],
    )
