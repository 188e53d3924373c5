"""Stalls and holds of a bench's ports."""

import random
from collections.abc import Mapping

__all__ = ["LEAD", "Gates"]

#: Beats that move before a port is held: results must be under way by then.
LEAD = 4
#: Cycles between the end of a hold and the next.
_APART = 16


class Gates:
    """When a port may move a beat: random stalls, and long holds.

    Holds come one after another: all outputs at once, then each output where there are several, then each input; part
    ``number`` of a run begins with the one of this number. A hold begins when its port has moved :data:`LEAD` beats, or
    half of what it moves; it waits for its turn, but not beyond the port's last beat.
    """

    def __init__(
        self, inputs: set[str], outputs: set[str], stall: float | Mapping[str, float], hold: int, seed: int, number: int
    ) -> None:
        self.hold = hold
        names = sorted(outputs) + sorted(inputs)
        self.stall = {name: stall.get(name.split()[-1], 0.0) if isinstance(stall, Mapping) else stall for name in names}
        self.random = {name: random.Random(f"{seed} {number} {name}") for name in names}
        holds = [outputs] * (len(outputs) > 1) + [{name} for name in names]
        first = number % max(len(holds), 1)
        self.holds = (holds[first:] + holds[:first]) if hold else []
        self.until = dict.fromkeys(names, 0)
        self.calm = 0

    def open(self, name: str, moved: int, count: int, cycle: int) -> bool:
        """Whether beat ``moved`` of ``count`` may move in this cycle."""
        if cycle >= self.until[name] and moved >= min(LEAD, count // 2):
            turn = cycle >= self.calm and bool(self.holds) and name in self.holds[0]
            held = next((each for each in self.holds if name in each), None) if turn or moved == count - 1 else None
            if held:
                self.holds.remove(held)
                self.until |= dict.fromkeys(held, cycle + self.hold)
                if turn:
                    self.calm = cycle + self.hold + _APART
        return cycle >= self.until[name] and self.random[name].random() >= self.stall[name]
