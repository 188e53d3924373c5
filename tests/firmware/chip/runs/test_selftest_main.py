"""The self-test of a system's processor, on this machine: of the model's faults it says what the host's says."""

import ctypes
import mmap
import shutil
import subprocess
from dataclasses import replace

import pytest

from gradloom.firmware.chip.soc_image import includes, source
from gradloom.firmware.device.host import Accelerator
from gradloom.firmware.device.selftest import run_selftest
from gradloom.rtl.machines.configs.images import ImageConfig
from gradloom.rtl.machines.images import IMAGE_MACHINE, IMAGES
from gradloom.rtl.shell.registers.errors import Error
from gradloom.rtl.shell.signature import COMMAND_BYTES
from gradloom.rtl.shell.table import machine_table, table_words

from ...conftest import PARAMETERS, Machine

CHECKS = ["registers", "memory", "end", "window", "unknown command", "copy"]
NO_PLACE = "FAIL copy: the loop of the machine table has no place"
#: Where the self-test has its copy, and its bytes.
COPY, COPIED = 8192, 128
#: A board whose memory is this process's, and whose registers and UART are functions.
HEADER = """
#include <stdint.h>
extern uintptr_t host_memory;
extern uint32_t (*host_read)(void *, uint32_t);
extern void (*host_write)(void *, uint32_t, uint32_t);
extern void (*host_put)(char);
extern int (*host_interrupt)(void);
#define GL_MEMORY host_memory
#define GL_BOARD_READ host_read
#define GL_BOARD_WRITE host_write
#define GL_BOARD_INTERRUPT(expected) host_interrupt()
#define GL_BOARD_CYCLES() 0u
#define gl_board_put host_put
#define gl_board_start() ((void)0)
"""
BOARD = """
#include "board.h"
uintptr_t host_memory;
uint32_t (*host_read)(void *, uint32_t);
void (*host_write)(void *, uint32_t, uint32_t);
void (*host_put)(char);
int (*host_interrupt)(void);
"""


class Played(Machine):
    """The model with a window in shared memory, its programs, and one byte of what a program copies changed."""

    def __init__(self, *, flipped=None, classes=16, loop=None, **options):
        super().__init__(**options)
        self.memory = mmap.mmap(-1, self.window_size)
        table = machine_table(IMAGES, PARAMETERS, loop or IMAGE_MACHINE.loop(ImageConfig(classes=classes)))
        self.table, self.flipped = table_words(table), flipped
        self.programs = []

    def execute(self, which):
        first = self.values[f"{which}_OFFSET"]
        self.programs.append(self.memory[first : first + COMMAND_BYTES * self.values[f"{which}_COMMANDS"]])
        outcome = super().execute(which)
        if self.written and self.flipped is not None:
            self.memory[COPY + self.flipped] ^= 1
        return outcome


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    folder = tmp_path_factory.mktemp("selftest")
    (folder / "board.h").write_text(HEADER)
    (folder / "board.c").write_text(BOARD)
    units = [str(source(name)) for name in ("selftest_main.c", "soc_device.c", "soc_text.c", "gradloom.c")]
    command = ["gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", *includes()]
    command += ["-Dmain=gl_selftest", f'-DGL_BOARD_HEADER="{folder / "board.h"}"', f"-I{folder}"]
    subprocess.run([*command, str(folder / "board.c"), *units, "-o", str(folder / "selftest.so")], check=True)
    return ctypes.CDLL(str(folder / "selftest.so"))


def said(library, machine, action=None):
    """Lines of the UART, and what ``action`` returns: the exit code of the self-test."""
    text, faults = [], []

    def guarded(action):
        def call(*given):
            try:
                return action(*given) or 0
            except Exception as fault:  # an exception cannot pass through C
                faults.append(fault)
                return 0

        return call

    values, word, place = machine.values, ctypes.c_uint32, ctypes.c_void_p
    functions = {
        "read": ctypes.CFUNCTYPE(word, place, word)(guarded(lambda _, offset: machine.read32(offset))),
        "write": ctypes.CFUNCTYPE(None, place, word, word)(guarded(lambda _, *given: machine.write32(*given))),
        "put": ctypes.CFUNCTYPE(None, ctypes.c_char)(guarded(text.append)),
        "interrupt": ctypes.CFUNCTYPE(ctypes.c_int)(guarded(lambda: values["IRQ_STATUS"] & values["IRQ_ENABLE"])),
    }
    for name, function in functions.items():
        place.in_dll(library, f"host_{name}").value = ctypes.cast(function, place).value
    window = ctypes.c_char.from_buffer(machine.memory)
    ctypes.c_size_t.in_dll(library, "host_memory").value = ctypes.addressof(window)
    code = (action or library.gl_selftest)()
    del window
    assert not faults, faults
    return b"".join(text).decode().splitlines(), code


def test_a_good_machine_passes(library):
    lines, code = said(library, Played())
    assert lines[0].startswith("gradloom: ") and lines[1:] == [*(f"ok   {name}" for name in CHECKS), "done"]
    assert code == 0


def test_its_programs_are_those_of_the_hosts_self_test(library):
    processors, hosts = Played(), Played()
    said(library, processors)
    run_selftest(Accelerator(hosts, timeout=1), skip=("clock",))
    # Behind what is refused, both run the smallest one again.
    own, other = (list(dict.fromkeys(each.programs)) for each in (processors, hosts))
    assert len(own) == 4 and own == other
    # They copy the same; at both ends of the window each has a pattern of its own.
    assert processors.memory[4096:-4096] == hosts.memory[4096:-4096] != bytes(processors.window_size - 8192)


@pytest.mark.parametrize("fault, check", [("bit", "registers"), ("irq", "end"), ("window", "window"), ("copy", "copy")])
def test_a_fault_is_found_by_its_check_alone(library, fault, check):
    lines, code = said(library, Played(faults=[fault]))
    failed = [line.removeprefix("FAIL ").split(":")[0] for line in lines if line.startswith("FAIL ")]
    assert failed == [check] and lines[-1] == "failed" and code == 1
    assert len(lines) == len(CHECKS) + 2


@pytest.mark.parametrize(("beats", "bits", "told"), [(1792, 16, []), (1793, 16, [NO_PLACE]), (8, 4, [NO_PLACE])])
def test_a_loop_without_a_place_is_told(library, beats, bits, told):
    """Behind the first page come the words, and from a page on their copy; a word has a byte at least."""
    engine, loop = IMAGE_MACHINE.loop(ImageConfig(classes=16))
    lines, _ = said(library, Played(loop=(engine, replace(loop, beats=beats, bits=bits))))
    assert [line for line in lines if line.startswith("FAIL")] == told


def test_another_machine_is_no_accelerator(library):
    lines, code = said(library, Played(faults=["id"]))
    assert lines == ["gradloom: no accelerator", "failed"] and code == 1


@pytest.mark.parametrize("classes", [3, 16])
@pytest.mark.parametrize("flipped", [0, 1, 5, 6, 31, 32, 37, 38, 64, COPIED - 1])
def test_a_byte_that_changes_is_found_where_words_come_back(library, classes, flipped):
    """Of 16 words of two bytes as many come back as there are classes; the host's self-test says the same."""
    lines, _ = said(library, Played(flipped=flipped, classes=classes))
    found = "FAIL copy: a word came back wrong" in lines
    assert found == (flipped // 2 % 16 < classes) and (found or lines[-1] == "done")
    host = run_selftest(Accelerator(Played(flipped=flipped, classes=classes), timeout=1))
    assert [ok for name, ok, _ in host if name == "copy"] == [not found]


def test_a_program_runs_to_its_end_and_what_stops_it_is_told(library):
    """Meanwhile something else is done, as often as the processor looks."""
    device, looks = ctypes.create_string_buffer(256), []
    meanwhile = ctypes.CFUNCTYPE(None)(lambda: looks.append(0))

    def run(program, offset=64, commands=2, meanwhile=None):
        machine = Played(delay=3)
        machine.memory[64 : 64 + len(program)] = program
        machine.values["WINDOW_SIZE"] = machine.window_size

        def action():
            assert library.find_device(device) == 0
            return library.run_program(device, offset, commands, meanwhile)

        lines, code = said(library, machine, action)
        assert lines[0].startswith("gradloom: rows=25,")
        return lines[1:], code, machine

    end, unknown = bytes(COMMAND_BYTES), (9 << 8).to_bytes(COMMAND_BYTES, "little")
    lines, code, machine = run(end, meanwhile=meanwhile)
    assert (lines, code, machine.bells, len(looks)) == ([], 0, 1, 4) and not machine.values["IRQ_STATUS"]
    lines, code, machine = run(unknown + end)
    name = f"{Error.UNKNOWN_ENGINE.name} 0x{Error.UNKNOWN_ENGINE:08x}"
    assert len(lines) == 1 and lines[0].startswith(f"error: {name} at command 0, address 0x00000000: ") and code == -6
    lines, code, machine = run(end, offset=68)
    assert (lines, code, machine.bells) == (["error: the driver refused the program"], -3, 0)
