"""Generated digits: samples, Frechet distance, accuracy, grids."""

from collections.abc import Mapping
from typing import BinaryIO

import numpy as np

from gradloom.graph.mathematics import FloatReading
from gradloom.models.digits_unet import SIDE, pictures, plain, shipped_prompts
from gradloom.models.files.unet import UNet
from gradloom.models.onnx_import import load_pretrained
from gradloom.systems.forward import Run
from gradloom.systems.images.mathematics import forward
from gradloom.workload import Progress

from .noise import sample
from .unet import Values, timesteps, with_values

__all__ = ["PICTURES", "STEPS", "Judge", "frechet", "generated", "plot_grids", "read_digits"]

#: Steps of the sampler.
STEPS = 25
#: Pictures of a batch in floating point.
PICTURES = 100


def generated(
    noise_of: Run,
    shapes: UNet,
    prompts: np.ndarray,
    *,
    seed: int,
    tell: Progress,
    what: str,
    steps: int = STEPS,
    batch: int = PICTURES,
) -> np.ndarray:
    """Pictures ``[n, 16, 16]`` of prompts ``[n, tokens, features]``, 0 to 1.

    ``noise_of`` predicts the noise of inputs of a UNet, ``batch`` pictures at a time.
    """
    made = []
    for start in range(0, len(prompts), batch):
        some = prompts[start : start + batch]
        random = np.random.default_rng([seed, 3, start])
        noise = random.standard_normal((len(some), shapes.size**2, shapes.inputs)).astype(np.float32)

        def predicted(x: np.ndarray, steps: np.ndarray, some: np.ndarray = some) -> np.ndarray:
            data = {"latents": x, "timestep": timesteps(shapes, steps)[:, None], "prompt": some}
            return noise_of(data)

        def heard(done: int, total: int, start: int = start, some: np.ndarray = some) -> None:
            tell(start * total + done * len(some), len(prompts) * total, f"digits {what}")

        made.append(pictures(sample(predicted, noise, steps=steps, tell=heard)))
    return np.concatenate(made)


def read_digits(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """LeNet's 84 features of pictures ``[n, 16, 16]``, and labels.

    Pixels are doubled, and the border that pads MNIST's digits is cut.
    """
    network = load_pretrained()
    taps, labels = [], []
    for start in range(0, len(images), 1000):
        wide = images[start : start + 1000].repeat(2, axis=1).repeat(2, axis=2)[:, None, 2:-2, 2:-2]
        found, logits = forward(network, wide.astype(np.float64))
        taps.append(found[-1].reshape(len(wide), -1))
        labels.append(logits.argmax(1))
    return np.concatenate(taps), np.concatenate(labels)


def frechet(one: np.ndarray, other: np.ndarray) -> float:
    """Frechet distance of two sets of features, as normal ones."""
    means = [x.mean(0) for x in (one, other)]
    spreads = [np.cov(x, rowvar=False) for x in (one, other)]
    values, vectors = np.linalg.eigh(spreads[0])
    root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    cross = np.sqrt(np.maximum(np.linalg.eigvalsh(root @ spreads[1] @ root), 0)).sum()
    return float(np.square(means[0] - means[1]).sum() + np.trace(spreads[0]) + np.trace(spreads[1]) - 2 * cross)


class Judge:
    """Judges a model by digits that it generates.

    Parameters
    ----------
    shapes : UNet
    net : FloatReading
        Of the UNet and its adapters.
    latents, digits : array
        Images that were not learnt.
    style : str, optional
        What turns them back before LeNet reads them.
    prompt : str
        Whose ``*`` stands for a digit.
    tell : callable
    """

    def __init__(
        self,
        shapes: UNet,
        net: FloatReading,
        latents: np.ndarray,
        digits: np.ndarray,
        *,
        style: str | None,
        prompt: str,
        tell: Progress,
    ) -> None:
        self.shapes, self.net, self.style, self.prompt, self.tell = shapes, net, style, prompt, tell
        images = pictures(latents)
        self.wanted = sorted(set(digits.tolist()))
        self.features, _ = read_digits(images)
        #: LeNet's accuracy on the images themselves, the bound of what generated ones can reach.
        self.accuracy = float((read_digits(plain(images, style))[1] == digits).mean())

    def digits(self, count: int) -> np.ndarray:
        """Digits to ask for, in turn."""
        return np.resize(self.wanted, count)

    def made(self, learnt: Values, digits: np.ndarray, what: str) -> np.ndarray:
        """Pictures of digits by the prompt; ``learnt``: weights of adapters."""
        with_values(self.net, learnt)
        words = shipped_prompts()
        prompts = np.stack([words.filled(self.prompt, int(digit)) for digit in digits])
        return generated(lambda data: self.net.run(data)[0], self.shapes, prompts, seed=0, tell=self.tell, what=what)

    def figures(self, images: np.ndarray, digits: np.ndarray) -> dict[str, float]:
        """Frechet distance to the images, and accuracy."""
        _, labels = read_digits(plain(images, self.style))
        return {
            "frechet": frechet(read_digits(images)[0], self.features),
            "accuracy_generated": float((labels == digits).mean()),
        }


def plot_grids(file: BinaryIO, grids: Mapping[str, np.ndarray], *, columns: int = 10) -> None:
    """Writes pictures ``[n, 16, 16]`` of each name as a grid, side by side."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4 * len(grids), 4 * _high(grids, columns)), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (name, images) in zip(figure.subplots(1, len(grids), squeeze=False)[0], grids.items()):
        axes.imshow(_joined(images, columns), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axes.set(xticks=[], yticks=[])
        axes.set_title(name, fontsize=10, loc="left")
    figure.savefig(file, format="png", dpi=100, metadata={"Software": None})


def _high(grids: Mapping[str, np.ndarray], columns: int) -> float:
    return max(-(-len(images) // columns) for images in grids.values()) / columns + 0.1


def _joined(images: np.ndarray, columns: int) -> np.ndarray:
    rows = -(-len(images) // columns)
    wide = np.zeros((rows * columns, SIDE + 1, SIDE + 1))
    wide[: len(images), :-1, :-1] = images
    return wide.reshape(rows, columns, SIDE + 1, SIDE + 1).transpose(0, 2, 1, 3).reshape(rows * (SIDE + 1), -1)
