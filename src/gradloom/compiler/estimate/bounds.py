"""Bounds of a network's LoRA step on the tile machine, by shape.

An operation's bound is the most that one of these needs: the array, the element engine, the norm engine, beats that are
read, STORE, which makes 16 codes a cycle. Within an operation nothing waits for anything else; operations count one
after another. So the sum of the bounds is an estimate of a program that goes through memory with every record.

Sizes may be any, also where no program is written yet. A tensor that an engine has in its slots is not read again.
Where neither operand of a product fits, the order counts that reads least: through columns of tiles, and the stream
again for each; or through blocks of as many rows of tiles as the slots hold, and what is kept again for each. Sums over
more tiles than slots count as if results had room for them. Adapters are those of linear layers. What is no product
and no norm counts as one operation of elements.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gradloom.graph.base import Operation, Tensor
from gradloom.graph.operations import Add, Attention, Concat, Convolution, Linear, Norm, Upsample
from gradloom.rtl.engines.element.latencies import FINISH, START
from gradloom.rtl.formats.tiles.codes import EDGE, NARROW, WIDE
from gradloom.rtl.formats.tiles.norm import NormOpcode
from gradloom.rtl.formats.tiles.records import BEAT, STEP
from gradloom.sim.time.norm import norm_cycles

from ..commands.elements import beside
from ..commands.images import cuts
from ..weights.matrices import HELD
from .products import backward, forward, is_known, taps_of, with_gradients

__all__ = ["UNITS", "Bound", "step_bounds", "summed"]

#: What an operation may wait for.
UNITS = ("array", "element", "norm", "read", "write")
#: Features of a beat of the element engine, and words of a beat.
_CODES, _WORDS = 8, 8
#: What a softmax gathers of rows of several tiles, before SHARES makes results.
_PASSES = (NormOpcode.LARGEST, NormOpcode.POWERS)


@dataclass(frozen=True)
class _Matrix:
    """A tensor of all samples: ``count`` matrices."""

    name: str
    rows: int
    features: int
    count: int = 1

    @property
    def tiles(self) -> int:
        """Its records."""
        return self.count * -(-self.rows // EDGE) * -(-self.features // EDGE)

    def beats(self, bits: int) -> int:
        """Of all its records."""
        whole, rest = divmod(self.features, EDGE)
        row = whole * (EDGE * bits // (8 * BEAT)) + -(-rest * bits // (8 * BEAT))
        return self.tiles + self.count * self.rows * row

    def steps(self, bits: int, codes: int = STEP) -> int:
        """Cycles in which STORE makes all its records of an engine that gives so many codes in one."""
        whole, rest = divmod(self.features, EDGE)
        few = min(codes, 8 * BEAT // bits)
        return self.tiles + self.count * self.rows * (whole * (EDGE // few) + -(-rest // few))


@dataclass
class Bound:
    """Cycles of each of :data:`UNITS` for an operation."""

    layer: str
    way: str
    array: int = 0
    element: int = 0
    norm: int = 0
    read: int = 0
    write: int = 0

    @property
    def cycles(self) -> int:
        """The most of them."""
        return max(getattr(self, unit) for unit in UNITS)


@dataclass
class _Slots:
    """Tensors whose records lie in slots of a port, the last one used last."""

    count: int
    held: dict[str, int] = field(default_factory=dict)

    def beats(self, x: _Matrix, bits: int, again: float, share: float = 1.0) -> int:
        """Beats that are read for it.

        ``again``: how often, where it does not fit.
        """
        tiles = round(x.tiles * share)
        if tiles > self.count:
            self.held.clear()
            return round(x.beats(bits) * share * again)
        there = self.held.pop(x.name, None)
        while sum(self.held.values()) + tiles > self.count:
            del self.held[next(iter(self.held))]
        self.held[x.name] = tiles
        return 0 if there else round(x.beats(bits) * share)


class _Step:
    """Goes through a step as the program does, tensor by tensor."""

    def __init__(
        self, operations: Sequence[Operation], batch: int, config: Any, array: tuple[int, int], known: Collection[str]
    ) -> None:
        self.operations, self.batch, self.config, self.columns = operations, batch, config, array[1]
        self.known = known
        self.array: dict[tuple[str, str], int] = {}
        ways = {"forward": forward(operations, batch, known=known), "backward": backward(operations, batch)}
        for way, made in ways.items():
            for each in made:
                key = (each.layer, way)
                self.array[key] = self.array.get(key, 0) + each.cycles(*array)
        self.needed = with_gradients(operations)
        #: What upsampled tensors are addresses of.
        self.risen = {each.o.name: each.i[0] for each in operations if isinstance(each, Upsample)}
        made_here = {each.o.name for each in operations}
        given = [t.name for each in operations for t in each.i if t.name not in made_here]
        self.beside = beside(operations, [operations[-1].o.name, *given])
        #: Tensors whose records those of another are.
        self.parts: dict[str, tuple[str, ...]] = {}
        self.bounds: list[Bound] = []
        self.reads: dict[str, set[int]] = {}
        #: Results, and codes of them that STORE makes in a cycle.
        self.made: list[tuple[Bound, _Matrix, int]] = []
        self.slots = {
            "x": _Slots(config.x_slots),
            "w": _Slots(config.w_slots),
            "element": _Slots(config.element_slots),
            "norm": _Slots(config.norm_slots),
        }

    def run(self) -> list[Bound]:
        """All bounds, in the order of the operations."""
        for each in self.operations:
            self._forward(each)
        last = self.operations[-1].o
        loss = self._begin("loss", "backward")
        error, noise = self._like(last, "error"), self._like(last, "noise")
        self._elements(loss, error, self._of(last), noise)
        gradient = self._like(last, "gradient")
        self._elements(loss, gradient, error)
        self._backward(gradient)
        self._update()
        for bound, made, codes in self.made:
            bound.write += sum(made.steps(bits, codes) for bits in self.reads.get(made.name, ()))
        return self.bounds

    # -- pieces ------------------------------------------------------------------------------------------------

    def _begin(self, layer: str, way: str) -> Bound:
        self.bounds.append(Bound(layer, way, array=self.array.get((layer, way), 0)))
        return self.bounds[-1]

    def _of(self, tensor: Tensor) -> _Matrix:
        return self._like(tensor, tensor.name)

    def _like(self, tensor: Tensor, name: str) -> _Matrix:
        return _Matrix(name, self.batch * tensor.rows, tensor.features)

    def _read(self, bound: Bound, port: str, x: _Matrix, bits: int, again: float = 1, share: float = 1.0) -> None:
        self._noted(x.name, bits)
        bound.read += self.slots[port].beats(x, bits, again, share)

    def _noted(self, name: str, bits: int) -> None:
        """A tensor is read in a width."""
        for part in self.parts.get(name, ()):
            self._noted(part, bits)
        self.reads.setdefault(name, set()).add(bits)

    def _product(
        self, bound: Bound, made: _Matrix, x: _Matrix, w: _Matrix, share: float = 1.0, columns: float | None = None
    ) -> None:
        """In the order of tiles that reads least.

        ``columns``: columns of tiles that a tile of the stream serves; all of the result's unless given.
        """
        columns = -(-made.features // EDGE) if columns is None else columns
        held = self.config.x_slots // -(-x.features // EDGE)
        blocks = -(-x.rows // (EDGE * held)) if held else math.inf
        if w.tiles <= self.config.w_slots:
            blocks = 1
        by_columns = x.beats(NARROW) * share * columns + w.beats(NARROW)
        by_rows = x.beats(NARROW) * share + w.beats(NARROW) * blocks
        again = (1, int(blocks)) if by_rows < by_columns else (columns, 1)
        self._read(bound, "x", x, NARROW, again[0], share)
        self._read(bound, "w", w, NARROW, again[1])
        self.made.append((bound, made, self.config.machine.engines.named("product").store("o").port.codes))

    @staticmethod
    def _columns(each: Attention, features: int) -> float:
        """Columns of tiles that a head has a part of, on average."""
        size = features // each.heads
        parts = [range(head * size // EDGE, -(-(head + 1) * size // EDGE)) for head in range(each.heads)]
        return sum(map(len, parts)) / each.heads

    def _elements(self, bound: Bound, made: _Matrix, *operands: _Matrix, steps: int = 1) -> None:
        for each in operands:
            self._read(bound, "element", each, WIDE)
        bound.element += steps * made.count * made.rows * -(-made.features // _CODES)
        bound.element += made.tiles * (START + FINISH)
        self.made.append((bound, made, STEP))

    def _norm(self, bound: Bound, made: _Matrix, each: Norm, operands: Sequence[_Matrix]) -> None:
        """Statistics, then results; of a gradient both of them twice."""
        for x in operands:
            self._read(bound, "norm", x, WIDE)
        back = len(operands) > 1
        opcodes = (NormOpcode.SUMS, NormOpcode.BACK_SUMS) if back else (NormOpcode.SUMS,)
        result = NormOpcode.BACK if back else NormOpcode.NORM
        features, by_row = min(EDGE, made.features), not each.over_rows
        size = made.rows // self.batch
        rows = min(EDGE, made.rows if by_row else size)
        wide, high = -(-made.features // EDGE), -(-size // EDGE)
        whole = {"rows": rows - 1, "features": features - 1, "tiles": (wide if by_row else high) - 1}
        gathered = -(-made.rows // rows) if by_row else self.batch * wide
        written = gathered * (wide if by_row else high)
        lanes = self.config.norm_lanes
        bound.norm += gathered * sum(norm_cycles(opcode, whole, by_row, lanes) for opcode in opcodes)
        bound.norm += written * norm_cycles(result, whole, by_row, lanes)
        self.made.append((bound, made, STEP))

    def _soft(self, bound: Bound, made: _Matrix, x: _Matrix) -> None:
        """Rows of several tiles are gathered first; what slots do not hold is read again for each pass."""
        tiles, slots = -(-made.features // EDGE), self.config.norm_slots
        self._read(bound, "norm", x, WIDE, 1 + len(_PASSES) * max(tiles - slots, 0) / tiles)
        most = max(slots // 2, 1)
        parts = [range(first, min(first + most, tiles)) for first in range(0, tiles, most)]
        commands = [(each, part) for each in _PASSES for part in parts]
        commands += [(NormOpcode.SHARES, range(j, j + 1)) for j in range(tiles)]
        if tiles == 1:
            commands = [(NormOpcode.SOFTMAX, range(1))]
        self._rows(bound, made, commands * made.count)

    def _soft_back(
        self, bound: Bound, made: _Matrix, shares: tuple[_Matrix, _Matrix], results: tuple[_Matrix, _Matrix]
    ) -> None:
        """Gradients of attention's scores; rows of several tiles are pulled by their head's results first."""
        whole = made.features <= EDGE
        for x, bits in zip(shares, (WIDE if whole else NARROW, WIDE)):
            self._read(bound, "norm", x, bits)
        if whole:
            self._rows(bound, made, [(NormOpcode.SOFTMAX_BACK, range(1))] * made.count)
            return
        size = results[0].features // made.count
        ends = [
            (head * size + begin) % EDGE + many for head in range(made.count) for begin, many in cuts(size, head * size)
        ]
        for x in results:
            self._read(bound, "norm", x, WIDE, len(ends) / -(-x.features // EDGE))
        tiles = [(NormOpcode.SOFT_BACK, range(j, j + 1)) for j in range(-(-made.features // EDGE))]
        self._rows(bound, made, [*((NormOpcode.PULLS, end) for end in ends), *tiles * made.count])

    def _rows(self, bound: Bound, made: _Matrix, commands: Sequence[tuple[NormOpcode, range | int]]) -> None:
        """Commands on each row of tiles: on tiles of what is made, or on a tile's features."""
        whole, rest = divmod(made.rows, EDGE)
        for rows, count in ((EDGE, whole), (rest, 1)):
            for opcode, part in commands if rows and count else ():
                tiles, features = (1, part) if isinstance(part, int) else (len(part), made.features - EDGE * part[-1])
                given = {"rows": rows - 1, "features": min(features, EDGE) - 1, "tiles": tiles - 1}
                bound.norm += count * norm_cycles(opcode, given, True, self.config.norm_lanes)
        self.made.append((bound, made, STEP))

    def _weights(self, each: Linear | Convolution) -> _Matrix:
        return _Matrix(f"{each.layer}.weight", each.i[0].features, each.o.features, taps_of(each))

    def _adapter(self, each: Linear) -> tuple[_Matrix, _Matrix]:
        a = _Matrix(f"{each.layer}.a", each.rank, each.i[0].features)
        return a, _Matrix(f"{each.layer}.b", each.o.features, each.rank)

    def _share(self, each: Convolution, *, back: bool) -> float:
        """Reads of a tile of the stream for a column of tiles."""
        if taps_of(each) == 1:
            return 1.0
        source = each.i[0] if back else self.risen.get(each.i[0].name, each.i[0])
        sides = each.o.sides[-1], source.sides[-1]
        return _reads(*(reversed(sides) if back else sides))

    def _bias(self, bound: Bound, each: Linear | Convolution) -> None:
        """Rows of a bias stream as those of a product."""
        if each.bias:
            bound.array += self.batch * each.o.rows * -(-each.o.features // self.columns)

    # -- forward -----------------------------------------------------------------------------------------------

    def _forward(self, each: Operation) -> None:
        name = each.layer if isinstance(each, Linear | Convolution) else each.o.name
        bound, made = self._begin(name, "forward"), self._of(each.o)
        given = [self._of(t) for t in each.i]
        match each:
            case Linear():
                if each.rank:
                    a, b = self._adapter(each)
                    h = _Matrix(f"{each.layer}.hidden", given[0].rows, each.rank)
                    self._product(bound, h, given[0], a)
                    self._product(bound, made, h, b)
                    self.made.pop()
                if is_known(each, self.known):
                    # What adapters are added to.
                    self._read(bound, "element", _Matrix(f"{made.name}.kept", made.rows, made.features), WIDE)
                    self.made.append((bound, made, STEP))
                else:
                    self._product(bound, made, given[0], self._weights(each))
                self._bias(bound, each)
            case Convolution():
                x = self._of(self.risen.get(each.i[0].name, each.i[0]))
                self._product(bound, made, x, self._weights(each), self._share(each, back=False))
                self._bias(bound, each)
            case Norm():
                self._norm(bound, made, each, given)
            case Attention():
                self._attention(bound, each, *given)
            case Upsample():
                # Addresses of the convolution that reads it.
                self.bounds.pop()
            case Concat() if made.name in self.beside:
                self.bounds.pop()
                self.parts[made.name] = tuple(x.name for x in given)
            case _:
                self._elements(bound, made, *given)

    def _matrices(self, each: Attention, name: str) -> _Matrix:
        q, k = each.i[:2]
        return _Matrix(f"{each.o.name}.{name}", self.batch * q.rows, k.rows, each.heads)

    def _attention(self, bound: Bound, each: Attention, q: _Matrix, k: _Matrix, v: _Matrix) -> None:
        scores, p = self._matrices(each, "scores"), self._matrices(each, "probabilities")
        self._product(bound, scores, q, k)
        self._soft(bound, p, scores)
        self._product(bound, self._of(each.o), p, v, columns=self._columns(each, v.features))

    # -- backward ----------------------------------------------------------------------------------------------

    def _backward(self, last: _Matrix) -> None:
        gradients = {self.operations[-1].o.name: last}
        #: Tiles of the products that are one sum for the gradient of a tensor.
        sums: dict[str, int] = {}
        for each in reversed(self.operations):
            if each.o.name not in self.needed:
                continue
            dy, wanted = gradients.pop(each.o.name), [t.name in self.needed for t in each.i]
            layer = each.layer if isinstance(each, Linear | Convolution) else each.o.name
            bound = self._begin(layer, "backward")
            for t, dx in zip(each.i, self._back(bound, each, dy, wanted)):
                if dx is not None and isinstance(each, Linear | Convolution):
                    tiles = taps_of(each) * -(-dy.features // EDGE) + bool(isinstance(each, Linear) and each.rank)
                    if 0 < sums.get(t.name, 0) <= HELD - tiles:
                        sums[t.name] += tiles
                        self.made.pop()
                        continue
                    sums[t.name] = tiles
                if dx is not None and t.name in gradients:
                    whole = _Matrix(f"{t.name}.gradient.{len(self.made)}", dx.rows, dx.features)
                    self._elements(bound, whole, gradients[t.name], dx)
                    dx = whole
                if dx is not None:
                    gradients[t.name] = dx

    def _back(self, bound: Bound, each: Operation, dy: _Matrix, wanted: Sequence[bool]) -> list[_Matrix | None]:
        given = [self._of(t) for t in each.i]
        parts = [self._like(t, f"{t.name}.part.{each.o.name}.{n}") for n, t in enumerate(each.i)]
        x, made = given[0], parts[0]
        match each:
            case Add():
                return [dy if want else None for want in wanted]
            case Attention():
                return self._attention_back(bound, each, dy, wanted, parts)
            case Concat():
                for part, want in zip(parts, wanted):
                    if want and each.o.name in self.beside:
                        self.parts[part.name] = (dy.name,)
                    elif want:
                        self._elements(bound, part, dy)
                return [part if want else None for part, want in zip(parts, wanted)]
            case Linear():
                if each.rank:
                    a, b = self._adapter(each)
                    back = _Matrix(f"{each.layer}.back", dy.rows, each.rank)
                    self._product(bound, back, dy, b)
                    hidden = _Matrix(f"{each.layer}.hidden", x.rows, each.rank)
                    for part, stream, kept in ((a, x, back), (b, dy, hidden)):
                        gradient = _Matrix(f"{part.name}.gradient", part.rows, part.features)
                        self._product(bound, gradient, stream, kept)
                        self.reads.setdefault(gradient.name, set()).add(WIDE)
                    if wanted[0]:
                        self._product(bound, made, back, a)
                        self.made.pop()
                if wanted[0]:
                    self._product(bound, made, dy, self._weights(each))
            case Convolution() if wanted[0]:
                self._product(bound, made, dy, self._weights(each), self._share(each, back=True))
            case Norm():
                self._norm(bound, made, each, (dy, x))
            case Upsample():
                self._elements(bound, made, dy, steps=4)
            case _:
                self._elements(bound, made, dy, x)
        return [made if wanted[0] else None, *(None for _ in given[1:])]

    def _attention_back(
        self, bound: Bound, each: Attention, dy: _Matrix, wanted: Sequence[bool], parts: Sequence[_Matrix]
    ) -> list[_Matrix | None]:
        q, k, v = (self._of(t) for t in each.i)
        p, dp, ds = (self._matrices(each, name) for name in ("probabilities", "dp", "ds"))
        if wanted[0] or wanted[1]:
            self._product(bound, dp, dy, v)
            self._soft_back(bound, ds, (p, dp), (self._of(each.o), dy))
        found: list[_Matrix | None] = []
        for part, matrices, other, want in zip(parts, (ds, ds, p), (k, q, dy), wanted):
            if want:
                self._product(bound, part, matrices, other, columns=self._columns(each, other.features))
            found.append(part if want else None)
        return found

    # -- update ------------------------------------------------------------------------------------------------

    def _update(self) -> None:
        """Reads gradients, words and moments; writes words, moments, codes."""
        for each in [each for each in self.operations if isinstance(each, Linear) and each.rank]:
            bound = self._begin(each.layer, "update")
            for part in self._adapter(each):
                words = part.rows * -(-part.features // _WORDS)
                bound.read += part.beats(WIDE) + 4 * words
                bound.write += 3 * words + part.steps(NARROW)
                bound.element += words + part.tiles * (START + FINISH)


def _reads(side: int, other: int) -> float:
    """Reads of a tile of the input for a column of tiles.

    ``side``: pixels in a row of the result, ``other``: of the input.
    """
    tiles, count = -(-side * side // EDGE), -(-other * other // EDGE)
    found = 0
    for tile in range(tiles):
        first, last = tile * EDGE // side, min(side - 1, ((tile + 1) * EDGE - 1) // side)
        low = max(0, (first - 1) * other // side)
        high = min(other - 1, ((last + 1) * other + side - 1) // side + (other > side))
        found += ((high + 1) * other - 1) // EDGE - low * other // EDGE + 1
    return found / count


def step_bounds(
    operations: Sequence[Operation],
    config: Any,
    batch: int = 1,
    *,
    array: tuple[int, int] | None = None,
    known: Collection[str] = (),
) -> list[Bound]:
    """Bounds of all operations of a LoRA step, forward, backward, update.

    ``config``: of the machine; ``array``: rows and columns in place of its own. ``known``: inputs whose products
    with frozen weights are in memory.
    """
    return _Step(operations, batch, config, array or (config.array_rows, config.array_columns), known).run()


def summed(bounds: Iterable[Bound]) -> dict[str, int]:
    """Sums of the units, and of the bounds as ``cycles``."""
    listed = list(bounds)
    found = {unit: sum(getattr(each, unit) for each in listed) for unit in UNITS}
    return found | {"cycles": sum(each.cycles for each in listed)}
