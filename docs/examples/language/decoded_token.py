"""Forecasts the program of a decoded token.

``python docs/examples/language/decoded_token.py [MODEL] [--preset P] [--tokens N] [--together N] [--latency N]
[--port-reads N] [--ports N] [--head float16|nf] [--json]``

The machine of edge-qlora-genesys2, or of ``--preset``, and the last of ``--tokens`` tokens, or the last ``--together``
of them in one program, through all layers and the head, with adapters of rank 8 on q and v. The head is in words of 16
bits, or in NF4 as the linears are. Commands do not depend on values, so that no weights are needed. ``gradloom plan``
bounds one token by its bytes.
"""

import argparse
import json
from dataclasses import replace

from gradloom.models.language import BUILT_IN
from gradloom.models.pack import HEADS
from gradloom.preset import PRESETS
from gradloom.sim.time.forecast import MemoryTime, forecast
from gradloom.systems.text.costs.request import TARGETS
from gradloom.systems.text.operations.blocks.head import HEAD_MATRIX
from gradloom.systems.text.operations.decode import Decode
from gradloom.systems.text.operations.tensors import EDGE
from gradloom.systems.text.operations.transformer import StepOperations
from gradloom.systems.text.program.layout import Layout
from gradloom.systems.text.program.planned import exponents
from gradloom.systems.text.program.step import lower


def main() -> None:
    """Prints cycles and beats."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", choices=sorted(BUILT_IN), default="smollm2-135m")
    parser.add_argument("--preset", choices=("edge-qlora-genesys2", "edge-qlora-kv260"), default="edge-qlora-genesys2")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--together", type=int, default=1, help="tokens of one program")
    parser.add_argument("--latency", type=int, default=40, help="cycles from a read's address to its first beat")
    parser.add_argument("--port-reads", type=int, default=0, help="reads that the memory's port keeps; 0: all")
    parser.add_argument("--ports", type=int, choices=(1, 2, 4), help="ports to memory in place of the preset's")
    parser.add_argument("--head", choices=HEADS, default=HEADS[0])
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    model, config = BUILT_IN[asked.model], PRESETS[asked.preset].config
    config = replace(config, ports=asked.ports or config.ports)
    ranks = {each.name: config.rank for each in model.linears if each.projection in TARGETS["q,v"]}
    layout = Layout()
    if asked.head != "nf":
        layout.place(HEAD_MATRIX, 2 * -(-model.vocab // EDGE) * EDGE * model.hidden)
    try:
        # Shorter texts have shorter tiles of the cache.
        step = StepOperations(model, min(asked.tokens, EDGE), ranks, range(model.layers), True)
        token = Decode(step, asked.tokens - asked.together, coded=asked.head == "nf", count=asked.together)
        program = lower(token.operations, exponents(token.operations), layout, config)
        memory = MemoryTime(read_latency=asked.latency, port_reads=asked.port_reads)
        told = forecast(program, config=config, memory=memory)
    except ValueError as error:
        parser.error(str(error))
    said = {
        "cycles": told.total,
        "milliseconds": round(1e3 * told.seconds, 3),
        "read_beats": told.read_beats,
        "beats_percent": round(100 * told.read_beats / told.total, 1),
        "commands": len(program.instructions),
    }
    print(json.dumps(said, indent=2) if asked.json else "\n".join(f"{name:13} {each:,}" for name, each in said.items()))


if __name__ == "__main__":
    main()
