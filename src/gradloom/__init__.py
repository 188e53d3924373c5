"""gradloom: generates FPGA accelerators that fine-tune neural networks on the device.

What the command line does, from Python or a notebook: :func:`generate`, :func:`finetune`, :func:`predict`,
:func:`generate_text`, :func:`quantize`, :func:`pack`, :func:`load`, :func:`plan`, :func:`report`, :func:`sweep`,
:func:`presets`; the boards are in the package :mod:`gradloom.boards`. Names are loaded on first use, so that
``import gradloom`` costs nothing.
"""

import importlib
from typing import Any

_HOME = {
    "generate": "gradloom.rtl.cli.verbs",
    "finetune": "gradloom.rtl.cli.verbs",
    "generate_text": "gradloom.rtl.cli.verbs",
    "load": "gradloom.rtl.cli.verbs",
    "pack": "gradloom.rtl.cli.verbs",
    "plan": "gradloom.rtl.cli.verbs",
    "predict": "gradloom.rtl.cli.verbs",
    "quantize": "gradloom.rtl.cli.verbs",
    "report": "gradloom.rtl.cli.verbs",
    "presets": "gradloom.rtl.cli.verbs",
    "sweep": "gradloom.rtl.cli.sweep",
}

__version__ = "0.1.0"

__all__ = ["__version__", "boards", "finetune", "generate", "generate_text", "load", "pack", "plan", "predict",
           "presets", "quantize", "report", "sweep"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name == "boards":
        return importlib.import_module("gradloom.boards")
    raise AttributeError(f"module 'gradloom' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
