"""Renews the parts of pages that are generated from code.

``python docs/renew.py``; a test compares them.
"""

import runpy
from pathlib import Path

from gradloom.rtl.machines.engines import IMAGES, LANGUAGE
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


def _between(text: str, name: str, content: str) -> str:
    begin, end = f"<!-- {name}: made by docs/renew.py -->\n", f"<!-- end of {name} -->"
    before, rest = text.split(begin)
    return before + begin + "\n" + content + "\n\n" + end + rest.split(end)[1]


if __name__ == "__main__":
    (HERE / "reference" / "registers.md").write_text(registers(), encoding="utf-8", newline="\n")
    for renew, page in (
        (program, HERE / "reference" / "program.md"),
        (linear_layer, HERE / "explanation" / "linear-layer.md"),
    ):
        page.write_text(renew(page.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")
