"""Jobs of engines: loads, commands, stores and the tokens of them.

A job's commands use records in slots of load ports, and its results leave from result slots. LOAD, the engines and
STORE do their parts of jobs in the order of :mod:`.pace`. They wait for one another only where they must:

- an engine for the LOADs of the job, for the STORE that forwards a record to it, and for the STORE of the job whose
  result slot it takes;
- STORE for the engine's commands of the job, for commands that read the slot that it fills, and for those that read
  what it overwrites in memory;
- LOAD for the STORE of a record that it reads, and for commands that read the slot that it fills.

A later wait in one queue for an earlier post in another covers all posts before it, so a token is posted only where a
wait needs it.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from gradloom.program.placed import Place, PlacedProgram
from gradloom.rtl.formats.tiles.records import BEAT, TileArgument

from .pace import PacedCommand, cycles, paced, stored

__all__ = ["TileJob", "LoadJob", "StoreJob", "Token", "write"]


#: Tokens of a kind that may be there untaken, of the 255 that a counter holds: queues run ahead. More are posted by
#: fewer commands, of up to so many one.
_UNTAKEN, _COARSEST = 128, 64


class Token(IntEnum):
    """Tokens of the program. The first word of a name posts, the last waits."""

    LOAD_PRODUCT = 0
    LOAD_ELEMENT = 1
    LOAD_NORM = 2
    PRODUCT_STORE = 3
    ELEMENT_STORE = 4
    NORM_STORE = 5
    PRODUCT_LOAD = 6
    ELEMENT_LOAD = 7
    NORM_LOAD = 8
    STORE_PRODUCT = 9
    STORE_ELEMENT = 10
    STORE_NORM = 11
    STORE_LOAD = 12


@dataclass(frozen=True)
class LoadJob:
    """``size`` bytes from ``offset`` on to a port.

    ``slots`` are filled, with a record each. ``after``: first bytes of the STOREs that it reads, where it has no slots.
    """

    port: str
    offset: int
    size: int
    arg: int = 0
    slots: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    @property
    def records(self) -> tuple[int, ...]:
        """Where what it reads may have been stored."""
        if not self.slots:
            return self.after
        return tuple(range(self.offset, self.offset + self.size, self.size // len(self.slots)))


@dataclass(eq=False)
class StoreJob:
    """Bytes from a port to ``offset``; ``slot`` is the result slot.

    ``to``: engine and load port that take the record, with ``to_arg``; with ``only`` memory does not.
    """

    port: str
    offset: int
    size: int
    arg: int = 0
    slot: int = 0
    to: tuple[str, str] | None = None
    to_arg: int = 0
    only: bool = False


@dataclass
class TileJob:
    """Work of one engine.

    ``uses``: ports and slots that its commands read. ``streams``: its load ports have no slots, its commands take from
    them while LOADs go on. ``waits``: its STOREs wait for its commands. ``chained``: its engine keeps something for the
    next such job, so they stay in order. ``keeps``: the same for its next job, none gets between. ``tables``: tables
    that its commands look up; ``table``: the one that it writes, behind which those jobs stay.
    """

    engine: str
    loads: list[LoadJob] = field(default_factory=list)
    commands: list[tuple[int, dict[str, int]]] = field(default_factory=list)
    stores: list[StoreJob] = field(default_factory=list)
    uses: set[tuple[str, int]] = field(default_factory=set)
    streams: bool = False
    waits: bool = True
    chained: bool = False
    keeps: bool = False
    tables: Sequence[int] = ()
    table: int | None = None


def write(program: PlacedProgram, jobs: Sequence[TileJob]) -> None:
    """Commands of jobs with their tokens."""
    commands = paced(_linked(program, jobs))
    waits, posts = _tokens(commands)
    for each in commands:
        each.add(waits[each], posts[each])


def _linked(program: PlacedProgram, jobs: Sequence[TileJob]) -> list[PacedCommand]:
    """Commands in the order of the jobs, and what each must wait for."""
    made: list[PacedCommand] = []
    #: What wrote and read a record; what fills a slot, and has read it; what has emptied one of results.
    written: dict[int, PacedCommand] = {}
    read: dict[int, list[PacedCommand]] = defaultdict(list)
    filled: dict[tuple[str, str, int], PacedCommand] = {}
    used: dict[tuple[str, str, int], list[PacedCommand]] = defaultdict(list)
    left: dict[tuple[str, int], list[PacedCommand]] = defaultdict(list)
    tables: dict[int, PacedCommand] = {}
    turns: dict[str, _Turns] = defaultdict(_Turns)
    for job in jobs:
        loads = [_load(program, job.engine, each) for each in job.loads]
        commands = [_command(program, job.engine, *each) for each in job.commands]
        stores = [_store(program, job.engine, each) for each in job.stores]
        last, commands[0].then = commands[-1], commands[1:]
        joined = job.keeps or turns[job.engine].keeps
        commands[0].after += turns[job.engine].take(last, keeps=job.keeps)
        for each in (*loads, *stores):
            each.joined = joined
        commands[0].after += [tables[table] for table in job.tables]
        if job.table is not None:
            tables[job.table] = last
        for load, command in zip(job.loads, loads):
            command.after += [written[at] for at in load.records if at in written]
            for at in ((job.engine, load.port, slot) for slot in load.slots):
                command.after += used.pop(at, [])
                filled[at] = command
        if job.streams:
            # No token: LOAD holds the bus until commands take its beats, and STORE their results. No command comes from
            # memory meanwhile, so these stand in front.
            commands[0].beside = loads if job.waits else [*stores, *loads]
        else:
            for at in ((job.engine, port, slot) for port, slot in job.uses):
                commands[0].after.append(filled[at])
                used[at].append(last)
            for offset in (offset for load in job.loads for offset in load.records):
                read[offset].append(last)
        if job.waits:
            for slot in {store.slot for store in job.stores}:
                commands[0].after += left.pop((job.engine, slot), [])
        for store, command in zip(job.stores, stores):
            if job.waits:
                command.after += [last, *read.pop(store.offset, [])]
                left[job.engine, store.slot].append(command)
            if store.to is not None:
                taken = (*store.to, int(TileArgument.from_bits(store.to_arg).slot))
                command.after += used.pop(taken, [])
                filled[taken] = command
            written[store.offset] = command
        made += [*loads, *commands, *stores]
    return made


class _Turns:
    """Jobs of an engine that may change places, but none gets between two of which one keeps something for the next."""

    def __init__(self) -> None:
        self.keeps = False
        self.fixed: list[PacedCommand] = []
        self.free: list[PacedCommand] = []

    def take(self, last: PacedCommand, *, keeps: bool) -> list[PacedCommand]:
        """What a job comes after; ``last``: its last command."""
        before = self.fixed
        if keeps or self.keeps:
            before, self.fixed, self.free = self.fixed + self.free, [last], []
        else:
            self.free.append(last)
        self.keeps = keeps
        return before


Tokens = dict[PacedCommand, list[Token]]


def _tokens(commands: Sequence[PacedCommand]) -> tuple[Tokens, Tokens]:
    """What commands wait for, and what they post."""
    spans = dict.fromkeys(Token, 1)
    while True:
        waits, posts = _paired(commands, spans)
        most = _untaken(commands, waits, posts)
        beyond = [token for token, span in spans.items() if span < _COARSEST and most[token] > _UNTAKEN]
        if not beyond:
            return waits, posts
        # Only of that kind: where others are coarse, queues wait for one another that need not.
        spans |= {token: 2 * spans[token] for token in beyond}


def _untaken(commands: Sequence[PacedCommand], waits: Tokens, posts: Tokens) -> Counter[Token]:
    """The most tokens of each kind that commands have posted, and those behind them take."""
    held, most = Counter[Token](), Counter[Token]()
    for each in commands:
        held.subtract(waits[each])
        for token in posts[each]:
            held[token] += 1
            most[token] = max(most[token], held[token])
    return most


def _paired(commands: Sequence[PacedCommand], spans: Mapping[Token, int]) -> tuple[Tokens, Tokens]:
    """Tokens by kind where only one of ``spans`` commands of a queue posts, if it stands in front of what waits."""
    place = {each: n for n, each in enumerate(commands)}
    queues: dict[str, list[PacedCommand]] = defaultdict(list)
    turn, streaming = {}, {other for each in commands for other in each.beside}
    for each in commands:
        turn[each] = len(queues[each.queue])
        queues[each.queue].append(each)

    def posting(other: PacedCommand, each: PacedCommand, span: int) -> PacedCommand:
        mine, found = queues[other.queue], other
        for later in mine[turn[other] + 1 : turn[other] // span * span + span]:
            # A STORE that streams stands in front of the command that gives its beats.
            if place[later] > place[each] or later in streaming:
                break
            found = later
        return found

    waits: dict[PacedCommand, list[Token]] = {each: [] for each in commands}
    posts: dict[PacedCommand, list[Token]] = {each: [] for each in commands}
    covered: dict[Token, int] = {}
    for each in commands:
        last: dict[str, PacedCommand] = {}
        for other in each.after:
            # A queue's own commands are in order.
            if other.queue != each.queue and (other.queue not in last or place[last[other.queue]] < place[other]):
                last[other.queue] = other
        for queue, other in last.items():
            token = Token[f"{queue}_{each.queue}".upper()]
            other = posting(other, each, spans[token])
            if place[other] > covered.get(token, -1):
                covered[token] = place[other]
                waits[each].append(token)
                posts[other].append(token)
    return waits, posts


def _load(program: PlacedProgram, engine: str, load: LoadJob) -> PacedCommand:
    place = Place(load.offset, (load.size // 4,))

    def add(wait: Sequence[int], post: Sequence[int]) -> None:
        program.load(place, engine, load.port, arg=load.arg, wait=wait, post=post)

    return PacedCommand("load", load.size // BEAT, add)


def _command(program: PlacedProgram, engine: str, opcode: int, operands: dict[str, int]) -> PacedCommand:
    def add(wait: Sequence[int], post: Sequence[int]) -> None:
        program.do(engine, opcode, wait=wait, post=post, **operands)

    return PacedCommand(engine, cycles(engine, opcode, operands, config=program.config), add)


def _store(program: PlacedProgram, engine: str, store: StoreJob) -> PacedCommand:
    place = Place(store.offset, (store.size // 4,))

    def add(wait: Sequence[int], post: Sequence[int]) -> None:
        more: dict[str, Any] = {"to": store.to, "to_arg": store.to_arg, "only": store.only}
        program.store(place, engine, store.port, arg=store.arg, wait=wait, post=post, **more)

    return PacedCommand("store", stored(engine, store.port, store.arg, store.size, config=program.config), add)
