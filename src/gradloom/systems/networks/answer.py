"""Answers of a network, in the hardware's integers or in float."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from gradloom.compiler.lowering import TileStep, lower
from gradloom.graph.functions import sigmoid
from gradloom.graph.mathematics import FloatReading
from gradloom.graph.methods import Learning
from gradloom.graph.onnx.load import load_network
from gradloom.graph.training import before_loss, ended, without_end
from gradloom.output import check_file, staged_file
from gradloom.sim.run.machine import MachineHost
from gradloom.systems.asked import Asked
from gradloom.systems.forward import ForwardPass, result_of
from gradloom.systems.results import Inferred
from gradloom.workload import Progress

from .adapter import frozen_in, load
from .data import load_judged, load_known
from .program.precision import fitted
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
    ``results`` as the file's own runtime has them, in its shape and behind its last softmax or sigmoid, which the host
    computes; and ``labels``. ``host``: the way to a machine in place of simulated RTL.
    """
    path, output = Path(str(options.data)), options.output
    if output is not None:
        check_file(output, suffix=".npz", inputs=(path,))
    network = load_network(str(options.model))
    learning, learnt_by = (None, None) if options.adapter is None else load(Path(options.adapter), network)
    if learnt_by is not None and options.loss not in (None, learnt_by):
        raise ValueError(f"loss={options.loss}: must be {learnt_by} or left out, the adapter has learnt by it")
    samples, known = load_judged(path, network, options.scale, options.limit, options.loss or learnt_by)
    loss = options.loss or learnt_by or known or "values"
    if learning is None:
        learning = Learning(before_loss(network, loss), ())
    port, end = network.result, without_end(network)[1]
    has_end = before_loss(network, loss).result.tensor == port.tensor
    before, own = without_end(learning.network)
    learning, x = replace(learning, network=before), samples.x
    prepared = Prepared(learning, loss)
    tell(0, 0, "answering")
    told: Inferred = {"preset": asked.preset.name, "engine": options.engine, "samples": len(x)}
    if options.engine == "float":
        t = before.result.tensor
        found = FloatReading(before).forward(x)[t.name].reshape(-1, t.rows, t.features)
    else:
        kept = None if options.adapter is None else frozen_in(Path(options.adapter), learning, loss)
        if kept is not None and options.precise is not None:
            raise ValueError(f"precise={options.precise}: must be left out with an adapter, whose fine-tune said it")
        if kept is None:
            learnt = load_known(path, network, options.scale)
            some = x if learnt is None else learnt
            prepared, chosen = fitted(prepared, options.precise, some, asked.preset.config, options.batch, tell)
            told |= {} if chosen is None else {"precise": chosen}
        else:
            prepared = kept
    if options.engine == "reference":
        found = answers(result_of(prepared.integers()), prepared, x, options.batch)
    elif options.engine == "rtl":
        config, rules = asked.preset.config, prepared.rules(1.0)

        def lowered(samples: int) -> TileStep:
            return lower(config, prepared.network, samples=samples, rules=rules)

        with ForwardPass(config, prepared.integers(), lowered, tell=tell, host=host) as forward:
            found = answers(forward, prepared, x, options.batch)
        told |= forward.figures
    found = ended(own, found)
    results = port.given(found if has_end else ended(end, found))
    labels = None
    if found.shape[1:] == (1, 1):
        # One label: its logit is above 0, or there is no threshold.
        labels = (found[:, 0, 0] > 0).astype(int) if loss == "labels" else None
    elif found.shape[1] == 1:
        labels = found[:, 0].argmax(axis=1)
    if labels is not None:
        told["labels"] = labels.tolist()
    if known is not None:
        scores = scored(known, found, samples)
        if "accuracy" in scores:
            told["accuracy"] = scores["accuracy"]
        if "auc" in scores:
            told["auc"] = scores["auc"]
        if known != "classes":
            errors = samples.errors(sigmoid(found) if known == "labels" else found)
            told["error"] = float(errors[~samples.odd if samples.odd is not None else ...].mean())
    if output is not None:
        with staged_file(output) as file:
            if labels is None:
                np.savez(file, results=results)
            else:
                np.savez(file, results=results, labels=labels)
    return told
