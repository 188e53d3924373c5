"""Cycles and DSP slices of LSTMs on the cell engine.

Simulated RTL, beside forecast and reference.

``python docs/examples/lstm_cycles.py`` runs hidden 64 with 64 inputs; ``--hidden``, ``--inputs``, ``--parallel``,
``--sequences`` and ``--steps`` choose others. ``--forecast`` leaves the RTL out. Weights and inputs are random; cycles
do not depend on them.
"""

import argparse
import json

import numpy as np

from gradloom.rtl.machines.configs import RecurrentConfig
from gradloom.rtl.models.recurrent.example import example_codes, example_lstm
from gradloom.rtl.plan.recurrent.program import CellProgram
from gradloom.sim.run.programs import forecast_placed
from gradloom.sim.workloads.answers import run_cell


def measured(hidden, inputs, parallel, sequences, steps, *, rtl):
    """Figures of one size.

    ``run``: cycles of the command, ``step``: of each further step.
    """
    config = RecurrentConfig(
        hidden=max(8, 1 << (hidden - 1).bit_length()), inputs=max(8, 1 << (inputs - 1).bit_length()), parallel=parallel
    )
    network = example_lstm(1, hidden, inputs)

    def cycles(count):
        """Of a command, by the forecast."""
        codes = example_codes(network, np.random.default_rng(2), sequences, count)
        program = CellProgram(network, codes, config)
        timing = forecast_placed(program)
        own = [t for t, i in zip(timing.commands, timing.instructions) if i.engine.name == "cell"]
        return codes, timing, sum(done - started for started, done in own)

    codes, timing, run = cycles(steps)
    _, _, longer = cycles(steps + 8)
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
        _, figures = run_cell(network, codes, config)
        assert figures["cycles"] == timing.total
        row["rtl"] = figures["cycles"]
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("hidden", 64), ("inputs", 64), ("parallel", 2), ("sequences", 1), ("steps", 100)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--forecast", action="store_true", help="leave the RTL out")
    parser.add_argument("--json", action="store_true")
    asked = vars(parser.parse_args())
    as_json, forecast = asked.pop("json"), asked.pop("forecast")
    row = measured(**asked, rtl=not forecast)
    print(json.dumps(row) if as_json else "\n".join(f"{name:10} {value:,}" for name, value in row.items()))


if __name__ == "__main__":
    main()
