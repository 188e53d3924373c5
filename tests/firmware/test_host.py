"""The Python host against the register model."""

import numpy as np
import pytest

from gradloom.firmware.device import program, registers
from gradloom.firmware.device.host import (
    Accelerator,
    AcceleratorError,
    AcceleratorTimeout,
    ProgramError,
    QueueFull,
    Served,
)
from gradloom.firmware.device.machine import MachineDesign
from gradloom.firmware.device.selftest import CHECKS, run_selftest
from gradloom.rtl.machines.images import HEAD
from gradloom.rtl.shell.table import PROGRAM_FORMAT, TABLE_FORMAT, table_words


@pytest.fixture
def accelerator(machine):
    return Accelerator(machine, timeout=2)


def test_the_host_finds_the_machine_and_its_window(accelerator, machine):
    c = accelerator.configuration
    assert c.table.parameters == {"rows": 25, "panels": 4, "rank": 4, "classes": 16}
    assert (c.table.loop.dest, c.table.loop.source) == (HEAD.load("b"), HEAD.store("b"))
    assert [each.name for each in c.table.engines] == ["array", "head", "encode"]
    assert (c.data_bits, c.slots) == (128, 1024)
    assert (machine.base, machine.values["WINDOW_SIZE"]) == (machine.window_base, machine.window_size)


def test_the_host_refuses_what_is_not_a_machine_it_knows(make_machine):
    with pytest.raises(AcceleratorError, match="ID is 0xDEADBEEF, not 0x47524C4D"):
        Accelerator(make_machine(faults=["id"]))
    with pytest.raises(AcceleratorError, match="registers off the 16-byte lanes read 0: the port HPM0 is at 32 bits"):
        Accelerator(make_machine(faults=["lanes"]))
    machine = make_machine()
    machine.values["VERSION"] += 3 << 16
    with pytest.raises(AcceleratorError, match=r"register map 4\.0\.0"):
        Accelerator(machine)
    for bit, what, ours in ((1, "table", TABLE_FORMAT), (1 << 8, "program", PROGRAM_FORMAT)):
        machine = make_machine()
        machine.values["MACHINE"] += bit
        says = f"{what} format {ours + 1} needs another host: this one speaks {ours}"
        with pytest.raises(AcceleratorError, match=says):
            Accelerator(machine)
    machine = make_machine()
    machine.table = table_words("rows=25")
    with pytest.raises(AcceleratorError, match="machine table 'rows=25' has a format that this host does not read"):
        Accelerator(machine)


def test_nobody_waits_for_an_idle_machine(machine):
    """Whatever else STATUS says of it."""
    assert machine.values["STATUS"] and not machine.busy
    assert machine.wait_interrupt(0)


OTHERS = {
    "another width": ({"data_bits": 64}, "data_bits=128, must be 64"),
    "other engines": ({"table": "rows=25;;array:mac:a:o"}, "engines=3, must be 1"),
    "another size": ({"table": "rows=25,panels=9,"}, "panels=4, must be 9 .--set panels=9."),
}


@pytest.mark.parametrize("other", OTHERS)
def test_another_design_is_refused_before_anything_is_written(make_machine, other):
    changes, line = OTHERS[other]
    machine = make_machine()
    text = b"".join(word.to_bytes(4, "little") for word in machine.table).rstrip(b"\0").decode()
    changes = dict(changes)
    if changes.get("table", "").endswith(","):
        changes["table"] = text.replace("rows=25,panels=4,", changes["table"])
    ours = MachineDesign(name="mine", **({"table": text, "data_bits": 128} | changes))
    before = dict(machine.values)
    with pytest.raises(AcceleratorError, match=f"the board has another design than mine: {line}.*gradloom flash"):
        Accelerator(machine, design=ours)
    # Where the table is read from is all that a host may write.
    assert machine.values | {"TABLE_PLACE": 0} == before | {"TABLE_PLACE": 0}
    assert Accelerator(machine, design=MachineDesign("mine", text, 128)).configuration.data_bits == 128


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.float32, ">i4"])
def test_arrays_come_back_as_they_went(accelerator, dtype):
    values = np.random.default_rng(5).integers(-100, 100, (3, 7)).astype(dtype)
    accelerator.store(48, values.T)
    np.testing.assert_array_equal(accelerator.fetch_array(48, (7, 3), dtype), values.T)


def test_arrays_lie_little_endian_in_memory(accelerator):
    accelerator.store(0, np.array([0x01020304], ">u4"))
    assert accelerator.fetch(0, 4) == b"\x04\x03\x02\x01"


@pytest.mark.parametrize("offset, length", [(-1, 4), (0, 65537), (65536, 1)])
def test_no_byte_outside_the_window_is_touched(accelerator, offset, length):
    with pytest.raises(ValueError, match="window of 65536 bytes"):
        accelerator.fetch(offset, length)
    with pytest.raises(ValueError, match="window of 65536 bytes"):
        accelerator.store(offset, bytes(length))


def test_a_run_returns_the_counters(accelerator):
    counters = accelerator.run_program([program.end()])
    assert counters.cycles == 0x1_FFFF_FFFF == sum(counters.phases.values())
    assert counters.gradient_norm == 0x2_FFFF_FFFF
    metrics = counters.metrics()
    assert metrics["cycles"]["total"] == counters.cycles
    assert list(metrics["cycles"]) == [
        "total",
        "wait",
        "load",
        "store",
        "convolution",
        "dense",
        "forward",
        "gradient",
        "loss",
        "encode",
    ]
    assert metrics["cache"] == {"hits": 11, "misses": 5}
    assert metrics["health"] == {"saturated": 3, "underflowed": 9, "gradient_norm": 0x2_FFFF_FFFF}
    assert accelerator.seconds(200_000_000) == 1.0


def test_an_error_tells_all_it_knows(accelerator, machine):
    with pytest.raises(ProgramError) as fault:
        accelerator.run_program([program.store(65536, 2, 4), program.end()])
    assert (fault.value.name, fault.value.command, fault.value.offset) == ("STORE_WINDOW", 0, 65536)
    assert str(fault.value) == (
        "program stopped: STORE_WINDOW at command 0, address 0x712355000 (window + 0x10000): "
        "STORE ends outside the window; ERROR_ADDRESS holds its first byte."
    )
    assert accelerator.run_program([program.end()]).cycles


def test_an_error_without_an_address_names_none(accelerator):
    with pytest.raises(ProgramError) as fault:
        accelerator.run_program([program.command("load", 0)[:1] + b"\x0f" + bytes(30)])
    assert fault.value.name == "UNKNOWN_ENGINE" and fault.value.address is None
    assert "address" not in str(fault.value)


def test_a_code_of_a_newer_machine_is_still_reported():
    error = ProgramError(0xEE, 3, 0, 0)
    assert error.name == "0xEE" and "command 3" in str(error)


def test_a_program_that_hangs_times_out_and_can_be_stopped(accelerator, machine):
    machine.stuck = True
    with pytest.raises(AcceleratorTimeout, match="0.02 s"):
        accelerator.run_program([program.end()], timeout=0.02)
    with pytest.raises(AcceleratorError, match="runs already"):
        accelerator.start(0, 1)
    with pytest.raises(AcceleratorError, match="only when no program runs"):
        accelerator.counters()
    accelerator.reset()
    with pytest.raises(ProgramError, match="ABORTED"):
        accelerator.raise_error()


@pytest.mark.parametrize("name", registers.LOCKED)
def test_no_locked_register_is_written_while_a_program_runs(accelerator, machine, name):
    accelerator.store(0, program.end())
    machine.stuck = True
    accelerator.start(0, 1)
    accelerator.request(0, 1)
    with pytest.raises(AcceleratorError, match=f"{name} is locked"):
        accelerator.write(name, 0)


@pytest.mark.parametrize(
    "offset, commands, message", [(16, 1, "offset"), (-32, 1, "offset"), (0, 0, "commands"), (0, 1 << 24, "commands")]
)
def test_a_program_that_the_hardware_would_refuse_is_not_started(accelerator, machine, offset, commands, message):
    with pytest.raises(ValueError, match=message):
        accelerator.start(offset, commands)
    assert machine.bells == 0


def test_a_request_runs_beside_a_program(accelerator, machine):
    accelerator.store(0, program.end() + bytes(32) + program.load(256, 1, 5) + program.store(512, 1, 5) + program.end())
    accelerator.store(256, bytes(range(16)))
    machine.stuck = True
    accelerator.start(0, 1)
    accelerator.request(64, 3)
    assert accelerator.busy and accelerator.request_busy
    with pytest.raises(QueueFull):
        accelerator.request(64, 3)
    with pytest.raises(AcceleratorError, match="REQUEST_OFFSET is locked while a request runs"):
        accelerator.write("REQUEST_OFFSET", 0)
    with pytest.raises(AcceleratorTimeout, match="the request did not end"):
        accelerator.wait_request(timeout=0.01)
    machine.stuck = False
    assert accelerator.wait_request() == Served(waited=123, cycles=456)
    assert accelerator.fetch(512, 16) == bytes(range(16))
    assert accelerator.wait().commands_done == 7
    # Alone, and a program behind it.
    accelerator.request(64, 3)
    accelerator.run(0, 1)
    accelerator.wait_request()


def test_an_error_of_a_request_says_so(accelerator, machine):
    accelerator.store(0, program.load(machine.window_size, 1, 5) + program.end())
    accelerator.request(0, 2)
    with pytest.raises(ProgramError, match="request stopped: LOAD_WINDOW at command 0") as told:
        accelerator.wait_request()
    assert told.value.request and told.value.offset == machine.window_size
    machine.faults.add("stopping")
    with pytest.raises(QueueFull, match="being stopped"):
        accelerator.request(0, 2)


def test_a_machine_without_requests_is_asked_for_none(make_machine):
    accelerator = Accelerator(make_machine(requests=False))
    with pytest.raises(AcceleratorError, match="without requests"):
        accelerator.request(0, 1)
    with pytest.raises(ValueError, match="multiple of 32"):
        accelerator.request(4, 1)


def test_bad_names_and_values_are_refused(accelerator):
    with pytest.raises(ValueError, match="'NOTHING'"):
        accelerator.read("NOTHING")
    with pytest.raises(ValueError, match="'nothing'"):
        accelerator.read("STATUS.nothing")
    with pytest.raises(ValueError, match="32 bits"):
        accelerator.write("WATCHDOG", 1 << 32)
    with pytest.raises(ValueError, match="multiple of 4096"):
        accelerator.set_window(100, 4096)
    with pytest.raises(ValueError, match="command 0 must have 32 bytes, not 5"):
        accelerator.run_program([b"short"])


def test_cache_and_watchdog(accelerator, machine):
    accelerator.set_base(0xABCD)
    accelerator.clear_cache()
    accelerator.set_watchdog(500)
    assert (machine.values["BASE_ID"], machine.values["WATCHDOG"], machine.busy) == (0xABCD, 500, False)


def test_the_selftest_passes_on_a_good_machine(accelerator, machine):
    before = dict(machine.values)
    results = run_selftest(accelerator)
    assert [name for name, ok, _ in results if ok] == [name for name, _ in CHECKS]
    for name in ("WATCHDOG", "WINDOW_SIZE", "WINDOW_BASE_LO", "WINDOW_BASE_HI"):
        assert machine.values[name] == before[name]


@pytest.mark.parametrize(
    "fault, check", [("bit", "registers"), ("irq", "end"), ("phases", "end"), ("window", "window"), ("copy", "copy")]
)
def test_the_selftest_finds_the_fault(make_machine, fault, check):
    results = run_selftest(Accelerator(make_machine(faults=[fault]), timeout=1))
    assert {name for name, ok, _ in results if not ok} == {check}
    assert all(detail for _, _, detail in results)


def test_the_selftest_stops_a_machine_that_hangs(make_machine, monkeypatch):
    monkeypatch.setattr("gradloom.firmware.device.selftest._TIMEOUT", 0.05)
    machine = make_machine()
    accelerator = Accelerator(machine)
    machine.stuck = True
    results = dict((name, ok) for name, ok, _ in run_selftest(accelerator))
    assert not results["end"]
    assert not machine.busy


def test_the_selftest_skips_what_it_is_told_to(accelerator):
    assert "copy" not in {name for name, _, _ in run_selftest(accelerator, skip=("copy",))}
    with pytest.raises(ValueError, match="'?nonsense"):
        run_selftest(accelerator, skip=("nonsense",))
