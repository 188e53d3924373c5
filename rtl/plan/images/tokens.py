"""Tokens of the image machine, and the check that a program ends."""

from ...machines.configs import ImageConfig
from ...machines.engines import IMAGES
from ..program.assembler import Assembler
from ..program.progress import check_progress
from .streams import IMAGE_STREAMS

__all__ = ["Token", "check_program"]


class Token:
    """Tokens for which commands wait."""

    (
        IMAGE,
        IMAGE_FREE,
        MAPPED,
        ROW,
        ROW_FREE,
        GROUP,
        STORED,
        RECORDS,
        HALF_FREE,
        HIDDEN,
        GRADIENT,
        LEARNT,
        LAYER,
        LOGITS,
    ) = range(14)


def check_program(asm: Assembler, config: ImageConfig) -> None:
    """Raises :class:`StuckError` if a program may not come to its end.

    The error is :class:`~gradloom.rtl.plan.program.progress.StuckError`.
    """
    names = {value: name for name, value in vars(Token).items() if isinstance(value, int)}
    check_progress(asm.instructions, IMAGES, depth=config.queue_depth, streams=IMAGE_STREAMS, names=names)
