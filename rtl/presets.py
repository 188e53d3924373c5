"""Named configurations, each with the board it is for."""
from dataclasses import dataclass, field

from .config import Config

__all__ = ["Preset", "PRESETS"]


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A named configuration.

    Parameters
    ----------
    name, board, summary : str
    config : Config
    """

    name: str
    board: str
    summary: str
    config: Config = field(default_factory=Config)


PRESETS = {
    preset.name: preset
    for preset in (
        Preset(
            name="instantft-kv260",
            board="kv260",
            summary="InstantFT: convolutional networks with direct-to-output adapters and an NF4 forward cache",
        ),
    )
}
