"""What a ``config.json`` says of a model, key by key: read exactly, at the bounds, and refused one beyond them."""

import math

import pytest

from gradloom.models.files.language.families import FAMILIES, config_of, described
from gradloom.models.language import _MOST, Scaling, check_positive, check_shapes

LEAST = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 11,
}
#: Without caps, which are not built.
CAPS = dict.fromkeys(("attn_logit_softcapping", "final_logit_softcapping"))


def of(kind, **more):
    """The model of a family with some keys, and how a file has it."""
    caps = CAPS if kind == "gemma2" else {}
    return described({"model_type": kind} | LEAST | caps | more, "m")


@pytest.mark.parametrize(
    ("kind", "more", "fields"),
    [
        ("llama", {}, {"head_dim": 8, "context": 2048, "norm_eps": 1e-6, "rope_theta": 10000.0, "tied": False}),
        ("llama", {"num_key_value_heads": None}, {"kv_heads": 4}),
        ("llama", {"head_dim": 16, "tie_word_embeddings": True}, {"head_dim": 16, "tied": True}),
        ("llama", {"hidden_act": "swish", "attention_dropout": 0, "vocab_size": 1}, {"vocab": 1}),
        ("llama", {"layer_types": ["full_attention"] * 3}, {"layers": 3, "local": ()}),
        ("mistral", {}, {"context": 4096}),
        ("mistral", {"sliding_window": 12}, {"context": 12}),
        ("mistral", {"sliding_window": 12, "max_position_embeddings": 9}, {"context": 9}),
        ("mistral", {"sliding_window": 12, "max_position_embeddings": 12}, {"context": 12}),
        ("qwen2", {"sliding_window": 5}, {"context": 32768, "biases": True}),
        ("qwen3", {}, {"head_dim": 128, "head_norms": True, "biases": False}),
        ("granite", {"attention_multiplier": 0.5}, {"score": 0.5}),
        ("smollm3", {}, {"unturned": (), "rope_theta": 2e6, "tied": True}),
        ("smollm3", {"num_hidden_layers": 9}, {"unturned": (3, 7)}),
        ("smollm3", {"no_rope_layer_interval": 1}, {"unturned": (0, 1, 2)}),
        ("smollm3", {"no_rope_layers": [1, 0, 1, 0]}, {"unturned": (1,)}),
        ("phi3", {"partial_rotary_factor": 0.5}, {"turned": 4, "fused": True, "context": 4096, "norm_eps": 1e-5}),
        (
            "phi3",
            {
                "rope_scaling": {"type": "longrope", "short_factor": [1, 2, 3, 4], "long_factor": [1, 2, 3, 4]},
                "original_max_position_embeddings": 64,
            },
            {"context": 64, "scaling": Scaling(divisors=(1, 2, 3, 4), original=64, size=math.sqrt(2))},
        ),
        ("olmo2", {}, {"norms": "after", "joint_norms": True}),
        ("gemma2", {}, {"score": 256**-0.5, "norms": "both", "gate": "gelu_tanh", "context": 4096, "local": ()}),
        ("gemma2", {"sliding_window": 7}, {"context": 7}),
        ("gemma2", {"layer_types": ["full_attention"] * 3, "sliding_window": 7}, {"context": 8192}),
        ("gemma3_text", {}, {"local_theta": 1e4, "local": (0, 1, 2), "rope_theta": 1e6, "head_dim": 256}),
        ("gemma3_text", {"sliding_window_pattern": 2}, {"local": (0, 2)}),
        ("gemma3_text", {"_sliding_window_pattern": 3}, {"local": (0, 1, 2)}),
        ("gemma3_text", {"layer_types": ["sliding_attention", "full_attention", "full_attention"]}, {"local": (0,)}),
    ],
)
def test_keys_are_fields(kind, more, fields):
    model = of(kind, **more).model
    assert {name: getattr(model, name) for name in fields} == fields


def test_factors_are_in_tensors_and_in_the_norms_epsilon():
    made = of(
        "granite",
        embedding_multiplier=12.0,
        residual_multiplier=0.5,
        logits_scaling=8.0,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
    )
    assert (made.embedding, made.head, made.model.norm_eps) == (24.0, 0.125, 4e-5)
    assert made.tied and not made.model.tied
    gemma = of("gemma3_text")
    assert (gemma.embedding, gemma.head, gemma.shift) == (math.sqrt(32), 1.0, 1.0)


REFUSED = [
    ("llama", {"hidden_size": 0}, "hidden_size=0: must be an integer from 1 to 65536"),
    ("llama", {"hidden_size": "32"}, 'hidden_size="32": must be an integer from 1 to 65536'),
    ("llama", {"num_attention_heads": 0}, "num_attention_heads=0: must be an integer from 1 to 1024"),
    ("llama", {"num_attention_heads": None}, "num_attention_heads=null: must be an integer from 1 to 1024"),
    ("llama", {"num_key_value_heads": 3}, "num_key_value_heads=3: must divide num_attention_heads=4"),
    ("llama", {"head_dim": 7}, "head_dim=7: must be even, rotary positions turn pairs"),
    ("llama", {"rms_norm_eps": 0}, "rms_norm_eps=0: must be a number above 0 and below 1e12"),
    ("llama", {"rope_theta": True}, "rope_theta=true: must be a number above 0 and below 1e12"),
    ("llama", {"tie_word_embeddings": 1}, "tie_word_embeddings=1: must be true or false"),
    ("llama", {"num_local_experts": 8}, "num_local_experts=8: a mixture of experts; only dense models"),
    ("llama", {"num_local_experts": 0}, "num_local_experts=0: this key is not known"),
    ("llama", {"model_type": None}, "has no model_type"),
    ("llama", {"model_type": ["llama"]}, 'model_type=["llama"]: must be one of llama, mistral'),
    ("llama", {"_class_name": "UNet"}, '_class_name="UNet": is a model of diffusers, not a language model'),
    ("llama", {"architectures": "LlamaForCausalLM"}, 'architectures="LlamaForCausalLM": must be ["LlamaForCausalLM"]'),
    ("llama", {"architectures": ["LlamaForCausalLM", "A"]}, 'architectures=["LlamaForCausalLM", "A"]: must be '),
    ("llama", {"layer_types": ["full_attention"] * 2}, 'layer_types=["full_attention", "full_attention"]: must be f'),
    ("llama", {"attention_bias": True}, "attention_bias=true: must be false"),
    ("llama", {"sliding_window": 8}, "sliding_window=8: must be null"),
    ("mistral", {"sliding_window": 0}, "sliding_window=0: must be an integer above 0, below 1e12"),
    ("mistral", {"sliding_window": True}, "sliding_window=true: must be an integer above 0, below 1e12"),
    ("mistral", {"sliding_window": 10**12}, "sliding_window=1000000000000: must be an integer above 0, below 1e12"),
    ("smollm3", {"no_rope_layer_interval": 0}, "no_rope_layer_interval=0: must be an integer above 0, below 1e12"),
    ("smollm3", {"no_rope_layers": [1, 1]}, "no_rope_layers=[1, 1]: must be 0 or 1 for each of the 3 layers"),
    ("smollm3", {"no_rope_layers": [1, 1, 2]}, "no_rope_layers=[1, 1, 2]: must be 0 or 1 for each of the 3 layers"),
    ("smollm3", {"no_rope_layers": "111"}, 'no_rope_layers="111": must be 0 or 1 for each of the 3 layers'),
    ("granite", {"embedding_multiplier": 0}, "embedding_multiplier=0: must be a number above 0 and below 1e12"),
    ("gemma2", {"attn_logit_softcapping": 0.5}, "attn_logit_softcapping=0.5: must be null; caps by tanh"),
    ("gemma2", {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar=0: must be a number above 0 and below 1e12"),
    ("gemma3_text", {"rope_local_base_freq": 0}, "rope_local_base_freq=0: must be a number above 0 and below 1e12"),
    ("gemma3_text", {"sliding_window_pattern": 0}, "sliding_window_pattern=0: must be an integer above 0, below 1e12"),
    ("gemma3_text", {"layer_types": ["full_attention"]}, 'layer_types=["full_attention"]: must be full_attention or'),
    ("gemma3_text", {"layer_types": "x"}, 'layer_types="x": must be full_attention or sliding_attention of each of'),
    ("gemma3_text", {"num_hidden_layers": True}, "num_hidden_layers=true: must be an integer from 1 to 1024"),
]


@pytest.mark.parametrize(("kind", "more", "says"), REFUSED)
def test_what_cannot_be_is_refused_by_its_key(kind, more, says):
    with pytest.raises(ValueError) as refused:
        of(kind, **more)
    assert str(refused.value).startswith(says)


def test_a_cap_is_refused_where_the_file_leaves_it_to_its_default():
    with pytest.raises(ValueError, match="^attn_logit_softcapping=50.0: must be null"):
        described({"model_type": "gemma2"} | LEAST, "m")


@pytest.mark.parametrize("key", sorted(LEAST.keys() - {"num_key_value_heads"}))
def test_a_size_that_is_missing_is_named(key):
    with pytest.raises(ValueError, match=f"^has no {key}$"):
        described({"model_type": "llama"} | {k: v for k, v in LEAST.items() if k != key}, "m")


SIZES = {
    "hidden": 8,
    "inter": 8,
    "layers": 1,
    "heads": 1,
    "kv_heads": 1,
    "head_dim": 2,
    "vocab": 1,
    "context": 1,
    "rope_theta": 1.0,
    "norm_eps": 1.0,
}


@pytest.mark.parametrize(("field", "most"), _MOST.items())
def test_sizes_have_bounds(field, most):
    heads = {"heads": most} if field == "kv_heads" else {}
    check_shapes(SIZES | {field: most} | heads)
    for value in (0, most + 1, True, 1.0):
        with pytest.raises(ValueError, match=rf"^own={str(value).lower()}: must be an integer from 1 to {most}$"):
            check_shapes(SIZES | {field: value}, {field: "own"})


def test_bounds_are_those_of_the_documentation():
    assert [*_MOST.values()] == [65536, 262144, 1024, 1024, 1024, 1024, 4194304, 16777216]


def test_positive_numbers_have_an_upper_bound():
    check_positive("a", 5e-324)
    check_positive("a", 999_999_999_999)
    for value in (0, -1, 1e12, math.nan, math.inf, True, "1"):
        with pytest.raises(ValueError, match="^a=.*: must be a number above 0 and below 1e12$"):
            check_positive("a", value)


@pytest.mark.parametrize(("kind", "count"), [(kind, 1 + (kind == "llama")) for kind in FAMILIES])
def test_a_model_is_written_as_it_was_read(kind, count):
    model = of(kind).model
    again = described(config_of(model), "m")
    assert again.model == model and len(FAMILIES[kind].architectures) == count


@pytest.mark.parametrize(
    ("scaling", "key"),
    [
        ({"rope_type": "linear", "factor": 3.0}, "linear"),
        (
            {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 512,
            },
            "llama3",
        ),
    ],
)
def test_scaled_positions_are_written_as_they_were_read(scaling, key):
    model = of("llama", rope_scaling=scaling).model
    written = config_of(model)
    assert written["rope_scaling"] == scaling and described(written, "m").model == model


def test_positions_by_divisors_are_written_with_their_size():
    long = {"type": "longrope", "short_factor": [1.0, 2.0, 3.0, 4.0], "long_factor": [9.0] * 4}
    model = of("phi3", rope_scaling=long, original_max_position_embeddings=64).model
    written = config_of(model)
    assert written["original_max_position_embeddings"] == 64
    assert written["rope_scaling"]["attention_factor"] == model.scaling.size > 1
    assert written["rope_scaling"]["long_factor"] == [1.0, 2.0, 3.0, 4.0]
    assert described(written, "m").model == model


def test_layers_without_positions_and_with_a_window_are_written():
    assert config_of(of("smollm3", num_hidden_layers=4).model)["no_rope_layers"] == [1, 1, 1, 0]
    gemma = config_of(of("gemma2").model)
    assert gemma["layer_types"] == ["sliding_attention", "full_attention", "sliding_attention"]
    assert gemma["query_pre_attn_scalar"] == pytest.approx(256) and "rope_local_base_freq" not in gemma
    assert config_of(of("gemma3_text").model)["rope_local_base_freq"] == 1e4
    assert config_of(of("phi3", partial_rotary_factor=0.5).model)["partial_rotary_factor"] == 0.5
    assert config_of(of("llama").model)["attention_bias"] is False and "attention_bias" not in config_of(
        of("qwen2").model
    )
