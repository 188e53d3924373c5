"""Whatever goes wrong, the machine says what and where, interrupts, and runs the next program right."""
import pytest

from gradloom.firmware.host import Accelerator, ProgramError
from gradloom.rtl.array.commands import ArrayOpcode, DenseOperands, EncodeOperands, PassOperands
from gradloom.rtl.control.signature import ControlOpcode, Engine, LoadOperands, StoreOperands
from gradloom.rtl.plan.assembler import Assembler

from .conftest import small_network


@pytest.fixture
def host(machine):
    with machine.device() as device:
        yield Accelerator(device)


def fails(host, write):
    """The error of a program, and proof that the machine lives on."""
    asm = Assembler()
    write(asm)
    asm.add(Engine.CONTROL, ControlOpcode.END)
    with pytest.raises(ProgramError) as error:
        host.run_program([asm.code[at:at + 32] for at in range(0, len(asm.code), 32)])
    after = Assembler()
    after.add(Engine.LOAD, 0, LoadOperands, offset=0, beats=4, dest=5)
    after.add(Engine.CONTROL, ControlOpcode.END)
    host.run_program([after.code[at:at + 32] for at in range(0, len(after.code), 32)])
    return error.value


PASS = {"elements": 64, "tap": 0, "samples": 4, "bank": 0, "scale": 0, "lane": 0}


@pytest.mark.parametrize("change", [
    {"elements": 0}, {"samples": 0}, {"samples": 10}, {"lane": 127}, {"tap": 6}, {"bank": 63}, {"scale": 16},
    {"wide": 1, "bank": 61}, {"wide": 1, "book": 1},
])
def test_a_pass_outside_the_design_is_refused(host, change):
    error = fails(host, lambda asm: asm.add(Engine.ARRAY, ArrayOpcode.FORWARD, PassOperands, **(PASS | change)))
    assert error.name == "BAD_OPERAND" and error.command == 0


@pytest.mark.parametrize("change", [{"inputs": 0}, {"samples": 0}, {"outputs": 9}, {"inputs": 257}, {"weights": 1020}])
def test_a_dense_layer_outside_the_design_is_refused(host, change):
    operands = {"inputs": 8, "samples": 2, "outputs": 4, "from_": 0, "target": 8, "weights": 0, "bias": 0} | change
    assert fails(host, lambda asm: asm.add(Engine.ARRAY, ArrayOpcode.DENSE, DenseOperands, **operands)
                 ).name == "BAD_OPERAND"


def test_encoding_nothing_is_refused(host):
    assert fails(host, lambda asm: asm.add(Engine.ENCODE, 0, EncodeOperands, elements=0, row=0)).name == "BAD_OPERAND"


@pytest.mark.parametrize("engine", [Engine.ARRAY, Engine.HEAD, Engine.ENCODE])
def test_an_unknown_opcode_is_named(host, engine):
    assert fails(host, lambda asm: asm.add(engine, 77)).name == "UNKNOWN_OPCODE"


def test_an_address_outside_the_window_is_told(host):
    size = host.transport.window_size
    error = fails(host, lambda asm: asm.add(Engine.LOAD, 0, LoadOperands, offset=size - 16, beats=2, dest=5))
    assert error.name == "LOAD_WINDOW" and error.offset == size - 16
    error = fails(host, lambda asm: asm.add(Engine.STORE, 0, StoreOperands, offset=size, beats=1, source=4))
    assert error.name == "STORE_WINDOW"


def test_a_store_that_nobody_feeds_ends_by_the_watchdog(host):
    host.set_watchdog(2000)
    error = fails(host, lambda asm: asm.add(Engine.STORE, 0, StoreOperands, offset=0, beats=1, source=0))
    assert error.name == "WATCHDOG"


@pytest.mark.parametrize("response, name", [(2, "SLVERR"), (3, "DECERR")])
@pytest.mark.parametrize("region, direction", [("records", "WRITE"), ("lanes", "READ")])
def test_a_bus_error_in_a_fine_tune_stops_it_and_the_next_one_is_right(machine, response, name, region, direction):
    plan, reference, _ = machine.plan(small_network(), samples=10, epochs=1, batch=5)
    with machine.device() as device:
        host = Accelerator(device)
        for offset, content in plan.segments:
            host.store(offset, content)
        address = device.window_base + plan.regions[region][0] + 16 * 5
        for field, value in (("fail_address", address), ("fail_resp", response), ("fail_enable", 1)):
            device.set(field, value)
        with pytest.raises(ProgramError) as error:
            host.run(plan.program_offset, plan.commands)
        assert error.value.name == f"{direction}_{name}"
        assert address - 256 < error.value.address <= address
        device.set("fail_enable", 0)
        for offset, content in plan.segments:
            host.store(offset, content)
        host.run(plan.program_offset, plan.commands)
        beats = host.fetch(plan.losses, 16 * len(reference.losses))
    assert [int.from_bytes(beats[at:at + 8], "little") for at in range(0, len(beats), 16)] == reference.losses


@pytest.mark.parametrize("cycles", [400, 3000, 9000])
def test_the_hardware_reset_amid_a_fine_tune_leaves_a_machine_like_new(machine, cycles):
    plan, reference, _ = machine.plan(small_network(), samples=10, epochs=1, batch=5)
    with machine.device() as device:
        device.set("stall", 40)
        host = Accelerator(device)
        for offset, content in plan.segments:
            host.store(offset, content)
        host.start(plan.program_offset, plan.commands)
        assert not device.advance(cycles)
        device.set("rst", 1)
        device.advance(4)
        device.set("rst", 0)
        host = Accelerator(device)
        assert host.read("STATUS") == 0
        for offset, content in plan.segments:
            host.store(offset, content)
        host.run(plan.program_offset, plan.commands)
        beats = host.fetch(plan.losses, 16 * len(reference.losses))
    assert [int.from_bytes(beats[at:at + 8], "little") for at in range(0, len(beats), 16)] == reference.losses
