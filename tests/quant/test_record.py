"""A packed tensor is the reference's record."""
import numpy as np
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from gradloom.rtl.quant.encoder import NF4Encoder
from gradloom.rtl.quant.record import RecordPacker
from gradloom.sim.reference.quant import (
    decode_fixed,
    encode_fixed,
    pack_record,
    record_beats,
    unpack_record,
)


def blocks(codes, scales, block):
    packed = (codes[..., ::2] << 4 | codes[..., 1::2]).reshape(len(scales), block // 2)
    return [{"codes": int.from_bytes(p.tobytes(), "little"), "scale": int(s), "last": n == len(scales) - 1}
            for n, (p, s) in enumerate(zip(packed, scales))]


def random_tensor(rng, count, block):
    return rng.integers(0, 16, count * block, np.uint8), rng.integers(0, 1 << 16, count, np.uint16)


def read(payload):
    return payload.data, payload.last


def expected(tensors):
    out = []
    for tensor in tensors:
        beats = pack_record([tensor]).reshape(-1, 16)
        out += [(int.from_bytes(b.tobytes(), "little"), int(n == len(beats) - 1))
                for n, b in enumerate(beats)]
    return out


@pytest.mark.parametrize("block, max_blocks", [(64, 256), (32, 16), (128, 16)])
@pytest.mark.parametrize("stall", [0, 0.4])
def test_packer_is_the_reference(run_stream, block, max_blocks, stall):
    rng = np.random.default_rng(8)
    tensors = [random_tensor(rng, n, block) for n in (1, 7, 8, 9, 16, 2, 15)]
    want = expected(tensors)
    got, _ = run_stream(RecordPacker(block=block, max_blocks=max_blocks),
                        [b for t in tensors for b in blocks(*t, block)], len(want), read, stall=stall)
    assert got == want


def test_packer_holds_256_blocks_at_a_beat_a_cycle(run_stream):
    tensor = random_tensor(np.random.default_rng(9), 256, 64)
    unit = RecordPacker()
    got, at = run_stream(unit, blocks(*tensor, 64), unit.cycles(256), read, stall=0)
    assert got == expected([tensor])
    assert at == [*range(512), *range(513, 545)]


def test_overflow_marks_a_block_too_many(run_stream):
    rng = np.random.default_rng(9)
    unit, seen = RecordPacker(max_blocks=8), []

    async def bench(ctx):
        ctx.set(unit.o.ready, 1)
        for payload in blocks(*random_tensor(rng, 9, 64), 64):
            ctx.set(unit.i.payload, payload)
            ctx.set(unit.i.valid, 1)
            over, = await ctx.tick().sample(unit.overflow).until(unit.i.ready)
            seen.append(over)

    sim = Simulator(unit)
    sim.add_clock(1e-6)
    sim.add_testbench(bench)
    sim.run()
    assert seen == [0] * 8 + [1]


class Chain(wiring.Component):
    """Encoder and packer, as a tap's activations pass them."""

    def __init__(self, lanes):
        self.encoder, self.packer = NF4Encoder(lanes=lanes), RecordPacker()
        super().__init__({"i": In(self.encoder.i.signature.flip()), "o": Out(self.packer.o.signature)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.encoder, m.submodules.packer = self.encoder, self.packer
        wiring.connect(m, wiring.flipped(self.i), self.encoder.i)
        wiring.connect(m, self.encoder.o, self.packer.i)
        wiring.connect(m, self.packer.o, wiring.flipped(self.o))
        return m


def quads(x):
    return [{"x": [int(v) for v in x[n:n + 4]], "last": n + 4 == len(x)} for n in range(0, len(x), 4)]


@pytest.mark.parametrize("stall", [0, 0.3])
def test_activations_become_the_record(run_stream, stall):
    rng = np.random.default_rng(12)
    xs = [rng.integers(-1 << 20, 1 << 20, n) for n in (84, 600, 120, 4)]
    want = expected([encode_fixed(x) for x in xs])
    beats = [beat for x in xs for beat in quads(x)]
    assert run_stream(Chain(4), beats, len(want), read, stall=stall)[0] == want


def test_packer_does_not_slow_the_encoder(run_stream):
    x = np.random.default_rng(13).integers(-1000, 1000, 64 * 20)
    unit = Chain(4)
    _, at = run_stream(unit, quads(x), 43, read, stall=0)
    assert at[:40:2] == [unit.encoder.latency + n * unit.encoder.beats for n in range(20)]


@pytest.mark.parametrize("make, message", [
    (lambda: RecordPacker(block=48), "block=48"), (lambda: RecordPacker(max_blocks=12), "max_blocks=12")])
def test_bad_parameter_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_record_unpacks_to_what_was_packed():
    rng = np.random.default_rng(1)
    sizes, samples = [784, 1176, 120, 84], 3
    taps = [encode_fixed(rng.integers(-(1 << 20), 1 << 20, (samples, n))) for n in sizes]
    logits = rng.integers(-(1 << 23), 1 << 23, (samples, 10))
    record = pack_record(taps, logits)
    assert record.shape == (samples, 16 * (sum(map(record_beats, sizes)) + 3))
    back, got = unpack_record(record, sizes, 10)
    np.testing.assert_array_equal(got, logits)
    for (codes, scales), (want, want_scales), n in zip(back, taps, sizes):
        np.testing.assert_array_equal(codes, want[:, :n])
        np.testing.assert_array_equal(scales, want_scales)
        np.testing.assert_array_equal(decode_fixed(codes, scales), decode_fixed(want, want_scales)[:, :n])
    with pytest.raises(ValueError, match="record="):
        unpack_record(record[:, 1:], sizes, 10)
