"""Slots of jobs whose order is known: LOADs of records, or forwards.

A record that is stored for a job soon after it is forwarded to a slot of this job's engine. The slot is kept until the
job has read it. Where nothing else reads the record, it does not go to memory.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradloom.rtl.formats.tiles.codes import NARROW
from gradloom.rtl.formats.tiles.records import TileRecord, tile_argument
from gradloom.rtl.shell.engines import LoadPort

from .drafts import RESULTS, Block, Sketch
from .jobs import LoadJob, StoreJob, TileJob
from .slots import Full, Slots

__all__ = ["Placement"]

Port = tuple[str, str]


@dataclass(frozen=True)
class _Reader:
    """A job that reads a record in a block.

    ``turn``: its number in its engine.
    """

    place: int
    turn: int
    port: Port
    block: Block


class Placement:
    """Gives slots to jobs, one after the other.

    Parameters
    ----------
    config
        Of the machine.
    ports : mapping
        Slots of ports by engine and name.
    sketches : sequence of Sketch
        In the order of the jobs.
    """

    def __init__(self, config: Any, ports: Mapping[str, Mapping[str, int]], sketches: Sequence[Sketch]) -> None:
        self.sketches = sketches
        self.takers = _takers(config) if config.forwards else set()
        self.turns: Counter[str] = Counter()
        #: Those that read a record, the next one first.
        self.readers: dict[int, deque[_Reader]] = defaultdict(deque)
        uses: dict[Port, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        beats: dict[int, int] = {}
        for place, each in enumerate(sketches):
            engine = each.draft.engine
            for name, block in each.blocks:
                reader = _Reader(place, self.turns[engine], (engine, name), block)
                for offset, record in zip(block.offsets, block.records):
                    uses[reader.port][offset].append(reader.turn)
                    self.readers[offset].append(reader)
                    beats[offset] = record.beats
            self.turns[engine] += 1
        self.slots = {
            (engine, name): Slots(f"{engine}.{name}", count, uses[engine, name], beats)
            for engine, names in ports.items()
            for name, count in names.items()
        }
        self.turns.clear()
        self.results: Counter[str] = Counter()

    def jobs(self, shown: Collection[int]) -> list[TileJob]:
        """All jobs; records ``shown`` go to memory in any case."""
        made = []
        for place, each in enumerate(self.sketches):
            made.append(self._placed(each))
            # The one that is read first is stored first.
            made[-1].stores.sort(key=lambda store: self._next(place, store))
            for store in made[-1].stores:
                self._forward(store)
        loaded = {offset for job in made for load in job.loads for offset in load.records}
        for job in made:
            for store in job.stores:
                store.only = store.to is not None and store.offset not in loaded and store.offset not in shown
        return made

    def _placed(self, sketch: Sketch) -> TileJob:
        """The job, with slots."""
        engine = sketch.draft.engine
        own = {name: slots for (of, name), slots in self.slots.items() if of == engine}
        try:
            job = self._built(sketch)
        except Full:
            # What is there lies between the blocks of this job.
            for slots in own.values():
                slots.clear()
            try:
                job = self._built(sketch)
            except Full:
                most = {name: slots.count for name, slots in own.items()}
                raise ValueError(
                    f"a job of {engine} needs more tiles at once than its slots {most} have; take more slots, or a "
                    "smaller batch"
                ) from None
        for name, slot in job.uses:
            own[name].read((slot,), self.turns[engine])
        self.results[engine] = (self.results[engine] + sketch.draft.results) % RESULTS
        self.turns[engine] += 1
        return job

    def _built(self, sketch: Sketch) -> TileJob:
        job, blocks = TileJob(sketch.draft.engine, keeps=sketch.job.keeps), dict[tuple[str, tuple[int, ...]], int]()

        def hold(job: TileJob, name: str, block: Block) -> int:
            """First slot of a block; what is not there is loaded."""
            at = name, block.offsets
            if at not in blocks:
                blocks[at] = self._hold(job, name, block)
            return blocks[at]

        sketch.draft.build(job, self.results[job.engine], hold)
        return job

    def _hold(self, job: TileJob, name: str, block: Block) -> int:
        pinned = {slot for other, slot in job.uses if other == name}
        first, missing = self.slots[job.engine, name].take(block.offsets, pinned, self.turns[job.engine])
        # One by one: each waits for its own slot alone.
        for number in missing:
            record, slot = block.records[number], first + number
            arg = _argument(slot, record, job.engine)
            job.loads.append(LoadJob(name, block.offsets[number], record.size, arg, (slot,)))
        job.uses |= {(name, first + n) for n in range(len(block.offsets))}
        return first

    def _next(self, place: int, store: StoreJob) -> int:
        """The job that reads a record next."""
        readers = self.readers[store.offset]
        while readers and readers[0].place <= place:
            readers.popleft()
        return readers[0].place if readers else len(self.sketches)

    def _forward(self, store: StoreJob) -> None:
        """Sends a record to the slot of the job that reads it next."""
        readers = self.readers[store.offset]
        if not readers or readers[0].port not in self.takers:
            return
        reader = readers[0]
        block, turn = reader.block, self.turns[reader.port[0]]
        slot = self.slots[reader.port].forward(store, block.offsets, turn, reader.turn)
        if slot is not None:
            record = block.records[block.offsets.index(store.offset)]
            store.to, store.to_arg = reader.port, _argument(slot, record, reader.port[0])


def _argument(slot: int, record: TileRecord, engine: str) -> int:
    """``arg`` of a LOAD; but for products, engines take codes of 8 bits besides those of 16."""
    return tile_argument(slot, record.rows, record.features, short=record.bits == NARROW and engine != "product")


def _takers(config: Any) -> set[Port]:
    """Ports that take forwards."""
    loads = config.machine.engines.loads
    return {(each.engine, each.port.name) for each in loads if isinstance(each.port, LoadPort) and each.port.forwards}
