"""A LiteX system with the accelerator: PicoRV32, LiteDRAM, LiteX's own simulator, and our firmware."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gradloom.firmware.chip import soc_image

from .litex_headers import litex_environment

EXAMPLE = Path(__file__).parents[2] / "docs/examples/hardware/litex_soc.py"
DEEP = pytest.mark.skipif(not os.environ.get("GRADLOOM_DEEP"), reason="two minutes of C++: GRADLOOM_DEEP=1")
CHECKS = ("registers", "memory", "end", "window", "unknown command", "copy")


def example():
    """The example as a module."""
    for name in ("litex", "litedram", "migen"):
        pytest.importorskip(name)
    spec = importlib.util.spec_from_file_location("litex_soc", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def system(machine):
    """``system(sdram)``: a system with the accelerator, and the design's module."""
    soc = example()
    found = soc.module_of(machine)

    def make(**options):
        return soc.System(soc.SimPlatform("SIM", soc._PADS), found.add_gradloom, **options), found

    return make


@pytest.mark.parametrize("sdram", [True, False])
def test_registers_memory_and_interrupt_are_in_the_system(system, sdram):
    made, found = system(sdram=sdram)
    made.finalize()
    region = made.bus.regions["gradloom"]
    assert region.size == 0x1000 and not region.cached and "gradloom" in made.bus.slaves
    assert "gradloom" in made.irq.locs
    assert ("gradloom" in made.bus.masters) is not sdram
    assert hasattr(made, "gradloom_memory") is sdram
    header = found.board_header(made)
    assert f"#define GL_REGISTERS {region.origin:#x}u" in header
    assert f"#define GL_MEMORY {made.bus.regions['main_ram'].origin:#x}u" in header
    sources = [Path(source[0]).name for source in made.platform.sources]
    assert sorted(path.name for path in (found.DESIGN / "rtl").glob("*.v")) == sorted(
        name for name in sources if name.startswith("gradloom")
    )


def test_every_port_but_the_trace_is_connected(system, machine):
    made, _ = system(sdram=False)
    made.finalize()
    text = str(made.platform.get_verilog(made.get_fragment(), name="sim"))
    (instance,) = re.findall(r"^gradloom gradloom\w*\((.*?)^\);", text, re.DOTALL | re.MULTILINE)
    report = json.loads((machine / "report.json").read_text(encoding="utf-8"))
    assert sorted(re.findall(r"\.(\w+) *\(\w+\)", instance)) == sorted(
        port["name"] for port in report["ports"] if port["name"] != "trace"
    )


def test_a_cache_before_the_memory_is_refused(system, machine):
    soc = example()

    class Cached(soc.System):
        def add_sdram(self, *arguments, **options):
            super().add_sdram(*arguments, **options | {"l2_cache_size": 8192})

    with pytest.raises(ValueError, match="l2_cache_size: must be 0"):
        Cached(soc.SimPlatform("SIM", soc._PADS), soc.module_of(machine).add_gradloom)


@pytest.mark.skipif(not soc_image.compilers("rv32im"), reason="no RISC-V compiler is installed")
def test_the_self_test_fits_a_small_memory(system, tmp_path):
    made, found = system()
    made.finalize()
    header = tmp_path / "board.h"
    header.write_text(found.board_header(made))
    for compiler in soc_image.compilers("rv32im"):
        assert len(soc_image.build(compiler, main="selftest", board_header=header)) < 8 << 10


@DEEP
@pytest.mark.parametrize("memory", [(), ("--on-chip",)], ids=["litedram", "bus"])
def test_the_processor_tests_the_accelerator(machine, tmp_path, memory):
    example()
    environment = litex_environment()
    if environment is None:
        pytest.skip("the headers of libevent and json-c are not installed")
    done = subprocess.run(
        [sys.executable, EXAMPLE, machine, "-o", tmp_path / "system", *memory],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    said = done.stdout.splitlines()
    assert [line for line in said if line.startswith(("ok", "FAIL"))] == [f"ok   {name}" for name in CHECKS]
    assert said[-1] == "done"
