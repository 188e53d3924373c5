"""Encodes commands without the generator's libraries.

The self-test and small programs use it.
"""

import struct

from . import registers

BEAT = 16


def command(
    engine: str, opcode: int, operands: tuple[int, ...] = (), *, wait: int = 0, post: int = 0, phase: int = 0
) -> bytes:
    """A command of 32 bytes.

    ``operands`` are its words 3 to 7; ``wait`` and ``post`` are masks of tokens.
    """
    if engine not in registers.ENGINES:
        raise ValueError(f"engine must be one of {', '.join(registers.ENGINES)}, not {engine!r}")
    if not 0 <= opcode < 256:
        raise ValueError(f"opcode must be between 0 and 255, not {opcode}")
    if not 0 <= phase < 8:
        raise ValueError(f"phase must be between 0 and 7, not {phase}")
    for name, mask in (("wait", wait), ("post", post)):
        if not 0 <= mask < 1 << registers.TOKENS:
            raise ValueError(f"{name} must be a mask of {registers.TOKENS} tokens, not {mask:#x}")
    if len(operands) > 5:
        raise ValueError(f"operands must be at most 5 words, not {len(operands)}")
    words = list(operands) + [0] * (5 - len(operands))
    first = opcode | registers.ENGINES[engine] << 8 | phase << 13 | wait << 16
    return struct.pack("<8I", first, post, 0, *words)


def end() -> bytes:
    """Ends the program once every engine is idle."""
    return command("control", registers.CONTROL_OPCODES["END"])


def load(offset: int, beats: int, dest: int, arg: int = 0, *, wait: int = 0, post: int = 0) -> bytes:
    """Reads beats of the bus at ``offset`` of the window to ``dest``.

    ``beats``: number of beats.
    """
    return command("load", 0, (offset, beats | dest << 24, arg), wait=wait, post=post)


def store(offset: int, beats: int, source: int, arg: int = 0, *, wait: int = 0, post: int = 0) -> bytes:
    """Writes beats of the bus from ``source`` at ``offset`` of the window.

    ``beats``: number of beats.
    """
    return command("store", 0, (offset, beats | source << 24, arg), wait=wait, post=post)
