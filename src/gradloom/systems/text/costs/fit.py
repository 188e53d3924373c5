"""Checks whether a fine-tune fits a preset's machine and board.

All verbs use this check.

``plan`` prints the bounds that fail beside its figures; ``finetune`` refuses the request, in the same words.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradloom.models.filled import filled, source_of
from gradloom.models.language import PROJECTIONS, LanguageModel
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.rtl.machines.fit import shortages
from gradloom.systems.results import Planned, PlannedChange

from ..operations.shapes import larger, odd_shapes, paired, suited
from ..operations.tensors import EDGE
from ..operations.transformer import StepOperations, longest
from ..program.engines.linear import LayerShape
from .budget import Target, checked_port, memory, nearest, plan
from .instant_budget import instant_memory, instant_plan
from .request import BudgetRequest

__all__ = [
    "MIN_SEQ",
    "DoesNotFit",
    "LaidOut",
    "Misfit",
    "board_misfits",
    "lacks",
    "machine_for",
    "machine_misfits",
    "memory_misfits",
    "options",
    "planned",
    "refuse",
]

#: Bytes by class of a request.
LaidOut = Callable[[BudgetRequest], Mapping[str, int]]
#: Tokens that a loss needs: one to read and one to foretell.
MIN_SEQ = 2


@dataclass(frozen=True)
class Misfit:
    """A bound that fails: field, its value, the bound, and what to change.

    ``give``: options with values that are within all bounds; none where only another model helps.
    """

    field: str
    value: int
    bound: str
    give: Mapping[str, Any]

    def __str__(self) -> str:
        change = f"give {options(self.give)}" if self.give else "use another model"
        return f"{self.field}={self.value}: {self.bound}; {change}"


class DoesNotFit(ValueError):
    """A request that does not fit. ``lines``: one for each bound that fails."""

    def __init__(self, found: Sequence[str]) -> None:
        self.lines = list(found)
        super().__init__("\n".join(self.lines))


def lacks(name: str, config: LanguageConfig, lacking: Mapping[str, int], model: str, folder: Path | str | None) -> str:
    """Message of a made design ``name``, which lacks what a model or its adapters need; it is in ``folder``."""
    own = ", ".join(f"{each}={getattr(config, each)}" for each in lacking)
    settings = " ".join(f"--set {each}={value}" for each, value in lacking.items())
    where = f"design={folder}" if folder is not None else f"preset={name}"
    what = "the design" if folder is not None else "the preset's design"
    name_it = "generate it with" if folder is not None else f"gradloom generate {name} makes one by"
    return f"{where}: {what} has {own}, which is too little for {model}; {name_it} {settings}" + (
        "" if folder is not None else ", name its folder by --design"
    )


def refuse(found: Sequence[Misfit]) -> None:
    """Raises :class:`DoesNotFit` unless ``found`` is empty."""
    if found:
        raise DoesNotFit(list(map(str, found)))


def planned(
    request: BudgetRequest,
    board: Target,
    config: LanguageConfig | None,
    *,
    method: str = "qlora",
    port_bits: int | None = None,
    laid_out: LaidOut | None = None,
    texts: int = 1,
) -> Planned:
    """Figures of a plan, and whether they fit.

    The plan is :func:`~.budget.plan` or :func:`~.instant_budget.instant_plan`.

    ``port_bits``: of a beat; None: what the machine has. ``config``: of the machine; None where no preset has one, and
    memory alone is checked. The machine has what the request needs, see :func:`machine_for`. ``laid_out``: bytes by
    class of a fine-tune by QLoRA that the machine runs, as its job of ``texts`` is laid out; without it, and of what it
    does not run, they are counted by shapes.

    Returns
    -------
    dict
        The figures, and ``fits``, ``misfits`` (``field``, ``value``, ``bound`` and ``give`` of each bound that fails),
        ``nearest``: changes that make memory suffice and that the machine takes, or None, and ``machine``: parameters
        that are larger than in ``config``.
    """
    if port_bits is not None:
        checked_port(port_bits)
    elif config is not None:
        # Of all ports of the machine.
        port_bits = config.data_bits
    found = _failed(request, config, method, board)
    held = None
    if laid_out is not None and config is not None and not found and method == "qlora" and _read(request):
        held = laid_out(request)
    array = None if config is None else config.edge * config.columns
    figures = plan(request, board, port_bits=port_bits, held=held, texts=texts, array=array)
    if method == "instantft":
        figures = instant_plan(request, board, figures, port_bits or board.port_bits)
    short, near = _memory(request, board, config, method, held)
    found += short
    made = {} if config is None else larger(_machine(request, config, method), config)
    misfits = [vars(each) for each in found]
    return figures | {"fits": not found, "misfits": misfits, "nearest": near, "machine": made}


def machine_for(
    config: LanguageConfig,
    model: LanguageModel,
    *,
    rank: int,
    targets: Sequence[str],
    method: str = "qlora",
    **more: int,
) -> LanguageConfig:
    """The machine for a fine-tune, at least ``config``; adapters of InstantFT need nothing of it.

    ``targets``: projections that have an adapter in QLoRA. ``more``: see :func:`~..operations.shapes.suited`.
    """
    return suited(config, model, rank=rank, targets=() if method == "instantft" else targets, **more)


def board_misfits(
    config: LanguageConfig,
    model: LanguageModel,
    board: Target,
    *,
    rank: int,
    targets: Sequence[str],
    method: str = "qlora",
) -> list[Misfit]:
    """The resource of a board of which the machine for a fine-tune needs more than there is, where it is no preset's.

    ``config``: the preset's.
    """

    def lacking(rank: int) -> tuple[LanguageConfig, list[str]]:
        made = machine_for(config, model, rank=rank, targets=targets, method=method)
        return made, [] if made == config else [each for each, _ in shortages(made, board)]

    made, found = lacking(rank)
    if not found:
        return []
    even = range((min(rank, config.most_rank) - 1) // 2 * 2, 0, -2)
    less = next((each for each in even if not lacking(each)[1]), None)
    names = ", ".join(f"{name}={value}" for name, value in larger(made, config).items())
    bound = f"needs a machine with {names}; {found[0]}"
    return [Misfit("rank", rank, bound, {"rank": less}) if less else Misfit("hidden", model.hidden, bound, {})]


def machine_misfits(
    config: LanguageConfig, model: LanguageModel, *, seq: int, rank: int, targets: Sequence[str], method: str = "qlora"
) -> list[Misfit]:
    """Bounds of the machine that fail, one for each field.

    ``targets``: projections that have an adapter in QLoRA. Shapes and rank are filled, and named as they were asked.
    """
    instant, own, model = method == "instantft", source_of(model), filled(model)
    failed: dict[str, tuple[int, str]] = {}
    for field, value, bound in odd_shapes(model):
        failed.setdefault(field, (value, bound))
    odd = bool(failed)
    # InstantFT's texts are of one block.
    held = config.tokens if instant else longest(config.tokens)
    most, what = min((model.context, "the model's context"), (held, "tokens of the preset's machine"))
    if not MIN_SEQ <= seq <= most:
        failed["seq"] = seq, f"must be from {MIN_SEQ} to {most} ({what})"
    tiled = min(config.tokens, EDGE)
    if instant and not 1 <= rank <= tiled:
        failed["rank"] = rank, f"must be from 1 to {tiled}"

    def linears(seq: int, rank: int) -> list[tuple[str, str, int, str]]:
        return [] if odd else list(_linears(config, model, seq, rank, () if instant else targets))

    if not odd:
        for field, value, bound in StepOperations(model, min(seq, held), {}, range(model.layers)).misfits(config):
            failed.setdefault(field, (value, bound))
    for name, field, value, bound in linears(MIN_SEQ if "seq" in failed else seq, rank):
        failed.setdefault("seq" if field == "tokens" else field, (value, f"{bound} ({name} on the preset's machine)"))

    def takes(field: str, value: int) -> bool:
        found = linears(value, rank) if field == "tokens" else linears(max(seq, MIN_SEQ), value)
        return not any(each[1] == field for each in found)

    #: Largest values that fit, at most the ones that were asked for.
    fits = {
        "seq": next(
            (each for each in range(min(max(seq, MIN_SEQ), most), MIN_SEQ - 1, -1) if takes("tokens", each)), None
        ),
        "rank": next(
            (each for each in range(max(rank, 2), 0, -1) if (each <= tiled if instant else takes("rank", each))), None
        ),
    }
    return [
        Misfit(field, getattr(own, field, value), bound, {field: fits[field]} if fits.get(field) else {})
        for field, (value, bound) in failed.items()
    ]


def _linears(
    config: LanguageConfig, model: LanguageModel, seq: int, rank: int, targets: Sequence[str]
) -> Iterator[tuple[str, str, int, str]]:
    """Bounds that the linears of a block fail.

    Yields projection, field, value and bound.
    """
    for name in PROJECTIONS:
        outputs, inputs = model.shape(name)
        # A linear without an adapter takes part in a product like one of the least rank.
        # A product takes a block of a text.
        tokens = min(seq, EDGE)
        shape = LayerShape(outputs=outputs, inputs=inputs, rank=paired(rank if name in targets else 2), tokens=tokens)
        for field, value, bound in shape.misfits(config):
            if field != "rank":
                yield name, field, value, bound
            elif 1 <= rank <= config.rank:
                yield name, field, rank, bound
            else:
                note = ", a machine's most; --engine float takes more" if config.rank == config.most_rank else ""
                yield name, field, rank, f"must be from 1 to {config.rank}{note}"


def memory_misfits(
    request: BudgetRequest,
    board: Target,
    config: LanguageConfig | None,
    *,
    method: str = "qlora",
    laid_out: LaidOut | None = None,
) -> list[Misfit]:
    """The bound of the board's memory, if it fails, and what to change.

    ``laid_out``: see :func:`planned`; the machine runs the request.
    """
    held = None
    # A job takes less than twice what is counted by shapes, and laying it out takes seconds.
    if laid_out is not None and method == "qlora" and 2 * _total(request, method) > board.memory_bytes:
        held = laid_out(request)
    return _memory(request, board, config, method, held)[0]


def _memory(
    request: BudgetRequest, board: Target, config: LanguageConfig | None, method: str, held: Mapping[str, int] | None
) -> tuple[list[Misfit], PlannedChange | None]:
    """Bounds of memory that fail, and the nearest request that fits.

    The request is None if there is none or it is not wanted.
    """
    total = _total(request, method) if held is None else sum(held.values())
    if total <= board.memory_bytes:
        return [], None
    near = _nearest(request, board, config, method)
    bound = f"{board.name} has {board.memory_bytes} bytes"
    return [Misfit("memory", total, bound, near["change"] if near else {})], near


def _total(request: BudgetRequest, method: str) -> int:
    return sum((memory(request) if method == "qlora" else instant_memory(request)).values())


def _read(request: BudgetRequest) -> bool:
    """Whether machines read its frozen weights."""
    return (request.bits, request.head) == (4, "float16")


def _machine(request: BudgetRequest, config: LanguageConfig, method: str) -> LanguageConfig:
    """The machine for a request."""
    return machine_for(config, request.model, rank=request.rank, targets=request.adapted, method=method)


def _failed(request: BudgetRequest, config: LanguageConfig | None, method: str, board: Target) -> list[Misfit]:
    """Bounds of the machine that a request fails, and of its board."""
    if config is None:
        return []
    model = request.model
    asked: dict[str, Any] = {"rank": request.rank, "targets": request.adapted, "method": method}
    made = _machine(request, config, method)
    return [*machine_misfits(made, model, seq=request.seq, **asked), *board_misfits(config, model, board, **asked)]


def _nearest(request: BudgetRequest, board: Target, config: LanguageConfig | None, method: str) -> PlannedChange | None:
    """The nearest request that fits, as counted by shapes."""

    def runs(other: BudgetRequest) -> bool:
        # The machine reads one width of codes and one format of the head: others are no way to make a fine-tune fit.
        same = (other.bits, other.head) == (request.bits, request.head)
        return config is None or (same and not _failed(other, config, method, board))

    # What the machine takes is changed first, then what the memory holds.
    first = {field: value for each in _failed(request, config, method, board) for field, value in each.give.items()}
    near = nearest(
        dataclasses.replace(request, **first), board.memory_bytes, total=lambda other: _total(other, method), runs=runs
    )
    return near and near | {"change": first | near["change"]}


def options(change: Mapping[str, Any]) -> str:
    """Such changes as options of the command line."""
    return " ".join(
        f"--{name} {','.join(each.removesuffix('_proj') for each in value) if name == 'targets' else value}"
        for name, value in change.items()
    )
