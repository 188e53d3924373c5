"""Boards that run what lies in their memory, which comes by their UART."""

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gradloom import boards
from gradloom.boards.links.monitor import open_port
from gradloom.boards.links.tuner import PIECE, TunerError, TunerPort
from gradloom.preset import Preset
from gradloom.program.memory import BLOCK
from gradloom.program.power_up import PowerUp
from gradloom.systems.job import AloneHost
from gradloom.workload import Progress

__all__ = ["identity", "ran_alone", "sealed", "tuner_at", "unlike"]

#: Where a block's header has the sum of the rest: after a reset it is another one.
_TAG = BLOCK - 4


@contextmanager
def tuner_at(preset: Preset, port: str, baud: int | None, progress: Progress | None) -> Iterator[TunerPort]:
    """The board of a preset at a serial port; its errors name the port.

    ``baud``: bits a second, those of the board's project unless given.
    """
    board = boards.find(preset.board)
    if not board.listens:
        able = ", ".join(each.name for each in boards.all_boards() if each.listens)
        raise ValueError(f"port={port}: {board.name} takes no data by UART; must be left out but for {able}")
    with open_port(port, baud or board.listens) as line:
        try:
            yield TunerPort(line, progress)
        except TunerError as error:
            raise ValueError(f"port={port}: {error}") from None


def identity(config: Any) -> str:
    """The first line of a design."""
    return "gradloom: " + ",".join(f"{name}={value}" for name, value in config.known.items())


def sealed(image: bytes) -> bytes:
    """What a board's memory is to hold, with the sum that a reset takes away."""
    made = bytearray(image)
    made[_TAG : _TAG + 4] = zlib.crc32(made).to_bytes(4, "little")
    return bytes(made)


def unlike(image: bytes, shipped: PowerUp, *changed: tuple[int, int]) -> set[int]:
    """Pieces of a memory that the bitstream has not, or that a run changes.

    ``changed``: first and last offset of what a run of either memory changes.
    """
    found = {at for at in range(0, len(image), PIECE) if image[at : at + PIECE] != shipped.image[at : at + PIECE]}
    for first, end in changed:
        found |= set(range(first // PIECE * PIECE, min(end, len(image)), PIECE))
    return found


def ran_alone(
    port: AloneHost, config: Any, image: bytes, changed: set[int], *, epochs: int = 0
) -> tuple[Sequence[str], int]:
    """Brings a memory that is :func:`sealed`, and lets the board run it.

    Returns lines of the UART without the cycles, and these. :class:`TunerError` where the board has another design,
    has lost the data, or says an error.
    """
    there, wanted = port.told()[:1], identity(config)
    if there != [wanted]:
        raise TunerError(f"the board has {there[0] if there else 'no design'}, the design {wanted}: flash it")
    lines = port.run(image, changed, epochs=epochs)
    if port.fetch(_TAG, 4) != image[_TAG : _TAG + 4]:
        raise TunerError("the board has lost its data: was it switched off meanwhile? Start again")
    if lines[-1:] != ["done"]:
        raise TunerError("the board's run failed: " + "; ".join(line for line in lines if "error" in line))
    (cycles,) = (int(line.split()[1]) for line in lines if line.startswith("cycles: "))
    return [line for line in lines if not line.startswith("cycles: ")], cycles
