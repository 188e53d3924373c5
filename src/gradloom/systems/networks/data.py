"""Samples of a network, from a user's file or folder."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gradloom.graph.network import Network, Port
from gradloom.graph.training import before_loss
from gradloom.models.files.archive import read_labelled, read_npz
from gradloom.systems.held_out import share_of

from .workload import NetworkOptions

__all__ = ["NetworkSamples", "check_inputs", "load_judged", "load_samples", "loss_of", "scaled"]


@dataclass(frozen=True, eq=False)
class NetworkSamples:
    """Samples ``x [n, ...]`` as the network's file has them, and ``y``: classes ``[n]``, or values ``[n, ...]``.

    ``odd``: which of them are anomalies, where values are those of the samples themselves.
    """

    x: np.ndarray
    y: np.ndarray
    odd: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.x)

    def errors(self, found: np.ndarray) -> np.ndarray:
        """Mean squared error of each sample."""
        made: np.ndarray = np.square(found.reshape(len(self), -1) - self.y.reshape(len(self), -1)).mean(1)
        return made

    def wanted(
        self, loss: str, features: int, rows: np.ndarray, smoothing: float = 0.0, weights: Sequence[float] | None = None
    ) -> np.ndarray:
        """Targets of some samples, a row each; all classes share ``smoothing``, and have ``weights``."""
        if loss == "classes":
            made = (1 - smoothing) * np.eye(features)[self.y[rows]] + smoothing / features
            if weights is not None:
                each = np.asarray(weights, np.float64)
                made = made * each * (len(rows) / each[self.y[rows]].sum())
            return made
        return self.y[rows].reshape(-1, features).astype(np.float64)


def check_inputs(network: Network) -> tuple[int, ...]:
    """Shape of a sample; refuses a network with several inputs."""
    if len(network.inputs) != 1:
        names = ", ".join(repr(each.name) for each in network.inputs)
        raise ValueError(f"model: has the inputs {names}: data names one; export the network with one input")
    return network.inputs[0].shape


def scaled(x: np.ndarray, factor: float | None) -> np.ndarray:
    """Samples as the network sees them."""
    if factor is None:
        factor = 1 / 255 if x.dtype == np.uint8 else 1.0
    return x.astype(np.float64) * factor


def _numbers(name: str, x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if x.dtype.kind not in "fiu":
        raise ValueError(f"{name} has dtype {x.dtype}: must be numbers")
    if x.ndim < 1 or not len(x):
        raise ValueError(f"{name} has shape {list(x.shape)}: must have at least one sample")
    if x.shape[1:] != shape and x.shape[1:] == tuple(n for n in shape if n != 1):
        x = x.reshape(len(x), *shape)
    if x.shape[1:] != shape:
        raise ValueError(f"{name} has samples of {list(x.shape[1:])}: the network takes {list(shape)}")
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        raise ValueError(f"{name} has {int((~np.isfinite(x)).sum())} values that are NaN or infinite")
    return x


def loss_of(asked: str | None, y: np.ndarray) -> str:
    """What the targets want."""
    return asked or ("classes" if y.dtype.kind in "iu" and y.ndim == 1 else "values")


def _targets(name: str, y: np.ndarray, count: int, loss: str, port: Port) -> np.ndarray:
    """Classes, or values as the network makes them."""
    if len(y) != count:
        raise ValueError(f"{name} has {len(y)} targets: there are {count} samples")
    if loss == "classes":
        if y.dtype.kind not in "iu" or y.ndim != 1:
            raise ValueError(f"{name} has shape {list(y.shape)} and dtype {y.dtype}: classes must be integers (n)")
        wrong = (y < 0) | (y >= port.tensor.features)
        if wrong.any():
            at = int(np.argmax(wrong))
            raise ValueError(f"{name}[{at}] is {y[at]}: classes must be from 0 to {port.tensor.features - 1}")
        return y.astype(np.int64)
    if y.dtype.kind not in "fiu" or int(np.prod(y.shape[1:])) != int(np.prod(port.shape)):
        raise ValueError(f"{name} has values of {list(y.shape[1:])}: the network makes {list(port.shape)}")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise ValueError(f"{name} has {int((~np.isfinite(y)).sum())} values that are NaN or infinite")
    if loss == "labels" and (y.min() < 0 or y.max() > 1):
        raise ValueError(f"{name} has values from {y.min():g} to {y.max():g}: labels must be from 0 to 1")
    return port.wanted(y.reshape(len(y), *port.shape))


def _samples(part: str, x: np.ndarray, y: np.ndarray | None, loss: str, network: Network) -> NetworkSamples:
    """Samples as the network sees them; without ``y`` it is to give back what it takes.

    Beside values, integers (n) are 1 for anomalies: samples that it is not to give back.
    """
    before_loss(network, loss)
    port, name = network.result, f"y{part}"
    if loss == "classes" and port.tensor.rows > 1:
        raise ValueError(
            f"loss=classes: the network makes {list(port.shape)}, classes are of one row; take loss=labels, or values"
        )
    if loss == "values" and int(np.prod(port.shape)) != 1 and (y is None or (y.ndim == 1 and y.dtype.kind in "biu")):
        if port.shape != network.inputs[0].shape:
            has = "is missing" if y is None else f"has shape {list(y.shape)}"
            raise ValueError(
                f"{name} {has}: the network makes {list(port.shape)} of {list(network.inputs[0].shape)}; give values"
            )
        if y is not None and (len(y) != len(x) or set(np.unique(y)) != {0, 1}):
            raise ValueError(
                f"{name} has shape {list(y.shape)}: must have 0 or 1 for each of {len(x)} samples, and both"
            )
        return NetworkSamples(x, port.wanted(x), None if y is None else y == 1)
    assert y is not None
    return NetworkSamples(x, _targets(name, y, len(x), loss, port))


def _classes(network: Network) -> int:
    return network.result.tensor.features


def _pictured(shape: tuple[int, ...], path: Path) -> None:
    if len(shape) != 3:
        raise ValueError(f"data={path}: is a folder of pictures, the network takes {list(shape)}; give an .npz")


def load_samples(asked: NetworkOptions, network: Network) -> tuple[NetworkSamples, NetworkSamples, str]:
    """Samples to learn from, those to judge by, and the loss."""
    shape, path = check_inputs(network), Path(str(asked.data))
    arrays = _parts(path, network, shape, asked)
    own = {part for part in asked.parts if f"y_{part}" not in arrays}
    if "train" in own:
        own |= {"test"} if share_of(asked.held_out) is not None else set()
        arrays["y_train"] = arrays["x_train"]
    found = asked.divided(arrays, "sample", lambda held: _one(held, network, shape))
    loss = loss_of(asked.loss, found["y_train"])
    made = []
    for part in ("train", "test"):
        x = scaled(_numbers(f"x_{part}", found[f"x_{part}"], shape), asked.scale)
        made.append(_samples(f"_{part}", x, None if part in own else found[f"y_{part}"], loss, network))
    learn, held = made
    if learn.odd is not None:
        raise ValueError("y_train has 0 or 1 for each sample: must be left out, or values; anomalies are not learnt")
    if asked.limit is not None:
        if asked.limit > len(learn):
            raise ValueError(f"limit={asked.limit}: must be from 1 to {len(learn)}, the samples that there are")
        learn = NetworkSamples(learn.x[: asked.limit], learn.y[: asked.limit])
    return learn, held, loss


def _parts(path: Path, network: Network, shape: tuple[int, ...], asked: NetworkOptions) -> dict[str, np.ndarray]:
    """Arrays of all parts of a file or a folder; values may be left out."""
    if path.is_dir():
        from gradloom.models.pictures import load_parts

        _pictured(shape, path)
        return load_parts(path, shape, _classes(network), asked.parts)
    if asked.loss == "values":
        return read_npz(path, [f"x_{part}" for part in asked.parts], optional=[f"y_{part}" for part in asked.parts])
    return read_labelled(path, asked.parts)


def _one(path: Path, network: Network, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray | None]:
    """Samples of a file or folder, and targets if it has some."""
    if path.is_dir():
        from gradloom.models.pictures import load_judged as pictures

        _pictured(shape, path)
        return pictures(path, shape, _classes(network))
    found = read_npz(path, optional=("x", "x_test", "y", "y_test"))
    x = found.get("x", found.get("x_test"))
    if x is None:
        raise ValueError(f"{path}: x missing: the file must hold x or x_test")
    return x, found.get("y", found.get("y_test"))


def load_judged(
    path: Path, network: Network, factor: float | None, limit: int | None, loss: str | None
) -> tuple[NetworkSamples, str | None]:
    """Samples to answer, and the loss of their classes or values; None where there are none."""
    shape = check_inputs(network)
    x, y = _one(path, network, shape)
    x = scaled(_numbers("x", x, shape), factor)
    if limit is not None:
        if limit > len(x):
            raise ValueError(f"limit={limit}: must be from 1 to {len(x)}, the samples that there are")
        x, y = x[:limit], None if y is None else y[:limit]
    if y is None:
        return NetworkSamples(x, np.empty((len(x), 0))), None
    known = loss_of(loss, y)
    features = network.result.tensor.features
    if loss is None and known == "classes" and network.result.shape == network.inputs[0].shape and features > 2:
        raise ValueError("loss: must be given, the network gives back what it takes: y may be classes, or tell values'")
    return _samples("", x, y, known, network), known


def load_known(path: Path, network: Network, factor: float | None) -> np.ndarray | None:
    """Samples to learn from, where a file of samples to answer has some."""
    found = {} if path.is_dir() else read_npz(path, optional=("x_train",))
    if "x_train" not in found:
        return None
    return scaled(_numbers("x_train", found["x_train"], check_inputs(network)), factor)
