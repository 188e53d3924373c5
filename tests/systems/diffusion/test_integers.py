"""The UNet's step on codes of tiles is exact, within bounds that its formats give, and near float."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from gradloom.compiler.integers.descent import IntegerDescent, rules_of
from gradloom.compiler.integers.held import Held
from gradloom.compiler.integers.reading import IntegerNetwork
from gradloom.compiler.weights.matrices import weights_of
from gradloom.graph.descent import FloatDescent
from gradloom.graph.mathematics import FloatReading
from gradloom.graph.operations import Convolution, Linear
from gradloom.models.adapters.diffusion_lora import load_diffusion_lora
from gradloom.models.datasets import DATA
from gradloom.models.files.unet import find_unet, parsed
from gradloom.program import descent
from gradloom.rtl.formats.tiles.codes import EDGE, LEAST, MOST, NARROW, WIDE, ZERO, TileCoded, coded, spread
from gradloom.rtl.formats.tiles.pixels import Pixels
from gradloom.sim.reference.tiles.products import BIAS, DROP, block_sums, sums, transposed
from gradloom.systems.diffusion.task import loss_and_gradients, loss_of
from gradloom.systems.diffusion.unet import TARGETS, layers_of, learners_of, network, operations, timesteps, values_of

GOLDEN = Path(__file__).parents[2] / "golden" / "diffusion"


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
                unit = 2.0 ** (np.floor(np.log2(peak)) - 6) if peak else 1.0
                assert np.abs(stored - given).max() <= unit and np.abs(codes).max() <= 127
                assert not peak or np.abs(codes).max() >= 63


def test_a_peak_that_rounds_above_the_largest_code_is_the_largest_code():
    """127.5 is rounded half up, to 128; -127.5 to -127."""
    for x, code in ((127.4375, 127), (127.5, 127), (-127.5, -127), (-127.75, -127)):
        made = coded(np.array([[x]]), NARROW)
        assert made.exponents == 0 and made.codes == code and made.clipped == 0
    assert coded(np.array([[-128.0]]), NARROW).exponents == 1


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
        TileCoded(codes.astype(float), exponents).check("w")


def by_hand(stream, w, bias, tops):
    """Words by Python's integers, element by element.

    ``stream``: for each row its codes and the exponents of their tiles, tile by tile.
    """
    made = np.zeros((len(stream), w.codes.shape[1]), object)
    for m, row in enumerate(stream):
        for n in range(made.shape[1]):
            top, total = int(tops[m // EDGE, n // EDGE]), 0
            for t, (codes, exponent) in enumerate(row):
                part = sum(int(a) * int(b) for a, b in zip(codes, w.codes[t * EDGE : (t + 1) * EDGE, n]))
                drop = top - int(exponent + w.exponents[t, n // EDGE])
                assert drop >= 0 or not part
                if part and drop <= DROP:
                    total += part << DROP - drop
            drop = top - (int(bias.exponents[0, n // EDGE]) - BIAS)
            if drop <= DROP:
                total += int(bias.codes[0, n]) << DROP + BIAS - drop
            made[m, n] = total
    return made


def rows_of(x):
    """Codes and exponents of the tiles of each row."""
    tiles = range(x.exponents.shape[1])
    return [
        [(x.codes[m, t * EDGE : (t + 1) * EDGE], x.exponents[m // EDGE, t]) for t in tiles] for m in range(len(x.codes))
    ]


def test_sums_are_those_of_integers_and_lose_only_what_is_far_below_the_top():
    """Tiles of all scales, a zero tile, neighbours 2**40 apart, a bias larger than the products."""
    rng = np.random.default_rng(5)
    scales = np.exp2([[0, -7, -40, 3], [-3, 0, 1, -60]]).repeat(EDGE, 0).repeat(EDGE, 1)[:67, :200]
    x = rng.standard_normal((67, 200)) * scales
    x[:64, :64] = 0
    w = rng.standard_normal((200, 66)) * np.exp2(rng.integers(-3, 3, (1, 66)))
    x, w = coded(x, NARROW), coded(w, NARROW)
    for size in (100, 1e-9):
        b = coded(rng.standard_normal((1, 66)) * size, WIDE)
        made = sums((x, w), bias=b)
        assert (made.words == by_hand(rows_of(x), w, b, made.tops)).all()
        exact = x.values @ w.values + b.values
        unit = spread(np.exp2(made.tops.astype(float)), exact.shape)
        # A tile's product is below 2**20, and lies 17 bits below the top where it is dropped.
        assert (np.abs(made.values - exact) <= unit * 2.0 ** (20 - DROP) * x.exponents.shape[1]).all()
        assert (made.values != exact).any() and made.lost > 0
        kept = sums((x, w), bias=b, positive=True)
        assert (kept.words == np.maximum(made.words, 0)).all() and (kept.tops == made.tops).all()
        assert kept.lost == made.lost and (made.words < 0).any()


def test_gathered_sums_are_those_of_integers():
    """Rows of three tiles far apart, of which two are in reach of each output tile; zeros beyond the edge."""
    rng = np.random.default_rng(15)
    x = rng.standard_normal((192, 66)) * np.exp2([[0], [-16], [-40]]).repeat(EDGE, 0)
    x, w = coded(x, NARROW), coded(rng.standard_normal((2, 66, 65)), NARROW)
    rows = np.stack([np.arange(128) - 1, np.arange(128) + 64])
    made = sums((x, rows, w))
    stream = [
        [
            (x.codes[at, t * EDGE : (t + 1) * EDGE] * (at >= 0), x.exponents[at // EDGE, t])
            for at in rows[:, m]
            for t in range(2)
        ]
        for m in range(128)
    ]
    flat = TileCoded(np.pad(w.codes, ((0, 0), (0, 62), (0, 0))).reshape(256, 65), w.exponents.reshape(4, 2))
    none = TileCoded(np.zeros((1, 65)), np.full((1, 2), -100))
    assert (made.words == by_hand(stream, flat, none, made.tops)).all()
    assert (sums((x, rows, w), positive=True).words == np.maximum(made.words, 0)).all()
    assert made.lost > 0 and (made.tops[0] > made.tops[1] - 17).all()


def test_blocks_of_one_output_tile_have_one_unit():
    """Of two images whose tiles are 2**20 apart, the smaller is lost; alone it is not."""
    rng = np.random.default_rng(16)
    x, w = (rng.integers(-127, 128, shape).astype(float) for shape in ((2, 1, 16, 8), (2, 1, 8, 16)))
    at = np.zeros(1, int)
    small = np.array([[0], [-20]]), np.zeros((2, 1), int)
    values, lost = block_sums((x, small[0][..., None]), (w, small[1][..., None]), (np.zeros(2, int), at))
    assert (values[0, 0] == x[0, 0] @ w[0, 0]).all() and not values[1].any() and lost > 200
    values, lost = block_sums((x, small[0][..., None]), (w, small[1][..., None]), (np.arange(2), at))
    assert (values[1, 0] == x[1, 0] @ w[1, 0] * 2.0**-20).all() and lost == 0


def test_the_widest_sum_fits_its_bits_and_more_tiles_are_refused():
    """2**11 tiles of the largest codes; each product of a tile is 64 * 127**2."""
    for tiles, fits in ((1 << 11, True), (1 << 11 | 1 << 6, False)):
        x, w = np.full((1, tiles * EDGE), 127.0), np.full((tiles * EDGE, 1), 127.0)
        operands = TileCoded(x, np.zeros((1, tiles), int)), TileCoded(w, np.zeros((tiles, 1), int))
        if fits:
            assert sums(operands).words[0, 0] == tiles * 64 * 127**2 << DROP
            continue
        with pytest.raises(ValueError, match="too many tiles"):
            sums(operands)


def test_zeros_times_anything_are_zeros():
    nothing = coded(np.zeros((5, 70)), NARROW)
    made = sums((nothing, coded(np.ones((70, 3)), NARROW)))
    assert not made.values.any() and np.isfinite(made.words).all()
    assert coded(made.values, WIDE).exponents == ZERO


@pytest.mark.parametrize(
    ("pixels", "place", "wanted"),
    [
        (Pixels(1, (2, 2), (2, 2)), (-1, 0), [-1, -1, 0, 1]),
        (Pixels(2, (2, 2), (2, 2)), (0, 1), [1, -1, 3, -1, 5, -1, 7, -1]),
        (Pixels(1, (2, 2), (4, 4), (2, 2)), (1, -1), [-1, 5, -1, 13]),
        (Pixels(1, (4, 4), (2, 2), (2, 2), True), (0, 1), [0, 1, 1, -1, 0, 1, 1, -1, 2, 3, 3, -1, 2, 3, 3, -1]),
        (Pixels(1, (4, 4), (2, 2), (2, 2), True, True), (1, 0), [-1] * 4 + [2, -1, 3, -1] + [-1] * 8),
        (Pixels(2, (1, 3), (1, 5), (1, 2)), (0, -1), [-1, 1, 3, -1, 6, 8]),
    ],
)
def test_addresses_of_a_convolution(pixels, place, wanted):
    assert pixels.rows(*place).tolist() == wanted


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
    values = {
        w.name: rng.standard_normal(w.shape) / (8 if ".lora_" in w.name else np.sqrt(np.prod(w.shape[1:]) + 1))
        for each in listed
        for w in each.weights
    }
    made = network(listed, values)
    data = {port.name: rng.standard_normal((2, *port.shape)) for port in made.inputs}
    return made, learners_of(listed), data, rng.standard_normal((2, 16, 4))


def test_each_layer_is_float_on_the_same_codes():
    """Linear layers and convolutions of 1×1 and 3×3, stride 1 and 2, upsampled too, forward and back, with adapters.

    Without an adapter nothing is rounded but parts of long sums; its hidden vector has codes of 8 bits.
    """
    made, learners, data, _ = small()
    codes = IntegerNetwork(made, learners)
    found = codes.forward(data)
    exact = FloatReading(made)
    exact.values = {w.name: _as_coded(codes, each, w) for each in made.operations for w in each.weights}
    rng, seen = np.random.default_rng(7), set()
    rises = {each.o.name: each for each in made.operations if each.o.name in codes.risen}
    for each in made.operations:
        if not isinstance(each, Linear | Convolution):
            continue
        (t,) = each.i
        dy = Held(rng.standard_normal(found[each.o.name].exact.shape), codes.counts)
        x = found[t.name].narrow.values.reshape(2, *codes.risen.get(t.name, t).shape)
        read = exact._upsample(rises[t.name], x) if t.name in rises else x
        wanted = {t.name: read}
        exact.step(each, wanted)
        back = exact._rule(each, "_back")(
            each, dy.narrow.values.reshape(2, *each.o.shape), [read], wanted[each.o.name], [True], set()
        )[0][0]
        dx = codes._gradient(codes._call(each, "_back", found, dy, [True], {}))
        for one, other in ((found[each.o.name].exact, wanted[each.o.name]), (dx.exact, back)):
            far = np.abs(one - other.reshape(one.shape)).max()
            if each.rank:
                assert 0 < far <= np.abs(other).max() / 50, each
            else:
                taps = int(np.prod(each.kernel)) if isinstance(each, Convolution) else 1
                long = taps * -(-max(each.o.features, each.i[0].features) // EDGE) > 32
                assert far <= np.abs(other).max() * 2.0 ** (-13 if long else -40), each
        size = (each.kernel, each.stride) if isinstance(each, Convolution) else None
        seen.add((size, bool(each.rank), t.name in rises))
    assert len(seen) == 6 and codes.take_counts().lost == 0


def _as_coded(codes, each, weight):
    """Weights as the codes have them, in diffusers' layout."""
    if not isinstance(each, Linear | Convolution):
        return codes.values[weight.name]
    kept = codes.weight(each, weight.name).values
    return kept[0] if len(weight.shape) == 1 else weights_of(each, weight.name, kept.swapaxes(-1, -2), weight.shape)


def test_the_result_alone_is_that_of_the_whole_pass():
    made, learners, data, noise = small()
    net = IntegerNetwork(made, learners)
    whole = net.forward(data)["conv_out"].values
    np.testing.assert_array_equal(net.result(data).values, whole)
    assert loss_of(net, data, noise) == net.falling("values", net.result(data), noise)[0]


def test_gradients_of_the_whole_net_are_near_those_of_float():
    """Every kind of operation, tiles of several images, channels above and below a tile; by gradient."""
    made, learners, data, noise = small()
    net = IntegerNetwork(made, learners)
    found = net.forward(data)
    loss, last = net.falling("values", found["conv_out"], noise)
    gradients = net.backward(found, last)
    expected, exact = loss_and_gradients(FloatReading(made), data, noise, set(learners))
    assert loss == pytest.approx(expected, rel=0.02) and gradients.keys() == exact.keys()
    far = {name: (np.linalg.norm(gradients[name] - each), np.linalg.norm(each)) for name, each in exact.items()}
    assert np.median([error / size for error, size in far.values()]) < 0.1
    # Attention over 4 pixels is almost even: its gradients are small, and the codes' noise is not.
    most = max(size for _, size in far.values())
    assert max(error / size for error, size in far.values() if size > most / 500) < 0.4
    counts = net.take_counts()
    assert counts.stored > 0 == counts.clipped and net.take_counts().stored == 0


def test_the_update_engine_moves_masters_as_torch_does():
    """Ten steps: within a thousandth of the rate a step."""
    rng = np.random.default_rng(8)
    first = {"x.lora_A.weight": rng.standard_normal((8, 70)) / 8, "x.lora_B.weight": np.zeros((130, 8))}
    exact, words = FloatDescent(3e-3), IntegerDescent(rules_of(descent.AdamW(lr=3e-3), first))
    one, other = dict(first), {name: words.begun(name, x) for name, x in first.items()}
    assert np.abs(other["x.lora_A.weight"] - first["x.lora_A.weight"]).max() < 2.0**-30
    assert not other["x.lora_B.weight"].any()
    for _ in range(10):
        g = {
            name: coded(rng.standard_normal(x.shape) * size, WIDE).values
            for (name, x), size in zip(first.items(), (1e-4, 1e-5))
        }
        exact(one, g)
        other = words(other, g)
    for name in first:
        assert np.abs(one[name] - other[name]).max() < 10 * 3e-3 * 1e-3
    assert words.clipped == 0


def test_a_matrix_b_of_zeros_has_the_room_of_its_a():
    a = np.full((2, 3), 0.3)
    first = {"x.lora_A.weight": a, "x.lora_B.weight": np.zeros((4, 2)), "y.lora_A.weight": a, "y.lora_B.weight": 4 * a}
    rules = rules_of(descent.AdamW(lr=1e-3), first)
    assert [rules[name].fraction for name in first] == [29, 29, 29, 27]


def test_the_shipped_net_follows_float():
    """The loss of diffusers' first step; the steps behind it are those of the example diffusion_quality."""
    net = find_unet(DATA / "digits_unet.json")
    listed = operations(net, text=8, rank=8)
    learnt = values_of(load_diffusion_lora(GOLDEN / "init", layers_of(listed)))
    steps, curve = np.load(GOLDEN / "steps.npz"), json.loads((GOLDEN / "curve.json").read_text())
    noisy, noise = (steps[name][0].transpose(0, 2, 3, 1).reshape(16, -1, 4) for name in ("noisy", "noise"))
    data = {"latents": noisy, "timestep": timesteps(net, steps["t"][0])[:, None], "prompt": steps["prompt"][0]}
    codes = IntegerNetwork(network(listed, load_file(DATA / "digits_unet.safetensors") | learnt), list(learnt))
    made = loss_of(codes, data, noise)
    assert made == pytest.approx(curve["loss"][0], rel=0.02) and made != pytest.approx(curve["loss"][0], rel=1e-4)


def test_transposed_codes_are_the_same_codes():
    x = coded(np.random.default_rng(9).standard_normal((70, 130)), NARROW)
    np.testing.assert_array_equal(transposed(x).values, x.values.T)
