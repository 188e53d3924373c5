"""The vector engine: RTL equals the reference word for word."""

import numpy as np
import pytest

from gradloom.rtl.engines.vector.engine import VectorEngine
from gradloom.rtl.formats.vector import GATES, TERM, VectorOpcode
from gradloom.rtl.formats.weights.linear import ACTIVATION, WEIGHT
from gradloom.rtl.shell.registers.errors import Error
from gradloom.sim.bench.engine import LEAD
from gradloom.sim.reference import vector as reference

LANES = 4
ROW = 16
SHAPE = (5, 48)
#: Longer than the engine's queues of results are deep, and than operands take to fill them.
HOLD = 150


def make(lanes=LANES):
    return VectorEngine(lanes=lanes, tokens=8, features=128, head=32, gelu=True)


def words(rng, shape, width=ACTIVATION.width):
    """Of every size, both ends among them."""
    value = rng.integers(-1 << (width - 1), 1 << (width - 1), shape) >> rng.integers(0, width, shape)
    ends = rng.random(shape)
    return np.where(ends < 0.02, -1 << (width - 1), np.where(ends > 0.98, (1 << (width - 1)) - 1, value))


def same(found, **expected):
    for name, tensor in expected.items():
        np.testing.assert_array_equal(found[name], tensor.words, err_msg=name)
        assert found["magnitude"][name] == tensor.magnitude, name
    assert found["saturated"] == sum(tensor.saturated for tensor in expected.values())


@pytest.mark.parametrize("stall", [0.4])
def test_swiglu(vector_bench, stall):
    rng = np.random.default_rng(1)
    gate, up, dy = (words(rng, SHAPE) for _ in range(3))
    commands, expected = [], []
    for gate_shift, shift, kind in ((15, 24, "silu"), (16, 24, "gelu_tanh"), (3, 30, "gelu_tanh"), (30, 20, "silu")):
        gate_of = {"gate": gate_shift, "causal": kind == "gelu_tanh"}
        forward = {"left": 22, "shift": shift}
        backward = {"left": 22, "right": 23, "shift": shift, "second_shift": shift + 2}
        commands += [
            (VectorOpcode.SWIGLU, forward | gate_of, {"a": gate, "b": up}, {"o": SHAPE}),
            (VectorOpcode.SWIGLU_BACKWARD, backward | gate_of, {"a": gate, "b": dy, "c": up}, {"o": SHAPE, "q": SHAPE}),
        ]
        expected += [
            (reference.swiglu(gate, up, GATES[kind], gate_shift=gate_shift, **forward),),
            reference.swiglu_backward(dy, gate, up, GATES[kind], gate_shift=gate_shift, **backward),
        ]
    for got, tensors in zip(vector_bench(make(), ROW)(commands, stall=stall), expected):
        same(got, **dict(zip("oq", tensors)))
    assert any(tensor.saturated for tensors in expected for tensor in tensors)


@pytest.mark.parametrize("stall, row", [(0.0, 16), (0.2, 48)])
def test_norm(vector_bench, stall, row):
    rng = np.random.default_rng(2)
    x, dy = words(rng, SHAPE, TERM.width), words(rng, SHAPE)
    x[1] >>= 18
    x[2], dy[3] = 0, 0
    weight, residual = words(rng, (1, SHAPE[1]), WEIGHT.width), words(rng, SHAPE, TERM.width)
    eps = {"eps": 5, "eps_shift": 3}
    root = reference.roots(x, **eps)
    along = reference.backward_roots(dy, x, weight[0], right=18, **eps)
    gain = {"right": 18, "shift": -3, "second_shift": 19}
    near, far = ({"right": 18, "shift": -3, "left": left, "second_shift": by} for left, by in ((4, 0), (7, 3)))
    found = vector_bench(make(), row)(
        [
            (VectorOpcode.WEIGHTS, {}, {"a": weight}, {}),
            (VectorOpcode.NORM_SUMS, {"left": 7} | eps, {"a": x}, {}),
            (VectorOpcode.NORM, {"shift": 16}, {"a": x}, {"o": SHAPE}),
            (VectorOpcode.NORM_BACKWARD_SUMS, {"left": 7, "right": 18} | eps, {"a": x, "b": dy}, {}),
            (VectorOpcode.NORM_BACKWARD, {"left": 18, "shift": -3}, {"a": x, "b": dy}, {"o": SHAPE}),
            (VectorOpcode.NORM_BACKWARD_GAIN, gain, {"a": x, "b": dy}, {"o": SHAPE, "q": SHAPE}),
            *(
                (VectorOpcode.NORM_BACKWARD_ADD, each, {"a": x, "b": dy, "c": residual}, {"o": SHAPE})
                for each in (near, far)
            ),
            (VectorOpcode.NORM_SUMS, {"left": 7, "eps": 0}, {"a": x[:1]}, {}),
            (VectorOpcode.NORM, {"shift": 20}, {"a": x[:1]}, {"o": (1, SHAPE[1])}),
        ],
        stall=stall,
    )
    assert found[3]["saturated"] == along.saturated > 0
    same(found[2], o=reference.rms_norm(x, weight[0], root, shift=16))
    same(found[4], o=reference.rms_norm_backward(dy, x, weight[0], along, left=18, shift=-3))
    u = reference.rms_norm_gain(dy, x, along, shift=19)
    assert u.saturated
    same(found[5], o=reference.rms_norm_backward(dy, x, weight[0], along, left=18, shift=-3), q=u)
    for got, each in zip(found[6:8], (near, far)):
        made = reference.rms_norm_backward_add(dy, x, weight[0], along, residual, **each)
        assert made.saturated
        same(got, o=made)
    same(found[9], o=reference.rms_norm(x[:1], weight[0], reference.roots(x[:1]), shift=20))


def test_the_longest_rows_of_largest_words_leave_their_sums_room(vector_bench):
    """4,096 products of 2**48 each, of one sign, of the other, and of both."""
    shape, least = (3, 4096), -1 << (TERM.width - 1)
    x, dy = np.full(shape, least), np.full(shape, -1 << (ACTIVATION.width - 1))
    dy[1] = ~dy[0]
    dy[2, ::2] = 0
    weight = np.full((1, 4096), (1 << (WEIGHT.width - 1)) - 1)
    eps = {"eps": 0xFFFF, "eps_shift": 44}
    along = reference.backward_roots(dy, x, weight[0], right=16, **eps)
    forward, backward = {"shift": 16}, {"left": 18, "shift": -3}
    found = vector_bench(VectorEngine(lanes=16, tokens=4, features=4096, head=32), 64)(
        [
            (VectorOpcode.WEIGHTS, {}, {"a": weight}, {}),
            (VectorOpcode.NORM_SUMS, {"left": 7} | eps, {"a": x}, {}),
            (VectorOpcode.NORM, forward, {"a": x}, {"o": shape}),
            (VectorOpcode.NORM_BACKWARD_SUMS, {"left": 7, "right": 16} | eps, {"a": x, "b": dy}, {}),
            (VectorOpcode.NORM_BACKWARD, backward, {"a": x, "b": dy}, {"o": shape}),
        ]
    )
    same(found[2], o=reference.rms_norm(x, weight[0], reference.roots(x, **eps), **forward))
    same(found[4], o=reference.rms_norm_backward(dy, x, weight[0], along, **backward))
    assert np.any(found[4]["o"])


@pytest.mark.parametrize("stall, row, hold", [(0.4, 8, 0), (0.2, 48, HOLD)])
def test_scale(vector_bench, stall, row, hold):
    rng = np.random.default_rng(7)
    shape = (8, 96)
    x, dy, one = words(rng, shape, TERM.width), words(rng, shape), words(rng, (1, shape[1]), TERM.width)
    factors = words(rng, (1, shape[1]), WEIGHT.width)
    forward, backward = {"left": 7, "shift": 17}, {"left": 8, "right": 6, "shift": 15, "second_shift": 22}
    found = vector_bench(make(), row)(
        [
            (VectorOpcode.WEIGHTS, {}, {"a": factors}, {}),
            (VectorOpcode.SCALE, forward, {"a": x}, {"o": shape}),
            (VectorOpcode.SCALE_BACKWARD, backward, {"a": x, "b": dy}, {"o": shape, "q": shape}),
            (VectorOpcode.SCALE, forward, {"a": one}, {"o": one.shape}),
        ],
        stall=stall,
        **({"hold": hold} if hold else {}),
    )
    same(found[1], o=reference.scale(x, factors, **forward))
    dx, u = reference.scale_backward(dy, x, factors, **backward)
    assert dx.saturated and u.saturated
    same(found[2], o=dx, q=u)
    same(found[3], o=reference.scale(one, factors, **forward))


@pytest.mark.parametrize("stall", [0.0, 0.4])
def test_add_and_rope(vector_bench, stall):
    rng = np.random.default_rng(3)
    a, b = words(rng, SHAPE), words(rng, SHAPE)
    heads = SHAPE[1] // ROW
    angle = rng.uniform(0, 7, (SHAPE[0], heads, ROW // 2))
    cos, sin = (np.rint(f(angle) * 65536).astype(np.int64) for f in (np.cos, np.sin))
    angles = np.concatenate([cos, sin], axis=-1).reshape(SHAPE)
    x = a.reshape(*SHAPE[:1], heads, ROW)
    shifts = [{"left": 7, "right": 12}, {"left": 4, "right": 50}, {"left": 20, "right": 0}]
    commands = [(VectorOpcode.ADD, each, {"a": a, "b": b}, {"o": SHAPE}) for each in shifts]
    expected = [reference.add(a, b, **each) for each in shifts]
    for turn in (False, True):
        operands = {"left": 23, "right": 23, "shift": 0}
        commands.append((VectorOpcode.ROPE, operands | {"turn": int(turn)}, {"a": a, "b": angles}, {"o": SHAPE}))
        y = reference.rope(x, cos, sin, turn=turn, **operands)
        expected.append(
            reference.VectorTensor(words=y.words.reshape(SHAPE), saturated=y.saturated, magnitude=y.magnitude)
        )
    wide = [words(rng, SHAPE, TERM.width) for _ in range(2)]
    shift = {"left": 9, "right": 8}
    commands += [commands[0], (VectorOpcode.ADD, shift | {"wide": 1}, dict(zip("ab", wide)), {"o": SHAPE})]
    expected += [expected[0], reference.add(*wide, **shift, wide=True)]
    assert np.abs(expected[-1].words).max() > ACTIVATION.hi + 1
    for got, tensor in zip(vector_bench(make(), ROW)(commands, stall=stall), expected, strict=True):
        same(got, o=tensor)


def test_a_beat_a_cycle_and_the_latency(vector_bench):
    rng = np.random.default_rng(4)
    shape = (8, 96)
    tensors = {name: words(rng, shape) for name in "abc"}
    a, b = ({key: tensors[key] for key in keys} for keys in ("a", "ab"))
    bench = vector_bench(make(), ROW)
    cases = [
        (VectorOpcode.SWIGLU, b, "o", 1),
        (VectorOpcode.ADD, b, "o", 1),
        (VectorOpcode.ROPE, b, "o", 1),
        (VectorOpcode.SWIGLU_BACKWARD, tensors, "oq", 2),
    ]
    found = bench(
        [(opcode, {"left": 7}, inputs, dict.fromkeys(outputs, shape)) for opcode, inputs, outputs, _ in cases]
        + [(VectorOpcode.NORM, {}, a, {"o": shape})]
    )
    for (opcode, _, outputs, pace), got in zip([*cases, (VectorOpcode.NORM, a, "o", 1)], found):
        for name in outputs:
            assert set(np.diff(got["times"][name])) == {pace}, opcode
        if opcode is not VectorOpcode.ROPE:
            start = got["taken"]["a"][0]
            assert got["times"]["o"][0] - start == VectorEngine.latency, opcode


def test_results_that_are_held_are_not_lost(vector_bench):
    """Of both outputs more results than their queues have room for, and one output while the other leaves."""
    rng = np.random.default_rng(5)
    shape = 8, 48
    gate, up, dy = (words(rng, shape) for _ in range(3))
    assert gate.size // LANES > make().depth + 4 * LEAD
    gated = {"left": 22, "right": 23, "shift": 24, "second_shift": 26}
    operands, results = {"a": gate, "b": dy, "c": up}, {"o": shape, "q": shape}
    both, gelu = (
        (VectorOpcode.SWIGLU_BACKWARD, gated | {"gate": 15, "causal": which}, operands, results) for which in (0, 1)
    )
    last = VectorOpcode.ADD, {"left": 7, "right": 12}, {"a": gate, "b": up}, {"o": shape}
    weight, moved = words(rng, (1, shape[1]), WEIGHT.width), {"right": 18, "shift": -3, "left": 7, "second_shift": 1}
    norm = [
        (VectorOpcode.WEIGHTS, {}, {"a": weight}, {}),
        (VectorOpcode.NORM_BACKWARD_SUMS, {"left": 7, "right": 18}, {"a": gate, "b": dy}, {}),
        (VectorOpcode.NORM_BACKWARD_ADD, moved, {"a": gate, "b": dy, "c": up}, {"o": shape}),
    ]
    found = vector_bench(make(), ROW)([both, gelu, both, last, *norm], hold=HOLD)
    for each, kind in zip(found, ("silu", "gelu_tanh", "silu")):
        made = reference.swiglu_backward(dy, gate, up, GATES[kind], gate_shift=15, **gated)
        same(each, **dict(zip("oq", made)))
    same(found[3], o=reference.add(gate, up, left=7, right=12))
    # A beat may wait for room between its two cycles.
    root = reference.backward_roots(dy, gate, weight[0], right=18)
    same(found[6], o=reference.rms_norm_backward_add(dy, gate, weight[0], root, up, **moved))


@pytest.mark.parametrize("lanes", [2, 8])
def test_beats_of_other_widths(vector_bench, lanes):
    rng = np.random.default_rng(lanes)
    shape = (3, 32)
    x, dy, weight = words(rng, shape), words(rng, shape) >> 2, words(rng, (1, shape[1]), WEIGHT.width)
    along = reference.backward_roots(dy, x, weight[0], right=22)
    gated = {"gate_shift": 12, "left": 22, "shift": 24}
    found = vector_bench(make(lanes), ROW)(
        [
            (VectorOpcode.WEIGHTS, {}, {"a": weight}, {}),
            (VectorOpcode.NORM_BACKWARD_SUMS, {"left": 7, "right": 22}, {"a": x, "b": dy}, {}),
            (VectorOpcode.NORM_BACKWARD, {"left": 22, "shift": 0}, {"a": x, "b": dy}, {"o": shape}),
            (VectorOpcode.SWIGLU, {"gate": 12, "left": 22, "shift": 24}, {"a": x, "b": dy}, {"o": shape}),
        ],
        stall=0.2,
    )
    same(found[2], o=reference.rms_norm_backward(dy, x, weight[0], along, left=22, shift=0))
    same(found[3], o=reference.swiglu(x, dy, **gated))


@pytest.mark.parametrize(
    "opcode, operands",
    [
        (VectorOpcode.ADD, {"row": 0}),
        (VectorOpcode.ADD, {"tiles": 0}),
        (VectorOpcode.ADD, {"tokens": 0}),
        (VectorOpcode.NORM, {"row": 1}),
        (VectorOpcode.NORM, {"tokens": 9}),
        (VectorOpcode.NORM_SUMS, {"tiles": 9}),
        (VectorOpcode.NORM_SUMS, {"eps_shift": 45}),
        (VectorOpcode.NORM_BACKWARD_GAIN, {"row": 1}),
        (VectorOpcode.NORM_BACKWARD_GAIN, {"tokens": 9}),
        (VectorOpcode.NORM_BACKWARD_ADD, {"row": 1}),
        (VectorOpcode.NORM_BACKWARD_ADD, {"tiles": 9}),
        (VectorOpcode.SCALE, {"tiles": 9}),
        (VectorOpcode.SCALE_BACKWARD, {"row": 0}),
        (VectorOpcode.SCALE_BACKWARD, {"tokens": 0}),
        (VectorOpcode.WEIGHTS, {"row": 511, "tiles": 1000}),
        (VectorOpcode.ROPE, {"row": 1}),
        (VectorOpcode.ROPE, {"row": 3}),
        (VectorOpcode.ROPE, {"row": 32}),
    ],
    ids=str,
)
def test_an_operand_out_of_bounds_is_refused(vector_bench, opcode, operands):
    vector_bench(make(2), ROW)([(opcode, operands, {"a": np.zeros(SHAPE, int)}, {})], error=Error.BAD_OPERAND)


def test_an_unknown_opcode_is_refused(vector_bench):
    vector_bench(make(2), ROW)([(len(VectorOpcode), {}, {"a": np.zeros(SHAPE, int)}, {})], error=Error.UNKNOWN_OPCODE)


@pytest.mark.parametrize("parameter", [{"lanes": 3}, {"lanes": 32}, {"tokens": 1}, {"features": 8192}, {"head": 2}])
def test_a_parameter_out_of_bounds_is_refused(parameter):
    with pytest.raises(ValueError, match=next(iter(parameter))):
        VectorEngine(**parameter)


def test_rope_of_a_head_of_two_beats_and_of_one_that_fills_its_memory(vector_bench):
    rng = np.random.default_rng(6)
    for row in (8, 32):
        shape = (3, 64)
        x, angles = words(rng, shape), words(rng, shape, WEIGHT.width) >> 1
        pairs = angles.reshape(3, 64 // row, row)
        operands = {"left": 23, "right": 23, "shift": 0}
        y = reference.rope(x.reshape(pairs.shape), pairs[..., : row // 2], pairs[..., row // 2 :], **operands)
        command = (VectorOpcode.ROPE, operands, {"a": x, "b": angles}, {"o": shape})
        found = vector_bench(make(), row)([command], stall=0.2)
        np.testing.assert_array_equal(found[0]["o"], y.words.reshape(shape))
