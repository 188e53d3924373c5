"""Answers of a network, in the hardware's integers or in float."""

from pathlib import Path

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
from gradloom.systems.results import Inferred
from gradloom.workload import Progress

from .adapter import load
from .data import load_judged
from .program.prepared import Prepared
from .requests import NetworkAnswers
from .scores import scored
from .task import answers

__all__ = ["infer"]


def infer(asked: Asked, options: NetworkAnswers, tell: Progress, host: MachineHost | None = None) -> Inferred:
    """Answers samples by a network and what a fine-tune has learnt.

    Returns ``labels`` of a network with one row of results, of one result alone with the loss ``labels``; with classes
    ``accuracy``; ``error``, the mean squared error, where the data have values, of anomalies of all others; ``auc`` of
    anomalies, of two classes or labels of one output; with ``rtl`` ``cycles`` and ``forecast``, too. ``output`` gets
    ``results``, and ``labels``. ``host``: the way to a machine in place of simulated RTL.
    """
    path, output = Path(str(options.data)), options.output
    if output is not None:
        check_file(output, suffix=".npz", inputs=(path,))
    network = load_network(str(options.model))
    learning, learnt_by = (None, None) if options.adapter is None else load(Path(options.adapter), network)
    samples, known = load_judged(path, network, options.scale, options.limit, learnt_by)
    loss = learnt_by or known or "values"
    if learning is None:
        learning = Learning(before_loss(network, loss), ())
    prepared, x = Prepared(learning, loss), samples.x
    tell(0, 0, "answering")
    told: Inferred = {"preset": asked.preset.name, "engine": options.engine, "samples": len(x)}
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
    labels = None
    if found.shape[1:] == (1, 1):
        # One label: its logit is above 0, or there is no threshold.
        labels = (found[:, 0, 0] > 0).astype(int) if loss == "labels" else None
    elif found.shape[1] == 1:
        labels = found[:, 0].argmax(axis=1)
    if labels is not None:
        told["labels"] = labels.tolist()
    if known is not None:
        made = scored(known, found, samples)
        if "accuracy" in made:
            told["accuracy"] = made["accuracy"]
        if "auc" in made:
            told["auc"] = made["auc"]
        if known != "classes":
            told["error"] = float(samples.errors(found)[~samples.odd if samples.odd is not None else ...].mean())
    if output is not None:
        arrays = {"results": found} | ({} if labels is None else {"labels": labels})
        with staged_file(output) as file:
            np.savez(file, **arrays)
    return told
