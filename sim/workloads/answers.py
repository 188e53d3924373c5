"""Answers of a quantised LSTM in simulated RTL."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.rtl.machines.configs import RecurrentConfig
from gradloom.rtl.machines.presets import Preset
from gradloom.rtl.models.recurrent.network import RecurrentNetwork
from gradloom.rtl.plan.recurrent.program import CellProgram

from ..reference import cell as reference
from ..run.counted import MismatchError
from ..run.designs import Design
from ..run.programs import forecast_placed, run_placed
from .sequences import check_request, infer_sequences

__all__ = ["infer", "run_cell"]


def infer(
    preset: Preset,
    *,
    data: Path | None,
    model: Path | None,
    adapter: Path | None,
    angle: float | None,
    limit: int | None,
    engine: str,
    design: Path | None,
    output: Path | None,
    stream: bool,
    progress: Callable[[int, int, str], object] | None = None,
) -> dict[str, Any]:
    """See :func:`gradloom.infer`.

    With ``rtl``, convolutions in front are computed by the reference.
    """
    check_request(f"with {preset.name}", {"model": model, "data": data}, {"adapter": adapter, "angle": angle})
    assert model is not None and data is not None
    chosen = Design(preset, design)
    config = chosen.preset.config
    assert isinstance(config, RecurrentConfig)
    if engine == "rtl":
        chosen.check()

    def ran(network: RecurrentNetwork, codes: np.ndarray) -> tuple[reference.Trace, dict[str, Any]]:
        return run_cell(network, codes, config, chosen.chosen(), progress=progress)

    return infer_sequences(
        Path(model),
        data=Path(data),
        limit=limit,
        engine=engine,
        stream=stream,
        output=None if output is None else Path(output),
        ran=ran,
    )


def run_cell(
    network: RecurrentNetwork,
    codes: np.ndarray,
    config: RecurrentConfig,
    files: Sequence[Path] = (),
    *,
    timing: Mapping[str, int] | None = None,
    progress: Callable[[int, int, str], object] | None = None,
) -> tuple[reference.Trace, dict[str, Any]]:
    """States of a network in simulated RTL, and figures.

    Figures are ``cycles``, ``forecast``, ``cycles_a_step`` and ``phases``.

    Raises :class:`~.counted.MismatchError` where a code differs from the reference, or a counter from the forecast.

    Parameters
    ----------
    network : RecurrentNetwork
    codes : array of int ``[n, steps, channels]``
        Of the network's input; convolutions in front are the reference's.
    config : RecurrentConfig
    files : sequence of Path
        Verilog of the design; none: it is generated.
    timing, progress : see :func:`~.programs.run_placed`.
    """
    expected = reference.run(network, codes)
    program = CellProgram(network, expected.u, config)
    forecast = forecast_placed(program)
    ran = run_placed(program, files, timing=timing, progress=progress, expected=forecast.total)
    h, c = np.empty_like(expected.h), np.empty_like(expected.state.c)
    for batch in program.batches:
        h[batch.sequences] = program.hidden(batch, ran.words(batch.hidden))
        c[batch.sequences], last = program.state(batch, ran.words(batch.state))
        _equal("last h", last, expected.state.h[batch.sequences])
    _equal("h", h, expected.h)
    _equal("c", c, expected.state.c)
    if timing is None:
        ran.check(program, forecast)
    cell = ran.counters.phases["cell"]
    figures = {
        "cycles": ran.counters.cycles,
        "forecast": forecast.total,
        "phases": dict(ran.counters.phases),
        "cycles_a_step": cell / (h.shape[0] * h.shape[1]),
    }
    return reference.Trace(expected.u, h, reference.State(h[:, -1], c)), figures


def _equal(name: str, found: np.ndarray, expected: np.ndarray) -> None:
    if not np.array_equal(found, expected):
        at = tuple(int(n) for n in np.argwhere(found != expected)[0])
        raise MismatchError(f"RTL and reference differ: {name}{list(at)} is {found[at]}, not {expected[at]}")
