"""The page of a fine-tune: plots, results, cycles, and what was asked for."""

import base64
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

__all__ = ["report_page"]

#: Entries of metrics.json that have a place of their own on the page, or none.
_ELSEWHERE = (
    *("cycles", "diverged", "engine", "files", "forecast"),
    *("confusion_after", "confusion_before", "gradloom", "parameters", "preset", "request", "samples_of_text", "units"),
)
_MOST = 6
_NUMBER = re.compile(r"-?[\d,.]+(e[+-]\d+)?")
_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; } th { text-align: left; font-weight: 600; }
td, th { padding: 0.15rem 1.2rem 0.15rem 0; border-bottom: 1px solid #8884; vertical-align: top; }
td.n { text-align: right; font-variant-numeric: tabular-nums; } .soft { color: #777; }
.warn { border-left: 4px solid #c98b5a; padding-left: 0.8rem; } img { max-width: 100%; background: white; }
"""


def report_page(folder: Path, metrics: Mapping[str, Any], title: str) -> str:
    """A fine-tune's page in HTML, which needs no other file.

    Parameters
    ----------
    folder : Path
        Its pictures, ``*.png``, are on the page.
    metrics : mapping
        As in ``metrics.json``.
    title : str
    """
    engine = {"rtl": "in simulated RTL", "reference": "by the integer reference", "float": "in floating point"}
    told = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(metrics['preset'])}: {escape(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(title)}: {escape(str(metrics.get('model') or metrics['preset']))}</h1>",
        f"<p class=soft>{escape(metrics['preset'])}, {engine[metrics['engine']]}; gradloom {metrics['gradloom']}</p>",
        *(f"<p class=warn>{escape(reason)}</p>" for reason in metrics["diverged"]),
        *_table("Before and after", ("", "before", "after", "unit"), _pairs(metrics)),
        *_pictures(folder),
        *_samples(metrics.get("samples_of_text", ())),
        *(_line for when in ("before", "after") for _line in _confusion(when, metrics.get(f"confusion_{when}"))),
        *_table("Cycles", ("phase", "forecast", "counted"), _cycles(metrics)),
        *_table("Results", ("entry", "value", "unit"), _results(metrics)),
        *_details("What was asked for", metrics["request"]),
        *_details("Files that were read, SHA-256", metrics["files"]),
        *_details("The machine", metrics["parameters"]),
        "</body></html>",
    ]
    return "\n".join(told) + "\n"


def _pairs(metrics: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Figures that are there before and after."""
    for name, before in metrics.items():
        after = metrics.get(name.removesuffix("_before") + "_after")
        if name.endswith("_before") and name not in _ELSEWHERE and after is not None:
            shown = name.removesuffix("_before").replace("_", " ")
            yield shown, _value(before), _value(after), _unit(metrics, name)


def _cycles(metrics: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    forecast, counted = metrics["forecast"] or {}, metrics.get("cycles") or {}
    for name in dict.fromkeys((*forecast, *counted)):
        if forecast.get(name) or counted.get(name):
            yield name, _value(forecast.get(name)), _value(counted.get(name))


def _results(metrics: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    paired = {name.removesuffix("_before") for name in metrics if name.endswith("_before")}
    for name, value in metrics.items():
        if (
            name in _ELSEWHERE
            or name in metrics["request"]
            or name.removesuffix("_before").removesuffix("_after") in paired
        ):
            continue
        for path, each in _flat(name, value):
            if each is not None:
                yield path, _value(each), _unit(metrics, path)


def _flat(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _flat(f"{path}.{name}", each)
    else:
        yield path, value


def _unit(metrics: Mapping[str, Any], path: str) -> str:
    """The unit of an entry, or of the nearest above it that has one."""
    while path:
        if path in metrics["units"]:
            return str(metrics["units"][path])
        path = path.rpartition(".")[0]
    return ""


def _value(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_value(each)}" for name, each in value.items())
    shown = [_value(each) for each in value[:_MOST]]
    return ", ".join(shown) + (f", … ({len(value):,} in all)" if len(value) > _MOST else "")


def _table(title: str, heads: Iterable[str], rows: Iterable[tuple[Any, ...]]) -> Iterator[str]:
    lines = [tuple(map(str, row)) for row in rows]
    if lines:
        yield f"<h2>{title}</h2><table><tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr>"
        for first, *rest in lines:
            cells = "".join(_cell(each) for each in rest)
            yield f"<tr>{_cell(first)}{cells}</tr>"
        yield "</table>"


def _cell(text: str) -> str:
    kind = " class=n" if _NUMBER.fullmatch(text) else ""
    return f"<td{kind}>{escape(text)}</td>"


def _samples(samples: Iterable[Mapping[str, str]]) -> Iterator[str]:
    """Texts, and how the model goes on before and after."""
    rows = [(each["prompt"], each["before"], each["after"]) for each in samples]
    yield from _table("Samples", ("text", "before", "after"), rows)


def _confusion(when: str, counts: Sequence[Sequence[int]] | None) -> Iterator[str]:
    """A row a class, a column an answer."""
    rows = [(f"class {number}", *(f"{each:,}" for each in row)) for number, row in enumerate(counts or ())]
    heads = ("", *map(str, range(len(rows))))
    yield from _table(f"Answers {when}, a row a class", heads, rows)


def _details(title: str, values: Mapping[str, Any]) -> Iterator[str]:
    if values:
        rows = [(path, _value(each)) for name, value in values.items() for path, each in _flat(name, value)]
        body = "".join(f"<tr>{_cell(path)}{_cell(each)}</tr>" for path, each in rows)
        yield f"<details><summary>{title}</summary><table>{body}</table></details>"


def _pictures(folder: Path) -> Iterator[str]:
    for file in sorted(folder.glob("*.png")):
        held = base64.b64encode(file.read_bytes()).decode("ascii")
        yield f'<p><img alt="{escape(file.stem)}" src="data:image/png;base64,{held}"></p>'
