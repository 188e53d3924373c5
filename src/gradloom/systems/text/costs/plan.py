"""Plans the memory, traffic and time of a language model's fine-tune."""

from collections.abc import Collection
from typing import Any

from gradloom import boards
from gradloom.firmware.chip.steps import MAX_STEPS
from gradloom.models.adapters.language.methods import LORA, find_method
from gradloom.models.files.language.checkpoint import find_model
from gradloom.options import check_request
from gradloom.preset import find_workload
from gradloom.systems.asked import Asked
from gradloom.systems.results import Planned
from gradloom.workload import Progress

from ..card.layout import planner
from ..operations.shapes import larger, needs
from ..requests import TextPlan
from ..workload import TextWorkload
from .fit import MIN_SEQ, board_misfits, machine_for, machine_misfits, planned, refuse
from .instant_budget import METHODS
from .request import BudgetRequest

__all__ = ["plan", "sizes"]


def plan(asked: Asked, options: TextPlan, tell: Progress) -> Planned:
    """Memory, traffic and time of fine-tuning a language model on a board.

    The plan counts every byte. It tells whether it fits. Where the board's preset runs the fine-tune, ``memory`` is
    that of its job of so many ``texts`` and ``steps``, byte by byte; else it is counted by shapes.

    What does not fit has ``misfits``, one for each bound that fails: see ``planned`` in
    :mod:`~gradloom.systems.text.costs.fit`. ``preset``: whose machine is checked; None where the board has none, and
    memory alone is checked.
    """
    tell(0, 0, f"planning {asked.name}")
    rank, targets, store, seq = options.rank, options.targets, options.store, options.seq
    texts, steps, from_layer = options.texts, options.steps, options.from_layer
    method = options.method or _method(asked)
    method = "qlora" if method == LORA.name else method
    if method not in METHODS:
        raise ValueError(f"method={method}: must be one of {', '.join(METHODS)}")
    instant = method == "instantft"
    learnt = LORA if instant or method == "qlora" else find_method(method)
    for name, value, usual in (("rank", rank, None), ("store", store, "words")):
        if value != usual and (learnt is not LORA if name == "store" else not learnt.ranked):
            raise ValueError(f"{name}={value}: must be left out with --method {method}; or give --method lora")
    if instant and targets is not None:
        raise ValueError(
            f"targets={targets}: adapters of InstantFT go from every block to the head; leave it out, "
            f"or give --method qlora"
        )
    if instant and store != "words":
        raise ValueError(f"store={store}: must be words for InstantFT; leave it out, or give --method qlora")
    if instant and from_layer:
        raise ValueError(
            f"from_layer={from_layer}: adapters of InstantFT go from every block to the head; leave it "
            f"out, or give --method qlora"
        )
    for name, value in (("texts", texts), ("steps", steps)):
        if not 1 <= value <= MAX_STEPS:
            raise ValueError(f"{name}={value}: must be from 1 to {MAX_STEPS}")
    target, kind = boards.find(asked.board), "instantft" if instant else "qlora"
    shapes = find_model(str(options.model or asked.preset.workload.ships))
    preset = find_workload(target.name, f"text-{kind}")
    if preset is not None and seq > shapes.context:
        # Beyond it there is nothing to plan.
        found = machine_misfits(preset.config, shapes, seq=seq, rank=2, targets=(), method=kind)
        refuse([each for each in found if each.field == "seq"])
    request = BudgetRequest(
        model=shapes,
        rank=8 if rank is None else rank,
        targets=learnt.parse(targets),
        seq=seq,
        bits=options.bits,
        optimizer=options.optimizer,
        head=options.head,
        store=store,
        from_layer=from_layer,
        method=learnt.name,
    )
    lay = None
    if preset is not None and not instant:
        lay = planner(preset.config, texts=min(texts, steps), steps=steps)
    result = planned(
        request,
        target,
        preset.config if preset else None,
        method=kind,
        port_bits=options.axi_bits,
        laid_out=lay,
        texts=min(texts, steps),
    )
    return result | {"preset": preset.name if preset else None}


def sizes(
    asked: Asked, config: Any, fixed: Collection[str], *, rank: int | None = None, **other: Any
) -> tuple[Any, dict[str, Any]]:
    """The machine for a model and a rank, at least ``config`` but for what is ``fixed``, and its report.

    Adapters may be on all linear layers of which the board holds the words.
    """
    check_request("of a language model, whose design has no such size", needless=other)
    shapes = find_model(str(asked.model or asked.preset.workload.ships))
    method, board = _method(asked), boards.find(asked.preset.board)
    rank = rank or asked.preset.workload.rank
    told: dict[str, Any] = {"rank": rank, "targets": LORA.parse(None), "method": method}
    made = machine_for(config, shapes, **told)
    made = made.replace(**{name: getattr(config, name) for name in fixed})
    refuse([*board_misfits(config, shapes, board, **told), *machine_misfits(made, shapes, seq=MIN_SEQ, **told)])
    why = needs(config, shapes, rank=rank, targets=told["targets"])
    return made, {
        "network": shapes.name,
        "rank": rank,
        "at": f" at rank {rank}",
        "chosen": {
            name: {"value": value, "preset": getattr(asked.preset.config, name), "for": why[name][1]}
            for name, value in larger(made, config).items()
        },
    }


def _method(asked: Asked) -> str:
    """The planner's name of the method of the preset's machine."""
    assert isinstance(asked.preset.workload, TextWorkload)
    return asked.preset.workload.method
