"""Checks the ledger: every figure of the pages has its command.

``python docs/ledger.py`` reads the pages and ``docs/claims.toml`` and names every figure without a command; ``--run``
first runs the commands whose output is kept in ``docs/results.json``, seconds each; ``--say`` those whose numbers are
in ``docs/said.json``, minutes each; ``--page`` prints the ledger, which ``make docs`` shows as
``evidence/ledger.html``. How a figure gets its command:

- A table with a column "evidence and command" claims for itself: kind, colon, command in backticks.
- ``[[claim]]`` in ``claims.toml`` names command and kind for a page, a section of it, or what holds a text (``match``).
- ``[[plain]]`` says in the same way what is no claim, and why: a choice, a definition, arithmetic on the page.
- ``[[result]]`` is a command that prints JSON; a claim's ``values`` (``forecast.total``, ``mesh.bytes/1e6:.2f MB``)
  must stand on the page as the last run left them: as whole numbers, with their unit, in this order.
- ``[[said]]`` is a command of any output: every figure of its claims must be a number that its last run printed, see
  ``said.py``, but for those that the entry lists. ``steps``: what runs where the command has a placeholder.

The narrowest entry holds: text before section before page. A figure that none covers is a fault, and so is an entry
that covers nothing: ``tests/docs/test_ledger.py``.
"""

import argparse
import dataclasses
import json
import os
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# The folder is no package.
sys.path.insert(0, str(HERE))
from said import is_said, numbers, outputs  # noqa: E402

ROOT = HERE.parent
WITNESSES = HERE / "witnesses.json"
CLAIMS, RESULTS, SAID, PAGE = (
    HERE / name for name in ("claims.toml", "results.json", "said.json", "evidence/ledger.md")
)
#: Commands that are tests and proofs.
_TESTS = re.compile(r"(GRADLOOM_DEEP=1 )?(python -m )?pytest |make proofs$|make evidence-")

#: What a figure may rest on, weakest first.
KINDS = {
    "published": "taken from somebody else's paper or data sheet",
    "arithmetic": "worked out from shapes or bounds, by hand or by a short script",
    "forecast": "a model of the machine's time or memory, without simulation",
    "count": "a count or time that a command of this project took of its own work",
    "reference": "the bit-exact reference or floating point, without RTL",
    "proof": "a prover, for every input",
    "simulation": "simulated RTL",
    "open synthesis": "the netlist that Yosys mapped to the chip's cells",
    "place-and-route": "open tools that know the chip's delays",
    "vendor tool": "Vivado",
    "board": "hardware",
}

#: The column by which a table claims for itself.
COLUMN = "evidence and command"
#: How tables with their own column begin what they say of the evidence.
SPOKEN = {
    "bit-exact reference": "reference",
    "reference and float": "reference",
    "simulated rtl": "simulation",
    "model of the program": "forecast",
    "by the bit-exact reference": "reference",
}

_UNITS = (
    r"%|cycles?\b|[kMG]?Hz\b|[kKMG]?B(?:/s)?\b|bytes\b|[munµ]?s\b|seconds\b|minutes\b|hours\b|(?:k )?LUTs?\b|"
    r"DSPs?\b|flip-flops\b|block RAMs?\b|multipliers\b|levels\b|beats\b|nats\b|points\b|"
    r"(?:G )?MACs?\b|Mbit\b|M\b"
)
#: What looks like a measurement: a number with a unit, a ratio, one with separated thousands, two places or more, or an
#: exponent.
FIGURE = re.compile(
    rf"(?<![\w.,/=-])[±−+-]?(?:\d{{1,3}}(?:,\d{{3}})+(?:\.\d+)?(?:\s?(?:{_UNITS}))?|\d+(?:\.\d+)?(?:\s?(?:{_UNITS})|x\b)"
    rf"|\d+(?:\.\d+)?e-\d+|\d+\.\d{{2,}}(?![.\d\w]))"
)
_NOT_YET = re.compile(
    r"\bnot(?: \w+){0,3} yet\b|\bnothing yet\b|nothing (?:\w+ ){0,3}has been on hardware|"
    r"has not been on hardware|has been on hardware yet",
    re.IGNORECASE,
)


@dataclasses.dataclass(frozen=True)
class Passage:
    """A row of a table, a sentence, or a block of output on a page.

    ``row``: the cells of a table's row, each behind the heading of its column.
    """

    page: str
    section: str
    text: str
    row: tuple[tuple[str, str], ...] = ()

    @property
    def figures(self) -> list[str]:
        """Text in it that looks measured.

        Names in backticks and targets of links are not among it.
        """
        bare = re.sub(r"`[^`]*`|\]\([^)]*\)", " ", self.text)
        return [" ".join(found.group().split()) for found in FIGURE.finditer(bare)]

    @property
    def pending(self) -> bool:
        """Whether it says of something that it is not shown yet."""
        return bool(_NOT_YET.search(self.text))


@dataclasses.dataclass(frozen=True)
class Entry:
    """A line of the ledger.

    It has a passage, its kind and command, and the values of the last run that stand in it. ``checked``: by what.
    """

    passage: Passage
    kind: str
    command: str
    values: tuple[str, ...]
    checked: str


def pages() -> list[Path]:
    """README and the pages of ``docs`` and its folders.

    The ledger itself is not among them.
    """
    return [ROOT / "README.md", *sorted(path for path in HERE.rglob("*.md") if path != PAGE)]


def passages(path: Path) -> Iterator[Passage]:
    """All of a page, in order."""
    page = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
    section, fence = "", None
    paragraph: list[str] = []
    header: list[str] = []

    def sentences() -> Iterator[Passage]:
        text = " ".join(" ".join(paragraph).split())
        paragraph.clear()
        for part in re.split(r"(?<=[.:;])\s+(?=[A-Z*`(])", text):
            if part:
                yield Passage(page, section, part)

    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            if fence is None:
                yield from sentences()
                fence = line[3:].strip()
            else:
                # Output; what one types or programs is no claim.
                if fence in ("", "text") and paragraph:
                    yield Passage(page, section, " ".join(" ".join(paragraph).split()))
                paragraph.clear()
                fence = None
        elif fence is not None:
            paragraph.append(line)
        elif line.startswith("#"):
            yield from sentences()
            section, header = line.lstrip("# ").strip(), []
        elif line.startswith("|"):
            yield from sentences()
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            if all(re.fullmatch(r":?-+:?", cell) for cell in cells):
                continue
            header = header or cells
            if cells is not header:
                yield Passage(page, section, " | ".join(cells), tuple(zip(header, cells)))
            elif any(FIGURE.search(cell) for cell in cells):
                yield Passage(page, section, " | ".join(cells))
        elif line.startswith("<!--"):
            yield from sentences()
        else:
            if not line.strip() or re.match(r"(- |\d+\. )", line):
                yield from sentences()
            if not line.strip():
                header = []
            paragraph.append(line)
    yield from sentences()


class Ledger:
    """``claims`` about ``pages``.

    :attr:`faults` is empty where every figure has its command.
    """

    def __init__(
        self,
        claims: dict[str, Any],
        results: dict[str, Any],
        said: dict[str, list[str]] | None = None,
        of: list[Path] | None = None,
    ) -> None:
        self.entries: list[Entry] = []
        #: Reason and passage of what is no claim; and what says of itself that it is not shown.
        self.plain: list[tuple[str, Passage]] = []
        self.pending: list[Passage] = []
        self.faults: list[str] = []
        self._claims, self._plain, self._results = claims.get("claim", []), claims.get("plain", []), results
        self._commands = {each["id"]: each["command"] for each in claims.get("result", [])}
        self._said = said or {}
        self._but = {each["command"]: each.get("but", ()) for each in claims.get("said", ())}
        self._used: set[int] = set()
        for path in pages() if of is None else of:
            spoken: tuple[str, str] = ("", "")
            for passage in passages(path):
                spoken = self._spoken(passage, spoken)
                self._enter(passage, spoken)
        for each in [*self._claims, *self._plain]:
            if id(each) not in self._used:
                self.faults.append(f"claims.toml: covers nothing: {_where(each)}")

    @staticmethod
    def _spoken(passage: Passage, before: tuple[str, str]) -> tuple[str, str]:
        """Kind and command that a row states in its own column.

        "the same" is the row above.
        """
        said = dict(passage.row).get(COLUMN)
        if said is None:
            return "", ""
        start = said.split(":")[0].split(",")[0].strip().lower()
        kind = SPOKEN.get(start, start if start in KINDS else "")
        command = "; ".join(
            f"pytest {part}" if part.startswith("tests/") else part for part in re.findall(r"`([^`]+)`", said)
        )
        if said.startswith("the same"):
            return before
        if "the same" in said:
            command = before[1]
        return kind, command

    def _enter(self, passage: Passage, spoken: tuple[str, str]) -> None:
        if passage.pending:
            self.pending.append(passage)
        # What a row says of itself holds before what is said of its section.
        found, entry = self._covering(passage, narrow=any(spoken))
        if not passage.figures and not (found and found.get("rows") and passage.row):
            return
        if entry == "plain":
            assert found is not None
            self.plain.append((found["why"], passage))
            return
        kind, command = (found or {}).get("kind", spoken[0]), (found or {}).get("command", spoken[1])
        where = f"{passage.page}, {passage.section!r}: {passage.text[:100]!r}"
        if not command or not kind:
            if passage.pending:
                return
            self.faults.append(
                f"{where}: no {'command' if not command else 'kind'}; figures "
                f"{', '.join(passage.figures)}; add a [[claim]] or [[plain]] to docs/claims.toml"
            )
            return
        if kind not in KINDS:
            self.faults.append(f"{where}: kind {kind!r} must be one of {', '.join(KINDS)}")
        values, at = [], 0
        for wanted in (found or {}).get("values", ()):
            text = value(wanted, self._results)
            values.append(text)
            # Not as a part of another number or of another unit, nor one that was another value's already.
            stands = re.compile(rf"(?<![\w.,]){re.escape(text)}(?![.,]?\w)").search(passage.text, at)
            if stands:
                at = stands.end()
            else:
                self.faults.append(
                    f"{where}: {wanted} was {text} in the last run of "
                    f"{self._commands.get(wanted.split('.')[0])!r}, which does not stand there"
                )
        parts = command.split("; ")
        checked = "value" if values else "tested" if all(map(_TESTS.match, parts)) else ""
        if not checked and all(part in self._said for part in parts):
            checked = "said"
            known = [number for part in parts for number in self._said[part]]
            others = [figure for part in parts for figure in self._but.get(part, ())]
            for figure in passage.figures:
                if figure not in others and not is_said(figure, known):
                    self.faults.append(f"{where}: {figure} is no number of the last run of {command!r}")
        self.entries.append(Entry(passage, kind, command, tuple(values), checked))

    def _covering(self, passage: Passage, *, narrow: bool) -> tuple[dict[str, Any] | None, str]:
        """The narrowest entry for a passage, and its list.

        Of equals it is the first. ``narrow``: by text only.
        """
        best: tuple[int, dict[str, Any] | None, str] = (0, None, "")
        for name, entries in (("claim", self._claims), ("plain", self._plain)):
            for each in entries:
                if each["page"] != passage.page or each.get("section", passage.section) != passage.section:
                    continue
                if each["match"] not in passage.text if "match" in each else narrow:
                    continue
                rank = 1 + ("section" in each) + 2 * ("match" in each)
                if rank > best[0]:
                    best = rank, each, name
        if best[1] is not None and (passage.figures or best[1].get("rows")):
            self._used.add(id(best[1]))
        return best[1], best[2]

    def page(self) -> str:
        """The tables of ``evidence/ledger.md``."""
        counts = {kind: sum(entry.kind == kind for entry in self.entries) for kind in KINDS}
        lines: list[str] = []
        if not counts["board"] and not counts["vendor tool"]:
            lines += [
                "**Not yet shown on a board: any of it.** No figure below comes from hardware, and none from a "
                "vendor's tool.",
                "",
            ]
        lines += ["| kind | source of a figure | claims |", "| --- | --- | --- |"]
        lines += [f"| {kind} | {source} | {counts[kind]} |" for kind, source in KINDS.items()]
        lines += [
            "",
            "*Last run* is the value that the command printed when `python docs/ledger.py --run` was last called, as "
            "`make evidence` does; a page that says something else fails the tests. *printed*: all figures are numbers "
            "that the command last printed. *tested*: the command is a test or a proof, whose bound may be wider than "
            "the figure. Where it is empty, the figure is the page's, and the command is there for you to run.",
            "",
        ]
        for page in dict.fromkeys(entry.passage.page for entry in self.entries):
            # README is no page of the site: a link there would lead out of it.
            name = f"[{page}]({os.path.relpath(ROOT / page, PAGE.parent)})" if page.startswith("docs/") else page
            lines += [f"## {name}", "| claim | kind | command | last run |", "| --- | --- | --- | --- |"]
            for entry in self.entries:
                if entry.passage.page == page:
                    commands = "; ".join(f"`{part}`" for part in entry.command.split("; "))
                    last = {"said": "printed", "tested": "tested"}.get(entry.checked, ", ".join(entry.values))
                    lines.append(f"| {_quoted(entry.passage)} | {entry.kind} | {commands} | {last} |")
            lines.append("")
        lines += _witnesses()
        lines += ["## Not yet shown", "Sentences of the pages that say so:", "", "| page | sentence |", "| --- | --- |"]
        lines += [f"| {each.page} | {_quoted(each)} |" for each in self.pending]
        lines += [
            "",
            "## No claims",
            "Numbers that look like figures and are none, by reason.",
            "",
            "| reason | page | numbers |",
            "| --- | --- | --- |",
        ]
        groups: dict[tuple[str, str], list[str]] = {}
        for why, passage in self.plain:
            groups.setdefault((why, passage.page), []).extend(passage.figures)
        for (why, page), figures in sorted(groups.items()):
            shown = list(dict.fromkeys(figures))
            lines.append(f"| {why} | {page} | {'; '.join(shown[:6])}{' …' if len(shown) > 6 else ''} |")
        return "\n".join(lines) + "\n"


def _witnesses() -> list[str]:
    """The section of what others' files said, and of what, by hashes."""
    lines = ["## Witnesses by others", "[The witnesses](witnesses.md); hashes are SHA-256, their first 16 digits.", ""]
    lines += ["| witness | differing of compared | its files | compared with |", "| --- | --- | --- | --- |"]
    for heard in json.loads(WITNESSES.read_text(encoding="utf-8")).values():
        for cell, said in heard["said"].items():
            compared = f"{said['differing']} of {said['compared']:,} {heard['of']}"
            lines.append(f"| {cell} | {compared} | `{heard['witness'][:16]}` | `{heard['unit'][:16]}` |")
    return [*lines, ""]


def value(wanted: str, results: dict[str, Any]) -> str:
    """A value of the last run as a page writes it.

    ``wanted``: ``id.key.key``, perhaps ``/divisor``, perhaps ``:format unit``.
    """
    path, _, form = wanted.partition(":")
    form, space, unit = form.partition(" ")
    path, _, divisor = path.partition("/")
    found: Any = results
    for key in path.split("."):
        found = found[int(key)] if isinstance(found, list) else found[key]
    return format(found / float(divisor) if divisor else found, form or ",") + space + unit


def _where(each: dict[str, Any]) -> str:
    return ", ".join(repr(each[key]) for key in ("page", "section", "match") if key in each)


def _quoted(passage: Passage) -> str:
    """A passage within a table.

    It has no links, emphasis or column that names the evidence, and is not too long.
    """
    cells = [cell for name, cell in passage.row if name != COLUMN] or [passage.text]
    text = "; ".join(cell for cell in cells if cell)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("**", "").lstrip("- ")
    text = text if len(text) <= 240 else text[: text.rindex(" ", 0, 240)] + " …"
    if text.count("`") % 2:
        text += "`"
    return re.sub(r"(?<!\\)\|", r"\\|", text)


def read_claims() -> dict[str, Any]:
    """``claims.toml``."""
    return tomllib.loads(CLAIMS.read_text(encoding="utf-8"))


def read_results() -> dict[str, Any]:
    """Results of the last run."""
    return json.loads(RESULTS.read_text(encoding="utf-8"))


def read_said() -> dict[str, list[str]]:
    """Numbers of the last runs, by command."""
    return json.loads(SAID.read_text(encoding="utf-8"))


def run(names: list[str]) -> dict[str, Any]:
    """Results of the commands with these ids, or of all.

    Others are as they were.
    """
    results = read_results() if RESULTS.exists() else {}
    for each in read_claims()["result"]:
        if names and each["id"] not in names:
            continue
        print(each["command"], flush=True)
        *_, last = outputs(each["command"].split("; "), ROOT)
        results[each["id"]] = _kept(json.loads(last), each["keep"])
    return dict(sorted(results.items()))


def say(names: list[str]) -> dict[str, list[str]]:
    """Numbers that commands print, of these or of all; what others printed is as it was."""
    said = read_said()
    listed = {each["command"]: each.get("steps", [each["command"]]) for each in read_claims().get("said", ())}
    for command, steps in listed.items():
        if not names or command in names:
            print(command, flush=True)
            said[command] = numbers("\n".join(outputs(steps, ROOT)))
    return {command: said[command] for command in sorted(listed) if command in said}


def _kept(found: Any, keep: list[str]) -> dict[str, Any]:
    """Values that a command printed, for the wanted paths.

    The key is the last part of a path.
    """
    kept = {}
    for path in keep:
        at = found
        for key in path.split("."):
            at = at[int(key)] if isinstance(at, list) else at[key]
        kept[path.split(".")[-1]] = at
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", nargs="*", metavar="ID", help="first run commands: these, or all")
    parser.add_argument("--say", nargs="*", metavar="COMMAND", help="first run commands for their numbers")
    parser.add_argument("--page", action="store_true", help="print the ledger")
    asked = parser.parse_args()
    if asked.run is not None:
        text = json.dumps(run(asked.run), indent=2) + "\n"
        RESULTS.write_text(text, encoding="utf-8", newline="\n")
    if asked.say is not None:
        text = json.dumps(say(asked.say)) + "\n"
        SAID.write_text(text.replace("], ", "],\n"), encoding="utf-8", newline="\n")
    ledger = Ledger(read_claims(), read_results(), read_said())
    if asked.page:
        print(ledger.page(), end="")
    for fault in ledger.faults:
        print(fault, file=sys.stderr)
    sys.exit(bool(ledger.faults))


if __name__ == "__main__":
    main()
