"""Cycles of a diffusion model's products by dataflow of the array.

Five dataflows on one array of ``rows`` by ``columns`` multipliers, over the products of layers with adapters:

- *weight-stationary* and *output-stationary* with exposed loads and drains, and the better of both for each product;
- loads under compute, every product on the array;
- loads under compute, and adapters that ride along: their thin products are made beside those of the base.

Memories answer at once, except that the last one counts bytes at its ports.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from gradloom.compiler.estimate.products import BLOCK, ShapedProduct

__all__ = [
    "DATAFLOWS",
    "DataflowArray",
    "Riding",
    "exposed_blocks",
    "exposed_output",
    "exposed_weight",
    "hybrid",
    "of_prompt",
    "output_without_drain",
    "riding",
]

#: A layer's products forward and backward.
_FORWARD, _BACKWARD = ("base", "h", "hB"), ("dX", "P", "PA", "dA", "dB")


@dataclass(frozen=True, kw_only=True)
class DataflowArray:
    """An array, its shadow columns and its drain.

    A multiplier makes a product a cycle.

    Parameters
    ----------
    rows, columns : int
        Of the array.
    rank : int
        Of the adapters.
    outputs : int
        Results a cycle at the drain, which has ``rank`` multipliers for each.
    shadow : int
        Columns beside the array, for products with A and with B transposed.
    tokens : int
        Rows of the stream that share a load of all weights.
    port_bytes : int
        Bytes a cycle at the ports to memory.
    """

    rows: int = 64
    columns: int = 32
    rank: int = 8
    outputs: int = 16
    shadow: int = 1
    tokens: int = 256
    port_bytes: int = 32

    @property
    def load(self) -> int:
        """Cycles of the load of a tile: two columns a cycle."""
        return -(-self.columns // 2)

    @property
    def multipliers(self) -> int:
        """Of the array, of its shadow columns and of the drain."""
        return self.rows * (self.columns + self.shadow) + self.outputs * self.rank

    @property
    def fill(self) -> int:
        """Cycles from a product's first load to its first sum at the last foot."""
        return self.load + self.rows + self.columns - 2


def exposed_weight(product: ShapedProduct, array: DataflowArray) -> int:
    """Weight-stationary: load, stream, drain, a tile behind another.

    SCALE-Sim's law.
    """
    tiles = -(-product.k // array.rows) * -(-product.n // array.columns)
    return product.times * (tiles * (2 * array.rows + array.columns + product.m - 2) - 1)


def exposed_blocks(product: ShapedProduct, array: DataflowArray) -> int:
    """The same where a command has no more than a block of rows.

    This is the product engine with the operand ``exposed``.
    """
    whole, rest = divmod(product.m, BLOCK)
    total = whole * exposed_weight(replace(product, m=BLOCK), array)
    return total + (exposed_weight(replace(product, m=rest), array) if rest else 0)


def output_without_drain(product: ShapedProduct, array: DataflowArray) -> int:
    """Output-stationary by SCALE-Sim's law: sums leave in no time."""
    tiles = -(-product.m // array.rows) * -(-product.n // array.columns)
    return product.times * (tiles * (array.rows + array.columns + product.k - 2) - 1)


def exposed_output(product: ShapedProduct, array: DataflowArray) -> int:
    """Output-stationary: sums leave down the columns, a row a cycle."""
    tiles = -(-product.m // array.rows) * -(-product.n // array.columns)
    return output_without_drain(product, array) + product.times * tiles * array.rows


def hybrid(product: ShapedProduct, array: DataflowArray) -> int:
    """The better of both exposed dataflows."""
    return min(exposed_weight(product, array), exposed_output(product, array))


def _hidden(product: ShapedProduct, array: DataflowArray) -> int:
    return product.cycles(array.rows, array.columns)


#: Dataflows that make every product on the array, by name.
DATAFLOWS: Mapping[str, Callable[[ShapedProduct, DataflowArray], int]] = {
    "exposed WS": exposed_weight,
    "exposed OS": exposed_output,
    "exposed hybrid": hybrid,
    "exposed WS, 64 rows a load": exposed_blocks,
    "SCALE-Sim's OS, no drain": output_without_drain,
    "loads hidden": _hidden,
}


@dataclass(frozen=True)
class Riding:
    """Products with adapters that ride along.

    ``macs``: multiplications; ``cycles``: with waits for memory; ``array``: cycles without them; ``bytes``: at the
    ports.
    """

    macs: int
    cycles: int
    array: int
    bytes: int

    def utilisation(self, array: DataflowArray) -> float:
        """Share of all multipliers' cycles that are multiplications."""
        return self.macs / (self.cycles * array.multipliers)


def riding(products: Iterable[ShapedProduct], array: DataflowArray) -> Riding:
    """All layers' products, adapters beside the base's.

    A layer without its product with the base has that product's result in memory.
    """
    layers: dict[str, dict[str, ShapedProduct]] = {}
    for each in products:
        layers.setdefault(each.layer, {})[each.part] = each
    macs = cycles = busy = moved = 0
    for parts in layers.values():
        for names in (_FORWARD, _BACKWARD):
            mine = {name: parts[name] for name in names if name in parts}
            if not mine:
                continue
            of_array = _cycles(mine, array)
            of_ports = _bytes(mine, array)
            macs += sum(each.macs for each in mine.values())
            busy += of_array
            moved += of_ports
            cycles += max(of_array, -(-of_ports // array.port_bytes))
    return Riding(macs, cycles, busy, moved)


def _cycles(parts: Mapping[str, ShapedProduct], array: DataflowArray) -> int:
    """Cycles of a layer's products of one direction, loads hidden.

    The next layer waits for the results, so filling the array and draining the last sums count once.
    """
    total = array.fill
    for main, thin, back in (("base", "h", "hB"), ("dX", "P", "PA")):
        if main in parts:
            total += _with_adapter(parts[main], thin in parts, array)
            total += -(-array.columns // array.outputs) * min(parts[main].m, array.rows)
        else:
            total += sum(_streamed(parts[alone], array) for alone in (thin, back) if alone in parts)
    for name in ("dA", "dB"):
        if name in parts:
            total += _in_panels(parts[name].k, parts[name].m, array)
    return total


def _streamed(product: ShapedProduct, array: DataflowArray) -> int:
    tiles = -(-product.k // array.rows) * -(-product.n // array.columns)
    return tiles * max(product.m, array.load)


def _with_adapter(product: ShapedProduct, adapted: bool, array: DataflowArray) -> int:
    """A product with the base; the adapter's beside it.

    A rank index takes a shadow column for the time of one column of tiles. Indices beyond them are a product of their
    own. A tile of results is drained while the next is made.
    """
    inner = -(-product.k // array.rows)
    columns = -(-product.n // array.columns)
    total = _streamed(product, array)
    if adapted:
        total += max(0, -(-array.rank // array.shadow) - columns) * inner * max(product.m, array.load)
    return max(total, columns * -(-array.columns // array.outputs) * product.m)


def _in_panels(tokens: int, features: int, array: DataflowArray) -> int:
    """A gradient of an adapter: tokens along the rows.

    The array is panels of ``rank`` columns; each has the same stationary operand and a share of the features.
    """
    panels = array.columns // array.rank
    return -(-tokens // array.rows) * max(-(-features // panels), array.load)


def _bytes(parts: Mapping[str, ShapedProduct], array: DataflowArray) -> int:
    """Bytes of a layer's products of one direction.

    Codes of a byte; a prompt is resident, and so are adapters' words and what one direction has read. Weights come
    again for each part of the stream. Where a result is added to others it has two bytes, and so has a known product
    that adapters are added to.
    """
    total = 0
    for name in ("base", "dX"):
        if name in parts:
            each = parts[name]
            weights = (-(-each.m // array.tokens)) * each.k * each.n
            total += weights + (_WIDE[name](each.layer) + 1) * each.m * each.n
    if "base" in parts and not of_prompt(parts["base"].layer):
        total += parts["base"].m * parts["base"].k
    if "hB" in parts and "base" not in parts:
        total += 3 * parts["hB"].m * parts["hB"].n
    if "dB" in parts:
        # The gradient of the results, and the forward pass's input again.
        total += parts["dB"].m * parts["dB"].k
        total += 0 if of_prompt(parts["dA"].layer) else parts["dA"].m * parts["dA"].k
    return total


def of_prompt(layer: str) -> bool:
    """Whether a layer multiplies the prompt."""
    return layer.endswith(("attn2.to_k", "attn2.to_v"))


#: Results that are added to others: forward those of the last projection, backward those of the query.
_WIDE: Mapping[str, Callable[[str], bool]] = {
    "base": lambda layer: layer.endswith("to_out.0"),
    "dX": lambda layer: layer.endswith("to_q"),
}
