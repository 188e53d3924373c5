"""Generates FPGA accelerators that fine-tune neural networks.

Each verb of the command line is a function: :func:`generate`, :func:`finetune`, :func:`infer` and so on; ``import``, a
word of Python's, is :func:`import_model`. The groups ``card`` and ``package`` are modules of functions, and ``list``
has :func:`presets`, :func:`units` and :func:`gradloom.boards.all_boards`. Names are loaded on first use, so that
``import gradloom`` costs nothing.
"""

import importlib
from typing import Any

#: Where each name is.
_HOME = {
    name: f"gradloom.{module}"
    for module, names in {
        "cli.design.designs": ("build", "flash", "monitor", "report", "selftest"),
        "cli.learn.digits": ("compare", "fetch"),
        "cli.design.energy": ("energy",),
        "cli.models.export": ("export",),
        "cli.design.generate": ("generate",),
        "cli.lists": ("doctor", "presets", "units"),
        "cli.models.merge": ("merge",),
        "cli.models.pack": ("pack",),
        "cli.models.recurrent": ("import_model",),
        "cli.design.sweep": ("sweep",),
        "cli.design.units": ("quantize", "run"),
        "systems.diffusion.requests": ("DiffusionPlan", "Pictures"),
        "systems.diffusion.workload": ("DiffusionOptions",),
        "systems.images.requests": ("ImageAnswers", "ImageChoice", "ImagePlan"),
        "systems.images.workload": ("ImageOptions",),
        "systems.questions": ("choose", "infer", "plan"),
        "systems.request": ("finetune",),
        "systems.results": ("Chosen", "HeldOut", "Inferred", "Planned", "Step", "Tuned"),
        "systems.sequences.requests": ("SequenceAnswers",),
        "systems.networks.workload": ("NetworkOptions",),
        "systems.sequences.workload": ("SequenceOptions",),
        "systems.text.requests": ("TextAnswers", "TextChoice", "TextPlan"),
        "systems.text.workload": ("CardOptions", "InstantCardOptions", "InstantTextOptions", "QLoraOptions"),
    }.items()
    for name in names
}

#: Modules whose functions are those of a group of verbs.
_GROUPS = {"boards": "gradloom.boards", "card": "gradloom.cli.field.card", "package": "gradloom.cli.field.package"}

__version__ = "0.1.0"

__all__ = ["__version__", *_GROUPS, *_HOME]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _GROUPS:
        return importlib.import_module(_GROUPS[name])
    raise AttributeError(f"module 'gradloom' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_GROUPS, *_HOME])
