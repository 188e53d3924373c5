"""The head: RTL equals the reference word for word, in as many cycles as it says."""

import gc
import re
import time
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from amaranth.back import rtlil

from gradloom.rtl.engines.head.engine import Head
from gradloom.rtl.engines.head.parameters import HeadParameters
from gradloom.rtl.engines.head.spec import SPEC
from gradloom.rtl.engines.head.unit import HeadUnit
from gradloom.rtl.formats.images import ACTIVATION, PARAMETER
from gradloom.rtl.machines.configs.images import ImageConfig
from gradloom.rtl.shell.registers.errors import Error
from gradloom.rtl.units.lora_gradient import LoraGradient
from gradloom.sim.bench.engine import BenchLoad, BenchStore, EngineBench
from gradloom.sim.bench.engine import simulate as play
from gradloom.sim.bench.pauses import pauses
from gradloom.sim.reference.head import adapter_gradients, head_step
from gradloom.sim.time.head import HeadTime


class Host:
    """Loads a head, commands it, and reads what it made."""

    def __init__(self, ctx, dut):
        self.ctx, self.dut = ctx, dut
        self.saturated = self.underflowed = self.norm = 0
        self.errors = []
        self.done = 0

    async def tick(self):
        ctx, dut = self.ctx, self.dut
        await ctx.tick()
        self.saturated += ctx.get(dut.health.saturated)
        self.underflowed += ctx.get(dut.health.underflowed)
        self.norm += ctx.get(dut.health.norm)
        self.done += ctx.get(dut.done)
        if ctx.get(dut.error.valid):
            self.errors.append(ctx.get(dut.error.code))

    async def write(self, port, beats):
        for beat in beats:
            for field, value in beat.items():
                self.ctx.set(getattr(port, field), value)
            self.ctx.set(port.valid, 1)
            await self.tick()
        self.ctx.set(port.valid, 0)

    async def load_h(self, h):
        rank = self.dut.rank
        await self.write(
            self.dut.i_h,
            [
                dict(tap=tap, sample=s, h=[int(x) for x in row[tap * rank : (tap + 1) * rank]])
                for s, row in enumerate(h)
                for tap in range(h.shape[1] // rank)
            ],
        )

    async def load_logits(self, base, half):
        await self.write(
            self.dut.i_logits,
            [
                dict(half=half, sample=s, beat=n // 4, data=pack(row[n : n + 4], 32))
                for s, row in enumerate(base)
                for n in range(0, len(row), 4)
            ],
        )

    async def load_labels(self, labels, half):
        await self.write(
            self.dut.i_labels,
            [dict(half=half, beat=n // 16, data=pack(labels[n : n + 16], 8)) for n in range(0, len(labels), 16)],
        )

    async def load_b(self, b):
        padded = np.zeros((16, b.shape[1]), np.int64)
        padded[: len(b)] = b
        await self.write(
            self.dut.i_b,
            [
                dict(index=2 * k + n, data=pack(padded[8 * n : 8 * n + 8, k], 16))
                for k in range(b.shape[1])
                for n in range(2)
            ],
        )

    async def offer(
        self, *, samples, k, classes, v_mode=0, apply=1, first=1, last=1, half=0, scale=0, q=0, mu=0, opcode=0
    ):
        """Puts a command to the head; returns in the cycle after the one that took it."""
        ctx, dut = self.ctx, self.dut
        flags = v_mode | apply << 2 | first << 3 | last << 4 | half << 5
        args = samples | k << 8 | classes << 16 | flags << 24 | (scale | q << 30) << 32 | mu << 64
        ctx.set(dut.command.payload.opcode, opcode)
        ctx.set(dut.command.payload.args, args)
        ctx.set(dut.command.valid, 1)
        waited = 0
        while not ctx.get(dut.command.ready):
            await self.tick()
            waited += 1
        await self.tick()
        ctx.set(dut.command.valid, 0)
        return waited

    async def step(self, **operands):
        """``(cycles, cycles waited for the command to be taken)``."""
        waited = await self.offer(**operands)
        cycles = 1
        while not self.ctx.get(self.dut.done):
            await self.tick()
            cycles += 1
            assert cycles < 5000
        return cycles, waited

    async def idle(self):
        while self.ctx.get(self.dut.busy):
            await self.tick()
        await self.tick()

    async def read_dh(self, samples, k):
        ctx, dut, out = self.ctx, self.dut, np.zeros((samples, k), np.int64)
        for s in range(samples):
            for tap in range(k // dut.rank):
                ctx.set(dut.dh_address.tap, tap)
                ctx.set(dut.dh_address.sample, s)
                await self.tick()
                out[s, tap * dut.rank : (tap + 1) * dut.rank] = [ctx.get(x) for x in dut.dh]
        return out

    async def pull(self, port, beats, moves=None):
        out = []
        while len(out) < beats:
            self.ctx.set(port.ready, moves is None or next(moves))
            if self.ctx.get(port.valid) and self.ctx.get(port.ready):
                out.append(self.ctx.get(port.payload))
            await self.tick()
        self.ctx.set(port.ready, 0)
        return out

    async def dump(self, beats, moves=None):
        self.ctx.set(self.dut.i_dump.payload.beats, beats)
        self.ctx.set(self.dut.i_dump.valid, 1)
        while not self.ctx.get(self.dut.i_dump.ready):
            await self.tick()
        await self.tick()
        self.ctx.set(self.dut.i_dump.valid, 0)
        return await self.pull(self.dut.o_b, beats, moves)


def pack(words, bits):
    return sum((int(w) & ((1 << bits) - 1)) << (bits * n) for n, w in enumerate(words))


def unpack(data, bits):
    words = np.array([data >> n & ((1 << bits) - 1) for n in range(0, 128, bits)], dtype=np.int64)
    return words - ((words >> (bits - 1)) << bits)


def simulate(dut, bench):
    async def run(ctx):
        await bench(Host(ctx, dut))

    play(dut, run)


def problem(rng, samples, k, classes, *, wild=False):
    """``(h, base, labels)``; ``wild``: every saturation happens."""
    h = rng.normal(0, 40 if wild else 1, (samples, k))
    base = rng.normal(0, 60 if wild else 2, (samples, classes))
    return ACTIVATION.encode(h), ACTIVATION.encode(base), rng.integers(0, classes, samples)


#: The last numbers are how many of the three kinds of step are simulated, and the head's rank.
SHAPES = [
    (20, 20, 10, 1, 4),
    (1, 4, 1, 2, 4),
    (5, 4, 2, 3, 4),
    (3, 8, 10, 3, 4),
    (25, 4, 7, 2, 4),
    (2, 64, 10, 1, 4),
    (5, 1, 2, 2, 1),
]


def forecast(dut, **operands):
    """Cycles of a step, as the forecast has them."""
    told = []
    machine = SimpleNamespace(
        commands=[SimpleNamespace(operands=operands)],
        config=SimpleNamespace(classes=dut.max_classes),
        scheduler=SimpleNamespace(taken=lambda *_: None, done=lambda _, command, cycle: told.append(cycle)),
    )
    HeadTime(machine).offer(0, 100)
    return told[0] - 100


@pytest.mark.parametrize("samples, k, classes, count, rank", SHAPES)
def test_steps_are_the_reference_in_as_many_cycles_as_forecast(samples, k, classes, count, rank):
    rng = np.random.default_rng(samples)
    dut = Head(rank=rank)
    b = PARAMETER.encode(rng.normal(0, 0.5, (classes, k)))
    v = np.zeros((classes, k), np.int64)
    steps = [
        dict(v_mode=0, q=1, scale=int(0.05 / samples * 2**20)),
        dict(v_mode=2, q=2, mu=58982, scale=int(0.4 / samples * 2**16)),
        dict(v_mode=1, q=0, scale=(1 << 18) - 1, apply=0),
    ][:count]

    async def bench(host):
        nonlocal b, v
        await host.load_b(b)
        totals = np.zeros(3, np.int64)
        for n, operands in enumerate(steps):
            h, base, labels = problem(rng, samples, k, classes, wild=n == 2)
            half = n % 2
            await host.load_logits(base, half)
            await host.load_labels(labels, half)
            await host.load_h(h)
            cycles, _ = await host.step(samples=samples, k=k, classes=classes, half=half, **operands)
            ref = head_step(h, base, labels, b, v, **{"apply": 1} | operands)
            assert cycles == dut.cycles(samples, k, classes) == forecast(dut, samples=samples, k=k, classes=classes)
            np.testing.assert_array_equal(await host.read_dh(samples, k), ref.dh)
            (beat,) = await host.pull(host.dut.o_loss, 1)
            assert beat == ref.loss | samples << 64 | ref.correct << 96
            b, v = ref.b, ref.v
            totals += (ref.saturated, ref.underflowed, ref.norm)
        await host.idle()
        assert (host.saturated, host.underflowed, host.norm) == tuple(totals)
        assert totals[0] or count < 3, "the third step saturates"
        beats = await host.dump(2 * k, pauses(["o"], [], stall=0.5, hold=40, seed=k)["o"])
        got = np.stack([unpack(beat, 16) for beat in beats]).reshape(k, 16).T
        np.testing.assert_array_equal(got[:classes], b)
        assert not got[10:].any()
        assert not host.errors and host.done == len(steps)

    simulate(dut, bench)


def test_a_logit_of_nothing_but_least_words_saturates_and_does_not_wrap():
    """64 products of the two least words are 2^44, which takes 46 bits."""
    dut = Head()
    b, h = np.full((2, 64), PARAMETER.lo), np.full((1, 64), ACTIVATION.lo)
    base, labels = np.zeros((1, 2), np.int64), np.zeros(1, np.int64)
    b[1] = 0
    operands = dict(v_mode=0, q=1, scale=4000, apply=0)

    async def bench(host):
        await host.load_b(b)
        await host.load_logits(base, 0)
        await host.load_labels(labels, 0)
        await host.load_h(h)
        await host.step(samples=1, k=64, classes=2, **operands)
        ref = head_step(h, base, labels, b, b * 0, **operands)
        np.testing.assert_array_equal(await host.read_dh(1, 64), ref.dh)
        assert await host.pull(host.dut.o_loss, 1) == [ref.loss | 1 << 64 | ref.correct << 96]

    simulate(dut, bench)


def test_the_next_step_waits_for_the_update_and_microbatches_add_up():
    rng = np.random.default_rng(3)
    samples, k, classes = 5, 8, 10
    dut = Head(max_taps=2, rows=8)
    b = PARAMETER.encode(rng.normal(0, 0.5, (classes, k)))
    batches = [problem(rng, samples, k, classes) for _ in range(2)]

    async def bench(host):
        await host.load_b(b)
        for half, (_, base, labels) in enumerate(batches):
            await host.load_logits(base, half)
            await host.load_labels(labels, half)
        common = dict(samples=samples, k=k, classes=classes, q=1, scale=4000)
        await host.load_h(batches[0][0])
        await host.step(**common, v_mode=0, apply=0, first=1, last=0, half=0)
        # h stays where it is: the second microbatch differs in logits and labels.
        _, waited = await host.step(**common, v_mode=1, apply=1, first=0, last=1, half=1)
        assert waited == dut.update_cycles(k, classes)
        one = head_step(*batches[0], b, b * 0, q=1, scale=4000, v_mode=0, apply=False)
        two = head_step(batches[0][0], *batches[1][1:], b, one.v, q=1, scale=4000, v_mode=1, apply=True)
        (beat,) = await host.pull(host.dut.o_loss, 1)
        assert beat == one.loss + two.loss | 2 * samples << 64 | one.correct + two.correct << 96
        beats = await host.dump(2 * k + 2)
        got = np.stack([unpack(beat, 16) for beat in beats]).reshape(-1, 16).T
        np.testing.assert_array_equal(got[:classes, :k], two.b)
        assert not got[:, k:].any(), "beyond the end of B there are zeros"

    simulate(dut, bench)


def test_done_waits_for_room_for_the_loss():
    dut = Head(max_taps=2, rows=4)
    operands = dict(samples=1, k=4, classes=2)

    async def bench(host):
        await host.load_b(np.zeros((2, 4), np.int64))
        await host.load_h(np.zeros((1, 4), np.int64))
        await host.load_logits(np.zeros((1, 2), np.int64), 0)
        await host.load_labels(np.zeros(1, np.int64), 0)
        for _ in range(4):
            cycles, _ = await host.step(**operands)
            assert cycles == dut.cycles(1, 4, 2)
        await host.offer(**operands)
        for _ in range(200):
            await host.tick()
        assert host.done == 4
        beats = await host.pull(dut.o_loss, 5)
        assert len(set(beats)) == 1 and abs((beats[0] & 0xFFFFFFFF) / 65536 - np.log(2)) < 2**-15
        assert host.done == 5

    simulate(dut, bench)


def test_bad_commands_are_refused_and_the_next_one_runs():
    dut = Head(max_taps=2, rows=4, max_classes=3)
    good = dict(samples=2, k=4, classes=3)
    bad = [dict(samples=0), dict(samples=5), dict(k=0), dict(k=6), dict(k=12), dict(classes=0), dict(classes=4)]

    async def bench(host):
        for change in bad:
            await host.offer(**good | change)
            for _ in range(4):
                await host.tick()
            assert host.errors == [Error.BAD_OPERAND] and not host.done and not host.ctx.get(dut.busy), change
            host.errors.clear()
        await host.offer(**good, opcode=7)
        for _ in range(4):
            await host.tick()
        assert host.errors == [Error.UNKNOWN_OPCODE]
        host.errors.clear()
        await host.load_labels(np.array([3, 2]), 0)
        await host.step(**good)
        assert host.errors == [Error.BAD_OPERAND] and host.done == 1, "a label that is no class"
        await host.idle()
        host.errors.clear()
        await host.write(dut.i_b, [dict(index=16, data=0)])
        await host.tick()
        assert host.errors == [Error.BAD_OPERAND]
        host.errors.clear()
        await host.load_labels(np.array([0, 2]), 0)
        await host.step(**good)
        assert not host.errors and host.done == 2
        # Its update goes on behind it.
        await host.write(dut.i_b, [dict(index=0, data=0)])
        await host.tick()
        assert host.errors == [Error.BAD_OPERAND]

    simulate(dut, bench)


@pytest.mark.parametrize("classes, k, stalls", [(10, 6, 0.0), (3, 2, 0.3), (1, 1, 0.3)])
def test_gradient_unit_is_the_reference_under_stalls(classes, k, stalls):
    rng = np.random.default_rng(classes)
    # More than the queue behind the unit has room for.
    samples = 12 if k > 1 else 30
    dut = LoraGradient(classes=classes, depth=k)
    h = rng.integers(-(1 << 23), 1 << 23, (samples, k))
    b = rng.integers(-(1 << 15), 1 << 15, (classes, k))
    d = rng.integers(-(1 << 17), 1 << 17, (samples, classes)) >> rng.choice([0, 8], (samples, 1))
    dh, _, _ = adapter_gradients(d, b, h)
    db = np.cumsum(d[:, :, None] * h[:, None, :], axis=0)
    beats = [
        dict(k=n, first=int(s == 0), h=int(h[s, n]), d=[int(x) for x in d[s]], b=[int(x) for x in b[:, n]])
        for s in range(samples)
        for n in range(k)
    ]
    found = EngineBench(component=dut).run(
        BenchLoad("i", beats), BenchStore("o", samples * k), stall=stalls, hold=4 * dut.latency if stalls else 0, seed=k
    )
    assert not found.left
    out = [(p.k, p.dh, *p.db) for p in found.words["o"]]
    cycles = [cycle - found.loaded["i"][0] for cycle in found.stored["o"]]
    expected = [(n, dh[s, n], *db[s, :, n]) for s in range(samples) for n in range(k)]
    assert [tuple(int(x) for x in o) for o in out] == [tuple(int(x) for x in e) for e in expected]
    if not stalls:
        assert cycles[0] == dut.latency
        assert cycles[-1] - cycles[0] == samples * k - 1, "one beat a cycle"


def test_reference_gradients_are_those_of_the_mathematics():
    """dB and dh by finite differences of the mean loss; the bounds are those of the formats."""
    rng = np.random.default_rng(1)
    samples, k, classes, q, rate = 20, 20, 10, 0, 0.05
    h, base, labels = problem(rng, samples, k, classes)
    b = PARAMETER.encode(rng.normal(0, 0.3, (classes, k)))
    scale = round(rate / samples * 2**24) & ((1 << 18) - 1)
    ref = head_step(h, base, labels, b, b * 0, q=q, scale=scale, v_mode=0, apply=True)

    def loss(h, b):
        z = h @ b.T + base / 65536
        z = z - z.max(axis=1, keepdims=True)
        return (np.log(np.exp(z).sum(axis=1)) - z[np.arange(samples), labels]).sum() * scale / 2**24

    hf, bf, eps = h / 65536, b / 4096, 1e-5
    for s, c, n in zip(rng.integers(0, samples, 20), rng.integers(0, classes, 20), rng.integers(0, k, 20)):
        up, down = bf.copy(), bf.copy()
        up[c, n] += eps
        down[c, n] -= eps
        slope = (loss(hf, up) - loss(hf, down)) / (2 * eps)
        # |d'| is off by 2**-15 of the scale and half a step, in each of the samples.
        bound = np.abs(hf[:, n]).sum() * (scale * 2**-39 + 2**-23) + 1e-9
        assert abs(ref.db[c, n] / 2**40 - slope) < bound
        up, down = hf.copy(), hf.copy()
        up[s, n] += eps
        down[s, n] -= eps
        slope = (loss(up, bf) - loss(down, bf)) / (2 * eps)
        bound = np.abs(bf[:, n]).sum() * (scale * 2**-39 + 2**-23) + 2**-23 + 1e-9
        assert abs(ref.dh[s, n] / 2**23 - slope) < bound


def test_reference_is_fast_enough_to_train_with():
    rng = np.random.default_rng(0)
    h, base, labels = problem(rng, 20, 20, 10)
    b = PARAMETER.encode(rng.normal(0, 0.3, (10, 20)))
    best = np.inf
    for _ in range(20):
        start = time.perf_counter()
        head_step(h, base, labels, b, b * 0, q=0, scale=41943, v_mode=0, apply=True)
        best = min(best, time.perf_counter() - start)
    assert best < 2e-3


@pytest.mark.parametrize("bad", [dict(rows=33), dict(rank=0), dict(max_taps=65), dict(max_classes=17)])
def test_head_refuses_what_it_cannot_do(bad):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Amaranth misses a component that was refused
        with pytest.raises(ValueError, match=next(iter(bad))):
            Head(**bad)
        gc.collect()


@pytest.mark.parametrize("port, room, arg", [("load_b", 24, 0), ("load_labels", 2, 1)])
def test_beats_beyond_the_room_are_refused_up_to_the_last(port, room, arg):
    """A load of all that has room is taken, whatever came before it; of a longer one each beat without room is told."""
    dut = HeadUnit(SPEC, ImageConfig(taps=3, panels=4))
    told = []

    async def bench(ctx):
        load = getattr(dut, port)
        for length in (room, room + 3, room, 1, room):
            for index in range(length):
                if index == 1:
                    # Nothing comes between: what lies on the wires then does not count.
                    ctx.set(load.beats.valid, 0)
                    ctx.set(load.beats.p.index, room - 1)
                    await ctx.tick()
                ctx.set(load.beats.p, {"index": index, "last": index == length - 1, "arg": arg, "data": 0})
                ctx.set(load.beats.valid, 1)
                told.append(ctx.get(load.refuse))
                await ctx.tick()
        ctx.set(load.beats.p.arg, 2)
        told.append(ctx.get(load.refuse))

    play(dut, bench)
    full = [0] * room
    assert told == [*full, *full, 1, 1, 1, *full, 0, *full, port == "load_labels"]


@pytest.mark.parametrize("classes", [2, 5])
def test_slices_are_counted_for_each_multiplier(classes):
    """Products of a few bits are places in memories, by powers of two."""
    config = ImageConfig(classes=classes)
    cells = re.findall(r"cell \$mul .*?\n\s*end\n", rtlil.convert(HeadUnit(SPEC, config)), re.DOTALL)
    widths = [[int(each) for each in re.findall(r"[AB]_WIDTH (\d+)", cell)] for cell in cells]
    assert HeadParameters.resources(config).dsp == {"head": sum(min(each) > 8 for each in widths)}
