"""Forecasts the preset's workload, cycles by phase.

``python docs/examples/programs/forecast.py [--latency N] [--outstanding N] [--port-reads N | --board BOARD] [--ports N]
[--dram BOARD] [--json]``: 1,024 images, 10 epochs, batches of 20.
The forecast follows commands through queues, tokens and engines; nothing is simulated. Memory answers a read in
``--latency`` cycles and never stalls, but for the refreshes, pages and data bus of the DRAM of ``--dram``. Cycles do
not depend on values, so images and adapters are zeros.
"""

import argparse
import json

import numpy as np

from gradloom.boards import find
from gradloom.models.onnx_import import load_pretrained
from gradloom.rtl.machines.configs.images import ImageConfig
from gradloom.sim.run.memory import dram_of
from gradloom.sim.time.forecast import MemoryTime, forecast
from gradloom.systems.images.program.lowering import lower
from gradloom.systems.images.program.program import Settings, plan_finetune


def main() -> None:
    parser = argparse.ArgumentParser(description="Forecast of the preset's workload.")
    parser.add_argument("--latency", type=int, default=40, help="cycles from a read to its first beat (default: 40)")
    parser.add_argument("--outstanding", type=int, default=16, help="reads that LOAD asks for, 1 to 16 (default: 16)")
    limit = parser.add_mutually_exclusive_group()
    limit.add_argument("--port-reads", type=int, help="reads that a port keeps in flight (default: all)")
    limit.add_argument("--board", help="the port of this board, gradloom list boards lists them")
    parser.add_argument("--ports", type=int, default=1, help="ports on the memory, 1, 2 or 4 (default: 1)")
    parser.add_argument("--dram", metavar="BOARD", help="the DRAM of this board behind the ports")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    for name, value in ("latency", asked.latency), ("port-reads", asked.port_reads):
        if value is not None and value < 1:
            parser.error(f"--{name}={value}: must be at least 1")
    try:
        port_reads = find(asked.board).port_reads if asked.board else asked.port_reads or 0
        config = ImageConfig(outstanding=asked.outstanding, ports=asked.ports)
        memory = MemoryTime(read_latency=asked.latency, port_reads=port_reads, dram=dram_of(asked.dram, config))
    except ValueError as error:
        parser.error(str(error))
    network = load_pretrained()
    lowered = lower(network, config, 4)
    images, labels = np.zeros((1024, *network.input_shape), np.int64), np.zeros(1024, np.int64)
    a = [np.zeros((4, n), np.int64) for n in network.taps]
    b = [np.zeros((network.classes, 4), np.int64) for _ in network.taps]
    plan = plan_finetune(lowered, Settings(samples=1024), images, labels, a, b)
    result = forecast(plan, memory=memory)
    if asked.json:
        print(
            json.dumps(
                {
                    "total": result.total,
                    "milliseconds": 1e3 * result.seconds,
                    "commands": plan.commands,
                    "phases": result.phases,
                },
                indent=2,
                default=int,
            )
        )
        return
    for name, cycles in result.phases.items():
        print(f"{name:12} {cycles:10,}")
    print(
        f"{'total':12} {result.total:10,} cycles, {1e3 * result.seconds:.2f} ms at {result.clock_mhz} MHz, "
        f"{plan.commands:,} commands"
    )


if __name__ == "__main__":
    main()
