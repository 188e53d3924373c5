"""Answers of a network, in the hardware's integers or in float."""

from pathlib import Path
from typing import Any

import numpy as np

from gradloom.compiler.lowering import TileStep, lower
from gradloom.graph.mathematics import FloatReading
from gradloom.graph.methods import Learning
from gradloom.graph.onnx.reader import load_network
from gradloom.graph.training import before_loss
from gradloom.output import check_file, staged_file
from gradloom.sim.run.machine import MachineHost
from gradloom.systems.asked import Asked
from gradloom.systems.forward import ForwardPass, result_of
from gradloom.workload import Progress

from .adapter import load
from .data import load_judged, loss_of
from .program.prepared import Prepared
from .requests import NetworkAnswers
from .task import answers

__all__ = ["infer"]


def infer(asked: Asked, options: NetworkAnswers, tell: Progress, host: MachineHost | None = None) -> dict[str, Any]:
    """Answers samples by a network and what a fine-tune has learnt.

    Returns ``labels`` of a network with one row of results, and with classes ``accuracy``; ``error``, the mean squared
    error, where the data have values; with ``rtl`` ``cycles`` and ``forecast``, too. ``output`` gets ``results``, and
    ``labels``. ``host``: the way to a machine in place of simulated RTL.
    """
    path, output = Path(str(options.data)), options.output
    if output is not None:
        check_file(output, suffix=".npz", inputs=(path,))
    network = load_network(str(options.model))
    x, y = load_judged(path, network, options.scale)
    if options.limit is not None:
        if options.limit > len(x):
            raise ValueError(f"limit={options.limit}: must be from 1 to {len(x)}, the samples that there are")
        x, y = x[: options.limit], None if y is None else y[: options.limit]
    loss = loss_of(None, y) if y is not None else "values"
    if options.adapter is None:
        learning = Learning(before_loss(network, loss), ())
    else:
        learning, loss = load(Path(options.adapter), network)
    prepared = Prepared(learning, loss)
    tell(0, 0, "answering")
    told: dict[str, Any] = {"preset": asked.preset.name, "engine": options.engine, "samples": len(x)}
    if options.engine == "float":
        t = learning.network.outputs[0].tensor
        found = FloatReading(learning.network).forward(x)[t.name].reshape(-1, t.rows, t.features)
    elif options.engine == "reference":
        found = answers(result_of(prepared.integers()), prepared, x, options.batch)
    else:
        config, rules = asked.preset.config, prepared.rules(1.0)

        def lowered(samples: int) -> TileStep:
            return lower(config, prepared.network, samples=samples, rules=rules)

        with ForwardPass(config, prepared.integers(), lowered, tell=tell, host=host) as forward:
            found = answers(forward, prepared, x, options.batch)
        told |= forward.figures
    labels = found[:, 0].argmax(axis=1) if found.shape[1] == 1 else None
    if labels is not None:
        told["labels"] = labels.tolist()
    if y is not None and y.ndim == 1 and labels is not None:
        told["accuracy"] = float((labels == y).mean())
    elif y is not None and y.ndim > 1:
        told["error"] = float(np.square(found - y.reshape(found.shape)).mean())
    if output is not None:
        arrays = {"results": found} | ({} if labels is None else {"labels": labels})
        with staged_file(output) as file:
            np.savez(file, **arrays)
    return told
