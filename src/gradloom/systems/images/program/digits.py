"""The fine-tune on digits of 8 x 8 that a tuner runs at power-up."""

import numpy as np

from gradloom.models.datasets import Dataset, digits_split
from gradloom.models.onnx_import import load_pretrained
from gradloom.program.power_up import usual_pause
from gradloom.rtl.formats.images import PARAMETER
from gradloom.rtl.machines.configs.images import ImageConfig

from ..workload import DIGITS
from .lowering import lower
from .onchip import OnChip, plan_onchip
from .schedule import initial_adapters
from .sizes import samples_of_block

__all__ = ["MEMORY_BYTES", "digits_data", "digits_plan"]

#: Memory in block RAM of the ULX3S's design.
MEMORY_BYTES = 1 << 17
#: Blocks of samples to learn from and to judge by.
TRAIN_BLOCKS, TEST_BLOCKS = DIGITS.samples // DIGITS.batch, DIGITS.judged // DIGITS.batch


def digits_data(samples: int, *, train_blocks: int = TRAIN_BLOCKS, test_blocks: int = TEST_BLOCKS) -> Dataset:
    """The images of as many blocks, of ``samples`` each."""
    return digits_split(samples * train_blocks, samples * test_blocks, degrees=DIGITS.degrees)


def digits_plan(
    config: ImageConfig,
    *,
    train_blocks: int = TRAIN_BLOCKS,
    test_blocks: int = TEST_BLOCKS,
    epochs: int = DIGITS.epochs,
    memory: int = MEMORY_BYTES,
    rank: int = DIGITS.rank,
    wide: bool = False,
    pause: int | None = None,
) -> OnChip:
    """Contents of a design's memory at power-up.

    :class:`ValueError` names the parts that do not fit. ``pause``: in cycles, else :func:`~..power_up.usual_pause`.
    """
    network = load_pretrained(DIGITS.network)
    lowered = lower(network, config, rank, wide=wide)
    data = digits_data(samples_of_block(lowered), train_blocks=train_blocks, test_blocks=test_blocks)
    start = initial_adapters(network.taps, network.classes, rank, 0)
    images = np.concatenate([data.x_train, data.x_test])
    return plan_onchip(
        lowered,
        network.pixel_map.words(images, config.activation),
        np.concatenate([data.y_train, data.y_test]),
        train=len(data.x_train),
        epochs=epochs,
        rate=DIGITS.lr,
        memory=memory,
        pause=usual_pause(config.clock_mhz) if pause is None else pause,
        a=[PARAMETER.encode(m) for m, _ in start],
        b=[PARAMETER.encode(m) for _, m in start],
    )
