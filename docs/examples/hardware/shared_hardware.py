"""Counts which lines of the hardware serve one machine only.

``python docs/examples/hardware/shared_hardware.py [--json]`` elaborates each preset and takes the files of the
components that it instantiates. Lines are counted without blanks, comments and docstrings. Presets with a configuration
of one kind are one machine: the ULX3S's counts with the KV260's.
"""

import argparse
import ast
import io
import json
import sys
import tokenize
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import patch

from amaranth.hdl import Fragment

from gradloom.preset import PRESETS
from gradloom.rtl.machines.accelerator import Accelerator


def lines_of_code(path: Path) -> int:
    """Lines that hold a token of the program, docstrings left out."""
    text = path.read_text(encoding="utf-8")
    strings = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node, clean=False)
        for line in range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
    }
    ignored = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in ignored
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(lines - strings)


def files_of(config: Any) -> set[Path]:
    """Files of the components that a machine of ``config`` instantiates."""
    kinds: set[type] = set()
    get = Fragment.get

    def noted(part: Any, platform: Any) -> Fragment:
        kinds.add(type(part))
        return get(part, platform)

    with patch.object(Fragment, "get", staticmethod(noted)):
        Fragment.get(Accelerator(config), None)
    modules = {base.__module__ for kind in kinds for base in kind.__mro__ if base.__module__.startswith("gradloom.")}
    return {Path(str(sys.modules[name].__file__)) for name in modules}


def measure() -> dict:
    """Lines by the machines that they serve."""
    machines: dict[str, set[Path]] = {}
    for preset in PRESETS.values():
        name = type(preset.config).__name__.removesuffix("Config").lower()
        machines.setdefault(name, set()).update(files_of(preset.config))
    lines: Counter[str] = Counter()
    for path in set().union(*machines.values()):
        lines[" + ".join(sorted(name for name, files in machines.items() if path in files))] += lines_of_code(path)
    single = sum(count for names, count in lines.items() if " + " not in names)
    return {
        "lines": dict(sorted(lines.items(), key=lambda item: -item[1])),
        "total": lines.total(),
        "one_machine_only": single,
        "share_percent": round(100 * single / lines.total(), 1),
    }


def main() -> int:
    """Prints the table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="figures as JSON")
    found = measure()
    if parser.parse_args().json:
        print(json.dumps(found, indent=2))
        return 0
    print("| machines | lines |\n| --- | --- |")
    for names, count in found["lines"].items():
        print(f"| {names} | {count:,} |")
    print(f"\n{found['one_machine_only']:,} of {found['total']:,} lines serve one machine: {found['share_percent']} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
