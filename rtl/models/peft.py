"""Adapter files in PEFT's format.

``adapter_model.safetensors`` and ``adapter_config.json``

Names and the config's fields are PEFT's LoRA ones. Adapters of a language model are in ``lora.py``. Of those
here, a :class:`Network`'s, two things differ, and the config says so. ``gradloom_topology``:
``direct-to-output`` adapters end at the logits, so ``lora_B`` has as many rows as there are classes, whatever
the layer's own outputs. ``gradloom_codes``: what activations went through before the adapters saw them,
``nf4``, ``int8`` or ``none``.
"""

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.rtl.json_file import read_json

from .network import Network
from .tensors import as_float32, open_safetensors

__all__ = [
    "CODES",
    "CONFIG",
    "RECORD",
    "TOPOLOGY",
    "WEIGHTS",
    "about",
    "check_array",
    "key",
    "load_adapters",
    "number",
    "rank_and_alpha",
    "read_peft",
    "read_record",
    "representable",
    "save_adapters",
    "write_peft",
    "write_record",
]

TOPOLOGY = "direct-to-output"
CODES = ("nf4", "int8", "none")
WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
#: What came with an adapter that was delivered, and SHA-256 of its files.
RECORD = "gradloom_delivery.json"


def key(layer: str, which: str) -> str:
    """Name of a layer's ``"A"`` or ``"B"``."""
    return f"base_model.model.{layer}.lora_{which}.weight"


def check_array(name: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    """Refuses an array of another type or shape, or not finite.

    All its values must be finite.
    """
    if array.dtype.kind != "f":
        raise ValueError(f"{name} has dtype {array.dtype}: expected floating point")
    if array.shape != shape:
        raise ValueError(f"{name} has shape {list(array.shape)}: expected {list(shape)}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} has {int((~np.isfinite(array)).sum())} values that are NaN or infinite")


def representable(array: np.ndarray) -> bool:
    """Whether float32, as files hold it, has a finite value for each."""
    # Not so of NaN, either.
    return bool((np.abs(array) <= np.finfo(np.float32).max).all())


def write_peft(folder: str | Path, tensors: Mapping[str, np.ndarray], config: Mapping[str, Any]) -> tuple[Path, Path]:
    """Writes both files, the tensors as float32, and returns their paths."""
    from safetensors.numpy import save

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    held = {name: np.ascontiguousarray(array, np.float32) for name, array in tensors.items()}
    contents = {WEIGHTS: save(held, metadata={"format": "pt"}), CONFIG: (json.dumps(config, indent=2) + "\n").encode()}
    for name, content in contents.items():
        (folder / f"{name}.part").write_bytes(content)
    for name in contents:  # both are whole before either has its name
        (folder / f"{name}.part").replace(folder / name)
    return folder / WEIGHTS, folder / CONFIG


def write_record(folder: str | Path, told: Mapping[str, Any]) -> None:
    """Writes what is known of an adapter, with the hashes of its files."""
    folder = Path(folder)
    hashes = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in (WEIGHTS, CONFIG)}
    (folder / RECORD).write_text(json.dumps({**told, "sha256": hashes}, indent=2) + "\n", encoding="utf-8")


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
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path}: not a record of gradloom's; apply the package again") from None
    for name, expected in hashes.items():
        file = Path(folder) / name
        if file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() != expected:
            raise ValueError(f"{file}: its SHA-256 is not the one that {RECORD} has; apply the package again")
    return dict(told)


def read_peft(folder: str | Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Configuration and tensors of an adapter.

    :class:`ValueError` names the file that is missing or damaged, or that is another than its record says.
    """
    read_record(folder)
    from safetensors import SafetensorError
    from safetensors.numpy import load

    folder = Path(folder)
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise ValueError(f"{folder / name}: no such file")
    try:
        config = read_json(folder / CONFIG)
    except ValueError as error:
        raise ValueError(f"{folder / CONFIG}: not JSON ({error}); is it truncated?") from None
    if not isinstance(config, dict):
        raise ValueError(f"{folder / CONFIG}: holds a {type(config).__name__}: expected an object")
    try:
        tensors = load((folder / WEIGHTS).read_bytes())
    except SafetensorError as error:
        raise ValueError(f"{folder / WEIGHTS}: not readable ({error}); is it truncated?") from None
    except KeyError:  # the library's numpy side does not know bfloat16
        stored = open_safetensors(folder / WEIGHTS)
        tensors = {name: as_float32(each.read(), each.dtype) for name, each in stored.items()}
    return config, tensors


def number(config: Mapping[str, Any], field: str, *, whole: bool = False) -> Any:
    """A number of the config: finite, or an integer of at least 1."""
    value = config.get(field)
    if whole and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise ValueError(f"{field}={value!r}: must be an integer of at least 1")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not np.isfinite(value):
        raise ValueError(f"{field}={value!r}: must be a number")
    return value


def rank_and_alpha(config: Mapping[str, Any], wanted: int | None = None) -> tuple[int, float]:
    """``r`` and ``lora_alpha`` of the config.

    Refuses another rank than ``wanted``.
    """
    rank, alpha = number(config, "r", whole=True), number(config, "lora_alpha")
    if wanted is not None and rank != wanted:
        raise ValueError(f"r={rank}: rank {wanted} is needed")
    return rank, alpha


@contextlib.contextmanager
def about(folder: str | Path) -> Iterator[None]:
    """Adds the folder's name to errors of the block."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None


def save_adapters(
    folder: str | Path, network: Network, adapters: Sequence[tuple[np.ndarray, np.ndarray]], *, codes: str = "nf4"
) -> tuple[Path, Path]:
    """Writes the adapters of every layer as float32.

    They are ``(A [rank, n], B [classes, rank])``. Returns both files' paths.

    ``codes``, one of :data:`CODES`: the codes from which the adapters learnt.

    ``codes``, one of :data:`CODES`: what the adapters learnt from.
    Every Q4.12 word is exact in float32. ``lora_alpha`` equals the rank, so the scaling is 1.
    """
    if codes not in CODES:
        raise ValueError(f"codes={codes!r}: must be one of {', '.join(CODES)}")
    if len(adapters) != len(network.layers):
        raise ValueError(f"adapters has {len(adapters)} pairs: {network.name} has {len(network.layers)} layers")
    rank = len(adapters[0][0])
    tensors = {}
    for name, n, (a, b) in zip(network.layer_names, network.taps, adapters):
        a, b = np.asarray(a), np.asarray(b)
        check_array(key(name, "A"), a, (rank, n))
        check_array(key(name, "B"), b, (network.classes, rank))
        tensors[key(name, "A")] = a
        tensors[key(name, "B")] = b
    config = {
        "base_model_name_or_path": network.name,
        "bias": "none",
        "fan_in_fan_out": False,
        "gradloom_codes": codes,
        "gradloom_topology": TOPOLOGY,
        "inference_mode": True,
        "lora_alpha": rank,
        "lora_dropout": 0.0,
        "peft_type": "LORA",
        "r": rank,
        "target_modules": list(network.layer_names),
        "task_type": None,
    }
    return write_peft(folder, tensors, config)


def load_adapters(folder: str | Path, network: Network) -> tuple[list[tuple[np.ndarray, np.ndarray]], str]:
    """Adapters of every layer, float64, and their codes.

    An adapter is ``(A [rank, n], B [classes, rank])``, B times ``lora_alpha / r``. The codes, one of :data:`CODES`, are
    those from which they learnt.
    """
    config, tensors = read_peft(folder)
    with about(folder):
        return _adapters(config, tensors, network), config["gradloom_codes"]


def _adapters(
    config: Mapping[str, Any], tensors: Mapping[str, np.ndarray], network: Network
) -> list[tuple[np.ndarray, np.ndarray]]:
    if config.get("gradloom_topology") != TOPOLOGY:
        raise ValueError(f"gradloom_topology={config.get('gradloom_topology')!r}: expected {TOPOLOGY!r}")
    if config.get("gradloom_codes") not in CODES:
        raise ValueError(f"gradloom_codes={config.get('gradloom_codes')!r}: must be one of {', '.join(CODES)}")
    rank, alpha = rank_and_alpha(config)
    if config.get("target_modules") != list(network.layer_names):
        raise ValueError(
            f"target_modules={config.get('target_modules')!r}: {network.name} has {list(network.layer_names)}"
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
        check_array(key(name, "A"), a, (rank, n))
        check_array(key(name, "B"), b, (network.classes, rank))
        adapters.append((a.astype(np.float64), b.astype(np.float64) * (alpha / rank)))
    return adapters
