"""Labels of images, in the hardware's integers or in float."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.models.adapters.peft import load_adapters
from gradloom.models.datasets import rotated
from gradloom.models.network import LayerNetwork
from gradloom.models.pictures import load_judged
from gradloom.output import check_file, staged_file
from gradloom.preset import Preset
from gradloom.rtl.formats.images import PARAMETER
from gradloom.sim.run.builds.designs import Design
from gradloom.sim.run.machine import MachineHost
from gradloom.systems.alone import tuner_at
from gradloom.systems.asked import Asked
from gradloom.systems.held_out import Score, class_scores
from gradloom.systems.job import AloneHost
from gradloom.systems.results import Inferred
from gradloom.workload import Progress

from .alone import answered_alone
from .answered import ImageLabels, by_machine
from .integers import fill_cache, logits
from .program.lowering import lower
from .requests import ImageAnswers
from .task import check_shape, held_by, network_of, network_of_run, shipped
from .workload import ImageWorkload

__all__ = ["infer", "judge", "reference_logits", "score_of"]


def infer(asked: Asked, options: ImageAnswers, tell: Progress, host: MachineHost | AloneHost | None = None) -> Inferred:
    """Labels images by the base network and an adapter.

    It does so in the integers of the hardware or in float. Returns ``labels``, and where there are labels to compare
    with, ``accuracy``; ``one_logit``, true, of a network with one, which labels images 1 where it is above 0.
    ``output`` gets ``labels`` and ``logits``.

    With ``rtl`` a machine answers, and the result has its ``cycles`` and their ``forecast``: simulated RTL, or the one
    behind ``host``, or a board that runs what lies in its memory. Its logits are those whose exponentials have the
    sum 1.

    Activations go through the codes that the adapter learnt from. The hardware has no way around them: an adapter of
    a float fine-tune without codes meets NF4 there.
    """
    if options.port is not None:
        with tuner_at(asked.preset, options.port, options.baud, tell) as tuner:
            return infer(asked, replace(options, port=None, baud=None, engine="rtl"), tell, tuner)
    data, output, limit = options.data, options.output, options.limit
    if output is not None:
        check_file(output, suffix=".npz", inputs=(data,))
    preset = Design(asked.preset, options.design).preset
    assert isinstance(preset.workload, ImageWorkload)
    network = network_of(options.model, preset.workload)
    given: np.ndarray | None
    if data is None:
        own = shipped(preset.workload if options.model else held_by(preset), network, 0, options.angle)
        images, given = own.x_test, own.y_test
    else:
        images, given = load_judged(Path(data), network.input_shape, network.classes)
        images = rotated(images, options.angle) if options.angle else images
    check_shape("x_test" if data is None else f"data={data}:", images, network)
    if limit is not None:
        if limit > len(images):
            raise ValueError(f"limit={limit}: must be from 1 to {len(images)}, the images that there are")
        images = images[:limit]
    adapters, codes = load_adapters(Path(options.adapter), network) if options.adapter is not None else (None, "nf4")
    tell(0, 0, "labelling")
    figures: Inferred = {}
    if options.engine == "float":
        from .mathematics import FloatCache, adapter_logits

        kept = FloatCache.of(network, images, cache=codes)
        z = kept.logits if adapters is None else adapter_logits(adapters, kept.taps, kept.logits)
        labels = z.argmax(axis=1)
    else:
        words = network.pixel_map.words(images, preset.config.activation)
        if options.engine == "rtl":
            made = _by_rtl(Design(asked.preset, options.design), network, words, adapters, codes, tell, host)
            z, labels, figures = made.logits, made.labels, made.figures
        else:
            z = reference_logits(network, preset.config, words, adapters, codes)
            labels = z.argmax(axis=1)
    if output is not None:
        with staged_file(output) as file:
            np.savez(file, labels=labels, logits=z)
    told: Inferred = {"labels": labels.tolist(), **figures}
    if network.one_logit:
        told["one_logit"] = True
    if given is not None:
        told["accuracy"] = float((labels == given[: len(labels)]).mean())
    return told


def _by_rtl(
    design: Design,
    network: LayerNetwork,
    words: np.ndarray,
    adapters: Sequence[tuple[np.ndarray, np.ndarray]] | None,
    codes: str,
    tell: Progress,
    host: MachineHost | AloneHost | None,
) -> ImageLabels:
    """Answers of a machine, or of a board by itself."""
    given = adapters or [(np.zeros((1, count)), np.zeros((network.classes, 1))) for count in network.taps]
    lowered = lower(network, design.preset.config, len(given[0][0]), wide=codes == "int8")
    a, b = ([PARAMETER.encode(pair[part]) for pair in given] for part in (0, 1))
    if isinstance(host, AloneHost):
        return answered_alone(lowered, words, a, b, host, tell)
    files = () if host is not None else design.chosen()
    return by_machine(lowered, words, a, b, tell=tell, host=host, files=files)


def score_of(logits: np.ndarray, labels: np.ndarray | None, held_out: Path) -> Score:
    """Mean cross-entropy of logits, and the share that is right."""
    if labels is None:
        raise ValueError(f"held_out={held_out}: has no labels to judge by")
    return class_scores(logits, labels)


def judge(
    preset: Preset, adapter: Path, run: Path, held_out: Path, metrics: Mapping[str, Any], model: Path | str | None
) -> Score:
    """Score of an adapter beside the network of a fine-tune in ``run``, in floating point."""
    from .mathematics import FloatCache, adapter_logits

    network = network_of_run(run, model)
    images, labels = load_judged(held_out, network.input_shape, network.classes)
    check_shape(f"held_out={held_out}:", images, network)
    adapters, codes = load_adapters(adapter, network)
    kept = FloatCache.of(network, images, cache=codes)
    return score_of(adapter_logits(adapters, kept.taps, kept.logits), labels, held_out)


def reference_logits(
    network: LayerNetwork,
    config: Any,
    images: np.ndarray,
    adapters: Sequence[tuple[np.ndarray, np.ndarray]] | None,
    codes: str = "nf4",
) -> np.ndarray:
    """Logits of the machine's integers, as real numbers.

    ``images``: activations ``[n, c, h, w]``. ``codes``: what the adapters see activations through.
    """
    lowered = lower(network, config, len(adapters[0][0]) if adapters else 1, wide=codes == "int8")
    held = fill_cache(lowered, images)
    if adapters is None:
        plain: np.ndarray = config.activation.decode(held.logits)
        return plain
    words = [(PARAMETER.encode(m), PARAMETER.encode(n)) for m, n in adapters]
    first = [m[:, tap.order] for tap, (m, _) in zip(lowered.taps, words)]
    found: np.ndarray = logits(lowered, held, first, [n for _, n in words]) / 65536
    return found
