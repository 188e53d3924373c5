"""Networks of every shape, and what is asked of their fine-tunes."""

from dataclasses import dataclass

import numpy as np

from gradloom.models.network import ConvLayer, DenseLayer, LayerNetwork
from gradloom.systems.images.program.program import Settings

__all__ = ["Limits", "Task", "draw"]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How large what is drawn may be. ``channels``: of a convolution, mostly; one in eight has up to three times as
    many, so that some are refused."""

    edge: int
    inputs: int
    channels: int
    dense: int
    classes: int
    kernel: int
    rank: int
    samples: int


@dataclass(frozen=True, kw_only=True)
class Task:
    """A fine-tune."""

    network: LayerNetwork
    rank: int
    wide: bool
    settings: Settings


def draw(seed: int, limits: Limits) -> Task:
    """The same for the same seed: 1 to 6 layers, the last of them dense."""
    rng = np.random.default_rng(seed)

    def upto(most: int, least: int = 1) -> int:
        """Small numbers as often as large ones."""
        return int(min(np.exp(rng.uniform(np.log(least), np.log(most + 1))), most))

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(0, 0.7 / np.sqrt(np.prod(shape[1:])), shape)

    depth = int(rng.integers(1, 7))
    convs = int(rng.integers(0, depth))
    shape = (upto(limits.inputs), *(int(n) for n in rng.integers(3, limits.edge + 1, 2)))
    first = shape
    layers: list[ConvLayer | DenseLayer] = []
    for _ in range(convs):
        kernel = [int(n) for n in rng.integers(1, limits.kernel + 1, 2)]
        pads = tuple(int(rng.integers(0, min(kernel[n % 2], 3))) for n in range(4))
        high, wide = shape[1] + pads[0] + pads[2], shape[2] + pads[1] + pads[3]
        kernel = [min(kernel[0], high), min(kernel[1], wide)]
        pads = tuple(min(pad, kernel[n % 2] - 1) for n, pad in enumerate(pads))
        outputs = upto(limits.channels * (3 if rng.random() < 1 / 8 else 1))
        stride = (1, 1) if rng.random() < 0.7 else tuple(int(n) for n in rng.integers(1, 4, 2))
        options = {
            "weight": normal(outputs, shape[0], *kernel),
            "bias": rng.normal(0, 0.1, outputs),
            "pads": pads,
            "stride": stride,
            "relu": bool(rng.integers(2)),
        }
        sides = ConvLayer(**options).convolved(shape)[1:]
        layers.append(ConvLayer(**options, pool=int(rng.integers(1, min(4, *sides) + 1)) if rng.random() < 0.6 else 1))
        shape = layers[-1].output_shape(shape)
    size = int(np.prod(shape))
    for number in range(depth - convs):
        last = number == depth - convs - 1
        outputs = int(rng.integers(2, limits.classes + 1)) if last else upto(limits.dense)
        layers.append(
            DenseLayer(
                weight=normal(outputs, size), bias=rng.normal(0, 0.1, outputs), relu=not last and bool(rng.integers(2))
            )
        )
        size = outputs
    samples = upto(limits.samples)
    return Task(
        network=LayerNetwork(name=f"drawn{seed}", input_shape=first, layers=tuple(layers)),
        rank=upto(limits.rank),
        wide=rng.random() < 0.3,
        settings=Settings(
            samples=samples,
            epochs=int(rng.integers(1, 3)),
            batch=upto(64),
            rate=float(rng.choice([0.01, 0.05, 0.5])),
            momentum=float(rng.choice([0.0, 0.9])),
            seed=seed % 7,
            slots=[0, int(rng.integers(0, samples + 1)), 1 << 30, 1 << 30][rng.integers(4)],
        ),
    )
