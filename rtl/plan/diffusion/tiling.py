"""Jobs that make tensors of tiles of other tensors.

A tensor is a :class:`Value`: it is stored as codes of 8 bits, of 16, or both, as later jobs read it. So a program is
written twice; the first time tells which.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...formats.element import ElementOpcode
from ...formats.norm import NormOpcode
from ...formats.product import ProductOpcode
from ...formats.tile_codes import WIDE
from ...formats.tile_records import tile_argument
from ..program.placed import PlacedProgram
from .jobs import Job, Load, Store
from .layout import Tiled, Tiles
from .slots import Full, Slots

__all__ = ["Block", "Term", "Tiler", "Value"]

#: Slots of biases, of gains, and of results of an engine.
_VECTORS, _RESULTS = 32, 4


@dataclass(eq=False)
class Value(Tiled):
    """``count`` matrices, and where their codes lie by width."""

    number: int
    name: str
    count: int
    rows: int
    features: int
    places: dict[int, Tiles] = field(default_factory=dict)


@dataclass(frozen=True)
class Block:
    """Records that lie in consecutive slots: a tensor, and offsets."""

    tiles: Tiles
    offsets: tuple[int, ...]

    @classmethod
    def of(cls, tiles: Tiles, places: Iterable[tuple[int, ...]]) -> "Block":
        """Tiles ``(row, column)`` or ``(row, column, number)``."""
        return cls(tiles, tuple(tiles.at(*place) for place in places))


@dataclass(frozen=True)
class Term:
    """A PRODUCT: tiles of stream and array, operands but for slots.

    ``x_skip``, ``w_skip``: slots of the block in front of the first.
    """

    x: Block
    w: Block
    operands: dict[str, int]
    x_skip: int = 0
    w_skip: int = 0


class Tiler:
    """Collects jobs and places.

    Parameters
    ----------
    config
        Of the machine.
    needs : dict
        Widths in which a value is read, by its number, as the writing before this one left them.
    """

    def __init__(self, config: Any, needs: dict[int, set[int]]) -> None:
        self.config = config
        self.program = PlacedProgram(config)
        self.jobs: list[Job] = []
        self.needs, self.found = needs, dict[int, set[int]]()
        self.values: list[Value] = []
        self.ports = {
            "product": {"x": config.x_slots, "w": config.w_slots, "bias": _VECTORS},
            "element": dict.fromkeys("abc", config.element_slots),
            "norm": {"a": config.norm_slots, "b": config.norm_slots, "gain": _VECTORS},
        }
        self.slots = {
            (engine, port): Slots(f"{engine}.{port}", count)
            for engine, ports in self.ports.items()
            for port, count in ports.items()
        }
        self.results = dict.fromkeys(self.ports, 0)

    # -- places --------------------------------------------------------------------------------------------------

    def room(self, size: int) -> int:
        """Offset of bytes that the program or the host writes."""
        return self.program.room(-(-size // 4)).offset

    def put(self, content: bytes) -> int:
        """Offset of bytes that are there before."""
        offset = self.room(len(content))
        self.program.arrays.append((offset, content))
        return offset

    def tiles(self, count: int, rows: int, features: int, bits: int) -> Tiles:
        """Place of a tensor of codes."""
        made = Tiles(0, count, rows, features, bits)
        return replace(made, offset=self.room(made.size))

    def value(self, name: str, rows: int, features: int, count: int = 1) -> Value:
        """A tensor that jobs will make, or the host."""
        Tiles.check(name, rows, features)
        made = Value(len(self.values), name, count, rows, features)
        self.values.append(made)
        for bits in sorted(self.needs.get(made.number, ())):
            made.places[bits] = self.tiles(count, rows, features, bits)
        return made

    def read(self, value: Value, bits: int) -> Tiles:
        """Codes of a tensor, in a width that it is stored in from now on."""
        self.found.setdefault(value.number, set()).add(bits)
        if bits not in value.places:
            value.places[bits] = self.tiles(value.count, value.rows, value.features, bits)
        return value.places[bits]

    # -- jobs ----------------------------------------------------------------------------------------------------

    def job(self, engine: str, build: Callable[[Job, int], None], value: Value, *at: tuple[int, ...]) -> None:
        """A job that makes tiles of a tensor.

        ``build`` has the job and its first result slot; the tiles ``at`` are results in this and the following slots.
        """
        first = self.results[engine]
        for again in (False, True):
            job = Job(engine)
            try:
                build(job, first)
                break
            except Full:
                if again:
                    raise ValueError(f"{value.name}: its tiles do not fit the {engine} engine's slots") from None
                for (name, _), slots in self.slots.items():
                    if name == engine:
                        slots.clear()
        for number, place in enumerate(at):
            for bits in sorted(self.needs.get(value.number, ())):
                tiles = value.places[bits]
                slot = (first + number) % _RESULTS
                arg = tile_argument(slot, *value.tile, wide=bits == WIDE)
                job.stores.append(Store("o", tiles.at(*place), tiles.record.size, arg, slot))
        self.results[engine] = (first + len(at)) % _RESULTS
        self.jobs.append(job)

    def hold(self, job: Job, port: str, block: Block) -> int:
        """First slot of a block, which is loaded unless it is there."""
        slots = self.slots[job.engine, port]
        pinned = {slot for name, slot in job.uses if name == port}
        first = slots.find(block.offsets)
        if first is None:
            first = slots.take(block.offsets, pinned)
            rows, features = block.tiles.record.rows, block.tiles.record.features
            for begin, count in _runs(block):
                offset, size = block.offsets[begin], block.tiles.record.size * count
                taken = tuple(range(first + begin, first + begin + count))
                job.loads.append(Load(port, offset, size, tile_argument(taken[0], rows, features), taken))
        job.uses |= {(port, first + n) for n in range(len(block.offsets))}
        return first

    # -- engine product ------------------------------------------------------------------------------------------

    def product(
        self,
        value: Value,
        at: tuple[int, ...],
        terms: Sequence[Term],
        *,
        bias: Block | None = None,
        apart: bool = False,
    ) -> None:
        """A tile of sums of products.

        ``apart``: each term makes rows and columns of its own.
        """
        rows, columns = value.tile
        whole = {"rows": rows - 1, "columns": columns - 1}

        def build(job: Job, slot: int) -> None:
            held = [
                whole
                | {
                    "x": self.hold(job, "x", term.x) + term.x_skip,
                    "w": self.hold(job, "w", term.w) + term.w_skip,
                    "x_step": 1,
                    "w_step": 1,
                    "o": slot,
                }
                | term.operands
                for term in terms
            ]
            if len(held) == 1 and bias is None:
                job.commands.append((ProductOpcode.PRODUCT, held[0] | {"fresh": 1, "start": 1, "last": 1}))
                return
            job.commands += [(ProductOpcode.SCAN, each | {"fresh": int(n == 0)}) for n, each in enumerate(held)]
            if bias is not None:
                own = whole | {"bias": self.hold(job, "bias", bias), "o": slot}
                job.commands.append((ProductOpcode.SCAN, own | {"last": 1}))
                job.commands.append((ProductOpcode.BIAS, own | {"start": 1}))
            for n, each in enumerate(held):
                start, last = apart or (n == 0 and bias is None), apart or n == len(held) - 1
                job.commands.append((ProductOpcode.PRODUCT, each | {"start": int(start), "last": int(last)}))

        self.job("product", build, value, at)

    # -- engine element ------------------------------------------------------------------------------------------

    def element(
        self,
        value: Value,
        at: tuple[int, ...],
        opcode: ElementOpcode,
        blocks: dict[str, Block],
        parts: Sequence[dict[str, int]] = ({},),
    ) -> None:
        """A tile of an operation, in one command or several of some rows each."""
        rows, features = value.tile

        def build(job: Job, slot: int) -> None:
            held = {port: self.hold(job, port, block) for port, block in blocks.items()}
            for n, part in enumerate(parts):
                given = {"rows": rows - 1, "features": features - 1, "o": slot, "fresh": int(n == 0)} | held | part
                job.commands.append((opcode, given))

        self.job("element", build, value, at)

    # -- engine norm ---------------------------------------------------------------------------------------------

    def norm(
        self,
        value: Value,
        at: Sequence[tuple[int, ...]],
        blocks: dict[str, Block],
        commands: Callable[[dict[str, int], int], Iterable[tuple[NormOpcode, dict[str, int]]]],
    ) -> None:
        """Tiles of an operation of the norm engine.

        ``blocks``: by port; ``bias`` lies in port gain, ``x`` in port a. ``commands``: from slots by their names, and
        the first result slot.
        """

        def build(job: Job, slot: int) -> None:
            ports = {"bias": "gain", "x": "a"}
            held = {name: self.hold(job, ports.get(name, name), block) for name, block in blocks.items()}
            job.commands += commands(held, slot)

        self.job("norm", build, value, *at)


def _runs(block: Block) -> list[tuple[int, int]]:
    """Parts of a block that lie side by side in memory."""
    runs: list[tuple[int, int]] = []
    size = block.tiles.record.size
    for n, offset in enumerate(block.offsets):
        if runs and offset == block.offsets[n - 1] + size:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((n, 1))
    return runs
