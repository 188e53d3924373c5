"""Tokens of the image machine, and the check that a program ends."""

from gradloom.program.assembler import Assembler, Instruction
from gradloom.program.progress import Flow, Streams, check_progress
from gradloom.rtl.engines.array.commands import ArrayOpcode
from gradloom.rtl.engines.encode.commands import EncodeOpcode
from gradloom.rtl.formats.images import SCALES_PER_BEAT
from gradloom.rtl.machines.configs.images import ImageConfig
from gradloom.rtl.machines.images import ARRAY, ENCODE, HEAD
from gradloom.rtl.shell.engines import STORE, TAP_BEATS

__all__ = ["IMAGE_STREAMS", "ProgramToken", "check_program"]


class ProgramToken:
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


_BLOCK = 64
#: Of what is always there no STORE waits for long. Behind the taps are encoders, whose room is not counted.
_ROOM: dict[int, int] = {
    ARRAY.store("taps"): TAP_BEATS,
    ENCODE.store("taps"): TAP_BEATS,
    ENCODE.store("raw"): 1,
    HEAD.store("losses"): 4,
}


def _tap(stream: int, elements: int, wide: int) -> Flow:
    """Codes and scales of a tap."""
    blocks = -(-elements // _BLOCK)
    return stream, blocks * (4 if wide else 2) + -(-blocks // SCALES_PER_BEAT)


def _flow(command: Instruction) -> Flow | None:
    engine, operands = command.engine, command.operands
    if engine == STORE:
        source = operands["source"]
        return (source, operands["beats"]) if source in _ROOM else None
    if engine == ARRAY:
        if command.opcode == ArrayOpcode.CONVOLVE and operands.get("encode"):
            elements = operands["height"] * operands["width"] * operands["channels"]
            return _tap(ARRAY.store("taps"), elements, operands.get("wide", 0))
    elif engine == ENCODE:
        if command.opcode == EncodeOpcode.RAW:
            return ENCODE.store("raw"), -(-operands["elements"] // 4)
        return _tap(ENCODE.store("taps"), operands["elements"], operands.get("wide", 0))
    elif engine == HEAD and operands.get("last"):
        return HEAD.store("losses"), 1
    return None


#: What :func:`~gradloom.program.progress.check_progress` is told of that machine.
IMAGE_STREAMS = Streams(_flow, _ROOM)


def check_program(asm: Assembler, config: ImageConfig) -> None:
    """Raises :class:`StuckError` if a program may not come to its end.

    The error is :class:`~gradloom.program.progress.StuckError`.
    """
    names = {value: name for name, value in vars(ProgramToken).items() if isinstance(value, int)}
    engines, depth = config.machine.engines, config.queue_depth
    check_progress(asm.instructions, engines, depth=depth, streams=IMAGE_STREAMS, names=names)
