"""Results of the verbs in Python, and the steps of a fine-tune as they come."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

__all__ = [
    "Alternative",
    "Callback",
    "Chosen",
    "ChosenFacts",
    "Exported",
    "Finalist",
    "HeldOut",
    "Inferred",
    "Planned",
    "PlannedCache",
    "PlannedChange",
    "PlannedCycles",
    "PlannedFill",
    "PlannedMemory",
    "PlannedOperation",
    "PlannedPart",
    "PlannedProduct",
    "PlannedRegion",
    "PlannedTime",
    "PlannedWork",
    "Step",
    "SecondCodes",
    "Swept",
    "Tuned",
]


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """Score of what is held out after ``step`` updates.

    ``loss``: mean, or None where it is not finite. ``accuracy``: share that is right, where answers are right or wrong.
    ``auc``: area under the ROC curve, where answers rank.
    """

    step: int
    loss: float | None
    accuracy: float | None = None
    auc: float | None = None


@dataclass(frozen=True, kw_only=True)
class Step:
    """What a callback hears: a step that was made, or a score.

    Attributes
    ----------
    number, steps : int
        Updates that were made, of how many.
    loss : float, optional
        Mean loss of the step, before its update.
    held_out : HeldOut, optional
        Score after it, which is heard by itself.
    """

    number: int
    steps: int
    loss: float | None = None
    held_out: HeldOut | None = None


Callback = Callable[[Step], object]


@dataclass(frozen=True, kw_only=True, eq=False)
class Tuned(Mapping[str, Any]):
    """A fine-tune that was made. As a mapping it is ``metrics.json``, whose units are in ``result["units"]``.

    Attributes
    ----------
    folder : Path
        Of the results.
    metrics : mapping
    losses : sequence of float
        Mean loss of each step.
    held_out : sequence of HeldOut
        From before the first step on.
    accuracy_before, accuracy_after : float, optional
        Share of what is held out that is right.
    cycles, forecast : int, optional
        Counted in RTL, and forecast; of the whole fine-tune.
    diverged : sequence of str
        Reasons, if it did.
    """

    folder: Path
    metrics: Mapping[str, Any]
    losses: Sequence[float]
    held_out: Sequence[HeldOut]
    accuracy_before: float | None
    accuracy_after: float | None
    cycles: int | None
    forecast: int | None
    diverged: Sequence[str]

    @classmethod
    def of(cls, folder: Path, metrics: Mapping[str, Any]) -> "Tuned":
        """Of what a fine-tune has written to a folder."""
        return cls(
            folder=folder,
            metrics=metrics,
            losses=metrics["loss"],
            held_out=[HeldOut(**each) for each in metrics.get("held_out_losses", ())],
            accuracy_before=metrics.get("accuracy_before"),
            accuracy_after=metrics.get("accuracy_after"),
            cycles=(metrics.get("cycles") or {}).get("total"),
            forecast=(metrics.get("forecast") or {}).get("total"),
            diverged=metrics["diverged"],
        )

    def __getitem__(self, name: str) -> Any:
        return self.metrics[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.metrics)

    def __len__(self) -> int:
        return len(self.metrics)


class SecondCodes(TypedDict):
    """Layers whose second codes samples chose, as the option names them, and cycles of a sample with and without."""

    layers: str
    cycles: int
    without: int


class Inferred(TypedDict, total=False):
    """Answers of a model, as :func:`gradloom.infer` returns them.

    Of images, sequences and samples: ``labels``, of a stream for each step, and ``accuracy``, the share that is right,
    where labels are given; ``auc`` and ``error``, the mean squared error, of other values. Of a language model:
    ``text`` and ``tokens``, their numbers. Of a machine: ``cycles`` and their ``forecast``.
    """

    preset: str
    engine: str
    model: str | None
    samples: int
    sequences: int
    steps: int
    #: Share of the input beyond the codes.
    saturated: float
    cycles: int
    #: None where a board answered.
    forecast: int | None
    setup_cycles: int
    phases: dict[str, int]
    cycles_a_step: float
    #: Of a stream, the most.
    cycles_an_answer: int
    #: By a serial port.
    bytes_sent: int
    #: Whether the network has one logit; the label is 1 where it is above 0.
    one_logit: bool
    labels: list[int] | list[list[int]]
    precise: SecondCodes
    accuracy: float
    auc: float
    error: float
    prompt: str
    adapter: str | None
    text: str
    tokens: list[int]
    #: Words of a text's tensors that the formats clipped.
    clipped: int
    #: In integers, of prompt and answer; tokens of the answer over those that gave some.
    programs: int
    tokens_a_program: float
    #: Most cycles that a token waited on a board.
    waited: int
    #: Of pictures.
    count: int
    seed: int


class PlannedWork(TypedDict, total=False):
    """The fine-tune that is planned; ``judged_by``: samples that are held out."""

    network: str
    steps: int
    samples: int
    judged_by: int
    rank: int
    epochs: int
    batch: int


class PlannedCycles(TypedDict, total=False):
    """Forecast of a program, or of ``pieces`` that run one after another and have so many unlike ``programs``."""

    cycles: int
    pieces: int
    programs: int
    phases: dict[str, int]
    clock_mhz: float
    milliseconds: float
    commands: int
    window_bytes: int


class PlannedRegion(TypedDict, total=False):
    """A region of memory. Without ``address`` it lies where a board puts it."""

    name: str
    address: int
    bytes: int


class PlannedMemory(TypedDict):
    """The memory map of a program."""

    window_bytes: int
    regions: list[PlannedRegion]


class PlannedPart(TypedDict):
    """Traffic, multiply-accumulates and least time of a part of the work."""

    bytes: int
    macs: int
    seconds: float


class PlannedTime(TypedDict):
    """The same of the whole work, and what limits it."""

    bytes: int
    macs: int
    seconds: float
    limit: str
    parts: dict[str, PlannedPart]


class PlannedCache(TypedDict, total=False):
    """A forward cache; ``base_bytes``: of the frozen model, read in a step of the first epoch, and of later ones."""

    bytes_per_text: int
    texts: int
    base_bytes: int
    base_bytes_later: int


class PlannedChange(TypedDict):
    """Options that make a fine-tune fit, and the bytes that it takes then."""

    change: dict[str, Any]
    total_bytes: int


class PlannedFill(TypedDict):
    """Shapes that are filled with zeros, of the files and filled, and the share of a step's multiplications."""

    shapes: dict[str, list[int]]
    share: float


class PlannedProduct(TypedDict):
    """A product of a step, ``[m, k]`` by ``[k, n]``, so many ``times``."""

    layer: str
    way: str
    part: str
    m: int
    n: int
    k: int
    times: int
    macs: int
    cycles: int
    utilisation: float
    bytes: int


class PlannedOperation(TypedDict):
    """An operation of a network; ``products``: multiplications of the forward pass; ``codes``: of each operand."""

    name: str
    kind: str
    rows: int
    features: int
    products: int
    codes: int


class Planned(TypedDict, total=False):
    """A fine-tune on a board, as :func:`gradloom.plan` returns it.

    Of images and sequences ``workload`` and ``forecast``; of any other network ``cycles``, ``operations`` and
    ``bytes``; of a diffusion model ``products`` and their sums; of a language model ``memory``, ``token``, ``step``,
    and whether it ``fits``. The function of each system says more.
    """

    model: str
    #: None where the board has no preset for a language model.
    preset: str | None
    board: str
    #: Of the model; of a recurrent network those of the design.
    parameters: int | dict[str, Any]
    workload: PlannedWork
    #: Of a sequence alone.
    answer: PlannedCycles
    forecast: PlannedCycles | None
    memory_map: PlannedMemory | None
    #: Why there is no forecast.
    reason: str
    method: str
    batch: int
    learnt: int
    left_out: list[str]
    cycles: int | dict[str, int]
    once: dict[str, int] | None
    clock_mhz: float
    milliseconds: float
    bytes: int | dict[str, int]
    multiplications: int
    share: float
    operations: list[PlannedOperation]
    only: str
    rank: int | None
    targets: str
    seq: int
    array: list[int]
    known_prompt: bool
    forward_macs: int
    step_macs: int
    utilisation: float
    bytes_a_cycle: float
    products: list[PlannedProduct]
    targets_of_adapters: list[str]
    bits: int
    optimizer: str
    head: str
    store: str
    from_layer: int
    linear_parameters: int
    adapter_parameters: int
    frozen_bytes: int
    learning_bytes: int
    #: Bytes by use.
    memory: dict[str, int]
    total_bytes: int
    available_bytes: int
    bandwidth: float
    bandwidth_limit: str
    clock_hz: int
    multipliers: int
    token: PlannedTime
    cache: PlannedCache
    first_step: PlannedTime
    #: Of a diffusion model, cycles by unit and in all.
    step: PlannedTime | dict[str, int]
    assumptions: list[str]
    fits: bool
    misfits: list[dict[str, Any]]
    nearest: PlannedChange | None
    #: Of a language model, parameters of the machine that are larger than the preset's.
    machine: dict[str, int]
    fill: PlannedFill


class Alternative(TypedDict, total=False):
    """A candidate of a choice with its costs; ``within``: whether it is within the budgets."""

    learns: str
    method: str
    targets: str | None
    from_layer: int
    rank: int | None
    store: str
    cache: str
    seq: int
    accumulate: int
    epochs: int
    steps: int
    texts: int
    cycles: int
    update_cycles: int
    trunk_cycles: int
    seconds: float
    memory_bytes: int
    beside_frozen_bytes: int
    update_bytes: int
    within: bool


class Finalist(Alternative, total=False):
    """A candidate after a short run.

    ``held_out``: its loss then, None where it diverged; ``first_step``: fall of the loss in a first step; ``memory``:
    bytes by use.
    """

    memory: dict[str, int]
    short_steps: int
    short_epochs: int
    first_step: float
    held_out: float | None


class ChosenFacts(TypedDict, total=False):
    """Model and data of a choice: what is ``learnt`` and ``judged``; ``float``: the unit that makes short runs."""

    model: str
    data: str
    tokens: dict[str, int]
    images: dict[str, int]
    samples: dict[str, int]
    float: str


class Chosen(ChosenFacts):
    """A choice, as :func:`gradloom.choose` returns it.

    ``command`` makes the fine-tune; ``finalists`` have the chosen one first. ``offers``: all candidates that the
    machine can run, of which ``within`` are within the budgets.
    """

    gradloom: str
    preset: str
    board: str
    budget: dict[str, Any]
    candidates: int
    within: int
    held_out_before: float
    command: str
    finalists: list[Finalist]
    offers: list[Alternative]


class Swept(TypedDict, total=False):
    """Figures of a point of a sweep; ``note``: why some are missing."""

    cycles: int
    units: int
    cycles_a_unit: float
    milliseconds: float
    memory_bytes: int
    dsp: float
    memory_bits: int
    lut: float
    ff: float
    bram36: float
    uram: float
    levels: int
    toggles: int
    toggles_a_cycle: float
    accuracy: float
    note: str


class Exported(TypedDict, total=False):
    """A file or folder that was written, as :func:`gradloom.export` returns it.

    ``name`` of the model. Of adapters, how many, their ``rank``, several ranks as a list, and ``codes`` of the forward
    cache; of a network how many ``weights`` changed; of a recurrent one ``hidden`` units and ``channels``, or
    ``steps`` of the sequences that were learnt.
    """

    output: str
    format: str
    name: str
    bytes: int
    adapters: int
    rank: int | list[int]
    codes: str
    weights: int
    hidden: int
    channels: int
    steps: int
