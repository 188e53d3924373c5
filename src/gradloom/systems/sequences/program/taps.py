"""Commands that write the taps of sequences to memory."""

from math import prod

import numpy as np

from gradloom.models.recurrent.taps import TapSums
from gradloom.program.assembler import Assembler, pack
from gradloom.program.memory import MemoryMap
from gradloom.program.placed import Place
from gradloom.rtl.formats.cell import CellOpcode, TapArgument
from gradloom.systems.images.program.tokens import ProgramToken

from ..taps import Segment, segments_of
from .image import CellImage
from .layers import CellLayer
from .program import CellConfig, LayerProgram

__all__ = ["TapProgram", "TapWriter"]

_BEAT = 16
#: Tokens: a command has ended; the taps of all of its sequences have left. Then two of the image machine's program, for
#: which LOADs wait here, since no layer of the taps' network follows another: results that the next recurrent layer
#: takes, and taps of a batch, are in memory.
_RAN, _LEFT, _KEPT, _DONE = 14, 15, ProgramToken.LAYER, ProgramToken.MAPPED


class TapWriter:
    """Writes the part of a program that makes taps.

    It loads the network, runs all sequences, as many at a time as the design interleaves, and stores their taps. What
    encodes the taps of some stands among the commands that make those of the next.

    Parameters
    ----------
    image : CellImage
        For a configuration with taps.
    config : SequenceConfig
    rows : array of int ``[sequences, steps, codes]``
        See :meth:`CellImage.windows`.
    shifts : tuple of int
        Of the parts of the taps.
    """

    def __init__(self, image: CellImage, config: CellConfig, rows: np.ndarray, shifts: tuple[int, ...]) -> None:
        image.check_taps(rows.shape[1])
        image.check()
        self.image, self.config, self.rows, self.shifts = image, config, rows, shifts

    def __call__(self, asm: Assembler, places: range, memory: MemoryMap) -> "_Commands":
        """Commands that follow those of ``asm``.

        ``places``: where each sequence's taps go.
        """
        return _Commands(self, asm, places, memory)


class _Taps(LayerProgram):
    """Commands that run sequences and store their taps.

    ``beats``: of a sequence's place.
    """

    kept_token = _KEPT
    #: Posted when all taps of the sequences have left.
    done: tuple[int, ...] = ()

    def __init__(
        self, image: CellImage, config: CellConfig, shifts: tuple[int, ...], beats: int, memory: MemoryMap | None = None
    ) -> None:
        super().__init__(image, config, memory=memory)
        self.segments, self.beats = segments_of(image.network, config.parallel, shifts), beats

    def sequences(self, rows: np.ndarray, places: range, *, first: bool) -> None:
        """Runs as many sequences as take turns; ``first``: no others have run before them."""
        layers = self.image.layers
        below: tuple[CellLayer, Place] | None = None
        x = self.given(rows)
        for number, layer in enumerate(layers):
            top = layer is layers[-1]
            self._run(layer, rows, top=top, wait=() if first and number == 0 else (_LEFT,))
            count, steps, _ = rows.shape
            kept = None if top else self.room(steps, count * layer.beside, layer.result // 4)
            self.enter(layer, below, x, count, kept)
            self._taps(number, layer, places, last=top)
            below = None if kept is None else (layer, kept)

    def _run(self, layer: CellLayer, rows: np.ndarray, *, top: bool, wait: tuple[int, ...]) -> None:
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

    def _taps(self, number: int, layer: CellLayer, places: range, *, last: bool) -> None:
        """STOREs of a layer's taps; ``last``: those of a batch."""
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
                post=() if at < len(jobs) - 1 else self.done if last else (_LEFT,),
            )

    def _beats_of(self, each: Segment) -> int:
        """Beats of a cell's words; the last cell's reach to the end of the place."""
        return self.beats - each.first if each.last else each.beats


class TapProgram(_Taps):
    """Taps of some sequences by the network that is loaded, a program of its own.

    Attributes
    ----------
    taps : Place
        Words of each sequence, as the array takes them.
    """

    def __init__(self, image: CellImage, config: CellConfig, rows: np.ndarray, taps: TapSums) -> None:
        words = prod(taps.shape)
        super().__init__(image, config, taps.shifts, words // 4)
        self.taps = self.room(len(rows), words)
        last = self.taps.offset + self.taps.length
        self.sequences(rows, range(self.taps.offset, last, 4 * words), first=True)
        self.end()


class _Commands(_Taps):
    """The commands of a :class:`TapWriter`."""

    done = (_LEFT, _DONE)

    def __init__(self, writer: TapWriter, asm: Assembler, places: range, memory: MemoryMap) -> None:
        super().__init__(writer.image, writer.config, writer.shifts, places.step // _BEAT, memory)
        self.asm, layers = asm, self.image.layers
        self.together = self.config.sequences // max(layer.directions for layer in layers)
        # About an image a piece.
        self.apart = max(writer.rows.shape[1] // self.together, 1)
        self.network()
        #: Where the commands of each batch may be parted, from the end of the loads on; and those that are written.
        self.cuts: list[list[int]] = [[len(self)]]
        self.written = 0
        for first in range(0, len(writer.rows), self.together):
            some = slice(first, first + self.together)
            self.cuts.append([])
            self.sequences(writer.rows[some], places[some], first=not first)
            self.cut()

    def begin(self) -> None:
        """See :class:`~gradloom.systems.images.program.program.Images`."""
        self._write(self.cuts[0][-1])

    def ready(self, sample: int) -> tuple[int, ...]:
        """See :class:`~gradloom.systems.images.program.program.Images`.

        With the first image of a batch all of its own commands are written, with each a part of those of the next.
        """
        batch, number = divmod(sample, self.together)
        self._write(self.cuts[batch + 1][-1])
        if batch + 2 < len(self.cuts):
            cuts = self.cuts[batch + 2]
            self._write(cuts[(number + 1) * len(cuts) // self.together - 1] if number + 1 < self.together else cuts[-1])
        return () if number else (_DONE,)

    def _write(self, last: int) -> None:
        if last > self.written:
            self.asm.extend(self, self.written, last)
            self.written = last

    def cut(self) -> None:
        """See :class:`LayerProgram`."""
        self.cuts[-1].append(len(self))
