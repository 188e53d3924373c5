"""Operations on elements, and on columns of tensors."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property

from gradloom.graph.base import Operation
from gradloom.graph.operations import (
    Activation,
    Add,
    Concat,
    Gated,
    Larger,
    Multiply,
    Parameter,
    Reduce,
    Rest,
    Upsample,
)
from gradloom.graph.rewriting.resampling import repeats
from gradloom.program.tiles.drafts import Block, DraftValue, Term
from gradloom.program.tiles.layout import Tiles
from gradloom.rtl.formats.tiles.codes import EDGE, NARROW, WIDE
from gradloom.rtl.formats.tiles.element import ElementOpcode
from gradloom.rtl.formats.tiles.functions import GELU, Curve, Times, packed_pieces
from gradloom.rtl.formats.tiles.norm import constant
from gradloom.rtl.formats.tiles.tables import FIXED_TABLES, TABLES

from ..weights.matrices import HELD, levels
from .base import Base
from .curves import function_of

__all__ = ["Elements", "beside", "cut", "tiles_of"]

#: Features of a beat.
_BEAT = 8


class Elements(Base):
    """Writes sums, products, functions of values, and columns side by side."""

    @cached_property
    def beside(self) -> set[str]:
        """Tensors side by side that no command makes."""
        network = self.network
        return beside(network.operations, [port.tensor.name for port in (*network.inputs, *network.outputs)])

    def whole(self, made: DraftValue, opcode: ElementOpcode, operands: Mapping[str, DraftValue], **more: int) -> None:
        """An operation of tensors of one shape."""
        for i, j in tiles_of(made):
            blocks = {port: self.wide(value, i, j) for port, value in operands.items()}
            self.tiler.element(made, (i, j), opcode, blocks, [more])

    def scaled(self, made: DraftValue, x: DraftValue, factor: float, **more: int) -> None:
        """Values times a positive constant."""
        mantissa, exponent = constant(factor)
        self.whole(made, ElementOpcode.SCALE, {"a": x}, mantissa=mantissa, exponent=exponent, **more)

    def nothing(self, made: DraftValue, i: int, j: int) -> None:
        """A tile of zeros."""
        mantissa, exponent = constant(1.0)
        block, part = Block.of(self.zeros, [(0, 0)]), {"mantissa": mantissa, "exponent": exponent}
        self.tiler.element(made, (i, j), ElementOpcode.SCALE, {"a": block}, [part])

    def added(
        self, made: DraftValue, parts: Sequence[slice], write: Callable[[DraftValue, slice], None], **more: int
    ) -> None:
        """A tensor as a sum of parts, each of which ``write`` makes."""
        if len(parts) == 1:
            write(made, parts[0])
            return
        total: DraftValue | None = None
        for number, part in enumerate(parts):
            own = self.tiler.value(f"{made.name}.part{number}", made.rows, made.features)
            write(own, part)
            if total is not None:
                is_last = number == len(parts) - 1
                both = made if is_last else self.tiler.value(f"{made.name}.sum{number}", made.rows, made.features)
                self.whole(both, ElementOpcode.ADD, {"a": total, "b": own}, **(more if is_last else {}))
                own = both
            total = own

    def spread(
        self, made: DraftValue, opcode: ElementOpcode, a: DraftValue | Tiles, b: DraftValue, per: int, **more: int
    ) -> None:
        """An operation with a tensor of fewer rows.

        ``a``: a tensor of the result's shape, or a tile that stands for each of its tiles. ``b`` has a row for ``per``
        rows of the result; with ``per`` 0 its rows are those of the result, again and again.
        """
        for i, j in tiles_of(made):
            rows = range(EDGE * i, EDGE * i + made.part(i, j)[0])
            first = Block.of(a, [(0, 0)]) if isinstance(a, Tiles) else self.wide(a, i, j)
            parts: list[dict[str, int]] = []
            tiles: dict[int, int] = {}
            for start, count, other in _segments(rows, per, b.rows):
                skip = tiles.setdefault(other // EDGE, len(tiles))
                own = {"rows": count - 1, "a_row": start % EDGE, "o_row": start % EDGE, "b_row": other % EDGE}
                parts.append(own | {"one_row": int(per > 0 or b.rows == 1), "b_skip": skip} | more)
            second = Block.of(self.tiler.read(b, WIDE), [(tile, j) for tile in tiles])
            self.tiler.element(made, (i, j), opcode, {"a": first, "b": second}, parts)

    def broadcast(self, each: Add | Multiply, opcode: ElementOpcode, **more: int) -> None:
        """An operation of two tensors, of which the second may have fewer rows."""
        made, (a, b) = self.made(each), self.given(each)
        if a.features != b.features:
            raise ValueError(f"{each.o.name}: tensors of {a.features} and {b.features} features have no command")
        if a.rows == made.rows == b.rows:
            self.whole(made, opcode, {"a": a, "b": b}, **more)
        elif a.rows == made.rows:
            self.spread(made, opcode, a, b, self._per(each), **more)
        else:
            raise ValueError(f"{each.o.name}: its first tensor has fewer rows than its second; turn them round")

    def _per(self, each: Add | Multiply) -> int:
        """Rows of the result that have a row of the second tensor; 0: that is the same for all samples."""
        return 0 if each.i[1].name in self.tables else each.o.rows // each.i[1].rows

    def _parameter(self, each: Parameter) -> None:
        """Lies in memory."""

    def _parameter_back(self, each: Parameter, dy: DraftValue, wanted: Sequence[bool]) -> list[DraftValue | None]:
        """The sum that its readers have made."""
        self.scaled(self.learnt[each.name], dy, 1.0)
        return []

    def _add(self, each: Add) -> None:
        self.broadcast(each, ElementOpcode.ADD, subtract=int(each.subtract), **cut(each))

    def _add_back(self, each: Add, dy: DraftValue, wanted: Sequence[bool]) -> list[DraftValue | None]:
        second = self._fewer(each, dy) if wanted[1] else None
        if second is not None and each.subtract:
            opposite = self.part(each.i[1])
            self.spread(opposite, ElementOpcode.ADD, self.zeros, second, 1, subtract=1)
            second = opposite
        return [dy if wanted[0] else None, second]

    def _fewer(self, each: Add | Multiply, dy: DraftValue) -> DraftValue:
        """A gradient of a tensor's rows, each of which counted for several."""
        t = each.i[1]
        rows = t.rows if t.name in self.tables else self.rows(t)
        if rows == dy.rows:
            return dy
        made = self.tiler.value(f"{t.name}.rows", rows, dy.features)
        self.summed_rows(made, dy, dy.rows // rows)
        return made

    def summed_rows(self, made: DraftValue, x: DraftValue, count: int) -> None:
        """Sums of ``count`` rows each; of many rows, sums of sums."""
        *counts, last = levels(count, made.rows)
        for number, part in enumerate(counts):
            fewer = self.tiler.value(f"{made.name}.part{number}", x.rows // part, x.features)
            self._sums(fewer, x, part)
            x = fewer
        self._sums(made, x, last)

    def _sums(self, total: DraftValue, x: DraftValue, count: int) -> None:
        """Sums of ``count`` rows each: products with ones."""
        kept = self.tiler.read(x, NARROW)
        for i, j in tiles_of(total):
            firsts = [(EDGE * i + row) * count for row in range(total.part(i, j)[0])]
            tiles = [range(first // EDGE, (first + count - 1) // EDGE + 1) for first in firsts]
            # Tiles that several sums read are held once where there is no room for more.
            whole = sum(map(len, set(tiles))) > HELD
            terms = []
            for row, (first, own) in enumerate(zip(firsts, tiles)):
                some = range(tiles[0].start, tiles[-1].stop) if whole else own
                given = {"rows": 0, "o_row": row, "x_step": 0, "tiles": len(own) - 1}
                given |= {"k_from": first % EDGE, "k_to": (first + count - 1) % EDGE}
                block = Block.of(kept, [(k, j) for k in some])
                terms.append(Term(Block.of(self.ones, [(0, 0)]), block, given, w_skip=own.start - some.start))
            self.tiler.product(total, (i, j), terms, apart=True)

    def _multiply(self, each: Multiply) -> None:
        self.broadcast(each, ElementOpcode.MULTIPLY, **cut(each))

    def _multiply_back(self, each: Multiply, dy: DraftValue, wanted: Sequence[bool]) -> list[DraftValue | None]:
        made: list[DraftValue | None] = []
        a, b = self.given(each)
        for other, want in zip((b, a), wanted):
            made.append(self.tiler.value(f"{each.o.name}.part", dy.rows, dy.features) if want else None)
            if made[-1] is None:
                continue
            if other.rows == dy.rows:
                self.whole(made[-1], ElementOpcode.MULTIPLY, {"a": dy, "b": other})
            else:
                self.spread(made[-1], ElementOpcode.MULTIPLY, dy, other, self._per(each))
        if made[1] is not None:
            made[1] = self._fewer(each, made[1])
        return made

    def _larger(self, each: Larger) -> None:
        a, b = self.given(each)
        self.whole(self.made(each), ElementOpcode.LARGER, {"a": a, "b": b}, **cut(each))

    def _larger_back(self, each: Larger, dy: DraftValue, wanted: Sequence[bool]) -> list[DraftValue | None]:
        (a, _), first = self.given(each), self.part(each.i[0])
        self.whole(first, ElementOpcode.EQUAL, {"a": a, "b": self.found[each.o.name], "c": dy})
        second = self.part(each.i[1]) if wanted[1] else None
        if second is not None:
            self.whole(second, ElementOpcode.ADD, {"a": dy, "b": first}, subtract=1)
        return [first if wanted[0] else None, second]

    def masked(self, t_name: str, dy: DraftValue, y: DraftValue) -> DraftValue:
        """The gradient where a result is above 0."""
        made = self.tiler.value(f"{t_name}.masked", dy.rows, dy.features)
        self.whole(made, ElementOpcode.MASK, {"a": dy, "b": y})
        return made

    def _activation(self, each: Activation) -> None:
        (x,) = self.given(each)
        if each.kind == "relu":
            self.scaled(self.made(each), x, 1.0, positive=1)
            return
        if each.kind == "affine":
            gain, shift = each.parameters
            if gain <= 0 or shift:
                raise ValueError(f"{each.o.name}: values times {gain:g} plus {shift:g} have no command")
            self.scaled(self.made(each), x, gain, **cut(each))
            return
        function = function_of(each)
        looked = self.tiler.value(f"{each.o.name}.table", x.rows, x.features) if function.line else self.made(each)
        self.looked(looked, function.value, {"a": x})
        if function.line:
            line = self.tiler.value(f"{each.o.name}.line", x.rows, x.features)
            self.scaled(line, x, function.line, positive=1)
            self.whole(self.made(each), ElementOpcode.ADD, {"a": line, "b": looked})

    def _activation_back(self, each: Activation, dy: DraftValue, wanted: Sequence[bool]) -> list[DraftValue | None]:
        (x,) = self.given(each)
        if each.kind == "relu":
            return [self.masked(each.o.name, dy, self.found[each.o.name])]
        made = self.part(each.i[0])
        if each.kind == "affine":
            self.scaled(made, dy, each.parameters[0])
        else:
            self.looked(made, function_of(each).slope, {"a": dy, "b": x}, gate=1)
        return [made]

    def looked(self, made: DraftValue, curve: Curve, operands: Mapping[str, DraftValue], **more: int) -> None:
        """A function by table, of tensors of one shape."""
        own, tables = self.curve(curve)
        for i, j in tiles_of(made):
            blocks = {port: self.wide(value, i, j) for port, value in operands.items()}
            self.tiler.element(made, (i, j), ElementOpcode.FUNCTION, blocks, [own | more], tables=tables)

    def curve(self, curve: Curve) -> tuple[dict[str, int], Sequence[int]]:
        """Operands of a function, and the tables that the program writes for it."""
        if curve.fixed is not None:
            return curve.operands(), ()
        if curve not in self.curves:
            first = FIXED_TABLES + 2 * len(self.curves)
            if first + len(curve.tables) > TABLES:
                most = (TABLES - FIXED_TABLES) // 2
                raise ValueError(
                    f"functions: more than {most} tables of functions or their slopes; use fewer functions"
                )
            self.curves[curve] = first
            for number, table in enumerate(curve.tables, first):
                self.tiler.table(number, packed_pieces(table).astype("<u4").tobytes())
        number = self.curves[curve]
        return curve.operands(number), range(number, number + len(curve.tables))

    def _gated(self, each: Gated) -> None:
        (x,) = self.given(each)
        made = self.made(each)
        if each.kind != "gelu":
            raise ValueError(f"{made.name}: a gate by {each.kind} has no command; gelu has")
        if made.features % EDGE:
            raise ValueError(f"{made.name}: {made.features} features beside a gate must be a multiple of {EDGE}")
        for i, j in tiles_of(made):
            self._gate(made, (i, j), GELU.value, {"a": self.wide(x, i, j), "b": self.wide(x, i, j + made.wide)})

    def _gate(self, made: DraftValue, at: tuple[int, int], curve: Curve, blocks: dict[str, Block]) -> None:
        """A tile of a gated unit; with c that is a factor, too."""
        more = curve.operands() | {"gate": 1} | ({"times": int(Times.THIRD)} if "c" in blocks else {})
        self.tiler.element(made, at, ElementOpcode.FUNCTION, blocks, [more])

    def _gated_back(self, each: Gated, dy: DraftValue, wanted: Sequence[bool]) -> list[DraftValue | None]:
        (x,) = self.given(each)
        made = self.part(each.i[0])
        for i, j in tiles_of(dy):
            blocks = {"a": self.wide(dy, i, j), "b": self.wide(x, i, j + dy.wide)}
            self._gate(made, (i, j), GELU.value, blocks)
            self._gate(made, (i, j + dy.wide), GELU.slope, blocks | {"c": self.wide(x, i, j)})
        return [made]

    def _concat(self, each: Concat) -> None:
        if each.axis != len(each.o.sides):
            raise ValueError(f"{each.o.name}: rows behind one another have no command; join features")
        if each.o.name in self.beside:
            columns = tuple((x, j) for x in self.given(each) for j in range(x.wide))
            self.found[each.o.name] = DraftValue(each.o.name, 1, self.rows(each.o), each.o.features, columns=columns)
            return
        self.join(self.made(each), [(x, 0, x.features) for x in self.given(each)])

    def _concat_back(self, each: Concat, dy: DraftValue, wanted: Sequence[bool]) -> list[DraftValue | None]:
        made: list[DraftValue | None] = []
        cut = 0
        for t, want in zip(each.i, wanted):
            if not want:
                made.append(None)
            elif each.o.name in self.beside:
                columns = tuple((dy, j) for j in range(cut // EDGE, -(-(cut + t.features) // EDGE)))
                made.append(DraftValue(f"{t.name}.part", 1, dy.rows, t.features, columns=columns))
            else:
                made.append(part := self.part(t))
                self.join(part, [(dy, cut, t.features)])
            cut += t.features
        return made

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

    def _upsample(self, each: Upsample) -> None:
        """Addresses of the convolutions that read it."""
        sides = [(small, large) for small, large in zip(each.i[0].sides, each.o.sides)]
        if not repeats(each) or any(large != 2 * small for small, large in sides):
            raise ValueError(f"{each.o.name}: only twice the sides by nearest neighbours has a command")
        self.found[each.o.name] = self.found[each.i[0].name]
        self.risen[each.o.name] = each.i[0]

    def _upsample_back(self, each: Upsample, dy: DraftValue, wanted: Sequence[bool]) -> list[DraftValue | None]:
        return [self.shrunk(self.part(each.i[0]), dy, each.i[0].sides)]

    def shrunk(self, made: DraftValue, x: DraftValue, sides: Sequence[int]) -> DraftValue:
        """Sums of 2 x 2 pixels, to images of ``sides``."""
        width = sides[-1]
        if width & (width - 1) or width > EDGE:
            raise ValueError(
                f"{made.name}: has {width} pixels in a row; sums of 2 x 2 pixels take a power of two, at most {EDGE}"
            )
        for i, j in tiles_of(made):
            # A tile of pixels is four of those above them, the last one's part fewer.
            count = -(-4 * made.part(i, j)[0] // EDGE)
            block = Block.of(self.tiler.read(x, WIDE), [(4 * i + n, j) for n in range(count)])
            more = {"side": width.bit_length() - 1}
            self.tiler.element(made, (i, j), ElementOpcode.SQUARES, {"a": block}, [more])
        return made

    def _reduce_back(self, each: Reduce, dy: DraftValue, wanted: Sequence[bool]) -> list[DraftValue | None]:
        (t,) = each.i
        made = self.part(t)
        if each.kind == "mean":
            share = self.tiler.value(f"{each.o.name}.share", dy.rows, dy.features)
            self.scaled(share, dy, 1 / t.rows)
            dy = share
        self.spread(made, ElementOpcode.ADD, self.zeros, dy, t.rows)
        return [made]

    @property
    def same(self) -> Tiles:
        """A tile that changes nothing."""
        raise NotImplementedError

    @property
    def zeros(self) -> Tiles:
        """A tile of zeros."""
        raise NotImplementedError

    @property
    def ones(self) -> Tiles:
        """A row of ones."""
        raise NotImplementedError


def beside(operations: Sequence[Operation], ends: Collection[str]) -> set[str]:
    """Tensors side by side whose tiles are those of what they join, so that no command makes them.

    ``ends``: tensors that the host writes or reads, which have places of their own.
    """
    rests = {t.name for each in operations if isinstance(each, Rest) for t in each.i}
    return {
        each.o.name
        for each in operations
        if isinstance(each, Concat)
        and each.axis == len(each.o.sides)
        and not any(t.features % EDGE for t in each.i[:-1])
        and not each.positive
        and rests.union(ends).isdisjoint([each.o.name, *(t.name for t in each.i)])
    }


def cut(each: Operation) -> dict[str, int]:
    """Operands of a command that makes an operation's result."""
    return {"positive": 1} if each.positive else {}


def _segments(rows: range, per: int, others: int) -> Iterator[tuple[int, int, int]]:
    """Parts of a tile's rows: first row, count, and first row of the tensor that has ``others``; see ``spread``."""
    start = rows.start
    while start < rows.stop:
        if per:
            other, end = start // per, (start // per + 1) * per
        elif others == 1:
            other, end = 0, rows.stop
        else:
            other = start % others
            end = start + min(others - other, EDGE - other % EDGE)
        end = min(end, rows.stop)
        yield start, end - start, other
        start = end


def tiles_of(value: DraftValue) -> Iterator[tuple[int, int]]:
    """Row and column of each tile."""
    return ((i, j) for i in range(value.high) for j in range(value.wide))


def _pieces(
    made: DraftValue, parts: Sequence[tuple[DraftValue, int, int]]
) -> Iterator[list[tuple[DraftValue, int, int, int]]]:
    """Of each tile's columns: tensor, tile, first beat, beats."""
    columns = [(x, c) for x, first, count in parts for c in range(first, first + count, _BEAT)]
    for part in parts:
        if part[1] % _BEAT or (part[2] % _BEAT and len(parts) > 1):
            raise ValueError(f"{made.name}: columns of tensors side by side must be multiples of {_BEAT}")
    for start in range(0, len(columns), EDGE // _BEAT):
        own: list[tuple[DraftValue, int, int, int]] = []
        for x, c in columns[start : start + EDGE // _BEAT]:
            tile, within = divmod(c, EDGE)
            if own and own[-1][0] is x and own[-1][1] == tile:
                own[-1] = (*own[-1][:3], own[-1][3] + 1)
            else:
                own.append((x, tile, within // _BEAT, 1))
        if len(own) > 2:
            raise ValueError(f"{made.name}: a tile has columns of {len(own)} tiles, must be of 2 at most")
        yield own
