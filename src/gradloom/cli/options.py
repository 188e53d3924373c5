"""Options of all kinds of workloads, for the command line."""

import inspect
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from gradloom.preset import Preset
from gradloom.systems.request import by_option
from gradloom.workload import Workload

__all__ = ["parameters"]


Presets = Mapping[str, Preset]


def _kinds(presets: Presets) -> list[type[Workload]]:
    """Kinds of workloads, in the presets' order."""
    return list(dict.fromkeys(type(preset.workload) for preset in presets.values()))


def parameters(presets: Presets) -> Iterator[inspect.Parameter]:
    """Parameters of the verb, by keyword, None unless given.

    Presets that do not learn have none.
    """
    presets = {name: preset for name, preset in presets.items() if preset.workload.can("prepare")}
    for name, kinds in by_option(_kinds(presets)).items():
        types = kinds[0].takes.types()[name]
        flag = types[0] is bool
        plain: Any = bool if flag else types[0] | None
        annotation: Any = Annotated[plain, _typer_option(presets, name, kinds, flag)]
        yield inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=False if flag else None, annotation=annotation
        )


def _typer_option(presets: Presets, name: str, kinds: list[type[Workload]], flag: bool) -> Any:
    known = [kind.takes.known()[name] for kind in kinds]
    metavar = known[0].metavar or ("|".join(map(str, known[0].choices)) or None)
    texts = dict.fromkeys(each.help for each in known)
    bounds = {
        kind.label: f"{each.bounds}"
        for kind, each in zip(kinds, known)
        if each.bounds is not None and each.bounds.low is not None and each.bounds.high != 1 << 63
    }
    limits = _joined(bounds)
    return typer.Option(
        *([f"--{name}"] if flag else []),
        metavar=None if flag else metavar,
        help=" Or: ".join(texts) + (f" ({limits})" if limits else ""),
        show_default=False if flag else _usual(presets, name) or False,
        rich_help_panel=_panel(presets, kinds),
    )


def _joined(texts: Mapping[str, str]) -> str:
    """Texts by kind of data.

    The first has no name; others follow where they differ.
    """
    if not texts:
        return ""
    first = next(iter(texts.values()))
    return "; ".join([first, *(f"{label}: {text}" for label, text in texts.items() if text != first)])


def _usual(presets: Presets, name: str) -> str:
    """Default of an option.

    It is the first preset's, then the differences from it.
    """
    told: dict[str, str] = {}
    for preset in presets.values():
        workload = preset.workload
        if name not in workload.takes.known() or (text := workload.usual(name)) is None:
            continue
        label = workload.label
        if told.setdefault(label, text) != text:
            told[preset.name] = text
    # A preset's own beside those of its kind.
    order = sorted(
        told,
        key=lambda each: list(told).index(presets[each].workload.label) if each in presets else list(told).index(each),
    )
    return _joined({each: told[each] for each in order})


def _panel(presets: Presets, kinds: list[type[Workload]]) -> str | None:
    every = _kinds(presets)
    if len(kinds) == len(every):
        return None
    labels = {kind.label for kind in kinds}
    if len(kinds) == 1 and sum(each.label in labels for each in every) > 1:
        return f"Presets that fine-tune {kinds[0].title}"
    return f"Presets that fine-tune {' or '.join(sorted(labels))}"
