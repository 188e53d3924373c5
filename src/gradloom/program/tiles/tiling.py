"""Jobs that make tensors of tiles of other tensors.

A tensor is a :class:`DraftValue`: it is stored as codes of 8 bits, of 16, or both, as other jobs read it. So jobs are
collected first. When all are known they are put in order, and only then get slots and LOADs.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from gradloom.program.memory import AreaKind
from gradloom.program.placed import PlacedProgram
from gradloom.rtl.formats.tiles.codes import NARROW, REST, WIDE
from gradloom.rtl.formats.tiles.element import ElementOpcode
from gradloom.rtl.formats.tiles.norm import NormOpcode
from gradloom.rtl.formats.tiles.product import ProductOpcode, ScanOperands
from gradloom.rtl.formats.tiles.records import BEAT, tile_argument

from .drafts import RESULTS, Block, Build, Draft, DraftValue, Hold, Sketch, Term
from .jobs import LoadJob, StoreJob, TileJob, write
from .layout import Tiles, TilesBeside
from .order import ordered
from .placement import Placement

__all__ = ["Tiler"]

#: Slots of biases, and of gains.
_VECTORS = 32
#: Operands that say which part of a tile a product makes.
_PART = ("o_row", "rows", "o_column", "columns")
_SCANNED = frozenset(ScanOperands.members)


class Tiler:
    """Collects jobs and places, and writes the program.

    ``config``: of the machine. ``first``: offset of the first place.
    """

    def __init__(self, config: Any, first: int = 0) -> None:
        self.config = config
        self.program = PlacedProgram(config, first)
        self.drafts: list[Draft] = []
        self.values: list[DraftValue] = []
        #: Records that the host reads.
        self.shown: set[int] = set()
        self.ports = {
            "product": {"x": config.x_slots, "w": config.w_slots, "bias": _VECTORS},
            "element": dict.fromkeys("abc", config.element_slots),
            "norm": {"a": config.norm_slots, "b": config.norm_slots, "gain": _VECTORS},
        }

    # -- places --------------------------------------------------------------------------------------------------

    def room(self, size: int, kind: AreaKind = AreaKind.STEP) -> int:
        """Offset of bytes that the program or the host writes."""
        return self.program.room(-(-size // 4), kind=kind).offset

    def put(self, size: int, content: Callable[[], bytes]) -> int:
        """Offset of bytes that are there before."""
        offset = self.room(size, AreaKind.FROZEN)
        self.program.arrays.append((offset, content()))
        return offset

    def tiles(self, count: int, rows: int, features: int, bits: int, kind: AreaKind = AreaKind.STEP) -> Tiles:
        """Place of a tensor of codes."""
        made = Tiles(0, count, rows, features, bits)
        return replace(made, offset=self.room(made.size, kind))

    def value(self, name: str, rows: int, features: int, count: int = 1) -> DraftValue:
        """A tensor that jobs will make, or the host."""
        made = DraftValue(name, count, rows, features)
        self.values.append(made)
        return made

    def read(self, value: DraftValue, bits: int) -> Tiles:
        """Codes of a tensor, in a width that it is stored in from now on; :data:`REST` is one."""
        own = NARROW if bits == REST else bits
        if value.columns:
            columns = tuple((self.read(other, bits), column) for other, column in value.columns)
            return TilesBeside(0, value.count, value.rows, value.features, own, columns)
        if bits not in value.places:
            value.places[bits] = self.tiles(value.count, value.rows, value.features, own)
        return value.places[bits]

    def show(self, tiles: Tiles) -> None:
        """The host reads a tensor."""
        self.shown.update(tiles.at(*place) for place in tiles.places())

    # -- jobs ----------------------------------------------------------------------------------------------------

    def add(self, engine: str, build: Build, results: int = 1, row: int | None = None) -> None:
        """A job; ``results``: slots of them; ``row``: see :class:`~.drafts.Draft`."""
        self.drafts.append(Draft(engine, build, results, row))

    def joined(self, first: int) -> None:
        """Jobs from number ``first`` on follow one another at once: their engine keeps something for the next."""
        head, *rest = self.drafts[first:]
        self.drafts[first:] = [replace(head, then=tuple(rest))]

    def by_rows(self, first: int) -> None:
        """Jobs from number ``first`` on are row of tiles after row of tiles, so that slots hold what a row needs again.

        None of them may need what one of another row makes.
        """
        self.drafts[first:] = sorted(self.drafts[first:], key=lambda each: each.last_row)

    def _job(self, engine: str, build: Build, value: DraftValue, at: Sequence[tuple[int, ...]]) -> None:
        """A job that makes the tiles ``at`` of a tensor, a result slot each."""

        def stored(job: TileJob, first: int, hold: Hold) -> None:
            build(job, first, hold)
            for number, place in enumerate(at):
                slot = (first + number) % RESULTS
                for bits, tiles in sorted(value.places.items()):
                    record = tiles.record(*place[:2])
                    sort = {"wide": bits == WIDE, "rest": bits == REST}
                    arg = tile_argument(slot, record.rows, record.features, **sort)
                    job.stores.append(StoreJob("o", tiles.at(*place), record.size, arg, slot))

        self.add(engine, stored, len(at), at[0][0] if at else None)

    def ends(self) -> bool:
        """An operation ends; whether its jobs and those before are a program by themselves."""
        return False

    def write(self) -> list[TileJob]:
        """The program of all jobs, which are returned in its order."""
        return self.written(self.sketches(), self.program)

    def sketches(self) -> list[Sketch]:
        """All jobs that make something that is read."""
        return [each for each in map(Sketch.of, self.drafts) if any(each.jobs())]

    def written(self, sketches: Sequence[Sketch], program: PlacedProgram) -> list[TileJob]:
        """Jobs in their order, as a program."""
        # Not all slots: blocks that are held do not fit without gaps.
        room: dict[str, dict[str, int]] = {"update": {}}
        for engine, ports in self.ports.items():
            room[engine] = {port: count * 3 // 4 for port, count in ports.items()}
        order = ordered([each.task(self.config) for each in sketches], RESULTS, room)
        placed = [each for number in order for each in sketches[number].jobs()]
        jobs = Placement(self.config, self.ports, placed).jobs(self.shown)
        write(program, jobs)
        program.end()
        return jobs

    # -- engine product ------------------------------------------------------------------------------------------

    def product(
        self,
        value: DraftValue,
        at: tuple[int, ...],
        terms: Sequence[Term],
        *,
        bias: Block | None = None,
        apart: bool = False,
        positive: bool = False,
    ) -> None:
        """A tile of sums of products.

        ``apart``: terms of the same rows and columns make a part of the tile. ``positive``: sums below 0 become 0.
        """
        rows, columns = value.part(*at[:2])
        whole = {"rows": rows - 1, "columns": columns - 1}
        ends = {"last": 1, "positive": 1} if positive else {"last": 1}

        def build(job: TileJob, slot: int, hold: Hold) -> None:
            held = [
                whole
                | {
                    "x": hold(job, "x", term.x) + term.x_skip,
                    "w": hold(job, "w", term.w) + term.w_skip,
                    "x_step": 1,
                    "w_step": 1,
                    "o": slot,
                }
                | term.operands
                for term in terms
            ]
            if len(held) == 1 and bias is None and not terms[0].scan and terms[0].ends is None:
                job.commands.append((ProductOpcode.PRODUCT, held[0] | ends | {"fresh": 1, "start": 1}))
                return
            seen: list[dict[str, int]] = []
            for term, each in zip(terms, held):
                read = {name: value for name, value in each.items() if name in _SCANNED} | term.scan
                if term.ends is None or read not in seen:
                    job.commands.append((ProductOpcode.SCAN, read | {"fresh": int(not seen)}))
                    seen.append(read)
            if bias is not None:
                own = {"bias": hold(job, "bias", bias), "o": slot}
                job.commands.append((ProductOpcode.SCAN, own | {"last": 1, "fresh": int(not held)}))
                job.commands.append((ProductOpcode.BIAS, whole | own | {"start": 1} | ({} if held else ends)))
            parts = [tuple(each.get(name, 0) for name in _PART) if apart else () for each in held]
            for n, (term, each) in enumerate(zip(terms, held)):
                start, last = term.ends or (parts[n] not in parts[:n] and bias is None, parts[n] not in parts[n + 1 :])
                job.commands.append((ProductOpcode.PRODUCT, each | {"start": int(start)} | (ends if last else {})))

        self._job("product", build, value, [at])

    # -- engine element ------------------------------------------------------------------------------------------

    def element(
        self,
        value: DraftValue,
        at: tuple[int, ...],
        opcode: ElementOpcode,
        blocks: dict[str, Block],
        parts: Sequence[dict[str, int]] = ({},),
        *,
        tables: Sequence[int] = (),
    ) -> None:
        """A tile of an operation, in one command or several of some rows each.

        ``b_skip`` in a part: records of block b in front of its own. ``tables``: tables that it looks up.
        """
        rows, features = value.part(*at[:2])

        def build(job: TileJob, slot: int, hold: Hold) -> None:
            job.tables = tables
            held = {port: hold(job, port, block) for port, block in blocks.items()}
            for n, part in enumerate(parts):
                given = {"rows": rows - 1, "features": features - 1, "o": slot, "fresh": int(n == 0)} | held | part
                skip = given.pop("b_skip", 0)
                job.commands.append((opcode, given | {"b": given["b"] + skip} if skip else given))

        self._job("element", build, value, [at])

    def table(self, number: int, content: bytes) -> None:
        """Writes a table, of which ``content`` has the pieces."""
        load = LoadJob("words", self.put(len(content), lambda: content), len(content))

        def build(job: TileJob, slot: int, hold: Hold) -> None:
            job.streams, job.waits, job.table = True, False, number
            job.loads = [load]
            job.commands = [(ElementOpcode.TABLE, {"table": number, "rows": len(content) // BEAT - 1})]

        self.add("element", build, results=0)

    # -- engine norm ---------------------------------------------------------------------------------------------

    def norm(
        self,
        value: DraftValue,
        at: Sequence[tuple[int, ...]],
        blocks: dict[str, Block],
        commands: Callable[[dict[str, int], int], Iterable[tuple[NormOpcode, dict[str, int]]]],
    ) -> None:
        """Tiles of an operation of the norm engine.

        ``blocks``: by port; ``bias`` lies in port gain. ``commands``: from slots by their names, and
        the first result slot.
        """

        def build(job: TileJob, slot: int, hold: Hold) -> None:
            ports = {"bias": "gain"}
            held = {name: hold(job, ports.get(name, name), block) for name, block in blocks.items()}
            job.commands += commands(held, slot)

        self._job("norm", build, value, at)
