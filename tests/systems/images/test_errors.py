"""Whatever goes wrong, the machine says what and where, interrupts, and runs the next program right."""

import pytest

from gradloom.firmware.device.host import Accelerator, ProgramError
from gradloom.program.assembler import Assembler, pack
from gradloom.rtl.engines.array.commands import RECORD_ARG, ArrayOpcode
from gradloom.rtl.machines.images import ARRAY, ENCODE, HEAD, IMAGES
from gradloom.rtl.shell.engines import CONTROL, LOAD, STORE
from gradloom.rtl.shell.signature import ControlOpcode

from .conftest import SMALL, small_network


@pytest.fixture
def host(machine):
    with machine.device() as device:
        yield Accelerator(device)


def fails(host, write):
    """The error of a program, and proof that the machine lives on."""
    asm = Assembler()
    write(asm)
    asm.add(CONTROL, ControlOpcode.END)
    with pytest.raises(ProgramError) as error:
        host.run_program([asm.code[at : at + 32] for at in range(0, len(asm.code), 32)])
    words = 2 * (bytes(range(2 * SMALL.columns)) + bytes(32 - 2 * SMALL.columns))
    host.store(WORDS, words + bytes(64))
    runs(
        host,
        lambda asm: (
            asm.add(LOAD, 0, offset=WORDS, beats=4, dest=ARRAY.load("lanes"), arg=5),
            asm.add(CONTROL, ControlOpcode.FENCE),
            asm.add(STORE, 0, offset=WORDS + 64, beats=4, source=ARRAY.store("lanes"), arg=5),
        ),
    )
    assert host.fetch(WORDS + 64, 64) == words
    return error.value


def runs(host, write):
    """Runs a program that is good."""
    asm = Assembler()
    write(asm)
    asm.add(CONTROL, ControlOpcode.END)
    host.run_program([asm.code[at : at + 32] for at in range(0, len(asm.code), 32)])


#: Where tests keep words, and where what they load lies.
WORDS, SOURCE = 1 << 17, 1 << 16
ROWS, ADAPTER, BLOCKS = SMALL.rows, SMALL.adapter_depth, SMALL.blocks
WEIGHTS, BIASES, IMAGE, B_WORDS = SMALL.weight_depth, SMALL.bias_depth, SMALL.image_depth // 4, SMALL.taps * SMALL.rank


def record(**fields):
    return pack(RECORD_ARG, fields)


@pytest.mark.parametrize(
    "dest, beats, argument, at",
    [
        (ARRAY.load("weights"), 2, WEIGHTS, 0),
        (ARRAY.load("weights"), 2, 1 << 16, 0),
        (ARRAY.load("weights"), 4, WEIGHTS - 1, 2),
        (ARRAY.load("weights"), 2 * WEIGHTS + 2, 0, 2 * WEIGHTS),
        (ARRAY.load("weights"), 3, 0, 2),
        (ARRAY.load("biases"), 4, BIASES, 0),
        (ARRAY.load("biases"), 8, BIASES - 1, 4),
        (ARRAY.load("biases"), 6, 0, 5),
        (ARRAY.load("image"), 1, IMAGE, 0),
        (ARRAY.load("image"), 1, 1 << 31, 0),
        (ARRAY.load("image"), 2, IMAGE - 1, 1),
        (ARRAY.load("lanes"), 2, ADAPTER, 0),
        (ARRAY.load("lanes"), 4, ADAPTER - 1, 2),
        (ARRAY.load("lanes"), 1, 0, 0),
        (HEAD.load("b"), 2 * B_WORDS + 1, 0, 2 * B_WORDS),
        (HEAD.load("labels"), 1, 2, 0),
        (HEAD.load("labels"), 3, 1, 2),
        (ARRAY.load("books"), 1, 32, 0),
        (ARRAY.load("books"), 2, 31, 1),
        (ARRAY.load("record"), 1, record(row=ROWS, codes=1, logits=1), 0),
        (ARRAY.load("record"), 9, record(codes=3, logits=2), 0),
        (ARRAY.load("record"), 4 * BLOCKS + 8, record(codes=0, logits=4 * BLOCKS + 8), 4 * BLOCKS),
        (ARRAY.load("record"), 4 * BLOCKS + 8, record(codes=2, logits=2047), 4 * BLOCKS + 2),
        (ARRAY.load("record"), 4 * BLOCKS + 8, record(codes=1, logits=4 * BLOCKS + 1), 4 * BLOCKS + 5),
        (ARRAY.load("record"), 6, record(codes=1, logits=1), 5),
        (ARRAY.load("record"), 6, record(), 4),
        (8, 1, 0, 0),
        (255, 9, 0, 0),
    ],
)
def test_a_load_without_a_place_is_refused(host, dest, beats, argument, at):
    error = fails(
        host,
        lambda asm: (
            asm.add(LOAD, 0, offset=SOURCE, beats=2, dest=ARRAY.load("lanes")),
            asm.add(LOAD, 0, offset=SOURCE, beats=beats, dest=dest, arg=argument),
            asm.add(LOAD, 0, offset=SOURCE, beats=40, dest=ARRAY.load("lanes")),
        ),
    )
    assert (error.name, error.command, error.offset) == ("BAD_OPERAND", 1, SOURCE + 16 * at)


@pytest.mark.parametrize(
    "source, beats, argument",
    [
        (ARRAY.store("lanes"), 1, ADAPTER),
        (ARRAY.store("lanes"), 3, ADAPTER - 1),
        (ARRAY.store("lanes"), 2 * ADAPTER + 1, 0),
        (ARRAY.store("lanes"), 2, 1 << 16),
        (ARRAY.store("lanes"), 2, (1 << 32) - 1),
        (ARRAY.store("lanes"), 1 << 13, 0),
        (HEAD.store("b"), 2 * B_WORDS + 1, 0),
        (len(IMAGES.stores), 1, 0),
        (255, 9, 0),
    ],
)
def test_a_store_of_what_is_not_there_is_refused(host, source, beats, argument):
    host.set_watchdog(0)
    error = fails(
        host,
        lambda asm: (
            asm.add(STORE, 0, offset=SOURCE, beats=2, source=ARRAY.store("lanes")),
            asm.add(STORE, 0, offset=SOURCE + 32, beats=beats, source=source, arg=argument),
        ),
    )
    assert (error.name, error.command, error.offset) == ("BAD_OPERAND", 1, SOURCE + 32)


def test_loads_and_stores_to_the_last_word_run(host):
    loads = [
        (ARRAY.load("weights"), 2 * WEIGHTS, 0),
        (ARRAY.load("weights"), 2, WEIGHTS - 1),
        (ARRAY.load("biases"), 4 * BIASES, 0),
        (ARRAY.load("image"), IMAGE, 0),
        (ARRAY.load("image"), 1, IMAGE - 1),
        (ARRAY.load("lanes"), 2 * ADAPTER, 0),
        (HEAD.load("b"), 2 * B_WORDS, 0),
        (HEAD.load("labels"), 2, 1),
        (ARRAY.load("books"), 16, 16),
        (ARRAY.load("record"), 4 * BLOCKS + 7, record(row=ROWS - 1, half=1, codes=3, logits=4 * BLOCKS + 3)),
    ]
    stores = [
        (ARRAY.store("lanes"), 2 * ADAPTER, 0),
        (ARRAY.store("lanes"), 2, ADAPTER - 1),
        (ARRAY.store("lanes"), 1, ADAPTER - 1),
        (HEAD.store("b"), 2 * B_WORDS, 0),
    ]
    runs(
        host,
        lambda asm: [
            *(asm.add(LOAD, 0, offset=SOURCE, beats=beats, dest=dest, arg=argument) for dest, beats, argument in loads),
            *(
                asm.add(STORE, 0, offset=SOURCE, beats=beats, source=source, arg=argument)
                for source, beats, argument in stores
            ),
        ],
    )


PASS = {"elements": 64, "tap": 0, "samples": 4, "bank": 0, "scale": 0, "lane": 0}


@pytest.mark.parametrize(
    "change",
    [
        {"elements": 0},
        {"samples": 0},
        {"samples": 10},
        {"lane": 127},
        {"tap": 6},
        {"bank": 63},
        {"scale": 16},
        {"wide": 1, "bank": 61},
        {"wide": 1, "book": 1},
    ],
)
def test_a_pass_outside_the_design_is_refused(host, change):
    error = fails(host, lambda asm: asm.add(ARRAY, ArrayOpcode.FORWARD, **(PASS | change)))
    assert error.name == "BAD_OPERAND" and error.command == 0


@pytest.mark.parametrize("change", [{"inputs": 0}, {"samples": 0}, {"outputs": 9}, {"inputs": 257}, {"weights": 1020}])
def test_a_dense_layer_outside_the_design_is_refused(host, change):
    operands = {"inputs": 8, "samples": 2, "outputs": 4, "from_": 0, "target": 8, "weights": 0, "bias": 0} | change
    assert fails(host, lambda asm: asm.add(ARRAY, ArrayOpcode.DENSE, **operands)).name == "BAD_OPERAND"


CONVOLUTION = {
    "height": 8,
    "width": 8,
    "channels": 2,
    "pool": 1,
    "kernel_h": 3,
    "kernel_w": 3,
    "stride_h": 1,
    "stride_w": 1,
    "pad_top": 1,
    "pad_left": 1,
    "pad_bottom": 1,
    "pad_right": 1,
    "outputs": 4,
    "out_height": 8,
    "out_width": 8,
}
FEATURES, DENSE, DEPTH = SMALL.feature_depth, SMALL.dense_depth, 4 * IMAGE


def convolve(asm, **change):
    asm.add(ARRAY, ArrayOpcode.CONVOLVE, **(CONVOLUTION | change))


#: What a convolution may not be; the second of each pair has just enough room.
ASTRAY = [
    ({"from_": DEPTH - 127}, {"from_": DEPTH - 128}),
    ({"source": 1, "from_": FEATURES - 63}, {"source": 1, "from_": FEATURES - 64}),
    ({"source": 1, "channels": 9, "from_": 1}, {"source": 1, "channels": 9}),
    ({"from_": 65535}, {}),
    ({"weights": WEIGHTS - 17}, {"weights": WEIGHTS - 18}),
    ({"weights": 65535}, {}),
    ({"target": FEATURES - 63}, {"target": FEATURES - 64}),
    ({"target": 65535}, {}),
    ({"to_dense": 1, "stride": 4, "target": DENSE - 255}, {"to_dense": 1, "stride": 4, "target": DENSE - 256}),
    ({"to_dense": 1, "stride": 5}, {"to_dense": 1, "stride": 3}),
    ({"out_height": 7}, {}),
    ({"out_width": 9}, {}),
    ({"stride_w": 2}, {"stride_w": 2, "out_width": 4}),
    ({"pad_top": 3}, {"pad_top": 2, "out_height": 9}),
    ({"pad_right": 3}, {"pad_right": 2, "out_width": 9}),
    ({"stride_h": 4}, {"stride_h": 3, "out_height": 3}),
    ({"pool": 4, "out_height": 2, "out_width": 16}, {"pool": 4}),
    ({"height": 1, "kernel_h": 3, "pad_top": 0}, {"height": 1, "out_height": 1}),
    (
        {"height": 16, "pad_top": 2, "width": 4, "out_width": 4, "out_height": 17},
        {"height": 16, "width": 4, "out_width": 4, "out_height": 16},
    ),
    ({"height": 0}, {}),
    ({"channels": 0}, {}),
    ({"stride_h": 0}, {}),
    ({"kernel_w": 0}, {}),
    ({"pool": 0}, {}),
    ({"outputs": 0}, {}),
    ({"bias": SMALL.bias_depth}, {"bias": SMALL.bias_depth - 1}),
    ({"row": ROWS}, {"row": ROWS - 1}),
]


@pytest.mark.parametrize("change", [bad for bad, _ in ASTRAY], ids=str)
def test_a_convolution_outside_the_design_is_refused(host, change):
    host.set_watchdog(0)
    error = fails(host, lambda asm: (convolve(asm), convolve(asm), convolve(asm, **change), convolve(asm)))
    assert (error.name, error.command) == ("BAD_OPERAND", 2)


def test_convolutions_to_the_last_word_run(host):
    runs(host, lambda asm: [convolve(asm, **good) for _, good in ASTRAY])


def test_encoding_nothing_is_refused(host):
    assert fails(host, lambda asm: asm.add(ENCODE, 0, elements=0, row=0)).name == "BAD_OPERAND"


@pytest.mark.parametrize("engine", [ARRAY, HEAD, ENCODE])
def test_an_unknown_opcode_is_named(host, engine):
    assert fails(host, lambda asm: asm.add(engine, 77)).name == "UNKNOWN_OPCODE"


def test_an_address_outside_the_window_is_told(host):
    size = host.transport.window_size
    error = fails(host, lambda asm: asm.add(LOAD, 0, offset=size - 16, beats=2, dest=5))
    assert error.name == "LOAD_WINDOW" and error.offset == size - 16
    error = fails(host, lambda asm: asm.add(STORE, 0, offset=size, beats=1, source=4))
    assert error.name == "STORE_WINDOW"


def test_a_store_that_nobody_feeds_ends_by_the_watchdog(host):
    host.set_watchdog(2000)
    error = fails(host, lambda asm: asm.add(STORE, 0, offset=0, beats=1, source=0))
    assert error.name == "WATCHDOG"


@pytest.mark.parametrize("response, name", [(2, "SLVERR"), (3, "DECERR")])
@pytest.mark.parametrize("region, direction", [("records", "WRITE"), ("lanes", "READ")])
def test_a_bus_error_in_a_fine_tune_stops_it_and_the_next_one_is_right(machine, response, name, region, direction):
    plan, reference, _ = machine.plan(small_network(), samples=10, epochs=1, batch=5)
    with machine.device() as device:
        host = Accelerator(device)
        for offset, content in plan.segments:
            host.store(offset, content)
        address = device.window_base + plan.memory[region] + 16 * 5
        for field, value in (("fail_address", address), ("fail_resp", response), ("fail_enable", 1)):
            device.set(field, value)
        with pytest.raises(ProgramError) as error:
            host.run(plan.offset, plan.commands)
        assert error.value.name == f"{direction}_{name}"
        assert address - 256 < error.value.address <= address
        device.set("fail_enable", 0)
        for offset, content in plan.segments:
            host.store(offset, content)
        host.run(plan.offset, plan.commands)
        beats = host.fetch(plan.losses, 16 * len(reference.losses))
    assert [int.from_bytes(beats[at : at + 8], "little") for at in range(0, len(beats), 16)] == reference.losses


@pytest.mark.parametrize("cycles", [400, 3000, 9000])
def test_the_hardware_reset_amid_a_fine_tune_leaves_a_machine_like_new(machine, cycles):
    plan, reference, _ = machine.plan(small_network(), samples=10, epochs=1, batch=5)
    with machine.device() as device:
        device.set("stall", 40)
        host = Accelerator(device)
        for offset, content in plan.segments:
            host.store(offset, content)
        host.start(plan.offset, plan.commands)
        assert not device.advance(cycles)
        device.set("rst", 1)
        device.advance(4)
        device.set("rst", 0)
        host = Accelerator(device)
        assert host.read("STATUS") == 0
        for offset, content in plan.segments:
            host.store(offset, content)
        host.run(plan.offset, plan.commands)
        beats = host.fetch(plan.losses, 16 * len(reference.losses))
    assert [int.from_bytes(beats[at : at + 8], "little") for at in range(0, len(beats), 16)] == reference.losses
