"""The engine UPDATE alone: RTL equals the reference; the reference is near torch's AdamW in float64."""

import dataclasses
import functools

import numpy as np
import pytest

from gradloom.program.descent import AdamW
from gradloom.rtl.engines.update.commands import UpdateOpcode
from gradloom.rtl.engines.update.spec import SPEC
from gradloom.rtl.formats.adamw import INVERSE, LARGEST, SQRT
from gradloom.rtl.formats.weights.linear import ACTIVATION, MASTER
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.rtl.shell.registers.errors import Error
from gradloom.sim.bench.engine import BenchCommand, BenchLoad, BenchStore, EngineBench
from gradloom.sim.reference.update import adamw, update
from gradloom.systems.text.reference import optimizers as descent


@dataclasses.dataclass
class Descent:
    """A command, its streams as words, and what must come of it."""

    opcode: int
    operands: dict
    p: np.ndarray
    g: np.ndarray
    m: np.ndarray | None = None
    v: np.ndarray | None = None

    def expected(self):
        if self.opcode == UpdateOpcode.SGD:
            return *update(self.p, self.g, rate=self.operands["rate"], shift=self.operands["shift"]), None, None
        p, m, v, lost = adamw(self.p, self.g, self.m, self.v, **self.operands)
        return p, lost, m, v


def moments(rng, count, *, signed):
    """float32 bits of every exponent, zeros, the ends of the format."""
    words = rng.integers(0, 1 << 23, count) | rng.integers(0, 256, count) << 23
    common = rng.random(count) < 0.7
    words = np.where(common, rng.integers(0, 1 << 23, count) | rng.integers(60, 140, count) << 23, words)
    words = np.where(rng.random(count) < 0.1, rng.choice([0, 1, LARGEST, 1 << 23], count), words)
    return words | (rng.integers(0, 2, count) << 31 if signed else 0)


def operands(rng):
    eps = int(rng.choice([0, rng.integers(1 << 14, 1 << 15)]))
    return {
        "beta1": int(rng.choice([0, 117965, 131071, rng.integers(0, 1 << 17)])),
        "beta2": int(rng.choice([1 << 16, 130941, 131071])),
        "rate": int(rng.choice([0, rng.integers(1 << 16, 1 << 17)])),
        "exponent": int(rng.integers(60, 180)),
        "eps": eps,
        "eps_exponent": int(rng.integers(-80, 20)),
        "gradient": int(rng.integers(90, 150)),
        "decay": int(rng.choice([0, rng.integers(0, 1 << 17)])),
        "decay_shift": int(rng.integers(0, 4)),
    }


def lion(rng):
    """Operands of Lion: any share of m, any rate, shifts of all sizes."""
    return {
        "sign": 1,
        "beta2": int(rng.choice([0, 11797, 131071])),
        "rate": int(rng.choice([0, rng.integers(1 << 16, 1 << 17)])),
        "exponent": int(rng.integers(8, 45)),
    }


def command(rng, config, beats, opcode=UpdateOpcode.ADAMW, **changes):
    count = beats * config.beat_words
    p = rng.integers(MASTER.lo, MASTER.hi + 1, count) >> rng.choice([0, 4, 12], count)
    g = rng.integers(ACTIVATION.lo, ACTIVATION.hi + 1, count) >> rng.choice([0, 2, 8, 16, 24], count)
    p = np.where(rng.random(count) < 0.1, rng.choice([MASTER.lo, MASTER.hi, 0], count), p)
    g = np.where(rng.random(count) < 0.1, rng.choice([ACTIVATION.lo, ACTIVATION.hi, 0, 1, -1], count), g)
    if opcode == UpdateOpcode.SGD:
        rule = {"rate": int(rng.integers(0, 1 << 17)), "shift": int(rng.integers(0, 40))}
        return Descent(opcode, rule | changes, p, g)
    return Descent(
        opcode, operands(rng) | changes, p, g, moments(rng, count, signed=True), moments(rng, count, signed=False)
    )


def beats_of(words, config):
    rows = (np.asarray(words) & 0xFFFFFFFF).reshape(-1, config.beat_words)
    return [sum(int(word) << 32 * n for n, word in enumerate(row)) for row in rows]


def words_of(beats, config):
    return np.array([beat >> 32 * n & 0xFFFFFFFF for beat in beats for n in range(config.beat_words)], np.int64)


def pairs(first, second, config):
    """Beats of half a beat of each."""
    halves = [np.asarray(words).reshape(-1, config.beat_words // 2) for words in (first, second)]
    return beats_of(np.stack(halves, axis=1), config)


@functools.cache
def bench(config):
    return EngineBench(SPEC, config)


def check(config, commands, *, moments_after=0, words_after=0, **options):
    """The run; ``words_after``, ``moments_after``: cycles until the first of them are stored."""
    steps, words, state, lost = [], [], [], 0
    for c in commands:
        p, clipped, m, v = c.expected()
        new = beats_of(p, config)
        steps += [
            BenchCommand(c.opcode, {"beats": len(new)} | c.operands),
            BenchLoad("directions", beats_of(c.g, config)),
            BenchLoad("words", beats_of(c.p, config)),
        ]
        if m is not None:
            moved = pairs(m, v, config)
            steps += [
                BenchLoad("moments", pairs(c.m, c.v, config)),
                BenchStore("moments", len(moved), after=moments_after),
            ]
            state += moved
        steps.append(BenchStore("words", len(new), after=words_after))
        moments_after = words_after = 0
        words += new
        lost += clipped
    run = bench(config).check(*steps, words={"words": words} | ({"moments": state} if state else {}), **options)
    assert run.total("saturated") == lost
    return run


SMALL, LARGE = LanguageConfig(edge=16, columns=4, outputs=2, rank=4), LanguageConfig()


@pytest.mark.parametrize(
    "config, stalls",
    [(SMALL, 0.0), (SMALL, 0.5), (LanguageConfig(edge=32), 0.2), (LARGE, 0.3)],
    ids=["edge 16", "edge 16, stalls", "edge 32, stalls", "edge 64, stalls"],
)
def test_any_words_in_rtl_equal_the_reference(config, stalls):
    """Commands follow each other at once, of either kind, each with operands of its own."""
    rng = np.random.default_rng(config.edge + int(10 * stalls))
    lengths = [1, 1, 3, 40, 2, 17, 1, 30] if config is SMALL else [1, 2, 12, 1]
    commands = [command(rng, config, beats) for beats in lengths]
    commands[2:2] = [command(rng, config, 5, UpdateOpcode.SGD), command(rng, config, 1, UpdateOpcode.SGD)]
    commands.append(command(rng, config, 9, UpdateOpcode.SGD))
    commands[1:1] = [command(rng, config, beats, **lion(rng)) for beats in (3, 1, 20)]
    # Longer than a word takes, and than all words under way; those of a wide machine take long to simulate.
    run = check(config, commands, stall=stalls, hold=120 if stalls and config is SMALL else 0, seed=config.edge)
    ends = np.cumsum([len(c.p) // config.beat_words for c in commands])
    assert all(run.stored["words"][end - 1] < done for done, end in zip(run.done, ends))


@pytest.mark.parametrize(
    "opcode, lengths, held",
    [(UpdateOpcode.SGD, [112] * 5, {"words_after": 1800}), (UpdateOpcode.ADAMW, [60], {"moments_after": 400})],
    ids=["words", "moments"],
)
def test_an_output_that_is_held_loses_nothing(opcode, lengths, held):
    """More comes of the commands than the queue behind the unit has room for."""
    rng = np.random.default_rng(8)
    run = check(SMALL, [command(rng, SMALL, beats, opcode) for beats in lengths], **held)
    assert run.done[0] > max(held.values())


def test_moments_stored_late_end_a_command_late():
    """The last words of a command wait for its moments, those of commands behind it wait in line."""
    rng = np.random.default_rng(5)
    commands = [command(rng, SMALL, 2), command(rng, SMALL, 3, UpdateOpcode.SGD), command(rng, SMALL, 1)]
    run = check(SMALL, commands, moments_after=300)
    assert run.done[0] > run.stored["moments"][3] > 300


@pytest.mark.parametrize("opcode, beats, cycles", [(UpdateOpcode.ADAMW, 64, 4), (UpdateOpcode.SGD, 64, 2)])
def test_a_beat_of_eight_words_takes_four_cycles_with_moments_and_two_without(opcode, beats, cycles):
    rng = np.random.default_rng(6)
    run = check(LARGE, [command(rng, LARGE, 1, opcode), command(rng, LARGE, beats, opcode)])
    # Where there are moments, words leave behind them.
    port, each = ("moments", 2) if opcode == UpdateOpcode.ADAMW else ("words", 1)
    times = run.stored[port][each:]
    assert len(times) == each * beats and times[-each] - times[0] <= cycles * (beats - 1) + 2


def test_commands_follow_each_other_after_the_arithmetic_is_empty():
    rng = np.random.default_rng(7)
    started = check(LARGE, [command(rng, LARGE, 1), command(rng, LARGE, 1)]).started
    assert started[1] - started[0] < 80


@pytest.mark.parametrize(
    "opcode, operands, code",
    [
        (UpdateOpcode.SGD, {"beats": 0}, Error.BAD_OPERAND),
        (UpdateOpcode.ADAMW, {"beats": 0, "beta2": 1 << 16}, Error.BAD_OPERAND),
        (UpdateOpcode.ADAMW, {"beats": 1, "beta2": (1 << 16) - 1}, Error.BAD_OPERAND),
        (UpdateOpcode.ADAMW, {"beats": 1, "beta2": 1 << 16, "eps": (1 << 14) - 1}, Error.BAD_OPERAND),
        (4, {"beats": 1}, Error.UNKNOWN_OPCODE),
        (255, {"beats": 1, "beta2": 1 << 16}, Error.UNKNOWN_OPCODE),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_refused(opcode, operands, code):
    bench(SMALL).check(BenchCommand(opcode, operands), errors=[code])


def float_of(words):
    return np.asarray(words).astype(np.uint32).view(np.float32).astype(np.float64)


def bound(rule):
    """Of a step in units of lr: what words and tables lose of it, times the largest step there is.

    In the order of the text: the square's narrow side, the root, what goes into it and comes out, the inverse, a unit
    below, the rate.
    """
    relative = 2**-17 + 2 * SQRT.error + 2**-18 + 2 * (INVERSE.error + 2**-17) + 2**-17
    mean, spread = rule.moment_scales
    return relative * max(mean / spread**0.5, 1.0)


@pytest.mark.parametrize(
    "rule, steps",
    [
        (AdamW(lr=1e-3), 12),
        (AdamW(lr=2e-4, betas=(0.9, 0.95), eps=1e-6, weight_decay=0.1), 30),
        (AdamW(lr=0.05, betas=(0.0, 0.5), eps=1e-3, weight_decay=1.0), 12),
        (AdamW(lr=1e-3, weight_decay=0.01), 80),
    ],
    ids=str,
)
def test_the_reference_is_near_adamw_in_float64(rule, steps):
    """From zero, gradients of every size, exponents that change from step to step, words without a gradient."""
    rng = np.random.default_rng(steps)
    count, frac = 2000, 33
    p = rng.integers(-(1 << 28), 1 << 28, count)
    p[:3] = 0
    m = v = np.zeros(count, np.int64)
    exact = {"p": p * 2.0**-frac}
    betas = tuple(word * 2.0**-17 for word in rule.beta_words)
    mathematics = descent.FloatAdamW(lr=rule.lr, betas=betas, eps=rule.eps, weight_decay=rule.weight_decay)
    sizes = 10 ** rng.uniform(-6, 0, count)
    for step in range(1, steps + 1):
        g = rng.normal(0, 1, count) * sizes * 10 ** rng.uniform(-4, -2)
        g[:100] = 0
        g[100:200] *= step % 5 == 0
        g_frac = 23 - int(np.frexp(np.abs(g).max())[1])
        words = np.rint(g * 2.0**g_frac).astype(np.int64)
        before = exact["p"].copy()
        mathematics.step(exact, {"p": words * 2.0**-g_frac})
        new, m, v, lost = adamw(p, words, m, v, **rule.operands(step, g_frac, frac))
        assert lost == 0
        moved = (new - p) * 2.0**-frac
        # Two half last places: of the step and of the decay.
        assert np.abs(moved - (exact["p"] - before)).max() <= bound(rule) * rule.lr + 2.0**-frac
        p, exact["p"] = new, new * 2.0**-frac
    assert bound(rule) < 1e-3
    first, second = (float_of(words) * scale for words, scale in zip((m, v), rule.moment_scales))
    assert np.abs(first - mathematics.first["p"]).max() < 1e-6 * np.abs(mathematics.first["p"]).max()
    np.testing.assert_allclose(second, mathematics.second["p"], rtol=2**-16 + steps * 2**-24, atol=1e-45)
    if not rule.weight_decay:
        assert np.array_equal(p[:3], np.zeros(3)) and not m[:3].any() and not v[:3].any()


def test_a_moment_saturates_and_vanishes():
    rule = AdamW(lr=1e-3).operands(1, 0, 30)
    p, g = np.array([5, 5, 5]), np.array([ACTIVATION.lo, 1, -1])
    for gradient, moments_ in (
        (500, [[1 << 31 | LARGEST, LARGEST, 1 << 31 | LARGEST], [LARGEST] * 3]),
        (-500, [[0] * 3, [0] * 3]),
    ):
        _, m, v, lost = adamw(p, g, np.zeros(3), np.zeros(3), **rule | {"gradient": gradient, "exponent": 1023})
        assert [m.tolist(), v.tolist()] == moments_ and lost == (6 if gradient > 0 else 0)


def test_betas_far_from_what_17_bits_hold_still_follow_each_other():
    rule = AdamW(lr=1e-3, betas=(0.99999999, 0.99999999))
    assert rule.beta_words == ((1 << 17) - 1,) * 2
    assert AdamW(lr=0.0).operands(3, 20, 30)["rate"] == 0


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"lr": -1.0}, "lr=-1.0"),
        ({"lr": float("nan")}, "lr=nan"),
        ({"lr": 1e-3, "betas": (1.0, 0.9)}, r"betas\[0\]=1.0"),
        ({"lr": 1e-3, "betas": (0.9, 0.4)}, r"betas\[1\]=0.4"),
        ({"lr": 1e-3, "eps": -1e-8}, "eps=-1e-08"),
        ({"lr": 0.5, "weight_decay": 2.0}, r"lr \* weight_decay=1.0"),
    ],
    ids=str,
)
def test_settings_out_of_range_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        AdamW(**arguments)


def test_steps_and_exponents_out_of_range_are_refused():
    with pytest.raises(ValueError, match="step=0"):
        AdamW(lr=1e-3).operands(0, 20, 30)
    with pytest.raises(ValueError, match="gradient_frac"):
        AdamW(lr=1e-3).operands(1, 2000, 30)
