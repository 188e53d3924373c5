"""What a fine-tune of a network has learnt, as files."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.graph.methods import Learning
from gradloom.graph.network import Network
from gradloom.models.adapters.peft_files import CONFIG, WEIGHTS, check_array, write_peft

from .program.prepared import Prepared, learning_of

__all__ = ["frozen_in", "is_of_network", "keep_frozen", "load", "save"]

_PREFIX = "base_model.model."
#: Weights that do not learn, as the machine has them.
_FROZEN = "machine.safetensors"


def save(folder: Path, values: Mapping[str, np.ndarray], told: Mapping[str, Any]) -> None:
    """Writes weights that learnt, by the names that PEFT gives them.

    ``told``: model, method, loss, and of adapters rank, lesser ranks, alpha, targets and layers.
    """
    config = {
        "base_model_name_or_path": told["model"],
        "bias": "none",
        "gradloom_loss": told["loss"],
        "gradloom_method": told["method"],
        "inference_mode": True,
        "peft_type": "LORA",
        "task_type": None,
    }
    if told["method"] == "lora":
        config |= {
            "fan_in_fan_out": False,
            "alpha_pattern": {name: told["alpha"] / told["rank"] * own for name, own in told["lesser_ranks"].items()},
            "lora_alpha": told["alpha"],
            "lora_dropout": 0.0,
            "r": told["rank"],
            "rank_pattern": told["lesser_ranks"],
            "target_modules": sorted(told["layers"]),
        }
    if told["method"] == "instantft":
        config["r"] = told["rank"]
    if told["method"] != "lora" and told["targets"]:
        config["gradloom_targets"] = told["targets"]
    write_peft(folder, {f"{_PREFIX}{name}": value for name, value in values.items()}, config)


def keep_frozen(folder: Path, prepared: Prepared) -> None:
    """Writes weights that do not learn, as the machine had them, and which layers had two codes."""
    from safetensors.numpy import save_file

    values, learners = prepared.learning.network.values, prepared.learning.learners
    kept = {name: np.ascontiguousarray(values[name]) for name in set(values) - set(learners)}
    save_file(kept, folder / _FROZEN, metadata={"precise": json.dumps(prepared.precise)})


def frozen_in(folder: Path, learning: Learning, loss: str) -> Prepared | None:
    """What learns, with the weights of :func:`keep_frozen`; None where a fine-tune was in floating point."""
    from safetensors import safe_open

    path, network = folder / _FROZEN, learning.network
    if not path.is_file():
        return None
    found = _tensors(path)
    wrong = sorted(set(found) ^ (set(network.values) - set(learning.learners)))
    if wrong:
        raise ValueError(f"adapter={folder}: {wrong[0]} is not in both {_FROZEN} and the network; name its own network")
    for name, value in found.items():
        check_array(name, value, network.values[name].shape)
    with safe_open(path, "numpy") as file:
        precise = json.loads(file.metadata()["precise"])
    taught = network.with_operations(network.operations, {**network.values, **found})
    return Prepared(Learning(taught, learning.learners), loss, precise=precise)


def is_of_network(folder: Path) -> bool:
    """Whether a folder has what :func:`save` wrote."""
    try:
        return "gradloom_method" in json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return False


def load(folder: Path, network: Network) -> tuple[Learning, str]:
    """The network with what a fine-tune in ``folder`` has learnt, and its loss."""
    path = folder / CONFIG
    if not path.is_file() or not (folder / WEIGHTS).is_file():
        raise ValueError(f"adapter={folder}: has no {CONFIG} and {WEIGHTS}; give the output folder of a fine-tune")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        method, loss = config["gradloom_method"], config["gradloom_loss"]
        given: dict[str, Any] = {}
        if method == "lora":
            given = {"targets": tuple(config["target_modules"]), "rank": config["r"], "alpha": config["lora_alpha"]}
            given["lesser"] = config["rank_pattern"]
        if method == "instantft":
            given["rank"] = config["r"]
        if "gradloom_targets" in config:
            given["targets"] = config["gradloom_targets"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: is not of a fine-tune of a network: {error}") from None
    tensors = _tensors(folder / WEIGHTS)
    _check_layers(folder, tensors, network)
    learning = learning_of(network, loss, method, **given)
    wrong = sorted(set(tensors) ^ set(learning.learners))
    if wrong:
        raise ValueError(f"adapter={folder}: {wrong[0]} is not in both the file and the network; name its own network")
    for name, value in tensors.items():
        check_array(name, value, learning.network.values[name].shape)
    values = {**learning.network.values, **tensors}
    return Learning(learning.network.with_operations(learning.network.operations, values), learning.learners), loss


def _check_layers(folder: Path, tensors: Mapping[str, np.ndarray], network: Network) -> None:
    """Refuses what another network has learnt."""
    own = {weight.name for each in network.operations for weight in each.weights}
    own |= {name.rpartition(".")[0] for name in own}
    theirs = {name: _PART.sub("", name) for name in tensors}
    if any(name not in own and layer not in own for name, layer in theirs.items()):
        layers = {name.rpartition(".")[0] for name in own if name.endswith(".weight")}
        raise ValueError(
            f"adapter={folder}: is of another network: it has {_some(theirs.values())}; the network has {_some(layers)}"
        )


#: What stands behind a layer's name.
_PART = re.compile(r"(\.tap)?\.lora_[AB]\.weight$|\.(weight|bias)$")
#: Layers that a message names, at most.
_NAMED = 4


def _some(names: Iterable[str]) -> str:
    found = sorted(set(names))
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return ", ".join(found[:_NAMED]) + more


def _tensors(path: Path) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        found = load_file(path)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path}: not a readable safetensors file: {error}") from None
    return {name.removeprefix(_PREFIX): value for name, value in found.items()}
