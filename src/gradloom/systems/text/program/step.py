"""The program of a training step, and its memory map."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from gradloom.program.assembler import Assembler, Instruction
from gradloom.program.memory import Kind, MemoryMap
from gradloom.program.operations import Reading
from gradloom.rtl.engines.linear.commands import TileKind
from gradloom.rtl.engines.update.commands import UpdateOpcode
from gradloom.rtl.engines.update.parameters import UPDATE_BEATS
from gradloom.rtl.formats.vector import VectorOpcode
from gradloom.rtl.formats.weight_stream import StreamShape
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.rtl.machines.language import GRADIENT, UPDATE, VECTOR

from ..operations.again import again
from ..operations.base import Fracs, Operation
from ..operations.elements import Add, Loss, Rope, Softmax, SoftmaxBackward, Swiglu, SwigluBackward
from ..operations.products import Gradient, Product
from ..operations.scaling import Narrow, Norm, NormBackward, Scale, ScaleBackward, TokenSum
from ..operations.tensors import EDGE, Adapter, Angles, Codes, Gain, Halves, Slice, Tensor, Words
from ..operations.updates import Descent, Pack, Unpack, Update, Widen
from ..operations.vector import UNIT
from . import side
from .jobs import ProductJob, Transfer
from .linear import codes, dense_tile, hidden
from .sections import by_rows, rows_of
from .side import Piece
from .weave import Main, Side, gap, weave

__all__ = ["ZEROS", "Layout", "lower"]

#: Words of 0, as many as a command of the update engine takes.
ZEROS = "zeros"

#: Slots of h that products do not write: what gradients are made of is brought back there.
_RESTORED = {"h": 2, "dh": 3}
#: Token of a gradient that has been made: both slots are free again.
_GRADED = 4
#: So many times shorter than a section, about, is side work that can be parted.
_PARTS = 8
#: What multiplies by factors.
_SCALES = Narrow | Scale | ScaleBackward
#: Cycles of the engine on a beat that is loaded, about: an element a cycle, of words that are loaded twice.
_PACE = {Pack: 9, Unpack: 30}


class Layout(MemoryMap):
    """Memory of a step.

    Of a linear ``NAME``: ``NAME`` its stream, ``NAME.a``, ``NAME.b``, their gradients ``.ga``, ``.gb`` and moments
    ``.ma``, ``.mb``, and ``NAME.h``, ``NAME.dh``.
    """

    def tensor(self, tensor: Tensor) -> int:
        """Of a tensor: tiles of features, rows within, 32-bit words."""
        return self.place(tensor.name, 4 * tensor.rows * tensor.features)

    def part(self, part: Slice) -> int:
        """Of some of its tiles, or of rows of them."""
        return self.tensor(part.tensor) + 4 * (part.tensor.rows * part.first + part.row) * EDGE

    def codes(self, matrix: Codes) -> int:
        """Of a linear's stream."""
        return self.place(matrix.name, StreamShape(outputs=matrix.outputs, inputs=matrix.inputs).bytes, Kind.FROZEN)

    def adapter(self, adapter: Adapter, linear: Codes, tokens: int) -> None:
        """All that belongs to an adapter."""
        for which, features in (("a", linear.inputs), ("b", linear.outputs)):
            size = 4 * adapter.rank * features
            for kind, times in (("", 1), ("g", 1), ("m", 2)):
                # What the step makes of an R has neither a gradient of A nor moments.
                if not adapter.made or f"{kind}{which}" in ("a", "b", "gb"):
                    self.place(f"{adapter.name}.{kind}{which}", times * size)
        for which in ("h", "dh"):
            self.place(f"{adapter.name}.{which}", 4 * tokens * adapter.rank)


def lower(
    operations: Sequence[Operation],
    frac: Fracs,
    layout: Layout,
    config: LanguageConfig,
    *,
    yield_every: int | None = None,
    share: bool = False,
    part_loss: bool = True,
) -> Assembler:
    """Lowers operations to a program.

    ``layout`` receives all offsets. Matrices of 16-bit words must be in it. The program yields to requests about every
    ``yield_every`` cycles, if this is given. Then the loss of a vocabulary has parts, each with a result of its own;
    without ``part_loss`` it has one result, and no request is served meanwhile.

    With ``share``, tensors that only this program knows, written before they are read and not in ``layout`` yet, have
    places in common (:mod:`~gradloom.program.lifetimes`): after the program, such a place holds the words written last.
    """
    if share:
        operations, frac = again(operations, frac)
    return _Lowering(frac, layout, config, part_loss).program(operations, yield_every, share)


@dataclass
class _Sharing:
    """Settles the memory of a program by the lifetimes of what it makes."""

    layout: Layout
    beat: int
    operations: Sequence[Operation]
    before: Layout = field(init=False)

    def __post_init__(self) -> None:
        self.before = self.layout.copy()

    def __call__(self, steps: Sequence[Instruction], after: Mapping[int, int]) -> list[Instruction]:
        self.layout.kinds |= dict.fromkeys(self._outliving(), Kind.LEARNT)
        # A softmax's gradient may lie where its logits were: it is made of them beat by beat.
        same = [(each.logits.name, each.d.name) for each in self.operations if isinstance(each, Loss)]
        return self.layout.settle(self.before, steps, after, self.beat, same)

    def _outliving(self) -> set[str]:
        """Names of tensors that a program leaves for others.

        Moments leave by a STORE that stands before the load that brings them.
        """
        made: set[str] = set()
        for each in self.operations:
            match each:
                case Loss():
                    made.update(name for name in self.layout.offsets if rows_of(name, each.loss) is not None)
                case Update():
                    made.update(f"{each.adapter.name}.{kind}{which}" for kind in ("", "m") for which in "ab")
                case Descent():
                    made.update((each.words.name, each.moments))
                case Unpack():
                    made.update(name for held in each.tensors() for name in (held.name, held.packed))
                case _:
                    pass
        return made


class _Lowering(Reading):
    def __init__(self, frac: Fracs, layout: Layout, config: LanguageConfig, part_loss: bool) -> None:
        self.frac, self.layout, self.config, self.part_loss = frac, layout, config, part_loss
        self.beat = config.data_bits // 8
        self.row = config.edge // config.beat_words
        self.kept = self.graded = 0
        #: Cycles that work takes at most, where it may be parted.
        self.most: int | None = None
        self.every: int | None = None

    def program(self, operations: Sequence[Operation], yield_every: int | None, share: bool = False) -> Assembler:
        main: list[Main] = []
        sides: list[Side] = []
        small = {each.x.name for each in operations if isinstance(each, Widen)}
        tokens = next(each.x.rows for each in operations if isinstance(each, Product) and each.y.name not in small)
        plain = self.limit = gap(tokens, self.config)
        # Work behind a product of the head stands beside the next, whose tiles leave less of the bus. Where that is
        # next to nothing, pieces so small cost more than they hide.
        beside = gap(tokens, self.config, EDGE * TileKind.HALVES.row_beats)
        beside = beside if 2 * beside >= plain else plain
        if yield_every is not None:
            self.every, self.most = yield_every, yield_every // _PARTS
        # Lazy work of the vector engine comes in its place, but behind everything where a product needs side
        # work at once: that may be amid a vector's command.
        late = len(operations)
        move = _Sharing(self.layout, self.beat, operations) if share else None
        self._share(operations)
        for order, operation in enumerate(operations):
            if isinstance(operation, Product):
                self.limit = beside if isinstance(operation.weight, Halves) else plain
                main.append(self._product(order, operation))
            elif isinstance(operation, Gradient):
                sides.append(
                    Side(order, GRADIENT, deque(self._gradient(operation)), lazy=True, pace=operation.adapter.rank // 2)
                )
            elif isinstance(operation, TokenSum):
                sides.append(Side(order, GRADIENT, deque(self._token_sum(operation)), lazy=True))
            elif isinstance(operation, Unpack):
                # Words of an adapter are made in their place, all else beside its update.
                lazy = operation.moments or isinstance(operation, Pack)
                sides.append(
                    Side(
                        order + late * lazy,
                        UPDATE,
                        deque(self._coded(operation)),
                        lazy=lazy,
                        pace=_PACE[type(operation)],
                    )
                )
            elif isinstance(operation, Widen):
                sides.append(Side(order, UPDATE, deque(self._widen(operation))))
            elif isinstance(operation, Update):
                sides.append(Side(late + order, UPDATE, deque(self._update(operation)), lazy=True))
            elif isinstance(operation, Descent):
                sides.append(Side(late + order, UPDATE, deque(self._descent(operation)), lazy=True))
            else:
                lazy = isinstance(operation, Add) and operation.lazy
                sides += [
                    Side(order + late * lazy, VECTOR, deque(self.do(each)), lazy=lazy)
                    for each in self._parts(operation)
                ]
        return weave(main, sides, self.config, every=yield_every, move=move)

    def _parts(self, operation: Operation) -> list[Operation]:
        """Parts of an operation between which a program may yield.

        A part is some tiles, of an operation whose elements are independent. Of an operation that multiplies by
        factors, it has as many as the engine has room for.
        """
        if self.every is not None and self.part_loss and isinstance(operation, Loss):
            return [*by_rows(operation, self.every, self.row)]
        if not isinstance(operation, Add | Rope | Swiglu | SwigluBackward | _SCALES):
            return [operation]
        slices = {
            each.name: value for each in fields(operation) if isinstance(value := getattr(operation, each.name), Slice)
        }
        first = next(iter(slices.values()))
        # So many factors are on chip.
        step = self.config.features // EDGE if isinstance(operation, _SCALES) else first.count
        if self.most is not None:
            step = max(min(self.most // (first.rows * self.row * len(slices)), step), 1)
        if step >= first.count:
            return [operation]
        made: list[Operation] = []
        for start in range(0, first.count, step):
            parts: dict[str, Any] = {
                name: replace(part, first=part.first + start, count=min(step, part.count - start))
                for name, part in slices.items()
            }
            made.append(replace(operation, **parts))
        return made

    # ---- products

    def _product(self, order: int, operation: Product) -> Main:
        layout, x, y, adapter = self.layout, operation.x, operation.y, operation.adapter
        rank, kept, slot = 0, None, self.kept % 2
        lanes: tuple[Transfer, ...] = ()
        if adapter is not None:
            assert isinstance(operation.weight, Codes)
            rank = adapter.rank
            layout.adapter(adapter, operation.weight, x.rows)
            first, second = ("b", "a") if operation.backward else ("a", "b")
            lanes = (
                Transfer(layout[f"{adapter.name}.{first}"], x.count * rank * self.row, 0),
                Transfer(layout[f"{adapter.name}.{second}"], y.count * rank * self.row, x.count * rank),
            )
            kept = hidden(layout[operation.hidden], self.config, slot=slot, tokens=x.rows, rank=rank)
            self.kept += 1
        tables, tiles = self._tiles(operation)
        _check(x, *(operation.weight.tiles if isinstance(operation.weight, Words) else ()))
        job = ProductJob(
            tables=tables,
            operands=Transfer(layout.part(x), x.count * x.rows * self.row, 0),
            lanes=lanes,
            tiles=tiles,
            result=Transfer(layout.part(y), y.count * y.rows * self.row, 0),
            inner=x.count,
            outer=y.count,
            tokens=x.rows,
            rank=rank,
            backward=operation.backward,
            shifts=operation.shifts(self.frac),
            stride=None if y.whole else 4 * y.tensor.rows * EDGE,
        )
        return Main(order=order, job=job, hidden=kept, slot=slot)

    def _tiles(self, operation: Product) -> tuple[Transfer | None, tuple[Transfer, ...]]:
        """Tables and tiles in the order of their use."""
        weight, layout = operation.weight, self.layout
        if isinstance(weight, Words):
            return None, tuple(dense_tile(layout.part(part), self.config, rows=part.rows) for part in weight.tiles)
        if isinstance(weight, Codes):
            shape, start = StreamShape(outputs=weight.outputs, inputs=weight.inputs), layout.codes(weight)
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

    # ---- gradients and updates

    def _gradient(self, operation: Gradient) -> list[Piece]:
        adapter, name, shifts = operation.adapter, operation.adapter.name, operation.shifts(self.frac)
        pieces: list[Piece] = []
        for which, (kept, source) in operation.sources.items():
            slot = _RESTORED[kept]
            back = hidden(self.layout[f"{name}.{kept}"], self.config, slot=slot, tokens=source.rows, rank=adapter.rank)
            restore = side.load(back.offset, back.beats, GRADIENT.load("hidden"), back.argument)
            beats = source.rows * self.row
            step = source.count if self.most is None else max(2 * self.most // (adapter.rank * beats), 1)
            for start in range(0, source.count, step):
                tiles = min(step, source.count - start)
                last = which == [*operation.sources][-1] and start + tiles == source.count
                first, *others = side.gradient(
                    self.config,
                    source=self.layout.part(source) + start * beats * self.beat,
                    result=self.layout[f"{name}.{which}"] + start * adapter.rank * self.row * self.beat,
                    tiles=tiles,
                    tokens=source.rows,
                    rank=adapter.rank,
                    slot=slot,
                    shift=shifts[which],
                    limit=self.limit,
                    post=(_GRADED,) if last else (),
                )
                waits = which == "gb" and self.graded and not start
                back_again = replace(restore, wait=(_GRADED,)) if waits else restore
                pieces += [replace(first, instructions=(back_again, *first.instructions)), *others]
        self.graded += 1
        return pieces

    def _token_sum(self, operation: TokenSum) -> list[Piece]:
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
            result=self.layout.part(operation.y),
            rest=self.layout.place("sum.rest", self.row * self.beat),
            tiles=x.count,
            tokens=x.rows,
            rank=2,
            slot=slot,
            shift=operation.shifts(self.frac)["shift"],
            limit=self.limit,
            post=(_GRADED,),
        )
        if self.graded:
            restore = replace(restore, wait=(_GRADED,))
        self.graded += 1
        return [replace(first, instructions=(restore, *first.instructions)), *others]

    def _update(self, operation: Update) -> list[Piece]:
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

    def _descent(self, operation: Descent) -> list[Piece]:
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

    def _widen(self, operation: Widen) -> list[Piece]:
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
            start=self.layout.place(ZEROS, UPDATE_BEATS * self.beat),
        )

    def _share(self, operations: Sequence[Operation]) -> None:
        """Places tensors that are stored as codes.

        Moments that are unpacked have one place for all adapters.
        """
        if any(isinstance(each, Unpack) for each in operations) and not self.config.packing:
            raise ValueError("packing: the machine must have it, for adapters are stored as codes")
        held = [each for operation in operations if isinstance(operation, Unpack) for each in operation.tensors()]
        for which in "ab":
            moments = [each for each in held if each.moments and each.name.endswith(which)]
            if moments:
                place = self.layout.place(f"moments.{which}", max(each.bytes for each in moments))
                for each in moments:
                    self.layout.offsets.setdefault(each.name, place)
                    self.layout.sizes.setdefault(each.name, 0)
        for each in held:
            self.layout.place(each.packed, each.shape.bytes)
            self.layout.place(each.name, each.bytes)

    def _coded(self, operation: Unpack) -> list[Piece]:
        pieces = []
        for each in operation.tensors():
            places = {"words": self.layout[each.name], "packed": self.layout[each.packed]}
            pieces += (
                side.pack(each, operation.number, self.config, **places)
                if isinstance(operation, Pack)
                else side.unpack(each, self.config, **places)
            )
        return pieces

    # ---- the vector engine

    def _vector(self, opcode: VectorOpcode, part: Slice, operands: Mapping[str, int], **options: Any) -> list[Piece]:
        return side.vector(
            opcode,
            {"row": self.row, "tiles": part.count, "tokens": part.rows, **operands},
            self.config,
            **{"limit": self.limit, **options},
        )

    def _at(self, part: Slice) -> side.SideTensor:
        _check(part)
        return side.SideTensor(offset=self.layout.part(part))

    def _strided(self, part: Slice) -> side.SideTensor:
        """Rows of tiles: those of a tile lie behind each other."""
        return side.SideTensor(
            offset=self.layout.part(part), stride=None if part.whole else 4 * part.tensor.rows * EDGE
        )

    def _weights(self, name: str, tiles: int) -> list[Piece]:
        return self._loaded(side.SideTensor(offset=self.layout.place(name, 4 * tiles * EDGE)), tiles)

    def _loaded(self, weights: side.SideTensor, tiles: int) -> list[Piece]:
        return side.vector(
            VectorOpcode.WEIGHTS, {"row": self.row, "tiles": tiles}, self.config, limit=self.limit, a=weights
        )

    def _gain(self, gain: Gain, tiles: int) -> list[Piece]:
        """The constant as a weight of each feature."""
        return self._loaded(side.SideTensor(offset=self.layout.place(gain.name, 4 * EDGE), repeated=True), tiles)

    def _norm(self, operation: Norm) -> list[Piece]:
        x, y = operation.x, operation.y
        return (
            self._weights(operation.weight, x.count)
            + self._vector(VectorOpcode.NORM_SUMS, x, {"left": UNIT, **operation.epsilon(self.frac)}, a=self._at(x))
            + self._vector(VectorOpcode.NORM, x, operation.shifts(self.frac), a=self._at(x), o=self._at(y))
        )

    def _normbackward(self, operation: NormBackward) -> list[Piece]:
        x, dy = operation.x, operation.dy
        shifts = operation.shifts(self.frac)
        both = {"a": self._at(x), "b": self._at(dy)}
        made = {"o": self._at(operation.dx)} | ({} if operation.u is None else {"q": self._at(operation.u)})
        opcode = VectorOpcode.NORM_BACKWARD if operation.u is None else VectorOpcode.NORM_BACKWARD_GAIN
        return (
            self._weights(operation.weight, x.count)
            + self._vector(
                VectorOpcode.NORM_BACKWARD_SUMS, x, {**shifts["sums"], **operation.epsilon(self.frac)}, **both
            )
            + self._vector(opcode, x, shifts["result"], **both, **made)
        )

    def _narrow(self, operation: Narrow) -> list[Piece]:
        words, y = operation.words, operation.y
        return self._gain(operation.gain, words.count) + self._vector(
            VectorOpcode.SCALE, words, operation.shifts(self.frac), a=self._at(words), o=self._at(y)
        )

    def _scale(self, operation: Scale) -> list[Piece]:
        x, y = operation.x, operation.y
        return self._loaded(self._at(operation.factors), x.count) + self._vector(
            VectorOpcode.SCALE, x, operation.shifts(self.frac), a=self._at(x), o=self._at(y)
        )

    def _scalebackward(self, operation: ScaleBackward) -> list[Piece]:
        x = operation.x
        return self._loaded(self._at(operation.factors), x.count) + self._vector(
            VectorOpcode.SCALE_BACKWARD,
            x,
            operation.shifts(self.frac),
            a=self._at(x),
            b=self._at(operation.dy),
            o=self._at(operation.dx),
            q=self._at(operation.u),
        )

    def _add(self, operation: Add) -> list[Piece]:
        operands = {**operation.shifts(self.frac), "wide": operation.y.tensor.wide}
        if not operation.lazy:
            return self._added(operation.a, operation.b, operation.y, operands)
        # Other commands of the engine pass lazy work: a command a piece.
        both = 2 * operation.y.rows * self.row
        count, pieces = max(self.limit // both, 1), []
        for first in range(0, operation.y.count, count):
            a, b, y = (
                each.tensor.part(each.first + first, min(count, each.count - first))
                for each in (operation.a, operation.b, operation.y)
            )
            pieces += self._added(a, b, y, operands, limit=max(self.limit, both))
        return pieces

    def _added(self, a: Slice, b: Slice, y: Slice, operands: Mapping[str, int], **options: int) -> list[Piece]:
        return self._vector(VectorOpcode.ADD, y, operands, a=self._at(a), b=self._at(b), o=self._at(y), **options)

    def _angles(self, angles: Angles) -> side.SideTensor:
        return side.SideTensor(offset=self.layout.place(angles.name, 4 * angles.rows * EDGE), repeated=True)

    def _rope(self, operation: Rope) -> list[Piece]:
        return self._vector(
            VectorOpcode.ROPE,
            operation.x,
            {**operation.shifts(self.frac), "turn": operation.turn},
            a=self._at(operation.x),
            b=self._angles(operation.angles),
            o=self._at(operation.y),
        )

    def _swiglu(self, operation: Swiglu) -> list[Piece]:
        return self._vector(
            VectorOpcode.SWIGLU,
            operation.y,
            _gate(operation.shifts(self.frac)),
            a=self._at(operation.gate),
            b=self._at(operation.up),
            o=self._at(operation.y),
        )

    def _swiglubackward(self, operation: SwigluBackward) -> list[Piece]:
        return self._vector(
            VectorOpcode.SWIGLU_BACKWARD,
            operation.dy,
            _gate(operation.shifts(self.frac)),
            a=self._at(operation.gate),
            b=self._at(operation.up),
            c=self._at(operation.dy),
            o=self._at(operation.dgate),
            q=self._at(operation.dup),
        )

    def _softmax(self, operation: Softmax) -> list[Piece]:
        operands = {**_gate(operation.shifts(self.frac)), "limit": operation.limit, "causal": 1}
        return self._vector(VectorOpcode.SOFTMAX_SUMS, operation.s, operands, a=self._at(operation.s)) + self._vector(
            VectorOpcode.SOFTMAX, operation.s, operands, a=self._at(operation.s), o=self._at(operation.p)
        )

    def _softmaxbackward(self, operation: SoftmaxBackward) -> list[Piece]:
        shifts = operation.shifts(self.frac)
        both = {"a": self._at(operation.p), "b": self._at(operation.dp)}
        return self._vector(VectorOpcode.SOFTMAX_BACKWARD_SUMS, operation.p, shifts["sums"], **both) + self._vector(
            VectorOpcode.SOFTMAX_BACKWARD, operation.p, shifts["result"], **both, o=self._at(operation.ds)
        )

    def _loss(self, operation: Loss) -> list[Piece]:
        rows = operation.logits.rows
        targets = self.layout.place(operation.targets, 4 * rows)
        loss = self.layout.place(operation.loss, self.beat)
        operands = {**_gate(operation.shifts(self.frac)), "limit": operation.vocab - 1}
        return (
            side.vector(
                VectorOpcode.TARGETS,
                {"row": -(-rows // self.config.beat_words), "tiles": 1, "tokens": 1},
                self.config,
                limit=self.limit,
                a=side.SideTensor(offset=targets),
            )
            + self._vector(VectorOpcode.SOFTMAX_SUMS, operation.logits, operands, a=self._strided(operation.logits))
            + self._vector(
                VectorOpcode.SOFTMAX,
                operation.logits,
                {**operands, "targets": 1},
                a=self._strided(operation.logits),
                o=self._strided(operation.d),
                q=side.SideTensor(offset=loss, beats=1),
            )
        )


def _check(*parts: Slice) -> None:
    for part in parts:
        if not part.whole:
            raise ValueError(f"{part.name}: rows of {part.count} tiles, which do not lie behind each other")


def _gate(shifts: Mapping[str, int]) -> dict[str, int]:
    """The reference's names as the command's."""
    return {"gate" if name == "gate_shift" else name: value for name, value in shifts.items()}
