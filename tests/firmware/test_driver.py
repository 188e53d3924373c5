"""The C driver, compiled strictly and driven against the register model; later the same against RTL."""

import ctypes
import shutil
import subprocess

import pytest

from gradloom.firmware.chip.soc_image import includes, source
from gradloom.firmware.device import program, registers
from gradloom.firmware.device.machine import PROGRAM_FORMAT, TABLE_FORMAT

from .strict import strict_library

OK, RUNNING, NOT_FOUND, VERSION, ARGUMENT, BUSY, TIMEOUT, FAILED, ABSENT = 0, 1, -1, -2, -3, -4, -5, -6, -7
READ = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint32)
WRITE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32)


class Device(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("read", READ), ("write", WRITE), ("context", ctypes.c_void_p)]


class ImageConfig(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in ("version", "engines", "phases", "data_bits", "slots")]


class Error(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in ("code", "command", "request")] + [("address", ctypes.c_uint64)]


class Counters(ctypes.Structure):
    _fields_ = [("cycles", ctypes.c_uint64), ("phase_cycles", ctypes.c_uint32 * 16)] + [
        (name, ctypes.c_uint32)
        for name in ("commands_done", "commands_dropped", "cache_hits", "cache_misses", "read_beats", "write_beats")
    ]


class Health(ctypes.Structure):
    _fields_ = [("saturated", ctypes.c_uint32), ("underflowed", ctypes.c_uint32), ("gradient_norm", ctypes.c_uint64)]


class Driver:
    """The library, bound to one model."""

    def __init__(self, library, machine):
        self.library = library
        self.faults = []

        def guarded(action, otherwise):
            def call(*args):
                try:
                    return action(*args)
                except Exception as fault:  # an exception cannot pass through C
                    self.faults.append(fault)
                    return otherwise

            return call

        self.read = READ(guarded(lambda _, offset: machine.read32(offset), 0))
        self.write = WRITE(guarded(lambda _, offset, value: machine.write32(offset, value), None))
        self.device = Device()
        library.gl_init_access(ctypes.byref(self.device), self.read, self.write, None)

    def __getattr__(self, name):
        function = getattr(self.library, f"gl_{name}")

        def call(*args):
            result = function(ctypes.byref(self.device), *args)
            assert not self.faults, self.faults
            return result

        return call


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    loaded = strict_library(tmp_path_factory.mktemp("driver") / "libgradloom.so", "gradloom.c")
    loaded.gl_set_window.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32]
    for name in ("gl_error_name", "gl_error_text"):
        getattr(loaded, name).restype = ctypes.c_char_p
    return loaded


@pytest.fixture
def driver(library, machine):
    driver = Driver(library, machine)
    assert driver.set_window(machine.window_base, machine.window_size) == OK
    return driver


def test_a_window_is_whole_pages_from_a_page_on_and_not_empty(driver, machine):
    base = machine.window_base
    for wrong in (base + 1, base + 64, base + 2048, base + 4095):
        assert driver.set_window(wrong, 4096) == ARGUMENT
    assert driver.set_window(base, 0) == ARGUMENT
    assert driver.set_window(base + 4096, 4096) == OK and driver.set_window(base, machine.window_size) == OK


@pytest.mark.parametrize("standard", ["c99", "c11", "c17"])
def test_the_driver_compiles_without_a_c_library(tmp_path, standard):
    if shutil.which("gcc") is None or shutil.which("nm") is None:
        pytest.skip("gcc is not installed")
    target = tmp_path / "gradloom.o"
    sources = [str(source(f"gradloom{part}.c")) for part in ("", "_store", "_sum")]
    subprocess.run(
        [
            "gcc",
            "-Wall",
            "-Wextra",
            "-Werror",
            f"-std={standard}",
            "-ffreestanding",
            "-Os",
            "-r",
            "-nostdlib",
            "-o",
            str(target),
            *sources,
        ],
        check=True,
    )
    undefined = subprocess.run(["nm", "-u", str(target)], capture_output=True, text=True, check=True).stdout
    assert undefined.strip() in ("", "U _GLOBAL_OFFSET_TABLE_")


def test_the_linux_program_compiles_and_explains_itself(tmp_path):
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    target = tmp_path / "gradloom_run"
    subprocess.run(
        [
            "gcc",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-O2",
            "-std=c99",
            *includes(),
            "-o",
            str(target),
            *map(str, sorted(source("linux_main.c").parent.glob("*.c"))),
            *(str(source(f"gradloom{part}.c")) for part in ("", "_steps", "_sum")),
        ],
        check=True,
    )
    done = subprocess.run([str(target)], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "usage:" in done.stderr
    done = subprocess.run([str(target), str(target), "many"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "COMMANDS=many: must be a whole number from 0 to 16777215" in done.stderr


def test_probe_tells_what_is_there(driver):
    config = ImageConfig()
    assert driver.probe(ctypes.byref(config)) == OK
    assert driver.probe(None) == OK
    assert [getattr(config, name) for name, _ in ImageConfig._fields_] == [
        registers.CONSTANTS["VERSION"],
        3,
        9,
        128,
        1024,
    ]


def test_probe_refuses_what_is_not_ours(library, make_machine):
    assert Driver(library, make_machine(faults=["id"])).probe(None) == NOT_FOUND
    machine = make_machine()
    machine.values["VERSION"] += 1 << 16
    assert Driver(library, machine).probe(None) == VERSION
    for bit in (1, 1 << 8):
        machine = make_machine()
        machine.values["MACHINE"] += bit
        assert Driver(library, machine).probe(None) == VERSION


def test_a_program_runs_to_its_end(driver, machine):
    machine.write_memory(64, program.end())
    assert driver.run(64, 1, 100) == OK
    assert machine.bells == 1
    counters, health = Counters(), Health()
    driver.get_counters(ctypes.byref(counters))
    driver.get_health(ctypes.byref(health))
    assert counters.cycles == 0x1_FFFF_FFFF == sum(counters.phase_cycles)
    assert [getattr(counters, name) for name, _ in Counters._fields_[2:]] == [7, 2, 11, 5, 96, 0]
    assert (health.saturated, health.underflowed, health.gradient_norm) == (3, 9, 0x2_FFFF_FFFF)


def test_the_window_is_set_whole(driver, machine):
    assert machine.base == machine.window_base
    assert machine.values["WINDOW_SIZE"] == machine.window_size


def test_an_error_has_code_command_and_address(driver, machine, library):
    machine.write_memory(0, program.load(0, 1, 5) + program.load(machine.window_size, 1, 5) + program.end())
    assert driver.run(0, 3, 100) == FAILED
    error = Error()
    driver.get_error(ctypes.byref(error))
    assert library.gl_error_name(error.code) == b"LOAD_WINDOW"
    assert (error.command, error.address) == (1, machine.window_base + machine.window_size)
    assert error.request == 0


def test_every_error_has_its_name_and_text(library):
    for code, (name, text) in registers.ERRORS.items():
        assert library.gl_error_name(code).decode() == name
        assert library.gl_error_text(code).decode() == text
    assert library.gl_error_name(0xEE) == b"UNKNOWN"


@pytest.mark.parametrize("offset, commands", [(4, 1), (0, 0), (0, 1 << 24)])
def test_a_program_that_the_hardware_would_refuse_is_not_started(driver, machine, offset, commands):
    assert driver.start(offset, commands) == ARGUMENT
    assert machine.bells == 0


def test_no_locked_register_is_written_while_a_program_runs(driver, machine):
    """The model raises a bus error for such a write, as the hardware does."""
    machine.write_memory(0, program.end())
    machine.stuck = True
    assert driver.start(0, 1) == OK
    assert driver.poll() == RUNNING
    assert driver.wait(5) == TIMEOUT
    assert driver.start(0, 1) == BUSY
    assert driver.set_window(machine.window_base, 4096) == BUSY
    assert driver.set_watchdog(0) == BUSY
    assert driver.set_base_id(1, 10) == BUSY
    assert driver.clear_cache(10) == BUSY
    assert driver.reset(100) == OK
    assert driver.poll() == FAILED
    assert driver.run(0, 1, 100) == OK


def test_cache_and_watchdog(driver, machine):
    assert driver.set_base_id(0x1234, 100) == OK
    assert driver.clear_cache(100) == OK
    assert driver.clear_cache(0) == TIMEOUT
    assert driver.wait(100) == OK
    assert driver.set_watchdog(77) == OK
    assert (machine.values["BASE_ID"], machine.values["WATCHDOG"]) == (0x1234, 77)


def test_an_interrupt_is_enabled_seen_and_cleared(driver, machine):
    driver.enable_interrupt(1)
    assert machine.values["IRQ_ENABLE"] == 7
    machine.write_memory(0, program.end())
    assert driver.acknowledge() == 0
    assert driver.run(0, 1, 100) == OK
    assert driver.acknowledge() == 1
    assert machine.values["IRQ_STATUS"] == 0
    driver.enable_interrupt(0)
    assert machine.values["IRQ_ENABLE"] == 0


def test_a_request_runs_beside_a_program(driver, machine):
    machine.write_memory(0, program.end())
    machine.write_memory(64, program.load(256, 1, 5) + program.store(512, 1, 5) + program.end())
    machine.write_memory(256, bytes(range(16)))
    machine.stuck = True
    assert driver.start(0, 1) == OK
    assert driver.request(64, 3) == OK
    assert (driver.poll(), driver.poll_request(), driver.wait_request(3)) == (RUNNING, RUNNING, TIMEOUT)
    # The queue holds one; what both use is locked.
    assert driver.request(64, 3) == BUSY
    assert driver.set_watchdog(0) == BUSY
    machine.stuck = False
    assert driver.wait_request(20) == OK
    assert machine.read_memory(512, 16) == bytes(range(16))
    assert driver.wait(20) == OK
    waited, cycles = ctypes.c_uint32(), ctypes.c_uint32()
    driver.get_served(ctypes.byref(waited), ctypes.byref(cycles))
    assert (waited.value, cycles.value) == (123, 456)
    assert driver.acknowledge() == 1


def test_a_request_that_cannot_be_is_refused(driver, machine, make_machine, library):
    for offset, commands in ((4, 1), (0, 0), (0, 1 << 24)):
        assert driver.request(offset, commands) == ARGUMENT
    machine.faults.add("stopping")
    assert driver.request(0, 1) == BUSY
    assert Driver(library, make_machine(requests=False)).request(0, 1) == ABSENT


def test_an_error_of_a_request_says_so(driver, machine, library):
    machine.write_memory(0, program.load(machine.window_size, 1, 5) + program.end())
    assert driver.request(0, 2) == OK
    assert driver.wait_request(20) == FAILED
    error = Error()
    driver.get_error(ctypes.byref(error))
    assert (library.gl_error_name(error.code), error.command, error.request) == (b"LOAD_WINDOW", 0, 1)
    assert error.address == machine.window_base + machine.window_size
    # While one runs alone, a program may be started.
    machine.stuck = True
    assert driver.request(0, 2) == OK
    assert driver.start(0, 2) == OK
    assert driver.reset(20) == OK
    assert (driver.poll(), driver.wait_request(20)) == (FAILED, FAILED)


def test_registers_in_memory_are_reached_by_plain_accesses(library):
    words = (ctypes.c_uint32 * 40)()
    words[registers.ID // 4] = registers.CONSTANTS["ID"]
    words[registers.VERSION // 4] = registers.CONSTANTS["VERSION"]
    words[registers.MACHINE // 4] = TABLE_FORMAT | PROGRAM_FORMAT << 8
    device = Device()
    library.gl_init_mmio(ctypes.byref(device), words)
    assert library.gl_probe(ctypes.byref(device), None) == OK
    assert library.gl_set_window(ctypes.byref(device), 0x5_0000_1000, 4096) == OK
    assert [
        words[offset // 4] for offset in (registers.WINDOW_BASE_LO, registers.WINDOW_BASE_HI, registers.WINDOW_SIZE)
    ] == [0x1000, 5, 4096]
