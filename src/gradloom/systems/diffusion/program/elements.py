"""Operations on elements and on columns of tensors."""

from collections.abc import Iterator, Mapping, Sequence

from gradloom.program.tiles.drafts import DraftValue
from gradloom.rtl.formats.element import ElementOpcode
from gradloom.rtl.formats.functions import Curve, Times
from gradloom.rtl.formats.tile_codes import EDGE

from .tensors import Part

__all__ = ["Elements", "tiles_of"]


class Elements(Part):
    """Writes sums, activations, shifts and columns side by side."""

    def whole(self, made: DraftValue, opcode: ElementOpcode, operands: Mapping[str, DraftValue], **more: int) -> None:
        """An operation of tensors of one shape."""
        for i, j in tiles_of(made):
            blocks = {port: self.wide(value, i, j) for port, value in operands.items()}
            self.tiler.element(made, (i, j), opcode, blocks, [more])

    def gated(
        self, made: DraftValue, at: tuple[int, int], curve: Curve, operands: Mapping[str, tuple[DraftValue, int]]
    ) -> None:
        """A tile of a gated unit, from columns of its operands; with c that is a factor, too."""
        i = at[0]
        if made.features % EDGE:
            raise ValueError(f"{made.name}: {made.features} features beside a gate must be a multiple of {EDGE}")
        more = curve.operands() | {"gate": 1} | ({"times": int(Times.THIRD)} if "c" in operands else {})
        blocks = {port: self.wide(value, i, j) for port, (value, j) in operands.items()}
        self.tiler.element(made, at, ElementOpcode.FUNCTION, blocks, [more])

    def shift(self, made: DraftValue, x: DraftValue, row: DraftValue) -> None:
        """A row added to the rows of each image."""
        rows = made.rows // self.images
        for i, j in tiles_of(made):
            blocks = {"a": self.wide(x, i, j), "b": self.wide(row, 0, j)}
            high = min(rows, EDGE)
            parts = [
                {"one_row": 1, "rows": high - 1, "a_row": start, "o_row": start, "b_row": (EDGE * i + start) // rows}
                for start in range(0, made.tile[0], high)
            ]
            self.tiler.element(made, (i, j), ElementOpcode.ADD, blocks, parts)

    def join(self, made: DraftValue, parts: Sequence[tuple[DraftValue, int, int]]) -> None:
        """Columns of tensors side by side: first column and count of each."""
        pieces = list(_pieces(made, parts))
        for i in range(made.high):
            for j, own in enumerate(pieces):
                names = "ab" if len(own) == 2 else "b"
                blocks = {name: self.wide(x, i, tile) for name, (x, tile, _, _) in zip(names, own)}
                more = {f"{name}_beat": beat for name, (_, _, beat, _) in zip(names, own)}
                more["split"] = own[0][3] if len(own) == 2 else 0
                self.tiler.element(made, (i, j), ElementOpcode.JOIN, blocks, [more])


def tiles_of(value: DraftValue) -> Iterator[tuple[int, int]]:
    """Row and column of each tile."""
    return ((i, j) for i in range(value.high) for j in range(value.wide))


def _pieces(
    made: DraftValue, parts: Sequence[tuple[DraftValue, int, int]]
) -> Iterator[list[tuple[DraftValue, int, int, int]]]:
    """Of each tile's columns: tensor, tile, first beat, beats."""
    beat = 8
    columns = [(x, c) for x, first, count in parts for c in range(first, first + count, beat)]
    for part in parts:
        if part[1] % beat or (part[2] % beat and len(parts) > 1):
            raise ValueError(f"{made.name}: columns of tensors side by side must be multiples of {beat}")
    for start in range(0, len(columns), EDGE // beat):
        own: list[tuple[DraftValue, int, int, int]] = []
        for x, c in columns[start : start + EDGE // beat]:
            tile, within = divmod(c, EDGE)
            if own and own[-1][0] is x and own[-1][1] == tile:
                own[-1] = (*own[-1][:3], own[-1][3] + 1)
            else:
                own.append((x, tile, within // beat, 1))
        if len(own) > 2:
            raise ValueError(f"{made.name}: a tile has columns of {len(own)} tiles, must be of 2 at most")
        yield own
