"""What bounds a LoRA step of a classifier on the tile machine, by the forecast.

``python docs/examples/networks/bounds.py NETWORK [--targets conv] [--batch 16]``

*product alone*: cycles of the product engine's commands if nothing else had to be waited for; in *array* of them rows
enter the array. LOAD and STORE move a beat a cycle at most; *once*: beats of LOAD if each record came once.
"""

import argparse
from dataclasses import replace

from gradloom.graph.onnx.load import load_network
from gradloom.preset import PRESETS
from gradloom.program.placed import Program
from gradloom.rtl.formats.tiles.product import ProductOpcode
from gradloom.sim.time.forecast import forecast
from gradloom.sim.time.product import rows_of
from gradloom.systems.networks.program.prepared import Prepared, learning_of, ranks_of
from gradloom.systems.networks.workload import NetworkWorkload


def found(program: Program) -> dict[str, int]:
    """Cycles of a step, and of parts of it."""
    listed = program.instructions
    product = [each for each in listed if each.engine.name == "product"]
    alone = [replace(each, wait=(), post=()) for each in product]
    loads = [each.operands for each in listed if each.engine.name == "load"]
    once = {(given["dest"], given["offset"]): given["beats"] for given in loads}
    sums = [{"tiles": 0} | each.operands for each in product if each.opcode == ProductOpcode.PRODUCT]
    return {
        "step": forecast(program).total,
        "product alone": forecast([*alone, listed[-1]], config=program.config).total,
        "array": sum(rows_of(given, program.config) for given in sums),
        "LOAD": sum(given["beats"] for given in loads),
        "once": sum(once.values()),
        "STORE": sum(each.operands["beats"] for each in listed if each.engine.name == "store"),
    }


def main() -> None:
    """Prints them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("network")
    parser.add_argument("--targets", default="conv")
    parser.add_argument("--batch", type=int, default=16)
    asked = parser.parse_args()
    preset = PRESETS["tile-kv260"]
    workload = preset.workload
    assert isinstance(workload, NetworkWorkload)
    network = load_network(asked.network)
    given = ranks_of(network, "lora", asked.targets, None, workload.rank)
    learning = learning_of(network, "classes", "lora", targets=asked.targets, **given)
    prepared = Prepared(learning, "classes")
    step = prepared.programs(preset.config, asked.batch, prepared.rules(workload.lr)).step
    for name, cycles in found(step.program).items():
        print(f"{name:14}{cycles:>10,}{cycles / asked.batch:>10,.0f} a sample")


if __name__ == "__main__":
    main()
