"""Options of all kinds of workloads, for command line and Python."""

import functools
import inspect
import operator
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from gradloom.presets import PRESETS, Preset
from gradloom.workload import Workload

__all__ = ["given", "parameters"]


Presets = Mapping[str, Preset]


def _kinds(presets: Presets) -> list[type[Workload]]:
    """Kinds of workloads, in the presets' order."""
    return list(dict.fromkeys(type(preset.workload) for preset in presets.values()))


def _fields(presets: Presets) -> dict[str, list[type[Workload]]]:
    """Kinds that have an option, by its name; those of all kinds first."""
    found: dict[str, list[type[Workload]]] = {}
    for kind in _kinds(presets):
        for name in kind.takes.known():
            found.setdefault(name, []).append(kind)
    every = len(_kinds(presets))
    return dict(sorted(found.items(), key=lambda each: len(each[1]) < every))


def parameters(presets: Presets = PRESETS, *, command: bool) -> Iterator[inspect.Parameter]:
    """Parameters by keyword, None unless given.

    They have types for callers, or the form that the command line takes. Presets that do not learn have none.
    """
    presets = {name: preset for name, preset in presets.items() if preset.workload.can("prepare")}
    for name, kinds in _fields(presets).items():
        types = kinds[0].takes.types()[name]
        if not command:
            union = functools.reduce(operator.or_, (*types[1:], type(None)), types[0])
            yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=union)
            continue
        flag = types[0] is bool
        plain: Any = bool if flag else types[0] | None
        annotation: Any = Annotated[plain, _typer_option(presets, name, kinds, flag)]
        yield inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=False if flag else None, annotation=annotation
        )


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in values.items() if value is not None and value is not False}


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
