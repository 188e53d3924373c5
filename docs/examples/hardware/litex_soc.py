"""A whole LiteX system with a generated accelerator, in LiteX's own simulation.

``python docs/examples/hardware/litex_soc.py DESIGN -o FOLDER``: a PicoRV32 runs gradloom's self-test on the
accelerator, whose memory is SDRAM behind LiteDRAM's controller. Prints what the processor says. Needed: LiteX and
LiteDRAM 2024.12, ziglang, Verilator, a C++ compiler, the headers of libevent, json-c and zlib.
"""

import argparse
import importlib.util
import os
import select
import struct
import subprocess
import sys
import time
from pathlib import Path

from litedram.modules import MT48LC16M16
from litedram.phy.model import SDRAMPHYModel
from litex.build.generic_platform import Pins, Subsignal
from litex.build.io import CRG
from litex.build.sim import SimPlatform
from litex.build.sim.config import SimConfig
from litex.soc.integration.soc_core import SoCCore

from gradloom.firmware.chip import soc_image
from gradloom.sim.run.builds.runner import verilator_environment

_WIRES = (("valid", 1), ("ready", 1), ("data", 8))
_PADS = [
    ("sys_clk", 0, Pins(1)),
    ("serial", 0, *(Subsignal(f"{way}_{wire}", Pins(bits)) for way in ("source", "sink") for wire, bits in _WIRES)),
]
#: The processor's memory: firmware, variables and stack.
_ROM_BYTES = 16 << 10
_CLOCK_HZ = 1_000_000
#: What the simulated memory's timing is that of.
_MEMORY_HZ = 100_000_000


def module_of(design):
    """The module ``litex_gradloom`` that a design has."""
    spec = importlib.util.spec_from_file_location("litex_gradloom", design / "integrate/litex_gradloom.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class System(SoCCore):
    """PicoRV32, UART, SDRAM and the accelerator.

    ``sdram`` false: the memory is on the chip, and the accelerator reaches it over the system's bus.
    """

    def __init__(self, platform, add_gradloom, *, sdram=True):
        self.crg = CRG(platform.request("sys_clk"))
        SoCCore.__init__(
            self,
            platform,
            clk_freq=_CLOCK_HZ,
            cpu_type="picorv32",
            uart_name="sim",
            integrated_rom_size=_ROM_BYTES,
            integrated_rom_mode="rwx",
            integrated_sram_size=4096,
            integrated_main_ram_size=0 if sdram else 1 << 17,
        )
        if sdram:
            memory = MT48LC16M16(_MEMORY_HZ, "1:1")
            self.sdrphy = SDRAMPHYModel(module=memory, data_width=32, clk_freq=_MEMORY_HZ)
            self.add_sdram("sdram", phy=self.sdrphy, module=memory, l2_cache_size=0)
        add_gradloom(self, synthesis=False)


def build(design, folder, *, sdram=True):
    """Builds the simulation in ``folder``; gives the program."""
    module = module_of(design)
    platform = SimPlatform("SIM", _PADS)
    system = System(platform, module.add_gradloom, sdram=sdram)
    system.finalize()
    folder.mkdir(parents=True, exist_ok=True)
    header = folder / "litex_board.h"
    header.write_text(module.board_header(system), encoding="ascii")
    compiler = soc_image.compilers(soc_image.MARCH["selftest"])[0]
    image = soc_image.build(compiler, main="selftest", board_header=header)
    system.init_rom("rom", list(struct.unpack(f"<{len(image) // 4}I", image)), auto_size=False)
    config = SimConfig()
    config.add_clocker("sys_clk", freq_hz=_CLOCK_HZ)
    config.add_module("serial2console", "serial")
    platform.build(system, build_dir=str(folder), sim_config=config, run=False, opt_level="O1")
    environment = verilator_environment()
    done = subprocess.run(
        ["bash", "build_sim.sh"], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"LiteX's simulation does not build:\n{(done.stdout + done.stderr)[-3000:]}")
    return folder / "obj_dir/Vsim"


def lines(program, *, timeout):
    """What the processor says, line by line, to its last word or for ``timeout`` seconds."""
    end = time.monotonic() + timeout
    with subprocess.Popen(
        [program.resolve()], cwd=program.parents[1], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as process:
        text, last = b"", ""
        try:
            while last not in ("done", "failed") and time.monotonic() < end:
                if not select.select([process.stdout], [], [], 1)[0]:
                    continue
                more = os.read(process.stdout.fileno(), 4096)
                if not more:
                    return
                *whole, text = (text + more).split(b"\n")
                for line in whole:
                    last = line.decode(errors="replace").strip()
                    yield last
        finally:
            process.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("design", type=Path, help="folder that gradloom generate made")
    parser.add_argument("-o", "--output", type=Path, default=Path("litex_soc"))
    parser.add_argument("--on-chip", action="store_true", help="memory on the chip, reached over the system's bus")
    parser.add_argument("--timeout", type=float, default=600)
    options = parser.parse_args()
    last = ""
    for last in lines(build(options.design, options.output, sdram=not options.on_chip), timeout=options.timeout):
        print(last, flush=True)
    sys.exit(last != "done")


if __name__ == "__main__":
    main()
