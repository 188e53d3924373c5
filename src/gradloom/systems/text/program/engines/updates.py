"""Work of the update engine: words that learn, and their codes."""

from collections.abc import Sequence
from dataclasses import dataclass

from gradloom.program.operations import Reading
from gradloom.rtl.engines.update.commands import UpdateOpcode
from gradloom.rtl.engines.update.parameters import UPDATE_BEATS
from gradloom.rtl.machines.configs.language import LanguageConfig

from ...operations.base import Fracs, Operation
from ...operations.learnt.updates import Descent, Pack, Unpack, Update, Widen
from ..layout import ZEROS, Layout
from ..packed import PackedStore
from . import side
from .side import SidePiece

__all__ = ["UpdatePieces", "place_packed"]


@dataclass(frozen=True)
class UpdatePieces(Reading):
    """Makes the pieces of one operation of the update engine, by :meth:`do`.

    Parameters
    ----------
    frac : mapping
        Fraction bits by name.
    layout : Layout
        It receives the places of moments and of zeros.
    config : LanguageConfig
    limit : int
        Beats of a piece, about.
    """

    frac: Fracs
    layout: Layout
    config: LanguageConfig
    limit: int

    def _update(self, operation: Update) -> list[SidePiece]:
        name, pieces = operation.adapter.name, []
        for which, features, opcode, operands in operation.parts(self.frac):
            pieces += side.update(
                opcode,
                operands,
                self.config,
                words=self.layout[f"{name}.{which}"],
                directions=self.layout[operation.gradient(which)],
                moments=self.layout[f"{name}.m{which}"],
                beats=operation.adapter.rank * features // self.config.beat_words,
                limit=self.limit,
            )
        return pieces

    def _descent(self, operation: Descent) -> list[SidePiece]:
        words, size = operation.words, operation.words.rows * operation.words.tensor.features
        opcode, operands = operation.command(self.frac)
        return side.update(
            opcode,
            operands,
            self.config,
            words=self.layout.part(words),
            directions=self.layout.part(operation.gradient),
            moments=self.layout.place(operation.moments, 8 * size),
            beats=size // self.config.beat_words,
            limit=self.limit,
        )

    def _widen(self, operation: Widen) -> list[SidePiece]:
        x, y = operation.x, operation.y
        return side.update(
            UpdateOpcode.SGD,
            operation.command,
            self.config,
            words=self.layout.part(y),
            directions=self.layout.part(x),
            moments=0,
            beats=x.rows * x.tensor.features // self.config.beat_words,
            limit=self.limit,
            start=self.layout.place(ZEROS, UPDATE_BEATS * self.config.data_bits // 8),
        )

    def _unpack(self, operation: Unpack) -> list[SidePiece]:
        pieces = []
        for each in operation.tensors():
            pieces += side.unpack(each, self.config, **self._places(each))
        return pieces

    def _pack(self, operation: Pack) -> list[SidePiece]:
        pieces = []
        for each in operation.tensors():
            pieces += side.pack(each, operation.number, self.config, **self._places(each))
        return pieces

    def _places(self, held: PackedStore) -> dict[str, int]:
        return {"words": self.layout[held.name], "packed": self.layout[held.packed]}


def place_packed(operations: Sequence[Operation], layout: Layout, config: LanguageConfig) -> None:
    """Places tensors that are stored as codes.

    Moments that are unpacked have one place for all adapters.
    """
    if any(isinstance(each, Unpack) for each in operations) and not config.packing:
        raise ValueError("packing: the machine must have it, for adapters are stored as codes")
    held = [each for operation in operations if isinstance(operation, Unpack) for each in operation.tensors()]
    for which in "ab":
        moments = [each for each in held if each.moments and each.name.endswith(which)]
        if moments:
            place = layout.place(f"moments.{which}", max(each.bytes for each in moments))
            for each in moments:
                layout.offsets.setdefault(each.name, place)
                layout.sizes.setdefault(each.name, 0)
    for each in held:
        layout.place(each.packed, each.shape.bytes)
        layout.place(each.name, each.bytes)
