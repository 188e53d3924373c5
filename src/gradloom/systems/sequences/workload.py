"""Fine-tunes of recurrent networks by InstantFT: options and defaults."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from gradloom.options import Bounds, option
from gradloom.plugins import Homes
from gradloom.systems.instant import InstantOptions, InstantWorkload

__all__ = ["SHIPPED", "SequenceOptions", "SequenceWorkload"]

#: Name of the networks that the shipped recordings come with.
SHIPPED = "spar-lstm"


@dataclass(frozen=True, kw_only=True)
class SequenceOptions(InstantOptions):
    """Options of a fine-tune of a recurrent network."""

    model: Path | str | None = option(
        "Quantised recurrent network: an .onnx file, or the folder of an import.",
        metavar="M",
        usual="the shipped one that has never seen the person",
        file=True,
        folder=True,
    )
    data: Path | str | None = option(
        "Sequences x_train, x_test (n, steps, channels) and classes y_train, y_test.",
        metavar="D.npz",
        usual="a person's shipped recordings",
        file=True,
    )
    person: int | None = option(
        "Person of the shipped recordings, whom the network has never seen.",
        usual="1 on shipped recordings",
        bounds=Bounds(1, 10),
    )
    base: Path | str | None = option(
        "Sequences x that the network was trained on: they fix the scales of the taps.",
        metavar="B.npz",
        usual="x_train of the data",
        file=True,
    )
    limit: int | None = option("Number of training sequences.", usual="all", bounds=Bounds(1))


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
            "finetune": "gradloom.systems.sequences.workload:SequenceOptions",
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
