"""Products of a training step as commands and transfers."""

from dataclasses import dataclass

from gradloom.rtl.engines.linear.commands import TileKind
from gradloom.rtl.formats.weights.weight_stream import StreamShape
from gradloom.rtl.machines.configs.language import LanguageConfig

from ..operations.base import Fracs
from ..operations.products import Product
from ..operations.tensors import EDGE, Codes, Words
from .engines.inputs import passes
from .engines.linear import codes, dense_tile, hidden
from .jobs import ProductJob, Transfer, in_panels
from .layout import Layout, stride
from .weaving.work import Main

__all__ = ["ProductOrder"]


@dataclass
class ProductOrder:
    """Makes products, in the order of the program.

    Parameters
    ----------
    frac : mapping
        Fraction bits by name.
    layout : Layout
        It receives the places of tensors and adapters.
    config : LanguageConfig
    kept : int
        Products with an adapter so far: the two slots of h alternate.
    """

    frac: Fracs
    layout: Layout
    config: LanguageConfig
    kept: int = 0

    def main(self, order: int, operation: Product) -> Main:
        """The product of an operation, which is number ``order`` of the list."""
        layout, x, y, adapter = self.layout, operation.x, operation.y, operation.adapter
        if x.rows > self.config.tokens:
            raise ValueError(f"{y.name}: has {x.rows} rows, the machine's products take at most {self.config.tokens}")
        rank = adapter.rank if adapter else 0
        if x.rows * x.count > self.config.depth and not passes(x.rows, rank, self.config):
            raise ValueError(
                f"{y.name}: its operands are {x.rows * x.count} words, the machine holds {self.config.depth}"
            )
        kept, slot = None, self.kept % 2
        lanes: tuple[Transfer, ...] = ()
        if adapter is not None:
            assert isinstance(operation.weight, Codes)
            layout.adapter(adapter, operation.weight, x.tensor.rows)
            first, second = ("b", "a") if operation.backward else ("a", "b")
            lanes = (
                Transfer(layout[f"{adapter.name}.{first}"], x.count * rank * self.config.row_beats, 0),
                Transfer(layout[f"{adapter.name}.{second}"], y.count * rank * self.config.row_beats, x.count * rank),
            )
            place = layout[operation.hidden] + 4 * x.row * rank
            kept = hidden(place, self.config, slot=slot, tokens=x.rows, rank=rank)
            self.kept += 1
        tables, tiles = self._tiles(operation)
        job = ProductJob(
            tables=tables,
            operands=tuple(
                Transfer(layout.run(x, place), count * x.rows * self.config.row_beats, 0) for place, count in x.runs
            ),
            lanes=lanes,
            tiles=in_panels(tiles, x.count, self.config.span),
            result=Transfer(layout.part(y), y.count * y.rows * self.config.row_beats, 0),
            inner=x.count,
            outer=y.count,
            tokens=x.rows,
            rank=rank,
            backward=operation.backward,
            shifts=operation.shifts(self.frac),
            stride=stride(y),
        )
        return Main(order=order, job=job, hidden=kept, slot=slot)

    def _tiles(self, operation: Product) -> tuple[Transfer | None, tuple[Transfer, ...]]:
        """Tables and tiles, those of an output behind each other."""
        weight, layout = operation.weight, self.layout
        if isinstance(weight, Words):
            return None, tuple(dense_tile(layout.part(part), self.config, rows=part.rows) for part in weight.tiles)
        if isinstance(weight, Codes):
            shape = StreamShape(outputs=weight.outputs, inputs=weight.inputs, span=self.config.span)
            start = layout.codes(weight)
            if shape.groups > self.config.groups:
                raise ValueError(
                    f"{weight.name}: has {shape.groups} second-level scales, the machine holds {self.config.groups}"
                )
            tables, tiles = codes(
                shape,
                start,
                start + shape.header_bytes,
                self.frac[weight.name],
                self.config,
                backward=operation.backward,
            )
            return tables, tiles[: operation.x.count * operation.y.count]
        columns, first, size = weight.inputs // EDGE, weight.first // EDGE, 2 * EDGE * EDGE
        places = [
            (inner, outer) if operation.backward else (outer, inner)
            for outer in range(operation.y.count)
            for inner in range(operation.x.count)
        ]
        return None, tuple(
            dense_tile(
                layout[weight.name] + ((first + row) * columns + column) * size,
                self.config,
                rows=EDGE,
                kind=TileKind.HALVES,
            )
            for row, column in places
        )
