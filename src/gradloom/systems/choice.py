"""Options of every choice of what learns: budgets and a seed."""

from dataclasses import dataclass
from pathlib import Path

from gradloom.options import Bounds, Options, option

__all__ = ["ChoiceOptions"]


@dataclass(frozen=True, kw_only=True)
class ChoiceOptions(Options):
    """Budgets of a choice."""

    time: str | None = option("Most time of the whole fine-tune; us, ms, s, min or h.", metavar="10s")
    memory: str | None = option("Most memory, the frozen model included; kB, MB, GB, MiB.", metavar="300MB")
    update: str | None = option("Largest adapter to ship, float32; kB, MB, GB.", metavar="300kB")
    output: Path | str = option(
        "Output folder; an unfinished choice there goes on.", "choose", metavar="DIR", result=False
    )
    seed: int = option("Seed of the adapters.", 0, bounds=Bounds(0, 1 << 63))
