"""Options of what is asked of language models beside a fine-tune."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from gradloom.options import Bounds, Options, check_request, option
from gradloom.systems.choice import ChoiceOptions
from gradloom.systems.ports import PortOptions

from .workload import HEAD, HEADS

__all__ = ["TextAnswers", "TextChoice", "TextPlan"]

_MODEL = "Language model: smollm2-135m, a file or a folder."


@dataclass(frozen=True, kw_only=True)
class TextAnswers(PortOptions):
    """Options of a text that a language model continues, here or on a board."""

    prompt: str | None = option("Start of the text.", needed="the text to continue")
    model: Path | str | None = option(_MODEL, metavar="M", usual="smollm2-135m")
    adapter: Path | str | None = option(
        "Output folder of a fine-tune, or a .gguf adapter; of a board start, with which its job began, kept, what it "
        "has stored last, or base, none.",
        metavar="DIR",
        usual="no adapter; of a board kept",
    )
    tokens: int = option("Tokens of the answer, at most.", 32, bounds=Bounds(1))
    top_k: int = option("Likeliest tokens, of which one is drawn; 1: no other.", 1, bounds=Bounds(1))
    temperature: float | None = option(
        "What divides the logits of a draw.", usual="1", bounds=Bounds(0, 1000, open_low=True)
    )
    seed: int | None = option("Seed of the draws.", usual="0", bounds=Bounds(0, 1 << 63))
    chat: bool = option("The prompt is a question, which the model's chat template puts.", False)
    head: str = option(HEAD, HEADS[0], choices=HEADS)
    engine: str | None = option(
        "Engine of execution: float; reference, the integers of the hardware; or rtl, compared with the reference.",
        choices=("rtl", "reference", "float"),
        usual="float; of a board its integers",
    )
    design: Path | str | None = option(
        "Output folder of an earlier gradloom generate, to use its design.", metavar="DIR"
    )

    def check(self) -> Self:
        """Checks bounds, what belongs to a draw, and that a board's head is its own."""
        super().check()
        if self.engine == "reference" and self.port is not None:
            check_request("with --port, whose board answers", needless={"engine": self.engine})
        if self.top_k == 1:
            check_request(
                "without top_k, since nothing is drawn", needless={"temperature": self.temperature, "seed": self.seed}
            )
        elif self.port is not None:
            check_request("with --port, whose board takes the likeliest", needless={"top_k": self.top_k})
        if self.port is not None and self.head != HEADS[0]:
            raise ValueError(f"head={self.head}: must be left out with --port, a board has the head of its card")
        return self


@dataclass(frozen=True, kw_only=True)
class TextPlan(Options):
    """Options of a plan of memory, traffic and time."""

    model: Path | str | None = option(_MODEL, metavar="M", usual="smollm2-135m")
    method: str | None = option(
        "What learns: qlora, adapters beside linear layers; lora-xs, a small matrix in each; layernorm, norms; ia3, "
        "factors of linear layers; instantft, adapters to the head.",
        usual="qlora",
    )
    rank: int | None = option("Rank of the adapters.", usual="8")
    targets: str | None = option(
        "Linear layers with an adapter: q,v or all or a list; or norms of layernorm.", usual="q,v, or all of a method"
    )
    seq: int = option("Tokens of a window of the text.", 64)
    bits: int = option("Bits of a frozen weight's code: 4, 3 or 2.", 4)
    optimizer: str = option("Optimiser of the adapters: sgd, adamw or lion.", "adamw")
    store: str = option("Format of stored adapters and moments: words, int8 or nf4.", "words")
    head: str = option("Format of the head: float16, or nf like the linear layers.", "float16")
    axi_bits: int | None = option("Bits that memory gives in a cycle.", usual="the machine's")
    from_layer: int = option("First layer with adapters, counted from 0.", 0, metavar="K")
    texts: int = option("Texts in memory, at most one a step.", 1)
    steps: int = option("Updates of the job.", 1)


@dataclass(frozen=True, kw_only=True)
class TextChoice(ChoiceOptions):
    """Options of a choice of layers, targets, rank, format and windows."""

    model: Path | str | None = option(_MODEL, metavar="M", usual="smollm2-135m")
    data: Path | str | None = option(
        "Text to learn from; a fifth of it is held out.", metavar="FILE", needed="a text file to learn from", file=True
    )
    steps: int | None = option(
        "Updates from a longest window each; others get as many as take the same number of tokens.",
        usual="3 times through the text, at most 100",
    )
    seq: str | None = option("Tokens of a window to choose from.", metavar="N,N,...", usual="64,32")
    jobs: int | None = option("Processes.", usual="as many as there are cores", bounds=Bounds(1))
