"""Work beside products: the vector engine in the machine, gradients and updates, in pieces and between tiles."""

from dataclasses import replace

import numpy as np
import pytest

from gradloom.program.assembler import Assembler, Instruction
from gradloom.program.descent import AdamW
from gradloom.rtl.formats.vector import VectorOpcode
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.rtl.machines.language import VECTOR
from gradloom.rtl.shell.engines import CONTROL
from gradloom.rtl.shell.signature import ControlOpcode
from gradloom.systems.text.program.engines.linear import chain
from gradloom.systems.text.program.engines.side import PIECE, SideTensor, append, vector
from gradloom.systems.text.run.linear import choose_exponents, mathematics, reference_step

from .conftest import SMALL, make_layer, stalled
from .side import Side, operations, weave

BEAT = SMALL.data_bits // 8
RATE = 0.3
#: Those whose operands :func:`operations` knows.
OPCODES = (*tuple(VectorOpcode)[:9], VectorOpcode.NORM_BACKWARD_ADD)
LEARNT = (VectorOpcode.SCALE, VectorOpcode.SCALE_BACKWARD, VectorOpcode.NORM_BACKWARD_GAIN)


def run(machine, work):
    program = Assembler()
    append(program, work)
    program.add(CONTROL, ControlOpcode.END)
    machine.host.store(0, program.code)
    return machine.host.run(0, len(program), timeout=60)


def product(job):
    program = Assembler()
    chain(program, [job], SMALL)
    return program.instructions


@pytest.mark.parametrize("limit", [8, 60, 384])
@pytest.mark.parametrize("opcode", OPCODES + LEARNT, ids=lambda opcode: opcode.name)
def test_an_operation_equals_the_reference(machine, opcode, limit):
    side = Side(machine, operations(opcode, (7, 208), SMALL.edge), 1 << 18, limit=3 * limit)
    counters = run(machine, side.pieces)
    side.check()
    assert counters.saturated == side.clipped


def everything(machine, start, *, limit, shape=(8, 160), seed=0):
    """Every operation, one behind the other."""
    work = [each for opcode in OPCODES for each in operations(opcode, shape, SMALL.edge, seed + opcode)]
    return Side(machine, work, start, limit=limit)


@pytest.mark.parametrize("rule", [RATE, AdamW(lr=1e-3)], ids=["sgd", "adamw"])
@pytest.mark.parametrize("limit, stall, latency", [(384, 0, 40), (48, 0, 3), (100, 100, 40), (240, 200, 1)])
def test_work_between_the_tiles_of_a_product_changes_no_word(machine, rule, limit, stall, latency):
    """Products of one layer; its gradients, its update and vectors in between while another's tiles are loaded."""
    first, second = make_layer(48, 64, 7, 4, seed=stall), make_layer(96, 112, 8, 4, seed=limit)
    e1, e2 = (choose_exponents(layer, mathematics(layer, RATE)) for layer in (first, second))
    step = reference_step(first, e1, rule)
    plan = machine.plan(first, e1, 1 << 18, None)
    beside = machine.plan(second, e2, plan.place.end, None)
    side = everything(machine, beside.place.end, limit=limit)
    gradients = plan.gradient_pieces(limit=limit)
    last = gradients[-1]
    gradients[-1] = replace(last, stores=(*last.stores[:-1], replace(last.stores[-1], post=(2,))))
    updates = plan.update_pieces(rule, limit=limit)
    waiting = [replace(each, wait=(2,)) if n == 1 else each for n, each in enumerate(updates[0].instructions)]
    updates[0] = replace(updates[0], instructions=tuple(waiting))
    # Gradients may come amid pieces of a vector's command, updates may not: they share its queue.
    some = len(side.pieces) // 4
    end = sum(map(len, side.commands[: len(side.commands) // 2]))
    pieces = [*side.pieces[:some], *gradients, *side.pieces[some:end], *updates, *side.pieces[end:]]
    # The gradients' h must stay.
    job = replace(beside.job(), rank=0, lanes=())
    work = [*product(plan.job()), *product(plan.job(backward=True)), *weave(product(job), pieces, BEAT)]
    with stalled(machine, stall, latency, stall):
        counters = run(machine, work)
    side.check()
    for name, words in machine.results(plan, rule).items():
        np.testing.assert_array_equal(words, step.tensors[name], err_msg=name)
    without = replace(second, a=np.zeros_like(second.a), b=np.zeros_like(second.b))
    np.testing.assert_array_equal(machine.results(beside, RATE)["y"], reference_step(without, e2, RATE).tensors["y"])
    assert counters.saturated == side.clipped + step.saturated > 0


def test_a_command_for_the_other_engine_of_a_queue_waits_for_the_one_before(machine):
    """Updates and vectors by turns."""
    layer = make_layer(16, 48, 4, 2)
    exponents = choose_exponents(layer, mathematics(layer, RATE))
    plan = machine.plan(layer, exponents, 1 << 18, None)
    side = everything(machine, plan.place.end, limit=96, shape=(2, 32), seed=3)
    commands = list(side.commands)
    work = [
        *product(plan.job()),
        *product(plan.job(backward=True)),
        *plan.gradient_pieces(),
        Instruction(CONTROL, ControlOpcode.FENCE, {}),
    ]
    for update in plan.update_pieces(RATE, limit=8):
        work += [update, *(commands.pop(0) if commands else ())]
    run(machine, [*work, *(piece for command in commands for piece in command)])
    side.check()
    reference = reference_step(layer, exponents, RATE)
    for name, words in machine.results(plan, RATE).items():
        np.testing.assert_array_equal(words, reference.tensors[name], err_msg=name)


def test_pieces_are_no_larger_than_asked_and_load_everything_once():
    plan = vector(
        VectorOpcode.ROPE,
        {"tiles": 9, "tokens": 64},
        LanguageConfig(),
        a=SideTensor(offset=0),
        b=SideTensor(offset=1 << 20, repeated=True),
        o=SideTensor(offset=1 << 21),
        wait=(3,),
        post=(4,),
    )
    assert all(piece.read <= PIECE and piece.written * 2 == piece.read for piece in plan)
    assert sum(piece.written for piece in plan) == 9 * 64 * 8
    loads = [each for piece in plan for each in piece.instructions[-2:]]
    assert {each.operands["dest"] for each in loads} == {VECTOR.load("a"), VECTOR.load("b")}
    assert [n for n, piece in enumerate(plan) for each in piece.instructions if each.wait == (3,)] == [0]
    assert [n for n, piece in enumerate(plan) for each in piece.stores if each.post == (4,)] == [len(plan) - 1]
    sums = vector(
        VectorOpcode.NORM_SUMS, {"tiles": 9, "tokens": 64}, LanguageConfig(), a=SideTensor(offset=0), post=(4,)
    )
    assert sums[0].instructions[0].post == (4,)
    with pytest.raises(ValueError, match="limit=8"):
        vector(
            VectorOpcode.ROPE,
            {"tiles": 1, "tokens": 1},
            LanguageConfig(),
            a=SideTensor(offset=0),
            b=SideTensor(offset=0),
            o=SideTensor(offset=0),
            limit=8,
        )
