"""A network with what a fine-tune has learnt, as an ONNX file."""

from pathlib import Path
from typing import Any

import numpy as np

from gradloom.graph.methods import Learning
from gradloom.graph.network import Network
from gradloom.graph.onnx.load import load_network, network_of
from gradloom.graph.operations import Convolution, Linear
from gradloom.models.files.onnx_file import read_onnx
from gradloom.output import check_file, staged_file
from gradloom.systems.job import model_of_run
from gradloom.systems.results import Exported

from .adapter import load

__all__ = ["export_network", "merged"]

#: Of the largest weight, how far the file that was written may be off: float32, and factors of a BatchNorm.
_CLOSE = 1e-5


def merged(learning: Learning) -> dict[str, np.ndarray]:
    """Weights that a fine-tune has changed, adapters folded in."""
    network = learning.network
    made = {name: network.values[name] for name in learning.learners if ".lora_" not in name}
    # A layer may stand in the list more than once.
    layers = {each.layer: each for each in network.operations if isinstance(each, Linear | Convolution)}
    for each in layers.values():
        if each.rank:
            a, b = (np.asarray(network.values[weight.name], np.float64) for weight in each.adapter)
            product = b.reshape(len(b), -1) @ a.reshape(len(a), -1)
            name = f"{each.layer}.weight"
            base = made.get(name, network.values[name])
            made[name] = base + each.scale * product.reshape(base.shape)
    return made


def export_network(source: Path, output: Path | str, model: Path | str | None) -> Exported:
    """Writes the network of a run's folder with its weights.

    ``model``: the network's file, where it is not the run's. :class:`ValueError` where a weight of the network is no
    initializer of the file's own, and so cannot be changed there.
    """
    path = Path(str(model_of_run(source, model)))
    check_file(output, inputs=(path, source))
    proto = read_onnx(path)
    network = load_network(path)
    learning, _ = load(source, network)
    if any(".tap.lora_" in name for name in learning.learners):
        raise ValueError(
            f"{source}: has taps of InstantFT, which are no weights of the network; gradloom infer answers with them"
        )
    changed = merged(learning)
    _put(proto, network, changed, path)
    found = network_of(proto).values
    for name, value in {**network.values, **changed}.items():
        if np.abs(found[name] - value).max(initial=0) > _CLOSE * np.abs(value).max(initial=0):
            raise ValueError(
                f"{path}: {name} is made of several values, or of one with another layer, so that a file cannot hold "
                f"what was learnt"
            )
    with staged_file(Path(output)) as file:
        file.write(proto.SerializeToString())
        size = file.tell()
    return {"name": path.stem, "weights": len(changed), "bytes": size}


def _put(proto: Any, network: Network, changed: dict[str, np.ndarray], path: Path) -> None:
    """Changes initializers, in the layout that they have."""
    from onnx import numpy_helper

    held = {each.name: each for each in proto.graph.initializer}
    for name, value in changed.items():
        origin = network.origins.get(name)
        if origin not in held:
            raise ValueError(f"{path}: {name} is no initializer, so that a file cannot hold what it learnt")
        old = numpy_helper.to_array(held[origin])
        base = np.asarray(network.values[name], np.float64)
        made = _in_layout(old, base, value)
        if made is None:
            raise ValueError(
                f"{path}: {name} is made of {origin} and others, so that a file cannot hold what it learnt"
            )
        held[origin].CopyFrom(numpy_helper.from_array(made.astype(old.dtype), origin))


def _in_layout(old: np.ndarray, base: np.ndarray, value: np.ndarray) -> np.ndarray | None:
    """What the file's array becomes where the network's weight ``base`` becomes ``value``; None: nobody knows."""
    for turned in (False, True):
        if turned and base.ndim != 2:
            continue
        own, other = (base.T, value.T) if turned else (base, value)
        if old.size != own.size:
            continue
        seen = old.reshape(own.shape).astype(np.float64) if not turned or old.shape == own.shape else None
        if seen is None:
            continue
        # A BatchNorm behind is a factor a channel.
        axes = tuple(n for n in range(own.ndim) if n != (own.ndim - 1 if turned else 0))
        squares = np.square(seen).sum(axes, keepdims=True)
        gain = (seen * own).sum(axes, keepdims=True) / np.where(squares > 0, squares, 1)
        if np.abs(gain * seen - own).max() <= _CLOSE * np.abs(own).max() and (gain != 0).all():
            return (seen + (other - own) / gain).reshape(old.shape)
    return _in_columns(old, base, value)


def _in_columns(old: np.ndarray, base: np.ndarray, value: np.ndarray) -> np.ndarray | None:
    """The same where a layer's inputs have another order; columns that are alike tell none."""
    for turned in (False, True):
        held = old.T if turned else old
        if base.ndim != 2 or held.shape != base.shape:
            continue
        columns, mine = ([tuple(each) for each in x.astype(np.float64).T] for x in (held, base))
        place = {each: n for n, each in enumerate(mine)}
        if len(place) == len(columns) and place.keys() == set(columns):
            made = value[:, [place[each] for each in columns]]
            return made.T if turned else made
    return None
