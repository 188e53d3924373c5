"""Families of language models in transformers' ``config.json``, by their ``model_type``.

Each is LLaMA's decoder with a few parts changed, and its tensors as a file has them (:class:`~.form.Folded`). Whatever
a family has beside that is refused by its key.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...language import LanguageModel, check_positive, check_shapes
from ..keys import ANY, check_keys, shown
from .form import Folded
from .four_bits import check_quantization
from .positions import SCALED, base_and_scaling, by_kind, turned

__all__ = ["FAMILIES", "config_of", "described"]

#: Keys of config.json, by the fields of a model that have other names.
_KEYS = {
    "hidden": "hidden_size",
    "inter": "intermediate_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "vocab": "vocab_size",
    "context": "max_position_embeddings",
    "norm_eps": "rms_norm_eps",
    "score": "attention_multiplier",
}
#: Keys of config.json that are read and checked here.
_HANDLED = frozenset(
    (
        "model_type",
        "architectures",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
    )
    + ("vocab_size", "max_position_embeddings", "rms_norm_eps", "tie_word_embeddings", "layer_types")
    + ("rope_theta", "rope_parameters", "rope_scaling", "quantization_config")
)
#: Other keys, with the values for which they change nothing.
_HARMLESS: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu", "swish"),
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "auto_map": (None,),
    "attention_dropout": (0.0,),
    "hidden_dropout": (0.0,),
    "resid_pdrop": (0.0,),
    "embd_pdrop": (0.0,),
    # Of other families, which have keys beside LLaMA's.
    "partial_rotary_factor": (1.0,),
    "rope_interleaved": (False,),
    "sliding_window": (None,),
    "use_sliding_window": (False,),
    "is_causal": (True,),
    "attention_multiplier": (None,),
    "embedding_multiplier": (1.0,),
    "residual_multiplier": (1.0,),
    "logits_scaling": (1.0,),
    "logit_scale": (1.0,),
    "clip_qkv": (None,),
    "attn_logit_softcapping": (None,),
    "final_logit_softcapping": (None,),
    "add_cross_attention": (False,),
    "is_encoder_decoder": (False,),
} | dict.fromkeys(
    # Of files, training, other heads, and of how tokens are drawn.
    ("_name_or_path", "name_or_path", "transformers_version", "transformers.js_config", "is_llama_config", "dtype")
    + (
        "torch_dtype",
        "torchscript",
        "use_bfloat16",
        "tf_legacy_loss",
        "_attn_implementation_autoset",
        "_flash_attn_2_enabled",
    )
    + (
        "unsloth_fixed",
        "unsloth_version",
        "max_sequence_length",
        "model_max_length",
        "original_max_position_embeddings",
    )
    + ("pretraining_tp", "initializer_range", "use_cache", "cache_implementation", "attn_implementation")
    + ("_attn_implementation", "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "unk_token_id")
    + ("decoder_start_token_id", "output_attentions", "output_hidden_states", "output_router_logits", "return_dict")
    + ("tie_last_hidden_states", "tie_encoder_decoder", "chunk_size_feed_forward", "is_decoder", "id2label")
    + ("label2id", "num_labels", "problem_type", "finetuning_task", "tokenizer_class", "prefix")
    + ("cross_attention_hidden_size", "task_specific_params", "max_length", "min_length", "do_sample")
    + ("early_stopping", "num_beams", "num_beam_groups", "diversity_penalty", "temperature", "top_k", "top_p")
    + ("typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size", "num_return_sequences")
    + ("encoder_no_repeat_ngram_size", "bad_words_ids", "output_scores", "return_dict_in_generate")
    + ("forced_bos_token_id", "forced_eos_token_id", "remove_invalid_values", "exponential_decay_length_penalty")
    + ("suppress_tokens", "begin_suppress_tokens"),
    ANY,
)


@dataclass(frozen=True, kw_only=True)
class Family:
    """A ``model_type``, by the differences from LLaMA.

    ``defaults``: of keys that a file may leave out. ``handled``: keys that are read beside LLaMA's. ``harmless``: as
    for :func:`~.keys.check_keys`. ``parts``: fields of a model that have no key. ``shift``: of norms' weights.
    ``rooted``: the embedding is multiplied by the root of the hidden size, and scores have a key of their own.
    """

    architectures: tuple[str, ...]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    handled: tuple[str, ...] = ()
    harmless: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    parts: Mapping[str, Any] = field(default_factory=dict)
    shift: float = 0.0
    rooted: bool = False


#: A window that is off.
_NO_WINDOW: dict[str, tuple[Any, ...]] = {
    "use_sliding_window": (False,),
    "sliding_window": ANY,
    "max_window_layers": ANY,
}
_QWEN = {"num_key_value_heads": 32, "max_position_embeddings": 32768}
#: Factors of Granite's tensors and sums.
_FACTORS = ("embedding_multiplier", "residual_multiplier", "logits_scaling", "attention_multiplier")
#: Of Gemma: caps of scores and logits by a hyperbolic tangent are not built, nor attention to later tokens.
_GEMMA: dict[str, Any] = {
    "handled": ("sliding_window", "query_pre_attn_scalar"),
    "harmless": {
        "hidden_act": ("gelu_pytorch_tanh",),
        "hidden_activation": ("gelu_pytorch_tanh",),
        "use_bidirectional_attention": (False,),
    },
    "shift": 1.0,
    "rooted": True,
}
_GEMMA_KEYS = {
    "num_key_value_heads": 4,
    "head_dim": 256,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "tie_word_embeddings": True,
}
#: Of every so many layers one has all tokens in view.
_PATTERNS = ("sliding_window_pattern", "_sliding_window_pattern")
FAMILIES = {
    "llama": Family(architectures=("LlamaForCausalLM", "LLaMAForCausalLM")),
    "mistral": Family(
        architectures=("MistralForCausalLM",),
        defaults={"num_key_value_heads": 8, "max_position_embeddings": 131072, "sliding_window": 4096},
        handled=("sliding_window",),
    ),
    "qwen2": Family(
        architectures=("Qwen2ForCausalLM",),
        defaults=_QWEN,
        harmless=_NO_WINDOW | {"attention_bias": ANY},
        parts={"biases": True},
    ),
    "qwen3": Family(
        architectures=("Qwen3ForCausalLM",),
        defaults=_QWEN | {"head_dim": 128},
        harmless=_NO_WINDOW,
        parts={"head_norms": True},
    ),
    "granite": Family(architectures=("GraniteForCausalLM",), defaults=dict.fromkeys(_FACTORS, 1.0), handled=_FACTORS),
    "smollm3": Family(
        architectures=("SmolLM3ForCausalLM",),
        defaults={
            "num_key_value_heads": 4,
            "max_position_embeddings": 32768,
            "rope_theta": 2000000.0,
            "tie_word_embeddings": True,
            "no_rope_layer_interval": 4,
        },
        handled=("no_rope_layers", "no_rope_layer_interval"),
        harmless=_NO_WINDOW,
    ),
    "phi3": Family(
        architectures=("Phi3ForCausalLM",),
        defaults={"max_position_embeddings": 4096, "rms_norm_eps": 1e-5},
        handled=("sliding_window", "partial_rotary_factor", "original_max_position_embeddings"),
        harmless={"auto_map": ANY, "full_attn_mod": (1,), "interpolate_factor": (1,), "lm_head_bias": (False,)},
        parts={"fused": True},
    ),
    "olmo2": Family(
        architectures=("Olmo2ForCausalLM",),
        defaults={"rms_norm_eps": 1e-5},
        parts={"norms": "after", "joint_norms": True},
    ),
    "gemma2": Family(
        architectures=("Gemma2ForCausalLM",),
        defaults=_GEMMA_KEYS
        | {"max_position_embeddings": 8192, "sliding_window_pattern": 2}
        | {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
        parts={"norms": "both", "gate": "gelu_tanh"},
        **_GEMMA,
    ),
    "gemma3_text": Family(
        architectures=("Gemma3ForCausalLM",),
        defaults=_GEMMA_KEYS
        | {"max_position_embeddings": 131072, "rope_theta": 1e6}
        | {"rope_local_base_freq": 1e4, "sliding_window_pattern": 6},
        parts={"norms": "both", "gate": "gelu_tanh", "head_norms": True},
        **_GEMMA | {"handled": (*_GEMMA["handled"], "rope_local_base_freq", *_PATTERNS)},
    ),
}


def described(config: Mapping[str, Any], name: str) -> Folded:
    """The model of a ``config.json``; :class:`ValueError` names the key that it is not."""
    family = _family(config)
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        cap = config.get(key, family.defaults.get(key))
        if cap is not None:
            raise ValueError(
                f"{key}={shown(cap)}: must be null; caps by tanh are not built; nearest is gemma3_text, which has none"
            )
    check_keys(
        config,
        handled=_HANDLED | {*family.handled},
        harmless={key: each for key, each in _HARMLESS.items() if key not in family.handled} | family.harmless,
    )
    check_quantization(config.get("quantization_config"))

    def value(key: str, default: Any = None) -> Any:
        found = config.get(key)
        return family.defaults.get(key, default) if found is None else found

    try:
        heads = config["num_attention_heads"]
        shapes = {
            "hidden": config["hidden_size"],
            "inter": config["intermediate_size"],
            "layers": config["num_hidden_layers"],
            "heads": heads,
            "kv_heads": value("num_key_value_heads", heads),
            "head_dim": value("head_dim", _quotient(config["hidden_size"], heads)),
            "vocab": config["vocab_size"],
            "context": value("max_position_embeddings", 2048),
            "norm_eps": value("rms_norm_eps", 1e-6),
        }
    except KeyError as error:
        raise ValueError(f"has no {error.args[0]}") from None
    windowed = _windowed(value, family, shapes["layers"])
    if "sliding_window" in family.handled and value("sliding_window") is not None and any(windowed):
        # A text within the window attends to all of itself.
        window = _whole("sliding_window", value("sliding_window"))
        if isinstance(shapes["context"], int):
            shapes["context"] = min(shapes["context"], window)
    factors = {key: value(key, 1.0) for key in _FACTORS}
    for key, factor in factors.items():
        check_positive(key, factor)
    embedding, residual, logits, score = factors.values()
    more: dict[str, Any] = dict(family.parts)
    if "attention_multiplier" in family.handled:
        more["score"] = score
    if family.rooted:
        check_positive("query_pre_attn_scalar", value("query_pre_attn_scalar"))
        more["score"] = value("query_pre_attn_scalar") ** -0.5
    if "rope_local_base_freq" in family.handled:
        bases = family.defaults["rope_theta"], family.defaults["rope_local_base_freq"]
        shapes["rope_theta"], scaling, more["local_theta"] = by_kind(config, bases)
        check_positive("rope_local_base_freq", more["local_theta"])
        more["local"] = tuple(layer for layer, short in enumerate(windowed) if short)
    else:
        partial = "partial_rotary_factor" in family.handled
        theta = family.defaults.get("rope_theta", 10000.0)
        shapes["rope_theta"], scaling = base_and_scaling(_with_length(config, value), theta, partial=partial)
        if partial:
            more["turned"] = turned(config, shapes["head_dim"])
    if scaling is not None and scaling.divisors and isinstance(shapes["context"], int):
        # Divisors of longer texts are others, and one text has one of both.
        shapes["context"] = min(shapes["context"], scaling.original or shapes["context"])
    check_shapes(shapes, _KEYS)
    if family.rooted:
        embedding = math.sqrt(shapes["hidden"])
    # RMSNorm does not see the size of what it reads but for its epsilon: the residual stream is divided by the factor
    # of the sums, instead of the sums being multiplied.
    shapes["norm_eps"] /= residual**2
    tied = _tied(value("tie_word_embeddings", False))
    folded = {"embedding": embedding / residual, "head": 1 / logits}
    model = LanguageModel(
        name=name,
        tied=tied and folded["embedding"] == folded["head"] == 1,
        scaling=scaling,
        unturned=_unturned(value, shapes["layers"]) if "no_rope_layers" in family.handled else (),
        **more,
        **shapes,
    )
    return Folded(model=model, tied=tied, shift=family.shift, **folded)


def _with_length(config: Mapping[str, Any], value: Callable[..., Any]) -> Mapping[str, Any]:
    """A file with the length of its texts, which it may leave out."""
    return {**config, "max_position_embeddings": value("max_position_embeddings", 2048)}


def _windowed(value: Callable[..., Any], family: Family, layers: Any) -> list[bool]:
    """Of each layer whether a token sees a window alone."""
    kinds, every = value("layer_types"), next((value(each) for each in _PATTERNS if value(each) is not None), None)
    if not isinstance(layers, int) or isinstance(layers, bool) or not 0 < layers < 1 << 16:
        return [True]
    if "sliding_window_pattern" not in family.defaults:
        # Of a family whose layers are alike.
        if kinds is not None and kinds != ["full_attention"] * layers:
            raise ValueError(f"layer_types={shown(kinds)}: must be full_attention of all {layers} layers")
        return [True] * layers
    if kinds is None:
        step = _whole(_PATTERNS[0], every)
        return [(layer + 1) % step != 0 for layer in range(layers)]
    names = ("full_attention", "sliding_attention")
    if not isinstance(kinds, list) or len(kinds) != layers or any(each not in names for each in kinds):
        raise ValueError(f"layer_types={shown(kinds)}: must be {' or '.join(names)} of each of the {layers} layers")
    return [each == names[1] for each in kinds]


def config_of(model: LanguageModel) -> dict[str, Any]:
    """A ``config.json`` of a model, of the family that has its parts."""
    parts = {
        "qwen2": model.biases,
        "qwen3": model.head_norms and model.norms == "before",
        "smollm3": bool(model.unturned),
        "granite": model.score is not None and model.norms == "before",
        "phi3": model.fused or model.turned is not None,
        "olmo2": model.joint_norms,
        "gemma2": model.norms == "both" and not model.head_norms,
        "gemma3_text": model.norms == "both" and model.head_norms,
    }
    found = [kind for kind, has in parts.items() if has] or ["llama"]
    if len(found) > 1:
        raise ValueError(f"{model.name}: no model_type has the parts of {' and '.join(found)} together")
    family = FAMILIES[found[0]]
    own = {part: getattr(model, part) for part in ("norms", "gate", "joint_norms", "head_norms", "biases", "fused")}
    if family.parts != {part: value for part, value in own.items() if value not in (False, "before", "silu")}:
        raise ValueError(f"{model.name}: {found[0]} has not all of its parts, and no other model_type has them")
    more: dict[str, Any] = {} if model.biases else {"attention_bias": False}
    if model.scaling is not None:
        kind = "longrope" if model.scaling.divisors else "linear" if model.scaling.low is None else "llama3"
        values = {its: getattr(model.scaling, each) for each, its in SCALED[kind].items()}
        if kind == "longrope":
            # No longer texts than these are allowed, so that the others' divisors count for nothing.
            values["long_factor"] = values["short_factor"] = list(model.scaling.divisors)
            values["attention_factor"] = model.scaling.size
            more["original_max_position_embeddings"] = model.scaling.original
        # Transformers reads this older key in all versions.
        more["rope_scaling"] = {"rope_type": kind} | values
    if model.unturned:
        more["no_rope_layers"] = [int(layer not in model.unturned) for layer in range(model.layers)]
    if model.turned is not None:
        more["partial_rotary_factor"] = model.turned / model.head_dim
    if family.rooted:
        more |= {"query_pre_attn_scalar": model.score_factor**-2, "hidden_activation": "gelu_pytorch_tanh"}
        more |= {"sliding_window": model.context, "final_logit_softcapping": None, "attn_logit_softcapping": None}
        short = {*model.local} if model.local_theta else {*range(0, model.layers, 2)}
        more["layer_types"] = [f"{'sliding' if n in short else 'full'}_attention" for n in range(model.layers)]
        more |= {"rope_local_base_freq": model.local_theta} if model.local_theta else {}
    elif model.score is not None:
        more |= dict.fromkeys(_FACTORS, 1.0) | {"attention_multiplier": model.score}
    return {
        "architectures": [family.architectures[0]],
        "model_type": found[0],
        "head_dim": model.head_dim,
        "rope_theta": model.rope_theta,
        "tie_word_embeddings": model.tied,
        "hidden_act": "gelu_pytorch_tanh" if family.rooted else "silu",
        **{its: getattr(model, each) for each, its in _KEYS.items() if each != "score"},
        **more,
    }


def _family(config: Mapping[str, Any]) -> Family:
    """Refuses models of other kinds, by their kind."""
    if config.get("_class_name") is not None:
        raise ValueError(f"_class_name={shown(config['_class_name'])}: is a model of diffusers, not a language model")
    experts = next((key for key in config if "expert" in key and config[key]), None)
    if experts:
        raise ValueError(f"{experts}={shown(config[experts])}: a mixture of experts; only dense models are supported")
    kind = config.get("model_type")
    if kind is None:
        raise ValueError("has no model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise ValueError(f"model_type={shown(kind)}: must be one of {', '.join(FAMILIES)}")
    named = config.get("architectures")
    if named and (not isinstance(named, list) or len(named) != 1 or named[0] not in FAMILIES[kind].architectures):
        raise ValueError(
            f"architectures={shown(named)}: must be {shown([FAMILIES[kind].architectures[0]])} of model_type {kind}"
        )
    return FAMILIES[kind]


def _unturned(value: Any, layers: int) -> tuple[int, ...]:
    """Layers without rotary positions."""
    turned = value("no_rope_layers")
    if turned is None:
        every = _whole("no_rope_layer_interval", value("no_rope_layer_interval"))
        turned = [int((layer + 1) % every != 0) for layer in range(layers)]
    if not isinstance(turned, list) or len(turned) < layers or any(each not in (0, 1) for each in turned):
        raise ValueError(f"no_rope_layers={shown(turned)}: must be 0 or 1 for each of the {layers} layers")
    return tuple(layer for layer in range(layers) if not turned[layer])


def _whole(key: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1e12:
        raise ValueError(f"{key}={shown(value)}: must be an integer above 0, below 1e12")
    return value


def _tied(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"tie_word_embeddings={shown(value)}: must be true or false")
    return value


def _quotient(hidden: Any, heads: Any) -> Any:
    """The quotient that transformers uses without a ``head_dim``.

    Any invalid value is refused with the fields themselves.
    """
    return hidden // heads if isinstance(hidden, int) and isinstance(heads, int) and heads > 0 else 0
