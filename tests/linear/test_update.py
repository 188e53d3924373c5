"""The engine UPDATE alone: RTL equals the reference; the reference is near torch's AdamW in float64."""
import dataclasses

import numpy as np
import pytest
from amaranth.sim import Simulator

from gradloom.rtl.config import LinearConfig
from gradloom.rtl.control.errors import Error
from gradloom.rtl.formats.adamw import LARGEST, SQRT, INVERSE
from gradloom.rtl.formats.linear import ACTIVATION, MASTER
from gradloom.rtl.linear.update import UpdateEngine, UpdateOpcode, UpdateOperands
from gradloom.rtl.plan.assembler import pack
from gradloom.rtl.plan.descent import AdamW
from gradloom.sim.reference import descent
from gradloom.sim.reference.adamw import adamw
from gradloom.sim.reference.linear import update


@dataclasses.dataclass
class Command:
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
    return {"beta1": int(rng.choice([0, 117965, 131071, rng.integers(0, 1 << 17)])),
            "beta2": int(rng.choice([1 << 16, 130941, 131071])), "rate": int(rng.choice([0, rng.integers(1 << 16, 1 << 17)])),
            "exponent": int(rng.integers(60, 180)), "eps": eps, "eps_exponent": int(rng.integers(-80, 20)),
            "gradient": int(rng.integers(90, 150)), "decay": int(rng.choice([0, rng.integers(0, 1 << 17)])),
            "decay_shift": int(rng.integers(0, 4))}


def command(rng, config, beats, opcode=UpdateOpcode.ADAMW, **changes):
    count = beats * config.beat_words
    p = rng.integers(MASTER.lo, MASTER.hi + 1, count) >> rng.choice([0, 4, 12], count)
    g = rng.integers(ACTIVATION.lo, ACTIVATION.hi + 1, count) >> rng.choice([0, 2, 8, 16, 24], count)
    p = np.where(rng.random(count) < 0.1, rng.choice([MASTER.lo, MASTER.hi, 0], count), p)
    g = np.where(rng.random(count) < 0.1, rng.choice([ACTIVATION.lo, ACTIVATION.hi, 0, 1, -1], count), g)
    if opcode == UpdateOpcode.SGD:
        return Command(opcode, {"rate": int(rng.integers(0, 1 << 17)), "shift": int(rng.integers(0, 40))} | changes, p, g)
    return Command(opcode, operands(rng) | changes, p, g, moments(rng, count, signed=True),
                   moments(rng, count, signed=False))


def beats_of(words, config):
    rows = (np.asarray(words) & 0xFFFFFFFF).reshape(-1, config.beat_words)
    return [sum(int(word) << 32 * n for n, word in enumerate(row)) for row in rows]


def words_of(beats, config):
    return np.array([beat >> 32 * n & 0xFFFFFFFF for beat in beats for n in range(config.beat_words)], np.int64)


def pairs(first, second, config):
    """Beats of both, in turns."""
    return [beat for pair in zip(beats_of(first, config), beats_of(second, config)) for beat in pair]


def run(config, commands, *, stalls=0.0, seed=0):
    """``(words, moments, done, saturated, cycles)``: beats, cycles with ``done``, from first beat to last."""
    dut = UpdateEngine(config)
    rng = np.random.default_rng(seed)
    words, moment_beats, done, clipped, active = [], [], [], [], []
    streams = {dut.gradient: [b for c in commands for b in beats_of(c.g, config)],
               dut.parameter: [b for c in commands for b in beats_of(c.p, config)],
               dut.moment: [b for c in commands if c.m is not None for b in pairs(c.m, c.v, config)]}

    async def ask(ctx):
        for c in commands:
            ctx.set(dut.engine.command.payload.opcode, int(c.opcode))
            ctx.set(dut.engine.command.payload.args, pack(UpdateOperands, {"beats": len(c.p) // config.beat_words}
                                                          | c.operands))
            ctx.set(dut.engine.command.valid, 1)
            await ctx.tick().until(dut.engine.command.ready)
            ctx.set(dut.engine.command.valid, 0)

    def feeder(port, beats):
        async def feed(ctx):
            for beat in beats:
                while rng.random() < stalls:
                    await ctx.tick()
                ctx.set(port.payload, beat)
                ctx.set(port.valid, 1)
                await ctx.tick().until(port.ready)
                ctx.set(port.valid, 0)
        return feed

    def drainer(port, found, count):
        async def drain(ctx):
            while len(found) < count:
                ctx.set(port.ready, rng.random() >= stalls)
                _, _, valid, ready, payload = await ctx.tick().sample(port.valid, port.ready, port.payload)
                if valid and ready:
                    found.append(payload)
        return drain

    async def watch(ctx):
        n = 0
        while True:
            _, _, finished, lost, issuing = await ctx.tick().sample(dut.engine.done, dut.saturated, dut.gradient.ready)
            n += 1
            clipped.append(lost)
            if finished:
                done.append((n, len(words), len(moment_beats)))

    async def finish(ctx):
        while len(done) < len(commands):
            await ctx.tick()
        await ctx.tick().repeat(100)
        active.append(done[-1][0])

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    for bench in (ask, *(feeder(port, beats) for port, beats in streams.items()),
                  drainer(dut.o, words, len(streams[dut.parameter])),
                  drainer(dut.new_moment, moment_beats, len(streams[dut.moment])), finish):
        sim.add_testbench(bench)
    sim.add_testbench(watch, background=True)
    sim.run()
    return words, moment_beats, done, sum(clipped), active[0]


def check(config, commands, **options):
    words, moment_beats, done, saturated, cycles = run(config, commands, **options)
    wanted = [c.expected() for c in commands]
    found = words_of(words, config)
    expected = np.concatenate([w[0] for w in wanted]) & 0xFFFFFFFF
    wrong = np.flatnonzero(found != expected)
    assert not len(wrong), (len(wrong), wrong[:8], found[wrong[:4]], expected[wrong[:4]])
    state = [beat for w in wanted if w[2] is not None for beat in pairs(w[2], w[3], config)]
    assert moment_beats == state
    assert saturated == sum(w[1] for w in wanted)
    assert len(done) == len(commands)
    return done, cycles


SMALL, LARGE = LinearConfig(edge=16, columns=4, rank=4), LinearConfig()


@pytest.mark.parametrize("config, stalls", [(SMALL, 0.0), (SMALL, 0.5), (LARGE, 0.3)],
                         ids=["edge 16", "edge 16, stalls", "edge 64, stalls"])
def test_any_words_in_rtl_equal_the_reference(config, stalls):
    """Commands follow each other at once, of either kind, each with operands of its own."""
    rng = np.random.default_rng(config.edge + int(10 * stalls))
    lengths = [1, 1, 3, 40, 2, 17, 1, 30] if config is SMALL else [1, 2, 12, 1]
    commands = [command(rng, config, beats) for beats in lengths]
    commands[2:2] = [command(rng, config, 5, UpdateOpcode.SGD), command(rng, config, 1, UpdateOpcode.SGD)]
    commands.append(command(rng, config, 9, UpdateOpcode.SGD))
    done, _ = check(config, commands, stalls=stalls, seed=config.edge)
    ends = np.cumsum([len(c.p) // config.beat_words for c in commands])
    assert all(words >= end for (_, words, _), end in zip(done, ends))
