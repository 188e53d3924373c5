"""Commands that write the taps of sequences to memory."""

import numpy as np

from gradloom.program.assembler import Assembler, pack
from gradloom.program.memory import MemoryMap
from gradloom.program.placed import Place
from gradloom.rtl.formats.cell import CellOpcode, TapArgument
from gradloom.rtl.shell.engines import CONTROL
from gradloom.rtl.shell.signature import ControlOpcode

from ..taps import Segment, segments_of
from .image import CellImage
from .layers import Layer
from .program import CellConfig, LayerProgram

__all__ = ["TapWriter"]

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

    def __init__(self, image: CellImage, config: CellConfig, rows: np.ndarray, shifts: tuple[int, ...]) -> None:
        image.check_taps(rows.shape[1])
        image.check()
        self.image, self.config, self.rows = image, config, rows
        self.segments = segments_of(image.network, config.parallel, shifts)

    def __call__(self, asm: Assembler, places: range, memory: MemoryMap) -> list[tuple[int, bytes]]:
        """Writes the commands; returns what must be in memory, by offset.

        ``places``: where each sequence's taps go.
        """
        made = _Commands(self, places, memory)
        asm.extend(made)
        return made.arrays


class _Commands(LayerProgram):
    """The commands of a :class:`TapWriter`."""

    def __init__(self, writer: TapWriter, places: range, memory: MemoryMap) -> None:
        super().__init__(writer.image, writer.config, memory=memory)
        self.places, self.segments = places, writer.segments
        self.network()
        self.add(CONTROL, ControlOpcode.FENCE)
        layers = self.image.layers
        together = self.config.sequences // max(layer.directions for layer in layers)
        for first in range(0, len(writer.rows), together):
            some, below = writer.rows[first : first + together], None
            for number, layer in enumerate(layers):
                begins, top = first == number == 0, layer is layers[-1]
                self._run(layer, some, top=top, wait=() if begins else (_LEFT,))
                count, steps, _ = some.shape
                kept = None if top else self.room(steps, count * layer.directions, layer.result // 4)
                self.enter(layer, below, some, kept)
                ends = top and first + together >= len(writer.rows)
                self._taps(number, layer, places[first : first + count], last=ends)
                below = None if kept is None else (layer, kept)
        self.add(CONTROL, ControlOpcode.FENCE)

    def _run(self, layer: Layer, rows: np.ndarray, *, top: bool, wait: tuple[int, ...]) -> None:
        image, (count, steps, _) = self.image, rows.shape
        lowest = layer is image.layers[0]
        self.do(
            "cell",
            CellOpcode.RUN,
            **layer.operands(steps),
            sequences=count * layer.directions,
            every=int(not top),
            fresh=1,
            quiet=int(top),
            channels=image.channels if lowest else 0,
            own=image.own if lowest else 0,
            wait=wait,
            post=(_RAN,),
        )

    def _taps(self, number: int, layer: Layer, places: range, *, last: bool) -> None:
        """STOREs of a layer's taps; ``last``: no command follows."""
        own = [(way, each) for way, each in enumerate(self.segments[number])]
        jobs = [(sequence, offset, way, each) for sequence, offset in enumerate(places) for way, each in own]
        for at, (sequence, offset, way, each) in enumerate(jobs):
            self.store(
                Place(offset + _BEAT * each.first, (self._beats_of(each), 4)),
                "cell",
                "taps",
                arg=pack(
                    TapArgument,
                    {
                        "sequence": sequence * layer.directions + way,
                        "cell": layer.number + way,
                        "plain": "squashed" not in each.shifts,
                        "alone": "x" not in each.shifts,
                        **each.shifts,
                    },
                ),
                wait=() if at else (_RAN,),
                post=() if last or at < len(jobs) - 1 else (_LEFT,),
            )

    def _beats_of(self, each: Segment) -> int:
        """Beats of a cell's words; the last cell's reach to the end of the place."""
        return self.places.step // _BEAT - each.first if each.last else each.beats
