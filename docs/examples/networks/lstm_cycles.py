"""Cycles and DSP slices of LSTMs on the cell engine.

Simulated RTL, beside forecast and reference.

``python docs/examples/networks/lstm_cycles.py`` runs hidden 64 with 64 inputs; ``--hidden``, ``--inputs``,
``--parallel``, ``--sequences``, ``--steps`` and ``--table-cycles`` choose others. Weights and inputs are random; cycles
do not depend on them. ``--kind`` GRU, GRU0 (one that resets in front of its product) or RNN, ``--layers`` and
``--both`` choose other networks; of two directions a step is one of each.

``--network spar`` runs a shipped ConvLSTM on one window of the smartwatch instead, from the doorbell to the
interrupt; ``--network spar --stream`` gives it the window step by step, with a doorbell each. ``--forecast`` leaves the
RTL out.
"""

import argparse
import json

import numpy as np

from gradloom.models.recurrent.example import example_codes
from gradloom.models.recurrent.example_cells import example_layers
from gradloom.models.recurrent.stored import load_network
from gradloom.models.sequences import spar_model, spar_person
from gradloom.rtl.machines.configs.recurrent import RecurrentConfig
from gradloom.sim.run.machine import MachineRunner
from gradloom.sim.time.forecast import forecast
from gradloom.systems.sequences.answers import run_cell
from gradloom.systems.sequences.program.image import CellImage
from gradloom.systems.sequences.program.program import CellProgram, CellSetup


def cell_cycles(timing):
    """Cycles of the engine's commands."""
    own = [t for t, i in zip(timing.commands, timing.instructions) if i.engine.name == "cell"]
    return sum(done - started for started, done in own)


def measured(hidden, inputs, parallel, sequences, steps, table_cycles, layers, *, kind, both, rtl):
    """Figures of one size.

    ``run``: cycles of the command, ``step``: of each further step.
    """
    several, gru = layers > 1 or both, {"GRU": 1, "GRU0": 2}.get(kind, 0)
    widest = max(inputs, hidden * (1 + both)) if layers > 1 else inputs
    config = RecurrentConfig(
        hidden=max(8, 1 << (hidden - 1).bit_length()),
        inputs=max(8, 1 << (widest - 1).bit_length()),
        parallel=parallel,
        table_cycles=table_cycles,
        cells=1 << (layers * (1 + both) * max(gru, 1) - 1).bit_length(),
        gru=gru,
    )
    network = example_layers(kind, 1, hidden, inputs, layers=layers, both=both)
    image = CellImage(network, config)

    def ran(count):
        """Codes and forecast of so many steps."""
        codes = example_codes(network, np.random.default_rng(2), sequences, count)
        return codes, forecast(CellProgram(image, codes, config, states=not several))

    codes, timing = ran(steps)
    run, longer = cell_cycles(timing), cell_cycles(ran(steps + 8)[1])
    row = {
        "hidden": hidden,
        "inputs": inputs,
        "parallel": parallel,
        "sequences": sequences,
        "steps": steps,
        "dsp": sum(config.counted.dsp.values()),
        "step": (longer - run) / 8 / sequences,
        "run": run,
        "total": timing.total,
    }
    if rtl:
        ran_cell = run_cell(network, codes, config)
        row["rtl"] = ran_cell.figures["cycles"]
        assert row["rtl"] == ran_cell.figures["forecast"]
        assert several or row["rtl"] == timing.total
    return row


def spar(parallel, *, stream, rtl):
    """A shipped network on one window, of a person whom it has never seen.

    ``total``: cycles from the doorbell to the interrupt, of the longest step of a stream. ``latency``: of that step,
    from the end of the input's LOAD to the end of the engine's command, whose last sums leave before.
    """
    network, config = load_network(spar_model(0)), RecurrentConfig(parallel=parallel)
    image = CellImage(network, config)
    rows = image.windows(network.codes(spar_person(1).x_test[:1]))
    steps = range(rows.shape[1])
    parts = [rows[:, at : at + 1] for at in steps] if stream else [rows]
    programs = [
        CellProgram(image, part, config, each=stream, fresh=number == 0, states=False)
        for number, part in enumerate(parts)
    ]
    timings = [forecast(program) for program in programs]
    row = {
        "parallel": parallel,
        "dsp": sum(config.counted.dsp.values()),
        "steps": len(steps),
        "total": max(timing.total for timing in timings),
    }
    if stream:
        ends = {i.engine.name: t for t, i in zip(timings[-1].commands, timings[-1].instructions)}
        row["latency"] = ends["cell"][1] - ends["load"][1]
    if rtl:
        with MachineRunner.simulated(config) as machine:
            machine.run(CellSetup(image, config))
            ran = [machine.run(program) for program in programs]
        for one in ran:
            one.check()
        row["rtl"] = max(one.counters.cycles for one in ran)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    sizes = {"hidden": 64, "inputs": 64, "parallel": 2, "sequences": 1, "steps": 100, "table-cycles": 1}
    sizes["layers"] = 1
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--kind", choices=["LSTM", "GRU", "GRU0", "RNN"], default="LSTM")
    parser.add_argument("--both", action="store_true", help="two directions")
    parser.add_argument("--network", choices=["spar"], help="a shipped ConvLSTM; of the sizes only --parallel counts")
    parser.add_argument("--stream", action="store_true", help="with --network: a program for each step")
    parser.add_argument("--forecast", action="store_true", help="leave the RTL out")
    parser.add_argument("--json", action="store_true")
    asked = vars(parser.parse_args())
    as_json, rtl = asked.pop("json"), not asked.pop("forecast")
    network, stream, kind, both = (asked.pop(name) for name in ("network", "stream", "kind", "both"))
    if network is None:
        row = measured(**asked, kind=kind, both=both, rtl=rtl)
    else:
        row = spar(asked["parallel"], stream=stream, rtl=rtl)
    print(json.dumps(row) if as_json else "\n".join(f"{name:10} {value:,}" for name, value in row.items()))


if __name__ == "__main__":
    main()
