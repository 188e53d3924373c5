"""Fine-tunes of diffusion models by LoRA: options and defaults."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from gradloom.options import Bounds, option
from gradloom.plugins import Homes
from gradloom.systems.held_out import HeldOutOptions
from gradloom.workload import Workload

__all__ = ["DiffusionOptions", "DiffusionWorkload"]


@dataclass(frozen=True, kw_only=True)
class DiffusionOptions(HeldOutOptions):
    """Options of a fine-tune of a diffusion model."""

    engine: str = option(
        "Engine of execution: rtl, compared with the reference; reference, the integers of the hardware; float.",
        "reference",
        choices=("rtl", "reference", "float"),
    )
    style: str | None = option(
        "What is done to the shipped digits.", usual="rot90 of shipped digits", choices=("rot90", "invert", "shear")
    )
    data: Path | str | None = option(
        "Images x_train, x_test (n, 28, 28) and digits y_train, y_test.",
        metavar="D.npz",
        usual="256 shipped digits, in a style",
        file=True,
    )
    prompt: str = option(
        "Prompt of the images; * is the image's digit. With a digit in place of *, only its images are learnt.",
        "a sks * .",
    )
    rank: int | None = option("Rank of the adapters.", choices=(1, 2, 4, 8, 16, 32))
    targets: str = option("Layers with an adapter.", "cross-attention", choices=("cross-attention", "attention", "all"))
    adapter: Path | str | None = option("Adapter of diffusers to start from.", metavar="DIR")
    alpha: float | None = option(
        "Alpha of the adapter to start from.",
        usual="the file's, else the rank",
        bounds=Bounds(0, 1 << 16, open_low=True),
    )
    steps: int = option("Updates of the adapters.", 200, bounds=Bounds(1, 100_000))
    batch: int | None = option("Images in a step.", bounds=Bounds(1, 64))
    generate: int = option(
        "Digits to generate before and after, to be judged; 0: none.", 1000, bounds=Bounds(0, 10_000)
    )


@dataclass(frozen=True, kw_only=True)
class DiffusionWorkload(Workload):
    """The shipped diffusion model of digits learns a style.

    Parameters
    ----------
    rank : int
    lr : float
        Of AdamW.
    batch, samples, judged : int
        Images in a step, images to learn from, images to judge by.
    """

    kind: ClassVar = "diffusion-lora"
    title: ClassVar = "diffusion models by LoRA"
    reads: ClassVar = "digits-unet, the shipped UNet"
    label: ClassVar = "diffusion"
    takes: ClassVar = Homes(
        {
            "finetune": "gradloom.systems.diffusion.workload:DiffusionOptions",
            "infer": "gradloom.systems.diffusion.requests:Pictures",
            "plan": "gradloom.systems.diffusion.requests:DiffusionPlan",
        }
    )
    functions: ClassVar = {
        "knows": "gradloom.systems.diffusion.known:known",
        "finetune": "gradloom.systems.diffusion.task:prepare",
        "infer": "gradloom.systems.diffusion.answer:infer",
        "plan": "gradloom.systems.diffusion.plan:plan",
        "energy": "gradloom.sim.activity.runs:diffusion_step",
        "measure": "gradloom.sweeping.points:of_diffusion",
    }
    codes: ClassVar = ("int8",)
    usual_codes: ClassVar = "int8"
    units: ClassVar[Mapping[str, str]] = {
        "loss": "mean squared error of the noise, mean of a step",
        "held_out_before": "mean squared error of the noise, images to judge by",
        "held_out_after": "mean squared error of the noise, images to judge by",
        "held_out_losses": "mean squared error of the noise, images to judge by, after a number of steps",
        "loss_before": "mean squared error of the noise, images to judge by",
        "loss_after": "mean squared error of the noise, images to judge by",
        "own_loss_before": "the same by the engine's own arithmetic",
        "own_loss_after": "the same by the engine's own arithmetic",
        "first_epoch.loss": "mean squared error of the noise",
        "last_epoch.loss": "mean squared error of the noise",
        "accuracy_generated": "share of generated digits that LeNet reads as asked",
        "frechet": "Frechet distance of LeNet's 84 features, generated digits to digits to judge by",
        "saturated": "codes clipped, of the whole fine-tune",
        "last_epoch.saturated": "codes clipped, of the last epoch's steps",
        "last_epoch.words": "codes made by the last epoch's steps",
        "stored": "codes made, of the whole fine-tune",
        "zeroed": "values other than zero whose code is zero, of the whole fine-tune",
        "memory_bytes": "bytes of a step",
        "memory_bytes_float32": "bytes of a step with all values in float32",
    }

    rank: int = 8
    lr: float = 3e-3
    batch: int = 16
    samples: int = 256
    judged: int = 512

    @property
    def ships(self) -> str:
        """See :class:`Workload`."""
        return "digits-unet"

    def mesh(self, config: Any) -> tuple[int, int]:
        """See :class:`Workload`."""
        return config.array_rows, config.array_columns

    def resized(self, config: Any, rows: int, columns: int) -> dict[str, int]:
        """See :class:`Workload`."""
        return {"array_rows": rows, "array_columns": columns}
