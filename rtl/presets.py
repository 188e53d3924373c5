"""Named configurations, each with the board it is for."""
from dataclasses import dataclass, field
from typing import Any

from .config import Config, LinearConfig
from .workloads import DIGITS, LENET5, ImageWorkload

__all__ = ["Preset", "PRESETS", "find_language"]


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A named configuration.

    Parameters
    ----------
    name, board, summary : str
    workload : ImageWorkload
        Of a preset for images: what is forecast, and what a fine-tune does unless options say otherwise.
    config : Config or LinearConfig
        Of an accelerator for images, or for a language model.
    method : str
        How a language model learns: ``qlora``, or ``instantft``, with adapters from every block to the head and a cache
        of what they read.
    """

    name: str
    board: str
    summary: str
    config: Any = field(default_factory=Config)
    workload: ImageWorkload = LENET5
    method: str = "qlora"

    @property
    def language(self) -> bool:
        """Whether it is for language models, and not for images."""
        return isinstance(self.config, LinearConfig)


PRESETS = {
    preset.name: preset
    for preset in (
        Preset(
            name="instantft-kv260",
            board="kv260",
            summary="InstantFT: convolutional networks with direct-to-output adapters and an NF4 forward cache",
        ),
        Preset(
            name="edge-qlora-genesys2",
            board="genesys2",
            summary="QLoRA: a language model's adapters beside NF4 linears; whole training steps on the accelerator",
            config=LinearConfig(),
        ),
        Preset(
            name="instantft-llm-genesys2",
            board="genesys2",
            summary="InstantFT: a language model's adapters from every block to the head, learnt from a forward cache",
            config=LinearConfig(),
            method="instantft",
        ),
        Preset(
            name="digits-ulx3s",
            board="ulx3s",
            workload=DIGITS,
            summary="InstantFT, small and alone on the chip: at power-up an adapter learns 8x8 digits that lie in it",
            config=Config(
                rows=4, panels=2, rank=2, kernel=2, width=8, positions=64, taps=8, adapter_depth=256,
                weight_depth=2048, bias_depth=16, feature_depth=64, image_depth=128, dense_depth=256, blocks=4,
                cache_slots=64, queue_depth=4, outstanding=2, address_bits=32, clock_mhz=75, activation_bits=18),
        ),
    )
}


def find_language(board: str, method: str) -> Preset | None:
    """The preset that fine-tunes language models by ``method`` on a board, if there is one."""
    return next((each for each in PRESETS.values()
                 if each.language and (each.board, each.method) == (board, method)), None)
