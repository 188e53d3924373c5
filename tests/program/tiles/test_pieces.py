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


def cut(net, exact, least, monkeypatch, config=CONFIG, found=None, **more):
    """A step in pieces of ``least`` jobs, which are ``found``."""
    monkeypatch.setattr(pieces, "_LEAST", least)
    found = [] if found is None else found
    step = pieced(
        config,
        net,
        samples=SAMPLES,
        loss="values",
        rules=rules_of(exact),
        tell=lambda piece, count: found.append(piece),
        **more,
    )
    return step, found


def differs(made, step, found):
    """Names of what the pieces leave otherwise than the one program."""
    net, exact, whole, wanted = made
    size = max(each.program.length for each in found)
    memory = TileMachine(CONFIG, size)
    # What no piece has written is no zero.
    memory.write(0, b"\x55" * size)
    ready(memory, step, exact)
    for each in found:
        check_progress(each.instructions, CONFIG.machine.engines, depth=CONFIG.queue_depth)
        memory.execute(each.instructions)
    pairs = [(name, step.shown[name], tiles) for name, tiles in whole.shown.items()]
    for name, each in whole.learners.items():
        own = step.learners[name]
        pairs += [(name, own.gradient, each.gradient), (name, own.codes, each.codes)]
        words = [(of, at.words.words, at.words.size) for of, at in ((memory, own), (wanted, each))]
        one, other = (of.read(offset, length) for of, offset, length in words)
        if one != other:
            yield name
    for name, one, other in pairs:
        if memory.read(one.offset, one.size) != wanted.read(other.offset, other.size):
            yield name


@pytest.mark.parametrize("least", [1, 40, 10_000])
def test_pieces_leave_what_one_program_leaves(made, least, monkeypatch):
    net, exact, *_ = made
    step, found = cut(net, exact, least, monkeypatch)
    assert len(found) == 1 if least > 1000 else len(found) > 3
    assert not list(differs(made, step, found))


def shorter(monkeypatch, by=1):
    """Tensors of several pieces give their places up some pieces too early."""
    lives = pieces._Noted.lives.fget
    monkeypatch.setattr(pieces._Noted, "lives", property(lambda self: (lives(self)[0], max(lives(self)[1] - by, 0))))


def test_a_place_that_is_given_up_too_early_is_refused(made, monkeypatch):
    net, exact, *_ = made
    shorter(monkeypatch)
    with pytest.raises(RuntimeError, match=r"piece \d+: offset \d+ is the place of another piece's tensor"):
        cut(net, exact, 1, monkeypatch)


def test_a_place_that_is_given_up_too_early_shows_in_memory(made, monkeypatch):
    """So what the pieces read tells whether lives are right: a record of another size, here."""
    net, exact, *_ = made
    shorter(monkeypatch, by=2)
    monkeypatch.setattr(pieces.Pieces, "_check", lambda self, offsets: None)
    with pytest.raises(ValueError, match="must be records of"):
        list(differs(made, *cut(net, exact, 1, monkeypatch)))


def test_tensors_that_do_not_meet_share_places(made, monkeypatch):
    net, exact, *_ = made
    usual, _ = cut(net, exact, 1, monkeypatch)
    monkeypatch.setattr(pieces._Noted, "lives", property(lambda self: (min(self.pieces), 1000)))
    apart, _ = cut(net, exact, 1, monkeypatch)
    assert usual.program.length < 0.8 * apart.program.length


@pytest.mark.parametrize("least", [1, 40, 10_000])
def test_a_step_that_does_not_fit_is_refused_before_its_first_piece(made, least, monkeypatch):
    net, exact, *_ = made
    step, found = cut(net, exact, least, monkeypatch)
    needs = step.program.memory.end
    assert len(cut(net, exact, least, monkeypatch, memory=needs)[1]) == len(found)
    told = []
    with pytest.raises(ValueError, match=f"needs {needs:,} bytes .* the board's memory has {needs - 1:,}; take fewer"):
        cut(net, exact, least, monkeypatch, found=told, memory=needs - 1)
    monkeypatch.setattr(pieces, "most", lambda layout, field: needs - 2)
    with pytest.raises(ValueError, match=f"needs {needs:,} bytes .* a window has {needs - 1:,}; take fewer"):
        cut(net, exact, least, monkeypatch, found=told)
    assert not told


def test_what_is_not_filled_has_the_same_commands(made, monkeypatch):
    net, exact, *_ = made
    step, found = cut(net, exact, 40, monkeypatch)
    empty, others = cut(net, exact, 40, monkeypatch, filled=False)
    assert step.program.arrays and not empty.program.arrays
    assert [each.instructions for each in others] == [each.instructions for each in found]


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
