"""Renews the parts of pages that are generated from code.

``python docs/renew.py``; a test compares them.
"""

import dataclasses
import inspect
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gradloom.preset import PRESETS
from gradloom.rtl.machines.images import IMAGES
from gradloom.rtl.machines.language import LANGUAGE
from gradloom.rtl.shell.engines import Engines, PortNumber
from gradloom.rtl.shell.registers import regmap
from gradloom.rtl.shell.registers.errors import DESCRIPTIONS, Error

HERE = Path(__file__).resolve().parent


def registers() -> str:
    """The register manual."""
    note = "<!-- Made by docs/renew.py from rtl/shell/registers/registers.rdl; do not edit. -->"
    return f"{note}\n\n{regmap.markdown()}"


def program(text: str) -> str:
    """``program.md`` with its generated parts renewed.

    They are the listing, the ports of the image machine and the table of errors.
    """
    example = runpy.run_path(str(HERE / "examples" / "list_program.py"))
    listing = "\n".join(example["listing"](example["small_plan"]()))
    text = _between(text, "listing", f"```text\n{listing}\n```")
    text = _ports(text, IMAGES)
    rows = [f"| 0x{code.value:02X} | `{code.name}` | {DESCRIPTIONS[code]} |" for code in Error]
    return _between(text, "errors", "\n".join(["| code | name | what |", "| --- | --- | --- |", *rows]))


def architecture(text: str) -> str:
    """``architecture.md`` with the engines of every machine."""
    rows: dict[tuple[str, ...], tuple[str, list[str]]] = {}
    for preset in PRESETS.values():
        kind = type(preset.config)
        engines = tuple(each.spec.name for each in preset.config.machine.engines.own)
        rows.setdefault(engines, (_what_for(kind), []))[1].append(f"`{preset.name}`")
    table = ["| machine | engines, from number 3 on | presets |", "| --- | --- | --- |"]
    table += [f"| {what} | {', '.join(engines)} | {', '.join(names)} |" for engines, (what, names) in rows.items()]
    return _between(text, "machines", "\n".join(table))


def _what_for(kind: type) -> str:
    """The machine of a configuration, by its docstring."""
    return re.sub(r"^Configuration of the machine (?:for |that )?(.*)\.$", r"\1", (kind.__doc__ or "").splitlines()[0])


def linear_layer(text: str) -> str:
    """``linear-layer.md`` with the current ports of the language machine."""
    return _ports(text, LANGUAGE)


def _ports(text: str, engines: Engines) -> str:
    for name, column, ports in (("loads", "dest", engines.loads), ("stores", "source", engines.stores)):
        rows = [f"| {int(each)} | `{each}` | {each.port.doc} | {_argument(each)} |" for each in ports]
        table = [f"| {column} | port | what | arg |", "| --- | --- | --- | --- |", *rows]
        text = _between(text, name, "\n".join(table))
    return text


def _argument(port: PortNumber) -> str:
    """Fields of ``arg`` with their bits."""
    fields = [(name, field) for name, field in port.port.arg if not str(name).startswith("_")]
    if len(fields) == 1 and fields[0][1].width == 32:
        return f"`{fields[0][0]}`"
    return ", ".join(
        f"`{name}` {field.offset + field.width - 1}:{field.offset}" if field.width > 1 else f"`{name}` {field.offset}"
        for name, field in fields
    )


def parameters(text: str) -> str:
    """``parameters.md`` with the tables of all presets' parameters."""
    families: dict[type, list[Any]] = {}
    for preset in PRESETS.values():
        families.setdefault(type(preset.config), []).append(preset)
    parts = []
    for kind, presets in families.items():
        names = ", ".join(f"`{each.name}`" for each in presets)
        title = _what_for(kind)
        parts += [
            f"## {title[0].upper()}{title[1:]}",
            f"Presets: {names}.",
            "\n".join(_parameter_rows(kind, presets)),
            "",
        ]
    return _between(text, "parameters", "\n".join(parts).rstrip())


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
        for names, said in re.findall(r"^([\w, ]+) : int\n((?:    .*\n?|\n(?=    ))+)", text, re.MULTILINE):
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


def _between(text: str, name: str, content: str) -> str:
    begin, end = f"<!-- {name}: made by docs/renew.py -->\n", f"<!-- end of {name} -->"
    before, rest = text.split(begin)
    return before + begin + "\n" + content + "\n\n" + end + rest.split(end)[1]


if __name__ == "__main__":
    (HERE / "reference" / "registers.md").write_text(registers(), encoding="utf-8", newline="\n")
    for renew, page in (
        (program, HERE / "reference" / "program.md"),
        (parameters, HERE / "reference" / "parameters.md"),
        (architecture, HERE / "explanation" / "architecture.md"),
        (linear_layer, HERE / "explanation" / "linear-layer.md"),
    ):
        page.write_text(renew(page.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")
