"""Fine-tunes of images by InstantFT: options and defaults."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from gradloom.options import Bounds, option
from gradloom.plugins import Homes
from gradloom.systems.instant import InstantOptions, InstantWorkload

__all__ = ["DIGITS", "LENET5", "ImageOptions", "ImageWorkload"]


@dataclass(frozen=True, kw_only=True)
class ImageOptions(InstantOptions):
    """Options of a fine-tune on images."""

    data: Path | str | None = option(
        "uint8 images x_train, x_test, scaled by 1 / 255, and labels y_train, y_test; or a folder with pictures "
        "train/CLASS/PICTURE and test/CLASS/PICTURE.",
        metavar="D.npz|DIR",
        usual="shipped digits",
        file=True,
        folder=True,
    )
    angle: float | None = option(
        "Degrees by which images are turned.", metavar="DEG", usual="90 on shipped data", bounds=Bounds()
    )
    limit: int | None = option("Number of training images; the others are judged.", usual="all", bounds=Bounds(1))
    cache: str = option(
        "Format of the forward cache; none: activations are computed in each epoch.",
        "nf4",
        choices=("nf4", "int8", "none"),
    )


@dataclass(frozen=True, kw_only=True)
class ImageWorkload(InstantWorkload):
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
    shuffled : bool
        Whether each epoch visits the images in a random order of its own; otherwise in the order of the data.
    """

    kind: ClassVar = "images-instantft"
    title: ClassVar = "images by InstantFT"
    label: ClassVar = "images"
    reads: ClassVar = "an ONNX file of a convolutional network"
    takes: ClassVar = Homes(
        {
            "finetune": "gradloom.systems.images.workload:ImageOptions",
            "infer": "gradloom.systems.images.requests:ImageAnswers",
            "plan": "gradloom.systems.images.requests:ImagePlan",
            "choose": "gradloom.systems.images.requests:ImageChoice",
        }
    )
    functions: ClassVar = {
        "finetune": "gradloom.systems.images.task:prepare",
        "alone": "gradloom.systems.images.alone:prepare",
        "judge": "gradloom.systems.images.answer:judge",
        "knows": "gradloom.systems.images.known:known",
        "unfit": "gradloom.systems.images.known:unfit",
        "infer": "gradloom.systems.images.answer:infer",
        "plan": "gradloom.systems.images.expectation:plan",
        "choose": "gradloom.choosing.images:choose_images",
        "expectation": "gradloom.systems.images.expectation:expectation",
        "measure": "gradloom.sweeping.points:of_images",
        "energy": "gradloom.sim.activity.runs:finetune",
        "sizes": "gradloom.systems.images.sizes_for:sizes",
        "power_up": "gradloom.systems.images.program.digits:digits_plan",
    }

    network: str
    samples: int
    judged: int
    degrees: float = 90
    shuffled: bool = True

    @property
    def ships(self) -> str:
        """See :class:`Workload`."""
        return self.network


LENET5 = ImageWorkload(network="lenet5", samples=1024, judged=8976, lr=0.05, batch=20, epochs=10)
#: On the chip alone: a batch is a block of its memory, and blocks come in order. The figures are those of the preset's
#: own array; :func:`~gradloom.systems.images.task.workload_on` has another design's.
DIGITS = ImageWorkload(network="digits", samples=96, judged=48, lr=0.07, batch=8, epochs=40, shuffled=False)
