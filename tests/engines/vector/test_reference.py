"""The vector engine's reference is near float64: by bounds from its formats, and on a language model's ranges."""

import numpy as np
import pytest

from gradloom.rtl.formats.vector import EPS_SHIFT, GATE_FRAC, GATES, ROOTS
from gradloom.rtl.formats.vector import TERM as TERM_WORD
from gradloom.rtl.formats.weights.linear import ACTIVATION, WEIGHT
from gradloom.sim.reference import vector as reference
from gradloom.systems.text.operations import vector as plan
from gradloom.systems.text.reference import mathematics as llama

#: A term is rounded once, and what enters it is cut three bits below, one or two products.
TERM = 0.5 + 2 / 8
#: Of an activation's tables their errors, bits of the argument that are cut times the steepest slope, and what lies
#: beyond 16.
STEEPEST = {"silu": (0.25, 0.5), "gelu_tanh": (0.4, 0.8)}
BEYOND = 2e-7, 2e-6
#: Relative: the table's, of roots from 0.5 on; bits of the argument cut; the largest mantissa.
ROOT = max(table.error for table in ROOTS) / 0.5 + 2.0**-17 + 2.0**-17
#: Relative, of the pull: two roots; squares, sums and products cut to 17 bits, the least of each being so much larger.
PULL = 2 * ROOT + 2.0**-15 + 2.0**-16 + 2.0**-14
GOAL = 2e-4


def encode(x):
    """``(words, frac)`` with the most fraction bits."""
    frac = plan.frac_of(np.abs(x).max())
    return np.rint(x * 2.0**frac).astype(np.int64), frac


def decode(words, frac):
    return np.asarray(words, np.float64) * 2.0**-frac


def check(tensor, frac, exact, bound, meant):
    """Each word within its bound of what the operands' words mean, all of them near what was meant."""
    got = decode(tensor.words, frac)
    assert tensor.saturated == 0 and 21 <= tensor.magnitude <= ACTIVATION.width - 1
    assert (np.abs(got - exact) <= bound + 2.0 ** -(frac + 1)).all()
    assert np.sqrt(np.mean((got - meant) ** 2) / np.mean(meant**2)) <= GOAL


def tensors(seed, shape, *scales):
    """Long-tailed, as a model's are."""
    rng = np.random.default_rng(seed)
    return [rng.standard_t(4, shape) * scale for scale in scales]


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("scales", [(1.5, 1.0, 1e-3), (6.0, 60.0, 6e-5), (1e-3, 1e-3, 1.0), (0.3, 0.2, 1e-4)], ids=str)
def test_swiglu(scales, kind):
    by_gate, by_slope = (
        table.error + steepest * 2.0**-GATE_FRAC + beyond
        for table, steepest, beyond in zip(GATES[kind], STEEPEST[kind], BEYOND)
    )
    gate, up, dy = tensors(1, (32, 1536), *scales)
    (gw, gf), (uw, uf), (dw, df) = encode(gate), encode(up), encode(dy)
    g, u, d = decode(gw, gf), decode(uw, uf), decode(dw, df)
    y = llama.gated(gate, up, kind)
    yf = encode(y)[1]
    gated = by_gate * np.abs(g) + TERM * 2.0 ** -(gf + 1)
    made = reference.swiglu(gw, uw, GATES[kind], **plan.swiglu(gf, uf, yf))
    check(made, yf, llama.gated(g, u, kind), gated * np.abs(u), y)
    dgate, dup = llama.gated_backward(dy, gate, up, kind)
    fracs = encode(dgate)[1], encode(dup)[1]
    found = reference.swiglu_backward(dw, gw, uw, GATES[kind], **plan.swiglu_backward(df, gf, uf, *fracs))
    exact = llama.gated_backward(d, g, u, kind)
    check(found[0], fracs[0], exact[0], np.abs(d) * (by_slope * np.abs(u) + TERM * 2.0**-uf), dgate)
    check(found[1], fracs[1], exact[1], np.abs(d) * gated, dup)


@pytest.mark.parametrize("features", [576, 2048])
@pytest.mark.parametrize("scale, outlier", [(1.0, 0), (0.05, 0), (1e-3, 0), (30, 3000), (10, 23147)])
def test_rms_norm(features, scale, outlier):
    x, dy = tensors(2, (32, features), scale, 6e-5)
    if outlier:
        x[0, 7] = outlier
    weight, eps = np.random.default_rng(3).lognormal(-1, 0.7, features), 1e-5
    (xw, xf), (dw, df) = encode(x), encode(dy)
    ww, wf = plan.norm_weight(weight)
    words = plan.epsilon(eps, features, xf)
    xs, ds, ws = decode(xw, xf), decode(dw, df), decode(ww, wf)
    exact_eps = (words["eps"] << words["eps_shift"]) / 4.0**xf
    root = 1 / np.sqrt((xs**2).sum(axis=1, keepdims=True) + exact_eps)

    y = llama.rms_norm(x, weight, eps)
    yf = encode(y)[1]
    found = reference.rms_norm(xw, ww, reference.roots(xw, **words), **plan.rms_norm(wf, yf))
    exact = ws * xs * root
    # A row that is one outlier is a term of all but 1, which is clipped to the largest word.
    check(found, yf, exact, ROOT * np.abs(exact) + (TERM + 1) * 2.0**-24 * np.abs(ws), y)

    dx = llama.rms_norm_backward(dy, x, weight, eps)
    dxf = encode(dx)[1]
    shifts = plan.rms_norm_backward(df, xf, wf, dxf)
    along = reference.backward_roots(dw, xw, ww, right=shifts["sums"]["right"], **words)
    found = reference.rms_norm_backward(dw, xw, ww, along, **shifts["result"])
    last = 2.0 ** -(df + wf + 7 - shifts["result"]["left"])
    pull = (ds * ws * xs).sum(axis=1, keepdims=True) * root**2
    exact = root * (ds * ws - pull * xs)
    lost = TERM * last * np.abs(xs).sum(axis=1, keepdims=True) * root**2
    term = TERM * last + np.abs(xs) * (PULL * np.abs(pull) + lost)
    bound = ROOT * np.abs(exact) + (1 + ROOT) * root * term
    check(found, dxf, exact, bound, dx)

    # Both are cut to half a unit before they are added. A sum may have a fraction bit more than the residual.
    for residual in (tensors(9, x.shape, 6e-5)[0], 3 * dx, -0.6 * dx):
        rw, rf = encode(residual)
        sf = min(encode(dx + residual)[1], rf + 1)
        shifts = plan.rms_norm_backward(df, xf, wf, sf, residual=rf)
        made = reference.rms_norm_backward_add(dw, xw, ww, along, rw, **shifts["result"])
        check(made, sf, exact + decode(rw, rf), bound + 2.0 ** -(sf + 1), dx + residual)


@pytest.mark.parametrize("scale, outlier", [(1.0, 0), (1e-3, 0), (10, 23147)])
def test_what_gradients_of_a_norms_weight_are_sums_of(scale, outlier):
    x, dy = tensors(7, (32, 576), scale, 6e-5)
    if outlier:
        x[0, 7] = outlier
    eps = 1e-5
    (xw, xf), (dw, df) = encode(x), encode(dy)
    words = plan.epsilon(eps, 576, xf)
    xs, ds, exact_eps = decode(xw, xf), decode(dw, df), (words["eps"] << words["eps_shift"]) / 4.0**xf
    exact = ds * xs / np.sqrt((xs**2).sum(axis=1, keepdims=True) + exact_eps)
    meant = llama.rms_norm_gain(dy, x, eps) / np.sqrt(576)
    uf = encode(meant)[1]
    shift = plan.rms_norm_backward(df, xf, 16, uf, u=uf)["result"]["second_shift"]
    found = reference.rms_norm_gain(dw, xw, reference.roots(xw, **words), shift=shift)
    check(found, uf, exact, ROOT * np.abs(exact) + (TERM + 1) * 2.0**-24 * np.abs(ds), meant)


@pytest.mark.parametrize("scales", [(1.5, 6e-5), (3e3, 1e-3)], ids=str)
def test_factors_of_features(scales):
    """Operands are terms as they are: nothing but the last rounding is lost."""
    x, dy = tensors(8, (32, 1536), *scales)
    factors = np.random.default_rng(9).normal(1, 0.3, 1536)
    (xw, xf), (dw, df) = encode(x), encode(dy)
    ff = plan.frac_of(np.abs(factors).max(), WEIGHT)
    fw = np.rint(factors * 2.0**ff).astype(np.int64)
    xs, ds, fs = decode(xw, xf), decode(dw, df), decode(fw, ff)
    yf, dxf, uf = (encode(each)[1] for each in (xs * fs, ds * fs, xs * ds))
    check(reference.scale(xw, fw, **plan.scale(xf, ff, yf)), yf, xs * fs, 0, x * factors)
    dx, u = reference.scale_backward(dw, xw, fw, **plan.scale_backward(xf, df, ff, dxf, uf))
    check(dx, dxf, ds * fs, 0, dy * factors)
    check(u, uf, xs * ds, 0, x * dy)


@pytest.mark.parametrize("scales", [(1.0, 1.0), (30.0, 0.02), (1e-4, 6e-5)], ids=str)
def test_add(scales):
    a, b = tensors(4, (32, 576), *scales)
    if scales[0] == 30:
        a[0, 7] = 23147
    (aw, af), (bw, bf) = encode(a), encode(b)
    yf = encode(a + b)[1]
    exact = decode(aw, af) + decode(bw, bf)
    check(reference.add(aw, bw, **plan.add(af, bf, yf)), yf, exact, 2 / 8 * 2.0**-yf, a + b)


@pytest.mark.parametrize("turn", [False, True])
def test_rope(turn):
    (x,) = tensors(5, (64, 9, 64), 3.0)
    angles = np.outer(np.arange(64), 1e5 ** (-np.arange(0, 64, 2) / 64))
    cos, sin = np.cos(angles), np.sin(angles)
    xw, xf = encode(x)
    cw, sw = (np.rint(each[:, None] * 65536).astype(np.int64) for each in (cos, sin))
    meant = llama.rope(x, cos, -sin if turn else sin)
    yf = encode(meant)[1]
    xs = decode(xw, xf)
    exact = llama.rope(xs, cw[:, 0] / 65536, sw[:, 0] / 65536 * (-1 if turn else 1))
    check(reference.rope(xw, cw, sw, turn=turn, **plan.rope(xf, yf)), yf, exact, 2 / 8 * 2.0**-yf, meant)


def test_a_residual_stream_may_have_25_bits():
    a, b = tensors(7, (32, 576), 30.0, 0.02)
    a[0, 7] = 23147
    af, bf, yf = (plan.frac_of(np.abs(each).max(), TERM_WORD) for each in (a, b, a + b))
    assert yf == encode(a + b)[1] + 1
    aw, bw = (np.rint(each * 2.0**frac).astype(np.int64) for each, frac in ((a, af), (b, bf)))
    found = reference.add(aw, bw, wide=True, **plan.add(af, bf, yf))
    assert found.saturated == 0 and found.magnitude == 24
    assert (np.abs(decode(found.words, yf) - decode(aw, af) - decode(bw, bf)) <= (2 / 8 + 0.5) * 2.0**-yf).all()


def test_magnitude_tells_how_far_an_exponent_was_off():
    rng = np.random.default_rng(6)
    a, b = (rng.integers(-1 << 22, 1 << 22, (4, 64)) for _ in range(2))
    exact = a + b
    for spare in (-3, 0, 2):
        found = reference.add(a, b, left=7 - spare, right=7 - spare)
        clipped = min(int(np.abs(exact).max()).bit_length() + spare, 24)
        assert found.magnitude == clipped
        assert (found.saturated > 0) == (found.magnitude > 23)


def test_plans_refuse_exponents_too_far_apart():
    for refused in (
        lambda: plan.add(0, 0, 8),
        lambda: plan.add(80, 0, 0),
        lambda: plan.swiglu(3, 0, 0),
        lambda: plan.rms_norm(0, 25),
        lambda: plan.rope(0, 24),
        lambda: plan.rms_norm_backward(60, 0, 20, 0),
    ):
        with pytest.raises(ValueError, match="too far apart"):
            refused()


def test_plans_of_weights_and_epsilon():
    words, frac = plan.norm_weight(np.array([1.0, -0.5, 0.25, 0.0]))
    np.testing.assert_array_equal(words * 2.0**-frac, [2, -1, 0.5, 0])
    assert np.abs(words).max() <= WEIGHT.hi
    assert plan.epsilon(0.0, 4, 3) == {"eps": 0, "eps_shift": 0}
    assert plan.epsilon(1.0, 2048, 60) == {"eps": 0xFFFF, "eps_shift": EPS_SHIFT}
    assert plan.frac_of(0) == 0 and plan.frac_of(1.0) == 22 and plan.frac_of(23147) == 8
