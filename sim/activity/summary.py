"""Transitions a cycle of a design's engines and parts."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

from .counts import parts, signals
from .saif import Instance

__all__ = ["NetActivity", "PartActivity", "SummaryPart", "activity_of", "most_active", "named_parts"]

#: Names of a loop's variable at the start of a simulation, which is no hardware.
_LOOP = re.compile(r"clear_\w+")


class NetActivity(TypedDict):
    """Nets, their transitions a cycle, and transitions of a net in a cycle."""

    nets: int
    toggles_a_cycle: float
    toggles_a_net: float


class PartActivity(NetActivity):
    """The same of a part, of which there are so many ``instances``; ``share`` of all transitions, in percent."""

    part: str
    instances: int
    share: float


@dataclass
class SummaryPart:
    """Nets of an instance, or of several that are alike, with all below.

    Ports are nets of the instance above, the outermost module's are its own: so each net counts once.

    Attributes
    ----------
    path : tuple of str
        Names of the instances; ``row_*`` stands for all of that kind.
    nets, toggles : int
        With those of the parts.
    own_nets, own_toggles : int
        Without them.
    """

    path: tuple[str, ...]
    kind: str
    own_nets: int = 0
    own_toggles: int = 0
    instances: int = 1
    parts: list["SummaryPart"] = field(default_factory=list)

    @property
    def nets(self) -> int:
        return self.own_nets + sum(each.nets for each in self.parts)

    @property
    def toggles(self) -> int:
        return self.own_toggles + sum(each.toggles for each in self.parts)

    def add(self, other: "SummaryPart") -> None:
        """Counts a like instance, too."""
        self.own_nets += other.own_nets
        self.own_toggles += other.own_toggles
        self.instances += other.instances
        for mine, its in zip(self.parts, other.parts, strict=True):
            mine.add(its)

    def named(self, name: str) -> "SummaryPart":
        """The outermost part of this name among the engines."""
        called = [each for each in _walk(self) if each.path[:1] == ("engines",) and each.path[-1] == name]
        if not called:
            raise KeyError(name)
        return min(called, key=lambda each: len(each.path))

    def row(self, cycles: int, whole: int) -> PartActivity:
        """Figures as the command line shows them."""
        return {
            "part": "/".join(self.path) or "all",
            "instances": self.instances,
            **figures(self.nets, self.toggles, cycles),
            "share": round(100 * self.toggles / whole, 2) if whole else 0.0,
        }


def figures(nets: int, toggles: int, cycles: int) -> NetActivity:
    """Figures of so many transitions."""
    return {
        "nets": nets,
        "toggles_a_cycle": round(toggles / cycles, 2),
        "toggles_a_net": round(toggles / cycles / nets, 4) if nets else 0.0,
    }


class _Modules:
    """Instances and ports of modules, from a design's Verilog."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.parts = {module: {name: kind for kind, name in each} for module, each in parts(texts).items()}
        self.ports = {
            module: {name for name, signal in each.items() if signal.port}
            for text in texts
            for module, each in signals(text).items()
        }


def activity_of(design: Instance, files: Iterable[Path], top: str) -> SummaryPart:
    """Transitions of a design by its instances, like ones together.

    Scopes that are no instances of the Verilog in ``files`` are removed from ``design``. ``top``: its outermost module.
    """
    modules = _Modules([path.read_text(encoding="utf-8") for path in files])
    return _part(design, top, (), modules, ports=True)


def _part(
    instance: Instance, kind: str, path: tuple[str, ...], modules: _Modules, *, ports: bool = False
) -> SummaryPart:
    hidden = set() if ports else modules.ports[kind]
    own = [net.toggles for net in instance.nets if net.signal not in hidden]
    made = SummaryPart(path, kind, len(own), sum(own))
    known = modules.parts[kind]
    alike: dict[tuple[str, str], SummaryPart] = {}
    for name in [name for name in instance.parts if name not in known and _LOOP.fullmatch(name)]:
        del instance.parts[name]
    several = _several(instance.parts, known)
    for name, below in instance.parts.items():
        label = (known[name], _starred(name) if (known[name], _starred(name)) in several else name)
        part = _part(below, known[name], (*path, label[1]), modules)
        if label in alike:
            alike[label].add(part)
        else:
            alike[label] = part
    made.parts = list(alike.values())
    return made


def _starred(name: str) -> str:
    return re.sub(r"\d+$", "*", name)


def _several(names: Mapping[str, Instance], known: Mapping[str, str]) -> set[tuple[str, str]]:
    """Modules and numbered names of which there are several instances."""
    labels = [(known[name], _starred(name)) for name in names]
    return {label for label in labels if labels.count(label) > 1}


def _walk(part: SummaryPart) -> Iterator[SummaryPart]:
    yield part
    for each in part.parts:
        yield from _walk(each)


def named_parts(whole: SummaryPart, names: Sequence[str], cycles: int) -> list[PartActivity]:
    """A row for each of the engines in ``names``, the shell, and the rest.

    Without engines there is a row for each part.
    """
    engines = [whole.named(name) for name in names]
    chosen = [*engines, *(each for each in whole.parts if each.path[0] != "engines" or not engines)]
    total = whole.toggles
    rows: list[PartActivity] = [{**each.row(cycles, total), "part": each.path[-1]} for each in chosen]
    nets, toggles = (getattr(whole, each) - sum(getattr(part, each) for part in chosen) for each in ("nets", "toggles"))
    share = round(100 * toggles / total, 2) if total else 0.0
    rows.append({"part": "between them", "instances": 1, **figures(nets, toggles, cycles), "share": share})
    return rows


def most_active(whole: SummaryPart, cycles: int, count: int = 12) -> list[PartActivity]:
    """Rows of the parts whose own nets have the most transitions."""
    ranked = sorted(_walk(whole), key=lambda each: each.own_toggles, reverse=True)[:count]
    total = whole.toggles
    return [
        SummaryPart(each.path, each.kind, each.own_nets, each.own_toggles, each.instances).row(cycles, total)
        for each in ranked
    ]
