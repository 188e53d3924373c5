"""Timing of several ports behind LOAD and STORE; the units are ``rtl/shell/bus/read_ports.py`` and its neighbour.

::

    address --> its port, if that has room --> memory --> parts, one a cycle --> buffer of the port --+
                                                                                 in order of addresses +--> LOAD
    STORE --> buffer of the port --> parts, one a cycle --> memory --> answers, in order of addresses
"""

from collections import deque
from collections.abc import Sequence
from functools import partial

from .bus import Bus, ReadingMachine

__all__ = ["PortsBus", "WritePort"]


class PortsBus(Bus):
    """LOAD, and the read side of several ports.

    A port's beats never wait, so that when they come depends on its addresses alone.
    """

    def __init__(self, machine: ReadingMachine) -> None:
        super().__init__(machine)
        self.limited = True
        self.spacing = 16 // machine.burst
        self.most = machine.outstanding // machine.ports
        #: Of each port: bursts that have a place in its buffer, reads in flight, and when its last part came.
        self.held, self.reads, self.came = ([start] * machine.ports for start in (0, 0, -1))
        #: Beats that have not left their buffers: since when they may, and the port whose burst ends.
        self.moving: deque[tuple[int, int | None]] = deque()
        self.moved, self.moves = -1, 0
        #: Number of the first time in ``known``, and when beats were taken.
        self.before, self.known = -2, deque([-1, -1])

    def _address(self, cycle: int) -> None:
        if self.addressed is None:
            return
        since, place, beats, transfer = self.addressed
        port = place // self.machine.burst % self.machine.ports
        if cycle < since or self.held[port] == self.most or (self.port_reads and self.reads[port] >= self.port_reads):
            return
        self.addressed = None
        self.held[port] += 1
        self.reads[port] += 1
        first = max(self._due(cycle, place, beats), self.came[port] + 1)
        self.came[port] = first + self.spacing * beats - 1
        self.agenda.visible(self.came[port] + 1, partial(self._all_came, port))
        # A word leaves its buffer 2 cycles after its last part came, and is at the port of an engine a cycle later.
        ready = first + self.spacing + 1
        self.moving.extend((ready + self.spacing * n, port if n == beats - 1 else None) for n in range(beats))
        self._move()
        self.coming.append((ready + 1, beats, transfer))
        if len(self.coming) == 1:
            self.pump()
        self._next(cycle)

    def _all_came(self, port: int, cycle: int) -> None:
        self.reads[port] -= 1
        self._address(cycle)

    def _left(self, port: int, cycle: int) -> None:
        """A burst has left its buffer."""
        self.held[port] -= 1
        self._address(cycle)

    def _arrive(self, times: Sequence[int]) -> None:
        self.known.extend(times)
        self._move()

    def _move(self) -> None:
        """Lets beats leave their buffers, as far as is known.

        LOAD holds two that are not taken yet, so that one leaves after the second before it was taken.
        """
        while self.moving and self.moves - 2 - self.before < len(self.known):
            ready, port = self.moving.popleft()
            while self.before < self.moves - 2:
                self.known.popleft()
                self.before += 1
            self.moved = max(ready, self.moved + 1, self.known[0] + 1)
            self.moves += 1
            if port is not None:
                self.agenda.visible(self.moved + 1, partial(self._left, port))


class WritePort:
    """A port as STORE writes by it.

    Parameters
    ----------
    most : int
        Bursts that it has in flight.
    parts : int
        Beats of the port in a word.
    depth : int
        Words in its buffer.
    latency : int
        Of responses.
    """

    def __init__(self, *, most: int, parts: int, depth: int, latency: int) -> None:
        self.parts, self.latency = parts, latency
        #: When the last bursts were answered, and the last words left the buffer.
        self.answers: deque[int] = deque(maxlen=most)
        self.left: deque[int] = deque(maxlen=depth)
        self.told = -1

    def address(self, cycle: int) -> int:
        """When it takes an address that is there from ``cycle`` on."""
        full = len(self.answers) == self.answers.maxlen
        return max(cycle, self.answers[0] + 1) if full else cycle

    def take(self, cycle: int) -> int:
        """When it takes a word that is there from ``cycle`` on."""
        taken = max(cycle, self.left[0] + 1) if len(self.left) == self.left.maxlen else cycle
        self.left.append(max(taken + 2, self.left[-1] + 1 if self.left else 0) + self.parts - 1)
        return taken

    @property
    def sent(self) -> int:
        """When the last part of its last burst leaves."""
        return self.left[-1]

    def answer(self) -> int:
        """When the answer to its last burst is there for STORE, if none before it is late."""
        self.told = max(self.sent + self.latency + 1, self.told + 1)
        return self.told + 2
