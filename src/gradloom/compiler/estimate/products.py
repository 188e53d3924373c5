"""Matrix products of a network's LoRA step, by shape."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from gradloom.graph.base import Operation
from gradloom.graph.dependence import dependent
from gradloom.graph.operations import Attention, Convolution, Linear

__all__ = [
    "BLOCK",
    "ShapedProduct",
    "backward",
    "forward",
    "is_known",
    "narrow_tensors",
    "parameters",
    "taps_of",
    "with_gradients",
]

#: Rows of a command's stream, as of a tile.
BLOCK = 64


@dataclass(frozen=True)
class ShapedProduct:
    """``[m, k] · [k, n]``, ``times`` over, for a ``layer``.

    ``part``: what it is of the layer. ``frozen``: its second operand is weights that never change. ``stored``: bytes of
    a result: 2, or 1 where only products read it, or 0 where it is added to another product's; with those of what it is
    added to.
    """

    layer: str
    part: str
    m: int
    n: int
    k: int
    times: int = 1
    frozen: bool = False
    stored: int = 2

    @property
    def macs(self) -> int:
        """Multiplications."""
        return self.times * self.m * self.n * self.k

    @property
    def bytes(self) -> int:
        """Bytes of its operands, a byte a value, and of its result."""
        return self.times * (self.m * self.k + self.k * self.n + self.stored * self.m * self.n)

    def cycles(self, rows: int, columns: int) -> int:
        """Cycles of an array that loads tiles under compute.

        It keeps ``rows × columns`` of the second operand. The stream comes in blocks of :data:`BLOCK` rows, each with
        all kept tiles. A kept tile takes the longer of the block's rows and the load of the next tile's rows.
        """
        whole, rest = divmod(self.m, BLOCK)
        streamed = whole * max(BLOCK, rows) + (max(rest, rows) if rest else 0)
        return self.times * -(-self.k // rows) * -(-self.n // columns) * streamed

    def utilisation(self, rows: int, columns: int) -> float:
        """Share of the array's multiplications that are the product's own."""
        return self.macs / (self.cycles(rows, columns) * rows * columns)


def narrow_tensors(operations: Iterable[Operation]) -> Collection[str]:
    """Names of the tensors that only products read."""
    only: dict[str, bool] = {}
    for each in operations:
        for tensor in each.i:
            reads = isinstance(each, Linear | Convolution | Attention)
            only[tensor.name] = only.get(tensor.name, True) and reads
    return {name for name, narrow in only.items() if narrow}


def with_gradients(operations: Sequence[Operation]) -> Collection[str]:
    """Names of the tensors that depend on an adapter; the backward pass needs no others' gradient."""
    return dependent(operations, {w.name for each in operations if isinstance(each, Linear) for w in each.adapter})


def is_known(operation: Operation, known: Collection[str]) -> bool:
    """Whether it multiplies a known input with weights."""
    return isinstance(operation, Linear) and operation.i[0].name in known


def taps_of(each: Linear | Convolution) -> int:
    """Places of a kernel."""
    return prod(each.kernel) if isinstance(each, Convolution) else 1


def forward(operations: Sequence[Operation], batch: int = 1, *, known: Collection[str] = ()) -> Iterator[ShapedProduct]:
    """Products of the forward pass, adapters of linear layers included, in order.

    A convolution is one product of all places of its kernel. Attention counts each head of each sample.

    ``known``: inputs whose products with frozen weights are in memory, at 16 bits. Adapters are added to them.
    """
    narrow = narrow_tensors(operations)
    for each in operations:
        rows, stored = batch * each.o.rows, 1 if each.o.name in narrow else 2
        match each:
            case Linear():
                inside = each.i[0].features
                kept = is_known(each, known)
                if not kept:
                    yield ShapedProduct(each.layer, "base", rows, each.o.features, inside, frozen=True, stored=stored)
                if each.rank:
                    yield ShapedProduct(each.layer, "h", rows, each.rank, inside, stored=1)
                    # Two bytes of what it is added to are read, and the sum stored.
                    moved = 2 + stored if kept else 0
                    yield ShapedProduct(each.layer, "hB", rows, each.o.features, each.rank, stored=moved)
            case Convolution():
                inside = taps_of(each) * each.i[0].features
                yield ShapedProduct(each.layer, "base", rows, each.o.features, inside, frozen=True, stored=stored)
            case Attention():
                q, k = each.i[:2]
                deep, times = q.features // each.heads, batch * each.heads
                yield ShapedProduct(each.o.name, "scores", q.rows, k.rows, deep, times)
                yield ShapedProduct(each.o.name, "mix", q.rows, deep, k.rows, times, stored=stored)


def backward(operations: Sequence[Operation], batch: int = 1) -> Iterator[ShapedProduct]:
    """Products of the backward pass that an adapter needs, in order."""
    needed = with_gradients(operations)
    for each in reversed(operations):
        if each.o.name not in needed:
            continue
        rows, wanted = batch * each.o.rows, each.i[0].name in needed
        match each:
            case Linear():
                inside, outside = each.i[0].features, each.o.features
                if wanted:
                    yield ShapedProduct(each.layer, "dX", rows, inside, outside, frozen=True)
                if each.rank:
                    yield ShapedProduct(each.layer, "P", rows, each.rank, outside, stored=1)
                    if wanted:
                        yield ShapedProduct(each.layer, "PA", rows, inside, each.rank, stored=0)
                    # Turned: the input streams and P is kept, which has the fewer columns.
                    yield ShapedProduct(each.layer, "dA", inside, each.rank, rows)
                    yield ShapedProduct(each.layer, "dB", outside, each.rank, rows)
            case Convolution() if wanted:
                # Of stride 2 too: zeros between the rows are addresses, and no products.
                inside = taps_of(each) * each.i[0].features
                yield ShapedProduct(each.layer, "dX", rows, inside, each.o.features, frozen=True)
            case Attention():
                yield from _attention(each, needed, batch * each.heads)


def _attention(each: Attention, needed: Iterable[str], times: int) -> Iterator[ShapedProduct]:
    q, k, v = each.i[:3]
    deep, name = q.features // each.heads, each.o.name
    if v.name in needed:
        yield ShapedProduct(name, "dV", k.rows, deep, q.rows, times, stored=1)
    if q.name in needed or k.name in needed:
        yield ShapedProduct(name, "dProbabilities", q.rows, k.rows, deep, times)
    if q.name in needed:
        yield ShapedProduct(name, "dQ", q.rows, deep, k.rows, times, stored=1)
    if k.name in needed:
        yield ShapedProduct(name, "dK", k.rows, deep, q.rows, times, stored=1)


def parameters(operations: Iterable[Operation]) -> Mapping[str, int]:
    """Parameters of each frozen weight by name."""
    learnt = {w.name for each in operations if isinstance(each, Linear) for w in each.adapter}
    return {weight.name: weight.size for each in operations for weight in each.weights if weight.name not in learnt}
