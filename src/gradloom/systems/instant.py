"""Fine-tunes by InstantFT: adapters from taps straight to the logits."""

from dataclasses import dataclass
from typing import Any, ClassVar

from gradloom.options import Options
from gradloom.workload import Workload

__all__ = ["InstantWorkload"]


@dataclass(frozen=True, kw_only=True)
class InstantWorkload(Workload):
    """A fine-tune on the machine with the engines array, head and encode.

    Parameters
    ----------
    rank : int
    lr, momentum : float
        SGD on the mean loss of a batch.
    batch, epochs : int
    """

    codes: ClassVar = ("nf4", "int8")
    has_accuracy: ClassVar = True

    rank: int = 4
    lr: float
    momentum: float = 0.0
    batch: int
    epochs: int

    def settled(self, asked: Options) -> dict[str, Any]:
        """Rank, lr, momentum, batch and epochs as asked, or as usual."""
        return {
            name: getattr(self if getattr(asked, name) is None else asked, name)
            for name in ("rank", "lr", "momentum", "batch", "epochs")
        }

    def mesh(self, config: Any) -> tuple[int, int]:
        """See :class:`Workload`."""
        return config.rows, config.columns

    def resized(self, config: Any, rows: int, columns: int) -> dict[str, int]:
        """See :class:`Workload`."""
        if columns % config.rank:
            raise ValueError(f"mesh={rows}x{columns}: columns must be a multiple of {config.rank}, those of a panel")
        return {"rows": rows, "panels": columns // config.rank}
