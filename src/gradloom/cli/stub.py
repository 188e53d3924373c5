"""Writes the package's type stub ``__init__.pyi``.

``python -m gradloom.cli.stub``
"""

import inspect
from pathlib import Path
from types import NoneType
from typing import get_args

import gradloom
from gradloom.systems.request import keywords

__all__ = ["PATH", "stub"]

PATH = Path(gradloom.__file__).with_suffix(".pyi")


def stub() -> str:
    """The text of the stub.

    Each function is as in its module, and ``finetune`` has the options of all kinds of workloads.
    """
    homes = vars(gradloom)["_HOME"].items()
    lines = [
        "# ruff: noqa",
        '"""Made by gradloom.cli.stub; do not edit."""',
        "from collections.abc import Callable",
        "from pathlib import Path",
        "from typing import Any",
        "",
        "from gradloom import boards as boards",
    ]
    lines += [f"from {home} import {name} as {name}" for name, home in homes if name != "finetune"]
    lines += [
        "from gradloom.options import Options",
        "",
        "__version__: str",
        "",
        "def finetune(",
        "    preset: str,",
        "    request: Options | None = None,",
        "    *,",
        "    board: str | None = None,",
        '    output: Path | str = "finetune",',
        "    progress: Callable[[int, int, str], None] | None = None,",
    ]
    lines += [f"    {each.name}: {_text(each)} = None," for each in keywords()]
    return "\n".join([*lines, ") -> dict[str, Any]: ...", ""])


def _text(parameter: inspect.Parameter) -> str:
    return " | ".join("None" if kind is NoneType else kind.__name__ for kind in get_args(parameter.annotation))


if __name__ == "__main__":
    PATH.write_text(stub(), encoding="utf-8", newline="\n")
