"""Answers of a recurrent network with the adapter of a fine-tune."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.json_file import read_json
from gradloom.models.adapters.peft import load_adapters
from gradloom.models.recurrent.network import RecurrentNetwork
from gradloom.models.recurrent.stored import load_network
from gradloom.models.recurrent.taps import TapSums, parts_of, tap_network
from gradloom.models.sequences import check_sequences, fold_of, spar_model, spar_person
from gradloom.output import check_file, staged_file
from gradloom.preset import Preset
from gradloom.sim.reference import cell as reference
from gradloom.systems.held_out import Score
from gradloom.systems.images.answer import reference_logits, score_of
from gradloom.systems.images.mathematics import FloatCache, adapter_logits, cached_value
from gradloom.systems.job import model_of_run
from gradloom.systems.results import Inferred

from .answer import check_fits, sequences_of
from .requests import SequenceAnswers
from .taps import tap_sums, tap_words
from .task import check_steps, real_taps, steps_behind

__all__ = ["LearntTaps", "infer_adapted", "judge", "learnt_taps"]


@dataclass(frozen=True, kw_only=True)
class LearntTaps:
    """What a fine-tune's metrics.json says of its taps.

    Attributes
    ----------
    shifts : tuple of int
    parallel : int
        Of the design that learnt: elements of the input are in groups of so many, with zeros.
    person : int, optional
    request : dict
        What was asked for.
    """

    shifts: tuple[int, ...]
    parallel: int
    person: int | None
    request: dict[str, Any]


def infer_adapted(config: Any, options: SequenceAnswers) -> Inferred:
    """Labels of sequences by a network and its adapter.

    ``adapter``: output folder of a fine-tune, whose metrics.json has the scales of the taps. ``model`` and ``data`` may
    be left out where it learnt on a shipped network: then they are that network, and the person's windows to judge by.
    ``engine``: ``reference`` or ``float``. Returns as :func:`~.answer.infer_sequences` does.
    """
    data, model, limit, engine, output = options.data, options.model, options.limit, options.engine, options.output
    adapter = Path(str(options.adapter))
    if output is not None:
        check_file(output, suffix=".npz", inputs=(data, adapter))
    if engine == "rtl":
        raise ValueError("engine=rtl: must be reference or float with an adapter")
    learnt = learnt_taps(adapter)
    person, request = learnt.person, learnt.request
    if data is None and not person:
        raise ValueError(f"data: must be given, {adapter} learnt on data of its own")
    named = model_of_run(adapter, model)
    network = load_network(spar_model(fold_of(person or 1)) if named is None else named)
    y: np.ndarray | None
    if data is None:
        own_person = spar_person(person or 1)
        if limit is not None and limit > len(own_person.x_test):
            raise ValueError(f"limit={limit}: must be from 1 to {len(own_person.x_test)}, the sequences that there are")
        x, y = own_person.x_test[:limit], own_person.y_test[:limit]
        check_sequences("x", x, network.channels, network.tokens)
    else:
        folder = Path(data).is_dir()
        x, y = sequences_of(Path(data), network, limit, options.cut(request if folder else None))
    name = f"person={person}" if data is None else f"data={data}"
    beyond = check_fits(network, x, name)
    check_steps(network, x, name)
    z = _logits(config, network, learnt, adapter, x, engine)
    labels = z.argmax(axis=1)
    if output is not None:
        with staged_file(output) as file:
            np.savez(file, labels=labels, logits=z)
    told: Inferred = {"sequences": len(x), "steps": x.shape[1], "saturated": beyond, "labels": labels.tolist()}
    return told if y is None else told | {"accuracy": float((labels == y).mean())}


def judge(
    preset: Preset, adapter: Path, run: Path, held_out: Path, metrics: Mapping[str, Any], model: Path | str | None
) -> Score:
    """Score of an adapter beside the network of a fine-tune in ``run``, in floating point."""
    learnt = learnt_taps(run)
    named = model_of_run(run, model)
    network = load_network(spar_model(fold_of(learnt.person or 1)) if named is None else named)
    cut = SequenceAnswers().cut(learnt.request if held_out.is_dir() else None)
    x, y = sequences_of(held_out, network, None, cut)
    check_fits(network, x, f"held_out={held_out}")
    check_steps(network, x, f"held_out={held_out}")
    return score_of(_logits(preset.config, network, learnt, adapter, x, "float"), y, held_out)


def _logits(
    config: Any, network: RecurrentNetwork, learnt: LearntTaps, adapter: Path, x: np.ndarray, engine: str
) -> np.ndarray:
    """Logits of base and adapter, by an engine's arithmetic."""
    parallel = learnt.parallel
    parts = parts_of(network, parallel)
    if len(parts) != len(learnt.shifts):
        raise ValueError(
            f"model={network.name}: has {len(parts)} parts of taps, the adapter in {adapter} {len(learnt.shifts)}"
        )
    taps = TapSums(parts=parts, shifts=learnt.shifts)
    dense = tap_network(network, taps, steps_behind(network, x))
    adapters, codes = load_adapters(adapter, dense)
    if engine != "float":
        words, _ = tap_words(taps, tap_sums(network, reference.run(network, network.codes(x)), parallel))
        return reference_logits(dense, config, words, adapters, codes)
    full = np.zeros((len(x), int(np.prod(taps.shape))))
    seen = real_taps(network, taps, x, parallel)
    full[:, : seen.shape[1]] = seen
    layer = dense.layers[0]
    kept = FloatCache(taps=[cached_value(full, codes)], logits=full @ layer.weight.T + layer.bias)
    return adapter_logits(adapters, kept.taps, kept.logits)


def learnt_taps(adapter: Path) -> LearntTaps:
    """The taps of an adapter, whose it is, and what was asked for."""
    path = adapter / "metrics.json"
    try:
        metrics = read_json(path)
        return LearntTaps(
            shifts=tuple(int(each) for each in metrics["tap_shifts"]),
            parallel=int(metrics["parameters"]["parallel"]),
            person=metrics["person"],
            request={"model": None} | metrics["request"],
        )
    except OSError:
        raise ValueError(f"{path}: no such file; it has the scales of the taps: name a fine-tune's folder") from None
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path}: has no tap_shifts: name the folder of a fine-tune on sequences") from None
