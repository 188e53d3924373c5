"""Generates FPGA accelerators that fine-tune neural networks.

Each verb of the command line is a function, with ``_`` for ``-``: :func:`generate`, :func:`finetune`, :func:`infer`
and so on; ``import``, a word of Python's, is :func:`import_model`, and the verb ``boards`` is
:func:`gradloom.boards.all_boards`. Names are loaded on first use, so that
``import gradloom`` costs nothing.
"""

import importlib
from typing import Any

#: Where each function is.
_HOME = {
    name: f"gradloom.{module}"
    for module, names in {
        "cli.aggregate": ("aggregate",),
        "cli.choose": ("choose",),
        "cli.collect": ("collect",),
        "cli.delivery": ("apply", "delta", "keygen", "keys", "sign", "verify"),
        "cli.lists": ("doctor", "presets", "units"),
        "cli.diffusion": ("generate_images",),
        "cli.energy": ("energy",),
        "cli.generate": ("generate",),
        "cli.install": ("install", "rollback"),
        "cli.infer": ("compare", "fetch", "generate_text", "infer"),
        "systems.request": ("finetune",),
        "cli.designs": ("build", "flash", "monitor", "report", "selftest"),
        "cli.units": ("quantize", "run"),
        "cli.language": ("load", "pack", "plan"),
        "cli.recurrent": ("export", "import_model"),
        "cli.merge": ("merge",),
        "cli.sweep": ("sweep",),
        "systems.diffusion.workload": ("DiffusionOptions",),
        "systems.images.workload": ("ImageOptions",),
        "systems.sequences.workload": ("SequenceOptions",),
        "systems.text.workload": ("InstantTextOptions", "QLoraOptions"),
    }.items()
    for name in names
}

__version__ = "0.1.0"

__all__ = [
    "DiffusionOptions",
    "ImageOptions",
    "InstantTextOptions",
    "QLoraOptions",
    "SequenceOptions",
    "__version__",
    "aggregate",
    "apply",
    "boards",
    "build",
    "choose",
    "collect",
    "compare",
    "delta",
    "doctor",
    "energy",
    "export",
    "fetch",
    "finetune",
    "flash",
    "generate",
    "generate_images",
    "generate_text",
    "import_model",
    "infer",
    "install",
    "keygen",
    "keys",
    "load",
    "merge",
    "monitor",
    "pack",
    "plan",
    "presets",
    "quantize",
    "report",
    "rollback",
    "run",
    "selftest",
    "sign",
    "sweep",
    "units",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name == "boards":
        return importlib.import_module("gradloom.boards")
    raise AttributeError(f"module 'gradloom' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
