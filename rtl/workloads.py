"""Fine-tunes that presets for images run unless options say otherwise: data, steps and rates."""
from dataclasses import dataclass

__all__ = ["DIGITS", "LENET5", "ImageWorkload"]


@dataclass(frozen=True, kw_only=True)
class ImageWorkload:
    """A fine-tune of a shipped network on shipped images.

    The forecast, the command line, the Python functions and the board's memory image take their defaults from here.

    Parameters
    ----------
    network : str
        Name of the shipped network.
    samples, judged : int
        Images to learn from, and other images that judge the result.
    degrees : float
        Angle by which the images are turned.
    rank : int
    lr, momentum : float
        SGD on the mean loss of a batch.
    batch, epochs : int
    shuffled : bool
        Whether each epoch visits the images in a random order of its own; otherwise in the order of the data.
    """

    network: str
    samples: int
    judged: int
    degrees: float = 90
    rank: int = 4
    lr: float
    momentum: float = 0.0
    batch: int
    epochs: int
    shuffled: bool = True


LENET5 = ImageWorkload(network="lenet5", samples=1024, judged=8976, lr=0.05, batch=20, epochs=10)
#: On the chip alone: a batch is a block of its memory, and blocks come in order. The figures are those of the preset's
#: own array; :func:`~.plan.images.digits.workload_on` has another design's.
DIGITS = ImageWorkload(network="digits", samples=96, judged=48, lr=0.07, batch=8, epochs=40, shuffled=False)
