"""Answers of quantised recurrent networks, in integers or in float."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.models.files.archive import read_npz
from gradloom.models.recordings import WHOLE, Cut, labelled_recordings
from gradloom.models.recurrent.cells import GruCell, RnnCell
from gradloom.models.recurrent.coding import ACTIVATIONS
from gradloom.models.recurrent.front import Conv, Pool
from gradloom.models.recurrent.host import picked, seen
from gradloom.models.recurrent.lstm import Gate, LstmCell
from gradloom.models.recurrent.network import Cell, RecurrentNetwork
from gradloom.models.recurrent.stored import load_network
from gradloom.models.sequences import check_sequences, taken
from gradloom.output import check_file, some, staged_file
from gradloom.sim.reference import cell as reference
from gradloom.systems.results import Inferred

__all__ = ["CellRun", "check_fits", "infer_sequences", "real_front", "real_layers", "real_states", "sequences_of"]

#: Share of the data that may lie beyond the input's codes.
_MOST_SATURATED = 0.5


@dataclass(frozen=True, kw_only=True)
class CellRun:
    """A network on a machine.

    Attributes
    ----------
    trace : Trace
    sums : array of int ``[n, classes]`` or ``[n, steps, classes]``, optional
        Of the dense layer, where there is one.
    figures : dict
    """

    trace: reference.Trace
    sums: np.ndarray | None
    figures: Inferred


#: Runs a network on codes of its input; options ``every`` and ``stream``.
Runner = Callable[..., CellRun]


def infer_sequences(
    model: Path,
    *,
    data: Path,
    cut: Cut = WHOLE,
    limit: int | None = None,
    engine: str = "reference",
    stream: bool = False,
    output: Path | None = None,
    ran: Runner | None = None,
) -> Inferred:
    """Answers of a recurrent network.

    Parameters
    ----------
    model : path
        An ``.onnx`` file, or a folder of an import.
    data : path
        .npz with ``x``, real numbers ``[n, steps, channels]``, or tokens ``[n, steps]`` of a network that begins with a
        table of them, and classes ``y``, ``[n]``, if there are any; or a folder of recordings.
    cut : Cut
        How recordings become sequences.
    limit : int, optional
        Number of sequences.
    engine : str
        ``reference``: integers. ``float``: real states and activations, weights as the codes have them. ``rtl``: what
        ``ran`` makes of the codes; its figures are added to the result.
    stream : bool
        Keep the state from one sequence to the next, and answer after each step.
    output : path, optional
        .npz that gets ``labels`` and ``logits`` (where the network has a dense layer), ``answers`` (the graph's own
        output where it is neither logits nor states, such as a softmax) and the hidden states ``h``
        ``[n, steps, hidden]``; of the reference as codes, with codes ``u`` at the cell's input and ``c`` of the last
        cell state.

    Returns
    -------
    dict
        ``sequences``, ``steps``, ``saturated`` (share of input values beyond the codes), ``labels`` where the network
        has classes, ``accuracy`` where they are given; ``one_logit``, true, of a network with one, which has two
        classes, 1 where it is above 0.
    """
    if output is not None:
        check_file(output, suffix=".npz", inputs=(data,))
    known = ("reference", "float") if ran is None else ("reference", "rtl", "float")
    if engine not in known:
        raise ValueError(f"engine={engine}: must be {', '.join(known[:-1])} or float; rtl needs a preset")
    network = load_network(model)
    x, y = sequences_of(data, network, limit, cut)
    if stream:
        if any(backward is not None for _, backward in network.layers):
            raise ValueError("stream: must be left out, a direction of the network begins at the last step")
        if network.waits:
            raise ValueError("stream: must be left out, the network's answer takes the mean or maximum of all steps")
        x, y = x.reshape(1, -1, *x.shape[2:]), None if y is None else y.repeat(x.shape[1])[None]
    beyond = check_fits(network, x, f"data={data}")
    every = stream or network.pick == "all"
    figures: Inferred = {}
    if engine == "float":
        hidden, _ = real_states(network, x)
        held = {"h": hidden}
        value = _real_logits(network, hidden, every)
    else:
        codes = network.codes(x)
        if engine == "rtl" and ran is not None:
            run = ran(network, codes, every=every, stream=stream)
            trace, figures = run.trace, run.figures
            value = _host_value(network, trace, every) if run.sums is None else _logits(network, run.sums, every)
        else:
            trace = reference.run(network, codes)
            has = network.head is not None
            value = reference.logits(network, trace, every=every) if has else _host_value(network, trace, every)
        held = {"h": trace.h, "c": trace.state.c, "u": trace.u}
    told: Inferred = {"sequences": len(x), "steps": held["h"].shape[1], "saturated": beyond, **figures}
    if network.answers:
        scores = network.scores(value, every=every)
        held |= _answers(network, scores)
    if network.one_logit:
        told["one_logit"] = True
    if "labels" in held:
        labels = held["labels"]
        told["labels"] = labels.tolist()
        if y is not None and not stream:
            right = labels == (y[:, None] if labels.ndim == 2 else y)
            told["accuracy"] = float(right.mean())
    if output is not None:
        with staged_file(output) as file:
            np.savez(file, **held)  # type: ignore[arg-type]
    return told


def _answers(network: RecurrentNetwork, scores: np.ndarray) -> dict[str, np.ndarray]:
    """Labels and logits of a network with classes, and its answers.

    These are the graph's own output, where it is something else.
    """
    classes, made = network.classes or 0, {}
    if classes > 1:
        made = {"labels": scores.argmax(axis=-1), "logits": scores}
    if network.ending or not made:
        made["answers"] = network.answer(scores)
    return made


def _host_value(network: RecurrentNetwork, trace: reference.Trace, every: bool) -> np.ndarray:
    """Hidden states that reach the tail of a network without a head."""
    pick = "all" if every else network.pick
    return picked(pick, trace.h * network.cell.hidden.scale, network.cell.units)


def real_states(network: RecurrentNetwork, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Hidden states of all steps and the last cell state in float64.

    There are no quantisers; weights are as the codes have them.
    """
    *_, top = real_layers(network, x)
    return _in_time(top), np.concatenate([c for _, c in top], axis=1)


def real_layers(network: RecurrentNetwork, x: np.ndarray) -> Iterator[list[tuple[np.ndarray, np.ndarray]]]:
    """Of each layer by direction, hidden states in its own order of steps, and the last cell state."""
    x = real_front(network.front, seen(network.before, x))
    for cell, backward in network.layers:
        made = [_real_steps(cell, x)] + ([] if backward is None else [_real_steps(backward, x[:, ::-1])])
        yield made
        x = _in_time(made)


def _in_time(made: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Hidden states of all directions, side by side."""
    return np.concatenate([hidden[:, :: -1 if way else 1] for way, (hidden, _) in enumerate(made)], axis=2)


def _real_steps(cell: Cell, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    h = c = np.zeros((len(x), cell.units))
    states = []
    for at in range(x.shape[1]):
        h, c = _REAL[type(cell)](cell, x[:, at], h, c)
        states.append(h)
    return np.stack(states, axis=1), c


def real_front(layers: Sequence[Conv | Pool], x: np.ndarray) -> np.ndarray:
    """What layers in front make of ``[n, samples, channels]``."""
    for layer in layers:
        if isinstance(layer, Pool):
            x = layer.greatest(x, -np.inf)
            continue
        wide = np.pad(x, ((0, 0), layer.pads, (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(wide, layer.kernel, axis=1)[:, :: layer.stride]
        x = np.einsum("ntck,ock->nto", windows, layer.weight) * layer.scale + layer.bias
        if layer.coding.lo >= 0:  # a ReLU, or as good as one
            x = np.maximum(x, 0)
    return x


def _activated(gate: Gate, x: np.ndarray, h: np.ndarray) -> np.ndarray:
    return ACTIVATIONS[gate.activation](x @ gate.w.T * gate.w_scale + h @ gate.u.T * gate.u_scale + gate.bias)


def _real_lstm(cell: LstmCell, x: np.ndarray, h: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    gates = {name: _activated(gate, x, h) for name, gate in cell.gates.items()}
    enter = gates["input"] if "input" in gates else 1 - gates["forget"]
    forget = gates["forget"] if "forget" in gates else 1 - gates["input"]
    c = forget * c + enter * gates["cell"]
    return gates["output"] * np.tanh(c), c


def _real_gru(cell: GruCell, x: np.ndarray, h: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    update, reset = (_activated(cell.gates[name], x, h) for name in ("update", "reset"))
    new = cell.gates["new"]
    if cell.passed is not None:
        return update * h + (1 - update) * _activated(new, x, reset * h), c
    inner = h @ new.u.T * new.u_scale + cell.inner_bias
    return update * h + (1 - update) * np.tanh(x @ new.w.T * new.w_scale + new.bias + reset * inner), c


def _real_rnn(cell: RnnCell, x: np.ndarray, h: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return _activated(cell.gates["new"], x, h), c


_REAL: dict[type, Any] = {LstmCell: _real_lstm, GruCell: _real_gru, RnnCell: _real_rnn}


def _real_logits(network: RecurrentNetwork, hidden: np.ndarray, every: bool) -> np.ndarray:
    value, head = picked("all" if every else network.pick, hidden, network.cell.units), network.head
    for cell in network.behind:
        value = _activated(cell.gates["new"], value, np.zeros(cell.units))
    return value if head is None else value @ head.weight.T * head.scale + head.bias


def _logits(network: RecurrentNetwork, sums: np.ndarray, every: bool) -> np.ndarray:
    """Of a machine's sums; for the mean, those of all steps."""
    if network.pick == "mean" and not every:
        return reference.real_logits(network, sums.sum(axis=1), sums.shape[1])
    return reference.real_logits(network, sums)


def sequences_of(
    path: Path, network: RecurrentNetwork, limit: int | None, cut: Cut
) -> tuple[np.ndarray, np.ndarray | None]:
    """Sequences of a file or of a folder of recordings, and their classes if there are any."""
    if path.is_dir():
        if network.tokens:
            raise ValueError(f"data={path}: is a folder, the network takes {taken(0, network.tokens)}: give an .npz")
        x, y = labelled_recordings(path, classes=network.classes, channels=network.channels, cut=cut)
    else:
        cut.refuse(path)
        arrays = read_npz(path, ["x"], optional=["y"])
        x, y = arrays["x"], arrays.get("y")
    try:
        check_sequences("x", x, network.channels, network.tokens)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if y is not None:
        if y.dtype.kind not in "iu" or y.shape != x.shape[:1]:
            raise ValueError(f"{path}: y has dtype {y.dtype} and shape {list(y.shape)}: expected integers, [{len(x)}]")
        if network.classes is not None and (y.min() < 0 or y.max() >= network.classes):
            raise ValueError(f"{path}: y holds {y.min()} to {y.max()}: classes must be from 0 to {network.classes - 1}")
    if limit is not None:
        if not 1 <= limit <= len(x):
            raise ValueError(f"limit={limit}: must be from 1 to {len(x)}, the sequences that there are")
        x, y = x[:limit], None if y is None else y[:limit]
    return (x if network.tokens else x.astype(np.float32)), y


def check_fits(network: RecurrentNetwork, x: np.ndarray, name: str) -> float:
    """Share of values beyond the input's codes.

    Refuses sequences that are too short, and those of which most values are beyond.
    """
    steps = x.shape[1]
    for layer in network.front:
        if layer.steps(steps) < 1:
            raise ValueError(
                f"{name}: x has {some(x.shape[1], 'step')}: at least {layer.kernel}, the kernel of {layer.name!r}"
            )
        steps = layer.steps(steps)
    beyond = _beyond(network, seen(network.before, x))
    if beyond > _MOST_SATURATED:
        coding = network.input
        raise ValueError(
            f"{name}: {100 * beyond:.1f} % of x saturate beyond {coding.lo * coding.scale:g} to "
            f"{coding.hi * coding.scale:g}, the input's codes: at most {100 * _MOST_SATURATED:.0f} % may; "
            "scale x as it was for training"
        )
    return beyond


def _beyond(network: RecurrentNetwork, x: np.ndarray) -> float:
    """Share of values that lie a step or more outside the input's codes."""
    coding = network.input
    code = x.astype(np.float64) / coding.scale
    return float(((code < coding.lo - 1) | (code > coding.hi + 1)).mean())
