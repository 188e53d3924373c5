"""Forecasts of a recurrent network's answers and of its fine-tune."""

from dataclasses import asdict
from typing import Any

import numpy as np

from gradloom.boards import find as find_board
from gradloom.models.recurrent.stored import load_network
from gradloom.models.recurrent.taps import parts_of
from gradloom.models.sequences import SPAR_STEPS, spar_model
from gradloom.rtl.machines.fit import check_fit
from gradloom.sim.time.forecast import forecast
from gradloom.systems.asked import Asked
from gradloom.systems.images.program.lowering import lower
from gradloom.systems.images.program.program import Settings, plan_finetune
from gradloom.systems.results import Planned
from gradloom.workload import Progress

from .program.image import CellImage
from .program.program import CellProgram
from .program.taps import TapWriter
from .requests import SequencePlan
from .sizes_for import zero_taps
from .workload import SequenceWorkload

__all__ = ["plan"]

#: Sequences to learn from, as many as of a person of the shipped recordings.
_SAMPLES = 140


def plan(asked: Asked, options: SequencePlan, tell: Progress) -> Planned:
    """Cycles of an answer, and of a fine-tune where the preset learns.

    Returns ``preset``, ``board``, ``parameters`` of the design, ``workload``, ``answer`` (``cycles`` of a sequence
    alone, and ``milliseconds``) and ``forecast`` of the fine-tune (with ``phases``, ``commands`` and
    ``window_bytes``); None where there is none, and ``reason`` says why.
    """
    preset, model = asked.preset, options.model
    config, steps = preset.config, options.steps or SPAR_STEPS
    network = load_network(spar_model(0) if model is None else model)
    check_fit(config, find_board(preset.board))
    image = CellImage(network, config)
    one = CellProgram(image, _rows(image, 1, steps), config, each=image.each(), states=False)
    answer = forecast(one).total
    found: Planned = {
        "preset": preset.name,
        "board": preset.board,
        "parameters": asdict(config),
        "workload": {"network": network.name, "steps": steps},
        "answer": {"cycles": answer, "milliseconds": _milliseconds(answer, config)},
        "forecast": None,
    }
    if not isinstance(preset.workload, SequenceWorkload):
        return found | {"reason": f"{preset.name} answers and does not learn"}
    return found | _learning(image, config, preset.workload, options, steps)


def _learning(image: CellImage, config: Any, workload: SequenceWorkload, options: SequencePlan, steps: int) -> Planned:
    network, samples = image.network, options.samples or _SAMPLES
    taps = zero_taps(network, config)
    if taps is None:
        return {"reason": "adapters do not reach its logits"}
    rank, zeros = options.rank or workload.rank, np.zeros
    settings = Settings(
        samples=samples, epochs=workload.epochs, batch=workload.batch, rate=workload.lr, momentum=workload.momentum
    )
    shifts = (0,) * len(parts_of(network, config.parallel))
    planned = plan_finetune(
        lower(taps, config, rank),
        settings,
        zeros((samples, *taps.input_shape), np.int64),
        zeros(samples, np.int64),
        [zeros((rank, n), np.int64) for n in taps.taps],
        [zeros((taps.classes, rank), np.int64) for _ in taps.taps],
        ahead=TapWriter(image, config, _rows(image, samples, steps), shifts),
    )
    made = forecast(planned)
    return {
        "workload": {
            "network": network.name,
            "steps": steps,
            "samples": samples,
            "rank": rank,
            "epochs": workload.epochs,
            "batch": workload.batch,
        },
        "forecast": {
            "cycles": made.total,
            "phases": made.phases,
            "clock_mhz": config.clock_mhz,
            "milliseconds": _milliseconds(made.total, config),
            "commands": planned.commands,
            "window_bytes": planned.length,
        },
    }


def _milliseconds(cycles: int, config: Any) -> float:
    return round(cycles / (1e3 * config.clock_mhz), 3)


def _rows(image: CellImage, count: int, steps: int) -> np.ndarray:
    """Rows of x of sequences of ``steps`` at the network's input, all zeros."""
    network = image.network
    front = network.front[:-1] if network.last_conv is not None else network.front
    for layer in front:
        steps = layer.steps(steps)
    channels = network.layers[0][0].inputs if network.last_conv is None else network.last_conv.inputs
    return image.windows(np.zeros((count, steps, channels), np.int64))
