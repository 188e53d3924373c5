"""Options of what is asked of sequences beside a fine-tune."""

from dataclasses import dataclass
from pathlib import Path

from gradloom.models.sequences import SPAR_STEPS
from gradloom.options import Bounds, Options, option
from gradloom.systems.ports import PortOptions

from .workload import RecordedOptions

__all__ = ["SequenceAnswers", "SequencePlan"]


@dataclass(frozen=True, kw_only=True)
class SequenceAnswers(RecordedOptions, PortOptions):
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
    rate: float | None = option(
        "Samples a second that arrive, with --stream and --engine rtl: more than the machine answers are refused.",
        metavar="HZ",
        usual="any",
        bounds=Bounds(0, 1e9, open_low=True),
    )
    design: Path | str | None = option(
        "Output folder of an earlier gradloom generate, to use its design.", metavar="DIR"
    )
    output: Path | str | None = option("Write labels, logits and states.", metavar="OUT.npz")


@dataclass(frozen=True, kw_only=True)
class SequencePlan(Options):
    """Options of a forecast of answers and of a fine-tune on sequences."""

    model: Path | str | None = option(
        "Quantised recurrent network: an .onnx file, or the folder of an import.",
        metavar="M",
        usual="the shipped one",
        file=True,
        folder=True,
    )
    steps: int | None = option("Steps of a sequence.", usual=f"{SPAR_STEPS}", bounds=Bounds(1, 65535))
    rank: int | None = option("Rank of the adapters.", bounds=Bounds(1, 16))
    samples: int | None = option("Number of training sequences.", usual="140", bounds=Bounds(1, 1 << 20))
