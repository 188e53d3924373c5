"""Checks that a program comes to its end at any speed of memory.

Nothing here knows a cycle. A program is run untimed: each command starts as soon as its tokens are there and ends as
soon as its beats are. That one run decides for all timings, as ``docs/reference/program.md`` argues: each token is
waited for by one queue, so nothing that can happen is ever taken away by something else that happens first. Where two
queues could take the same token the program is refused.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from gradloom.rtl.shell.engines import CONTROL, STORE, Engine, Engines
from gradloom.rtl.shell.signature import TOKENS, ControlOpcode

from .assembler import Instruction

__all__ = ["Flow", "Streams", "StuckError", "check_progress"]

#: A token counter that holds so many and is posted overflows.
MOST = 255
#: These wait until all before them are done.
_FENCES = (ControlOpcode.END, ControlOpcode.FENCE, ControlOpcode.YIELD)

#: ``(stream, beats)`` that a command gives to STORE, or that a STORE takes.
Flow = tuple[int, int]


class StuckError(RuntimeError):
    """A program that a planner wrote may not come to its end.

    This is a fault of gradloom and not of the request.
    """


@dataclass(frozen=True)
class Streams:
    """How beats go from engines to STORE.

    ``flow``: of a command that is not CONTROL's, or None; a STORE of what is always there has none. ``room``: beats of
    each stream that may wait for STORE when the command that gave them is done. The machine may have more room.
    """

    flow: Callable[[Instruction], Flow | None]
    room: Mapping[int, int]


_NO_STREAMS = Streams(lambda command: None, {})


def check_progress(
    commands: Sequence[Instruction],
    engines: Engines,
    *,
    depth: int,
    streams: Streams = _NO_STREAMS,
    names: Mapping[int, str] | None = None,
) -> None:
    """Raises :class:`StuckError` unless the program reaches END.

    It must do so at any timing. The error names each waiting engine and its condition.

    It is checked with no slot of the cache valid and, if it has predicates, with all of them.

    Parameters
    ----------
    engines : Engines
        Of the machine.
    depth : int
        Commands of an engine that are queued or under way.
    streams : Streams
        Without them, a STORE finds its beats at once.
    names : mapping
        Names of tokens, for the report.
    """
    for valid in (False, True) if any(command.slots is not None for command in commands) else (False,):
        eager = _Run(commands, engines, depth, streams, names or {}, valid)
        eager.finish()
        for engine in eager.may_overflow():
            _Run(commands, engines, depth, streams, names or {}, valid, last=engine).finish()


class _Run:
    """The untimed run.

    ``valid``: of all slots, at the start. ``last``: an engine that begins a command only when no other engine can
    proceed, so that each token that it takes is posted and not taken as often as possible.
    """

    def __init__(
        self,
        commands: Sequence[Instruction],
        engines: Engines,
        depth: int,
        streams: Streams,
        names: Mapping[int, str],
        valid: bool,
        last: int | None = None,
    ) -> None:
        self.engines = engines
        self.commands, self.depth, self.streams, self.names, self.last = commands, depth, streams, names, last
        self.tokens = [0] * TOKENS
        self.at = 0  # the command that is dispatched next
        self.ended = False
        self.order: list[int] = []  # commands that were dispatched
        self.queues: list[deque[int]] = [deque() for _ in engines]
        self.started = [False] * len(engines)  # the head of a queue has taken its tokens
        self.ready: deque[int] = deque()  # engines that may go on
        #: Beats of streams, with all of what is under way.
        self.given, self.taken = (dict.fromkeys(streams.room, 0) for _ in range(2))
        #: Since the last fence: the engine that waits for a token, and its first command that does.
        self.takers: dict[int, tuple[int, int]] = {}
        #: Slots: all as at the start, or those of ``marked``; the predicate asked last and its answer.
        self.valid, self.marked = valid, 0
        self.asked: tuple[tuple[int, int] | None, bool] = None, False

    def finish(self) -> None:
        """Runs to the END."""
        while not self.ended:
            while self.ready:
                self._work(self.ready.popleft())
            if self.at == len(self.commands):
                raise StuckError(f"a program of {self.at} commands has no END")
            if self._dispatch() or self.ready:
                continue
            if self.last is None or not self._work(self.last, late=True):
                raise StuckError(_Report(self).text())

    # ---- dispatch

    def _dispatch(self) -> bool:
        """Whether the next command could be dispatched."""
        command = self.commands[self.at]
        if command.slots is not None and self._holds(command.slots):
            self.at += 1
            return True
        engine = command.engine
        queue = self.queues[engine]
        if engine and len(queue) == self.depth:
            return False
        for token in command.wait:
            self._claim(token, engine)
        if not engine:
            if command.opcode in _FENCES and any(self.queues):
                return False
            # All engines have gone as far as they can: a slower CONTROL would take no later.
            if not self._take(command.wait):
                return False
            self._control(command)
        else:
            queue.append(self.at)
            if len(queue) == 1:
                self.ready.append(engine)
        self.order.append(self.at)
        self.at += 1
        if not engine:
            self._post(command.post)
        return True

    def _control(self, command: Instruction) -> None:
        opcode = command.opcode
        if opcode in _FENCES:
            self.ended = opcode == ControlOpcode.END
            self.takers.clear()
            if opcode == ControlOpcode.YIELD:
                self.tokens = [0] * TOKENS
        elif opcode == ControlOpcode.CLEAR:
            self.valid, self.marked, self.asked = False, 0, (None, False)
        elif opcode == ControlOpcode.MARK:
            self.marked |= ((1 << command.operands.get("count", 0)) - 1) << command.operands.get("slot", 0)
            self.asked = None, False

    def _holds(self, slots: tuple[int, int]) -> bool:
        """Whether a predicate does: the command is dropped."""
        if self.valid:
            return True
        if self.asked[0] != slots:
            mask = (1 << slots[1]) - 1
            self.asked = slots, self.marked >> slots[0] & mask == mask
        return self.asked[1]

    # ---- tokens

    def name(self, token: int) -> str:
        return self.names.get(token, str(token))

    def _claim(self, token: int, engine: int) -> None:
        """Refuses a second queue that waits for a token."""
        first, other = self.takers.setdefault(token, (engine, self.at))
        if first != engine:
            names = [f"{self.commands[place].engine.name} (command {place})" for place in (other, self.at)]
            raise StuckError(
                f"{' and '.join(names)} both wait for token {self.name(token)} with no fence between: "
                f"time decides which of them takes it"
            )

    def _take(self, wait: tuple[int, ...]) -> bool:
        tokens = self.tokens
        for token in wait:
            if not tokens[token]:
                return False
        for token in wait:
            tokens[token] -= 1
        return True

    def _post(self, post: tuple[int, ...]) -> None:
        for token in post:
            self.tokens[token] += 1
            if self.tokens[token] > MOST:
                raise StuckError(
                    f"token {self.name(token)} overflows near command {self.at}: it may be posted "
                    f"{MOST + 1} times and not taken, its counter holds {MOST}"
                )
            if token in self.takers:
                self.ready.append(self.takers[token][0])

    def may_overflow(self) -> set[int]:
        """Engines that, if they are slow, might let a token overflow.

        They are engines that take this token. CONTROL is none of them: it takes one when nothing else can go on, in
        any run.

        A bound for each token and each place where its engine may stand: what is dispatched by then at most has posted.
        """
        found: set[int] = set()
        posts: list[list[int]] = [[] for _ in range(TOKENS)]
        takes: list[list[tuple[int, int]]] = [[] for _ in range(TOKENS)]
        places: list[list[int]] = [[] for _ in self.engines]

        def judge() -> None:
            """Up to a YIELD, which makes all tokens zero."""
            for token in range(TOKENS):
                if len(posts[token]) <= MOST:
                    continue
                for count, (engine, rank) in enumerate(takes[token]):
                    behind = places[engine][rank + self.depth : rank + self.depth + 1]
                    most = bisect_left(posts[token], behind[0]) if behind else len(posts[token])
                    if engine and most - count > MOST:
                        found.add(engine)
                        break

        for place, index in enumerate(self.order):
            command = self.commands[index]
            engine = command.engine
            for token in command.wait:
                takes[token].append((int(engine), len(places[engine])))
            for token in command.post:
                posts[token].append(place)
            places[engine].append(place)
            if not engine and command.opcode == ControlOpcode.YIELD:
                judge()
                posts, takes = [[] for _ in range(TOKENS)], [[] for _ in range(TOKENS)]
        judge()
        return found

    # ---- engines

    def _work(self, engine: int, late: bool = False) -> bool:
        """Runs an engine's commands as far as they go.

        ``late``: it may begin one though others go first.
        """
        queue, moved = self.queues[engine], False
        while queue:
            command = self.commands[queue[0]]
            flow = self.streams.flow(command) if self.given else None
            if not self.started[engine]:
                if engine == self.last and not late or not self._take(command.wait):
                    break
                late = False
                self.started[engine] = moved = True
                if flow is not None:
                    (self.taken if engine == STORE else self.given)[flow[0]] += flow[1]
                    self.ready.extend(each for each in self.engines.queued if self.started[each] and each != engine)
            if flow is not None and not self.flows(engine, flow[0]):
                break
            queue.popleft()
            self.started[engine] = False
            moved = True
            self._post(command.post)
        return moved

    def flows(self, engine: int, stream: int) -> bool:
        """Whether the beats in flight are there, or find room."""
        waiting = self.given[stream] - self.taken[stream]
        return waiting >= 0 if engine == STORE else waiting <= self.streams.room[stream]


def _posts(token: int, command: Instruction) -> bool:
    return token in command.post


class _Report:
    """Explains why a run stands.

    It names each queue's condition, and the waits that close a circle.
    """

    def __init__(self, run: _Run) -> None:
        self.run = run

    def text(self) -> str:
        run = self.run
        waits = {engine: found for engine in run.engines if (found := self._wait(engine)) is not None}
        lines = [said for said, _ in waits.values()]
        seen: list[Engine] = []
        at: Engine | None = CONTROL
        while at is not None and at not in seen:
            seen.append(at)
            at = waits[at][1] if at in waits else None
        circle = " -> ".join(each.name for each in (*seen[seen.index(at) :], at)) if at is not None else ""
        return "; ".join(
            [
                f"a program cannot go on at command {run.at} of {len(run.commands)}",
                *lines,
                *([f"in a circle: {circle}"] if circle else []),
            ]
        )

    def _wait(self, engine: Engine) -> tuple[str, Engine | None] | None:
        """Condition of an engine's next command, and the engine that meets it.

        The dispatch is CONTROL.
        """
        run = self.run
        if engine == CONTROL:
            command, place = run.commands[run.at], run.at
            if command.engine != CONTROL:
                return (
                    f"dispatch of command {place} waits for room in the queue of {command.engine.name}, which "
                    f"holds {run.depth}",
                    command.engine,
                )
            if command.opcode in _FENCES and any(run.queues):
                busy = next(each for each in run.engines.queued if run.queues[each])
                return f"{ControlOpcode(command.opcode).name} (command {place}) waits for {busy.name}", busy
        elif not run.queues[engine]:
            return None
        else:
            place = run.queues[engine][0]
            command = run.commands[place]
        said = f"{engine.name} (command {place}) waits for "
        for token in command.wait if not run.started[engine] else ():
            if not run.tokens[token]:
                poster = self._next(partial(_posts, token))
                return f"{said}token {run.name(token)}, {self._by(poster, 'posted')}", self._engine(poster)
        flow = run.streams.flow(command)
        assert flow is not None
        stores = engine == STORE
        other = self._next(
            lambda each: (
                (each.engine == STORE) != stores
                and each.engine != CONTROL
                and (run.streams.flow(each) or (None,))[0] == flow[0]
            )
        )
        return (
            f"{said}{'beats' if stores else 'room'} of stream {flow[0]}, "
            f"{self._by(other, 'given' if stores else 'taken')}",
            self._engine(other),
        )

    def _next(self, wanted: Callable[[Instruction], bool]) -> int | None:
        """The first command that is not done, or not dispatched, of a kind."""
        return next((place for place in self._open() if wanted(self.run.commands[place])), None)

    def _open(self) -> Iterator[int]:
        run = self.run
        yield from sorted(place for queue in run.queues for place in queue)
        yield from range(run.at, len(run.commands))

    def _engine(self, place: int | None) -> Engine | None:
        if place is None:
            return None
        return CONTROL if place >= self.run.at else self.run.commands[place].engine

    def _by(self, place: int | None, verb: str) -> str:
        return f"{verb} by no command" if place is None else f"next {verb} by command {place}"
