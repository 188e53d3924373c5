"""The forecast of PACK and UNPACK, alone and between updates, against traces of RTL: every command to the cycle."""

import random

import pytest

from gradloom.program.assembler import Assembler
from gradloom.rtl.engines.update.commands import UpdateOpcode
from gradloom.systems.text.program.engines.side import append, pack, unpack, update
from gradloom.systems.text.program.packed import PackedStore

from .conftest import SMALL
from .test_linear_perf import LATENCIES, agree

START, CODES = 1 << 17, 1 << 18


def work(kinds, rank=2, features=48):
    """Pieces over the same memory, of ``pack`` or ``unpack`` with 8 bits, of moments, or of an update."""
    pieces = []
    for kind, wide, moments in kinds:
        stored = PackedStore(name="x.a", rank=rank, features=features, wide=wide, moments=moments, edge=SMALL.edge)
        places = {"words": START, "packed": CODES}
        if kind == "update":
            opcode = UpdateOpcode.ADAMW if moments else UpdateOpcode.SGD
            operands = {"beta2": 1 << 16} if moments else {"rate": 1}
            pieces += update(
                opcode, operands, SMALL, words=START, directions=START + 4096, moments=START + 8192, beats=20
            )
        else:
            pieces += pack(stored, 1, SMALL, **places) if kind == "pack" else unpack(stored, SMALL, **places)
    return pieces


@pytest.mark.parametrize("latency", LATENCIES)
@pytest.mark.parametrize("moments", [False, True], ids=["words", "moments"])
@pytest.mark.parametrize("wide", [False, True], ids=["nf4", "int8"])
@pytest.mark.parametrize("kind", ["pack", "unpack"])
def test_one_kind(machine, kind, wide, moments, latency):
    program = Assembler()
    append(program, work([(kind, wide, moments)], features=96))
    agree(machine, program, latency)


@pytest.mark.parametrize("latency", LATENCIES)
@pytest.mark.parametrize("seed", range(3))
def test_any_order_with_updates(machine, seed, latency):
    choose = random.Random(seed)
    program = Assembler()
    append(
        program,
        work(
            [
                (choose.choice(["pack", "unpack", "update"]), choose.random() < 0.5, choose.random() < 0.5)
                for _ in range(8)
            ]
        ),
    )
    agree(machine, program, latency)
