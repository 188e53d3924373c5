"""Accuracy, cycles and area of an LSTM by the widths of its codes."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.models.recurrent.calibrate import Bits, in_float, quantized
from gradloom.models.recurrent.readers.native import FloatNetwork, load_native
from gradloom.models.recurrent.stored import load_network
from gradloom.models.sequences import FOLDS, PERSONS, load_sequences, spar_model, spar_windows
from gradloom.preset import Preset
from gradloom.sim.reference import cell as reference
from gradloom.sim.time.forecast import forecast
from gradloom.systems.results import Swept

from .program.image import CellImage
from .program.program import CellProgram, CellSetup

__all__ = ["of_widths"]

#: Of the shipped recordings so many are skipped from one that calibrates to the next.
_SPARSE = 9


@cache
def _given(model: str, data: str) -> tuple[FloatNetwork, np.ndarray, np.ndarray, np.ndarray]:
    """A network in float, and sequences to calibrate and to judge by."""
    if not model:
        seen = tuple(person for person in range(1, PERSONS + 1) if person not in FOLDS[0])
        return in_float(load_network(spar_model(0))), spar_windows(seen)[0][::_SPARSE], *spar_windows(FOLDS[0])
    network = load_native(model)
    if network.cell.kind != "LSTM" or network.head is None or network.classes is None or network.pick == "all":
        raise ValueError(f"model={model}: must be an LSTM with a dense layer behind its last states or their mean")
    held = load_sequences(Path(data), classes=network.classes, channels=network.channels, tokens=network.tokens)
    return network, held.x_train, held.x_test, held.y_test


def of_widths(preset: Preset, point: Mapping[str, Any]) -> Swept:
    """A network quantised after training to the point's widths.

    Cycles of one sequence by forecast, accuracy by the reference, if it is asked for. The area follows from the bits
    of the cell state alone: those of weights and activations are data.
    """
    source, calibrating, x, y = _given(point["model"], point["data"])
    network = quantized(source, calibrating, Bits.of(point["codes"]))
    image = CellImage(network, preset.config)
    image.check()
    first = reference.run(network, network.codes(x[:1]))
    program = CellProgram(image, image.windows(first.source), preset.config, states=False)
    total, steps = forecast(program).total, first.h.shape[1]
    found: Swept = {
        "cycles": total,
        "units": steps,
        "cycles_a_unit": round(total / steps, 1),
        "milliseconds": round(total / (1e3 * preset.config.clock_mhz), 3),
        "memory_bytes": program.length + CellSetup(image, preset.config).length,
    }
    if point["accuracy_of"] != "":
        count = len(x) if point["accuracy_of"] == "all" else int(point["accuracy_of"])
        kept = np.arange(min(count, len(x))) * len(x) // min(count, len(x))
        trace = reference.run(network, network.codes(x[kept]))
        right = network.scores(reference.logits(network, trace)).argmax(axis=-1) == y[kept]
        found["accuracy"] = round(float(right.mean()), 6)
    return found
