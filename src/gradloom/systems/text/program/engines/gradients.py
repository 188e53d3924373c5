"""Work of the gradient engine."""

from dataclasses import dataclass, replace

from gradloom.program.operations import Reading
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.rtl.machines.language import GRADIENT

from ...operations.base import Fracs
from ...operations.products import Gradient
from ...operations.scaling import TokenSum
from ...operations.tensors import EDGE
from ..layout import Layout, stride
from . import side
from .linear import hidden
from .side import SidePiece

__all__ = ["Gradients"]

#: Slots of h that products do not write: what gradients are made of is brought back there.
_RESTORED = {"h": 2, "dh": 3}
#: Token of a gradient that has been made: both slots are free again.
_GRADED = 4


@dataclass
class Gradients(Reading):
    """Makes the pieces of gradients of adapters and of sums over tokens, in the order of the program.

    Parameters
    ----------
    frac : mapping
        Fraction bits by name.
    layout : Layout
        It receives the places of what is made.
    config : LanguageConfig
    most : int, optional
        Cycles that a piece takes at most, where work may be parted.
    graded : int
        Gradients so far.
    """

    frac: Fracs
    layout: Layout
    config: LanguageConfig
    most: int | None = None
    graded: int = 0

    def _gradient(self, operation: Gradient, limit: int) -> list[SidePiece]:
        adapter, name, shifts = operation.adapter, operation.adapter.name, operation.shifts(self.frac)
        pieces: list[SidePiece] = []
        beat_bytes = self.config.data_bits // 8
        for which, (kept, source) in operation.sources.items():
            slot = _RESTORED[kept]
            place = self.layout[f"{name}.{kept}"] + 4 * source.row * adapter.rank
            back = hidden(place, self.config, slot=slot, tokens=source.rows, rank=adapter.rank)
            result = self.layout.place(operation.made(which), 4 * adapter.rank * source.count * EDGE)
            restore = side.load(back.offset, back.beats, GRADIENT.load("hidden"), back.argument)
            beats = source.rows * self.config.row_beats
            # h comes with the first piece, which would fit into no gap if it were longer by that.
            most = max(limit - back.beats, limit // 2)
            step = source.count if self.most is None else max(2 * self.most // (adapter.rank * beats), 1)
            for start in range(0, source.count, step):
                tiles = min(step, source.count - start)
                last = which == [*operation.sources][-1] and start + tiles == source.count
                first, *others = side.gradient(
                    self.config,
                    source=self.layout.run(source, source.first + start),
                    stride=stride(source),
                    result=result + start * adapter.rank * self.config.row_beats * beat_bytes,
                    tiles=tiles,
                    tokens=source.rows,
                    rank=adapter.rank,
                    slot=slot,
                    shift=shifts[which],
                    limit=most,
                    post=(_GRADED,) if last else (),
                )
                waits = which == "gb" and self.graded and not start
                back_again = replace(restore, wait=(_GRADED,)) if waits else restore
                pieces += [replace(first, instructions=(back_again, *first.instructions)), *others]
        self.graded += 1
        return pieces

    def _tokensum(self, operation: TokenSum, limit: int) -> list[SidePiece]:
        """A gradient of an h that is the same for every token.

        The engine takes two rank indices at a time; the second is 0.
        """
        x, gain = operation.x, operation.gain
        slot = _RESTORED["h"]
        place = self.layout.place(f"{gain.name}.{x.rows}", 4 * x.rows * 2)
        back = hidden(place, self.config, slot=slot, tokens=x.rows, rank=2)
        restore = side.load(back.offset, back.beats, GRADIENT.load("hidden"), back.argument)
        first, *others = side.gradient(
            self.config,
            source=self.layout.part(x),
            stride=stride(x),
            result=self.layout.part(operation.y),
            rest=self.layout.place("sum.rest", self.config.row_beats * self.config.data_bits // 8),
            tiles=x.count,
            tokens=x.rows,
            rank=2,
            slot=slot,
            shift=operation.shifts(self.frac)["shift"],
            limit=limit,
            post=(_GRADED,),
        )
        if self.graded:
            restore = replace(restore, wait=(_GRADED,))
        self.graded += 1
        return [replace(first, instructions=(restore, *first.instructions)), *others]
