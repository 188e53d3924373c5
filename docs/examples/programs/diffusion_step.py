"""Cycles of a LoRA step of the shipped UNet, by the forecast.

``python docs/examples/programs/diffusion_step.py [--batch 8] [--set KEY=VALUE] [--latency N] [--port-reads N]
[--dram BOARD] [--json]``

The program of ``gradloom finetune cdm-qta-kv260 --engine rtl``, adapters of rank 8 on cross-attention. *array*: cycles
in which rows of products enter the array; *multiplications*: those of all products, over the array's in all cycles. An
engine's cycles are those of its commands, from start to done: WORDS and AdamW wait for memory in them. STORE sends a
beat a cycle, to memory, to a slot of an engine or to both. ``--set`` changes the machine: with ``forwards=0`` records
go through memory.
"""

import argparse
import json
from collections import Counter
from typing import Any

from gradloom.cli.design.generate import configured
from gradloom.compiler.estimate.products import backward, forward
from gradloom.models.digits_unet import shipped_unet
from gradloom.preset import PRESETS
from gradloom.program.assembler import Instruction
from gradloom.rtl.catalog import parse_settings
from gradloom.rtl.formats.tiles.product import ProductOpcode
from gradloom.rtl.machines.configs.diffusion import DiffusionConfig
from gradloom.sim.run.memory import dram_of
from gradloom.sim.time.forecast import USUAL, MemoryTime, forecast
from gradloom.sim.time.product import rows_of
from gradloom.systems.diffusion.program.step import lowered
from gradloom.systems.diffusion.task import fresh_adapters, with_rank
from gradloom.systems.diffusion.unet import network


def array_cycles(each: Instruction, config: DiffusionConfig) -> int:
    """Rows of products that a command of the product engine streams."""
    if each.opcode != ProductOpcode.PRODUCT:
        return 0
    return rows_of({"tiles": 0} | each.operands, config)


def measured(batch: int, config: DiffusionConfig, memory: MemoryTime = USUAL) -> dict[str, Any]:
    """The figures of a step of ``batch`` images."""
    shapes, weights = shipped_unet()
    listed = with_rank(shapes, 8, "cross-attention")
    learnt = fresh_adapters(listed, 0)
    step = lowered(config, network(listed, weights | learnt), learnt, images=batch, lr=1e-3)
    told = forecast(step.program, memory=memory)
    own: Counter[str] = Counter()
    reads: Counter[str] = Counter()
    stores: Counter[str] = Counter()
    for each, times in zip(step.program.instructions, told.commands):
        name = each.engine.name
        if name == "load":
            reads[str(each.operands["dest"])] += each.operands["beats"]
        elif name == "store":
            kind = "memory" if not each.operands.get("forward") else "slot" if each.operands.get("only") else "both"
            stores[kind] += each.operands["beats"]
        elif name == "product":
            own["array"] += array_cycles(each, config)
        elif name != "control" and times is not None:
            own[name] += times[1] - times[0] + 1
    macs = sum(each.macs for each in (*forward(listed, batch), *backward(listed, batch)))
    return {
        "batch": batch,
        "cycles": told.total,
        "array": own.pop("array"),
        "multiplications": round(macs / (told.total * config.array_rows * config.array_columns), 4),
        "read_beats": told.read_beats,
        "write_beats": told.write_beats,
        "store_beats": sum(stores.values()),
        "engines": dict(sorted(own.items())),
        "loads": dict(reads.most_common()),
        "stores": dict(stores.most_common()),
        "bytes": step.program.length,
    }


def main() -> None:
    """Prints them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="another machine; repeatable")
    parser.add_argument("--latency", type=int, default=40, help="cycles from a read's address to its first beat")
    parser.add_argument("--port-reads", type=int, default=0, help="reads that a port keeps; 0: all")
    parser.add_argument("--dram", metavar="BOARD", help="the DRAM of this board behind the ports")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    try:
        config = configured(PRESETS["cdm-qta-kv260"].config, parse_settings(asked.set))
        dram = dram_of(asked.dram, config)
        memory = MemoryTime(read_latency=asked.latency, port_reads=asked.port_reads, dram=dram)
        found = measured(asked.batch, config, memory)
    except ValueError as error:
        parser.error(str(error))
    if asked.json:
        print(json.dumps(found, indent=2))
        return
    cycles = found["cycles"]
    print(f"{cycles:,} cycles for {found['batch']} images, {found['bytes'] / 1e6:.1f} MB")
    print(f"array {found['array']:,} cycles, {100 * found['array'] / cycles:.1f} %", end="; ")
    print(f"multiplications {100 * found['multiplications']:.1f} % of the array's")
    print(", ".join(f"{name} {count:,}" for name, count in found["engines"].items()))
    print(
        f"read {found['read_beats']:,} beats, written {found['write_beats']:,}, through STORE {found['store_beats']:,}"
    )
    for key in ("loads", "stores"):
        print(f"{key}: " + ", ".join(f"{name} {beats:,}" for name, beats in found[key].items()))


if __name__ == "__main__":
    main()
