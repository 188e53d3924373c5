"""A wrapper for somebody else's slot: the machine in it does what it does alone."""

import itertools
import json
import re
import subprocess
import sys

import numpy as np
import pytest

from gradloom.firmware.device.host import Accelerator
from gradloom.rtl.emit.verilog import WAIVERS, emit
from gradloom.rtl.machines.accelerator import Accelerator as Design
from gradloom.rtl.soc.slot import Slot, firmware_header, slot_files, wrapper
from gradloom.sim.run.builds import runner
from gradloom.sim.run.builds.designs import design
from gradloom.sim.run.device import SimulatedDevice, build_device
from gradloom.systems.text.run.linear import LinearMachine, choose_exponents, mathematics, reference_step

from ...deep import deep
from .conftest import SMALL, make_layer

CORE = {"core_bits": SMALL.data_bits, "core_address_bits": SMALL.address_bits}


# What is said of every design, names that C++ has too, and outputs that nobody needs.
WAIVED = (*WAIVERS, "SYMRSVDWORD", "PINCONNECTEMPTY")


@pytest.fixture(scope="module")
def report():
    """What matters of ``report.json``."""
    return {
        "module": "gradloom",
        "ports": [
            {"name": "m_axi_wdata", "width": 64},
            {"name": "m_axi_awaddr", "width": 32},
            {"name": "m_axi_awid", "width": 1},
        ],
    }


class NarrowPort(SimulatedDevice):
    """Memory behind a narrower port, for which there is no forecast."""

    memory = None


@deep
def test_a_training_step_behind_a_narrower_port_is_the_same(tmp_path):
    """The wrapper gets the accelerator's own names, and so its bench: beats of 64 bits pass a port of 32."""
    core, _ = tmp_path / "core", emit(Design(SMALL), tmp_path / "core", name="gradloom_core")
    slot = Slot(
        module="gradloom",
        data_bits=32,
        address_bits=32,
        id_bits=1,
        control_address_bits=12,
        control_prefix="s_axi_",
        memory_prefix="m_axi_",
        interrupt="irq",
        clock="clk",
        reset="rst",
        reset_active_low=False,
    )
    text = wrapper(slot, core="gradloom_core", **CORE)
    # What the bench traces is no business of a slot.
    text = text.replace("output wire irq", "output wire irq,\n    output wire [31:0] trace").replace(
        ".trace()", ".trace(trace)"
    )
    (tmp_path / "gradloom.v").write_text(text)
    for name, part in slot_files(
        slot,
        {
            "module": "gradloom_core",
            "ports": [{"name": "m_axi_wdata", "width": 64}, {"name": "m_axi_awaddr", "width": 32}],
        },
        memory=0x8000_0000,
        memory_bytes=4096,
    ).items():
        if name.startswith("slot_") and name.endswith(".v"):
            (tmp_path / name).write_text(part)
    program = build_device(
        [*(core / "rtl").glob("*.v"), *tmp_path.glob("*.v")],
        memory_bytes=1 << 24,
        data_bits=32,
        address_bits=32,
        longest=32,
    )
    layer = make_layer(32, 48, 8, 4, seed=5)
    e = choose_exponents(layer, mathematics(layer, 0.01))
    expected = reference_step(layer, e, 0.01)
    with NarrowPort(program, memory_bytes=1 << 24) as device:
        for stall in (0, 100):
            device.set("stall", stall)
            found = LinearMachine(SMALL, host=Accelerator(device)).step(layer, e, 0.01)
            assert found.saturated == expected.saturated
            for name, words in found.tensors.items():
                assert np.array_equal(words, expected.tensors[name]), name


SLOTS = [
    Slot(),
    Slot(data_bits=64, id_bits=0, reset="rst", reset_active_low=False),
    Slot(data_bits=32, address_bits=40, control="full", control_bits=128, control_id_bits=6, control_address_bits=40),
    Slot(data_bits=64, control="full", control_id_bits=0, control_address_bits=12),
    Slot(data_bits=64, id_bits=1, address_bits=32, memory_prefix="mem_", control_prefix="regs_", interrupt="done"),
]


@pytest.fixture(scope="module")
def core():
    """The machine's outermost module with nothing in it: a wrapper reaches no further than its ports."""
    text = next(path for path in design(SMALL) if path.name == "gradloom.v").read_text()
    text = text[text.index("module gradloom(") : text.index("\nendmodule")]
    head = text[: text.index(";") + 1]
    ports = re.findall(r"^  (?:in|out)put .*;$", text, re.MULTILINE)
    driven = [f"  assign {each.split()[-1][:-1]} = 0;" for each in ports if each.startswith("  output ")]
    assert len(driven) > 20
    return "\n".join([head, *ports, *driven, "endmodule\n"])


@pytest.mark.parametrize("number", range(1, len(SLOTS)))
def test_every_port_has_its_name_and_width_and_is_connected(tmp_path, report, core, number):
    """As Verilator sees it: nothing undriven, nothing unknown, no width that does not fit."""
    slot = SLOTS[number]
    for name, text in slot_files(slot, report, memory=0x8000_0000, memory_bytes=1 << 29).items():
        (tmp_path / name).write_text(text)
    wrapped = (tmp_path / f"{slot.module}.v").read_text()
    assert wrapped.count(f"core_rst <= {'!' if slot.reset_active_low else ''}{slot.reset};") == 1
    (tmp_path / "gradloom.v").write_text(core)
    done = subprocess.run(
        [
            "verilator",
            "--lint-only",
            "-Wall",
            "-Wno-fatal",
            "--top-module",
            slot.module,
            *map(str, tmp_path.glob("*.v")),
        ],
        env=runner.verilator_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    ours = [
        line
        for line in done.stderr.splitlines()
        if re.match(rf"%\w+-(\w+): .*/({slot.module}|slot_\w+)\.v:", line)
        and not re.match(rf"%Warning-({'|'.join(WAIVED)}):", line)
    ]
    assert not ours
    # A width that does not fit at a port of the accelerator would be ours.
    assert "gradloom_slot.v" not in "".join(re.findall(r"%Warning-WIDTH\w+: .*", done.stderr))
    text = (tmp_path / f"{slot.module}.v").read_text()
    for name, way, bits in slot.ports():
        assert re.search(rf"{way} +wire {re.escape(f'[{bits - 1}:0] ') if bits > 1 else ''}{name}\b", text)
    names = {name for name, *_ in slot.ports()}
    assert (f"{slot.memory_prefix}awid" in names) == (slot.id_bits > 0)
    assert (f"{slot.control_prefix}awlen" in names) == (slot.control == "full")


def test_every_combination_is_written(report):
    for data, ids, control, address in itertools.product((32, 64), (0, 1, 8), ("lite", "full"), (32, 64)):
        slot = Slot(data_bits=data, id_bits=ids, control=control, address_bits=address)
        text = wrapper(slot, **CORE)
        assert text == wrapper(slot, **CORE) and text.count("endmodule") == 1
        assert ("gradloom_slot_narrow" in text) == (data < 64)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"module": "2x"}, "module must be"),
        ({"interrupt": "a b"}, "interrupt must be"),
        ({"interrupt": "ap_clk"}, "two ports"),
        ({"memory_prefix": "core_mem_"}, "core_mem_awid: names"),
        ({"control": "axi3"}, "control must be"),
        ({"data_bits": 100}, "data_bits must be one of"),
        ({"control_bits": 64}, "control_bits must be one of 32"),
        ({"id_bits": 17}, "id_bits must be 0 to 16"),
        ({"address_bits": 31}, "address_bits must be 32 to 64"),
        ({"control_id_bits": 1}, "control_id_bits must be 0 to 0"),
        ({"base_address": 100}, "base_address must be"),
    ],
)
def test_a_slot_that_nobody_can_have_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        Slot(**change)


def test_a_slot_that_the_machine_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="data_bits=128: the accelerator's beats have 64 bits"):
        wrapper(Slot(), **CORE)
    with pytest.raises(ValueError, match="own name"):
        wrapper(Slot(module="gradloom", data_bits=64), **CORE)


def test_the_firmwares_header_has_the_slots_addresses():
    text = firmware_header(Slot(base_address=0x2004_0000), memory=0x9000_0000, memory_bytes=1 << 28)
    for line in (
        "#define GL_REGISTERS 0x20040000u",
        "#define GL_MEMORY 0x90000000u",
        "#define GL_MEMORY_BYTES 0x10000000u",
        '#include "user_board.h"',
    ):
        assert line in text.splitlines()
    with pytest.raises(ValueError, match="multiples of 4096"):
        firmware_header(Slot(), memory=100, memory_bytes=4096)
    with pytest.raises(ValueError, match="32 bits of addresses"):
        firmware_header(Slot(base_address=1 << 32), memory=0, memory_bytes=4096)


def test_a_command_writes_the_wrapper(tmp_path, report):
    command = [sys.executable, "-m", "gradloom.rtl.soc.slot", str(tmp_path), "-o", str(tmp_path / "slot")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "report.json" in done.stderr
    (tmp_path / "report.json").write_text(json.dumps(report))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "the accelerator's beats have 64 bits" in done.stderr
    done = subprocess.run(
        [*command, "--data-bits", "64", "--base-address", "0x20040000", "--clock", "clk_i"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["gradloom_slot.v", "slot_board.h", "slot_control.v", "slot_narrow.v"]
    assert "clk_i" in (tmp_path / "slot" / "gradloom_slot.v").read_text()
    assert "0x20040000u" in (tmp_path / "slot" / "slot_board.h").read_text()
