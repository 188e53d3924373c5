"""Forecast of the preset's workload, cycles by phase: ``python docs/examples/forecast.py [--json]``.

1,024 images, 10 epochs, batches of 20. A forecast: it follows commands through queues, tokens and units,
on memory of fixed latency; nothing is simulated. Values do not matter to time: images and adapters are zeros.
"""
import json
import sys

import numpy as np

from gradloom.rtl.config import Config
from gradloom.rtl.models.onnx_import import load_pretrained
from gradloom.rtl.plan.lowering import lower
from gradloom.rtl.plan.program import Settings, plan_finetune
from gradloom.sim.perf import forecast


def main() -> None:
    network = load_pretrained()
    lowered = lower(network, Config(), 4)
    images, labels = np.zeros((1024, *network.input_shape), np.int64), np.zeros(1024, np.int64)
    a = [np.zeros((4, n), np.int64) for n in network.taps]
    b = [np.zeros((network.classes, 4), np.int64) for _ in network.taps]
    plan = plan_finetune(lowered, Settings(samples=1024), images, labels, a, b)
    result = forecast(plan)
    if "--json" in sys.argv[1:]:
        print(json.dumps({"total": result.total, "milliseconds": 1e3 * result.seconds, "commands": plan.commands,
                          "phases": result.phases}, indent=2, default=int))
        return
    for name, cycles in result.phases.items():
        print(f"{name:12} {cycles:10,}")
    print(f"{'total':12} {result.total:10,} cycles, {1e3 * result.seconds:.2f} ms at {result.clock_mhz} MHz, "
          f"{plan.commands:,} commands")


if __name__ == "__main__":
    main()
