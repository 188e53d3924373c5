"""Answers of a quantised recurrent network in simulated RTL."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gradloom.boards import find as find_board
from gradloom.models.recurrent.network import RecurrentNetwork
from gradloom.options import check_request
from gradloom.output import some
from gradloom.rtl.machines.fit import check_fit
from gradloom.sim.reference import cell as reference
from gradloom.sim.run.builds.designs import Design
from gradloom.sim.run.counted import check_words
from gradloom.sim.run.machine import MachineHost, MachineRunner
from gradloom.sim.time.forecast import forecast
from gradloom.systems.alone import tuner_at
from gradloom.systems.asked import Asked
from gradloom.systems.job import AloneHost
from gradloom.systems.results import Inferred
from gradloom.workload import Progress

from .alone import run_alone
from .answer import CellRun, infer_sequences
from .program.image import CellImage
from .program.program import CellConfig, CellProgram, CellSetup
from .requests import SequenceAnswers

__all__ = ["infer", "run_cell"]


def infer(
    asked: Asked, options: SequenceAnswers, tell: Progress, host: MachineHost | AloneHost | None = None
) -> Inferred:
    """Answers of a recurrent network: :func:`~.answer.infer_sequences`.

    With ``rtl``, all convolutions in front but the last are computed by the reference, and the result has ``cycles``,
    ``forecast``, ``cycles_a_step`` and ``setup_cycles`` too, and of a stream ``cycles_an_answer``, the most. ``host``:
    the way to a machine that runs in place of simulated RTL, or a board that runs what lies in its memory, as one at a
    port does.
    """
    preset = asked.preset
    if options.port is not None:
        check_request("with --port, whose board has whole sequences", needless={"stream": options.stream})
        with tuner_at(preset, options.port, options.baud, tell) as tuner:
            return infer(asked, replace(options, port=None, baud=None, engine="rtl"), tell, tuner)
    chosen = Design(preset, options.design)
    config = chosen.preset.config
    data, model = options.data, options.model
    if options.adapter is not None:
        from .adapted import infer_adapted

        if not preset.workload.can("finetune"):
            raise ValueError(f"adapter={options.adapter}: must be left out, {preset.name} answers and does not learn")
        check_request("with --adapter, which sees whole sequences", needless={"stream": options.stream})
        return infer_adapted(config, options)
    check_request(f"with {asked.name}, unless --adapter names a fine-tune's", needed={"model": model, "data": data})
    assert model is not None and data is not None
    assert isinstance(config, CellConfig)
    if not (options.stream and options.engine == "rtl"):
        check_request("but with --stream and --engine rtl", needless={"rate": options.rate})
    if options.engine == "rtl" and host is None:
        chosen.check()
        check_fit(config, find_board(preset.board))

    def ran(network: RecurrentNetwork, codes: np.ndarray, *, every: bool, stream: bool) -> CellRun:
        if isinstance(host, AloneHost):
            return run_alone(network, codes, chosen.preset, host)
        files = chosen.chosen() if host is None else ()
        return run_cell(
            network, codes, config, files, every=every, stream=stream, rate=options.rate, progress=tell, host=host
        )

    return infer_sequences(
        Path(model),
        data=Path(data),
        cut=options.cut(),
        limit=options.limit,
        engine=options.engine,
        stream=options.stream,
        output=None if options.output is None else Path(options.output),
        ran=ran,
    )


def run_cell(
    network: RecurrentNetwork,
    codes: np.ndarray,
    config: CellConfig,
    files: Sequence[Path] = (),
    *,
    every: bool = False,
    stream: bool = False,
    rate: float | None = None,
    timing: Mapping[str, int] | None = None,
    progress: Callable[[int, int, str], object] | None = None,
    host: MachineHost | None = None,
) -> CellRun:
    """States and sums of a network in simulated RTL.

    A program loads the network, a second runs the sequences. Figures are ``cycles`` and ``forecast`` of the second,
    ``setup_cycles`` of the first, ``cycles_a_step`` and ``phases``. With ``stream`` each step has a program of its own,
    ``cycles`` are all of them and ``cycles_an_answer`` the longest.

    Raises :class:`~.counted.MismatchError` where a code differs from the reference, or a counter from the forecast.

    Parameters
    ----------
    network : RecurrentNetwork
    codes : array of int ``[n, steps, channels]``
        Of the network's input; convolutions in front of the last are the reference's.
    config : CellConfig
    files : sequence of Path
        Verilog of the design; none: it is generated.
    every : bool
        The dense layer answers after each step.
    stream : bool
        There is one sequence, of which the machine gets a step at a time.
    rate : float, optional
        Samples of a stream that arrive a second; more than the machine answers are refused.
    timing, progress : see :meth:`~..run.machine.MachineRunner.simulated`.
    host : Host, optional
        The way to a machine, in place of a simulated one.
    """
    expected = reference.run(network, codes)
    image = CellImage(network, config)
    each = image.each(every)
    programs = _programs(image, image.windows(expected.source), each, stream)
    forecasts = [forecast(program).total for program in programs]
    expected_cycles = sum(forecasts)
    if rate is not None:
        _check_rate(network, config, rate, max(forecasts[1:]))
    ran, left = [], []
    with (
        MachineRunner.simulated(config, files, timing=timing, progress=progress, expected=expected_cycles)
        if host is None
        else MachineRunner(host)
    ) as machine:
        for program in programs:
            ran.append(machine.run(program))
            # Nothing in the engine counts a clipped word.
            ran[-1].check(saturated=0)
            if isinstance(program, CellProgram):
                left.append(_results(program, machine))
    found = _joined(left)
    remembered = found.state.c[:, : expected.state.c.shape[1]]
    check_words(
        {"h": found.h, "c": remembered, "last h": found.state.h},
        {"h": expected.h, "c": expected.state.c, "last h": expected.state.h},
    )
    sums = None
    if image.classes:
        name = "sums of the dense layer"
        sums = found.sums if each else found.sums[:, 0]
        ended = expected.h[:, -1] if network.pick == "last" else expected.state.h
        reached = expected.h if each else ended
        check_words({name: sums}, {name: reference.sums(network, reached)})
        if each and not every and network.pick == "last":
            sums = sums[:, -1]
    counters = [one.counters for one in ran[1:]]
    told = [one.forecast.total for one in ran[1:] if one.forecast is not None]
    phases: dict[str, int] = {}
    for counted in counters:
        for name, cycles in counted.phases.items():
            phases[name] = phases.get(name, 0) + cycles
    figures: Inferred = {
        "cycles": sum(counted.cycles for counted in counters),
        "forecast": sum(told) if len(told) == len(counters) else None,
        "setup_cycles": ran[0].counters.cycles,
        "phases": phases,
        "cycles_a_step": phases["cell"] / (found.h.shape[0] * found.h.shape[1]),
    }
    if stream:
        figures["cycles_an_answer"] = max(counted.cycles for counted in counters)
    state = reference.CellState(found.state.h, remembered)
    trace = reference.Trace(expected.u, found.h, state, expected.source)
    return CellRun(trace=trace, sums=sums, figures=figures)


def _check_rate(network: RecurrentNetwork, config: CellConfig, rate: float, cycles: int) -> None:
    """Refuses samples that arrive faster than the machine answers; ``cycles``: of the longest step."""
    samples = int(np.prod([layer.stride for layer in network.front]))
    most = samples * config.clock_mhz * 1e6 / cycles
    if rate > most:
        raise ValueError(
            f"rate={rate:.9g}: must be at most {int(most):,} samples a second: a step of "
            f"{some(samples, 'sample')} takes {cycles:,} cycles at {config.clock_mhz:g} MHz"
        )


def _programs(image: CellImage, rows: np.ndarray, each: bool, stream: bool) -> list[CellSetup | CellProgram]:
    """The network's program, and those that run it."""
    config = image.config
    assert isinstance(config, CellConfig)
    if not stream:
        return [CellSetup(image, config), CellProgram(image, rows, config, each=each)]
    steps = rows.shape[1]
    return [
        CellSetup(image, config),
        *(
            CellProgram(image, rows[:, at : at + 1], config, each=each, fresh=at == 0, states=at == steps - 1)
            for at in range(steps)
        ),
    ]


@dataclass(frozen=True)
class _Found:
    """Codes and sums that programs have left in memory.

    Only the last program leaves a state.
    """

    h: np.ndarray
    sums: np.ndarray
    state: reference.CellState


def _results(program: CellProgram, machine: MachineRunner) -> _Found:
    batches = program.batches
    h = [program.hidden(batch, machine.words(batch.hidden)) for batch in batches]
    sums = [program.sums(batch, machine.words(batch.logits)) for batch in batches if batch.logits is not None]
    last = [program.state(batch, machine.words(batch.state)) for batch in batches if batch.state is not None]
    c, last_h = np.concatenate(last, axis=1) if last else (np.empty(0), np.empty(0))
    return _Found(np.concatenate(h), np.concatenate(sums) if sums else np.empty((0, 0)), reference.CellState(last_h, c))


def _joined(found: Sequence[_Found]) -> _Found:
    """Results of programs one after another in time."""
    h, sums = (np.concatenate([getattr(each, name) for each in found], axis=1) for name in ("h", "sums"))
    return _Found(h, sums, found[-1].state)
