"""Adapters drawn with all that PEFT's configs can say, and what they mean, computed apart.

Nothing of gradloom is imported: ``tests/tools/peft_witness.py`` holds :func:`meaning` against PEFT itself.
"""

import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

__all__ = ["SHAPE", "Drawn", "drawn", "drawn_unet", "drawn_vectors", "meaning", "modules_of", "write"]

#: A model of LLaMA's kind.
SHAPE = {"hidden": 16, "inter": 24, "layers": 3, "heads": 2, "kv_heads": 1, "head_dim": 8, "vocab": 32}
_Q, _KV = SHAPE["heads"] * SHAPE["head_dim"], SHAPE["kv_heads"] * SHAPE["head_dim"]
#: Outputs and inputs of each linear of a layer.
LINEARS = {
    "self_attn.q_proj": (_Q, SHAPE["hidden"]),
    "self_attn.k_proj": (_KV, SHAPE["hidden"]),
    "self_attn.v_proj": (_KV, SHAPE["hidden"]),
    "self_attn.o_proj": (SHAPE["hidden"], _Q),
    "mlp.gate_proj": (SHAPE["inter"], SHAPE["hidden"]),
    "mlp.up_proj": (SHAPE["inter"], SHAPE["hidden"]),
    "mlp.down_proj": (SHAPE["hidden"], SHAPE["inter"]),
}


def modules_of(start: str) -> dict[str, tuple[int, int]]:
    """Linears of the model by the names that PEFT sees; ``start`` is empty for the model without its head."""
    return {f"{start}layers.{n}.{name}": size for n in range(SHAPE["layers"]) for name, size in LINEARS.items()}


@dataclass
class Drawn:
    """Files of an adapter, and what is right for them.

    ``fault``: what is wrong, empty where the adapter must be taken. ``start``: how PEFT's names of modules begin.
    """

    config: Any
    tensors: dict[str, np.ndarray]
    start: str = "model."
    fault: str = ""
    header: dict[str, str] = field(default_factory=lambda: {"format": "pt"})
    weights: bytes | None = None

    def bytes(self) -> bytes:
        """Content of the safetensors file."""
        return save(self.tensors, metadata=self.header) if self.weights is None else self.weights


def write(folder: Path, made: Drawn) -> Path:
    """Writes the files of an adapter in PEFT's format."""
    folder.mkdir(parents=True, exist_ok=True)
    text = made.config if isinstance(made.config, str) else json.dumps(made.config)
    (folder / "adapter_config.json").write_text(text)
    (folder / "adapter_model.safetensors").write_bytes(made.bytes())
    return folder


# What PEFT's config means, in the words of its documentation.


def _named(wanted: Any, name: str) -> bool:
    """Whether a regular expression, or one of a list of ends, names a module."""
    if isinstance(wanted, str):
        return re.fullmatch(wanted, name) is not None
    return any(f".{name}".endswith(f".{each}") for each in wanted)


def _adapted(config: dict[str, Any], name: str) -> bool:
    wanted, layers = config["target_modules"], config.get("layers_to_transform")
    if config.get("exclude_modules") and _named(config["exclude_modules"], name):
        return False
    if wanted == "all-linear":
        return True
    if not _named(wanted, name):
        return False
    if isinstance(wanted, str) or layers is None or layers == [] or name in wanted:
        return True
    found = re.search(r"layers\.(\d+)\.", name)
    # Without a pattern PEFT wants a module before the list of layers, which the model without its head has not.
    if not config.get("layers_pattern") and name.startswith("layers."):
        return False
    return found is not None and int(found[1]) in (layers if isinstance(layers, list) else [layers])


def _by_pattern(patterns: dict[str, Any] | None, name: str, usual: Any) -> Any:
    for pattern, value in (patterns or {}).items():
        if re.search(rf"(?:^|\.)(?:{pattern})$", name):
            return value
    return usual


def _rank_and_scale(config: dict[str, Any], name: str) -> tuple[int, float]:
    rank = _by_pattern(config.get("rank_pattern"), name, config["r"])
    alpha = _by_pattern(config.get("alpha_pattern"), name, config["lora_alpha"])
    return rank, alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)


def meaning(made: Drawn) -> dict[str, np.ndarray]:
    """Changes of the weights by module, float64, of an adapter that is right."""
    found = {}
    plain = {re.sub(r"(lora_[AB])\.[^.]+\.weight$", r"\1.weight", name): each for name, each in made.tensors.items()}
    plain = {name.removeprefix("base_model.model."): each.astype(np.float64) for name, each in plain.items()}
    for name in modules_of(made.start):
        if _adapted(made.config, name):
            _, scale = _rank_and_scale(made.config, name)
            found[name] = scale * plain[f"{name}.lora_B.weight"] @ plain[f"{name}.lora_A.weight"]
    return found


# How adapters are drawn. A generator of NumPy's, so that the witness needs no further library.


def _some(random: np.random.Generator, values: Any, least: int = 1) -> list[Any]:
    values = list(values)
    return [values[n] for n in sorted(random.permutation(len(values))[: random.integers(least, len(values) + 1)])]


def _one(random: np.random.Generator, values: Any) -> Any:
    return values[int(random.integers(len(values)))]


def _targets(random: np.random.Generator, start: str) -> dict[str, Any]:
    """Keys of the config that choose modules."""
    ends, names = list(LINEARS), list(modules_of(start))
    some = _some(random, ends)
    regular = "|".join(each.rsplit(".", 1)[-1] for each in some)
    made: dict[str, Any] = _one(
        random,
        [
            {"target_modules": [each.rsplit(".", 1)[-1] for each in some]},
            {"target_modules": some},
            # Of 20 names and more PEFT makes shorter ones first, which "layers_to_transform" reads otherwise.
            {"target_modules": _some(random, names)[:19]},
            {"target_modules": [*some, "not_there"]},
            {"target_modules": rf".*\.({regular})$"},
            {"target_modules": rf".*layers\.[02]\..*({regular})"},
            {"target_modules": rf"{re.escape(start)}layers\.\d+\.mlp\.(up|down)_proj"},
            {"target_modules": "all-linear"},
        ],
    )
    if isinstance(made["target_modules"], list) and random.random() < 0.5:
        made["layers_to_transform"] = _one(random, [1, [0, 2], [2], [], None, [1, 2, 9]])
        if made["layers_to_transform"] is not None:
            made["layers_pattern"] = _one(random, ["layers", ["h", "layers"], None, []])
    if random.random() < 0.3:
        made["exclude_modules"] = _one(
            random, [["up_proj"], [names[0]], ["layers.1.mlp.down_proj"], r".*layers\.0\..*", None, []]
        )
    return made


def _patterns(random: np.random.Generator, start: str, values: Any) -> dict[str, Any]:
    keys = ["q_proj", "mlp.up_proj", f"^{start}layers.0.*", "layers.1.self_attn.v_proj", r".*\.2\..*", "k_proj|o_proj"]
    return {key: _one(random, values) for key in _some(random, keys, 0)[:3]}


_HARMLESS: dict[str, Any] = {
    "auto_mapping": {"base_model_class": "LlamaForCausalLM"},
    "base_model_name_or_path": "tiny",
    "bias": "none",
    "corda_config": None,
    "ensure_weight_tying": True,
    "eva_config": None,
    "fan_in_fan_out": False,
    "inference_mode": True,
    "layer_replication": None,
    "loftq_config": {},
    "lora_bias": False,
    "lora_dropout": 0.1,
    "megatron_core": "megatron.core",
    "modules_to_save": None,
    "peft_version": "0.21.2",
    "qalora_group_size": 16,
    "revision": "main",
    "task_type": "CAUSAL_LM",
    "use_dora": False,
    "use_qalora": False,
}


def _lora(random: np.random.Generator) -> Drawn:
    """An adapter that PEFT takes."""
    while True:
        start = _one(random, ["model.", "model.", ""])
        config: dict[str, Any] = {
            "peft_type": "LORA",
            "r": int(random.integers(1, 7)),
            "lora_alpha": _one(random, [1, 8, 16, 0.5, 2.25]),
            **_targets(random, start),
            **{key: _HARMLESS[key] for key in _some(random, _HARMLESS, 0)},
        }
        if random.random() < 0.5:
            config["rank_pattern"] = _patterns(random, start, [1, 2, 5])
            config["alpha_pattern"] = _patterns(random, start, [1, 4, 3.5])
        if random.random() < 0.6:
            config["use_rslora"] = bool(random.random() < 0.6)
        if random.random() < 0.6:
            config["init_lora_weights"] = _one(random, [True, False, "gaussian", "orthogonal", "mica", "eva"])
        modules = {name: size for name, size in modules_of(start).items() if _adapted(config, name)}
        if modules:
            break
    prefix = "base_model.model." if random.random() < 0.7 else ""
    adapter = _one(random, ["", "", ".default", ".mine"])
    kind = _one(random, [np.float32, np.float32, np.float16, np.float64])
    tensors = {}
    for name, (outputs, inputs) in modules.items():
        rank, _ = _rank_and_scale(config, name)
        for which, shape in (("A", (rank, inputs)), ("B", (outputs, rank))):
            tensors[f"{prefix}{name}.lora_{which}{adapter}.weight"] = random.normal(0, 0.3, shape).astype(kind)
    return Drawn(config, tensors, start)


#: Keys that make another adapter of it, with values of theirs.
WRONG_KEYS: list[tuple[str, Any]] = [
    ("init_lora_weights", "pissa"),
    ("init_lora_weights", "pissa_niter_4"),
    ("init_lora_weights", "olora"),
    ("init_lora_weights", "OLoRA"),
    ("init_lora_weights", "corda"),
    ("init_lora_weights", "lora_ga"),
    ("init_lora_weights", "loftq"),
    ("init_lora_weights", "new"),
    ("init_lora_weights", 3),
    ("alora_invocation_tokens", [5, 6]),
    ("use_dora", True),
    ("use_qalora", True),
    ("use_bdlora", {"target_modules_bd_a": ["q_proj"]}),
    ("use_magic", True),
    ("magic", 0),
    ("arrow_config", {"top_k": 3}),
    ("kasa_config", {"beta": 1.0}),
    ("monteclora_config", {"num_samples": 8}),
    ("velora_config", {"num_groups": 4}),
    ("lora_bias", True),
    ("bias", "all"),
    ("fan_in_fan_out", True),
    ("modules_to_save", ["lm_head"]),
    ("layer_replication", [[0, 2], [1, 3]]),
    ("trainable_token_indices", [1]),
    ("target_parameters", ["up_proj.weight"]),
    ("megatron_config", {"a": 1}),
    ("runtime_config", {"magic": True}),
    ("gradloom_topology", "direct-to-output"),
    ("peft_type", "VERA"),
    ("peft_type", None),
    ("peft_type", ["LORA"]),
    ("r", 0),
    ("r", True),
    ("r", 2.0),
    ("r", 10**30),
    ("lora_alpha", math.nan),
    ("lora_alpha", math.inf),
    ("lora_alpha", -5),
    ("lora_alpha", 0),
    ("lora_alpha", True),
    ("lora_alpha", 1e308),
    ("lora_alpha", 10**400),
    ("lora_alpha", "16"),
    ("lora_dropout", math.nan),
    ("use_rslora", "yes"),
    ("rank_pattern", {"(": 2}),
    ("rank_pattern", {"q_proj": 0}),
    ("rank_pattern", ["q_proj"]),
    ("alpha_pattern", {"q_proj": math.nan}),
    ("alpha_pattern", {"a{99999999999}": 1}),
    ("layers_pattern", ["("]),
    ("layers_pattern", 3),
    ("layers_to_transform", "1"),
    ("layers_to_transform", [True]),
    ("target_modules", None),
    ("target_modules", []),
    ("target_modules", [3]),
    ("target_modules", ["lm_head"]),
    ("target_modules", "("),
    ("target_modules", "nothing"),
    ("exclude_modules", "["),
    ("exclude_modules", r".*"),
]
_LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"


def _damage(random: np.random.Generator, made: Drawn) -> str:
    """Spoils the tensors or a file, and says how."""
    names = sorted(made.tensors)
    first, how = _one(random, names), int(random.integers(10))
    if how == 0:
        del made.tensors[first]
        return f"no {first}"
    if how == 1:
        made.tensors[first] = made.tensors[first].copy()
        made.tensors[first].flat[0] = _one(random, [np.nan, np.inf])
        return "not finite"
    if how == 2:
        made.tensors[first] = np.zeros([n + 1 for n in made.tensors[first].shape], np.float32)
        return "another shape"
    if how == 3:
        made.tensors[first] = made.tensors[first].reshape(-1)
        return "no matrix"
    if how == 4:
        made.tensors[first.replace("lora_", "lora_embedding_")] = made.tensors.pop(first)
        return "another name"
    if how == 5:
        number = SHAPE["layers"] + 1
        made.tensors[re.sub(r"layers\.\d+", f"layers.{number}", first)] = made.tensors[first]
        return "a layer that there is not"
    if how == 6:
        twice = first.removeprefix("base_model.model.")
        made.tensors[twice if twice != first else f"base_model.model.{first}"] = made.tensors[first]
        return "a tensor by two names"
    if how == 7:
        made.tensors[first] = made.tensors[first].astype(np.int32)
        return "integers"
    if how == 8:
        made.weights = made.bytes()[: int(random.integers(0, len(made.bytes())))]
        return "cut short"
    made.weights = _one(random, [_LFS, b"GGUF\3\0\0\0", b"<!DOCTYPE html>", b"PK\3\4", b"\x80\x02}", b""])
    return "another kind of file"


def drawn(seed: int) -> Drawn:
    """The adapter of a language model that a number names; half of them have a fault."""
    random = np.random.default_rng(seed)
    made = _lora(random)
    if random.random() < 0.5:
        return made
    if random.random() < 0.6:
        key, value = _one(random, WRONG_KEYS)
        made.config = {**made.config, key: value}
        made.fault = f"{key}={value!r}"
    elif random.random() < 0.15:
        made.config = _one(random, ["[]", "{", "", "3", '{"a":' * 5000])
        made.fault = "config"
    else:
        made.fault = _damage(random, made)
    return made


_VECTOR_FAULTS = [
    ("modules_to_save", ["lm_head"]),
    ("use_magic", True),
    ("r", 8),
    ("target_modules", None),
    ("target_modules", "("),
    ("target_modules", ["nothing"]),
    ("target_modules", ["q_proj"]),
    ("exclude_modules", "["),
    ("peft_type", "LORA"),
    ("inference_mode", math.inf),
]


def drawn_vectors(seed: int) -> tuple[Drawn, dict[str, np.ndarray]]:
    """Norms or factors of (IA)³ that a number names, and the vectors by module; some have a fault."""
    random = np.random.default_rng(seed)
    kind, start = _one(random, ["LN_TUNING", "IA3"]), _one(random, ["model.", "model.", ""])
    layers = range(SHAPE["layers"])
    if kind == "IA3":
        ends = ["self_attn.k_proj", "self_attn.v_proj", "mlp.down_proj"]
        sizes = {f"{start}layers.{n}.{end}": LINEARS[end] for n in layers for end in ends}
        shapes = {name: (1, size[1]) if "down" in name else (size[0], 1) for name, size in sizes.items()}
    else:
        ends = ["input_layernorm", "post_attention_layernorm"]
        shapes = {f"{start}layers.{n}.{end}": (SHAPE["hidden"],) for n in layers for end in ends}
        shapes[f"{start}norm"] = (SHAPE["hidden"],)
        ends.append("norm")
    while True:
        some = _some(random, ends)
        regular = "|".join(each.rsplit(".", 1)[-1] for each in some)
        wanted = _one(random, [some, _some(random, shapes), rf".*({regular})", rf".*\.[01]\..*({regular})"])
        config: dict[str, Any] = {"peft_type": kind, "target_modules": wanted, "task_type": "CAUSAL_LM"}
        if random.random() < 0.3:
            config["exclude_modules"] = _one(random, [[next(iter(shapes))], r".*layers\.1\..*", None, []])
        if names := [name for name in shapes if _adapted(config, name)]:
            break
    if kind == "IA3":
        forward = [name for name in names if "down" in name]
        config["feedforward_modules"] = _one(random, [forward, r".*down_proj"])
        if isinstance(wanted, list):
            config["target_modules"] = [*wanted, *(each for each in forward if each not in wanted)]
    prefix, adapter = _one(random, ["base_model.model.", ""]), _one(random, ["", ".default"])
    end = f".ia3_l{adapter}" if kind == "IA3" else f".ln_tuning_layers{adapter}.weight"
    tensors = {f"{prefix}{name}{end}": random.normal(1, 0.3, shapes[name]).astype(np.float32) for name in names}
    expected = {name: tensors[f"{prefix}{name}{end}"].reshape(-1) for name in names}
    made = Drawn(config, tensors, start)
    if random.random() < 0.3:
        key, value = _one(random, _VECTOR_FAULTS)
        config[key], made.fault = value, f"{key}={value!r}"
    elif random.random() < 0.2:
        made.fault = "no tensor" if len(tensors) > 1 else "no tensors"
        del tensors[_one(random, sorted(tensors))]
    elif kind == "IA3" and random.random() < 0.2:
        config["feedforward_modules"] = _one(random, [None, r".*k_proj"])
        odd = forward or any("k_proj" in name for name in names) or config["feedforward_modules"] is None
        made.fault = "feedforward_modules" if odd else ""
    return made, expected


def drawn_unet(seed: int, layers: dict[str, tuple[int, int]]) -> tuple[Drawn, dict[str, np.ndarray]]:
    """A LoRA of a UNet's layers as diffusers, PEFT or kohya writes it, and its changes of the weights."""
    random = np.random.default_rng(seed)
    style = _one(random, ["unet.", "", "kohya", "old", "base_model.model."])
    start = {"kohya": "lora_unet_", "old": "unet."}.get(style, style)
    down, up = {"kohya": ("lora_down", "lora_up"), "old": ("lora.down", "lora.up")}.get(style, ("lora_A", "lora_B"))
    told = style in ("unet.", "") and random.random() < 0.6
    config: dict[str, Any] = {
        "r": _one(random, [1, 2, 4, 8]),
        "lora_alpha": _one(random, [1, 8, 32, 2.5]),
        "rank_pattern": {"to_q": 4} if random.random() < 0.4 else {},
        "alpha_pattern": {"attn2.to_v": 3, "^down_blocks.*": 6} if random.random() < 0.4 else {},
        "target_modules": _one(random, [["to_q", "to_k", "to_v", "to_out.0"], sorted(layers), r".*attn2\..*"]),
        "use_rslora": bool(random.random() < 0.4),
    }
    # diffusers gives a layer of kohya's its own alpha only where all have the same.
    alpha = None if told or style == "base_model.model." or random.random() < 0.4 else _one(random, [1.0, 4.0])
    tensors, changes, odd = {}, {}, False
    for layer, (inputs, outputs) in layers.items():
        rank, scale = _rank_and_scale(config, layer)
        name = start + (layer.replace(".", "_") if style == "kohya" else layer)
        a, b = (random.normal(0, 0.3, shape).astype(np.float32) for shape in ((rank, inputs), (outputs, rank)))
        tensors[f"{name}.{down}.weight"], tensors[f"{name}.{up}.weight"] = a, b
        if alpha is not None:
            tensors[f"{name}.alpha"] = np.array(alpha, np.float32)
            scale = alpha / rank
            odd = odd or (style != "kohya" and scale != 1)
        changes[layer] = (scale if told or alpha is not None else 1.0) * b.astype(np.float64) @ a.astype(np.float64)
    made = Drawn(config, tensors, fault="an alpha that diffusers does not read" if odd else "")
    if told:
        if random.random() < 0.3:
            key, value = _one(random, WRONG_KEYS)
            if not (key == "target_modules" and value is None):
                config[key], made.fault = value, f"{key}={value!r}"
        elif random.random() < 0.2:
            config["lora_alpha" if random.random() < 0.5 else "r"] = None
            made.fault = "half a header"
        made.header["lora_adapter_metadata"] = json.dumps({f"{start}{key}": each for key, each in config.items()})
    elif random.random() < 0.15:
        tensors["text_encoder.layers.0.q_proj.lora_A.weight"] = np.zeros((2, 4), np.float32)
        made.fault = "text encoder"
    return made, changes
