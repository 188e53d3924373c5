"""Kinds of fine-tunes and their options, quick to import."""

from .answers import SequenceAnswers
from .diffusion import DiffusionOptions, DiffusionWorkload
from .images import DIGITS, LENET5, ImageOptions, ImageWorkload
from .options import Bounds, Option, Options, option
from .sequences import SequenceOptions, SequenceWorkload
from .text import InstantTextOptions, InstantTextWorkload, QLoraOptions, QLoraWorkload, TextOptions, TextWorkload
from .workload import Workload

__all__ = [
    "DIGITS",
    "LENET5",
    "Bounds",
    "DiffusionOptions",
    "DiffusionWorkload",
    "ImageOptions",
    "ImageWorkload",
    "InstantTextOptions",
    "InstantTextWorkload",
    "Option",
    "Options",
    "QLoraOptions",
    "QLoraWorkload",
    "SequenceAnswers",
    "SequenceOptions",
    "SequenceWorkload",
    "TextOptions",
    "TextWorkload",
    "Workload",
    "option",
]
