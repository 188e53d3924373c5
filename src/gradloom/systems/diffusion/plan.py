"""Memory, traffic and products of fine-tuning a UNet."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gradloom import boards
from gradloom.compiler.estimate.products import ShapedProduct, backward, forward, is_known, narrow_tensors, parameters
from gradloom.graph.base import Operation
from gradloom.models.digits_unet import shipped_prompts, shipped_unet
from gradloom.models.files.unet import UNet, find_unet
from gradloom.systems.asked import Asked
from gradloom.systems.results import Planned, PlannedCycles, PlannedProduct
from gradloom.workload import Progress

from .requests import DiffusionPlan
from .unet import PROMPT, TARGETS, adapted, learners_of, operations, part_named
from .workload import DiffusionWorkload

if TYPE_CHECKING:
    from gradloom.program.tiles.pieces import StepPiece

__all__ = ["ARRAY", "memory", "plan", "planned"]

#: Rows and columns of the array that products are counted on, unless asked otherwise: those of ``cdm-qta-kv260``.
ARRAY = (64, 32)
#: Products that are asked for by a name of their own.
ONLY = ("all", "cross-attention")


def plan(asked: Asked, options: DiffusionPlan, tell: Progress) -> Planned:
    """Products, memory and cycles of a LoRA step of a UNet.

    ``step`` of the result has sums over all operations of a step, or of a part: see
    :mod:`gradloom.compiler.estimate.bounds`. Of a part, or where asked, ``forecast`` is that of its
    programs, see :func:`.program.pieces.step_pieces`.
    """
    from gradloom.compiler.estimate.bounds import step_bounds, summed

    text = options.seq
    if options.model is None:
        net = replace(shipped_unet()[0], name=str(asked.preset.workload.ships))
        text = len(shipped_prompts().places) if text is None else text
    else:
        net = find_unet(options.model)
    text = 77 if text is None else text
    config = asked.preset.config
    size = ARRAY if options.array is None else _array(options.array)
    rank, targets, batch, known = options.rank, options.targets, options.batch, options.known_prompt
    result = planned(
        net, only=options.only, rank=rank, targets=targets, text=text, batch=batch, array=size, known_prompt=known
    )
    learnt = operations(net, text=text, rank=rank, targets=TARGETS[targets])
    is_part = options.only not in ONLY
    if is_part or options.forecast:
        why = f"only={options.only}" if is_part else "forecast=True"
        for name, given, usual in (("array", options.array, None), ("known_prompt", known, False)):
            if given != usual:
                raise ValueError(f"{name}={given}: must be left out with {why}, whose program has none")
        if options.only == ONLY[1]:
            raise ValueError(f"only={options.only}: has no program; must be all or a part with forecast=True")
        workload = asked.preset.workload
        assert isinstance(workload, DiffusionWorkload)
        some = part_named(learnt, options.only) if is_part else learnt
        try:
            there = boards.find(asked.board or asked.preset.board).memory_bytes
            result["forecast"] = _forecast(config, learnt, some, batch, workload.lr, there, tell)
        except ValueError as error:
            raise ValueError(f"{why}: {error}") from None
    bounds = step_bounds(learnt, config, batch, array=size, known=_known(known))
    return result | {"step": summed(each for each in bounds if _of_part(each.layer, options.only))}


def _forecast(
    config: Any,
    listed: Sequence[Operation],
    some: Sequence[Operation],
    batch: int,
    lr: float,
    memory: int,
    tell: Progress,
) -> PlannedCycles:
    """Cycles of the pieces of a step, one after another, in so many bytes; those that are alike take the same."""
    from gradloom.sim.time.forecast import forecast
    from gradloom.sim.time.timing import Timing

    from .program.pieces import step_pieces

    known, made = dict[int, Timing](), list[Timing]()

    def take(piece: "StepPiece", count: int) -> None:
        tell(len(made), count, "forecasting programs")
        if id(piece.program) not in known:
            known[id(piece.program)] = forecast(piece.program)
        made.append(known[id(piece.program)])

    tell(0, 0, "planning")
    step = step_pieces(config, listed, some, batch=batch, lr=lr, tell=take, memory=memory)
    phases = Counter[str]()
    for each in made:
        phases.update(each.phases)
    total, clock = sum(each.total for each in made), made[0].clock_mhz
    return {
        "cycles": total,
        "phases": dict(phases),
        "clock_mhz": clock,
        "milliseconds": round(total / (1e3 * clock), 3),
        "commands": sum(len(each.instructions) for each in made),
        "pieces": len(made),
        "programs": len(known),
        "window_bytes": step.program.length,
    }


def _known(known_prompt: bool) -> tuple[str, ...]:
    """Inputs whose products with frozen weights are there."""
    return (PROMPT,) if known_prompt else ()


def _array(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,4})[x×](\d{1,4})", text)
    if not found:
        raise ValueError(f"array={text}: must be rows and columns from 1 to 256, as 64x32")
    return int(found[1]), int(found[2])


def planned(
    net: UNet,
    *,
    only: str = "all",
    rank: int = 8,
    targets: str = "cross-attention",
    text: int = 77,
    batch: int = 1,
    array: tuple[int, int] = ARRAY,
    known_prompt: bool = False,
) -> Planned:
    """Products of a LoRA step on ``batch`` images, sums and memory.

    ``only``: all products, or those of ``cross-attention``: its projections and their adapters, without scores and mix;
    or of a part, the layers whose names begin so.
    A product's operands are a byte each, results one, or two where not only products read them.

    Cycles are those of an array that loads a tile under the one
    before; of a stationary second operand; no vector engine and no memory port.

    ``known_prompt``: its products with frozen weights are in memory, and are no products of the step.
    """
    if targets not in TARGETS:
        raise ValueError(f"targets={targets}: must be one of {', '.join(TARGETS)}")
    for name, value, most in (("batch", batch, 64), ("rows", array[0], 256), ("columns", array[1], 256)):
        if not 1 <= value <= most:
            raise ValueError(f"{name}={value}: must be from 1 to {most}")
    if not rank:
        raise ValueError("rank=0: must be 1, 2, 4, 8, 16 or 32")
    plain = operations(net, text=text)
    learnt = operations(net, text=text, rank=rank, targets=TARGETS[targets])
    if only not in ONLY:
        part_named(learnt, only)
    ways = {"forward": forward(learnt, batch, known=_known(known_prompt)), "backward": backward(learnt, batch)}
    products = [_row(way, each, array) for way, made in ways.items() for each in made if _wanted(each, only)]
    cycles = sum(row["cycles"] for row in products)
    macs = sum(row["macs"] for row in products)
    return {
        "model": net.name,
        "only": only,
        "rank": rank,
        "targets": targets,
        "seq": text,
        "batch": batch,
        "array": list(array),
        "known_prompt": known_prompt,
        "parameters": sum(parameters(plain).values()),
        "adapter_parameters": _adapters(learnt),
        "forward_macs": sum(each.macs for each in forward(plain, batch)),
        "step_macs": macs,
        "cycles": cycles,
        "utilisation": round(macs / (cycles * array[0] * array[1]), 4) if cycles else 0.0,
        "bytes": sum(row["bytes"] for row in products),
        "bytes_a_cycle": round(sum(row["bytes"] for row in products) / cycles, 2) if cycles else 0.0,
        "memory": memory(learnt, batch, known_prompt=known_prompt),
        "products": products,
    }


def _of_part(layer: str, only: str) -> bool:
    return only in ONLY or layer.startswith(only)


def _wanted(product: ShapedProduct, only: str) -> bool:
    return ".attn2.to_" in product.layer if only == "cross-attention" else _of_part(product.layer, only)


def _row(way: str, product: ShapedProduct, array: tuple[int, int]) -> PlannedProduct:
    return {
        "layer": product.layer,
        "way": way,
        "part": product.part,
        "m": product.m,
        "n": product.n,
        "k": product.k,
        "times": product.times,
        "macs": product.macs,
        "cycles": product.cycles(*array),
        "utilisation": round(product.utilisation(*array), 4),
        "bytes": product.bytes,
    }


def _adapters(learnt: Sequence[Operation]) -> int:
    return sum(each.rank * (each.i[0].features + each.o.features) for each in adapted(learnt))


def memory(
    operations: Sequence[Operation], batch: int, *, float32: bool = False, known_prompt: bool = False
) -> dict[str, int]:
    """Bytes by purpose of a step on ``batch`` images.

    Weights take a byte each, norms' and biases 16 bits, adapters and moments 32. All results of the forward pass are
    counted, without reuse and without attention's probabilities: at 8 bits what only products read, others at 16.
    ``float32``: the same values at 4 bytes each. ``known_prompt``: its products with frozen weights are there in place
    of these weights.
    """
    known, learnt = [each for each in operations if is_known(each, _known(known_prompt))], set(learners_of(operations))
    matrices = sum(
        w.size
        for each in operations
        if each not in known
        for w in each.weights
        if len(w.shape) > 1 and w.name not in learnt
    )
    vectors = sum(w.size for each in operations for w in each.weights if len(w.shape) == 1)
    narrow = narrow_tensors(operations)
    kept = sum(
        (4 if float32 else 1 if each.o.name in narrow else 2) * each.o.rows * each.o.features for each in operations
    )
    return {
        "frozen_codes": 4 * matrices if float32 else matrices,
        "norms_and_biases": (4 if float32 else 2) * vectors,
        "adapters_and_moments": 12 * _adapters(operations),
        "forward_results": batch * kept,
        "known_prompt": (4 if float32 else 2) * batch * sum(each.o.rows * each.o.features for each in known),
    }
