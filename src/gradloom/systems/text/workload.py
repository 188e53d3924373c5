"""Options of fine-tunes of language models."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from gradloom.options import Bounds, Options, option
from gradloom.workload import Workload

__all__ = [
    "METHODS",
    "InstantTextOptions",
    "InstantTextWorkload",
    "QLoraOptions",
    "QLoraWorkload",
    "TextOptions",
    "TextWorkload",
]

#: Methods of QLoRA's presets: the names of ``METHODS`` of models/adapters/methods.py, which is not quick to import.
METHODS = ("lora", "lora-xs", "layernorm", "ia3")
#: Those whose adapters have a rank.
RANKED = ("lora", "lora-xs")


@dataclass(frozen=True, kw_only=True)
class TextOptions(Options):
    """Options of a fine-tune of a language model."""

    model: Path | str = option("Language model: smollm2-135m, a file or a folder.", "smollm2-135m", metavar="M")
    rank: int | None = option("Rank of the adapters.", bounds=Bounds(1, 64))
    lr: float | None = option("Learning rate.", usual="0.001, with sgd 0.1", bounds=Bounds(0, 16, open_low=True))
    engine: str = option("Engine of execution.", "reference", choices=("rtl", "reference", "float"))
    text: Path | str | None = option(
        "Text to learn from.", metavar="FILE", needed="a text file to learn from", file=True
    )
    adapter: Path | str | None = option("PEFT adapter to start from.", metavar="DIR")
    optimizer: str = option("Optimiser of the adapters.", "adamw", choices=("adamw", "sgd"))
    steps: int = option("Updates of the adapters.", 8, bounds=Bounds(1, 100_000))
    seq: int = option("Tokens of a window of the text; tokens after the last whole window are not used.", 64)
    keep: int = option(
        "Steps between checkpoints in the output folder; 0: none.",
        1,
        metavar="N",
        result=False,
        bounds=Bounds(0, 100_000),
    )
    resume: bool = option("Continue the interrupted fine-tune in the output folder.", False, result=False)
    layers: int | None = option("Number of layers, from the first.", metavar="N", usual="all", bounds=Bounds(1))


@dataclass(frozen=True, kw_only=True)
class QLoraOptions(TextOptions):
    """Options of QLoRA."""

    method: str = option(
        "What learns: lora, adapters beside linear layers; lora-xs, a small matrix in each; layernorm, norms; ia3, "
        "factors of linear layers.",
        METHODS[0],
        choices=METHODS,
    )
    accumulate: int = option("Texts whose gradients are added for an update.", 1, metavar="N", bounds=Bounds(1, 256))
    targets: str | None = option(
        "Linear layers with an adapter: q,v or all or a list; or norms of layernorm.", usual="q,v, or all of a method"
    )
    from_layer: int | None = option(
        "First layer with adapters, counted from 0; the input of this layer is kept for each text.",
        metavar="K",
        usual="0",
    )
    store: str = option("Format of adapters and moments between steps.", "words", choices=("words", "int8", "nf4"))
    deploy: str = option(
        "Grid towards which the adapter is trained: int8 or nf4, as packages of 8 and 4 bits have it, or q8_0, merged "
        "into weights of GGUF.",
        "none",
        choices=("none", "int8", "nf4", "q8_0"),
    )
    held_out: Path | str | None = option(
        "Text to judge by, which is not learnt; with --card a board tries adapters on it that are installed.",
        metavar="FILE",
        file=True,
    )
    card: bool = option("Write a memory card with which the board runs the fine-tune without a host.", False)
    card_steps: int = option(
        "Steps after which a board stores on its card what it has learnt; 0: time alone.",
        0,
        metavar="N",
        bounds=Bounds(0, 100_000),
    )
    card_seconds: float = option(
        "Seconds after which it does; 0: steps alone.", 60.0, metavar="S", bounds=Bounds(0, 1_000_000)
    )
    stop_steps: int = option(
        "Steps after power-up, then a board stores and stops; 0: no limit.", 0, metavar="N", bounds=Bounds(0, 100_000)
    )
    stop_seconds: float = option(
        "Seconds after power-up, then it does; 0: no limit.", 0.0, metavar="S", bounds=Bounds(0, 1_000_000)
    )

    pause_celsius: float = option(
        "Degrees of the chip above which a board stores and pauses, until it is 5 cooler; 0: no limit.",
        0.0,
        metavar="C",
        bounds=Bounds(0, 125),
    )
    answer: bool = option("With --card: the board answers prompts by its UART meanwhile.", False)

    def check(self) -> Self:
        """Checks bounds, and combinations of options."""
        super().check()
        if self.answer and not self.card:
            raise ValueError("answer=True: must be left out, or give --card: a board answers prompts of its card's job")
        if self.store != "words" and (self.engine == "float" or self.accumulate > 1 or self.card):
            raise ValueError(f"store={self.store}: must be words with --engine float, --accumulate or --card")
        if self.method != METHODS[0]:
            for name, usual in (("rank", None), ("store", "words"), ("card", False)):
                if getattr(self, name) != usual and not (name == "rank" and self.method in RANKED):
                    raise ValueError(
                        f"{name}={getattr(self, name)}: must be left out with --method {self.method}; "
                        f"or give --method {METHODS[0]}"
                    )
        for name, usual, more in (("deploy", "none", ""), ("held_out", None, " or --card")):
            if getattr(self, name) != usual and self.engine != "float" and not (more and self.card):
                raise ValueError(
                    f"{name}={getattr(self, name)}: must be left out with --engine {self.engine}; "
                    f"give --engine float{more}"
                )
        if self.deploy != "none" and self.method not in RANKED:
            raise ValueError(f"deploy={self.deploy}: must be none with --method {self.method}; or give --method lora")
        if self.card and not self.card_steps and not self.card_seconds:
            raise ValueError(
                "card_seconds=0.0: must be above 0, or give --card-steps: a board must store what it learns"
            )
        if self.card and self.accumulate != 1:
            raise ValueError(f"accumulate={self.accumulate}: must be 1 with --card")
        return self


@dataclass(frozen=True, kw_only=True)
class InstantTextOptions(TextOptions):
    """Options of InstantFT."""


@dataclass(frozen=True, kw_only=True)
class TextWorkload(Workload):
    """A fine-tune of a language model.

    Attributes
    ----------
    method : str
        Name of the kind among the planner's methods.
    """

    label: ClassVar = "text"
    reads: ClassVar = "a language model as a GGUF or safetensors file or a folder of Hugging Face"
    codes: ClassVar = ("nf4", "nf3", "nf2")
    method: ClassVar[str]

    rank: int = 8

    @property
    def ships(self) -> str:
        """See :class:`Workload`."""
        return "smollm2-135m"

    def mesh(self, config: Any) -> tuple[int, int]:
        """See :class:`Workload`."""
        return config.edge, config.columns

    def resized(self, config: Any, rows: int, columns: int) -> dict[str, int]:
        """See :class:`Workload`."""
        return {"edge": rows, "columns": columns}


@dataclass(frozen=True, kw_only=True)
class QLoraWorkload(TextWorkload):
    """Adapters beside the linears, whose frozen weights are codes."""

    kind: ClassVar = "text-qlora"
    title: ClassVar = "text by QLoRA"
    method: ClassVar = "qlora"
    takes: ClassVar = QLoraOptions
    functions: ClassVar = {
        "prepare": "gradloom.systems.text.qlora:prepare",
        "knows": "gradloom.systems.text.known:known",
        "generate_text": "gradloom.systems.text.answer:generate_text",
        "measure": "gradloom.sweeping.points:of_qlora",
        "energy": "gradloom.sim.activity.runs:training_step",
    }


@dataclass(frozen=True, kw_only=True)
class InstantTextWorkload(TextWorkload):
    """Adapters from every block to the head, and a cache of their inputs."""

    kind: ClassVar = "text-instantft"
    title: ClassVar = "text by InstantFT"
    method: ClassVar = "instantft"
    takes: ClassVar = InstantTextOptions
    methods: ClassVar = ("instantft",)
    functions: ClassVar = {
        "prepare": "gradloom.systems.text.instant_text:prepare",
        "knows": "gradloom.systems.text.known:known",
        "generate_text": "gradloom.systems.text.answer:generate_text",
        "measure": "gradloom.sweeping.points:of_instant_text",
        "energy": "gradloom.sim.activity.runs:instant_step",
    }
