"""The preset that a model, a board and a method ask for."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gradloom.models.files.kinds import what_is
from gradloom.preset import KNOWN, Preset
from gradloom.workload import Workload

__all__ = ["Asked", "asked_for"]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is fine-tuned, and where.

    Parameters
    ----------
    name : str
        What was named.
    preset : Preset
    model : str, optional
        Model to name in the options; None: the preset's own.
    why : str, optional
        How the preset was found; None where it was named.
    """

    name: str
    preset: Preset
    model: str | None = None
    why: str | None = None


def asked_for(model: str, *, board: str | None = None, method: str | None = None) -> Asked:
    """The preset of a model.

    ``model`` is a preset's name, a shipped model's, a file or a folder.

    ``board`` may be left out of a shipped model, which is a preset's own, and where one board alone has a preset for
    the model. ``method`` parts presets of one board; the first is meant where it is left out.

    Raises
    ------
    ValueError
        ``model`` is none of these; no preset on ``board`` fine-tunes it; several boards have one.
    """
    if model in KNOWN:
        preset = KNOWN.find(model)
        if board not in (None, preset.board):
            raise ValueError(f"board={board}: must be left out or {preset.board}, which preset {model} is for")
        return Asked(name=model, preset=preset)
    learning = [preset for preset in KNOWN.values() if preset.workload.can("prepare")]
    shipping = [preset for preset in learning if preset.workload.ships == model]
    asked = {kind.kind: kind.function("knows")(model) for kind in _kinds(learning)}
    kinds = {name: named for name, named in asked.items() if named is not None}
    others = [preset for preset in learning if preset.workload.kind in kinds and preset not in shipping]
    found = shipping if shipping and board is None else [*shipping, *others]
    if not found:
        raise ValueError(_unknown(model, learning))
    preset = _on(board, method, found, model)
    why = "" if board else ", whose model it is" if preset in shipping else ", no other board does"
    return Asked(
        name=model,
        preset=preset,
        model=None if preset in shipping else kinds[preset.workload.kind],
        why=f"{model}: preset {preset.name} fine-tunes {preset.workload.title} on {preset.board}{why}",
    )


def _kinds(learning: Sequence[Preset]) -> list[type[Workload]]:
    """Kinds of workloads that know a model when they see it."""
    return [kind for kind in dict.fromkeys(type(preset.workload) for preset in learning) if kind.can("knows")]


def _on(board: str | None, method: str | None, found: Sequence[Preset], model: str) -> Preset:
    """The first preset on a board, by a method where one is given."""
    boards = list(dict.fromkeys(preset.board for preset in found))
    if board is not None and board not in boards:
        raise ValueError(f"board={board}: no preset fine-tunes {model} on it; must be one of {', '.join(boards)}")
    if board is None and len(boards) > 1:
        raise ValueError(f"board: must be given, presets of {', '.join(boards)} fine-tune {model}")
    here = [preset for preset in found if preset.board == (board or boards[0])]
    return next((preset for preset in here if method in preset.workload.methods), here[0])


def _unknown(model: str, learning: Sequence[Preset]) -> str:
    shipped = ", ".join(sorted({name for preset in learning if (name := preset.workload.ships) is not None}))
    takes = "; ".join(dict.fromkeys(kind.reads for kind in _kinds(learning)))
    path = Path(model)
    if not path.exists():
        return f"model={model}: is no file, none of the presets {', '.join(KNOWN)} and no shipped model ({shipped})"
    is_a = what_is(path) or ("a folder" if path.is_dir() else "a file of a kind that is not known")
    return f"model={model}: is {is_a}, which no preset fine-tunes; must be one of: {takes}"
