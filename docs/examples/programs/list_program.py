"""Prints the program of a very small fine-tune.

``python docs/examples/programs/list_program.py``
"""

import numpy as np

from gradloom.models.network import ConvLayer, DenseLayer, LayerNetwork
from gradloom.program.assembler import Instruction
from gradloom.rtl.machines.configs.images import ImageConfig
from gradloom.rtl.shell.engines import LOAD, STORE
from gradloom.systems.images.program.lowering import lower
from gradloom.systems.images.program.program import ImagePlanned, Settings, plan_finetune
from gradloom.systems.images.program.tokens import ProgramToken


def names(constants: type) -> dict[int, str]:
    return {number: name for name, number in vars(constants).items() if name.isupper()}


TOKENS = names(ProgramToken)


def small_plan() -> ImagePlanned:
    """A small plan of one step.

    It has two 8 x 8 images, a convolution and a dense layer, rank 4, and both images in one step.
    """
    network = LayerNetwork(
        name="small",
        input_shape=(1, 8, 8),
        layers=(
            ConvLayer(
                weight=np.zeros((2, 1, 3, 3)), bias=np.zeros(2), pads=(1, 1, 1, 1), relu=True, pool=2, name="conv"
            ),
            DenseLayer(weight=np.zeros((4, 32)), bias=np.zeros(4), name="fc"),
        ),
    )
    lowered = lower(network, ImageConfig(), 4)
    settings = Settings(samples=2, epochs=1, batch=2)
    a = [np.zeros((4, n), np.int64) for n in network.taps]
    b = [np.zeros((4, 4), np.int64) for _ in network.taps]
    return plan_finetune(lowered, settings, np.zeros((2, 1, 8, 8), np.int64), np.zeros(2, np.int64), a, b)


def text(each: Instruction) -> str:
    """Engine and opcode, tokens, predicate, operands other than 0."""
    name = each.engine.name
    if each.engine not in (LOAD, STORE):
        name += "." + each.engine.spec.opcodes(each.opcode).name
    tokens = " ".join([f"-{TOKENS[t]}" for t in each.wait] + [f"+{TOKENS[t]}" for t in each.post])
    words = [f"unless {each.slots[0]}..{sum(each.slots) - 1}"] if each.slots else []
    for key, value in each.operands.items():
        if key == "dest" or (key == "source" and each.engine == STORE):
            words.append(str(value))
        elif value:
            words.append(f"{key}={int(value)}" if key != "arg" else f"arg={value:#x}")
    return f"{name:18} {tokens:20} {' '.join(words)}".rstrip()


def listing(plan: ImagePlanned) -> list[str]:
    """A line a command; equal commands in a row are one line."""
    lines: list[str] = []
    commands = [text(each) for each in plan.assembler.instructions]
    first = 0
    for number, line in enumerate(commands):
        if number + 1 == len(commands) or commands[number + 1] != line:
            lines.append(f"{first if first == number else f'{first}-{number}':>5}  {line}")
            first = number + 1
    return lines


if __name__ == "__main__":
    print("\n".join(listing(small_plan())))
