"""Jobs of engines: loads, commands, stores and the tokens of them.

A job's commands use records in slots of load ports, and its results leave from result slots. LOAD, the engines and
STORE each do their parts of all jobs in the order of the jobs, and wait for one another only where they must:

- an engine for the LOADs of the job, for the STORE that forwards a record to it, and for the STORE of the job whose
  result slot it takes;
- STORE for the engine's commands of the job;
- LOAD for the STORE of a record that it reads, and for the last command that reads the slot that it fills.

A STORE that forwards fills a slot that an earlier job has read. It waits for no token of that: the STORE of that job is
in front of it, and has waited for its commands.

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


@dataclass(eq=False)
class Store:
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
class Job:
    """Work of one engine.

    ``uses``: ports and slots that its commands read. ``streams``: its load ports have no slots, its commands take from
    them while LOADs go on. ``waits``: its STOREs wait for its commands. ``chained``: its engine keeps something for the
    next such job, so they stay in order. ``forwarded``: STOREs that fill slots that it reads.
    """

    engine: str
    loads: list[Load] = field(default_factory=list)
    commands: list[tuple[int, dict[str, int]]] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    uses: set[tuple[str, int]] = field(default_factory=set)
    streams: bool = False
    waits: bool = True
    chained: bool = False
    forwarded: list[Store] = field(default_factory=list)


#: A job's number, and that of one of its STOREs.
_Stored = tuple[int, int]
_NEVER: _Stored = (-1, -1)


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
    #: Of each STORE.
    stored: list[set[Token]] = field(default_factory=list)


class _Order:
    """Waits of one queue for another, by job: later ones cover earlier ones."""

    def __init__(self) -> None:
        self.covered: dict[Token, _Stored] = {}

    def needs(self, token: Token, job: _Stored) -> bool:
        """Whether a wait for ``job`` is still to be written."""
        if job <= self.covered.get(token, _NEVER):
            return False
        self.covered[token] = job
        return True


def _marked(jobs: Sequence[Job]) -> list[_Marks]:
    marks = [_Marks(stored=[set() for _ in job.stores]) for job in jobs]
    order = _Order()
    written: dict[int, _Stored] = {}
    forwards: dict[Store, _Stored] = {}
    used: dict[tuple[str, str, int], int] = {}
    left: dict[tuple[str, int], _Stored] = {}
    for number, (job, mine) in enumerate(zip(jobs, marks)):
        name = job.engine.upper()
        behind = {load: max((written.get(at, _NEVER) for at in load.records), default=_NEVER) for load in job.loads}
        # What has long been there is loaded while the rest is made; a stream's loads keep their order.
        mine.loads = job.loads if job.streams else sorted(job.loads, key=lambda load: behind[load])
        for load in mine.loads:
            waits = set[Token]()
            if behind[load] > _NEVER and order.needs(Token.STORE_LOAD, behind[load]):
                waits.add(Token.STORE_LOAD)
                _post(marks, behind[load], Token.STORE_LOAD)
            last = max((used.get((job.engine, load.port, slot), -1) for slot in load.slots), default=-1)
            if last >= 0 and order.needs(Token[f"{name}_LOAD"], (last, 0)):
                waits.add(Token[f"{name}_LOAD"])
                marks[last].done.add(Token[f"{name}_LOAD"])
            mine.load.append(waits)
        if not job.streams:
            if job.loads:
                mine.loaded.add(Token[f"LOAD_{name}"])
                mine.begin.add(Token[f"LOAD_{name}"])
            for port, slot in job.uses:
                used[job.engine, port, slot] = number
        stored = [forwards[store] for store in job.forwarded]
        if job.waits:
            slots = {store.slot for store in job.stores}
            stored += [left[job.engine, slot] for slot in slots if (job.engine, slot) in left]
            mine.done.add(Token[f"{name}_STORE"])
            mine.store.add(Token[f"{name}_STORE"])
        if stored and order.needs(Token[f"STORE_{name}"], max(stored)):
            mine.begin.add(Token[f"STORE_{name}"])
            _post(marks, max(stored), Token[f"STORE_{name}"])
        for n, store in enumerate(job.stores):
            written[store.offset] = forwards[store] = (number, n)
            if job.waits:
                left[job.engine, store.slot] = (number, n)
    return marks


def _post(marks: Sequence[_Marks], store: _Stored, token: Token) -> None:
    marks[store[0]].stored[store[1]].add(token)


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
        done = tuple(marks.stored[n])
        place, more = Place(store.offset, (store.size // 4,)), {"wait": begin, "post": done}
        more |= {"arg": store.arg, "to": store.to, "to_arg": store.to_arg, "only": store.only}
        add = partial(program.store, place, job.engine, store.port, **more)
        made.append(Command("store", cycles("store", beats=store.size // BEAT), add, begin, done))
    return made
