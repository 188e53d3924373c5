"""Options of what is asked of diffusion models beside a fine-tune."""

from dataclasses import dataclass
from pathlib import Path

from gradloom.options import Bounds, Options, option

__all__ = ["DiffusionPlan", "Pictures"]


@dataclass(frozen=True, kw_only=True)
class Pictures(Options):
    """Options of pictures of a prompt."""

    prompt: str | None = option("Prompt; * stands for the digits 0 to 9 in turn.", needed="what the pictures show")
    output: Path | str | None = option("Picture to write.", metavar="GRID.png", needed="the .png file to write")
    adapter: Path | str | None = option(
        "Output folder of a fine-tune, or a file of diffusers.", metavar="DIR", usual="no adapter"
    )
    alpha: float | None = option("Alpha of the adapter.", usual="the file's, else the rank", bounds=Bounds())
    count: int = option("Number of pictures.", 20, bounds=Bounds(1, 400))
    steps: int = option("Steps of the sampler.", 25, bounds=Bounds(1, 1000))
    seed: int = option("Seed of the noise.", 0, bounds=Bounds(0, 1 << 63))
    engine: str = option(
        "Engine of execution: float; reference, the integers of the hardware; or rtl, compared with the reference.",
        "float",
        choices=("rtl", "reference", "float"),
    )

    def check(self) -> "Pictures":
        """Checks bounds, and that an alpha is an adapter's."""
        super().check()
        if self.alpha is not None and self.adapter is None:
            raise ValueError(f"alpha={self.alpha:g}: must be left out, it is an adapter's")
        return self


@dataclass(frozen=True, kw_only=True)
class DiffusionPlan(Options):
    """Options of a plan of a diffusion model's LoRA step."""

    model: str | None = option("sd-v1.5, or a configuration of diffusers' UNet2DConditionModel.", metavar="M")
    only: str = option("Products: all, cross-attention, or a part with its forecast, as down_blocks.0.", "all")
    forecast: bool = option("Programs of the whole step, and their forecast; of sd-v1.5 about an hour.", False)
    array: str | None = option("Rows and columns of the array.", metavar="ROWSxCOLS", usual="the preset's: 64x32")
    batch: int = option("Images a step.", 1)
    known_prompt: bool = option("Products with frozen weights of the prompt are kept.", False)
    rank: int = option("Rank of the adapters.", 8)
    targets: str = option("Layers with an adapter: cross-attention, attention or all.", "cross-attention")
    seq: int | None = option("Tokens of the prompt.", usual="77; of the shipped UNet its own")
