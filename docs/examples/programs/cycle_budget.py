"""Cycles of a fine-tune by arithmetic on the structure.

``python docs/examples/programs/cycle_budget.py [--json]``

A derived figure, neither simulated nor measured: it counts what each unit is busy with, and the latencies
between commands that depend on one another. Late answers of memory and empty
queues are not in it.
"""

import json
import sys

from gradloom.models.onnx_import import load_pretrained
from gradloom.rtl.engines.array.control.passes import BEATS, LEVELS
from gradloom.rtl.engines.array.feet import Hidden
from gradloom.rtl.engines.array.operands.lane import AdapterLanes
from gradloom.rtl.engines.array.parameters import EDGE
from gradloom.rtl.engines.head.engine import Head
from gradloom.rtl.machines.configs.images import ImageConfig
from gradloom.rtl.systolic.systolic import SystolicArray
from gradloom.systems.images.program.lowered import Lowered
from gradloom.systems.images.program.lowering import lower

TOKEN = 4  # cycles from a command's end to the start of one that waits for it


def step(low: Lowered, samples: int) -> dict[str, int]:
    """Cycles of a microbatch.

    Array and head run one after the other, and LOAD runs beside them.
    """
    config = low.config
    array = SystolicArray(rows=config.rows, panels=config.panels, columns=config.rank)
    head = Head(rows=config.rows, rank=config.rank, max_taps=config.taps, max_classes=config.classes)
    passes = [tap for tap in low.taps for _ in range(low.parts)]
    reads = [-(-tap.elements // config.panels) for tap in passes]
    block = max(LEVELS, BEATS(config.panels))
    drain = config.rows + 1 + EDGE + array.drain_latency + config.rank - 2 + Hidden.latency + 1
    learn = EDGE + array.latency + config.rank - 1 + AdapterLanes.latency
    parts = {
        "forward": LEVELS + sum(reads) + config.rows * len(reads) + drain + TOKEN,
        "head": head.cycles(samples, low.k, low.classes) + TOKEN,
        "gradient": LEVELS + block * sum(tap.blocks for tap in passes) + learn + TOKEN,
    }
    return parts | {"array and head": sum(parts.values()), "load": samples * low.record_beats + 2}


def base(low: Lowered) -> dict[str, float]:
    """Cycles of the frozen network for one sample.

    Dense layers take a group of ``rows`` samples together.
    """
    config = low.config
    out: dict[str, float] = {}
    for conv in low.convs:
        tiles = -(-conv.weight.shape[0] // config.columns)
        out[conv.name] = tiles * conv.run.channels * conv.run.rows * conv.run.pitch
    for dense in low.denses:
        outputs, inputs = dense.weight.shape
        out[dense.name] = -(-outputs // config.columns) * (inputs + config.rows + 2) / config.rows
    return out


def main() -> None:
    low = lower(load_pretrained(), ImageConfig(), 4)
    full, short, sample = step(low, 20), step(low, 4), base(low)
    steps = 10 * sum(n * max(part["array and head"], part["load"]) for n, part in ((51, full), (1, short)))
    frozen = 1024 * sum(sample.values())
    if "--json" in sys.argv[1:]:
        wide = lower(load_pretrained(), ImageConfig(), 4, wide=True)
        print(
            json.dumps(
                {
                    "record": 16 * low.record_beats,
                    "record of 8-bit codes": 16 * wide.record_beats,
                    "step": full,
                    "sample": sample,
                    "sample_total": sum(sample.values()),
                    "steps": steps,
                    "frozen": frozen,
                    "together": steps + frozen,
                },
                indent=2,
            )
        )
        return
    for name in full:
        print(f"{'step of 20: ' + name:28} {full[name]:8,}")
    for name, cycles in sample.items():
        print(f"{'sample: ' + name:28} {cycles:8,.0f}")
    print(f"{'520 steps':28} {steps:8,}")
    print(f"{'1,024 samples, frozen network':28} {frozen:8,.0f}")
    print(f"{'together':28} {steps + frozen:8,.0f}")


if __name__ == "__main__":
    main()
