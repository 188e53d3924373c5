"""Kinds of fine-tunes, each with its options; light, so that help texts come at once."""
from .images import DIGITS, LENET5, ImageOptions, ImageWorkload
from .options import Bounds, Option, Options, option
from .text import InstantTextOptions, InstantTextWorkload, QLoraOptions, QLoraWorkload, TextOptions, TextWorkload
from .workload import Workload

__all__ = ["DIGITS", "LENET5", "Bounds", "ImageOptions", "ImageWorkload", "InstantTextOptions", "InstantTextWorkload",
           "Option", "Options", "QLoraOptions", "QLoraWorkload", "TextOptions", "TextWorkload", "Workload", "option"]
