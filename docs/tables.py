"""Tables that the site has from code and from data.

``docs/site.py`` puts them in place of the marks ``<!-- made by make docs: NAME -->``. No page keeps a copy.
"""

import dataclasses
import importlib.util
import inspect
import json
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from gradloom.boards.budgets import budgets
from gradloom.preset import PRESETS
from gradloom.rtl.machines.diffusion import DIFFUSION
from gradloom.rtl.machines.images import IMAGES
from gradloom.rtl.machines.language import LANGUAGE
from gradloom.rtl.machines.recurrent import RECURRENT
from gradloom.rtl.machines.sequence import SEQUENCE
from gradloom.rtl.shell.engines import PortNumber
from gradloom.rtl.shell.registers import regmap
from gradloom.rtl.shell.registers.errors import DESCRIPTIONS, Error
from gradloom.systems.metrics import units_table

HERE = Path(__file__).resolve().parent
#: Levels of logic that ``gradloom report`` measured, by design and unit: see :mod:`docs.examples.hardware.levels`.
LEVELS = HERE / "levels.json"


def sibling(name: str) -> ModuleType:
    """A file of ``docs`` as a module; the folder is no package."""
    spec = importlib.util.spec_from_file_location(f"docs_{Path(name).stem}", HERE / name)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def registers() -> Iterator[str]:
    """The register manual, without its title."""
    yield regmap.markdown().partition("# Registers\n")[2]


def listing() -> Iterator[str]:
    """A small program, command by command."""
    example = runpy.run_path(str(HERE / "examples" / "programs" / "list_program.py"))
    yield from ("```text", *example["listing"](example["small_plan"]()), "```")


def errors() -> Iterator[str]:
    """Codes of errors."""
    yield from ("| code | name | meaning |", "| --- | --- | --- |")
    yield from (f"| 0x{code.value:02X} | `{code.name}` | {DESCRIPTIONS[code]} |" for code in Error)


def machines() -> Iterator[str]:
    """Every machine: its engines with their numbers, and its presets."""
    rows: dict[tuple[str, ...], tuple[str, list[str]]] = {}
    for preset in PRESETS.values():
        kind = type(preset.config)
        engines = tuple(f"{each.spec.name} ({int(each)})" for each in preset.config.machine.engines.own)
        rows.setdefault(engines, (_what_for(kind), []))[1].append(f"`{preset.name}`")
    yield from ("| machine for | engines, with their numbers | presets |", "| --- | --- | --- |")
    for engines, (purpose, names) in rows.items():
        yield f"| {purpose} | {', '.join(engines)} | {', '.join(names)} |"


def _what_for(kind: type) -> str:
    """The machine of a configuration, by its docstring."""
    return re.sub(r"^Configuration of the machine (?:for |that )?(.*)\.$", r"\1", (kind.__doc__ or "").splitlines()[0])


def presets() -> Iterator[str]:
    """Every preset: board, machine, summary."""
    yield from ("| preset | board | summary |", "| --- | --- | --- |")
    yield from (f"| `{each.name}` | {each.board} | {each.summary} |" for each in PRESETS.values())


def ports() -> Iterator[str]:
    """Load and store ports of every machine's engines."""
    for title, engines in (
        ("Image machine", IMAGES),
        ("Language machine", LANGUAGE),
        ("Recurrent machine", RECURRENT),
        ("Sequence machine", SEQUENCE),
        ("Diffusion machine", DIFFUSION),
    ):
        for name, column, found in (("LOAD", "dest", engines.loads), ("STORE", "source", engines.stores)):
            yield from (
                "",
                f"**{title}, {name}**",
                "",
                f"| {column} | port | data | arg |",
                "| --- | --- | --- | --- |",
            )
            yield from (f"| {int(each)} | `{each}` | {each.port.doc} | {_argument(each)} |" for each in found)


def _argument(port: PortNumber) -> str:
    """Fields of ``arg`` with their bits."""
    fields = [(name, field) for name, field in port.port.arg if not str(name).startswith("_")]
    if len(fields) == 1 and fields[0][1].width == 32:
        return f"`{fields[0][0]}`"
    return ", ".join(
        f"`{name}` {field.offset + field.width - 1}:{field.offset}" if field.width > 1 else f"`{name}` {field.offset}"
        for name, field in fields
    )


def parameters() -> Iterator[str]:
    """Parameters of all presets, a table a configuration."""
    families: dict[type, list[Any]] = {}
    for preset in PRESETS.values():
        families.setdefault(type(preset.config), []).append(preset)
    for kind, found in families.items():
        names = ", ".join(f"`{each.name}`" for each in found)
        title = _what_for(kind)
        yield from (f"## {title[0].upper()}{title[1:]}", f"Presets: {names}.", *_parameter_rows(kind, found), "")


def _parameter_rows(kind: type, presets: list[Any]) -> Iterator[str]:
    meaning = _meanings(kind)
    yield from ("", "| key | meaning | from | to | default | one step more |", "| --- | --- | --- | --- | --- | --- |")
    for field in dataclasses.fields(kind):
        bound = field.metadata
        if bound["low"] == bound["high"]:
            continue
        values: dict[int, list[str]] = {}
        for preset in presets:
            values.setdefault(getattr(preset.config, field.name), []).append(preset.name)
        (first, _), *others = values.items()
        default = f"{first:,}" + "".join(f"; {value:,} in {', '.join(names)}" for value, names in others)
        top = f"{bound['high']:,}" + (", 2^n" if bound["power"] else "")
        cost = _step_cost(presets[0].config, field.name)
        yield f"| `{field.name}` | {meaning[field.name]} | {bound['low']:,} | {top} | {default} | {cost} |"


def _meanings(kind: type) -> dict[str, str]:
    """What docstrings say of each parameter, also inherited ones."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        text = inspect.cleandoc(each.__dict__.get("__doc__") or "").partition("Parameters\n----------\n")[2]
        for names, said in re.findall(r"^([\w, ]+) : (?:int|float)\n((?:    .*\n?|\n(?=    ))+)", text, re.MULTILINE):
            prose = " ".join(said.split()).replace("``", "`").replace("|", r"\|")
            found |= dict.fromkeys(names.split(", "), prose)
    return found


def _step_cost(config: Any, name: str) -> str:
    """DSP slices and memory of the next larger value, by count."""
    value = getattr(config, name)
    for larger in range(value + 1, config.largest(name) + 1):
        try:
            other = config.replace(**{name: larger})
        except ValueError:
            continue
        dsp, bits = (
            sum(getattr(other.counted, part).values()) - sum(getattr(config.counted, part).values())
            for part in ("dsp", "bits")
        )
        cost = [f"{dsp:+,} DSP"] * bool(dsp) + [f"{bits / 1000:+,.4g} kbit"] * bool(bits)
        return f"{larger:,}: {', '.join(cost) or 'none counted'}"
    return "-"


def units() -> Iterator[str]:
    """Units of the entries of ``metrics.json``."""
    yield from ("| entry | unit |", "| --- | --- |", units_table())


def levels() -> Iterator[str]:
    """Levels of logic of every unit, and their budgets."""
    for design, measured in json.loads(LEVELS.read_text(encoding="utf-8")).items():
        place = "" if design in PRESETS else ", alone on the KV260"
        yield from (f"### {design}{place}", "", "| unit | levels | budget |", "| --- | --- | --- |")
        found = budgets()[design]
        for unit in sorted(found, key=lambda each: (-measured[each], each)):
            yield f"| `{unit}` | {measured[unit]} | {found[unit]} |"
        yield ""


def quality_text() -> Iterator[str]:
    """Held-out losses of a language model's fine-tunes, beside their costs."""
    yield _printed("examples/quality/quality.py", "--table", "text")


def quality_images() -> Iterator[str]:
    """The same of the image network's fine-tunes."""
    yield _printed("examples/quality/quality.py", "--table", "images")


def _printed(name: str, *arguments: str) -> str:
    """The output of a script of ``docs``."""
    return subprocess.run(
        [sys.executable, HERE / name, *arguments], stdout=subprocess.PIPE, text=True, check=True
    ).stdout


def ledger() -> Iterator[str]:
    """Every figure of the pages with its command."""
    made = sibling("ledger.py")
    yield made.Ledger(made.read_claims(), made.read_results(), made.read_said()).page()


PARTS = {
    each.__name__: each
    for each in (
        registers,
        listing,
        errors,
        machines,
        presets,
        ports,
        parameters,
        units,
        levels,
        quality_text,
        quality_images,
        ledger,
    )
}
