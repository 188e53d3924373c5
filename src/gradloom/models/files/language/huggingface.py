"""Reads language models in Hugging Face's format.

``config.json`` and safetensors files, one or several.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.json_file import read_json

from ...language import EMBEDDING, HEAD, LanguageModel, check_shapes, check_tensors, finite, of_vocabulary
from ..keys import ANY, check_keys, shown
from ..kinds import what_is
from ..tensors import StoredTensor, as_float32, open_safetensors
from .four_bits import CodedLinear, Nf4Codes, check_quantization, gathered, nf4_of

__all__ = ["CONFIG", "HuggingFaceCheckpoint"]

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
#: One part of several, with its number and theirs.
_PART = re.compile(r".*-(\d{5})-of-(\d{5})\.safetensors")
#: Files of PyTorch's own format, which is not read.
_PICKLED = ("pytorch_model*.bin", "consolidated*.pth", "*.bin", "*.pth", "*.pt")
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
}
#: Keys of config.json that are read and checked here.
_HANDLED = frozenset(
    ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim")
    + ("vocab_size", "max_position_embeddings", "rms_norm_eps", "tie_word_embeddings", "layer_types")
    + ("rope_theta", "rope_parameters", "rope_scaling", "quantization_config")
)
#: Other keys, with the values for which they change nothing.
_HARMLESS: dict[str, tuple[Any, ...]] = {
    "model_type": ("llama",),
    "architectures": (["LlamaForCausalLM"], ["LLaMAForCausalLM"], []),
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
    + ("_attn_implementation_autoset", "original_max_position_embeddings")
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
#: The same of an object of the rotary positions.
_ROPE: dict[str, tuple[Any, ...]] = {
    "rope_type": ("default",),
    "type": ("default",),
    "partial_rotary_factor": (1.0,),
    "factor": (1.0,),
    "original_max_position_embeddings": ANY,
}


class HuggingFaceCheckpoint:
    """A LLaMA model in a folder or in one safetensors file.

    The file needs ``config.json`` beside it. Linears may be in 4 bits (:mod:`.four_bits`).

    See :class:`~.language.Checkpoint`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        folder = path if path.is_dir() else path.parent
        part = None if path.is_dir() else _PART.fullmatch(path.name)
        if part and int(part[2]) > 1:
            raise ValueError(f"{path}: is part {int(part[1])} of {int(part[2])} of a model: name the folder {folder}")
        kind = what_is(path)
        if kind not in (None, "a safetensors file"):
            raise ValueError(f"{path}: is {kind}")
        self.model = _model(folder / CONFIG, folder.resolve().name)
        quantization = check_quantization(_json(folder / CONFIG).get("quantization_config"))
        self._tensors: dict[str, StoredTensor] = {}
        self._coded: dict[str, CodedLinear] = {}
        for file in [path] if path.is_file() else _files(folder):
            for name, tensor in open_safetensors(file, coded=quantization is not None).items():
                if name in self._tensors:
                    raise ValueError(f"{file}: tensor {name} is in another file of {folder}, too")
                self._tensors[name] = tensor
        if quantization is not None:
            try:
                self._tensors, self._coded = gathered(quantization, self._tensors)
            except ValueError as error:
                raise ValueError(f"{path}: {error}") from None
        held = self._tensors | self._coded
        check_tensors(path, self.model, {name: tensor.shape for name, tensor in held.items()})
        integers = next((name for name, each in self._tensors.items() if each.dtype in ("uint8", "int32")), None)
        if integers is not None:
            raise ValueError(f"{path}: tensor {integers} has integers, but no codes that quantization_config tells of")
        if self.model.tied and HEAD in held:
            head, embedding = (of_vocabulary(self.model, self._read(each)) for each in (HEAD, EMBEDDING))
            if not np.array_equal(head, embedding):
                raise ValueError(
                    f"{path}: tie_word_embeddings=true, but {HEAD} differs from {EMBEDDING}: set it to false, or "
                    f"remove the tensor that is wrong"
                )

    def tensor(self, name: str) -> np.ndarray:
        """A tensor as float32, ``[out, in]``; a tied head is the embedding."""
        if name == HEAD and self.model.tied:
            name = EMBEDDING
        if name not in self._tensors and name not in self._coded:
            raise ValueError(f"{self.path}: has no tensor {name}")
        values = finite(self.path, name, self._read(name))
        return of_vocabulary(self.model, values) if name in (EMBEDDING, HEAD) else values

    def nf4(self, name: str) -> Nf4Codes | None:
        """Codes of a tensor that bitsandbytes has saved, else None.

        They are taken as they are: quantising their values again would make other scales.
        """
        return nf4_of(self._coded.get(name))

    def _read(self, name: str) -> np.ndarray:
        if name in self._coded:
            try:
                return self._coded[name].values()
            except ValueError as error:
                raise ValueError(f"{self.path}: {error}") from None
        stored = self._tensors[name]
        return as_float32(stored.read(), stored.dtype)


def _files(folder: Path) -> list[Path]:
    if (folder / INDEX).is_file():
        index = _json(folder / INDEX).get("weight_map")
        if not isinstance(index, dict) or not index or not all(isinstance(name, str) for name in index.values()):
            raise ValueError(f"{folder / INDEX}: weight_map is not an object of file names")
        names = sorted(set(index.values()))
        for name in names:
            if Path(name).name != name:
                raise ValueError(f"{folder / INDEX}: weight_map names {shown(name)}: must be a file of the folder")
            if not (folder / name).is_file():
                raise ValueError(
                    f"{folder / name}: no such file; it is one of {len(names)} parts that {INDEX} names: download it"
                )
        return [folder / name for name in names]
    if not (folder / WEIGHTS).is_file():
        raise ValueError(f"{folder / WEIGHTS}: no such file{_instead(folder)}")
    return [folder / WEIGHTS]


def _instead(folder: Path) -> str:
    """What a folder has in place of the weights, with a remedy."""
    if any(_PART.fullmatch(file.name) for file in folder.iterdir()):
        return f"; its parts are there, but not {INDEX}, which says which belong together: download it"
    other = next(iter(sorted(folder.glob("*.gguf"))), None)
    if other is not None:
        return f"; name the file {other} to read that"
    pickled = next((file for pattern in _PICKLED for file in sorted(folder.glob(pattern))), None)
    if pickled is not None:
        return f"; {pickled.name} can run code when it is read: save the model as safetensors"
    return ""


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    try:
        content = read_json(path)
    except ValueError as error:
        kind = what_is(path)
        raise ValueError(f"{path}: is {kind}" if kind else f"{path}: is not JSON ({error}); is it truncated?") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path}: must be an object of JSON, not {shown(content)}")
    return content


def _model(path: Path, name: str) -> LanguageModel:
    config = _json(path)
    try:
        _check_family(config)
        check_keys(config, handled=_HANDLED, harmless=_HARMLESS)
        check_quantization(config.get("quantization_config"))
        heads = config["num_attention_heads"]
        shapes = {
            "hidden": config["hidden_size"],
            "inter": config["intermediate_size"],
            "layers": config["num_hidden_layers"],
            "heads": heads,
            "kv_heads": _or(config.get("num_key_value_heads"), heads),
            "head_dim": _or(config.get("head_dim"), _quotient(config["hidden_size"], heads)),
            "vocab": config["vocab_size"],
            "context": config.get("max_position_embeddings", 2048),
            "rope_theta": _rope_theta(config),
            "norm_eps": config.get("rms_norm_eps", 1e-6),
        }
        check_shapes(shapes, _KEYS)
        model = LanguageModel(name=name, tied=_tied(config), **shapes)
        kinds = config.get("layer_types")
        if kinds is not None and kinds != ["full_attention"] * model.layers:
            raise ValueError(f"layer_types={shown(kinds)}: must be full_attention of all {model.layers} layers")
        return model
    except KeyError as error:
        raise ValueError(f"{path}: has no {error.args[0]}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _check_family(config: Mapping[str, Any]) -> None:
    """Refuses models of other kinds, by what they are."""
    if config.get("_class_name") is not None:
        raise ValueError(f"_class_name={shown(config['_class_name'])}: is a model of diffusers, not a language model")
    experts = next((key for key in config if "expert" in key and config[key]), None)
    if experts:
        raise ValueError(f"{experts}={shown(config[experts])}: a mixture of experts; only dense models are supported")
    if config.get("model_type") is None:
        raise ValueError("has no model_type")


def _rope_theta(config: Mapping[str, Any]) -> Any:
    """Base of the rotary angles, which stands in one of three places."""
    found = {"rope_theta": config.get("rope_theta")}
    # Newer files keep the positions' constants in an object of their own.
    for key in ("rope_parameters", "rope_scaling"):
        rope = config.get(key)
        if rope is None:
            continue
        if not isinstance(rope, dict) or any(rope.get(each, "default") != "default" for each in ("rope_type", "type")):
            raise ValueError(f"{key}={shown(rope)}: rope_type must be default; scaled positions are not supported")
        try:
            check_keys(rope, handled={"rope_theta"}, harmless=_ROPE)
        except ValueError as error:
            raise ValueError(f"{key}.{error}") from None
        found[f"{key}.rope_theta"] = rope.get("rope_theta")
    (first, theta), *others = [each for each in found.items() if each[1] is not None] or [("", 10000.0)]
    for key, value in others:
        if value != theta:
            raise ValueError(f"{key}={shown(value)}: must be {first}={shown(theta)}; remove the one that is wrong")
    return theta


def _tied(config: Mapping[str, Any]) -> bool:
    value = _or(config.get("tie_word_embeddings"), False)
    if not isinstance(value, bool):
        raise ValueError(f"tie_word_embeddings={shown(value)}: must be true or false")
    return value


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


def _quotient(hidden: Any, heads: Any) -> Any:
    """The quotient that transformers uses without a ``head_dim``.

    Any invalid value is refused with the fields themselves.
    """
    return hidden // heads if isinstance(hidden, int) and isinstance(heads, int) and heads > 0 else 0
