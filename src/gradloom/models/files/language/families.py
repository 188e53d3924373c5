"""Families of language models in transformers' ``config.json``, by their ``model_type``.

Each is LLaMA's decoder with a few parts changed. Factors of tensors are folded into the tensors (:class:`Folded`), so
that nothing behind the reader knows of them. Whatever a family has beside that is refused by its key.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...language import LanguageModel, Scaling, check_positive, check_shapes
from ..keys import ANY, check_keys, shown
from .four_bits import check_quantization

__all__ = ["FAMILIES", "Folded", "config_of", "described"]

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

#: Of rotary positions, by their kind: keys that are read, by the fields of :class:`~..language.Scaling`.
_SCALED: dict[str, dict[str, str]] = {
    "default": {},
    "linear": {"factor": "factor"},
    "llama3": {
        "factor": "factor",
        "low": "low_freq_factor",
        "high": "high_freq_factor",
        "original": "original_max_position_embeddings",
    },
}
#: Other keys of their object, with the values for which they change nothing.
_ROPE: dict[str, tuple[Any, ...]] = {
    "partial_rotary_factor": (1.0,),
    "factor": (1.0,),
    "original_max_position_embeddings": ANY,
}


@dataclass(frozen=True, kw_only=True)
class Family:
    """A ``model_type``, by the differences from LLaMA.

    ``defaults``: of keys that a file may leave out. ``handled``: keys that are read beside LLaMA's. ``harmless``: as
    for :func:`~.keys.check_keys`. ``biases``: of q, k and v, without a key. ``head_norms``: of q and k.
    """

    architectures: tuple[str, ...]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    handled: tuple[str, ...] = ()
    harmless: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    biases: bool = False
    head_norms: bool = False


#: A window that is off.
_NO_WINDOW: dict[str, tuple[Any, ...]] = {
    "use_sliding_window": (False,),
    "sliding_window": ANY,
    "max_window_layers": ANY,
}
_QWEN = {"num_key_value_heads": 32, "max_position_embeddings": 32768}
#: Factors of Granite's tensors and sums.
_FACTORS = ("embedding_multiplier", "residual_multiplier", "logits_scaling", "attention_multiplier")
FAMILIES = {
    "llama": Family(architectures=("LlamaForCausalLM", "LLaMAForCausalLM")),
    "mistral": Family(
        architectures=("MistralForCausalLM",),
        defaults={"num_key_value_heads": 8, "max_position_embeddings": 131072, "sliding_window": 4096},
        handled=("sliding_window",),
    ),
    "qwen2": Family(
        architectures=("Qwen2ForCausalLM",), defaults=_QWEN, harmless=_NO_WINDOW | {"attention_bias": ANY}, biases=True
    ),
    "qwen3": Family(
        architectures=("Qwen3ForCausalLM",), defaults=_QWEN | {"head_dim": 128}, harmless=_NO_WINDOW, head_norms=True
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
}


@dataclass(frozen=True, kw_only=True)
class Folded:
    """A model as LLaMA's decoder, and the factors that make it of a file's tensors.

    ``embedding`` and ``head`` multiply those tensors. ``tied``: the file's head is its embedding, which the model's
    need not be.
    """

    model: LanguageModel
    tied: bool
    embedding: float = 1.0
    head: float = 1.0


def described(config: Mapping[str, Any], name: str) -> Folded:
    """The model of a ``config.json``; :class:`ValueError` names the key that it is not."""
    family = _family(config)
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
    if "sliding_window" in family.handled and value("sliding_window") is not None:
        # A text within the window attends to all of itself.
        window = _whole("sliding_window", value("sliding_window"))
        if isinstance(shapes["context"], int):
            shapes["context"] = min(shapes["context"], window)
    factors = {key: value(key, 1.0) for key in _FACTORS}
    for key, factor in factors.items():
        check_positive(key, factor)
    embedding, residual, logits, score = factors.values()
    theta, scaling = _positions(config, family.defaults.get("rope_theta", 10000.0))
    shapes["rope_theta"] = theta
    check_shapes(shapes, _KEYS)
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
        score=score if "attention_multiplier" in family.handled else None,
        biases=family.biases,
        head_norms=family.head_norms,
        **shapes,
    )
    kinds = config.get("layer_types")
    if kinds is not None and kinds != ["full_attention"] * model.layers:
        raise ValueError(f"layer_types={shown(kinds)}: must be full_attention of all {model.layers} layers")
    return Folded(model=model, tied=tied, **folded)


def config_of(model: LanguageModel) -> dict[str, Any]:
    """A ``config.json`` of a model, of the family that has its parts."""
    parts = {
        "qwen2": model.biases,
        "qwen3": model.head_norms,
        "smollm3": bool(model.unturned),
        "granite": model.score is not None,
    }
    found = [kind for kind, has in parts.items() if has] or ["llama"]
    if len(found) > 1:
        raise ValueError(f"{model.name}: no model_type has the parts of {' and '.join(found)} together")
    more: dict[str, Any] = {} if model.biases else {"attention_bias": False}
    if model.scaling is not None:
        kind = "linear" if model.scaling.low is None else "llama3"
        values = {its: getattr(model.scaling, each) for each, its in _SCALED[kind].items()}
        # Transformers reads this older key in all versions.
        more["rope_scaling"] = {"rope_type": kind} | values
    if model.unturned:
        more["no_rope_layers"] = [int(layer not in model.unturned) for layer in range(model.layers)]
    if model.score is not None:
        more |= dict.fromkeys(_FACTORS, 1.0) | {"attention_multiplier": model.score}
    return {
        "architectures": [FAMILIES[found[0]].architectures[0]],
        "model_type": found[0],
        "head_dim": model.head_dim,
        "rope_theta": model.rope_theta,
        "tie_word_embeddings": model.tied,
        "hidden_act": "silu",
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


def _positions(config: Mapping[str, Any], default: float) -> tuple[Any, Scaling | None]:
    """Base of the rotary angles, which stands in one of three places, and their scaling."""
    thetas: dict[str, Any] = {"rope_theta": config.get("rope_theta")}
    scalings: dict[str, Scaling | None] = {}
    # Newer files keep the positions' constants in an object of their own.
    for key in ("rope_parameters", "rope_scaling"):
        rope = config.get(key)
        if rope is None:
            continue
        kinds = [] if not isinstance(rope, dict) else [rope[each] for each in ("rope_type", "type") if each in rope]
        if not isinstance(rope, dict) or any(not isinstance(each, str) or each not in _SCALED for each in kinds):
            raise ValueError(f"{key}={shown(rope)}: rope_type must be one of {', '.join(_SCALED)}")
        fields = _SCALED[kinds[0] if kinds else "default"]
        handled = {"rope_theta", "rope_type", "type", *fields.values()}
        try:
            if len({*kinds}) > 1:
                raise ValueError(f"rope_type={shown(kinds[0])}: must be type={shown(kinds[1])}; remove the wrong one")
            check_keys(rope, handled=handled, harmless=_ROPE)
            missing = next((each for each in fields.values() if rope.get(each) is None), None)
            if missing:
                raise ValueError(f"{missing}: is missing; {kinds[0]} positions need it")
            scalings[key] = Scaling(**{each: rope[its] for each, its in fields.items()}) if fields else None
        except ValueError as error:
            raise ValueError(f"{key}.{error}") from None
        thetas[f"{key}.rope_theta"] = rope.get("rope_theta")
    if len({*scalings.values()}) > 1:
        raise ValueError("rope_scaling: must be rope_parameters; remove the one that is wrong")
    (first, theta), *others = [each for each in thetas.items() if each[1] is not None] or [("", default)]
    for key, value in others:
        if value != theta:
            raise ValueError(f"{key}={shown(value)}: must be {first}={shown(theta)}; remove the one that is wrong")
    return theta, next(iter(scalings.values()), None)


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
