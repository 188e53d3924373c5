"""A quantised linear layer's training step: RTL equals the reference, the reference is near float64."""

from dataclasses import replace

import numpy as np
import pytest

from gradloom.firmware.device.host import Accelerator, AcceleratorError, ProgramError
from gradloom.firmware.device.machine import MachineDesign
from gradloom.program.assembler import Assembler
from gradloom.program.descent import AdamW
from gradloom.rtl.formats.vector import VectorOpcode
from gradloom.rtl.machines.language import GRADIENT, LINEAR, UPDATE, VECTOR
from gradloom.rtl.shell.engines import CONTROL, LOAD
from gradloom.rtl.shell.signature import ControlOpcode
from gradloom.sim.run.builds.designs import design_entry
from gradloom.systems.text.program.engines.side import append
from gradloom.systems.text.run.linear import choose_exponents, errors, mathematics, reference_step, values

from .conftest import SMALL, make_layer, stalled
from .side import Side, operations

RATE = 0.3
SHAPES = [(32, 48, 8, 4), (64, 16, 3, 2), (80, 96, 8, 4), (16, 16, 1, 2), (32, 32, 5, 4)]


def expected(layer):
    exponents = choose_exponents(layer, mathematics(layer, RATE))
    return exponents, reference_step(layer, exponents, RATE)


@pytest.mark.parametrize(
    "changes, said", [({"gelu": 1}, "gelu=0, must be at least 1 "), ({"groups": 8}, "groups=4, must be at least 8 ")]
)
def test_a_host_refuses_a_machine_without_what_its_programs_use(machine, changes, said):
    """Before it writes anything: GELU's programs are legal without it."""
    with pytest.raises(AcceleratorError, match=f"the board has another design than ours: {said}.*gradloom flash"):
        Accelerator(machine.device, design=MachineDesign(**design_entry("ours", SMALL.replace(**changes))))
    less = design_entry("ours", SMALL.replace(groups=2))
    assert Accelerator(machine.device, design=MachineDesign(**less)).configuration.table.parameters["groups"] == 4


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_step_in_rtl_equals_the_reference_word_for_word(machine, shape):
    layer = make_layer(*shape)
    exponents, reference = expected(layer)
    found = machine.step(layer, exponents, RATE)
    assert set(found.tensors) == {"y", "dx", "ga", "gb", "a", "b"}
    for name, words in found.tensors.items():
        assert np.array_equal(words, reference.tensors[name]), name
        assert np.any(words)
    assert found.saturated == reference.saturated


@pytest.mark.parametrize("stall, latency", [(40, 3), (128, 40), (200, 1), (254, 40)])
def test_stalls_of_memory_change_no_word(machine, stall, latency):
    """The most stalls hold each channel of memory for 128 cycles on average."""
    layer = make_layer(48, 64, 7, 4, seed=stall)
    exponents, reference = expected(layer)
    with stalled(machine, stall, latency, stall):
        found = machine.step(layer, exponents, RATE)
    assert all(np.array_equal(words, reference.tensors[name]) for name, words in found.tensors.items())


@pytest.mark.parametrize("shape, stall", [((32, 48, 8, 4), 0), ((16, 240, 8, 4), 120)], ids=str)
def test_steps_of_adamw_in_rtl_equal_the_reference_word_for_word(machine, shape, stall):
    """Words and moments go from memory to memory, in more than one chunk, and on into the next step."""
    rule, moments = AdamW(lr=1e-3, weight_decay=0.01), None
    layer = make_layer(*shape, seed=7)
    machine.device.set("stall", stall)
    try:
        for number in (1, 2, 3):
            exponents = choose_exponents(layer, mathematics(layer, RATE))
            reference = reference_step(layer, exponents, rule, number=number, moments=moments)
            found = machine.step(layer, exponents, rule, number=number, moments=moments)
            assert set(found.tensors) == {"y", "dx", "ga", "gb", "a", "b", "ma", "mb"}
            for name, words in found.tensors.items():
                assert np.array_equal(words, reference.tensors[name]), (number, name)
                assert np.any(words)
            assert found.saturated == reference.saturated
            moments = found.tensors
            words = values(found, exponents)
            rng = np.random.default_rng(number)
            layer = replace(layer, a=words["a"], b=words["b"], dy=rng.normal(0, 1e-4 * number, layer.dy.shape))
    finally:
        machine.device.set("stall", 0)


def test_what_does_not_fit_is_clipped_and_counted(machine):
    layer = make_layer(32, 32, 8, 4, seed=5)
    exponents, _ = expected(layer)
    tight = type(exponents)(
        **{**vars(exponents), "y": exponents.y + 3, "h": exponents.h + 2, "ga": exponents.ga + 3, "w": exponents.w + 1}
    )
    reference = reference_step(layer, tight, RATE)
    found = machine.step(layer, tight, RATE)
    assert reference.saturated > 50
    assert found.saturated == reference.saturated
    assert all(np.array_equal(words, reference.tensors[name]) for name, words in found.tensors.items())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_reference_is_near_float64(shape):
    """Weights have 18 bits of the largest, so 2**-18 of it at most is lost; activations 24; sums lose nothing."""
    layer = make_layer(*shape, seed=2)
    exact = mathematics(layer, RATE)
    exponents = choose_exponents(layer, exact)
    for name, error in errors(values(reference_step(layer, exponents, RATE), exponents), exact).items():
        assert error < 1e-3, name


@pytest.mark.parametrize("stall", [0, 100])
def test_a_stack_of_layers_in_one_program_equals_each_alone(machine, stall):
    """h of the first layers waits in memory while the others have their turn; 5 and 7 tokens do not fill its beats."""
    layers = [
        make_layer(*shape, seed=index)
        for index, shape in enumerate([(32, 48, 7, 4), (48, 32, 5, 2), (16, 16, 8, 4), (32, 32, 3, 2)])
    ]
    exponents, references = zip(*(expected(layer) for layer in layers))
    machine.device.set("stall", stall)
    try:
        steps = machine.stack(layers, exponents, RATE)
    finally:
        machine.device.set("stall", 0)
    for step, reference in zip(steps, references, strict=True):
        for name, words in step.tensors.items():
            assert np.array_equal(words, reference.tensors[name]), name
    assert steps[0].saturated == sum(reference.saturated for reference in references)


def _run(machine, engine, opcode=0, **operands):
    program = Assembler()
    program.add(engine, opcode, **operands)
    program.add(CONTROL, ControlOpcode.END)
    machine.host.store(0, program.code)
    return machine.host.run(0, len(program), timeout=20)


PRODUCT = {"inner": 1, "outer": 1, "tokens": 4, "rank": 0}
MATRIX = {"tiles": 1, "tokens": 4, "rank": 2}
VECTOR_WORDS = {"row": 8, "tiles": 1, "tokens": 4}


@pytest.mark.parametrize(
    "engine, operands",
    [
        (LINEAR, PRODUCT | {"inner": 0}),
        (LINEAR, PRODUCT | {"outer": 0}),
        (LINEAR, PRODUCT | {"tokens": 0}),
        (LINEAR, PRODUCT | {"tokens": SMALL.tokens + 1}),
        (LINEAR, PRODUCT | {"rank": SMALL.rank + 1}),
        (LINEAR, PRODUCT | {"inner": 200}),
        (LINEAR, PRODUCT | {"x_base": SMALL.depth - 3}),
        (LINEAR, PRODUCT | {"rank": 2, "a_base": SMALL.lane_depth - 1}),
        (LINEAR, PRODUCT | {"rank": 2, "b_base": SMALL.lane_depth - 1}),
        (GRADIENT, MATRIX | {"tiles": 0}),
        (GRADIENT, MATRIX | {"tokens": 0}),
        (GRADIENT, MATRIX | {"tokens": SMALL.tokens + 1}),
        (GRADIENT, MATRIX | {"rank": 3}),
        (GRADIENT, MATRIX | {"rank": SMALL.rank + 2}),
        (UPDATE, {"beats": 0}),
        *((VECTOR, VECTOR_WORDS | {name: 0}) for name in VECTOR_WORDS),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_an_operand_out_of_bounds_stops_the_program_and_the_next_runs_right(machine, engine, operands):
    with pytest.raises(ProgramError) as error:
        _run(machine, engine, VectorOpcode.ADD if engine == VECTOR else 0, **operands)
    assert (error.value.name, error.value.command) == ("BAD_OPERAND", 0)
    layer = make_layer(16, 32, 2, 2)
    exponents, reference = expected(layer)
    found = machine.step(layer, exponents, RATE)
    assert all(np.array_equal(words, reference.tensors[name]) for name, words in found.tensors.items())


def test_what_a_program_leaves_on_chip_does_not_come_to_the_next(machine):
    """What was loaded and never used is in each engine's queue; the next programs run right nevertheless."""
    program = Assembler()
    for destination in (
        GRADIENT.load("x"),
        UPDATE.load("directions"),
        UPDATE.load("words"),
        VECTOR.load("a"),
        VECTOR.load("b"),
    ):
        program.add(LOAD, 0, offset=4096, beats=5, dest=destination)
    program.add(LOAD, 0, offset=4096, beats=2, dest=LINEAR.load("operands"), arg=1 << 31)
    program.add(CONTROL, ControlOpcode.END)
    machine.host.store(0, program.code)
    machine.host.run(0, len(program), timeout=20)
    side = Side(machine, operations(VectorOpcode.ADD, (5, 32), SMALL.edge), 1 << 18, limit=96)
    program = Assembler()
    append(program, side.pieces)
    program.add(CONTROL, ControlOpcode.END)
    machine.host.store(0, program.code)
    machine.host.run(0, len(program), timeout=20)
    side.check()
    layer = make_layer(16, 32, 2, 2)
    exponents, _ = expected(layer)
    found = machine.step(layer, exponents, AdamW(lr=1e-3))
    reference = reference_step(layer, exponents, AdamW(lr=1e-3))
    assert all(np.array_equal(words, reference.tensors[name]) for name, words in found.tensors.items())


@pytest.mark.parametrize(
    "engine, opcode",
    [(LINEAR, 1), (GRADIENT, 1), (UPDATE, 4), (UPDATE, 255), (VECTOR, max(VectorOpcode) + 1), (VECTOR, 255)],
    ids=["linear", "gradient", "update", "last of update", "vector", "last of vector"],
)
def test_an_unknown_opcode_stops_the_program(machine, engine, opcode):
    with pytest.raises(ProgramError, match="UNKNOWN_OPCODE"):
        _run(machine, engine, opcode, **(VECTOR_WORDS if engine == VECTOR else {}))


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("tokens, rank", [(1, 0), (3, 4), (8, 4), (8, 2)])
def test_products_in_a_chain_equal_those_alone(machine, tokens, rank, backward):
    """Narrow layers in between: what is read late must not be overwritten by what comes next."""
    shapes = [(48, 64), (16, 64), (16, 64), (64, 64), (96, 64), (64, 96)]
    layers = [make_layer(*shape, tokens, max(rank, 2), seed=index) for index, shape in enumerate(shapes)]
    found = machine.products(
        layers,
        backward=backward,
        with_adapter=rank > 0,
        exponents=[choose_exponents(layer, mathematics(layer, RATE)) for layer in layers],
    )
    for layer, words in zip(layers, found.words, strict=True):
        exponents = choose_exponents(layer, mathematics(layer, RATE))
        plain = layer if rank else replace(layer, a=np.zeros_like(layer.a), b=np.zeros_like(layer.b))
        assert np.array_equal(words, reference_step(plain, exponents, RATE).tensors["dx" if backward else "y"])
