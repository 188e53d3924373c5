"""The UNet's step on codes of tiles is exact, within bounds that its formats give, and near float."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from gradloom.rtl.formats.tile_codes import EDGE, GUARD, LEAST, MOST, NARROW, WIDE, ZERO, Coded, coded
from gradloom.rtl.models.datasets import DATA
from gradloom.rtl.models.diffusion_lora import load_diffusion_lora
from gradloom.rtl.models.lora import Adapter
from gradloom.rtl.models.unet import find_unet, parsed
from gradloom.rtl.plan.diffusion.operations import Convolution, Linear, adapted
from gradloom.rtl.plan.diffusion.unet import TARGETS, inputs, operations
from gradloom.sim.reference.tiles import blocks, sums, transposed
from gradloom.sim.workloads.diffusion import Descent, FloatUNet, timesteps
from gradloom.sim.workloads.diffusion_integers import IntegerDescent, IntegerUNet

GOLDEN = Path(__file__).parents[1] / "golden" / "diffusion"


def test_codes_are_symmetric_and_the_nearest():
    rng = np.random.default_rng(3)
    x = rng.standard_normal((2, 100, 70)) * np.exp2(rng.integers(-20, 20, (2, 1, 70)))
    x[0, :64, :64], x[0, :64, 64:] = 0, 127.0 * 2**-30
    made = coded(x, NARROW)
    y = made.check("x").values
    assert not y[0, :64, :64].any() and made.exponents[0, 0, 0] == ZERO
    assert (y[0, :64, 64:] == x[0, :64, 64:]).all() and made.exponents[0, 0, 1] == -30
    assert made.zeroed == np.count_nonzero(x) - np.count_nonzero(y) > 0 == made.clipped
    for row in (0, 1):
        for column in (0, 1):
            at = np.s_[:, row * EDGE : (row + 1) * EDGE, column * EDGE : (column + 1) * EDGE]
            for given, stored, codes in zip(x[at], y[at], made.codes[at]):
                peak = np.abs(given).max()
                unit = 2.0 ** np.ceil(np.log2(peak / 127.5)) if peak else 1.0
                assert np.abs(stored - given).max() <= unit / 2 and np.abs(codes).max() <= 127
                assert not peak or np.abs(codes).max() >= 63


def test_a_peak_that_rounds_above_the_largest_code_takes_that_code():
    """The leading bit decides the exponent, not how the rest rounds."""
    for x, code in ((127.4375, 127), (127.5, 127), (-127.5, -127), (127.9, 127)):
        made = coded(np.array([[x]]), NARROW)
        assert made.exponents == 0 and made.codes == code and made.clipped == 0
    made = coded(np.array([[-128.0]]), NARROW)
    assert made.exponents == 1 and made.codes == -64


def test_a_tensor_of_16_bits_keeps_its_codes_where_it_is_coded_again():
    x = np.random.default_rng(4).standard_normal((70, 130)) * 1e-9
    once = coded(x, WIDE)
    again = coded(once.values, WIDE)
    np.testing.assert_array_equal(once.codes, again.codes)
    np.testing.assert_array_equal(once.exponents, again.exponents)


def test_exponents_at_both_ends_are_counted():
    x = np.zeros((64, 192))
    x[:, :64], x[:, 64:128], x[:, 128:] = 2.0**200, 2.0 ** (LEAST - 3), 1.0
    made = coded(x, NARROW)
    assert made.exponents.tolist() == [[MOST, LEAST, -6]]
    assert made.clipped == made.zeroed == 64 * 64
    assert (made.codes[:, :64] == 127).all()


@pytest.mark.parametrize(
    ("codes", "exponents", "says"),
    [
        (np.array([[1, 2], [3, -128]]), np.array([[0]]), r"w\[1, 1\] is -128: codes must be integers from -127 to 127"),
        (np.array([[np.nan]]), np.array([[0]]), r"w\[0, 0\] is nan"),
        (np.array([[1.5]]), np.array([[0]]), r"w\[0, 0\] is 1.5"),
        (np.array([[1]]), np.array([[128]]), r"exponent \[0, 0\] of w is 128: must be from -128 to 127"),
    ],
)
def test_codes_that_no_quantiser_makes_are_refused_by_index(codes, exponents, says):
    with pytest.raises(ValueError, match=says):
        Coded(codes.astype(float), exponents).check("w")


def half_up(n, shift):
    """``n * 2**shift`` of a Python integer."""
    return n << shift if shift >= 0 else ((n << 1 >> -shift) + 1) >> 1


def by_hand(x, w, bias, tops):
    """Words by Python's integers, element by element."""
    made = np.zeros(x.codes.shape[:1] + w.codes.shape[1:], object)
    for m in range(made.shape[0]):
        for n in range(made.shape[1]):
            top, total = int(tops[m, n // EDGE]), 0
            for t in range(x.exponents.shape[1]):
                at = slice(t * EDGE, (t + 1) * EDGE)
                part = sum(int(a) * int(b) for a, b in zip(x.codes[m, at], w.codes[at, n]))
                shift = int(x.exponents[m // EDGE, t] + w.exponents[t, n // EDGE]) - top
                total += half_up(part, shift) if part else 0
            total += half_up(int(bias.codes[0, n]), int(bias.exponents[0, n // EDGE]) - top)
            made[m, n] = total
    return made


def test_sums_are_those_of_integers_and_within_the_bound_of_their_alignment():
    """Tiles of all scales, a zero tile, neighbours 2**40 apart, a bias larger than the products."""
    rng = np.random.default_rng(5)
    scales = np.exp2([[0, -7, -40, 3], [-3, 0, 1, -60]]).repeat(EDGE, 0).repeat(EDGE, 1)[:67, :200]
    x = rng.standard_normal((67, 200)) * scales
    x[:64, :64] = 0
    w = rng.standard_normal((200, 66)) * np.exp2(rng.integers(-3, 3, (1, 66)))
    b = rng.standard_normal((1, 66)) * 100
    x, w, b = coded(x, NARROW), coded(w, NARROW), coded(b, WIDE)
    made = sums(blocks(x), w, bias=b)
    assert (made.words == by_hand(x, w, b, made.exponents)).all()
    exact = x.values @ w.values + b.values
    addends = x.exponents.shape[1] + 1
    unit = np.exp2(made.exponents.astype(float)).repeat(EDGE, 1)[:, :66]
    assert (np.abs(made.values - exact) <= addends / 2 * unit).all()
    assert (made.values != exact).any() and made.lost > 0


def test_the_widest_sum_fits_its_bits_and_one_more_tile_is_refused():
    """512 tiles of the largest codes; each product of a tile is 64 * 127**2."""
    deep = 511 * EDGE
    x, w = np.full((1, deep), 127.0), np.full((deep, 1), 127.0)
    made = sums(blocks(Coded(x, np.zeros((1, 511), int))), Coded(w, np.zeros((511, 1), int)))
    assert made.words[0, 0] == 511 * 64 * 127**2 << GUARD and made.exponents[0, 0] == -GUARD
    deep = 521 * EDGE
    x, w = np.full((1, deep), 127.0), np.full((deep, 1), 127.0)
    with pytest.raises(ValueError, match="too many tiles"):
        sums(blocks(Coded(x, np.zeros((1, 521), int))), Coded(w, np.zeros((521, 1), int)))


def test_zeros_times_anything_are_zeros():
    nothing = coded(np.zeros((5, 70)), NARROW)
    made = sums(blocks(nothing), coded(np.ones((70, 3)), NARROW))
    assert not made.values.any() and np.isfinite(made.values).all()
    assert coded(made.values, WIDE).exponents == ZERO


SMALL = parsed(
    "small",
    {
        "sample_size": 4,
        "in_channels": 3,
        "block_out_channels": [16, 128],
        "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D"],
        "up_block_types": ["CrossAttnUpBlock2D", "UpBlock2D"],
        "layers_per_block": 1,
        "attention_head_dim": [2, 4],
        "cross_attention_dim": 16,
        "norm_num_groups": 8,
    },
)


def small():
    """A UNet with every kind of operation, adapters everywhere, and data."""
    rng = np.random.default_rng(6)
    listed = operations(SMALL, text=4, rank=2, targets=TARGETS["all"])
    weights = {
        w.name: rng.standard_normal(w.shape) / np.sqrt(np.prod(w.shape[1:]) + 1)
        for each in listed
        for w in each.weights
    }
    adapters = {
        each.layer: Adapter(
            rng.standard_normal((2, each.i[0].features)) / 8, rng.standard_normal((each.o.features, 2)) / 8, 1.0
        )
        for each in adapted(listed)
    }
    data = {t.name: rng.standard_normal((2, t.rows, t.features)) for t in inputs(SMALL, 4)}
    return listed, weights, adapters, data, rng.standard_normal((2, 16, 4))


def test_each_layer_is_float_on_the_same_codes_within_the_bound_of_its_formats():
    """Linear layers, and convolutions of stride 1 and 2, forward and back, without and with an adapter."""
    listed, weights, adapters, data, _ = small()
    codes = IntegerUNet(listed, weights)
    found = codes.forward(data, adapters)
    rng, seen = np.random.default_rng(7), set()
    for each in listed:
        if not isinstance(each, Linear | Convolution):
            continue
        x = found[each.i[0].name]
        dy = coded(rng.standard_normal(found[each.o.name].shape), WIDE).values
        exact = FloatUNet(
            [each], {w.name: _as_coded(codes, each, w.name, weights) for w in each.weights}, dtype=np.float64
        )
        exact.images = codes.images
        narrow = {}
        if each.layer in adapters:
            own = adapters[each.layer]
            narrow[each.layer] = Adapter(codes.narrow(own.a).values, codes.narrow(own.b).values, 1.0)
        for way in (0, 1):
            given = (x,) if way == 0 else (dy, x)
            made = codes._rules(each, adapters)[way](*given)
            read = tuple(coded(v, NARROW).values for v in given)
            wanted = exact._rules(each, narrow)[way](*read)
            made, wanted = (v[0] if way else v for v in (made, wanted))
            # Alignment: half a unit of 2**-6 of the largest product's, a tile; an adapter's hidden vector: half a code.
            inside = each.shape[1] * 9 if isinstance(each, Convolution) else max(each.shape[:2])
            bound = (inside / EDGE + 3) * 2.0**-GUARD * np.abs(read[0]).max() * 4 / 127
            if each.layer in narrow:
                bound += np.abs(wanted).max() / 50
            assert np.abs(made - wanted).max() <= bound, (each, way)
        seen.add((type(each).__name__, getattr(each, "stride", 0), each.layer in narrow))
    assert len(seen) == 4


def _as_coded(codes, each, name, weights):
    """Weights as the codes have them, in diffusers' layout."""
    value = weights[name]
    if name.endswith("bias"):
        return codes.frozen[name].values[0]
    if isinstance(each, Convolution):
        outside, inside = value.shape[:2]
        kept = codes.frozen[each.layer].values.reshape(9, -1, outside)[:, :inside]
        return kept.reshape(3, 3, inside, outside).transpose(3, 2, 0, 1)
    return codes.frozen[each.layer].values.T.reshape(value.shape)


def test_gradients_of_the_whole_net_are_near_those_of_float():
    """Every kind of operation, tiles of several images, channels above and below a tile; by gradient."""
    listed, weights, adapters, data, noise = small()
    net = IntegerUNet(listed, weights)
    loss, gradients = net.loss_and_gradients(data, noise, adapters)
    expected, exact = FloatUNet(listed, weights, dtype=np.float64).loss_and_gradients(data, noise, adapters)
    assert loss == pytest.approx(expected, rel=0.02)
    far = {
        (layer, part): (np.linalg.norm(g - e), np.linalg.norm(e))
        for layer in exact
        for part, g, e in zip("ab", gradients[layer], exact[layer])
    }
    assert np.median([error / size for error, size in far.values()]) < 0.1
    # Attention over 4 pixels is almost even: its gradients are small, and the codes' noise is not.
    most = max(size for _, size in far.values())
    assert max(error / size for error, size in far.values() if size > most / 500) < 0.4
    counts = net.take_counts()
    assert counts.stored > 0 == counts.clipped and net.take_counts().stored == 0


def test_the_update_engine_moves_masters_as_torch_does():
    """Ten steps: within a thousandth of the rate a step."""
    rng = np.random.default_rng(8)
    first = {"x": Adapter(rng.standard_normal((8, 70)) / 8, np.zeros((130, 8)), 1.0)}
    exact, words = Descent(3e-3), IntegerDescent(3e-3)
    one = other = first
    for _ in range(10):
        g = {
            "x": (
                coded(rng.standard_normal((8, 70)) * 1e-4, WIDE).values,
                coded(rng.standard_normal((130, 8)) * 1e-5, WIDE).values,
            )
        }
        one, other = exact(one, g), words(other, g)
    for part in "ab":
        assert np.abs(one["x"].parts[part] - other["x"].parts[part]).max() < 10 * 3e-3 * 1e-3
    assert words.clipped == 0


def test_a_head_that_straddles_tiles_is_refused():
    listed, weights, adapters, data, _ = small()
    attention = next(each for each in listed if type(each).__name__ == "Attention")
    net = IntegerUNet(listed, weights)
    net.images = 1
    x = np.ones((16, 160))
    with pytest.raises(ValueError, match="features of a head"):
        net._attention(attention)[0](x, x, x)


def test_the_shipped_net_follows_float():
    """The loss of diffusers' first step; the steps behind it are those of the example diffusion_quality."""
    net = find_unet(DATA / "digits_unet.json")
    listed = operations(net, text=8, rank=8)
    layers = {each.layer: (each.i[0].features, each.o.features) for each in adapted(listed)}
    steps, curve = np.load(GOLDEN / "steps.npz"), json.loads((GOLDEN / "curve.json").read_text())
    noisy, noise = (steps[name][0].transpose(0, 2, 3, 1).reshape(16, -1, 4) for name in ("noisy", "noise"))
    data = {"latents": noisy, "timestep": timesteps(net, steps["t"][0])[:, None], "prompt": steps["prompt"][0]}
    made = IntegerUNet(listed, load_file(DATA / "digits_unet.safetensors")).loss(
        data, noise, load_diffusion_lora(GOLDEN / "init", layers)
    )
    assert made == pytest.approx(curve["loss"][0], rel=0.02) and made != pytest.approx(curve["loss"][0], rel=1e-4)


def test_transposed_codes_are_the_same_codes():
    x = coded(np.random.default_rng(9).standard_normal((70, 130)), NARROW)
    np.testing.assert_array_equal(transposed(x).values, x.values.T)
