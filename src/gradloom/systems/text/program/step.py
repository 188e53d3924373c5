"""The program of a training step."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import inf
from typing import Any

from gradloom.program.assembler import Assembler, Instruction
from gradloom.program.memory import AreaKind
from gradloom.rtl.engines.linear.commands import TileKind
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.rtl.machines.language import GRADIENT, UPDATE, VECTOR

from ..operations.base import Fracs, Operation
from ..operations.blocks.head import LOSS
from ..operations.elements import Add, Biased, Gated, GatedBackward, Loss, Rope
from ..operations.learnt.again import again
from ..operations.learnt.updates import Descent, Pack, Unpack, Update, Widen
from ..operations.products import Gradient, Product
from ..operations.scaling import Narrow, Scale, ScaleBackward, TokenSum
from ..operations.tensors import EDGE, MatrixRows, TensorSlice
from .engines.gradients import Gradients
from .engines.updates import UpdatePieces, place_packed
from .engines.vectors import Vectors
from .layout import Layout
from .parted import OperationPart, parted
from .products import ProductOrder
from .sections import by_rows, outputs_of, rows_of
from .weaving.weave import weave
from .weaving.work import Main, Side, gap

__all__ = ["lower"]

#: So many times shorter than a section, about, is side work that can be parted.
_PARTS = 8
#: What multiplies by factors.
_SCALES = Narrow | Scale | ScaleBackward
#: Cycles of the engine on a beat that is loaded, about: an element a cycle, of words that are loaded twice.
_PACE: dict[type[Operation], int] = {Pack: 9, Unpack: 30}


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
    return _Lowering(frac, layout, config, yield_every, part_loss).program(operations, share)


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
        self.layout.kinds |= dict.fromkeys(self._outliving(), AreaKind.LEARNT)
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
                    made.update(name for name in self.layout.offsets if rows_of(name, LOSS) is not None)
                case Update():
                    made.update(f"{each.adapter.name}.{which}" for which in "ab")
                    made.update(f"{each.adapter.name}.m{which}" for which in each.adapter.graded)
                case Descent():
                    made.update((each.words.name, each.moments))
                case Unpack():
                    made.update(name for held in each.tensors() for name in (held.name, held.packed))
                case _:
                    pass
        return made


@dataclass(frozen=True)
class _Lowering:
    frac: Fracs
    layout: Layout
    config: LanguageConfig
    every: int | None
    part_loss: bool

    @property
    def most(self) -> int | None:
        """Cycles that work takes at most, where it may be parted."""
        return None if self.every is None else self.every // _PARTS

    def program(self, operations: Sequence[Operation], share: bool = False) -> Assembler:
        main: list[Main] = []
        sides: list[Side] = []
        small = {each.x.name for each in operations if isinstance(each, Widen)}
        tokens = next(each.x.rows for each in operations if isinstance(each, Product) and each.y.name not in small)
        plain = limit = gap(tokens, self.config)
        # Work behind a product of the head stands beside the next, whose tiles leave less of the bus. Where that is
        # next to nothing, pieces so small cost more than they hide; beside panels nothing else has room.
        beside = gap(tokens, self.config, EDGE * TileKind.HALVES.row_beats)
        beside = beside if self.config.span > 1 or 2 * beside >= plain else plain
        # Lazy work of the vector engine comes in its place, but behind everything where a product needs side
        # work at once: that may be amid a vector's command.
        late = len(operations)
        # Attention of several blocks fills the bus: what is lazy would be left to the end.
        long = any(part.tensor.rows > EDGE for each in operations for part in each.results)
        places = [number if long else inf for number in range(late)]
        move = _Sharing(self.layout, self.config.data_bits // 8, operations) if share else None
        place_packed(operations, self.layout, self.config)
        products = ProductOrder(self.frac, self.layout, self.config)
        gradients = Gradients(self.frac, self.layout, self.config, self.most)
        # Sections between YIELDs are planned for work in the order of the list.
        listed = parted(operations, self.config) if self.every is None else map(OperationPart, range(late), operations)
        for each in listed:
            order, operation = each.order, each.operation
            if isinstance(operation, Product):
                limit = beside if isinstance(operation.weight, MatrixRows) else plain
                whole = products.main(order, operation)
                job = whole.job if each.outputs is None else outputs_of(whole.job, each.outputs, self.config)
                main.append(replace(whole, job=job))
            elif isinstance(operation, Gradient | TokenSum):
                pace = operation.adapter.rank // 2 if isinstance(operation, Gradient) else 1
                sides.append(
                    Side(
                        order,
                        GRADIENT,
                        deque(gradients.do(operation, limit)),
                        lazy=True,
                        place=places[order],
                        pace=pace,
                    )
                )
            elif isinstance(operation, Unpack | Widen | Update | Descent):
                # Words of an adapter are made in their place, all else beside its update.
                at_once = isinstance(operation, Widen) or type(operation) is Unpack and not operation.moments
                pieces = UpdatePieces(self.frac, self.layout, self.config, limit).do(operation)
                pace = _PACE.get(type(operation), 1)
                sides.append(
                    Side(
                        order + late * (not at_once),
                        UPDATE,
                        deque(pieces),
                        lazy=not at_once,
                        place=places[order],
                        pace=pace,
                    )
                )
            else:
                lazy = isinstance(operation, Add) and operation.lazy
                vectors = Vectors(self.frac, self.layout, self.config, limit)
                sides += [
                    Side(order + late * lazy, VECTOR, deque(vectors.do(part)), lazy=lazy, place=places[order])
                    for part in self._parts(operation)
                ]
        return weave(main, sides, self.config, every=self.every, move=move)

    def _parts(self, operation: Operation) -> list[Operation]:
        """Parts of an operation between which a program may yield.

        A part is some tiles, of an operation whose elements are independent. Of an operation that multiplies by
        factors, it has as many as the engine has room for.
        """
        row = self.config.row_beats
        if self.every is not None and self.part_loss and isinstance(operation, Loss):
            return [*by_rows(operation, self.every, row)]
        if not isinstance(operation, Add | Biased | Rope | Gated | GatedBackward | _SCALES):
            return [operation]
        slices = {
            each.name: value
            for each in fields(operation)
            if isinstance(value := getattr(operation, each.name), TensorSlice)
        }
        first = next(iter(slices.values()))
        # So many factors are on chip.
        step = self.config.features // EDGE if isinstance(operation, _SCALES) else first.count
        if self.most is not None:
            step = max(min(self.most // (first.rows * row * len(slices)), step), 1)
        # Tiles of a head have angles of their own.
        whole = operation.angles.tiles if isinstance(operation, Rope) else 1
        step = max(step // whole, 1) * whole
        if step >= first.count:
            return [operation]
        made: list[Operation] = []
        for start in range(0, first.count, step):
            parts: dict[str, Any] = {
                name: part.part(start, min(step, part.count - start)) for name, part in slices.items()
            }
            made.append(replace(operation, **parts))
        return made
