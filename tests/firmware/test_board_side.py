"""What talks to Linux on the board, against a made-up /sys and /dev; and PYNQ, against a made-up pynq."""

import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import types
from pathlib import Path

import numpy as np
import pytest

from gradloom.boards.firmware_files import firmware_files
from gradloom.firmware.chip.soc_image import source
from gradloom.firmware.device import barrier, registers
from gradloom.firmware.device.barrier import memory_barrier
from gradloom.firmware.device.energy import EnergyMeter, find_sensor, integrate
from gradloom.firmware.device.machine import PROGRAM_FORMAT, TABLE_FORMAT, MachineDesign
from gradloom.firmware.device.pynq_transport import PynqTransport
from gradloom.firmware.device.uio_transport import UioTransport


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def linux(tmp_path):
    """A board with another UIO device first, ours second, and a buffer."""
    sys_folder, dev = tmp_path / "sys", tmp_path / "dev"
    for number, name in ((0, "axi-pmon"), (1, "gradloom")):
        write(sys_folder / f"class/uio/uio{number}/name", f"{name}\n")
        write(sys_folder / f"class/uio/uio{number}/maps/map0/size", "0x0000000000001000\n")
    buffer = sys_folder / "class/u-dma-buf/udmabuf-gradloom"
    write(buffer / "phys_addr", "0x0000000070100000\n")
    write(buffer / "size", "8192\n")
    dev.mkdir()
    (dev / "uio1").write_bytes(bytes(4096))
    (dev / "udmabuf-gradloom").write_bytes(bytes(8192))
    return {"sys": str(sys_folder), "dev": str(dev)}


def test_uio_finds_registers_by_name_and_the_buffer(linux):
    with UioTransport(**linux) as transport:
        assert (transport.window_base, transport.window_size) == (0x7010_0000, 8192)
        transport.write32(registers.WATCHDOG, 0xDEADBEEF)
        assert transport.read32(registers.WATCHDOG) == 0xDEADBEEF
        transport.write_memory(100, b"hello")
        assert transport.read_memory(99, 7) == b"\0hello\0"
    with open(linux["dev"] + "/uio1", "rb") as file:
        file.seek(registers.WATCHDOG)
        assert file.read(4) == struct.pack("<I", 0xDEADBEEF)
    with open(linux["dev"] + "/udmabuf-gradloom", "rb") as file:
        assert file.read()[100:105] == b"hello"


def test_seconds_are_those_of_the_designs_own_clock(linux, monkeypatch):
    with UioTransport(**linux) as transport:
        assert transport.clock_hz is None
    own = MachineDesign(name="mine", table="", data_bits=128, clock_mhz=150)
    monkeypatch.setattr("gradloom.firmware.device.uio_transport.own_design", lambda: own)
    with UioTransport(**linux) as transport:
        assert transport.clock_hz == 150e6
    # What the kernel says of the clock holds, unless it is above what the design is timed for.
    rate = Path(linux["sys"]) / "kernel/debug/clk/pl0_ref/clk_rate"
    write(rate, "99999999\n")
    with UioTransport(**linux) as transport:
        assert transport.clock_hz == 99_999_999
    write(rate, f"{1.001 * 150e6}\n")
    with UioTransport(**linux) as transport:
        assert transport.clock_hz == 1.001 * 150e6
    write(rate, "187500000\n")
    with pytest.raises(ValueError, match="pl_clk0 runs at 187,500,000 Hz, the timing holds up to 150,000,000 Hz"):
        UioTransport(**linux)


@pytest.fixture
def barriers(monkeypatch):
    """How often the barrier was called, and what the window held then."""
    seen = []
    for name in ("uio_transport", "pynq_transport"):
        monkeypatch.setattr(f"gradloom.firmware.device.{name}.memory_barrier", lambda: lambda: seen.append(window()))
    window = seen.append  # replaced by the test

    def watch(look):
        nonlocal window
        window = look
        return seen

    return watch


def test_uio_writes_leave_the_cpu_before_the_bell_and_results_are_read_behind_the_status(linux, barriers):
    with UioTransport(**linux) as transport:
        seen = barriers(lambda: bytes(transport._window[:5]))
        transport.write_memory(0, b"hello")
        assert seen == [b"hello"]
        transport._window[:5] = b"world"
        assert transport.read_memory(0, 5) == b"world" and seen == [b"hello", b"world"]


def test_pynq_writes_leave_the_cpu_before_the_bell(pynq, barriers):
    with PynqTransport("design.bit", window_size=8192) as transport:
        seen = barriers(lambda: transport._buffer[:5].tobytes())
        transport.write_memory(0, b"hello")
        assert transport.read_memory(0, 5) == b"hello" and seen == [b"hello"] * 2


def test_the_barrier_is_the_instruction_of_the_c_driver():
    memory_barrier()()
    header = source("gradloom.h").read_text()
    assert '__aarch64__)\n#define GL_BARRIER() __asm__ volatile("dsb sy"' in header
    # Arm's manual: DSB is 1101 0101 0000 0011 0011 CRm 1 00 11111 with CRm 1111 for SY; RET is D65F03C0.
    assert struct.unpack("<2I", barrier.CODE["aarch64"]) == (0xD503309F | 0b1111 << 8, 0xD65F03C0)


def test_a_machine_without_a_known_barrier_is_told(monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "vax")
    with pytest.raises(ValueError, match="no memory barrier is known for vax"):
        memory_barrier.__wrapped__()


def test_a_kernel_that_forbids_the_barriers_page_is_told(monkeypatch):
    # No page has no bytes.
    monkeypatch.setattr("mmap.PAGESIZE", 0)
    with pytest.raises(OSError, match="the memory barrier's page cannot be mapped"):
        memory_barrier.__wrapped__()


def test_uio_unmasks_waits_and_times_out(linux):
    transport = UioTransport(**linux)
    ours, kernel = socket.socketpair()
    real, transport._uio = transport._uio, ours.fileno()
    try:
        assert not transport.wait_interrupt(0.01)
        assert kernel.recv(4) == struct.pack("=I", 1)
        threading.Timer(0.02, lambda: kernel.send(struct.pack("=I", 7))).start()
        assert transport.wait_interrupt(2)
        assert kernel.recv(4) == struct.pack("=I", 1)
    finally:
        transport._uio = real
        transport.close()
        ours.close()
        kernel.close()


def test_what_is_not_loaded_is_named(linux):
    with pytest.raises(ValueError, match="no UIO device called 'other'.*uio_pdrv_genirq"):
        UioTransport(name="other", **linux)
    with pytest.raises(ValueError, match="no u-dma-buf called 'udmabuf-axi-pmon'"):
        UioTransport(name="axi-pmon", **linux)


def test_no_file_stays_open_when_opening_fails(linux):
    os.remove(linux["dev"] + "/udmabuf-gradloom")
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError):
        UioTransport(**linux)
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_self_test_of_one_design_leaves_another_alone(linux, tmp_path):
    """The package as ``generate`` writes it, in a process of its own, beside registers of a wider machine."""
    design = {"name": "mine", "table": "rows=4;;array:mac:a:o", "data_bits": 128}
    for path, text in firmware_files(design).items():
        write(tmp_path / "firmware" / path, text)
    words = bytearray(4096)
    for name, value in (
        ("ID", registers.CONSTANTS["ID"]),
        ("VERSION", registers.CONSTANTS["VERSION"]),
        ("MACHINE", TABLE_FORMAT | PROGRAM_FORMAT << 8 | 1 << 16 | 4 << 24),
        ("CONFIG_MEMORY", 256 | 64 << 16),
    ):
        struct.pack_into("<I", words, getattr(registers, name), value)
    device = Path(linux["dev"]) / "uio1"
    device.write_bytes(words)
    (tmp_path / "firmware/board.py").write_text(
        "import sys\nfrom gradloom_host import uio_transport, selftest\n"
        "uio_transport.UioTransport.__init__.__kwdefaults__.update(sys=sys.argv[1], dev=sys.argv[2])\n"
        "raise SystemExit(selftest.main([]))\n"
    )
    done = subprocess.run(
        [sys.executable, "board.py", linux["sys"], linux["dev"]],
        cwd=tmp_path / "firmware",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "gradloom: the board has another design than mine: data_bits=256, must be 128; run gradloom flash again\n"
    )
    assert device.read_bytes() == words
    header = (tmp_path / "firmware/driver/gradloom_design.h").read_text()
    assert '#define GL_DESIGN_TABLE "rows=4;;array:mac:a:o"' in header and '#define GL_DESIGN_NAME "mine"' in header


@pytest.mark.parametrize("file", ["uio1", "udmabuf-gradloom"])
def test_a_device_file_without_rights_is_one_line(linux, file):
    code = (
        "import os, sys\nfrom gradloom.firmware.device.uio_transport import UioTransport\n"
        "os.geteuid() or os.seteuid(65534)\n"
        "try:\n    UioTransport(sys=sys.argv[1], dev=sys.argv[2])\n"
        "except ValueError as error:\n    print(error)\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        # pytest's own folders are for their owner.
        os.chmod(folder, 0o755)
        shutil.copytree(Path(linux["sys"]).parent, folder, dirs_exist_ok=True)
        os.chmod(folder, 0o755)
        for each in (Path(folder) / "dev").iterdir():
            each.chmod(0 if each.name == file else 0o666)
        said = subprocess.run(
            [sys.executable, "-c", code, f"{folder}/sys", f"{folder}/dev"], capture_output=True, text=True, check=True
        )
        assert said.stdout == (
            f"{folder}/dev/{file}: no permission: run with sudo, or give your group the rights by a udev rule\n"
        )


@pytest.fixture
def pynq(monkeypatch):
    """A module that behaves like pynq; returns what was asked of it."""
    asked = types.SimpleNamespace(flushed=0, invalidated=0, freed=0)

    class Buffer(np.ndarray):
        device_address = 0x6000_0000

        def flush(self):
            asked.flushed += 1

        def invalidate(self):
            asked.invalidated += 1

        def freebuffer(self):
            asked.freed += 1

    class Mmio:
        def __init__(self):
            self.words = {}

        def read(self, offset):
            return self.words.get(offset, 0)

        def write(self, offset, value):
            self.words[offset] = value

    class Overlay:
        def __init__(self, bitfile):
            self.ip_dict = {} if "empty" in bitfile else {"accelerator": {}}
            self.accelerator = types.SimpleNamespace(mmio=Mmio())

    def allocate(shape, dtype, cacheable):
        asked.cacheable = cacheable
        return np.zeros(shape, dtype).view(Buffer)

    module = types.SimpleNamespace(Overlay=Overlay, allocate=allocate, Clocks=types.SimpleNamespace(fclk0_mhz=199.998))
    monkeypatch.setitem(sys.modules, "pynq", module)
    monkeypatch.setenv("XILINX_XRT", "/usr")
    return asked


def test_pynq_gives_registers_and_an_uncached_buffer(pynq):
    with PynqTransport("design.bit", window_size=8192) as transport:
        assert not pynq.cacheable
        assert (transport.window_base, transport.window_size) == (0x6000_0000, 8192)
        assert transport.clock_hz == pytest.approx(199.998e6)
        transport.write32(registers.WATCHDOG, 5)
        assert transport.read32(registers.WATCHDOG) == 5
        transport.write_memory(10, b"abc")
        assert transport.read_memory(9, 5) == b"\0abc\0"
        assert (pynq.flushed, pynq.invalidated) == (1, 1)
        assert transport.wait_interrupt(0.1)  # polls STATUS, which is idle
    assert pynq.freed == 1


def test_pynq_refuses_a_clock_that_the_design_is_not_made_for(pynq, monkeypatch):
    """It sets the dividers of the handoff, whatever the boot firmware made of the PLL before them."""
    for mhz, refused in ((200, False), (187.499998, True)):
        own = MachineDesign(name="mine", table="", data_bits=128, clock_mhz=mhz)
        monkeypatch.setattr("gradloom.firmware.device.pynq_transport.own_design", lambda own=own: own)
        if refused:
            with pytest.raises(ValueError, match="PYNQ runs the design at 200 MHz, it is made for 187.5"):
                PynqTransport("design.bit")
        else:
            with PynqTransport("design.bit") as transport:
                assert transport.window_size == 64 << 20


def test_pynq_refuses_another_design_and_a_bad_window(pynq):
    with pytest.raises(ValueError, match="no IP called 'accelerator', but none"):
        PynqTransport("empty.bit")
    with pytest.raises(ValueError, match="window_size"):
        PynqTransport("design.bit", window_size=100)


def test_pynq_outside_its_environment_says_how_to_enter_it(pynq, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynq", None)
    with pytest.raises(ValueError, match="PYNQ cannot be imported .*sudo bash -lc"):
        PynqTransport("design.bit")
    monkeypatch.delenv("XILINX_XRT")
    with pytest.raises(ValueError, match="XILINX_XRT is not set.*sudo bash -lc"):
        PynqTransport("design.bit")


def test_the_sensor_is_found_by_its_name(tmp_path):
    write(tmp_path / "hwmon0/name", "nvme\n")
    write(tmp_path / "hwmon0/power1_input", "1\n")
    write(tmp_path / "hwmon1/name", "ina260_u14\n")
    with pytest.raises(ValueError, match="no sensor ina260"):
        find_sensor(tmp_path)
    write(tmp_path / "hwmon1/power1_input", "4500000\n")
    assert find_sensor(tmp_path) == tmp_path / "hwmon1/power1_input"


def test_energy_is_the_area_under_the_power():
    assert integrate([(0, 2.0), (1, 4.0), (3, 4.0)]) == pytest.approx(3 + 8)
    assert integrate([(5, 9.0)]) == 0


def test_idle_power_is_taken_off(tmp_path):
    sensor = tmp_path / "power1_input"
    sensor.write_text("3000000\n")
    meter = EnergyMeter(sensor, interval=0.002, idle_seconds=0.02)
    with meter:
        sensor.write_text("5000000\n")
        time.sleep(0.1)
    energy = meter.result
    assert energy.idle_watts == pytest.approx(3)
    assert energy.samples > 5
    assert energy.seconds >= 0.1
    assert energy.mean_watts == pytest.approx(5, rel=0.1)
    assert energy.net_joules == pytest.approx(2 * energy.seconds, rel=0.25)


def test_work_shorter_than_the_interval_is_measured(tmp_path):
    sensor = tmp_path / "power1_input"
    sensor.write_text("4000000\n")
    with EnergyMeter(sensor, interval=10, idle_seconds=0) as meter:
        time.sleep(0.01)
    assert meter.result.samples == 2
    assert meter.result.joules == pytest.approx(4 * meter.result.seconds)


def test_a_sensor_that_stops_is_told(tmp_path):
    sensor = tmp_path / "power1_input"
    sensor.write_text("4000000\n")
    with pytest.raises(ValueError, match="stopped"), EnergyMeter(sensor, interval=0.001, idle_seconds=0):
        sensor.unlink()
        time.sleep(0.05)
