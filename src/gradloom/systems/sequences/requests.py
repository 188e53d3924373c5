"""Options of what is asked of sequences beside a fine-tune."""

from dataclasses import dataclass
from pathlib import Path

from gradloom.options import Bounds, option

from .workload import RecordedOptions

__all__ = ["SequenceAnswers"]


@dataclass(frozen=True, kw_only=True)
class SequenceAnswers(RecordedOptions):
    """Options of answers of a recurrent network."""

    data: Path | str | None = option(
        "Sequences x (n, steps, channels), or tokens (n, steps), and classes y if there are any; or a folder of CSV or "
        "WAV files.",
        metavar="D",
        usual="with an adapter that learnt on shipped recordings, those to judge by",
        file=True,
        folder=True,
    )
    adapter: Path | str | None = option("Output folder of a fine-tune.", metavar="DIR", usual="no adapter")
    model: Path | str | None = option(
        "Quantised recurrent network: an .onnx file, or the folder of an import.",
        metavar="M",
        usual="the adapter's",
        file=True,
        folder=True,
    )
    limit: int | None = option("Number of sequences.", usual="all", bounds=Bounds(1))
    engine: str = option(
        "Engine of execution: reference, the integers of the hardware; float; or rtl, compared with the reference.",
        "reference",
        choices=("rtl", "reference", "float"),
    )
    stream: bool = option("Keep the state from one sequence to the next; answer after each step.", False)
    design: Path | str | None = option(
        "Output folder of an earlier gradloom generate, to use its design.", metavar="DIR"
    )
    output: Path | str | None = option("Write labels, logits and states.", metavar="OUT.npz")
