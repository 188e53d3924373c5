# amaranth: UnusedElaboratable=no
"""Checks of simulated Verilog: a slice that is asked for two sums, a word that is read as it is written."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import Out

from gradloom.rtl.emit.verilog import convert
from gradloom.rtl.systolic.pe import PE
from gradloom.sim.run.checks import checked
from gradloom.sim.run.device import SimulatedDevice, SimulationError, build_device

QUIET = Path(__file__).parents[2] / "soc" / "quiet_accelerator.sv"
#: Cycle in which the stand-in's PE is given both tag bits.
MEET = 3000


class Reader(wiring.Component):
    """Reads, of a memory that is written in every cycle, the word of 4 cycles ago; ``distance``: addresses between."""

    def __init__(self, distance):
        self.distance = distance
        super().__init__({"wrong": Out(1)})

    def elaborate(self, platform):
        m = Module()
        count, read_before = Signal(16), Signal(16)
        words = memory.Memory(shape=16, depth=4, init=[], attrs={"ram_style": "ultra"})
        m.submodules.words = words
        write, read = words.write_port(), words.read_port()
        m.d.sync += [count.eq(count + 1), read_before.eq(count)]
        m.d.comb += [write.addr.eq(count), write.data.eq(count), write.en.eq(1), read.addr.eq(count - self.distance)]
        with m.If((read_before >= 8) & (read.data != read_before - (self.distance or 4))):
            m.d.sync += self.wrong.eq(1)
        return m


@pytest.fixture(scope="module")
def device(tmp_path_factory):
    """A stand-in for an accelerator: a PE with both tag bits from cycle ``MEET`` on, and two readers in registers 16
    and 20."""
    folder = tmp_path_factory.mktemp("checks")
    quiet = QUIET.read_text(encoding="utf-8")
    head, tail = quiet.split("    localparam", 1)
    (folder / "gradloom.sv").write_text(
        head
        + f"""
    logic [15:0] cycle;
    logic [1:0] wrong;
    logic signed [47:0] p_o;
    always_ff @(posedge clk) cycle <= rst ? 0 : cycle + 1;
    pe broken(.clk, .rst, .x_i(24'd1), .w_i(18'd1), .p_i(48'd1), .p_o(p_o), .x_o(), .w_o(), .tag_o(),
        .tag_i({{cycle >= {MEET} || cycle[0], cycle >= {MEET} || !cycle[0], 3'd0}}));
    same_address same(.clk, .rst, .wrong(wrong[0]));
    other_address other(.clk, .rst, .wrong(wrong[1]));
    localparam"""
        + tail.replace(
            "12'd4 ? VERSION :",
            "12'd4 ? VERSION : s_axi_araddr == 12'd16 ? 32'(wrong[0]) : s_axi_araddr == 12'd20 ? 32'(wrong[1]) :",
        ),
        encoding="utf-8",
    )
    for name, component in (("pe", PE()), ("same_address", Reader(0)), ("other_address", Reader(1))):
        for module, text in convert(component, name=name, family="xc7").files.items():
            (folder / f"{module}.v").write_text(text, encoding="utf-8")
    program = build_device(folder.iterdir(), memory_bytes=1 << 16, data_bits=64, address_bits=32)
    with SimulatedDevice(program, memory_bytes=1 << 16) as found:
        yield found


def test_objects_of_verilator_are_compiled_once(device, tmp_path):
    """The fixture's build, or an earlier one, has compiled them."""
    (tmp_path / "gradloom.sv").write_text(QUIET.read_text(encoding="utf-8"))
    program = build_device([tmp_path / "gradloom.sv"], memory_bytes=1 << 12, data_bits=64, address_bits=32)
    log = program.parents[1].joinpath("build.log").read_text()
    assert " -c -o device.o " in log and "verilated.cpp" not in log and "-O1 -fno-" in log


def test_a_word_read_while_it_is_written_is_no_word(device):
    device.advance(64)
    assert device.read32(16) == 1, "the design depends on the old word"
    assert device.read32(20) == 0, "this one reads another address"


def test_tag_bits_that_meet_end_the_run_with_a_message(device):
    device.advance(MEET - 1000)
    device.read32(0)
    with pytest.raises(SimulationError, match=r"dut\.broken: tag bits from_above and from_self are both 1"):
        device.advance(1000)


def test_a_slice_with_two_adders_takes_both():
    text = convert(PE(both=True), name="pe").files["pe"]
    assert checked(text) == text
    text = convert(PE(), name="pe").files["pe"]
    assert checked(text) != text


@pytest.mark.parametrize(
    "old, new, message",
    [
        (r"mode\[3\] \?", "mode[1] ?", "module pe: has tags"),
        ("<= words", "<= others", "module same_address: UltraRAM words has"),
        (r"(    words\[.*\]) <=", r"\1 =", "module same_address: UltraRAM words is written nowhere"),
    ],
    ids=["pe", "read", "write"],
)
def test_text_of_an_unknown_kind_is_not_left_unchecked(old, new, message):
    name, component = ("pe", PE()) if "pe:" in message else ("same_address", Reader(0))
    text = convert(component, name=name).files[name]
    changed, count = re.subn(old, new, text)
    assert count
    with pytest.raises(ValueError, match=message):
        checked(changed)


@pytest.fixture(scope="module")
def endless(tmp_path_factory):
    """A simulation of an accelerator that never answers the bell."""
    file = tmp_path_factory.mktemp("quiet") / "gradloom.sv"
    file.write_text(QUIET.read_text(encoding="utf-8"))
    return build_device([file], memory_bytes=1 << 12, data_bits=64, address_bits=32)


_ASKS = """\
import sys
from pathlib import Path
from gradloom.sim.run.device import SimulatedDevice
device = SimulatedDevice(Path(sys.argv[1]), memory_bytes=1 << 12)
print(device._process.pid, flush=True)
device.advance(1 << 60)
"""


def test_a_simulation_ends_with_who_started_it(endless):
    """Also where that one is killed in the middle of a request, and cleans up nothing."""
    with subprocess.Popen([sys.executable, "-c", _ASKS, endless], stdout=subprocess.PIPE, text=True) as starter:
        simulation = int(starter.stdout.readline())
        time.sleep(0.5)
        assert starter.poll() is None
        starter.kill()
    for _ in range(100):
        state = Path(f"/proc/{simulation}/stat")
        # Where nobody waits for orphans, the process stays as a zombie.
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.05)
    os.kill(simulation, signal.SIGKILL)
    raise AssertionError("the simulation runs on")


def test_a_simulation_that_has_not_answered_is_ended_at_once(endless):
    with SimulatedDevice(endless, memory_bytes=1 << 12) as other:
        other._ask(f"g {1 << 60:x}")
        began = time.monotonic()
        other.close()
    assert time.monotonic() - began < 2
