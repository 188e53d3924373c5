"""Figures of a point of a sweep, for each kind of workload.

:class:`ValueError` if a combination is impossible.
"""

import dataclasses
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gradloom import boards
from gradloom.compiler.estimate.bounds import step_bounds, summed
from gradloom.models.files.language.checkpoint import find_model
from gradloom.models.files.unet import SD_V1_5
from gradloom.preset import Preset
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.systems.diffusion.plan import planned as planned_unet
from gradloom.systems.diffusion.unet import TARGETS
from gradloom.systems.diffusion.unet import operations as operations_of
from gradloom.systems.driver import finetune
from gradloom.systems.images.expectation import expectation
from gradloom.systems.images.workload import ImageOptions, ImageWorkload
from gradloom.systems.results import Swept
from gradloom.systems.text.card.layout import planner
from gradloom.systems.text.costs.fit import Misfit, planned, refuse
from gradloom.systems.text.costs.request import BudgetRequest, parse_targets
from gradloom.systems.text.operations.shapes import paired
from gradloom.systems.text.operations.tensors import EDGE
from gradloom.systems.text.program.engines.linear import Exponents, LayerMap, LayerPlan, LayerShape
from gradloom.systems.text.run.instant_forecast import later_step_cycles
from gradloom.systems.text.run.products import forecast_products

__all__ = ["block_products", "of_diffusion", "of_images", "of_instant_text", "of_qlora"]

#: Outputs and inputs of the linears of a block of SmolLM2-135M, and tokens of a step.
_BLOCK = ((576, 576), (192, 576), (192, 576), (576, 576), (1536, 576), (1536, 576), (576, 1536))
_TOKENS = 64


def of_images(preset: Preset, point: Mapping[str, Any]) -> Swept:
    """Cycles and memory by forecast, accuracy by the reference.

    The accuracy is given if it is asked for.
    """
    assert isinstance(preset.workload, ImageWorkload)
    expected = expectation(preset.config, preset.workload, rank=point["rank"], wide=point["codes"] == "int8")
    forecast, held = expected["forecast"], expected["memory_map"]
    if forecast is None or held is None:
        raise ValueError(expected["reason"])
    cycles, units = forecast["cycles"], expected["workload"]["samples"] * expected["workload"]["epochs"]
    found: Swept = {
        "cycles": cycles,
        "units": units,
        "cycles_a_unit": round(cycles / units, 1),
        "milliseconds": forecast["milliseconds"],
        "memory_bytes": held["window_bytes"],
    }
    if point["accuracy_of"] != "":
        limit = None if point["accuracy_of"] == "all" else point["accuracy_of"]
        with tempfile.TemporaryDirectory() as folder:
            metrics = finetune(
                preset,
                ImageOptions(
                    engine="reference",
                    rank=point["rank"],
                    cache=point["codes"],
                    limit=limit,
                    epochs=int(point["epochs"]),
                    seed=point["seed"],
                ),
                output=Path(folder),
            )
        found["accuracy"] = round(metrics["accuracy_after"], 6)
        if metrics["diverged"]:
            found["note"] = f"the fine-tune diverged: {'; '.join(metrics['diverged'])}"
    return found


def of_diffusion(preset: Preset, point: Mapping[str, Any]) -> Swept:
    """Memory and cycles of a step of Stable Diffusion v1.5.

    Adapters on cross-attention, an image of 512 by 512. Cycles are the bound of the whole step, as ``plan`` has it.
    """
    size, targets = preset.workload.mesh(preset.config), "cross-attention"
    plan = planned_unet(SD_V1_5, rank=point["rank"], targets=targets, array=size)
    listed = operations_of(SD_V1_5, rank=point["rank"], targets=TARGETS[targets])
    cycles = summed(step_bounds(listed, preset.config))["cycles"]
    return {"memory_bytes": sum(plan["memory"].values()), **_timed(preset.config, cycles, 1)}


def of_qlora(preset: Preset, point: Mapping[str, Any]) -> Swept:
    """Memory and cycles of fine-tuning SmolLM2-135M.

    Memory as ``plan`` counts it; cycles by forecast, of the linears of a block, forward and back.
    """
    config = preset.config
    request = _request(point, _TOKENS)
    figures = planned(request, boards.find(preset.board), config, laid_out=planner(preset.config))
    found: Swept = {"memory_bytes": figures["total_bytes"]}
    if request.bits != 4:
        return found | _unread(point)
    refuse([Misfit(**each) for each in figures["misfits"] if each["field"] == "rank"])
    if larger := figures["machine"]:
        needed = " ".join(f"--set {name}={value}" for name, value in larger.items())
        raise ValueError(f"rank={point['rank']}: the machine must be larger; give {needed}")
    tokens = min(_TOKENS, config.tokens)
    cycles = sum(
        forecast_products(
            block_products(config, rank=point["rank"], tokens=tokens, backward=backward), config=config
        ).total
        for backward in (False, True)
    )
    return found | _timed(config, cycles, tokens)


def of_instant_text(preset: Preset, point: Mapping[str, Any]) -> Swept:
    """The same of InstantFT.

    Cycles are those of a step on a text that is in the cache.
    """
    config = preset.config
    if config.edge != EDGE:
        raise ValueError(
            f"mesh={point['mesh']}: must have {EDGE} rows for {preset.name}; give --mesh {EDGE}x{config.columns}"
        )
    tokens = min(_TOKENS, config.tokens)
    request = _request(point, tokens)
    figures = planned(request, boards.find(preset.board), config, method="instantft")
    found: Swept = {"memory_bytes": figures["total_bytes"]}
    if request.bits != 4:
        return found | _unread(point)
    refuse([Misfit(**each) for each in figures["misfits"]])
    return found | _timed(config, later_step_cycles(config, request.model, rank=request.rank, tokens=tokens), tokens)


def _request(point: Mapping[str, Any], seq: int) -> BudgetRequest:
    return BudgetRequest(
        model=find_model("smollm2-135m"),
        rank=point["rank"],
        targets=parse_targets("all"),
        bits=int(point["codes"].removeprefix("nf")),
        seq=seq,
    )


def _unread(point: Mapping[str, Any]) -> Swept:
    return {"note": f"codes={point['codes']}: the machine reads codes of 4 bits; memory alone is counted"}


def _timed(config: Any, cycles: int, units: int) -> Swept:
    return {
        "cycles": cycles,
        "units": units,
        "cycles_a_unit": round(cycles / units, 1),
        "milliseconds": round(cycles / (1e3 * config.clock_mhz), 3),
    }


def block_products(config: LanguageConfig, *, rank: int, tokens: int, backward: bool = False) -> list[Any]:
    """The products of the seven linears of a block of SmolLM2-135M.

    They are one behind the other; ``rank`` 0: no adapters.
    """
    # Cycles do not depend on values; these exponents are within all bounds.
    exponents = Exponents(x=16, w=18, a=16, b=16, h=16, y=16, dy=16, dh=16, dx=16, ga=16, gb=16)
    plans: list[LayerPlan] = []
    for outputs, inputs in _BLOCK:
        shape = LayerShape(outputs=outputs, inputs=inputs, rank=paired(max(rank, 2)), tokens=tokens)
        place = LayerMap.place(shape, config, plans[-1].place.end if plans else 1 << 18)
        plans.append(LayerPlan(shape=shape, exponents=exponents, place=place, config=config))
    jobs = [each.job(backward=backward) for each in plans]
    return jobs if rank else [dataclasses.replace(job, rank=0, lanes=()) for job in jobs]
