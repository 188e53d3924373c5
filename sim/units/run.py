"""Runs a user's arrays through one unit and its reference."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import numpy as np

from gradloom.models.files.archive import read_npz
from gradloom.output import check_file, some, staged_file
from gradloom.rtl.catalog import Unit

from .adapter import Arrays, UnitArray
from .adapters import unit_adapter
from .simulate import check_simulator, simulate, unpacked

__all__ = ["UnitFigures", "UnitRun", "describe_unit", "run_unit"]


class UnitFigures(TypedDict):
    """Cycles of a run, and of a mesh the share in which its PEs multiply."""

    cycles: int
    utilisation: NotRequired[float]


class UnitRun(UnitFigures):
    """A run of a unit; ``words`` were compared with the reference, and ``differing`` arrays are not equal to it."""

    unit: str
    simulator: str
    equal: bool
    differing: list[str]
    words: int
    output: str


def describe_unit(unit: Unit, settings: Mapping[str, object]) -> dict[str, Any]:
    """Parameters and arrays of a unit."""
    parameters = unit.settings(settings)
    adapter = unit_adapter(unit)
    return {
        "name": unit.name,
        "summary": unit.summary,
        "parameters": [
            {"name": p.name, "default": parameters[p.name], "type": p.type_name, "description": p.description}
            for p in unit.parameters
        ],
        "inputs": [array.as_dict() for array in adapter.inputs(parameters)],
        "outputs": [array.as_dict() for array in adapter.outputs(parameters)],
    }


def run_unit(
    unit: Unit,
    source: Path,
    output: Path,
    *,
    settings: Mapping[str, object] | None = None,
    simulator: str = "verilator",
) -> UnitRun:
    """Runs the arrays of ``source`` through the unit and writes ``output``.

    ``output`` holds each array that came out, the reference's as ``reference_NAME``, and ``cycles``, from the
    first beat offered to the last one taken; of a mesh also ``utilisation``, the share of these cycles, times
    PEs, in which a PE multiplies what was given.
    """
    parameters = unit.settings(settings or {})
    adapter = unit_adapter(unit)
    check_file(output, inputs=(source,))
    check_simulator(simulator)
    arrays = _read(source, adapter.inputs(parameters))
    component = unit.build(**parameters)
    if adapter.wrap is not None:
        component = adapter.wrap(component)
    feed = adapter.feed(component, arrays)
    beats, cycles = simulate(component, feed, simulator=simulator)
    answer = adapter.collect(component, arrays, unpacked(component, beats))
    expected = adapter.reference(parameters, arrays)
    differing = [name for name in answer if not np.array_equal(answer[name], expected[name])]
    figures: UnitFigures = {"cycles": cycles}
    if adapter.busy is not None:
        figures["utilisation"] = adapter.busy(arrays) / cycles
    _write(
        output,
        answer
        | {f"reference_{name}": value for name, value in expected.items()}
        | {name: np.array(value) for name, value in figures.items()},
    )
    return {
        "unit": unit.name,
        "simulator": simulator,
        **figures,
        "equal": not differing,
        "differing": differing,
        "words": int(sum(value.size for value in answer.values())),
        "output": str(output),
    }


def _read(source: Path, wanted: list[UnitArray]) -> Arrays:
    try:
        found = read_npz(source)
    except ValueError as error:
        raise ValueError(f"input={error}") from None
    known = {array.name for array in wanted}
    unknown = sorted(set(found) - known)
    if unknown:
        raise ValueError(f"{unknown[0]}: is not an input of this unit; there are {', '.join(sorted(known))}")
    arrays: Arrays = {}
    sizes: dict[str, tuple[str, int]] = {}
    for array in wanted:
        if array.name not in found:
            if array.optional:
                continue
            raise ValueError(f"{array.name}: is missing from {source}; see --describe")
        value = found[array.name]
        if not np.issubdtype(value.dtype, np.integer) and value.dtype != bool:
            raise ValueError(f"{array.name}: is {value.dtype}, must be integer (units of {array.units})")
        if value.ndim != len(array.shape):
            raise ValueError(
                f"{array.name}: has shape {value.shape}, must have {some(len(array.shape), 'dimension')}: "
                f"{', '.join(map(str, array.shape))}"
            )
        for extent, size in zip(array.shape, value.shape, strict=True):
            if isinstance(extent, int) and size != extent:
                raise ValueError(f"{array.name}: has shape {value.shape}, must be {array.shape}")
            if isinstance(extent, str):
                first = sizes.setdefault(extent, (array.name, size))
                if first[1] != size:
                    raise ValueError(f"{array.name}: {extent} is {size}, but {first[1]} in {first[0]}")
        if not value.size:
            raise ValueError(f"{array.name}: is empty, must have at least 1 element")
        if value.min() < array.low or value.max() > array.high:
            raise ValueError(f"{array.name}: holds {value.min()} to {value.max()}, must be {array.low} to {array.high}")
        arrays[array.name] = value.astype(np.int64)
    return arrays


def _write(output: Path, arrays: Arrays) -> None:
    with staged_file(output) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
