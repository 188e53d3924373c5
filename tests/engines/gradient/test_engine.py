"""The gradient engine alone: RTL equals the reference, at the ends of its operands too."""

import numpy as np
import pytest

from gradloom.rtl.engines.gradient.commands import HIDDEN_ARG
from gradloom.rtl.engines.gradient.parameters import SLOTS
from gradloom.rtl.engines.gradient.spec import SPEC
from gradloom.rtl.formats.weights.linear import ACTIVATION, MASTER
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.rtl.shell.registers.errors import Error
from gradloom.sim.bench.engine import FENCE, BenchCommand, BenchLoad, BenchStore, EngineBench, pressures
from gradloom.sim.reference.gradient import gradient

TOKENS, TILES, RANK, SHIFT = 5, 4, 4, 20
CONFIG = LanguageConfig(edge=16, columns=4, outputs=2, dots=1, rank=RANK, tokens=8, features=256, head=16)
OPERANDS = {"tiles": TILES, "tokens": TOKENS, "rank": RANK, "shift": SHIFT}


def beats(tensor, config=CONFIG):
    rows = (tensor & (1 << MASTER.width) - 1).reshape(-1, config.beat_words)
    return [sum(int(word) << n * MASTER.width for n, word in enumerate(row)) for row in rows]


def hidden(bench, h, slot=0):
    """A function that is a step: words of h as a product makes them."""

    async def give(ctx):
        for token, words in enumerate(h):
            for rank, word in enumerate(words):
                ctx.set(
                    bench.component.hidden, {"valid": 1, "rank": rank, "slot": slot, "token": token, "value": int(word)}
                )
                await ctx.tick()
        ctx.set(bench.component.hidden.valid, 0)

    return give


def arg(**values):
    return HIDDEN_ARG.const({"slot": 0, "tokens": TOKENS, "rank": RANK} | values).as_value().value


@pytest.fixture(scope="module")
def bench():
    return EngineBench(SPEC, CONFIG)


@pytest.fixture(scope="module")
def problem():
    """``(h, beats of x, beats of the gradient)``."""
    rng = np.random.default_rng(3)
    h = rng.integers(ACTIVATION.lo, ACTIVATION.hi + 1, (TOKENS, RANK))
    x = rng.integers(ACTIVATION.lo, ACTIVATION.hi + 1, (TOKENS, TILES, CONFIG.edge))
    words, _ = gradient(x.reshape(TOKENS, -1), h, shift=SHIFT)
    return h, beats(x.swapaxes(0, 1)), beats(words.reshape(RANK, TILES, -1).swapaxes(0, 1))


def test_sums_of_nothing_but_least_words_saturate_and_do_not_wrap():
    """128 products of the two least words are 2^47, which takes 49 bits."""
    tokens = 128
    config = LanguageConfig(edge=16, columns=2, outputs=2, dots=1, rank=2, tokens=tokens, features=64, head=64)
    bench = EngineBench(SPEC, config)
    least, most = np.full((tokens, 16), ACTIVATION.lo), np.full((2, 16), ACTIVATION.hi)
    bench.check(
        hidden(bench, least[:, :2]),
        BenchCommand(0, {"tiles": 1, "tokens": tokens, "rank": 2, "shift": ACTIVATION.width}),
        BenchLoad("x", beats(least, config)),
        BenchStore("gradients", 16),
        words={"gradients": beats(most, config)},
    )


@pytest.mark.parametrize("pressure", pressures(200), ids=str)
def test_sums_are_those_of_the_reference(bench, problem, pressure):
    """While its output is held, a tile has more results than the queue behind the engine has room for."""
    h, x, expected = problem
    bench.check(
        hidden(bench, h),
        BenchCommand(0, OPERANDS),
        BenchLoad("x", x),
        BenchStore("gradients", len(expected)),
        words={"gradients": expected},
        **pressure,
    )


@pytest.mark.parametrize("pressure", pressures(100), ids=str)
def test_h_goes_to_memory_and_comes_back_to_another_slot(bench, problem, pressure):
    h, x, expected = problem
    size = -(-TOKENS * RANK // CONFIG.beat_words)
    kept = bench.check(hidden(bench, h, 1), BenchStore("hidden", size, arg(slot=1)), **pressure).words["hidden"]
    bench.check(
        BenchLoad("hidden", kept, arg(slot=3)),
        FENCE,
        BenchCommand(0, OPERANDS | {"slot": 3}),
        BenchLoad("x", x),
        BenchStore("gradients", len(expected)),
        words={"gradients": expected},
        **pressure,
    )


@pytest.mark.parametrize(
    "wrong", [{"slot": SLOTS}, {"tokens": 0}, {"tokens": 9}, {"rank": 0}, {"rank": 3}, {"rank": RANK + 2}], ids=str
)
def test_h_that_there_is_not_is_refused(bench, wrong):
    size = -(-wrong.get("tokens", TOKENS) * wrong.get("rank", RANK) // CONFIG.beat_words)
    run = bench.run(
        BenchLoad("hidden", [0], arg(**wrong)),
        FENCE,
        BenchStore("hidden", size, arg(**wrong)),
        FENCE,
        BenchStore("hidden", size + 1, arg()),
    )
    assert [(port, beat) for _, port, beat in run.refused] == [("hidden", 0), ("hidden", None), ("hidden", None)]


@pytest.mark.parametrize(
    "opcode, operands, code",
    [
        (0, {"tiles": 0}, Error.BAD_OPERAND),
        (0, {"tokens": 0}, Error.BAD_OPERAND),
        (0, {"tokens": 9}, Error.BAD_OPERAND),
        (0, {"rank": 0}, Error.BAD_OPERAND),
        (0, {"rank": 3}, Error.BAD_OPERAND),
        (0, {"rank": 6}, Error.BAD_OPERAND),
        (1, {}, Error.UNKNOWN_OPCODE),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_refused(bench, opcode, operands, code):
    bench.check(BenchCommand(opcode, OPERANDS | operands), errors=[code])
