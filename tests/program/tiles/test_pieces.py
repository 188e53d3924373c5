"""Pieces of a step do what its program does, and pieces that are alike take the same cycles."""

from dataclasses import replace

import numpy as np
import pytest

from gradloom.compiler.integers.descent import IntegerDescent
from gradloom.compiler.integers.reading import IntegerNetwork
from gradloom.compiler.lowering import lower, pieced
from gradloom.graph.operations import Activation, Add, Attention, Linear, Norm
from gradloom.program.progress import check_progress
from gradloom.program.tiles import pieces
from gradloom.rtl.formats.tiles.codes import coded
from gradloom.sim.reference.tiles.program import TileMachine
from gradloom.sim.time.forecast import forecast

from ...compiler.nets import conv, network, tensor
from ...compiler.same import CONFIG, begin, rules_of

SAMPLES = 2


def blocks(count=3):
    """A network of like blocks: a norm, an attention behind an adapter, a function, a convolution, a sum."""
    x = last = tensor("x", 8, 8, 32)
    made = []
    for n in range(count):
        norm, q, mix, act, total = (tensor(f"{name}{n}", 8, 8, 32) for name in ("norm", "q", "mix", "act", "sum"))
        made += [
            Norm((last,), norm, f"norm{n}", eps=1e-5, over_rows=True, groups=4),
            Linear((norm,), q, f"q{n}", rank=4),
            Attention((q, norm, norm), mix, 2, 0.25),
            Activation((mix,), act, "silu"),
            made_by_conv := conv(act, f"conv{n}", 32, 3, pads=1),
            Add((made_by_conv.o, last), total),
        ]
        last = total
    return network(made, [x])


def ready(memory, step, exact):
    """Writes what a step reads before it begins."""
    begin(memory, step, exact, IntegerDescent(rules_of(exact)))
    random = np.random.default_rng(0)
    for written in step.inputs.values():
        x = random.standard_normal((written[0].rows, written[0].features))
        for tiles in written:
            memory.write(tiles.offset, tiles.pack(coded(x, tiles.bits)))


@pytest.fixture(scope="module")
def made():
    """The network, its integers, and the memory that its one program leaves."""
    net = blocks()
    learners = [weight.name for each in net.operations for weight in each.weights if "lora" in weight.name]
    exact = IntegerNetwork(net, learners)
    step = lower(CONFIG, net, samples=SAMPLES, loss="values", rules=rules_of(exact))
    memory = TileMachine(CONFIG, step.program.length)
    ready(memory, step, exact)
    memory.run(step.written(1))
    return net, exact, step, memory


def cut(net, exact, least, monkeypatch, config=CONFIG):
    """A step in pieces of ``least`` jobs."""
    monkeypatch.setattr(pieces, "_LEAST", least)
    found = []
    step = pieced(
        config,
        net,
        samples=SAMPLES,
        loss="values",
        rules=rules_of(exact),
        tell=lambda piece, count: found.append(piece),
    )
    return step, found


@pytest.mark.parametrize("least", [1, 40, 10_000])
def test_pieces_leave_what_one_program_leaves(made, least, monkeypatch):
    net, exact, whole, wanted = made
    step, found = cut(net, exact, least, monkeypatch)
    assert len(found) == 1 if least > 1000 else len(found) > 3
    size = max(each.program.length for each in found)
    memory = TileMachine(CONFIG, size)
    # What no piece has written is no zero.
    memory.write(0, b"\x55" * size)
    ready(memory, step, exact)
    for each in found:
        check_progress(each.instructions, CONFIG.machine.engines, depth=CONFIG.queue_depth)
        memory.execute(each.instructions)
    for name, tiles in whole.shown.items():
        own = step.shown[name]
        assert memory.read(own.offset, own.size) == wanted.read(tiles.offset, tiles.size), name
    for name, each in whole.learners.items():
        own = step.learners[name]
        for one, other in ((own.gradient, each.gradient), (own.codes, each.codes)):
            assert memory.read(one.offset, one.size) == wanted.read(other.offset, other.size), name
        words = [(of, at.words.words, at.words.size) for of, at in ((memory, own), (wanted, each))]
        one, other = (of.read(offset, length) for of, offset, length in words)
        assert one == other, name


def test_like_pieces_share_a_program_and_take_its_cycles(made, monkeypatch):
    net, exact, *_ = made
    _, found = cut(net, exact, 1, monkeypatch)
    programs = {id(each.program) for each in found}
    # Blocks are alike, but for the ends of the network.
    assert len(programs) < 0.7 * len(found)
    other = [each for each in found if each.offsets != each.first]
    assert len(other) >= len(found) - len(programs)
    for each in other:
        assert (
            forecast(each.instructions, config=CONFIG).total == forecast(each.program.instructions, config=CONFIG).total
        )
        assert each.instructions != each.program.instructions


def test_a_piece_elsewhere_keeps_stores_that_memory_does_not_take(made, monkeypatch):
    net, exact, *_ = made
    _, found = cut(net, exact, 40, monkeypatch, replace(CONFIG, forwards=1))
    kept = [
        (one, other)
        for each in found
        if each.first != each.offsets
        for one, other in zip(each.program.instructions, each.instructions)
        if one.operands.get("only")
    ]
    assert all(one == other for one, other in kept)
    assert any(one.operands.get("only") for each in found for one in each.instructions)
