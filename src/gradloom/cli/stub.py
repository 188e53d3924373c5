"""Writes the package's type stub ``__init__.pyi``.

``python -m gradloom.cli.stub``
"""

import inspect
from pathlib import Path
from types import NoneType
from typing import get_args

import gradloom
from gradloom.systems import request

__all__ = ["PATH", "stub"]

PATH = Path(gradloom.__file__).with_suffix(".pyi")
#: Functions that have the options of all kinds of workloads.
_ASKS = ("choose", "finetune", "infer", "plan")


def stub() -> str:
    """The text of the stub.

    Each function is as in its module, and those of models have the options of all kinds of workloads.
    """
    homes, groups = vars(gradloom)["_HOME"].items(), vars(gradloom)["_GROUPS"].items()
    lines = [
        "# ruff: noqa",
        '"""Made by gradloom.cli.stub; do not edit."""',
        "from collections.abc import Callable, Sequence",
        "from pathlib import Path",
        "",
    ]
    lines += [f"from {home.rpartition('.')[0]} import {name} as {name}" for name, home in groups]
    lines += [f"from {home} import {name} as {name}" for name, home in homes if name not in _ASKS]
    lines += ["from gradloom.options import Options", "", "__version__: str"]
    for name in _ASKS:
        lines += [
            "",
            f"def {name}(",
            "    model: str,",
            "    request: Options | None = None,",
            "    *,",
            "    board: str | None = None,",
            *(['    output: Path | str = "finetune",'] if name == "finetune" else []),
            "    progress: Callable[[int, int, str], None] | None = None,",
            *(["    callbacks: Sequence[Callable[[Step], object]] = (),"] if name == "finetune" else []),
            *(f"    {each.name}: {_text(each)} = None," for each in request.keywords(name)),
            f") -> {inspect.signature(getattr(gradloom, name)).return_annotation.__name__}: ...",
        ]
    return "\n".join([*lines, ""])


def _text(parameter: inspect.Parameter) -> str:
    return " | ".join("None" if kind is NoneType else kind.__name__ for kind in get_args(parameter.annotation))


if __name__ == "__main__":
    PATH.write_text(stub(), encoding="utf-8", newline="\n")
