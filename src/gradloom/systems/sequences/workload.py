"""Fine-tunes of recurrent networks by InstantFT: defaults."""

from dataclasses import dataclass
from typing import ClassVar

from gradloom.plugins import Homes
from gradloom.systems.instant import InstantWorkload

__all__ = ["SHIPPED", "SequenceWorkload"]

#: Name of the networks that the shipped recordings come with.
SHIPPED = "spar-lstm"


@dataclass(frozen=True, kw_only=True)
class SequenceWorkload(InstantWorkload):
    """A recurrent network answers, and learns a person's recordings.

    Parameters
    ----------
    rank : int
    lr, momentum : float
        SGD on the mean loss of a batch.
    batch, epochs : int
    """

    kind: ClassVar = "sequences-instantft"
    title: ClassVar = "recurrent networks by InstantFT"
    label: ClassVar = "sequences"
    reads: ClassVar = "an ONNX file of a quantised recurrent network, or the folder of an import"
    takes: ClassVar = Homes(
        {
            "finetune": "gradloom.systems.sequences.requests:SequenceOptions",
            "infer": "gradloom.systems.sequences.requests:SequenceAnswers",
        }
    )
    functions: ClassVar = {
        "finetune": "gradloom.systems.sequences.task:prepare",
        "knows": "gradloom.systems.sequences.known:known",
        "infer": "gradloom.systems.sequences.answers:infer",
        "sizes": "gradloom.systems.sequences.answers:sizes",
        "energy": "gradloom.sim.activity.runs:finetune",
    }

    lr: float = 0.04
    momentum: float = 0.9
    batch: int = 20
    epochs: int = 30

    @property
    def ships(self) -> str:
        """See :class:`Workload`."""
        return SHIPPED
