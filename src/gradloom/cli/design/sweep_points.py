"""Points of a sweep, from the request."""

import dataclasses
import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gradloom import __version__
from gradloom.preset import Preset, find_preset

from .generate import configured

__all__ = ["KEYS", "plan_points"]

#: What names a point. ``mesh``: rows x columns of the array; ``codes``: of cached activations, or of frozen weights.
KEYS = (
    "gradloom",
    "preset",
    "rank",
    "mesh",
    "codes",
    "settings",
    "area",
    "accuracy_of",
    "epochs",
    "seed",
    "model",
    "data",
    "toggled",
)


def plan_points(
    presets: Sequence[str],
    *,
    rank: str | None,
    mesh: str | None,
    codes: str | None,
    settings: Sequence[str],
    area: str,
    accuracy: bool,
    limit: int | None,
    epochs: int | None,
    seed: int,
    toggles: bool = False,
    model: Path | str | None = None,
    data: Path | str | None = None,
) -> list[dict[str, Any]]:
    """All combinations, as plain values by :data:`KEYS`."""
    for name in presets:
        if not (workload := find_preset(name).workload).can("measure") and workload.ships is None:
            raise ValueError(
                f"preset {name!r}: ships no fine-tune that a sweep could measure; gradloom plan and choose take a model"
            )
    found = [find_preset(name, verb="measure") for name in presets]
    if toggles:
        for name in presets:
            find_preset(name, verb="energy")
    if len(set(presets)) < len(presets):
        raise ValueError(f"presets {', '.join(presets)}: one is given twice")
    if not accuracy and (limit is not None or epochs is not None):
        raise ValueError(f"{'limit' if limit is not None else 'epochs'}: needs --accuracy")
    if accuracy and not any(preset.workload.has_accuracy for preset in found):
        raise ValueError(f"accuracy: must be left out, a sweep judges no fine-tune of {', '.join(presets)}")
    ranks = [_integer("rank", part, 1, 64) for part in _parts("rank", rank)]
    meshes = [_mesh(part) for part in _parts("mesh", mesh)]
    axes = [_axis(item) for item in settings]
    if len({axis[0][0] for axis in axes}) < len(axes):
        raise ValueError(f"--set {' '.join(settings)}: a parameter is given twice")
    points = []
    for preset in found:
        workload = preset.workload
        judged, learns = accuracy and workload.has_accuracy, workload.can("finetune")
        for name in _parts("codes", codes):
            workload.check_codes(name, preset.name)
        _check_kind(preset, rank=rank, epochs=epochs, model=model, data=data)
        fields = {field.name for field in dataclasses.fields(preset.config)}
        for (key, _), *_ in axes:
            if key not in fields:
                raise ValueError(f"{key}: no such parameter of {preset.name}; there are {', '.join(sorted(fields))}")
        for one, size, code, chosen in itertools.product(
            ranks or [workload.rank],
            meshes or ["{}x{}".format(*workload.mesh(preset.config))],
            _parts("codes", codes) or [workload.usual_codes],
            itertools.product(*axes),
        ):
            configured(preset.config, dict(chosen), check=False)
            points.append(
                {
                    "gradloom": __version__,
                    "preset": preset.name,
                    "rank": one,
                    "mesh": size,
                    "codes": code,
                    "settings": " ".join(f"{key}={value}" for key, value in chosen),
                    "area": area,
                    "accuracy_of": (limit or "all") if judged else "",
                    "epochs": (epochs or workload.usual("epochs")) if judged and learns else "",
                    "seed": seed if judged and learns else "",
                    "model": str(model or ""),
                    "data": str(data or ""),
                    "toggled": "short run" if toggles else "",
                }
            )
    return points


def _check_kind(preset: Preset, **given: Any) -> None:
    """Refuses options that a preset's kind does not have."""
    learns = preset.workload.can("finetune")
    for name in ("model", "data") if learns else ("rank", "epochs"):
        if given[name] is not None:
            why = "sweeps the shipped fine-tune" if learns else "answers and does not learn"
            raise ValueError(f"{name}={given[name]}: must be left out, {preset.name} {why}")
    if (given["model"] is None) != (given["data"] is None):
        one, other = ("model", "data") if given["data"] is None else ("data", "model")
        raise ValueError(f"{one}={given[one]}: needs --{other} too")
    for name in ("model", "data"):
        if given[name] is not None and not Path(given[name]).is_file():
            raise ValueError(f"{name}={given[name]}: no such file")


def _parts(name: str, text: str | None) -> list[str]:
    if text is None:
        return []
    parts = [part.strip() for part in text.split(",")]
    if not all(parts) or len(set(parts)) < len(parts):
        raise ValueError(f"{name}={text}: must be different values with commas between them")
    return parts


def _integer(name: str, text: str, low: int, high: int) -> int:
    if not re.fullmatch(r"\d{1,6}", text) or not low <= int(text) <= high:
        raise ValueError(f"{name}={text}: must be an integer from {low} to {high}")
    return int(text)


def _mesh(text: str) -> str:
    if not re.fullmatch(r"[1-9]\d{0,3}x[1-9]\d{0,3}", text):
        raise ValueError(f"mesh={text}: must be rows and columns, as in 25x16")
    return text


def _axis(item: str) -> list[tuple[str, str]]:
    key, equals, values = item.partition("=")
    if not equals or not key.strip() or not values.strip():
        raise ValueError(f"--set {item}: must be KEY=VALUE,VALUE,...")
    if key.strip() in ("rows", "panels", "edge", "columns"):
        raise ValueError(f"--set {item}: --mesh says how large the array is")
    return [(key.strip(), value) for value in _parts(key.strip(), values)]
