"""Jobs of engines: loads, commands, stores and the tokens of them.

A job's commands use records in slots of load ports, and its results leave from result slots. LOAD, the engines and
STORE each do their parts of all jobs in the order of the jobs, and wait for one another only where they must:

- an engine for the LOADs of the job, and for the STORE of the job whose result slot it takes;
- STORE for the engine's commands of the job;
- LOAD for the STORE of a record that it reads, and for the last command that reads the slot that it fills.

A later wait in one queue for an earlier post in another covers all posts before it, so a token is posted only where a
wait needs it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial

from ...formats.tile_records import BEAT
from ..program.placed import Place, PlacedProgram
from .pace import Command, cycles, paced

__all__ = ["Job", "Load", "Store", "Token", "write"]


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
class Load:
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


@dataclass(frozen=True)
class Store:
    """Bytes from a port to ``offset``; ``slot`` is the result slot."""

    port: str
    offset: int
    size: int
    arg: int = 0
    slot: int = 0


@dataclass
class Job:
    """Work of one engine.

    ``uses``: ports and slots that its commands read. ``streams``: its load ports have no slots, its commands take from
    them while LOADs go on. ``waits``: its STOREs wait for its commands. ``chained``: its engine keeps something for the
    next such job, so they stay in order.
    """

    engine: str
    loads: list[Load] = field(default_factory=list)
    commands: list[tuple[int, dict[str, int]]] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    uses: set[tuple[str, int]] = field(default_factory=set)
    streams: bool = False
    waits: bool = True
    chained: bool = False


@dataclass
class _Marks:
    """Tokens that parts of a job take and post."""

    #: Of each LOAD, in the order of :attr:`loads`.
    load: list[set[Token]] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)
    loaded: set[Token] = field(default_factory=set)
    begin: set[Token] = field(default_factory=set)
    done: set[Token] = field(default_factory=set)
    store: set[Token] = field(default_factory=set)
    stored: set[Token] = field(default_factory=set)


class _Order:
    """Waits of one queue for another, by job: later ones cover earlier ones."""

    def __init__(self) -> None:
        self.covered: dict[Token, int] = {}

    def needs(self, token: Token, job: int) -> bool:
        """Whether a wait for ``job`` is still to be written."""
        if job <= self.covered.get(token, -1):
            return False
        self.covered[token] = job
        return True


def _marked(jobs: Sequence[Job]) -> list[_Marks]:
    marks = [_Marks() for _ in jobs]
    order = _Order()
    written: dict[int, int] = {}
    used: dict[tuple[str, str, int], int] = {}
    left: dict[tuple[str, int], int] = {}
    for number, (job, mine) in enumerate(zip(jobs, marks)):
        name = job.engine.upper()
        behind = {load: max((written.get(at, -1) for at in load.records), default=-1) for load in job.loads}
        # What has long been there is loaded while the rest is made; a stream's loads keep their order.
        mine.loads = job.loads if job.streams else sorted(job.loads, key=lambda load: behind[load])
        for load in mine.loads:
            waits = set[Token]()
            if behind[load] >= 0 and order.needs(Token.STORE_LOAD, behind[load]):
                waits.add(Token.STORE_LOAD)
                marks[behind[load]].stored.add(Token.STORE_LOAD)
            last = max((used.get((job.engine, load.port, slot), -1) for slot in load.slots), default=-1)
            if last >= 0 and order.needs(Token[f"{name}_LOAD"], last):
                waits.add(Token[f"{name}_LOAD"])
                marks[last].done.add(Token[f"{name}_LOAD"])
            mine.load.append(waits)
        if not job.streams:
            if job.loads:
                mine.loaded.add(Token[f"LOAD_{name}"])
                mine.begin.add(Token[f"LOAD_{name}"])
            for port, slot in job.uses:
                used[job.engine, port, slot] = number
        if job.waits:
            slots = {store.slot for store in job.stores}
            busy = max((left[job.engine, slot] for slot in slots if (job.engine, slot) in left), default=None)
            token = Token[f"STORE_{name}"]
            if busy is not None and order.needs(token, busy):
                mine.begin.add(token)
                marks[busy].stored.add(token)
            mine.done.add(Token[f"{name}_STORE"])
            mine.store.add(Token[f"{name}_STORE"])
            for slot in slots:
                left[job.engine, slot] = number
        for store in job.stores:
            written[store.offset] = number
    return marks


def write(program: PlacedProgram, jobs: Sequence[Job]) -> None:
    """Commands of jobs with their tokens.

    LOAD, STORE and each engine have theirs in the order of the jobs.
    """
    made: list[Command] = []
    gate: Command | None = None
    for job, marks in zip(jobs, _marked(jobs)):
        loads, commands, stores = (
            _loads(program, job, marks),
            _commands(program, job, marks),
            _stores(program, job, marks),
        )
        if loads:
            loads[0].follows, gate = gate, None
        if job.streams:
            # They have no tokens: a command takes beats as they come, STORE its results, and LOAD waits for both.
            commands[0].follows = loads[-1]
            gate = commands[-1]
            if not job.waits:
                stores[0].follows, gate = gate, stores[-1]
        made += loads + commands + stores
    for each in paced(made):
        each.add()


def _loads(program: PlacedProgram, job: Job, marks: _Marks) -> list[Command]:
    made = []
    for n, (load, wait) in enumerate(zip(marks.loads, marks.load)):
        begin, done = tuple(wait), tuple(marks.loaded) if n == len(marks.loads) - 1 else ()
        place = Place(load.offset, (load.size // 4,))
        add = partial(program.load, place, job.engine, load.port, arg=load.arg, wait=begin, post=done)
        made.append(Command("load", cycles("load", beats=load.size // BEAT), add, begin, done))
    return made


def _commands(program: PlacedProgram, job: Job, marks: _Marks) -> list[Command]:
    made = []
    for n, (opcode, operands) in enumerate(job.commands):
        begin = tuple(marks.begin) if n == 0 else ()
        done = tuple(marks.done) if n == len(job.commands) - 1 else ()
        add = partial(program.do, job.engine, opcode, wait=begin, post=done, **operands)
        made.append(Command(job.engine, cycles(job.engine, opcode, operands), add, begin, done))
    return made


def _stores(program: PlacedProgram, job: Job, marks: _Marks) -> list[Command]:
    made = []
    for n, store in enumerate(job.stores):
        begin = tuple(marks.store) if n == 0 else ()
        done = tuple(marks.stored) if n == len(job.stores) - 1 else ()
        place = Place(store.offset, (store.size // 4,))
        add = partial(program.store, place, job.engine, store.port, arg=store.arg, wait=begin, post=done)
        made.append(Command("store", cycles("store", beats=store.size // BEAT), add, begin, done))
    return made
