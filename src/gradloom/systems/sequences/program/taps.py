"""Commands that write the taps of sequences to memory."""

from collections.abc import Callable

import numpy as np

from gradloom.program.assembler import Assembler, pack
from gradloom.rtl.formats.cell import CellOpcode, TapArgument
from gradloom.rtl.machines.sequence import SEQUENCE
from gradloom.rtl.shell.engines import CONTROL, LOAD, STORE
from gradloom.rtl.shell.signature import ControlOpcode

from .image import CellImage

__all__ = ["TapWriter"]

#: Takes a place of so many bytes by name, and returns its offset.
Take = Callable[[str, int], int]
_CELL = SEQUENCE.named("cell")
_BEAT = 16
#: Tokens: a command has ended; the taps of all of its sequences have left.
_RAN, _LEFT = 1, 2


class TapWriter:
    """Writes the part of a program that makes taps.

    It loads the network, runs all sequences, as many at a time as the design interleaves, and stores their taps.

    Parameters
    ----------
    image : CellImage
        For a configuration with taps.
    rows : array of int ``[sequences, steps, codes]``
        See :meth:`CellImage.windows`.
    shifts : tuple of int
        Of the parts of the taps.
    """

    def __init__(self, image: CellImage, rows: np.ndarray, shifts: tuple[int, ...]) -> None:
        image.check_taps(rows.shape[1])
        image.check()
        self.image, self.rows, self.shifts = image, rows, shifts

    def __call__(self, asm: Assembler, places: range, take: Take) -> list[tuple[int, bytes]]:
        """Writes the commands; returns what must be in memory, by offset.

        ``places``: where each sequence's taps go.
        """
        image, segments = self.image, []

        def load(name: str, port: str, content: bytes) -> None:
            offset = take(name, len(content))
            segments.append((offset, content))
            asm.add(LOAD, 0, offset=offset, beats=len(content) // _BEAT, dest=_CELL.load(port))

        for port in ("weights", "rows", "tables", "quantizers"):
            load(f"cell {port}", port, getattr(image, port))
        asm.add(CONTROL, ControlOpcode.FENCE)
        together = image.config.sequences
        for first in range(0, len(self.rows), together):
            some = self.rows[first : first + together]
            self._run(asm, some, wait=(_LEFT,) if first else ())
            load(f"cell x {first}", "x", image.input_rows(some))
            self._store(asm, places[first : first + len(some)], last=first + together >= len(self.rows))
        asm.add(CONTROL, ControlOpcode.FENCE)
        return segments

    def _run(self, asm: Assembler, rows: np.ndarray, *, wait: tuple[int, ...]) -> None:
        image, (count, steps, _) = self.image, rows.shape
        asm.add(
            _CELL,
            CellOpcode.RUN,
            steps=steps,
            sequences=count,
            hidden=image.hidden,
            inputs=image.inputs,
            every=0,
            fresh=1,
            quiet=1,
            unsigned=int(image.unsigned),
            window=image.window,
            window_unsigned=int(image.window_unsigned),
            filters=image.filters,
            front=image.front(steps) if image.window else 0,
            channels=image.channels,
            own=image.own,
            wait=wait,
            post=(_RAN,),
        )

    def _store(self, asm: Assembler, places: range, *, last: bool) -> None:
        names = ("h", "squashed", "sum", "x")
        for sequence, offset in enumerate(places):
            ends = sequence == len(places) - 1
            asm.add(
                STORE,
                0,
                offset=offset,
                beats=places.step // _BEAT,
                source=_CELL.store("taps"),
                arg=pack(TapArgument, {"sequence": sequence} | dict(zip(names, self.shifts, strict=True))),
                wait=(_RAN,) if sequence == 0 else (),
                post=(_LEFT,) if ends and not last else (),
            )
