"""Products of a LoRA step are those that torch counts, and those of small lists by hand."""

import json
from pathlib import Path

from gradloom.compiler.estimate.products import (
    ShapedProduct,
    backward,
    forward,
    narrow_tensors,
    parameters,
    with_gradients,
)
from gradloom.graph.operations import Activation, Attention, Convolution, Linear
from gradloom.models.files.unet import SD_V1_5, parsed
from gradloom.systems.diffusion.unet import operations

from ..nets import conv, tensor


def listed(products):
    """All fields of products, those of a shape as m, k, n."""
    return [(p.layer, p.part, (p.m, p.k, p.n), p.times, p.frozen, p.stored) for p in products]


def attending(q=0, k=0, v=0):
    """Three linear layers of ranks ``q``, ``k``, ``v`` before attention of 3 heads of 4 features, and a head."""
    x, text = tensor("x", 5, 20), tensor("text", 7, 24)
    made = tensor("q", 5, 12), tensor("k", 7, 12), tensor("v", 7, 12)
    layers = [Linear((x if t is made[0] else text,), t, t.name, rank=r) for t, r in zip(made, (q, k, v))]
    mixed = tensor("mixed", 5, 12)
    return [*layers, Attention(made, mixed, 3, 0.5), Linear((mixed,), tensor("y", 5, 20), "out")]


def test_stable_diffusion_has_diffusers_parameters_and_multiplications():
    """Both counts are of diffusers' own class; the first is exact, the second was given to 10 M."""
    ops = operations(SD_V1_5)
    assert sum(parameters(ops).values()) == 859_520_964
    assert round(sum(each.macs for each in forward(ops)) / 1e7) == 40_164


def test_three_random_networks_have_torchs_multiplications_and_parameters():
    """Counted by torch's FlopCounterMode in diffusers' own class: golden/diffusion/make_macs.py."""
    golden = Path(__file__).parents[2] / "golden" / "diffusion" / "macs.json"
    for each in json.loads(golden.read_text()):
        ops = operations(parsed("random", each["config"]), text=each["text"])
        assert sum(parameters(ops).values()) == each["parameters"]
        assert sum(product.macs for product in forward(ops, each["images"])) == each["macs"]


def test_an_adapters_step_is_twice_the_forward_pass_and_a_little():
    """Attention has two gradients a product; all in front of the lowest adapter has none."""
    ops = operations(SD_V1_5, rank=8)
    made = [*forward(ops), *backward(ops)]
    assert 834.0e9 < sum(each.macs for each in made) < 834.8e9
    dead = {each.layer for each in ops if isinstance(each, Linear | Convolution)} - {
        each.layer for each in made if each.part in ("dX", "dA")
    }
    assert {"conv_in", "down_blocks.0.resnets.0.conv1", "time_embedding.linear_1"} <= dead
    assert "conv_out" not in dead and "mid_block.resnets.0.conv1" not in dead


def test_every_product_has_its_gradients():
    ops = operations(SD_V1_5, rank=8)
    parts = {}
    for each in (*forward(ops), *backward(ops)):
        if each.layer == "mid_block.attentions.0.transformer_blocks.0.attn2.to_k":
            parts[each.part] = (each.m, each.k, each.n)
    # The prompt is no result of an adapter, so nothing wants its gradient.
    assert parts == {
        "base": (77, 768, 1280),
        "h": (77, 768, 8),
        "hB": (77, 8, 1280),
        "P": (77, 1280, 8),
        "dA": (768, 77, 8),
        "dB": (1280, 77, 8),
    }


def test_without_adapters_nothing_goes_back():
    ops = operations(SD_V1_5)
    assert not with_gradients(ops) and not list(backward(ops))


def test_attention_counts_heads_of_samples_and_what_only_products_read_takes_a_byte():
    """Of one sample unless others are named; rows of linear layers are those of all samples."""
    ops = attending(q=2, k=4)
    assert narrow_tensors(ops) == {"x", "text", "q", "k", "v", "mixed"}
    assert listed(forward(ops, 2)) == [
        ("q", "base", (10, 20, 12), 1, True, 1),
        ("q", "h", (10, 20, 2), 1, False, 1),
        ("q", "hB", (10, 2, 12), 1, False, 0),
        ("k", "base", (14, 24, 12), 1, True, 1),
        ("k", "h", (14, 24, 4), 1, False, 1),
        ("k", "hB", (14, 4, 12), 1, False, 0),
        ("v", "base", (14, 24, 12), 1, True, 1),
        ("mixed", "scores", (5, 4, 7), 6, False, 2),
        ("mixed", "mix", (5, 7, 4), 6, False, 1),
        ("out", "base", (10, 12, 20), 1, True, 2),
    ]
    assert listed(forward(ops)) == listed(forward(ops, 1)) != listed(forward(ops, 2))
    # What is added to scores is no product.
    mask = Attention((*ops[3].i, tensor("mask", 5, 7)), ops[3].o, 3, 0.5)
    assert listed(forward([*ops[:3], mask, ops[4]])) == listed(forward(ops))
    assert listed(backward([*ops[:3], mask, ops[4]])) == listed(backward(ops))
    # Who reads more than a product has it at two bytes.
    wide = [*ops, Activation((ops[3].o,), tensor("more", 5, 12), "silu")]
    assert narrow_tensors(wide) == narrow_tensors(ops) - {"mixed"}
    assert [each.stored for each in forward(wide) if each.part == "mix"] == [2]


def test_attention_has_the_gradients_that_are_wanted():
    """Of v without those of the scores, of q and k without that of v, and of one of them."""

    def attention(ops, batch):
        return [each for each in listed(backward(ops, batch)) if each[0] == "mixed"]

    of_v = ("mixed", "dV", (7, 5, 4), 6, False, 1)
    of_p = ("mixed", "dProbabilities", (5, 4, 7), 6, False, 2)
    of_q, of_k = ("mixed", "dQ", (5, 7, 4), 6, False, 1), ("mixed", "dK", (7, 5, 4), 6, False, 1)
    assert attention(attending(v=2), 2) == [of_v]
    assert attention(attending(q=2), 2) == [of_p, of_q]
    assert attention(attending(k=2), 2) == [of_p, of_k]
    assert attention(attending(q=2, k=2, v=2), 2) == [of_v, of_p, of_q, of_k]
    assert listed(backward(attending(q=4), 2)) == [
        ("out", "dX", (10, 20, 12), 1, True, 2),
        of_p,
        of_q,
        ("q", "P", (10, 12, 4), 1, False, 1),
        ("q", "dA", (20, 10, 4), 1, False, 2),
        ("q", "dB", (12, 10, 4), 1, False, 2),
    ]
    assert listed(backward(attending(q=4))) == listed(backward(attending(q=4), 1))


def test_convolutions_are_products_of_all_places_and_adapters_behind_one_want_its_gradient():
    """A second adapter wants the gradient of what it reads, once of its weights and once of its factors."""
    x, small = tensor("x", 4, 6, 3), tensor("small", 4, 6, 5)
    first = conv(small, "first", 7, (3, 2), pads=(1, 0))
    seen = tensor("seen", *first.o.sides, 9)
    ops = [
        Linear((x,), small, "low", rank=2),
        first,
        Linear((first.o,), seen, "high", rank=4),
        Activation((seen,), tensor("y", *first.o.sides, 9), "silu"),
    ]
    # Four rows of five pixels.
    assert [each for each in listed(forward(ops, 3)) if each[0] == "first"] == [
        ("first", "base", (60, 5 * 6, 7), 1, True, 1)
    ]
    assert listed(backward(ops, 3))[:6] == [
        ("high", "dX", (60, 9, 7), 1, True, 2),
        ("high", "P", (60, 9, 4), 1, False, 1),
        ("high", "PA", (60, 4, 7), 1, False, 0),
        ("high", "dA", (7, 60, 4), 1, False, 2),
        ("high", "dB", (9, 60, 4), 1, False, 2),
        ("first", "dX", (60, 7, 5 * 6), 1, True, 2),
    ]
    assert parameters(ops) == {
        "low.weight": 15, "low.bias": 5, "first.weight": 7 * 30, "first.bias": 7, "high.weight": 63, "high.bias": 9,
    }  # fmt: skip


def test_a_known_inputs_products_are_read_where_they_were_made():
    """Two bytes of what the adapter is added to are read, and its sum stored; layers without adapters do nothing."""
    ops = attending(q=2, k=2)
    assert listed(forward(ops, known={"text"})) == [
        *listed(forward(ops))[:3],
        ("k", "h", (7, 24, 2), 1, False, 1),
        ("k", "hB", (7, 2, 12), 1, False, 3),
        *listed(forward(ops))[-3:],
    ]


def test_multiplications_and_bytes_of_a_product():
    """Operands are a byte a value, a result what is stored of it: two bytes unless said otherwise."""
    made = ShapedProduct("x", "base", m=5, n=11, k=7, times=3)
    assert made.macs == 3 * 5 * 11 * 7 and made.bytes == 3 * (5 * 7 + 7 * 11 + 2 * 5 * 11) and not made.frozen
    assert ShapedProduct("x", "base", m=5, n=11, k=7, stored=0).bytes == 5 * 7 + 7 * 11


def test_cycles_and_utilisation_of_a_product():
    full = ShapedProduct("x", "base", m=128, n=64, k=128)
    assert full.cycles(64, 64) == 2 * 128 and full.utilisation(64, 64) == 1.0
    thin = ShapedProduct("x", "h", m=128, n=8, k=64, times=3)
    assert thin.cycles(64, 64) == 3 * 128 and thin.utilisation(64, 64) == 1 / 8
    assert ShapedProduct("x", "base", m=7, n=1, k=1).cycles(64, 64) == 64
    # A block of 64 rows and one of 13, which takes as long as the load.
    assert [ShapedProduct("x", "base", m=77, n=1, k=1).cycles(rows, 64) for rows in (64, 16, 8)] == [128, 80, 77]
    # Tiles of the second operand that are filled in part take as long as full ones.
    assert ShapedProduct("x", "base", m=64, n=33, k=65).cycles(64, 32) == 2 * 2 * 64
    assert ShapedProduct("x", "base", m=64, n=32, k=64).cycles(64, 32) == 64
