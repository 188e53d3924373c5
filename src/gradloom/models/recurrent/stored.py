"""Imported recurrent networks in a folder."""

import dataclasses
import math
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import numpy as np

from gradloom.json_file import json_text, read_json
from gradloom.output import staged

from ..files.archive import read_npz
from .cells import GruCell, RnnCell
from .coding import Coding
from .front import Conv, Pool
from .host import FloatDense, Function, HostStep
from .lstm import GATES, Gate, LstmCell
from .network import Dense, RecurrentNetwork
from .readers.reader import load_recurrent

__all__ = ["FORMAT", "NetworkSummary", "load_network", "save_network", "summary"]

#: Version of the files; another one is refused.
FORMAT = 1
_CLASSES = (
    Coding,
    Conv,
    Dense,
    FloatDense,
    Function,
    Gate,
    GruCell,
    HostStep,
    LstmCell,
    Pool,
    RecurrentNetwork,
    RnnCell,
)
_KINDS: dict[str, Any] = {each.__name__: each for each in _CLASSES}


def load_network(path: Path | str) -> RecurrentNetwork:
    """The network in an ``.onnx`` file or in a folder.

    The folder is one of :func:`save_network`; its ``network.json`` stands for it.
    """
    path = Path(path)
    if path.name == "network.json" and path.is_file():
        path = path.parent
    if not path.is_dir():
        return load_recurrent(path)
    if not (path / "network.json").is_file():
        raise ValueError(f"{path}: it has no network.json; name an .onnx file, or a folder that gradloom import wrote")
    try:
        told = read_json(path / "network.json")
    except ValueError as error:
        raise ValueError(f"{path / 'network.json'}: is not JSON ({error}); is it truncated?") from None
    if not isinstance(told, dict) or told.get("format") != FORMAT:
        found = told.get("format") if isinstance(told, dict) else None
        raise ValueError(f"{path / 'network.json'}: format={found}: must be {FORMAT}; import the network again")
    arrays = read_npz(path / "network.npz")
    try:
        network = _unpacked(told["network"], arrays)
        if not isinstance(network, RecurrentNetwork):
            raise TypeError
        network.integers.check()
    except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
        raise ValueError(
            f"{path}: network.json and network.npz do not hold a network ({error}); import it again"
        ) from None
    return network


def save_network(network: RecurrentNetwork, folder: Path | str) -> None:
    """Writes a network's files to a folder.

    They are ``network.json``, ``network.npz`` and ``report.json``.
    """
    arrays: dict[str, np.ndarray] = {}
    told = {"format": FORMAT, "network": _packed(network, "network", arrays)}
    with staged(folder, verb="import") as stage:
        for name, value in (("network.json", told), ("report.json", summary(network))):
            (stage / name).write_text(json_text(value, indent=1), encoding="utf-8")
        np.savez(stage / "network.npz", **arrays)  # type: ignore[arg-type]


class NetworkSummary(TypedDict):
    """Sizes of a network; ``quantizers``: what each became.

    ``host``: operations before and behind the machine's. ``fits``: see :func:`gradloom.import_model`.
    """

    name: str
    layers: int
    directions: int
    kind: str
    channels: int
    tokens: int
    inputs: int
    hidden: int
    classes: int | None
    host: dict[str, list[str]]
    pick: str
    dense: list[list[Any]]
    coupled_gates: bool
    convolutions: list[dict[str, int]]
    pools: list[dict[str, int]]
    parameters: int
    products_a_step: int
    input_codes: list[int]
    input_scale: float
    hidden_codes: list[int]
    state_codes: list[int]
    quantizers: list[dict[str, Any]]
    fits: NotRequired[str]


def summary(network: RecurrentNetwork) -> NetworkSummary:
    """Sizes of a network, and what each quantiser became, with its numbers."""
    cell, integers = network.cell, network.integers
    gates = [gate for pair in network.layers for each in pair if each is not None for gate in each.gates.values()]
    weights = [
        *(gate.w for gate in gates),
        *(gate.u for gate in gates),
        *(conv.weight for conv in network.front if isinstance(conv, Conv)),
        *(cell.gates["new"].w for cell in network.behind),
    ]
    if network.head is not None:
        weights.append(network.head.weight)
    low, high = integers.cell.state_range
    return {
        "name": network.name,
        "layers": len(network.layers),
        "directions": 1 if network.backward is None else 2,
        "kind": type(cell).__name__.removesuffix("Cell").upper(),
        "channels": network.channels,
        "tokens": network.tokens,
        "inputs": cell.inputs,
        "hidden": cell.units,
        "classes": network.classes,
        "host": {
            "before": [step.op for step in network.before],
            "behind": [step.op if isinstance(step, Function) else "dense" for step in network.tail],
        },
        "pick": network.pick,
        "dense": [[cell.inputs, cell.units, cell.gates["new"].activation] for cell in network.behind],
        "coupled_gates": isinstance(cell, LstmCell) and len(cell.gates) < len(GATES),
        "convolutions": [_layer(each) for each in network.front if isinstance(each, Conv)],
        "pools": [_layer(each) for each in network.front if isinstance(each, Pool)],
        "parameters": sum(each.size for each in weights),
        "products_a_step": sum(gate.w.size + gate.u.size for gate in gates),
        "input_codes": [network.input.lo, network.input.hi],
        "input_scale": network.input.scale,
        "hidden_codes": [cell.hidden.lo, cell.hidden.hi],
        "state_codes": [low, high],
        "quantizers": list(integers.quantizers()),
    }


def _layer(layer: Conv | Pool) -> dict[str, int]:
    return {name: getattr(layer, name) for name in ("inputs", "outputs", "kernel", "stride")}


def _packed(value: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(value, np.ndarray):
        arrays[name] = value
        return {"array": name}
    if dataclasses.is_dataclass(value):
        fields = {
            each.name: _packed(getattr(value, each.name), f"{name}.{each.name}", arrays)
            for each in dataclasses.fields(value)
        }
        return {"kind": type(value).__name__, **fields}
    if isinstance(value, dict):
        return {"items": {key: _packed(each, f"{name}.{key}", arrays) for key, each in value.items()}}
    if isinstance(value, tuple):
        return [_packed(each, f"{name}.{number}", arrays) for number, each in enumerate(value)]
    # JSON has finite numbers alone.
    return {"number": f"{value}"} if isinstance(value, float) and not math.isfinite(value) else value


def _unpacked(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(value, list):
        return tuple(_unpacked(each, arrays) for each in value)
    if not isinstance(value, dict):
        return value
    if "number" in value:
        return float(value["number"])
    if "array" in value:
        return arrays[value["array"]]
    if "items" in value:
        return {key: _unpacked(each, arrays) for key, each in value["items"].items()}
    return _KINDS[value["kind"]](**{key: _unpacked(each, arrays) for key, each in value.items() if key != "kind"})
