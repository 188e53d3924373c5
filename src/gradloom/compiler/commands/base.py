"""The tensors of a program, and what its parts share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gradloom.graph.base import Operation, Tensor
from gradloom.graph.network import Network
from gradloom.graph.operations import Convolution, Linear, Norm, Parameter
from gradloom.program.descent import AdamW
from gradloom.program.memory import AreaKind
from gradloom.program.tiles.drafts import Block, DraftValue
from gradloom.program.tiles.layout import LayoutWords, Tiles
from gradloom.program.tiles.tiling import Tiler
from gradloom.rtl.formats.tiles.codes import EDGE, NARROW, WIDE, coded
from gradloom.rtl.formats.tiles.functions import Curve
from gradloom.rtl.formats.tiles.records import TileRecord

from ..weights.matrices import HALF, TapRows, blocks, matrices, rest_of, stacked, tiles_of_taps, used_rows

__all__ = ["WHOLE", "Base", "Kept", "Learner", "Moved", "Piece", "Rule", "is_plain", "kept_of", "without_gradient"]

#: Behind the name of a weight that learns: matrices with all outputs of each tap.
WHOLE = "~whole"
#: Weights that a message names, at most.
_NAMED = 4


@dataclass(frozen=True)
class Rule:
    """How a weight learns: AdamW on masters of ``fraction`` bits."""

    rule: AdamW
    fraction: int


@dataclass(frozen=True)
class Learner:
    """A weight that learns: codes, gradient, masters and moments."""

    codes: Tiles
    gradient: Tiles
    words: LayoutWords
    rule: Rule


@dataclass(frozen=True)
class Piece:
    """Kept tiles of a PRODUCT by address.

    ``records``: offsets and sizes; ``tiles``: what they are summed over. ``halves``: which halves of columns of a tile
    they make. ``given``: operands for their places.
    """

    records: tuple[tuple[int, TileRecord], ...]
    tiles: range
    halves: range
    given: dict[str, int]

    def within(self, deep: range) -> "Piece | None":
        """What lies among some tiles of what is summed over."""
        tiles = range(max(self.tiles.start, deep.start), min(self.tiles.stop, deep.stop))
        if tiles == self.tiles or not tiles:
            return self if tiles else None
        first = tiles.start - self.tiles.start
        return replace(self, records=self.records[first : first + len(tiles)], tiles=tiles)


@dataclass(frozen=True)
class Kept:
    """Codes of weights: a matrix a tap.

    ``turned``: ``[outputs, inputs]``, as what learns; else ``[inputs, outputs]``. ``some``: which parts of 32 by 32
    ``[taps, inputs, outputs]`` are not zeros; None: any may be.
    """

    tiles: Tiles
    turned: bool
    some: np.ndarray | None = None

    def flips(self, back: bool) -> bool:
        """Whether the product reads the matrix transposed; ``back``: that of a gradient."""
        return self.turned != back

    def at(self, k: int, j: int, tap: int, back: bool) -> tuple[int, int, int]:
        """The tile for tile ``k`` of what is summed over and tile ``j`` of what is made."""
        return (j, k, tap) if self.flips(back) else (k, j, tap)

    def counts(self, taps: int, deep: range, back: bool) -> list[int]:
        """Tiles of each tap that a tile of the result takes at most, of those that are summed over."""
        return [len(deep)] * taps if self.some is None else tiles_of_taps(self.some, back, deep)

    def spans(self, some: Sequence[int], j: int, back: bool) -> list[range]:
        """Neighbours among some tiles of what is summed over, for tile ``j`` of what is made by the first tap.

        Tiles of zeros are left out, but for one.
        """
        there = list(some)
        if self.some is not None:
            filled = self.some[0].T if back else self.some[0]
            there = [k for k in some if filled[2 * k : 2 * k + 2, 2 * j : 2 * j + 2].any()] or there[:1]
        made: list[range] = []
        for k in there:
            made[-1:] = [range(made[-1].start, k + 1)] if made and made[-1].stop == k else [*made[-1:], range(k, k + 1)]
        return made

    def pieces(self, j: int, tap: int, deep: int, back: bool) -> list[Piece]:
        """What makes tile ``j`` of the columns by a tap; ``deep``: tiles of what is summed over."""
        made = []
        for run, halves in self.runs(j, tap, deep, back):
            places = [self.at(k, j, tap, back) for k in run]
            records = tuple((self.tiles.at(*at), self.tiles.record(*at[:2])) for at in places)
            own = range(halves.start - 2 * j, halves.stop - 2 * j)
            given = {"w_column": HALF * own.start} if len(own) == 1 else {}
            made.append(Piece(records, run, own, given))
        return made

    def runs(self, j: int, tap: int, deep: int, back: bool) -> list[tuple[range, range]]:
        """Neighbours among the tiles of what is summed over, and which halves of columns of tile ``j`` they make.

        Tiles of zeros are left out.
        """
        halves = range(2 * j, 2 * j + 2)
        if self.some is None:
            return [(range(deep), halves)]
        some = self.some[tap].T if back else self.some[tap]
        made: list[tuple[range, range]] = []
        for k in range(deep):
            there = some[2 * k : 2 * k + 2, halves.start : halves.stop].any(0)
            if not there.any():
                continue
            # Of one half alone.
            own = range(halves.start + int(not there[0]), halves.start + 1 + int(there[1:].any()))
            if made and made[-1][0].stop == k and made[-1][1] == own:
                made[-1] = range(made[-1][0].start, k + 1), own
            else:
                made.append((range(k, k + 1), own))
        return made


@dataclass(frozen=True)
class Stacked(Kept):
    """Matrices of taps behind one another, as what learns, or to put features of taps there.

    ``rows``: where each tap's lie.
    """

    rows: TapRows = field(kw_only=True)

    def pieces(self, j: int, tap: int, deep: int, back: bool) -> list[Piece]:
        """See :class:`Kept`."""
        begin, first, count = self.rows.begins[tap], self.rows.firsts[tap], self.rows.counts[tap]
        if not count:
            return []
        row, within = divmod(begin, EDGE)
        flips, whole = self.flips(back), range(2 * j, 2 * j + 2)
        given = {"w_column" if flips else "w_row": within} if count < EDGE else {}
        if flips:
            # A tile of outputs.
            places = [(row + j, k, 0) for k in range(deep)]
            given |= {"columns": count - 1, "o_column": first} if count < EDGE else {}
        else:
            assert not first
            places = [(row + k, j, 0) for k in range(-(-count // EDGE))]
        records = tuple((self.tiles.at(*at), self.tiles.record(*at[:2])) for at in places)
        return [Piece(records, range(len(places)), whole, given)]


@dataclass(frozen=True)
class Moved(Kept):
    """What puts the features of taps where their rows lie; ``tiles``: a matrix that changes nothing."""

    rows: TapRows = field(kw_only=True)

    def pieces(self, j: int, tap: int, deep: int, back: bool) -> list[Piece]:
        """See :class:`Kept`."""
        begin, first, count = self.rows.begins[tap], self.rows.firsts[tap], self.rows.counts[tap]
        tile, within = divmod(begin, EDGE)
        if not count or not tile <= j < tile + -(-count // EDGE):
            return []
        given = {"w_column": first, "columns": min(count, EDGE) - 1, "o_column": within}
        records = ((self.tiles.at(0, 0), self.tiles.record(0, 0)),)
        return [Piece(records, range(j - tile, j - tile + 1), range(2 * j, 2 * j + 2), given)]


def kept_of(codes: Tiles, rows: TapRows) -> Kept:
    """Codes of matrices that learn; ``rows``: of those of taps."""
    return Stacked(codes, True, rows=rows) if len(rows.counts) > 1 else Kept(codes, True)


class Base:
    """Tensors by name, as far as they are written, and codes of weights.

    Parameters
    ----------
    tiler : Tiler
    network : Network
    samples : int
        Of a step.
    rules : mapping
        By the name of a weight that learns.
    """

    def __init__(self, tiler: Tiler, network: Network, samples: int, rules: Mapping[str, Rule]) -> None:
        self.tiler, self.network, self.samples, self.rules = tiler, network, samples, rules
        self.found: dict[str, DraftValue] = {}
        self.kept: dict[str, Kept] = {}
        self.learners: dict[str, Learner] = {}
        #: Gradients of what learns, by name.
        self.learnt: dict[str, DraftValue] = {}
        #: What repeats a smaller one, and whose gradient of all places is transposed.
        self.turned: set[str] = set()
        #: Places that results have.
        self.places: dict[str, list[Tiles]] = {}
        #: Tensors that are no more than addresses of a smaller one.
        self.risen: dict[str, Tensor] = {}
        #: First table of each function whose tables the program writes.
        self.curves: dict[Curve, int] = {}
        #: Tensors that are the same for all samples.
        self.tables = {each.o.name for each in network.operations if isinstance(each, Parameter)}

    # -- places --------------------------------------------------------------------------------------------------

    def codes(self, values: np.ndarray, bits: int) -> Tiles:
        """Places codes of a matrix, or of several."""
        count, (rows, features) = values.shape[0] if values.ndim > 2 else 1, values.shape[-2:]
        tiles = Tiles(0, count, rows, features, bits)
        return replace(tiles, offset=self.tiler.put(tiles.size, lambda: tiles.pack(coded(values, bits))))

    def matrices(self, values: np.ndarray) -> Kept:
        """Places matrices ``[inputs, outputs]`` that do not change."""
        tiles = self.codes(values, NARROW)
        return Kept(tiles, False, blocks(values.reshape(tiles.count, tiles.rows, tiles.features)))

    def _kernel(self, each: Operation, name: str, values: np.ndarray) -> Kept:
        """Places matrices of a layer that do not change."""
        return self.matrices(values)

    def _rest_of(self, each: Operation, name: str, values: np.ndarray) -> np.ndarray:
        """What first codes of such matrices leave of them."""
        return rest_of(values)

    def place(self) -> None:
        """Places weights, and what learns behind them."""
        operations = {weight.name: each for each in self.network.operations for weight in each.weights}
        for name, each in operations.items():
            if name not in self.rules:
                self._frozen(name, each)
        faults: dict[str, list[str]] = {}
        for name in filter(self.rules.__contains__, operations):
            if (fault := _fault(name, operations[name])) is None:
                self._learner(name, operations[name])
            else:
                faults.setdefault(fault, []).append(name)
        if faults:
            raise without_gradient(faults)

    def _frozen(self, name: str, each: Operation) -> None:
        value = np.asarray(self.network.values[name], np.float64)
        if isinstance(each, Parameter):
            made = self.tiler.value(each.o.name, each.o.rows, each.o.features)
            made.places |= {bits: self.codes(value.reshape(each.o.rows, -1), bits) for bits in (NARROW, WIDE)}
            self.found[each.o.name] = made
        elif value.ndim == 1:
            # Of a norm, features beyond the result's have a gain of 0.
            value = np.pad(value, (0, each.i[0].features - len(value) if isinstance(each, Norm) else 0))
            self.kept[name] = Kept(self.codes(value[None], WIDE), False)
        else:
            values = matrices(each, name, value).swapaxes(-1, -2)
            self.kept[name] = self._kernel(each, name, values)
            if (
                isinstance(each, Convolution | Linear)
                and each.codes > 1
                and (second := self._rest_of(each, name, values)).any()
            ):
                self.kept[f"{name}~rest"] = self._kernel(each, name, second)

    def _learner(self, name: str, each: Operation) -> None:
        value = np.asarray(self.network.learnt(name), np.float64)
        shaped = value[None] if value.ndim == 1 else matrices(each, name, value)
        taps = used_rows(shaped, () if name in self.network.ties else value.shape[2:])
        rows, features = stacked(shaped, taps).shape
        gradient = self.learnt[name] = self.tiler.value(f"{name}.gradient", rows, features)
        tiles = self.tiler.read(gradient, WIDE)
        size = LayoutWords(0, 0, tiles).size
        masters, moments = (self.tiler.room(n * size, AreaKind.LEARNT) for n in (1, 2))
        codes = self.tiler.tiles(1, rows, features, WIDE if value.ndim == 1 else NARROW, AreaKind.LEARNT)
        words = LayoutWords(masters, moments, tiles)
        self.learners[name] = Learner(codes, tiles, words, self.rules[name])
        self.kept[name] = kept_of(codes, taps)
        if isinstance(each, Parameter):
            self.found[each.o.name] = DraftValue(each.o.name, 1, rows, features, {WIDE: codes})

    # -- tensors -------------------------------------------------------------------------------------------------

    def rows(self, t: Tensor) -> int:
        """Rows of a tensor of all samples."""
        return self.samples * t.rows

    def made(self, each: Operation) -> DraftValue:
        """The tensor that an operation makes."""
        value = self.found[each.o.name] = self.tiler.value(each.o.name, self.rows(each.o), each.o.features)
        value.places |= {tiles.bits: tiles for tiles in self.places.get(each.o.name, ())}
        return value

    def part(self, t: Tensor) -> DraftValue:
        """A gradient of a tensor, by one of its readers."""
        return self.tiler.value(f"{t.name}.part", self.rows(t), t.features)

    def given(self, each: Operation) -> list[DraftValue]:
        """The tensors that an operation reads."""
        for t in each.i:
            if t.name in self.risen and not isinstance(each, Convolution):
                raise ValueError(f"{each.o.name}: reads an upsampled tensor, which only convolutions do")
        return [self.found[t.name] for t in each.i]

    def wide(self, value: DraftValue, *at: int) -> Block:
        """Codes of 16 bits of a tile."""
        return Block.of(self.tiler.read(value, WIDE), [at])

    def narrow(self, value: DraftValue, *at: int) -> Block:
        """Codes of 8 bits of a tile."""
        return Block.of(self.tiler.read(value, NARROW), [at])

    def bias(self, each: Operation, layer: str, j: int) -> Block | None:
        """A layer's biases for a tile of features, if it has some."""
        found = self.kept.get(f"{layer}.bias")
        return None if found is None else Block.of(found.tiles, [(0, j)])

    def source(self, t: Tensor) -> Sequence[int]:
        """Sides of a tensor in memory: of one that is upsampled, the smaller's."""
        return self.risen.get(t.name, t).sides

    def is_plain(self, each: Convolution) -> bool:
        """Whether a convolution is a product of rows."""
        return is_plain(each) and each.i[0].name not in self.risen


def without_gradient(faults: Mapping[str, Sequence[str]]) -> ValueError:
    """Refusal of weights that are to learn, by what they are."""
    told = "; ".join(f"{fault}: {_listed(names)}" for fault, names in faults.items())
    return ValueError(
        f"weights have no gradient in the machine: {told}; let others learn: method lora, head or instantft"
    )


def _fault(name: str, each: Operation) -> str | None:
    """Why a weight cannot learn in the machine."""
    if isinstance(each, Parameter):
        return "tables" if each.o.sides else None
    if isinstance(each, Norm):
        return "gains and biases of norms"
    if isinstance(each, Convolution) and each.groups > 1 and name == f"{each.layer}.weight":
        return "kernels of channels in groups"
    return None


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def is_plain(each: Convolution) -> bool:
    """Whether a convolution has one tap, at its own place."""
    at_its_own = set(each.kernel) == set(each.stride) == {1} and not any(map(any, each.pads))
    return at_its_own and each.i[0].sides == each.o.sides
