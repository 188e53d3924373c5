"""Options of what is asked of images beside a fine-tune."""

from dataclasses import dataclass
from pathlib import Path

from gradloom.options import Bounds, Options, option
from gradloom.systems.choice import ChoiceOptions
from gradloom.systems.ports import PortOptions

__all__ = ["ImageAnswers", "ImageChoice", "ImagePlan"]


@dataclass(frozen=True, kw_only=True)
class ImageAnswers(PortOptions):
    """Options of labels of images."""

    data: Path | str | None = option(
        "uint8 images x or x_test, (n, height, width) or (n, channels, height, width); labels y or y_test if there are "
        "any; or a folder of pictures, or of folders of classes.",
        metavar="D.npz|DIR",
        usual="shipped images",
        file=True,
        folder=True,
    )
    adapter: Path | str | None = option("Output folder of a fine-tune.", metavar="DIR", usual="no adapter")
    model: Path | str | None = option("Network, an .onnx file.", metavar="M", usual="the shipped one", file=True)
    angle: float | None = option("Degrees by which images are turned.", metavar="DEG", bounds=Bounds())
    limit: int | None = option("Number of images.", usual="all", bounds=Bounds(1))
    engine: str = option(
        "Engine of execution: reference, the integers of the hardware; float; or rtl, compared with the reference.",
        "reference",
        choices=("rtl", "reference", "float"),
    )
    design: Path | str | None = option(
        "Output folder of an earlier gradloom generate, to use its design.", metavar="DIR"
    )
    output: Path | str | None = option("Write labels and logits.", metavar="OUT.npz")


@dataclass(frozen=True, kw_only=True)
class ImagePlan(Options):
    """Options of a forecast of a fine-tune on images."""

    model: Path | str | None = option("Network, an .onnx file.", metavar="M", usual="the shipped one", file=True)
    rank: int | None = option("Rank of the adapters.", bounds=Bounds(1, 16))
    samples: int | None = option("Number of training images.", bounds=Bounds(1, 1 << 20))


@dataclass(frozen=True, kw_only=True)
class ImageChoice(ChoiceOptions):
    """Options of a choice of rank and forward cache."""

    model: Path | str | None = option("Network, an .onnx file.", metavar="M", usual="the shipped one", file=True)
    data: Path | str | None = option(
        "uint8 images x_train, x_test and labels y_train, y_test; a fifth of x_train is held out, and x_test is not "
        "looked at; or a folder as for a fine-tune.",
        metavar="D.npz|DIR",
        needed="the images to learn from",
        file=True,
        folder=True,
    )
