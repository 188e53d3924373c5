"""Adapter files in PEFT's format.

``adapter_model.safetensors`` and ``adapter_config.json``

Names and the config's fields are PEFT's LoRA ones. Adapters of a language model are in ``lora.py``. Of those
here, a :class:`LayerNetwork`'s, two things differ, and the config says so. ``gradloom_topology``:
``direct-to-output`` adapters end at the logits, so ``lora_B`` has as many rows as there are classes, whatever
the layer's own outputs. ``gradloom_codes``: what activations went through before the adapters saw them,
``nf4``, ``int8`` or ``none``.
"""

import contextlib
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.json_file import read_json

from ..files.keys import shown
from ..files.kinds import what_is
from ..files.tensors import as_float32, open_safetensors
from ..network import LayerNetwork
from .config import AdapterKind, check_config, kind_of, rank_of, scale_of
from .peft_files import CODES, CONFIG, DIRECT_TOPOLOGY, RECORD, TOPOLOGY_KEY, WEIGHTS, check_array, key

__all__ = [
    "about",
    "check_names",
    "checked_tensors",
    "in_file",
    "load_adapters",
    "read_config",
    "read_peft",
    "read_record",
]


def read_record(folder: str | Path) -> dict[str, Any] | None:
    """What :func:`write_record` wrote, or None without a record.

    :class:`ValueError` if a file is another than then.
    """
    path = Path(folder) / RECORD
    if not path.is_file():
        return None
    try:
        told = read_json(path)
        hashes = {name: told["sha256"][name] for name in (WEIGHTS, CONFIG)}
        if not all(isinstance(told.get(key, 0), int) for key in ("version", "keys_version")):
            raise ValueError
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path}: not a record of gradloom's; apply the package again") from None
    for name, expected in hashes.items():
        file = Path(folder) / name
        if file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() != expected:
            raise ValueError(f"{file}: its SHA-256 is not the one that {RECORD} has; apply the package again")
    return dict(told)


def read_peft(folder: str | Path, *kinds: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Configuration and tensors of an adapter that is understood whole.

    Tensors have the names that PEFT saves them by, whatever tool wrote them. ``kinds``: values of ``peft_type`` that
    are asked for; all that there are, without. :class:`ValueError` names the file that is missing or damaged, or that
    is another than its record says, and what in it does not hold.
    """
    folder, config = Path(folder), read_config(folder, *kinds)
    stored = open_safetensors(folder / WEIGHTS)
    tensors = {name: as_float32(each.read(), each.dtype) for name, each in stored.items()}
    with about(folder / WEIGHTS):
        return config, checked_tensors(config, tensors)


def read_config(folder: str | Path, *kinds: str) -> dict[str, Any]:
    """Configuration of an adapter, as :func:`read_peft` gives it."""
    folder = Path(folder)
    _check_files(folder)
    read_record(folder)
    try:
        config = read_json(folder / CONFIG)
    except ValueError as error:
        kind = what_is(folder / CONFIG)
        said = f"not JSON ({error}); is it truncated?" if kind is None else f"is {kind}"
        raise ValueError(f"{folder / CONFIG}: {said}") from None
    if not isinstance(config, dict):
        raise ValueError(f"{folder / CONFIG}: must be an object of JSON, not {shown(config)}")
    with about(folder / CONFIG):
        found = kind_of(config)
        if kinds and config["peft_type"] not in kinds:
            raise ValueError(f"peft_type={shown(config['peft_type'])}: must be {' or '.join(map(shown, kinds))}")
        check_config(config, found)
    return config


def _check_files(folder: Path) -> None:
    """Refuses a folder without both files, by what is there instead."""
    if folder.is_file():
        kind = what_is(folder)
        raise ValueError(f"{folder}: is {kind or 'a file'}: an adapter is a folder with {CONFIG} and {WEIGHTS}")
    for name in (CONFIG, WEIGHTS):
        if (folder / name).is_file():
            continue
        for other in sorted(folder.glob("*")) if folder.is_dir() else ():
            if other.suffix in (".gguf", ".bin", ".pt", ".pth") and (kind := what_is(other)):
                raise ValueError(f"{folder / name}: no such file; {other.name} beside it is {kind}")
        remedy = "; name the output folder of a fine-tune, or a .gguf adapter" if name == CONFIG else ""
        raise ValueError(f"{folder / name}: no such file{remedy}")


def checked_tensors(config: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Tensors of a checked config by the names that PEFT saves them by.

    :class:`ValueError` names the first that is no tensor of this kind of adapter, or has another rank.
    """
    kind, made, adapters = kind_of(config), dict[str, np.ndarray](), set[str]()
    for name, array in tensors.items():
        for end in kind.ends:
            part, dot, last = end.partition(".")
            found = re.fullmatch(rf"(.+)\.{part}(?:\.([^.]+))?{re.escape(dot + last)}", name)
            if found is not None:
                break
        else:
            raise ValueError(
                f"has unknown {name}: names of a {config['peft_type']} adapter end in {', '.join(kind.ends)}"
            )
        named = f"{kind.prefix}{found[1].removeprefix(kind.prefix)}.{end}"
        if not np.isfinite(array).all():
            raise ValueError(f"{name} has {int((~np.isfinite(array)).sum())} values that are NaN or infinite")
        if named in made:
            raise ValueError(f"{name}: is there by two names; leave one")
        made[named] = array
        adapters |= {found[2]} - {None}
    if len(adapters) > 1:
        raise ValueError(f"has tensors of the adapters {', '.join(sorted(adapters))}: must be of one")
    if kind.ranked:
        _check_ranks(kind, config, made)
    return made


def _check_ranks(kind: AdapterKind, config: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> None:
    """Refuses matrices of another rank than the config has, and halves."""
    for name, array in tensors.items():
        end = next(each for each in kind.ends if name.endswith(f".{each}"))
        module = name.removesuffix(f".{end}").removeprefix(kind.prefix)
        rank, shape = rank_of(config, module), list(array.shape)
        if len(shape) != 2:
            raise ValueError(f"{name} has shape {shape}: expected a matrix")
        if kind.product is None:
            expected = [rank, rank]
        else:
            expected = [rank, shape[1]] if end == kind.product[0] else [shape[0], rank]
        if shape != expected:
            raise ValueError(f"{name} has shape {shape}: expected {expected}, the rank of {CONFIG}")
        for other in kind.product or ():
            if f"{name.removesuffix(end)}{other}" not in tensors:
                raise ValueError(f"has no {name.removesuffix(end)}{other}, but its other half")


def in_file(tensors: Iterable[str], modules: Iterable[str]) -> dict[str, str]:
    """Names of a language model's modules in a file, by their own names.

    A file that was learnt on the model without its head has no ``model.`` before ``layers``.
    """
    found = (re.match(r"base_model\.model\.((?:model\.)*)(?:layers|norm)\.", name) for name in tensors)
    start = next((each[1] for each in found if each), "model.")
    return {name: start + name.removeprefix("model.") for name in modules}


def check_names(tensors: Iterable[str], expected: Iterable[str], model: str) -> None:
    """Refuses a file that has not all of the expected tensors, or others."""
    held, wanted = set(tensors), set(expected)
    missing, further = sorted(wanted - held), sorted(held - wanted)
    if missing:
        raise ValueError(f"{WEIGHTS} has no {missing[0]} ({len(missing)} are missing)")
    if further:
        raise ValueError(f"{WEIGHTS} has {further[0]} ({len(further)} that {CONFIG} or {model} has no place for)")


@contextlib.contextmanager
def about(folder: str | Path) -> Iterator[None]:
    """Adds the folder's name to errors of the block."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None


def load_adapters(folder: str | Path, network: LayerNetwork) -> tuple[list[tuple[np.ndarray, np.ndarray]], str]:
    """Adapters of every layer, float64, and their codes.

    An adapter is ``(A [rank, n], B [classes, rank])``, B times ``lora_alpha / r``. The codes, one of :data:`CODES`, are
    those from which they learnt.
    """
    config, tensors = read_peft(folder, "LORA")
    with about(folder):
        return _adapters(config, tensors, network), config["gradloom_codes"]


def _adapters(
    config: Mapping[str, Any], tensors: Mapping[str, np.ndarray], network: LayerNetwork
) -> list[tuple[np.ndarray, np.ndarray]]:
    if config.get(TOPOLOGY_KEY) != DIRECT_TOPOLOGY:
        raise ValueError(
            f"{TOPOLOGY_KEY}={shown(config.get(TOPOLOGY_KEY))}: must be {shown(DIRECT_TOPOLOGY)} of a network of "
            f"images; name the output folder of its fine-tune"
        )
    if config.get("gradloom_codes") not in CODES:
        raise ValueError(f"gradloom_codes={shown(config.get('gradloom_codes'))}: must be one of {', '.join(CODES)}")
    if config.get("target_modules") != list(network.layer_names):
        raise ValueError(
            f"target_modules={shown(config.get('target_modules'))}: {network.name} has "
            f"{shown(list(network.layer_names))}"
        )
    expected = {key(name, which) for name in network.layer_names for which in "AB"}
    if set(tensors) != expected:
        missing, further = sorted(expected - set(tensors)), sorted(set(tensors) - expected)
        raise ValueError(
            f"{WEIGHTS} has "
            + " and ".join(
                text
                for names, text in ((missing, f"no {', '.join(missing)}"), (further, f"unknown {', '.join(further)}"))
                if names
            )
        )
    adapters = []
    for name, n in zip(network.layer_names, network.taps):
        a, b = tensors[key(name, "A")], tensors[key(name, "B")]
        rank = rank_of(config, name)
        check_array(key(name, "A"), a, (rank, n))
        check_array(key(name, "B"), b, (network.classes, rank))
        adapters.append((a.astype(np.float64), b.astype(np.float64) * scale_of(config, name)))
    return adapters
