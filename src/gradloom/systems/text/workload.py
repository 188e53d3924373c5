"""Options of fine-tunes of language models."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from gradloom.options import Bounds, Options, option
from gradloom.plugins import Homes
from gradloom.systems.held_out import HeldOutOptions
from gradloom.systems.rates import SCHEDULES
from gradloom.workload import Workload

__all__ = [
    "HEAD",
    "HEADS",
    "METHODS",
    "CardOptions",
    "InstantCardOptions",
    "InstantTextOnLinux",
    "InstantTextOptions",
    "InstantTextWorkload",
    "QLoraOnLinux",
    "QLoraOptions",
    "QLoraWorkload",
    "TextOptions",
    "TextRequest",
    "TextWorkload",
]

#: Methods of QLoRA's presets: the names of ``METHODS`` of models/adapters/methods.py, which is not quick to import.
METHODS = ("lora", "lora-xs", "layernorm", "ia3")
#: Those whose adapters have a rank.
RANKED = ("lora", "lora-xs")
#: Reserved by Linux: more than a step of SmolLM2-135M with a place for each tensor takes.
WINDOW_BYTES = 512 << 20
#: Of a head in answers, names of ``HEADS`` of models/pack.py, which is not quick to import either.
HEADS = ("float16", "nf")
HEAD = "Format of the head in answers: float16, or nf like the linear layers."
#: Names of ``STARTS`` of models/adapters/starts.py.
STARTS = ("random", "pissa", "loftq")


@dataclass(frozen=True, kw_only=True)
class TextRequest(Options):
    """Options of what a language model learns, wherever it does."""

    model: Path | str = option("Language model: smollm2-135m, a file or a folder.", "smollm2-135m", metavar="M")
    rank: int | None = option("Rank of the adapters.", bounds=Bounds(1, 64))
    lr: float | None = option(
        "Learning rate.", usual="0.001, with lion 0.0001, with sgd 0.1", bounds=Bounds(0, 16, open_low=True)
    )
    seed: int = option("Seed of the initial adapters.", 0, bounds=Bounds(0, 1 << 63))
    data: Path | str | None = option(
        "What to learn from: a text; .jsonl with text, prompt and completion, or messages, of which answers are "
        "learnt; or a folder of both.",
        metavar="FILE",
        needed="a file or folder to learn from",
        file=True,
        folder=True,
    )
    skip_bad: bool = option("Leave out lines of .jsonl that are not understood, and count them.", False)
    shuffle: bool = option("Take texts in another order in each epoch, drawn by the seed.", False)
    adapter: Path | str | None = option("Adapter to start from: of PEFT, or a .gguf file.", metavar="DIR")
    optimizer: str = option("Optimiser of the adapters.", "adamw", choices=("adamw", "lion", "sgd"))
    steps: int | None = option("Updates of the adapters.", usual="8, or of --epochs", bounds=Bounds(1, 100_000))
    epochs: float | None = option(
        "Times through all texts, in place of steps.", metavar="N", bounds=Bounds(0, 100_000, open_low=True)
    )
    schedule: str = option("Learning rate behind the warm-up.", SCHEDULES[0], choices=SCHEDULES)
    warmup: float = option(
        "Steps in which the learning rate rises from 0, below 1 a share of all.",
        0.0,
        metavar="N",
        bounds=Bounds(0, 100_000),
    )
    decay: float = option("Weight decay of AdamW and Lion.", 0.0, bounds=Bounds(0, 1))
    seq: int = option(
        "Tokens of a window. Of a text, tokens after the last whole window are not used; a shorter example is padded, "
        "a longer one has several windows.",
        64,
    )
    layers: int | None = option("Number of layers, from the first.", metavar="N", usual="all", bounds=Bounds(1))
    design: Path | str | None = option(
        "Output folder of an earlier gradloom generate, to use its design.", metavar="DIR"
    )

    def check(self) -> Self:
        """Checks bounds, and combinations of options."""
        super().check()
        if self.epochs is not None and self.steps is not None:
            raise ValueError(f"epochs={self.epochs:g}: must be left out with --steps {self.steps}; give one of them")
        if self.decay and self.optimizer == "sgd":
            raise ValueError(f"decay={self.decay:g}: must be 0 with --optimizer {self.optimizer}; or give adamw")
        return self


@dataclass(frozen=True, kw_only=True)
class TextOptions(TextRequest, HeldOutOptions):
    """Options of a fine-tune of a language model."""

    engine: str = option("Engine of execution.", "reference", choices=("rtl", "reference", "float"))
    keep: int = option(
        "Steps between checkpoints in the output folder; 0: none.",
        1,
        metavar="N",
        result=False,
        bounds=Bounds(0, 100_000),
    )
    generate: int = option(
        "Tokens by which two held-out texts are continued before and after; 0: none.", 16, bounds=Bounds(0, 1024)
    )
    resume: bool = option("Continue the interrupted fine-tune in the output folder.", False, result=False)

    def check(self) -> Self:
        """Checks bounds, and combinations of options."""
        super().check()
        if self.held_out is None:
            for name in ("judge_steps", "patience"):
                if getattr(self, name):
                    raise ValueError(f"{name}={getattr(self, name)}: must be 0, or give --held-out")
        return self


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
    rslora: bool = option("Scale new adapters of LoRA by alpha / sqrt(rank), in place of alpha / rank.", False)
    plus: float = option(
        "LoRA+: factor of the learning rate of B, the adapters' second matrix.", 1.0, bounds=Bounds(0, 1024, True)
    )
    init: str = option(
        "Start of new adapters of LoRA: random; pissa, the largest part of each weight, whose rest is frozen; loftq, "
        "that of what the quantiser loses.",
        STARTS[0],
        choices=STARTS,
    )
    lora_fa: bool = option("LoRA-FA: A stays as it starts, B alone learns.", False)
    store: str = option("Format of adapters and moments between steps.", "words", choices=("words", "int8", "nf4"))
    deploy: str = option(
        "Grid towards which the adapter is trained: int8 or nf4, as packages of 8 and 4 bits have it, or q8_0, merged "
        "into weights of GGUF.",
        "none",
        choices=("none", "int8", "nf4", "q8_0"),
    )

    def check(self) -> Self:
        """Checks bounds, and combinations of options."""
        super().check()
        if self.store != "words" and (self.engine == "float" or self.accumulate > 1):
            raise ValueError(f"store={self.store}: must be words with --engine float or --accumulate")
        if self.rslora and self.adapter is not None:
            raise ValueError(f"rslora=True: must be left out with --adapter {self.adapter}, which has its own scale")
        if self.init != STARTS[0] and self.adapter is not None:
            raise ValueError(f"init={self.init}: must be left out with --adapter {self.adapter}, which is the start")
        if self.lora_fa and self.store != "words":
            raise ValueError(f"lora_fa=True: must be left out with --store {self.store}, which rounds A in each step")
        if self.method != METHODS[0]:
            usual_of = {
                "rank": None,
                "store": "words",
                "rslora": False,
                "plus": 1.0,
                "init": STARTS[0],
                "lora_fa": False,
            }
            for name, usual in usual_of.items():
                if getattr(self, name) != usual and not (name == "rank" and self.method in RANKED):
                    raise ValueError(
                        f"{name}={getattr(self, name)}: must be left out with --method {self.method}; "
                        f"or give --method {METHODS[0]}"
                    )
        if self.deploy != "none" and self.engine != "float":
            raise ValueError(f"deploy={self.deploy}: must be left out with --engine {self.engine}; give --engine float")
        if self.deploy != "none" and self.init == "pissa":
            raise ValueError(f"deploy={self.deploy}: must be none with --init pissa, whose adapter has twice the rank")
        if self.deploy != "none" and self.method not in RANKED:
            raise ValueError(f"deploy={self.deploy}: must be none with --method {self.method}; or give --method lora")
        return self


@dataclass(frozen=True, kw_only=True)
class InstantCardOptions(TextRequest):
    """Options of a memory card with which a board fine-tunes by itself.

    What a fine-tune on this machine may choose beside them is fixed.
    """

    engine: ClassVar = "reference"
    keep: ClassVar = 0
    #: A board's table of steps has rates of AdamW.
    optimizer: str = option("Optimiser of the adapters.", "adamw", choices=("adamw", "sgd"))
    resume: ClassVar = False

    held_out: Path | str | None = option(
        "Text that is not learnt, on which a board tries adapters that are installed.", metavar="FILE", file=True
    )
    store_steps: int = option(
        "Steps after which a board stores on its card what it has learnt; 0: time alone.",
        0,
        metavar="N",
        bounds=Bounds(0, 100_000),
    )
    store_seconds: float = option(
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

    answer: bool = option("The board answers prompts by its UART meanwhile.", False)
    head: str = option(HEAD, HEADS[0], choices=HEADS)

    def check(self) -> Self:
        """Checks bounds, and that a board stores what it learns."""
        super().check()
        if not self.store_steps and not self.store_seconds:
            raise ValueError(
                "store_seconds=0.0: must be above 0, or give --store-steps: a board must store what it learns"
            )
        if self.head != HEADS[0] and not self.answer:
            raise ValueError(f"head={self.head}: must be {HEADS[0]} where nothing is answered; or give --answer")
        return self


@dataclass(frozen=True, kw_only=True)
class CardOptions(InstantCardOptions):
    """The same for QLoRA."""

    accumulate: ClassVar = 1
    store: ClassVar = "words"
    deploy: ClassVar = "none"
    rslora: ClassVar = False
    init: ClassVar = STARTS[0]
    lora_fa: ClassVar = False
    plus: ClassVar = 1.0

    method: str = option(
        "What learns: lora, adapters beside linear layers; another preset has instantft, adapters to the head.",
        METHODS[0],
        choices=METHODS[:1],
    )
    targets: str | None = option("Linear layers with an adapter: q,v or all or a list.", usual="q,v")
    from_layer: int | None = option(
        "First layer with adapters, counted from 0; the input of this layer is kept for each text.",
        metavar="K",
        usual="0",
    )


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
    anywhere: ClassVar = True
    usual_board: ClassVar = True
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
    takes: ClassVar = Homes(
        {
            "finetune": "gradloom.systems.text.workload:QLoraOptions",
            "card": "gradloom.systems.text.workload:CardOptions",
            "infer": "gradloom.systems.text.requests:TextAnswers",
            "plan": "gradloom.systems.text.requests:TextPlan",
            "choose": "gradloom.systems.text.requests:TextChoice",
        }
    )
    functions: ClassVar = {
        "finetune": "gradloom.systems.text.qlora:prepare",
        "card": "gradloom.systems.text.card.task:prepare",
        "judge": "gradloom.systems.text.answer:judge",
        "knows": "gradloom.systems.text.known:known",
        "infer": "gradloom.systems.text.answer:infer",
        "answers": "gradloom.systems.text.answer:record",
        "plan": "gradloom.systems.text.costs.plan:plan",
        "sizes": "gradloom.systems.text.costs.plan:sizes",
        "choose": "gradloom.choosing.text:choose_text",
        "measure": "gradloom.sweeping.points:of_qlora",
        "energy": "gradloom.sim.activity.runs:training_step",
    }


@dataclass(frozen=True, kw_only=True)
class InstantTextWorkload(TextWorkload):
    """Adapters from every block to the head, and a cache of their inputs."""

    kind: ClassVar = "text-instantft"
    title: ClassVar = "text by InstantFT"
    method: ClassVar = "instantft"
    takes: ClassVar = Homes(
        {
            "finetune": "gradloom.systems.text.workload:InstantTextOptions",
            "card": "gradloom.systems.text.workload:InstantCardOptions",
            "infer": "gradloom.systems.text.requests:TextAnswers",
            "plan": "gradloom.systems.text.requests:TextPlan",
        }
    )
    methods: ClassVar = ("instantft",)
    functions: ClassVar = {
        "finetune": "gradloom.systems.text.instant_text:prepare",
        "judge": "gradloom.systems.text.answer:judge",
        "card": "gradloom.systems.text.card.task:prepare_instant",
        "knows": "gradloom.systems.text.known:known",
        "infer": "gradloom.systems.text.answer:infer",
        "answers": "gradloom.systems.text.answer:record",
        "plan": "gradloom.systems.text.costs.plan:plan",
        "sizes": "gradloom.systems.text.costs.plan:sizes",
        "measure": "gradloom.sweeping.points:of_instant_text",
        "energy": "gradloom.sim.activity.runs:instant_step",
    }


@dataclass(frozen=True, kw_only=True)
class QLoraOnLinux(QLoraWorkload):
    """QLoRA on a board whose host is Linux: it has no memory card of its own."""

    window_bytes: ClassVar = WINDOW_BYTES
    takes: ClassVar = QLoraWorkload.takes.without("card")
    functions: ClassVar = {each: home for each, home in QLoraWorkload.functions.items() if each != "card"}


@dataclass(frozen=True, kw_only=True)
class InstantTextOnLinux(InstantTextWorkload):
    """The same by InstantFT."""

    window_bytes: ClassVar = WINDOW_BYTES
    takes: ClassVar = InstantTextWorkload.takes.without("card")
    functions: ClassVar = {each: home for each, home in InstantTextWorkload.functions.items() if each != "card"}
