"""Adapter passes and layers of a small engine, against the integer references."""

# amaranth: UnusedElaboratable=no
import numpy as np
import pytest
from amaranth.hdl import Module, Signal

from gradloom.rtl.engines.array.commands import ArrayOpcode, ConvolveOperands, DenseOperands, PassOperands
from gradloom.rtl.engines.array.engine import ArrayEngine
from gradloom.rtl.formats.codebook import pack_nibbles
from gradloom.sim.bench.engine import simulate
from gradloom.sim.reference import array
from gradloom.sim.reference.array import hidden
from gradloom.sim.reference.encode import decode_fixed, decode_int8, encode_fixed, encode_int8
from gradloom.sim.reference.optimizer import optimize

from .small import CONFIG


def packed(layout, values):
    return sum((int(value) & ((1 << layout[name].width) - 1)) << layout[name].offset for name, value in values.items())


class Machine:
    """An engine under a simulated clock: writes memories, gives commands, and records h."""

    def __init__(self, config=CONFIG):
        self.config = config
        self.dut = dut = ArrayEngine(config)
        self.h = {}
        self.dh = {}
        m = Module()
        m.submodules.dut = dut
        self.done = Signal(8)
        m.d.sync += self.done.eq(self.done + dut.engine.done)
        self.module = m

    def run(self, script):
        dut, config = self.dut, self.config

        async def give_dh(ctx):
            while True:
                key = ctx.get(dut.dh.tap), ctx.get(dut.dh.sample)
                await ctx.tick()
                ctx.set(dut.dh_data, self.dh.get(key, [0] * config.rank))

        async def take_h(ctx):
            async for _ in ctx.tick():
                if ctx.get(dut.h.valid):
                    self.h[ctx.get(dut.h.tap), ctx.get(dut.h.sample)] = [
                        ctx.get(dut.h.h[k]) for k in range(config.rank)
                    ]

        simulate(self.module, script, background=(give_dh, take_h))

    async def write(self, ctx, port, words, *, at=0, **fields):
        for n, word in enumerate(words):
            ctx.set(port, {"valid": 1, "address": at + n, "data": int(word), **fields})
            await ctx.tick()
        ctx.set(port.valid, 0)
        await ctx.tick()

    async def command(self, ctx, opcode, layout, **operands):
        dut = self.dut
        ctx.set(dut.engine.command.p, {"opcode": opcode, "args": packed(layout, operands)})
        ctx.set(dut.engine.command.valid, 1)
        await ctx.tick().until(dut.engine.command.ready)
        ctx.set(dut.engine.command.valid, 0)

    async def finish(self, ctx, count):
        for _ in range(5000):
            if ctx.get(self.done) == count:
                return
            await ctx.tick()
        raise AssertionError(f"{ctx.get(self.done)} of {count} commands are done")

    async def dense_words(self, ctx, row, start, count):
        """Elements of a row's dense activations."""
        dut, words = self.dut, []
        for n in range(count):
            ctx.set(dut.peek, {"valid": 1, "row": row, "address": start + n})
            await ctx.tick()
            ctx.set(dut.peek.valid, 0)
            while not ctx.get(dut.peek_arrives):
                await ctx.tick()
            words.append(ctx.get(dut.peek_data))
            await ctx.tick()
        return words


def word(elements, bits):
    return sum((int(e) & ((1 << bits) - 1)) << (bits * n) for n, e in enumerate(elements))


def lane_words(a, panels):
    """A [rank, n] as the lanes hold it: column panel * rank + k of word j is A[k, panels * j + panel]."""
    a = np.pad(a, ((0, 0), (0, -a.shape[1] % panels)))
    return a.reshape(len(a), -1, panels).transpose(1, 2, 0).reshape(a.shape[1] // panels, -1)


def code_words(codes, wide):
    """A sample's codes as its bank holds them: of each block of 8-bit codes the high nibbles, then the low ones."""
    if wide:
        blocks = codes.reshape(-1, 64)
        codes = np.stack([blocks >> 4, blocks & 15], axis=1).ravel()
    raw = pack_nibbles(codes).tobytes()
    return [int.from_bytes(raw[n : n + 16], "little") for n in range(0, len(raw), 16)]


@pytest.mark.parametrize("wide", [(0, 0, 0), (1, 1, 1), (0, 1, 0), (1, 0, 1)], ids=str)
def test_passes_are_adapters_forward_and_backward(wide):
    config, machine, rng = CONFIG, Machine(), np.random.default_rng(0)
    sizes, samples, q, mu = [100, 64, 20], 4, 1, 58982
    x = [np.clip(np.rint(rng.normal(0, 65536, (samples, n))), -1 << 23, (1 << 23) - 1).astype(int) for n in sizes]
    cached = [(encode_int8 if w else encode_fixed)(v) for v, w in zip(x, wide)]
    decoded = [
        (decode_int8 if w else decode_fixed)(codes, scales)[:, :n] for (codes, scales), n, w in zip(cached, sizes, wide)
    ]
    a = [rng.integers(-3000, 3000, (config.rank, n)) for n in sizes]
    machine.dh = {
        (t, s): rng.integers(-1 << 15, 1 << 15, config.rank).tolist() for t in range(3) for s in range(samples)
    }
    lanes = np.cumsum([0] + [-(-n // config.panels) for n in sizes])
    banks = np.cumsum([0] + [-(-n // 64) for n in sizes])
    learnt = []

    async def script(ctx):
        dut = machine.dut
        for t in range(3):
            words = [word(w, 16) for w in lane_words(a[t], config.panels)]
            await machine.write(ctx, dut.lanes, words, at=int(lanes[t]))
            codes, scales = cached[t]
            for s in range(samples):
                await machine.write(ctx, dut.codes, code_words(codes[s], wide[t]), at=4 * int(banks[t]), row=s)
                await machine.write(ctx, dut.scales, scales[s], at=int(banks[t]), row=s)
        for opcode in (ArrayOpcode.FORWARD, ArrayOpcode.GRADIENT):
            for t in range(3):
                await machine.command(
                    ctx,
                    opcode,
                    PassOperands,
                    elements=sizes[t],
                    tap=t,
                    samples=samples,
                    bank=4 * banks[t],
                    scale=banks[t],
                    wide=wide[t],
                    book=2 * wide[t],
                    lane=lanes[t],
                    q=q,
                    apply=1,
                    mu=mu,
                )
            # Programs wait too: dh follows from h.
            await machine.finish(ctx, 3 if opcode == ArrayOpcode.FORWARD else 6)
        for t in range(3):
            for n in range(lanes[t], lanes[t + 1]):
                ctx.set(dut.dump, {"valid": 1, "address": int(n)})
                await ctx.tick().repeat(2)
                learnt.append([ctx.get(dut.words[c]) for c in range(config.columns)])

    machine.run(script)
    expected = []
    for t in range(3):
        h, _ = hidden(decoded[t], a[t])
        assert [machine.h[t, s] for s in range(samples)] == h.tolist()
        gradient = np.array([machine.dh[t, s] for s in range(samples)]).T @ decoded[t]
        new = optimize(a[t], np.zeros_like(a[t]), gradient, q=q, v_mode=0, apply=True, mu=mu, offset=9).w
        assert (new != a[t]).mean() > 0.5
        expected += lane_words(new, config.panels).tolist()
    assert learnt == expected


def test_a_dense_command_is_a_dense_layer_of_what_a_convolution_left():
    relu = True
    config, machine, rng = CONFIG, Machine(), np.random.default_rng(3)
    outputs = config.columns
    image = rng.integers(-1 << 18, 1 << 18, (1, 1, 4, 5))
    kernel = rng.integers(-1 << 14, 1 << 14, (outputs, 1, 2, 2))
    biases = rng.integers(-1 << 18, 1 << 18, (2, outputs))
    maps, _ = array.conv_layer(image, kernel, biases[0], relu=relu)
    _, _, height, width = maps.shape
    # A position's channels lie side by side.
    flat = maps.transpose(0, 2, 3, 1).reshape(1, -1)
    inputs = flat.shape[1]
    matrix = rng.integers(-1 << 12, 1 << 12, (outputs, inputs))
    expected, _ = array.dense_layer(flat, matrix, biases[1], relu=relu)
    found = {}

    async def script(ctx):
        dut = machine.dut
        pixels = image.reshape(-1, 4)
        await machine.write(ctx, dut.image, [word(p, 32) for p in pixels])
        await machine.write(ctx, dut.biases, [word(b, 32) for b in biases])
        await machine.write(ctx, dut.weights, [word(w, 16) for w in kernel.reshape(outputs, -1).T])
        await machine.write(ctx, dut.weights, [word(w, 16) for w in matrix.T], at=16)
        await machine.command(
            ctx,
            ArrayOpcode.CONVOLVE,
            ConvolveOperands,
            height=4,
            width=5,
            channels=1,
            pool=1,
            relu=relu,
            to_dense=1,
            kernel_h=2,
            kernel_w=2,
            stride_h=1,
            stride_w=1,
            outputs=outputs,
            weights=0,
            bias=0,
            target=0,
            row=2,
            out_height=height,
            out_width=width,
            stride=outputs,
        )
        await machine.finish(ctx, 1)
        found["maps"] = await machine.dense_words(ctx, 2, 0, inputs)
        await machine.command(
            ctx,
            ArrayOpcode.DENSE,
            DenseOperands,
            inputs=inputs,
            samples=3,
            relu=relu,
            outputs=outputs,
            target=inputs,
            weights=16,
            bias=1,
            **{"from": 0},
        )
        await machine.finish(ctx, 2)
        found["dense"] = await machine.dense_words(ctx, 2, inputs, outputs)

    machine.run(script)
    assert found == {"maps": flat[0].tolist(), "dense": expected[0].tolist()}
