"""A softmax in the vector engine: RTL equals the reference word for word."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradloom.rtl.engines.vector.engine import VectorEngine
from gradloom.rtl.formats.vector import AIM, ELEMENTS, PROBABILITY_FRAC, PULLED, TERM, LossWord, VectorOpcode
from gradloom.rtl.shell.registers.errors import Error
from gradloom.sim.reference import vector_softmax as reference

from ...deep import deep

LANES = 4


def make(lanes=LANES):
    return VectorEngine(lanes=lanes, tokens=8, features=128, head=32)


def scores(rng, shape, gate, spread):
    """Words of which t spreads so far, with rows that rise, that fall, and that are all alike."""
    t = rng.normal(size=shape) * spread
    for n, row in enumerate(t):
        t[n] = (row, np.sort(row), -np.sort(-row), row[0])[n % 4]
    limit = (1 << (TERM.width - 1)) - 1
    return np.clip(np.rint(t * 2.0 ** (gate + 8)), -limit, limit).astype(np.int64)


def targets_of(rng, tokens, elements, lanes):
    """``(a word a token, the indices that the reference knows)``: some tokens have none, one's is in no row."""
    index = rng.integers(0, elements, tokens)
    index[rng.random(tokens) < 0.25] = -1
    if tokens > 2:
        index[1] = elements + 1
    words = np.where(index < 0, rng.choice([-1, -1 << 31, 1 << AIM, (1 << AIM) - 1], tokens), index)
    return np.concatenate([words, np.zeros(-tokens % lanes, np.int64)])[None], index


def same(found, tensor):
    np.testing.assert_array_equal(found["o"], tensor.words)
    assert found["magnitude"]["o"] == tensor.magnitude and found["saturated"] == tensor.saturated


def check(bench, rng, *, lanes, row, tokens, tiles, gate, spread, limit, causal, aim, stall):
    shape = tokens, tiles * row
    s, p, dp = scores(rng, shape, gate, spread), rng.integers(0, 1 << 22, shape), rng.integers(-1 << 23, 1 << 23, shape)
    p >>= rng.integers(0, 22, shape)
    masks = {"limit": limit, "causal": causal}
    operands = masks | {"gate": gate}
    words, targets = targets_of(rng, tokens, shape[1], lanes)
    commands = [
        (VectorOpcode.TARGETS, {"row": 1, "tiles": words.size // lanes}, {"a": words}, {}),
        (VectorOpcode.SOFTMAX_SUMS, operands, {"a": s}, {}),
        (VectorOpcode.SOFTMAX, operands | {"targets": aim}, {"a": s}, {"o": shape} | ({"report": None} if aim else {})),
        (VectorOpcode.SOFTMAX_BACKWARD_SUMS, {"left": 7}, {"a": p, "b": dp}, {}),
        (VectorOpcode.SOFTMAX_BACKWARD, {"left": 7, "right": 8, "shift": 21}, {"a": p, "b": dp}, {"o": shape}),
        (VectorOpcode.SOFTMAX_SUMS, operands, {"a": -s}, {}),
        (VectorOpcode.SOFTMAX, operands | {"shift": 1}, {"a": -s}, {"o": shape}),
    ]
    found = bench(make(lanes), row)(commands, stall=stall, seed=int(rng.integers(1 << 30)))
    level = reference.levels(s, gate_shift=gate, lanes=lanes, **masks)
    expected = reference.softmax(s, level, gate_shift=gate, targets=targets if aim else None, **masks)
    same(found[2], expected)
    if aim:
        (report,) = found[2]["report"]
        wanted = LossWord.const({"loss": expected.loss, "tokens": expected.counted}).as_value().value
        # Two lanes have no room for more than the loss.
        assert report == wanted & ((1 << 32 * lanes) - 1)
    pull = reference.pulled(p, dp)
    assert found[3]["saturated"] == pull.saturated
    same(found[4], reference.softmax_backward(p, dp, pull.words, left=7, right=8, shift=21))
    level = reference.levels(-s, gate_shift=gate, lanes=lanes, **masks)
    same(found[6], reference.softmax(-s, level, gate_shift=gate, shift=1, **masks))


@pytest.mark.parametrize(
    "lanes, row, tokens, tiles, gate, spread, limit, causal, aim, stall",
    [
        (4, 16, 5, 3, 8, 30, 40, False, True, 0.0),
        (4, 16, 5, 3, 6, 300, 0, True, False, 0.4),
        (2, 4, 2, 7, 14, 3, 27, False, True, 0.3),
        (8, 16, 1, 4, 11, 20, 50, True, True, 0.0),
        (4, 16, 8, 3, 4, 1500, 47, False, True, 0.1),
        pytest.param(16, 32, 3, 2, 20, 0.01, 5, True, True, 0.0, marks=deep),
    ],
    ids=str,
)
def test_softmax(vector_bench, lanes, row, tokens, tiles, gate, spread, limit, causal, aim, stall):
    check(
        vector_bench,
        np.random.default_rng(row * tiles),
        lanes=lanes,
        row=row,
        tokens=tokens,
        tiles=tiles,
        gate=gate,
        spread=spread,
        limit=limit,
        causal=causal,
        aim=aim,
        stall=stall,
    )


@pytest.mark.parametrize("causal", [False, True])
def test_a_target_that_is_masked_is_met_by_nothing(vector_bench, causal):
    """Its row has the plain probabilities, its token no loss; the last element that counts is a target as any other."""
    shape, masks = (4, 32), {"limit": 9, "causal": causal}
    last = 9 + causal * np.arange(4)
    targets = last + (0, 1, 32 - last[2] - 1, 0)
    s = scores(np.random.default_rng(1), shape, 8, 30)
    commands = [
        (VectorOpcode.TARGETS, {"row": 1, "tiles": 1}, {"a": targets[None]}, {}),
        (VectorOpcode.SOFTMAX_SUMS, masks | {"gate": 8}, {"a": s}, {}),
        (VectorOpcode.SOFTMAX, masks | {"gate": 8, "targets": 1}, {"a": s}, {"o": shape, "report": None}),
    ]
    found = vector_bench(make(), 16)(commands)[2]
    level = reference.levels(s, gate_shift=8, lanes=LANES, **masks)
    plain = reference.softmax(s, level, gate_shift=8, **masks).words
    plain[[0, 3], last[[0, 3]]] -= 1 << PROBABILITY_FRAC
    np.testing.assert_array_equal(found["o"], plain)
    loss = reference.softmax(s, level, gate_shift=8, targets=np.where([1, 0, 0, 1], targets, -1), **masks).loss
    wanted = LossWord.const({"loss": loss, "tokens": 2}).as_value().value
    assert found["report"] == [wanted] and loss > 0


@settings(max_examples=4, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_softmax(vector_bench, data):
    row, tiles = data.draw(st.integers(2, 6)) * LANES, data.draw(st.integers(1, 4))
    check(
        vector_bench,
        np.random.default_rng(data.draw(st.integers(0, 1 << 30))),
        lanes=LANES,
        row=row,
        tiles=tiles,
        tokens=data.draw(st.integers(1, 8)),
        gate=data.draw(st.integers(4, 20)),
        spread=data.draw(st.sampled_from([0.1, 3, 30, 1000])),
        limit=data.draw(st.integers(0, row * tiles + 3)),
        causal=data.draw(st.booleans()),
        aim=data.draw(st.booleans()),
        stall=data.draw(st.sampled_from([0, 0.5])),
    )


@pytest.mark.parametrize("aimed", [True, False])
def test_the_longest_row_has_its_last_element_as_a_target(vector_bench, aimed):
    """A row of 262,144 like elements; "no target" needs an index beyond them, and gives a row of zeros."""
    shape, masks = (1, 1 << ELEMENTS), {"limit": (1 << ELEMENTS) - 1, "causal": False}
    s, target = np.full(shape, 5 << 8), np.array([(1 << ELEMENTS) - 1 if aimed else -1])
    found = vector_bench(make(16), 64)(
        [
            (VectorOpcode.TARGETS, {"row": 1, "tiles": 1}, {"a": np.pad(target, (0, 15))[None]}, {}),
            (VectorOpcode.SOFTMAX_SUMS, masks | {"gate": 8}, {"a": s}, {}),
            (VectorOpcode.SOFTMAX, masks | {"gate": 8, "targets": 1}, {"a": s}, {"o": shape, "report": None}),
        ]
    )[2]
    level = reference.levels(s, gate_shift=8, lanes=16, **masks)
    expected = reference.softmax(s, level, gate_shift=8, targets=target, **masks)
    same(found, expected)
    share = aimed << PROBABILITY_FRAC - ELEMENTS
    assert (found["o"][0, :-1] == share).all() and found["o"][0, -1] == share - (aimed << PROBABILITY_FRAC)
    assert found["report"] == [LossWord.const({"loss": expected.loss, "tokens": int(aimed)}).as_value().value]
    assert expected.loss == aimed * ELEMENTS << 16


def test_the_longest_row_of_the_least_words_is_summed(vector_bench):
    least, few = np.full((1, 1 << PULLED), TERM.lo), np.full((1, 4 * LANES), 1 << 20)
    found = vector_bench(make(), 4 * LANES)(
        [
            (VectorOpcode.SOFTMAX_BACKWARD_SUMS, {"left": 7}, {"a": least, "b": least}, {}),
            (
                VectorOpcode.SOFTMAX_BACKWARD,
                {"left": 7, "right": 8, "shift": 21},
                {"a": few, "b": few},
                {"o": few.shape},
            ),
        ]
    )
    pull = reference.pulled(least, least)
    assert found[0]["saturated"] == pull.saturated == 1
    same(found[1], reference.softmax_backward(few, few, pull.words, left=7, right=8, shift=21))


@pytest.mark.parametrize("lanes, tokens", [(4, 5), (8, 1)])
def test_cycles(vector_bench, lanes, tokens):
    """What the engine's docstring says of commands that nothing holds up."""
    engine, shape = make(lanes), (tokens, 64)
    inputs = {name: np.ones(shape, int) for name in "abc"}
    a, b = ({key: inputs[key] for key in keys} for keys in ("a", "ab"))
    plain = {"a": np.ones((1, 4 * lanes), int)}, {}, 1, 0, engine.finish
    whole, sums = (1, 0, engine.latency + engine.finish), (1, 0, engine.settled + tokens)
    cases = {
        VectorOpcode.WEIGHTS: plain,
        VectorOpcode.SWIGLU: (b, {"o": shape}, *whole),
        VectorOpcode.SWIGLU_BACKWARD: (inputs, {"o": shape, "q": shape}, 2, 1, engine.latency + engine.finish),
        VectorOpcode.NORM_SUMS: (a, {}, *sums),
        VectorOpcode.NORM: (a, {"o": shape}, *whole),
        VectorOpcode.NORM_BACKWARD_SUMS: (b, {}, 2, 1, engine.settled + 2 * tokens),
        VectorOpcode.NORM_BACKWARD: (b, {"o": shape}, *whole),
        VectorOpcode.ADD: (b, {"o": shape}, *whole),
        VectorOpcode.ROPE: (b, {"o": shape}, 1, 0, 16 // lanes + engine.latency + engine.finish),
        VectorOpcode.SOFTMAX_SUMS: (a, {}, *sums),
        VectorOpcode.SOFTMAX_BACKWARD_SUMS: (b, {}, *sums),
        VectorOpcode.SOFTMAX: (a, {"o": shape, "report": None}, 1, 0, engine.latency + engine.finish - 1 + engine.tell),
        VectorOpcode.SOFTMAX_BACKWARD: (b, {"o": shape}, *whole),
        VectorOpcode.SCALE: (a, {"o": shape}, *whole),
        VectorOpcode.SCALE_BACKWARD: (b, {"o": shape, "q": shape}, 2, 1, engine.latency + engine.finish),
        VectorOpcode.NORM_BACKWARD_GAIN: (b, {"o": shape, "q": shape}, 2, 1, engine.latency + engine.finish),
        VectorOpcode.NORM_BACKWARD_ADD: (inputs, {"o": shape}, 2, 1, engine.latency + engine.finish),
    }
    assert cases.keys() | {VectorOpcode.TARGETS} == set(VectorOpcode)
    found = vector_bench(engine, 16)([(opcode, {"gate": 8, "targets": 1}, *case[:2]) for opcode, case in cases.items()])
    for (opcode, (inputs, _, pace, first, after)), got in zip(cases.items(), found):
        beats = inputs["a"].size // lanes
        last = engine.start + first + pace * (beats - 1)
        assert got["taken"]["a"] == list(range(engine.start + first, last + 1, pace)), opcode
        assert got["cycles"] == last + after, opcode


@pytest.mark.parametrize(
    "opcode, operands",
    [
        *(
            (opcode, operands)
            for opcode in (VectorOpcode.SOFTMAX_SUMS, VectorOpcode.SOFTMAX)
            for operands in ({"row": 1}, {"gate": 3}, {"row": 33, "tiles": 1986}, {"tokens": 9}, {"tiles": 0})
        ),
        *(
            (opcode, operands)
            for opcode in (VectorOpcode.SOFTMAX_BACKWARD_SUMS, VectorOpcode.SOFTMAX_BACKWARD)
            for operands in (
                {"row": 1},
                {"row": 4, "tiles": (1 << PULLED) // (4 * LANES) + 1},
                {"tokens": 9},
                {"row": 0},
            )
        ),
        (VectorOpcode.TARGETS, {"row": 3, "tiles": 1}),
        (VectorOpcode.TARGETS, {"row": 0}),
    ],
    ids=str,
)
def test_an_operand_out_of_bounds_is_refused(vector_bench, opcode, operands):
    vector_bench(make(), 16)(
        [(opcode, {"gate": 8} | operands, {"a": np.zeros((5, 48), int)}, {})], error=Error.BAD_OPERAND
    )
