"""Decode requests during a training step.

``python docs/examples/language/decode_beside_training.py [--rtl] [--head | --whole] [--json]``

The machine of the preset edge-qlora-genesys2 and SmolLM2-135M's own weights, as in ``qlora_step.py``: one block forward
and backward with its gradients, and tokens behind a text through the same block. For each bound of a section, the
step's cycles and what the yields cost, its longest section, and by forecast the longest that a request waits and takes.
``--rtl`` runs step and requests, rung at random moments, and compares all words with those that either has alone.
``--head`` adds the head and its loss to the step, and forecasts no request. ``--whole`` is a step of all layers with
the head as a job has it: adapters on q and v, AdamW, places by lifetime. Its commands do not depend on values, so it
needs no weights. It takes two minutes a bound.
"""

import argparse
import json
import sys
from dataclasses import replace
from functools import partial

import numpy as np
from qlora_step import PRESET, prepared

from gradloom.models.language import BUILT_IN
from gradloom.preset import PRESETS
from gradloom.program.descent import AdamW
from gradloom.sim.time.forecast import MemoryTime, forecast
from gradloom.systems.text.costs.request import TARGETS
from gradloom.systems.text.program.layout import Layout
from gradloom.systems.text.program.planned import planned_step
from gradloom.systems.text.program.step import lower
from gradloom.systems.text.run.decode import Decoding, beside
from gradloom.systems.text.run.section_cycles import kept_spacing, section_cycles
from gradloom.systems.text.run.step import StepMachine, place_frozen
from gradloom.systems.text.run.training import largest

CONFIG = PRESETS[PRESET].config
#: A block, its tensors, and some requests.
MEMORY = 1 << 25


def one_block(training, frac, every):
    """The step of a block, with sections of ``every`` cycles."""
    layout = Layout()
    place_frozen(training, layout)
    return lower(training.operations, frac, layout, CONFIG, yield_every=every)


def whole(tokens, every):
    """The step of the whole model."""
    model = BUILT_IN["smollm2-135m"]
    ranks = {each.name: CONFIG.rank for each in model.linears if each.projection in TARGETS["q,v"]}
    options = {"tokens": tokens, "rule": AdamW(lr=1e-3), "yield_every": every}
    program, _ = planned_step(model, ranks, range(model.layers), CONFIG, **options)
    return program


def sectioned(step, bound, latency):
    """Figures of a step whose sections take ``bound`` cycles at most.

    They are its cycles, sections, and the longest of them.
    """
    if bound is None:
        cycles = section_cycles(step(None), CONFIG, memory=MemoryTime(read_latency=latency))
    else:
        _, cycles = kept_spacing(step, bound, CONFIG, memory=MemoryTime(read_latency=latency))
    return {"bound": bound, "cycles": sum(cycles), "sections": len(cycles), "longest": max(cycles)}


def decoding(training, frac, alone, position):
    """A token of the text behind ``position`` others, and their cache."""
    cache = {
        name: np.where(np.arange(len(words))[:, None] < position, words, 0)
        for name, words in alone.values.items()
        if name.endswith((".k", ".v"))
    }
    return Decoding(training, frac, position, [training.tokens[position]]), replace(alone, values=cache)


def in_rtl(machine, training, frac, alone, every, moments):
    """Worst wait of requests, and whether all words are right.

    The requests come at ``moments``.
    """
    first = training.step.tokens - len(moments)
    tokens = [decoding(training, frac, alone, first + number) for number in range(len(moments))]
    run, answered = beside(machine, training, frac, tokens, moments, bound=every)
    equal = all(np.array_equal(words, alone.values[name]) for name, words in run.values.items())
    for (token, before), each in zip(tokens, answered, strict=True):
        want = token.integers(before).values
        equal &= all(np.array_equal(words, want[name]) for name, words in each.values.items())
    return {
        "step_with_requests": run.counters.cycles,
        "requests": len(answered),
        "worst_wait": max(each.served.waited for each in answered),
        "waits": [each.served.waited for each in answered],
        "request": max(each.served.cycles - each.served.waited for each in answered),
        "equal": equal,
    }


def requested(training, frac, reference, latency):
    """Cycles of a request for the last token of the text."""
    token, _ = decoding(training, frac, reference, training.step.tokens - 1)
    program = lower(token.decode.operations, token.fracs, Layout(), CONFIG)
    return forecast(program.instructions, config=CONFIG, memory=MemoryTime(read_latency=latency)).total


def main() -> None:
    """Prints a row for each bound."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--bounds", type=int, nargs="+", default=[200_000, 100_000, 50_000])
    parser.add_argument("--requests", type=int, default=6)
    parser.add_argument("--latency", type=int, default=40, help="cycles from a read's address to its first beat")
    for flag in ("rtl", "head", "whole", "json"):
        parser.add_argument(f"--{flag}", action="store_true")
    asked = parser.parse_args()
    if asked.rtl + asked.head + asked.whole > 1:
        parser.error("give one of --rtl, --head and --whole at most")
    training = reference = request = None
    if asked.whole:
        step = partial(whole, asked.tokens)
    else:
        training = prepared(asked.tokens, 1, asked.head)
        frac = training.fracs(largest(training.exact()), headroom=1)
        step = partial(one_block, training, frac)
        if not asked.head:
            reference = training.integers(frac)
            request = requested(training, frac, reference, asked.latency)
    alone = sectioned(step, None, asked.latency)
    machine = None
    if asked.rtl:
        machine = StepMachine(CONFIG, memory_bytes=MEMORY, tell=lambda text: print(text, file=sys.stderr))
        machine.device.set("read_latency", asked.latency)
    rows = []
    for every in asked.bounds:
        row = sectioned(step, every, asked.latency)
        row["cost"] = row["cycles"] / alone["cycles"] - 1
        if machine is not None:
            random = np.random.default_rng(every)
            # Before the last section: one that comes later runs when the step has ended, and is not among its commands.
            moments = sorted(random.integers(0, row["cycles"] - row["longest"], asked.requests).tolist())
            row |= in_rtl(machine, training, frac, reference, every, moments)
        rows.append(row)
    if machine is not None:
        machine.close()
    said = {"tokens": asked.tokens, "step": alone["cycles"], "request": request, "rows": rows}
    if asked.json:
        print(json.dumps(said, indent=2))
        return
    behind = "" if request is None else f"; a request {request:,}"
    print(f"step without yields {alone['cycles']:,} cycles{behind}")
    for row in rows:
        print(
            ", ".join(
                f"{name} {value:.2%}"
                if isinstance(value, float)
                else f"{name} {value:,}"
                if type(value) is int
                else f"{name} {value}"
                for name, value in row.items()
            )
        )


if __name__ == "__main__":
    main()
