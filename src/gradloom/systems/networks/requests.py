"""Options of what is asked of networks beside a fine-tune."""

from dataclasses import dataclass
from pathlib import Path

from gradloom.options import Bounds, Options, option
from gradloom.systems.choice import ChoiceOptions

from .workload import DATA, LOSS, PRECISE, SCALE

__all__ = ["NetworkAnswers", "NetworkChoice", "NetworkPlan"]


@dataclass(frozen=True, kw_only=True)
class NetworkAnswers(Options):
    """Options of answers of a network."""

    model: Path | str | None = option(
        "Network, an .onnx file.", metavar="M", needed="the .onnx file of the network", file=True
    )
    data: Path | str | None = option(
        "Samples x or x_test, and y or y_test if there are any; or a folder of pictures, or of folders of classes.",
        metavar="D.npz|DIR",
        needed="samples to answer",
        file=True,
        folder=True,
    )
    scale: float | None = option(
        SCALE, usual="1, of bytes 1 / 255", metavar="F", bounds=Bounds(0, 1 << 16, open_low=True)
    )
    adapter: Path | str | None = option("Output folder of a fine-tune.", metavar="DIR", usual="none")
    loss: str | None = option(
        LOSS,
        usual="the adapter's, else classes of integers, values of real numbers",
        choices=("classes", "labels", "values"),
    )
    limit: int | None = option("Number of samples.", usual="all", bounds=Bounds(1))
    precise: str | None = option(PRECISE, usual="none, with an adapter its own", metavar="T")
    batch: int = option("Samples that share tiles.", 16, bounds=Bounds(1, 256))
    engine: str = option(
        "Engine of execution: reference, the integers of the hardware; float; or rtl, compared with the reference.",
        "reference",
        choices=("rtl", "reference", "float"),
    )
    output: Path | str | None = option("Write answers.", metavar="OUT.npz")


@dataclass(frozen=True, kw_only=True)
class NetworkPlan(Options):
    """Options of a plan of a step of training, or of the forward pass alone."""

    model: Path | str | None = option(
        "Network, an .onnx file.", metavar="M", needed="the .onnx file of the network", file=True
    )
    method: str = option(
        "What learns, as in a fine-tune; none: the forward pass.",
        "lora",
        choices=("lora", "instantft", "head", "bias", "full", "none"),
    )
    targets: str | None = option("Layers with an adapter, or that learn.", usual="last:2, of others all", metavar="T")
    rank: int | None = option("Rank of the adapters.", bounds=Bounds(1, 64))
    loss: str = option(
        "What the data want: classes, labels, or values.", "classes", choices=("classes", "labels", "values")
    )
    precise: str | None = option(PRECISE, usual="none", metavar="T")
    batch: int | None = option("Samples in a step.", bounds=Bounds(1, 256))


@dataclass(frozen=True, kw_only=True)
class NetworkChoice(ChoiceOptions):
    """Options of a choice of what learns in a network."""

    model: Path | str | None = option(
        "Network, an .onnx file.", metavar="M", needed="the .onnx file of the network", file=True
    )
    data: Path | str | None = option(
        f"{DATA} A fifth of x_train is held out, and x_test is not looked at.",
        metavar="D.npz|DIR",
        needed="samples to learn from",
        file=True,
        folder=True,
    )
    scale: float | None = option(
        SCALE, usual="1, of bytes 1 / 255", metavar="F", bounds=Bounds(0, 1 << 16, open_low=True)
    )
    loss: str | None = option(
        LOSS, usual="classes of integers, values of real numbers", choices=("classes", "labels", "values")
    )
