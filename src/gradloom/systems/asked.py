"""The preset that a model, a board and a method ask for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gradloom.json_file import read_json
from gradloom.models.files.kinds import what_is
from gradloom.preset import KNOWN, Preset
from gradloom.workload import Workload

__all__ = ["Asked", "asked_for", "learnt_by"]

#: What a preset does for a verb, in words that a model's name follows; for none, that it has a design.
_DOES: Mapping[str | None, str] = {
    "finetune": "fine-tunes",
    "card": "writes a memory card for",
    "infer": "answers by",
    "plan": "plans for",
    "choose": "chooses for",
    None: "is sized for",
}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is asked, and of which preset.

    Parameters
    ----------
    name : str
        What was named.
    preset : Preset
    model : str, optional
        Model to name in the options; None: the preset's own.
    why : str, optional
        How the preset was found; None where it was named.
    board : str
        Name of the board; ``elsewhere``: no preset is for it, and ``preset`` is another board's.
    """

    name: str
    preset: Preset
    model: str | None = None
    why: str | None = None
    board: str = ""

    @property
    def elsewhere(self) -> bool:
        """Whether the board is another than the preset's."""
        return self.board not in ("", self.preset.board)


def asked_for(
    model: str,
    *,
    board: str | None = None,
    method: str | None = None,
    verb: str | None = "finetune",
    any_board: bool = False,
    given: Mapping[str, Any] | None = None,
) -> Asked:
    """The preset of a model.

    ``model`` is a preset's name, a shipped model's, a file or a folder.

    ``board`` may be left out of a shipped model, which is a preset's own, and where one board alone has a preset for
    the model; an answer that needs no board, and a workload that has a usual one, take the first. ``method`` parts
    presets of one board; the first is meant where it is left out, unless only a later one has the options that are
    ``given`` or takes their data. ``verb``: one that the preset must have; None: any preset has a design.
    ``any_board``: a board without a preset is another's.

    Raises
    ------
    ValueError
        ``model`` is none of these; no preset on ``board`` has the verb for it; several boards have one.
    """
    if model in KNOWN:
        return _named(model, board, verb)
    folder = Path(model)
    if (folder / "adapter_config.json").is_file() and not (folder / "config.json").is_file():
        raise ValueError(f"model={model}: is an adapter's folder: name the model that it is for, and --adapter {model}")
    able = [preset for preset in KNOWN.values() if verb is None or preset.workload.can(verb)]
    shipping = [preset for preset in able if preset.workload.ships == model]
    asked = {kind.kind: kind.function("knows")(model) for kind in _kinds(able)}
    kinds = {name: named for name, named in asked.items() if named is not None}
    others = [preset for preset in able if preset.workload.kind in kinds and preset not in shipping]
    found = shipping if shipping and board is None else [*shipping, *others]
    if not found:
        raise ValueError(_unknown(model, able, verb))
    preset, reason = _on(board, method, found, model, verb, any_board, given or {})
    if board:
        why = ""
    elif preset in shipping:
        why = ", whose model it is"
    else:
        why = ", the first of several" if len({each.board for each in found}) > 1 else ", no other board does"
    why += f"; {reason}" if reason else ""
    if verb is not None and preset not in shipping and preset.workload.can("held"):
        config, changed = preset.workload.function("held")(preset, kinds[preset.workload.kind])
        preset, why = replace(preset, config=config), why + (f"; with {changed}" if changed else "")
    return Asked(
        name=model,
        preset=preset,
        model=None if preset in shipping else kinds[preset.workload.kind],
        why=f"{model}: preset {preset.name} fine-tunes {preset.workload.title} on {preset.board}{why}"
        if preset.workload.can("finetune")
        else f"{model}: preset {preset.name} answers on {preset.board}{why}",
        board=board or preset.board,
    )


def learnt_by(adapter: Path | str | None) -> str | None:
    """The method of a fine-tune's output folder, where it says which."""
    try:
        found = read_json(Path(adapter or "") / "adapter_config.json")
        return str(found["gradloom_method"])
    except (OSError, KeyError, TypeError, ValueError):
        return None


def _named(model: str, board: str | None, verb: str | None) -> Asked:
    """The preset of a name."""
    preset = KNOWN.find(model)
    workload = preset.workload
    if verb is None and board is not None and _shared(board, preset):
        return Asked(name=model, preset=replace(preset, board=board), board=board)
    if board not in (None, preset.board):
        raise ValueError(f"board={board}: must be left out or {preset.board}, which preset {model} is for")
    if verb is not None and not workload.can(verb):
        if verb == "finetune":
            raise ValueError(f"preset={model}: answers and does not learn; gradloom infer {model} runs it")
        able = ", ".join(each.name for each in KNOWN.values() if each.workload.can(verb))
        raise ValueError(f"preset={model}: nothing there {_DOES[verb]} {workload.label}; must be one of {able}")
    return Asked(name=model, preset=preset, board=preset.board)


def _shared(board: str, preset: Preset) -> bool:
    """Whether a board that is not the preset's own takes its design as it is."""
    from gradloom.boards import find as find_board

    shell = find_board(board).shell
    return board != preset.board and shell != "" and shell == find_board(preset.board).shell


def _kinds(able: Sequence[Preset]) -> list[type[Workload]]:
    """Kinds of workloads that know a model when they see it."""
    return [kind for kind in dict.fromkeys(type(preset.workload) for preset in able) if kind.can("knows")]


def _on(
    board: str | None,
    method: str | None,
    found: Sequence[Preset],
    model: str,
    verb: str | None,
    any_board: bool,
    given: Mapping[str, Any],
) -> tuple[Preset, str]:
    """The first preset on a board that takes what is given, and why an earlier one does not."""
    boards = list(dict.fromkeys(preset.board for preset in found))
    if board is not None:
        from gradloom.boards import find as find_board

        find_board(board)
    if board is not None and board not in boards:
        beside = [preset for preset in found if verb is None and _shared(board, preset)]
        if beside:
            return replace(beside[0], board=board), ""
        if any_board:
            return found[0], ""
        raise ValueError(f"board={board}: no preset {_DOES[verb]} {model} on it; must be one of {', '.join(boards)}")
    if board is None and len(boards) > 1 and verb != "infer" and not found[0].workload.usual_board:
        raise ValueError(f"board: must be given, {', '.join(boards)} have presets for {model}")
    here = [preset for preset in found if preset.board == (board or boards[0])]
    here = [preset for preset in here if method in preset.workload.methods] or here
    reasons = [_lacks(preset, here, model, verb, given) for preset in here] if len(here) > 1 else [""]
    first = next((n for n, reason in enumerate(reasons) if not reason), 0)
    return here[first], reasons[0] if first else ""


def _lacks(preset: Preset, others: Sequence[Preset], model: str, verb: str | None, given: Mapping[str, Any]) -> str:
    """What a preset does not take of what is given; "" for nothing. An option that no preset has is nobody's."""
    if verb is None:
        return ""
    own, kinds = preset.workload.takes.get(verb), [each.workload.takes.get(verb) for each in others]
    every = {name for kind in kinds if kind is not None for name in kind.known()}
    asked = {name for name, value in given.items() if value not in (None, False)}
    missing = sorted(asked & every - set(own.known() if own is not None else ()) - {"method"})
    if missing:
        return f"{preset.name} has no --{missing[0].replace('_', '-')}"
    if not preset.workload.can("unfit"):
        return ""
    reason: str | None = preset.workload.function("unfit")(preset, model, given)
    return f"{preset.name} does not take it: {reason}" if reason else ""


def _unknown(model: str, able: Sequence[Preset], verb: str | None) -> str:
    shipped = ", ".join(sorted({name for preset in able if (name := preset.workload.ships) is not None}))
    takes = "; ".join(dict.fromkeys(kind.reads for kind in _kinds(able)))
    path = Path(model)
    kind = next((each.workload for each in KNOWN.values() if each.workload.ships == model), None)
    if kind is not None:
        return f"model={model}: no preset {_DOES[verb]} {kind.label}; must be one of: {takes}"
    if not path.exists():
        return f"model={model}: is no file, none of the presets {KNOWN} and no shipped model ({shipped})"
    is_a = what_is(path) or ("a folder" if path.is_dir() else "a file of a kind that is not known")
    return f"model={model}: is {is_a}, which no preset {_DOES[verb]}; must be one of: {takes}"
