"""Fine-tunes of recurrent networks by InstantFT: options and defaults."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from gradloom.options import Bounds, Options, option
from gradloom.plugins import Homes
from gradloom.systems.instant import InstantOptions, InstantWorkload

if TYPE_CHECKING:
    from gradloom.models.recordings import Cut

__all__ = ["SHIPPED", "RecordedOptions", "SequenceOptions", "SequenceWorkload"]

#: Name of the networks that the shipped recordings come with.
SHIPPED = "spar-lstm"


@dataclass(frozen=True, kw_only=True)
class RecordedOptions(Options):
    """How a folder's recordings become sequences."""

    window: int | None = option(
        "Steps of a sequence that is cut out of a folder's recordings.", usual="a whole recording", bounds=Bounds(1)
    )
    hop: int | None = option("Steps from one window to the next.", usual="window", bounds=Bounds(1))
    columns: str | None = option("Columns of a folder's CSV files.", metavar="NAME,…", usual="all")
    sound: str | None = option(
        "Features of a folder's WAV files: logmel or mfcc, with constants that differ from "
        "rate=16000,window=30,hop=20,mels=40,low=20,high=4000,coefficients=10 (Hz, ms).",
        metavar="KIND[,NAME=N]…",
        usual="its files are CSV",
    )

    def cut(self, learnt: Mapping[str, Any] | None = None) -> "Cut":
        """The options as the reader takes them.

        ``learnt``: a fine-tune's request, which holds where no option is given.
        """
        from gradloom.models.recordings import Cut

        own = {name: getattr(self, name) for name in RecordedOptions.known()}
        if learnt is not None and not any(value is not None for value in own.values()):
            own = {name: learnt.get(name) for name in own}
        return Cut(**own)


@dataclass(frozen=True, kw_only=True)
class SequenceOptions(RecordedOptions, InstantOptions):
    """Options of a fine-tune of a recurrent network."""

    model: Path | str | None = option(
        "Quantised recurrent network: an .onnx file, or the folder of an import.",
        metavar="M",
        usual="the shipped one that has never seen the person",
        file=True,
        folder=True,
    )
    data: Path | str | None = option(
        "Sequences x_train, x_test (n, steps, channels) and classes y_train, y_test; or a folder with CSV or WAV "
        "files in train/CLASS and test/CLASS.",
        metavar="D",
        usual="a person's shipped recordings",
        file=True,
        folder=True,
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
            "plan": "gradloom.systems.sequences.requests:SequencePlan",
        }
    )
    functions: ClassVar = {
        "finetune": "gradloom.systems.sequences.task:prepare",
        "judge": "gradloom.systems.sequences.adapted:judge",
        "knows": "gradloom.systems.sequences.known:known",
        "infer": "gradloom.systems.sequences.answers:infer",
        "held": "gradloom.systems.sequences.sizes_for:held",
        "plan": "gradloom.systems.sequences.plan:plan",
        "sizes": "gradloom.systems.sequences.sizes_for:sizes",
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
