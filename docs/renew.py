"""Renews what documents take from code: ``python docs/renew.py``. A test compares them."""
import runpy
from pathlib import Path

from gradloom.rtl.shell.registers import regmap
from gradloom.rtl.shell.registers.errors import DESCRIPTIONS, Error

HERE = Path(__file__).resolve().parent


def registers() -> str:
    """The register manual."""
    note = "<!-- Made by docs/renew.py from rtl/shell/registers/registers.rdl; do not edit. -->"
    return f"{note}\n\n{regmap.markdown()}"


def program(text: str) -> str:
    """``program.md`` with the listing and the table of errors as they are now."""
    example = runpy.run_path(str(HERE / "examples" / "list_program.py"))
    listing = "\n".join(example["listing"](example["small_plan"]()))
    text = _between(text, "listing", f"```text\n{listing}\n```")
    rows = [f"| 0x{code.value:02X} | `{code.name}` | {DESCRIPTIONS[code]} |" for code in Error]
    return _between(text, "errors", "\n".join(["| code | name | what |", "| --- | --- | --- |", *rows]))


def _between(text: str, name: str, content: str) -> str:
    begin, end = f"<!-- {name}: made by docs/renew.py -->\n", f"<!-- end of {name} -->"
    before, rest = text.split(begin)
    return before + begin + "\n" + content + "\n\n" + end + rest.split(end)[1]


if __name__ == "__main__":
    (HERE / "reference" / "registers.md").write_text(registers(), encoding="utf-8", newline="\n")
    page = HERE / "reference" / "program.md"
    page.write_text(program(page.read_text(encoding="utf-8")), encoding="utf-8", newline="\n")
