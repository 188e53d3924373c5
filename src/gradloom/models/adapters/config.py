"""Configurations of adapters: one check for every reader.

A key that is not known, or has a value that would change the mathematics, is refused by name. Names of modules, ranks
and scales follow PEFT 0.21.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..files.keys import ANY, check_keys, shown
from .peft_files import TOPOLOGY_KEY

__all__ = ["DIRECT", "KINDS", "AdapterKind", "check_config", "kind_of", "matching", "rank_of", "scale_of", "targeted"]

#: Bounds of a rank, which a package holds in 16 bits, and of alpha.
_RANKS, ALPHA_MOST = 65535, 1e9
#: Names of modules in a message, at most.
_NAMED = 12
#: What a PEFT config says of its origin.
_ORIGIN: dict[str, tuple[Any, ...]] = {
    "auto_mapping": ANY,
    "base_model_name_or_path": ANY,
    "inference_mode": ANY,
    "peft_version": ANY,
    "revision": ANY,
    "task_type": ANY,
}
#: Further modules that learn beside the adapter's own.
_NO_MORE: dict[str, tuple[Any, ...]] = {"fan_in_fan_out": (False,), "modules_to_save": (None, [])}
_LORA_HARMLESS: dict[str, tuple[Any, ...]] = {
    **_ORIGIN,
    **_NO_MORE,
    "alora_invocation_tokens": (None,),
    "arrow_config": (None,),
    "bias": ("none",),
    # PEFT reads the configs of a start only with that value of init_lora_weights.
    "corda_config": ANY,
    "ensure_weight_tying": ANY,
    "eva_config": ANY,
    "kasa_config": (None,),
    "layer_replication": (None,),
    "loftq_config": ANY,
    "lora_bias": (False,),
    "lora_dropout": ANY,
    "lora_ga_config": ANY,
    "megatron_config": (None,),
    "megatron_core": ANY,
    "monteclora_config": (None,),
    "qalora_group_size": ANY,
    "runtime_config": ({"ephemeral_gpu_offload": False}, {"ephemeral_gpu_offload": True}),
    "target_parameters": (None, []),
    "trainable_token_indices": (None,),
    "use_bdlora": (None, False),
    "use_dora": (False,),
    "use_qalora": (False,),
    "velora_config": (None,),
}
#: Names of the modules of a layer, of a pattern of ``layers_pattern``.
_LAYER = r"(?:^|.*?\.){}\.(?P<idx>\d+)\."
#: Starts of A and B that leave the base as it was, and those that changed it.
_STARTS = ("gaussian", "eva", "orthogonal", "mica")
_CHANGED = ("pissa", "olora", "corda", "lora_ga", "loftq")


@dataclass(frozen=True, kw_only=True)
class AdapterKind:
    """A kind of adapter, by its config.

    Attributes
    ----------
    handled : frozenset of str
        Keys that its reader reads.
    harmless : mapping
        Further keys, with values that change nothing, as :func:`.keys.check_keys` takes them.
    ends : tuple of str
        Last parts of its tensors' names. Two of a ranked kind are A and B, whose product is the change.
    prefix : str
        First parts of its tensors' names.
    ranked : bool
        Whether it has ``r`` and ``lora_alpha``.
    """

    handled: frozenset[str]
    harmless: Mapping[str, tuple[Any, ...]]
    ends: tuple[str, ...]
    prefix: str = "base_model.model."
    ranked: bool = False

    @property
    def product(self) -> tuple[str, str] | None:
        """Ends of A and B; None of a kind that has no product."""
        return (self.ends[0], self.ends[1]) if len(self.ends) == 2 else None


_AB = ("lora_A.weight", "lora_B.weight")
_PATTERNS = frozenset({"alpha_pattern", "exclude_modules", "layers_pattern", "layers_to_transform", "rank_pattern"})
_RANKED = frozenset({"peft_type", "r", "lora_alpha"})
_FOUND = frozenset({"peft_type", "target_modules", "exclude_modules"})
#: By ``peft_type``; the last two are no types of PEFT's.
KINDS: Mapping[str, AdapterKind] = {
    "LORA": AdapterKind(
        handled=_RANKED | _PATTERNS | {"target_modules", "use_rslora", "init_lora_weights"},
        harmless=_LORA_HARMLESS,
        ends=_AB,
        ranked=True,
    ),
    "LN_TUNING": AdapterKind(handled=_FOUND, harmless=_ORIGIN | _NO_MORE, ends=("ln_tuning_layers.weight",)),
    "IA3": AdapterKind(
        handled=_FOUND | {"feedforward_modules"},
        harmless=_ORIGIN | _NO_MORE | {"init_ia3_weights": ANY},
        ends=("ia3_l",),
    ),
    "LORA_XS": AdapterKind(
        handled=_RANKED | {"target_modules", "layers_to_transform"},
        harmless=_ORIGIN,
        ends=("lora_R.weight",),
        ranked=True,
    ),
    "GRADLOOM_INSTANTFT": AdapterKind(
        handled=_RANKED | {"layers"}, harmless=_ORIGIN, ends=("A", "B"), prefix="", ranked=True
    ),
}
#: Adapters of a network's layers to its logits, which call themselves LORA.
DIRECT = AdapterKind(
    handled=_RANKED | {"target_modules", TOPOLOGY_KEY, "gradloom_codes", "init_lora_weights"},
    harmless=_LORA_HARMLESS | dict.fromkeys(_PATTERNS, (None, {}, [], "")) | {"use_rslora": (False,)},
    ends=_AB,
    ranked=True,
)


def kind_of(config: Mapping[str, Any]) -> AdapterKind:
    """The kind of adapter that a config says it is."""
    if config.get("peft_type") not in list(KINDS):
        raise ValueError(f"peft_type={shown(config.get('peft_type'))}: must be one of {', '.join(KINDS)}")
    return DIRECT if config["peft_type"] == "LORA" and TOPOLOGY_KEY in config else KINDS[config["peft_type"]]


def check_config(config: Mapping[str, Any], kind: AdapterKind | None = None) -> AdapterKind:
    """The kind of a config that is understood whole.

    ``kind``: the one that it must be. :class:`ValueError` names the first key that is not, or has a value that does
    not hold.
    """
    kind = kind or kind_of(config)
    for key, value in config.items():
        try:
            json.dumps(value, allow_nan=False)
        except (ValueError, RecursionError):
            raise ValueError(f"{key}={shown(value)}: must be a finite number; NaN and Infinity are no JSON") from None
    check_keys(config, handled=kind.handled, harmless=kind.harmless)
    if kind.ranked:
        _checked("r", config.get("r"), True)
        _checked("lora_alpha", config.get("lora_alpha"), False)
    if "init_lora_weights" in kind.handled:
        _check_start(config.get("init_lora_weights"))
    if "rank_pattern" in kind.handled:
        _check_patterns(config)
    if "layers_to_transform" in kind.handled:
        _check_layers(config)
    return kind


def _checked(named: str, value: Any, whole: bool) -> None:
    """Refuses what is no number above 0, or no integer of at least 1."""
    if whole:
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _RANKS:
            raise ValueError(f"{named}={shown(value)}: must be an integer of at least 1 and at most {_RANKS}")
    elif isinstance(value, bool) or not isinstance(value, int | float) or not 1 / ALPHA_MOST <= value <= ALPHA_MOST:
        raise ValueError(f"{named}={shown(value)}: must be a number from {1 / ALPHA_MOST:g} to {ALPHA_MOST:g}")


def _check_start(start: Any) -> None:
    """Refuses a start of A and B that changed the base weights."""
    if start is None or isinstance(start, bool) or (isinstance(start, str) and start.lower() in _STARTS):
        return
    named = f"init_lora_weights={shown(start)}"
    if not isinstance(start, str) or not start.lower().startswith(_CHANGED):
        raise ValueError(f"{named}: must be true, false or one of {', '.join(_STARTS)}; others are not supported")
    if start.lower().startswith("loftq"):
        remedy = "merge the adapter into that base by PEFT, and take the merged model"
    else:
        remedy = "convert it by PEFT: save_pretrained(FOLDER, path_initial_model_for_weight_conversion=START)"
    raise ValueError(f"{named}: A and B belong to a base whose weights this start has changed; {remedy}")


def _check_patterns(config: Mapping[str, Any]) -> None:
    if not isinstance(config.get("use_rslora") or False, bool):
        raise ValueError(f"use_rslora={shown(config['use_rslora'])}: must be true or false")
    for key, whole in (("rank_pattern", True), ("alpha_pattern", False)):
        patterns = config.get(key) or {}
        if not isinstance(patterns, dict):
            raise ValueError(f"{key}={shown(patterns)}: must be an object of numbers by patterns of names")
        for pattern, value in patterns.items():
            _compiled(key, rf"(.*\.)?({pattern})$")
            _checked(f"{key}: {shown(pattern)}", value, whole)


def _check_layers(config: Mapping[str, Any]) -> None:
    layers, parts = config.get("layers_to_transform"), config.get("layers_pattern")
    listed = layers if isinstance(layers, list) else [] if layers is None else [layers]
    if not all(isinstance(each, int) and not isinstance(each, bool) for each in listed):
        raise ValueError(f"layers_to_transform={shown(layers)}: must be numbers of layers")
    listed = parts if isinstance(parts, list) else [] if parts is None else [parts]
    if not all(isinstance(each, str) for each in listed):
        raise ValueError(f"layers_pattern={shown(parts)}: must be names of lists of layers")
    for each in listed:
        _compiled("layers_pattern", _LAYER.format(each))
    if parts and layers is None:
        raise ValueError(f"layers_pattern={shown(parts)}: needs layers_to_transform; remove it, or add that")
    if isinstance(config.get("target_modules"), str) and (layers is not None or parts):
        raise ValueError(f"layers_to_transform={shown(layers)}: must be null where target_modules is a pattern")


def _compiled(key: str, pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{key}={shown(pattern)}: is no pattern ({error})") from None


def matching(config: Mapping[str, Any], key: str, modules: Iterable[str]) -> list[str]:
    """Modules that a key of the config names, as PEFT reads it.

    It is a pattern of the whole name, or a list of ends of names.
    """
    wanted = config.get(key)
    if isinstance(wanted, str):
        pattern = _compiled(key, wanted)
        return [name for name in modules if pattern.fullmatch(name)]
    if not isinstance(wanted, list) or not all(isinstance(each, str) for each in wanted):
        raise ValueError(f"{key}={shown(wanted)}: must be names or a pattern")
    return [name for name in modules if any(name == each or name.endswith(f".{each}") for each in wanted)]


def targeted(config: Mapping[str, Any], modules: Iterable[str], linears: Iterable[str] = ()) -> list[str]:
    """Modules that have an adapter, as PEFT finds them.

    ``all-linear`` names ``linears``. :class:`ValueError` if no module is found.
    """
    modules, wanted = list(modules), config.get("target_modules")
    if isinstance(wanted, str) and wanted.lower() == "all-linear":
        found = list(linears)
    else:
        found = matching(config, "target_modules", modules)
        if isinstance(wanted, list) and config.get("layers_to_transform") not in (None, []):
            found = [name for name in found if name in wanted or _inside(config, name)]
    if config.get("exclude_modules"):
        gone = set(matching(config, "exclude_modules", found))
        found = [name for name in found if name not in gone]
    if not found:
        ends = list(dict.fromkeys(name.rpartition(".")[2] for name in modules))
        there = ", ".join(ends[:_NAMED]) + ", …" * (len(ends) > _NAMED)
        raise ValueError(
            f"target_modules={shown(wanted)}: names none of the modules that can learn"
            + (f", which are {there}; name the model that it is for" if there else "")
        )
    return found


def _inside(config: Mapping[str, Any], name: str) -> bool:
    """Whether a module is in a layer of ``layers_to_transform``."""
    layers, parts = config["layers_to_transform"], config.get("layers_pattern")
    patterns = [r".*?\.[^.]*\.(?P<idx>\d+)\."]
    if parts:
        patterns = [_LAYER.format(each) for each in ([parts] if isinstance(parts, str) else parts)]
    for pattern in patterns:
        if found := re.match(pattern, name):
            return int(found["idx"]) in (layers if isinstance(layers, list) else [layers])
    return False


def _pattern_of(config: Mapping[str, Any], key: str, module: str | None, default: Any) -> Any:
    """The value of the first pattern that a module's name ends with."""
    for pattern, value in (config.get(key) or {}).items():
        if module is not None and re.match(rf"(.*\.)?({pattern})$", module):
            return value
    return default


def rank_of(config: Mapping[str, Any], module: str | None = None) -> int:
    """Rank of a module's adapter, or of all that no pattern names."""
    return int(_pattern_of(config, "rank_pattern", module, config["r"]))


def scale_of(config: Mapping[str, Any], module: str | None = None) -> float:
    """Factor of ``B A`` of a module, or of all that no pattern names.

    It is alpha / r, or with rsLoRA alpha / √r.
    """
    rank = rank_of(config, module)
    alpha = _pattern_of(config, "alpha_pattern", module, config["lora_alpha"])
    return float(alpha / (math.sqrt(rank) if config.get("use_rslora") else rank))
