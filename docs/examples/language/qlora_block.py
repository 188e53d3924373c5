"""Linear layers of one decoder block in simulated RTL.

``python docs/examples/language/qlora_block.py [--json]``

The machine of the preset edge-qlora-genesys2 and the seven linears of a SmolLM2-135M block, with random weights and
operands (no cycle depends on a value). ``forecast``: cycles that ``sim/time/forecast.py`` expects. ``array``: share of
all cycles, from bell to interrupt, in which a product of the base enters the array. ``bus``: beats read over all
cycles. Every word is compared with the reference.
"""

import argparse
import json

import numpy as np

from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.sim.time.forecast import MemoryTime, forecast
from gradloom.systems.text.run.linear import LinearMachine, LinearStart, choose_exponents, mathematics, reference_step

#: Outputs and inputs of q, k, v, o, gate, up, down.
BLOCK = ((576, 576), (192, 576), (192, 576), (576, 576), (1536, 576), (1536, 576), (576, 1536))
#: Tokens, rank, backward.
RUNS = ((1, 0, False), (16, 0, False), (16, 8, False), (64, 0, False), (64, 8, False), (64, 0, True), (64, 8, True))


def random_layer(outputs: int, inputs: int, tokens: int, rank: int, seed: int) -> LinearStart:
    random = np.random.default_rng(seed)
    blocks = outputs * inputs // 64
    return LinearStart(
        codes=random.integers(0, 16, (outputs, inputs)),
        scale_codes=random.integers(0, 256, (outputs, inputs // 64)),
        absmax2=random.uniform(0.02, 0.05, -(-blocks // 256)).astype(np.float32),
        offset=0.08,
        a=random.normal(0, inputs**-0.5, (rank, inputs)),
        b=random.normal(0, 0.02, (outputs, rank)),
        x=random.normal(0, 3, (tokens, inputs)),
        dy=random.normal(0, 1e-4, (tokens, outputs)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--latency", type=int, default=40, help="cycles from a read's address to its first beat")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    machine = LinearMachine(LanguageConfig(), memory_bytes=1 << 25)
    machine.device.set("read_latency", asked.latency)
    results = []
    for tokens, rank, backward in RUNS:
        layers = [random_layer(*shape, tokens, max(rank, 2), seed) for seed, shape in enumerate(BLOCK)]
        exponents = [choose_exponents(layer, mathematics(layer, 0.1)) for layer in layers]
        found = machine.products(layers, exponents=exponents, backward=backward, with_adapter=rank > 0)
        name, equal = "dx" if backward else "y", True
        for layer, e, words in zip(layers, exponents, found.words, strict=True):
            plain = layer if rank else LinearStart(**vars(layer) | {"a": 0 * layer.a, "b": 0 * layer.b})
            equal &= np.array_equal(words, reference_step(plain, e, 0.1).tensors[name])
        told = forecast(found.instructions, config=machine.config, memory=MemoryTime(read_latency=asked.latency))
        results.append(
            {
                "tokens": tokens,
                "rank": rank,
                "direction": "backward" if backward else "forward",
                "cycles": found.cycles,
                "forecast": told.total,
                "array": told.array_cycles / found.cycles,
                "bus": found.read_beats / found.cycles,
                "equal": equal,
            }
        )
        if not asked.json:
            last = results[-1]
            print(
                f"{tokens:3} tokens, rank {rank}, {last['direction']:8}: {found.cycles:7,} cycles, forecast "
                f"{told.total:7,}, array {100 * last['array']:.2f} %, bus {100 * last['bus']:.2f} %, equal to the "
                f"reference: {equal}"
            )
    machine.close()
    if asked.json:
        print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
