"""Fine-tunes by InstantFT: adapters from taps straight to the logits."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypedDict

from gradloom.options import Bounds, option
from gradloom.systems.held_out import ClassOptions
from gradloom.systems.rates import SCHEDULES
from gradloom.workload import Workload

if TYPE_CHECKING:
    import numpy as np

__all__ = ["InstantOptions", "InstantSettled", "InstantWorkload"]


@dataclass(frozen=True, kw_only=True)
class InstantOptions(ClassOptions):
    """Options of every fine-tune by InstantFT."""

    model: Path | str | None = option("Network, an .onnx file.", metavar="M", usual="the shipped one", file=True)
    rank: int | None = option("Rank of the adapters.", bounds=Bounds(1, 16))
    data: Path | str | None = option("Samples and labels.", metavar="D.npz", usual="shipped ones", file=True)
    momentum: float | None = option("Momentum of the velocity; 0: plain SGD.", bounds=Bounds(0, 1, open_high=True))
    schedule: str | None = option("Learning rate from step to step.", choices=SCHEDULES)
    batch: int | None = option("Samples in a step.", bounds=Bounds(1, 65535))
    epochs: int | None = option("Number of epochs.", bounds=Bounds(1, 10000))
    limit: int | None = option("Number of training samples; the others are judged.", usual="all", bounds=Bounds(1))
    cache: str = option("Format of the forward cache.", "nf4", choices=("nf4", "int8"))

    def check(self) -> Self:
        """Checks bounds, and that the engine can stop early."""
        super().check()
        if self.patience and self.engine == "rtl":
            raise ValueError(
                f"patience={self.patience}: must be 0 with --engine rtl, whose program makes all epochs from one bell; "
                f"give --engine reference, and then its epochs"
            )
        return self

    def factors(self, labels: "np.ndarray", classes: int) -> "np.ndarray | None":
        """Factor of the gradient of each sample; None: no sample has one."""
        import numpy as np

        weights = self.weights(labels, classes)
        return None if weights is None else np.asarray(weights)[labels]


class InstantSettled(TypedDict):
    """How a fine-tune learns."""

    rank: int
    lr: float
    momentum: float
    schedule: str
    batch: int
    epochs: int


@dataclass(frozen=True, kw_only=True)
class InstantWorkload(Workload):
    """A fine-tune on the machine with the engines array, head and encode.

    Parameters
    ----------
    rank : int
    lr, momentum : float
        SGD on the mean loss of a batch.
    schedule : str
        How the rate changes: see :class:`~.rates.Schedule`.
    batch, epochs : int
    """

    codes: ClassVar = ("nf4", "int8")
    has_accuracy: ClassVar = True
    methods: ClassVar = ("instantft",)

    rank: int = 4
    lr: float
    momentum: float = 0.0
    schedule: str = "constant"
    batch: int
    epochs: int

    def settled(self, asked: InstantOptions) -> InstantSettled:
        """Rank, lr, momentum, schedule, batch and epochs as asked, or as usual."""
        return InstantSettled(
            rank=self.rank if asked.rank is None else asked.rank,
            lr=self.lr if asked.lr is None else asked.lr,
            momentum=self.momentum if asked.momentum is None else asked.momentum,
            schedule=self.schedule if asked.schedule is None else asked.schedule,
            batch=self.batch if asked.batch is None else asked.batch,
            epochs=self.epochs if asked.epochs is None else asked.epochs,
        )

    def mesh(self, config: Any) -> tuple[int, int]:
        """See :class:`Workload`."""
        return config.rows, config.columns

    def resized(self, config: Any, rows: int, columns: int) -> dict[str, int]:
        """See :class:`Workload`."""
        if columns % config.rank:
            raise ValueError(f"mesh={rows}x{columns}: columns must be a multiple of {config.rank}, those of a panel")
        return {"rows": rows, "panels": columns // config.rank}
