"""Fine-tunes of any feed-forward network: options and defaults."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from gradloom.options import Bounds, option
from gradloom.plugins import Homes
from gradloom.systems.held_out import ClassOptions
from gradloom.workload import Workload

__all__ = ["NetworkOptions", "NetworkWorkload"]

#: Option of what a fine-tune and answers have in common.
SCALE = "Factor of the data; the network sees so many times each number."
#: The same of a fine-tune and a choice.
DATA = (
    "Samples x_train, x_test (n, ...) as the network takes them and y_train, y_test: classes (n), or values; or a "
    "folder with pictures train/CLASS/PICTURE and test/CLASS/PICTURE."
)
LOSS = (
    "What the data want: classes, by cross-entropy; labels from 0 to 1, by binary cross-entropy; values, by mean "
    "squared error."
)
#: The same of a fine-tune, answers and a plan.
PRECISE = (
    "Layers whose products take two codes of 8 bits: ends, the first and the last; or as targets are named; with "
    "inputs: before them their weights have one. auto: samples choose layers, for an eighth of the forward pass's "
    "cycles, or auto:CYCLES a sample."
)


@dataclass(frozen=True, kw_only=True)
class NetworkOptions(ClassOptions):
    """Options of a fine-tune of a network."""

    engine: str = option(
        "Engine of execution: rtl, compared with the reference; reference, the integers of the hardware; float.",
        "reference",
        choices=("rtl", "reference", "float"),
    )
    model: Path | str | None = option(
        "Network, an .onnx file.", metavar="M", needed="the .onnx file of the network", file=True
    )
    data: Path | str | None = option(DATA, metavar="D.npz|DIR", needed="samples to learn from", file=True, folder=True)
    scale: float | None = option(
        SCALE, usual="1, of bytes 1 / 255", metavar="F", bounds=Bounds(0, 1 << 16, open_low=True)
    )
    method: str = option(
        "What learns: lora, adapters beside layers; instantft, adapters from layers' inputs to the result; head, the "
        "last layer; bias, all biases; full, all weights.",
        "lora",
        choices=("lora", "instantft", "head", "bias", "full"),
    )
    targets: str | None = option(
        "Layers with an adapter, or that learn: linear, conv, last:N, or patterns of names, with commas between.",
        usual="last:2, of others all",
        metavar="T",
    )
    rank: int | None = option("Rank of the adapters.", bounds=Bounds(1, 64))
    alpha: float | None = option(
        "Alpha of the adapters; their product counts alpha / rank times.",
        usual="twice the rank",
        bounds=Bounds(0, 1 << 16, open_low=True),
    )
    loss: str | None = option(
        LOSS, usual="classes of integers, values of real numbers", choices=("classes", "labels", "values")
    )
    smoothing: float = option(
        "Share of the target that all classes have in equal parts.", 0.0, bounds=Bounds(0, 1, open_high=True)
    )
    decay: float = option("Weight decay of AdamW.", 0.0, bounds=Bounds(0, 1))
    precise: str | None = option(PRECISE, usual="none", metavar="T")
    batch: int | None = option("Samples in a step.", bounds=Bounds(1, 256))
    epochs: int | None = option("Number of epochs.", bounds=Bounds(1, 10_000))
    limit: int | None = option("Number of samples to learn from.", usual="all", bounds=Bounds(1))

    def check(self) -> Self:
        """Checks bounds, and that adapters' options are with adapters."""
        super().check()
        own = {"lora": ("targets", "rank", "alpha"), "instantft": ("targets", "rank"), "head": ()}
        for name in ("targets", "rank", "alpha"):
            if name not in own.get(self.method, ("targets",)) and (value := getattr(self, name)) is not None:
                raise ValueError(f"{name}={value}: must be left out with method={self.method}, it is of adapters")
        return self


@dataclass(frozen=True, kw_only=True)
class NetworkWorkload(Workload):
    """Fine-tunes of a network from an ONNX file, by AdamW.

    Parameters
    ----------
    rank : int
    lr : float
        Of AdamW.
    batch, epochs : int
    """

    kind: ClassVar = "networks"
    title: ClassVar = "networks from ONNX by LoRA, InstantFT, their last layer, biases or all weights"
    label: ClassVar = "networks"
    reads: ClassVar = "an ONNX file of a feed-forward network"
    methods: ClassVar = ("lora", "instantft", "head", "bias", "full", "none")
    takes: ClassVar = Homes(
        {
            "finetune": "gradloom.systems.networks.workload:NetworkOptions",
            "infer": "gradloom.systems.networks.requests:NetworkAnswers",
            "plan": "gradloom.systems.networks.requests:NetworkPlan",
            "choose": "gradloom.systems.networks.requests:NetworkChoice",
        }
    )
    functions: ClassVar = {
        "knows": "gradloom.systems.networks.known:known",
        "finetune": "gradloom.systems.networks.task:prepare",
        "infer": "gradloom.systems.networks.answer:infer",
        "plan": "gradloom.systems.networks.plan:plan",
        "choose": "gradloom.choosing.networks:choose_networks",
        "energy": "gradloom.sim.activity.runs:network_step",
    }
    codes: ClassVar = ("int8",)
    usual_codes: ClassVar = "int8"
    units: ClassVar[Mapping[str, str]] = {
        "loss": "cross-entropy in nats, or mean squared error, mean of a step",
        "saturated": "codes clipped, of the whole fine-tune",
        "stored": "codes made, of the whole fine-tune",
        "loss_before": "as the loss, of samples to judge by",
        "loss_after": "as the loss, of samples to judge by",
        "zeroed": "values other than zero whose code is zero, of the whole fine-tune",
    }

    rank: int = 4
    lr: float = 1e-3
    batch: int = 16
    epochs: int = 5

    def mesh(self, config: Any) -> tuple[int, int]:
        """See :class:`Workload`."""
        return config.array_rows, config.array_columns

    def resized(self, config: Any, rows: int, columns: int) -> dict[str, int]:
        """See :class:`Workload`."""
        return {"array_rows": rows, "array_columns": columns}
