"""The norm engine in time."""

from collections.abc import Mapping

from gradloom.rtl.engines.norm.engine import NormEngine
from gradloom.rtl.formats.tiles.codes import EDGE
from gradloom.rtl.formats.tiles.norm import NormOpcode, positions

from .shell.bus import Sink
from .shell.shell import OneAtATime, Queue, TimedMachine
from .tiles import records_to_store

__all__ = ["NormTime", "norm_cycles"]

#: Of groups, and of rows whose tiles are full but for the last.
_GATHER = (NormOpcode.SUMS, NormOpcode.BACK_SUMS)
_ROWS = (NormOpcode.LARGEST, NormOpcode.POWERS, NormOpcode.PULLS)
#: Readings of operands of which sums come, and of which results do.
_READINGS = {
    NormOpcode.SUMS: (1, 0),
    NormOpcode.NORM: (0, 1),
    NormOpcode.BACK_SUMS: (1, 0),
    NormOpcode.BACK: (0, 1),
    NormOpcode.SOFTMAX: (2, 1),
    NormOpcode.SOFTMAX_BACK: (1, 1),
    NormOpcode.LARGEST: (1, 0),
    NormOpcode.POWERS: (1, 0),
    NormOpcode.SHARES: (0, 1),
    NormOpcode.PULLS: (1, 0),
    NormOpcode.SOFT_BACK: (0, 1),
}


def norm_cycles(opcode: int, operands: Mapping[str, int], by_row: bool, lanes: int) -> int:
    """Cycles from a command taken to done.

    ``by_row``: the last SUMS, or this command if it is one, had groups of rows.
    """
    rows, features = operands.get("rows", 0) + 1, operands.get("features", 0) + 1
    tiles = operands.get("tiles", 0) + 1 if opcode in (*_GATHER, *_ROWS) else 1
    segment, count = tiles * -(-features // lanes), rows
    columns = opcode in _GATHER and not by_row
    if opcode in _ROWS:
        segment = (tiles - 1) * EDGE // lanes + -(-features // lanes)
    elif columns:
        segment, count = tiles * rows, -(-features // lanes)
    sums, results = _READINGS[NormOpcode(opcode)]
    paced = max(segment, positions(lanes, columns=columns)) * (count - 1) + segment
    return (
        NormEngine.ready
        + tiles
        + sums * (paced + NormEngine.settle(lanes, columns=columns))
        + results * (segment * count + NormEngine.finish)
        + (sums + results - 1) * NormEngine.again
    )


class NormTime(OneAtATime):
    """The engine NORM: a beat in one cycle, of operands that it holds."""

    def __init__(self, machine: TimedMachine) -> None:
        self.machine: TimedMachine = machine
        self.engine = machine.engine_table.named("norm")
        self.offered = None
        self.command = None
        self.free_at = 0
        self.by_row = False
        self.queues: dict[int, Queue] = records_to_store(machine, self.engine)
        self.sinks: dict[int, Sink] = {}

    def _begin(self, command: int, at: int) -> None:
        what = self.machine.commands[command]
        if what.opcode == NormOpcode.SUMS:
            self.by_row = bool(what.operands.get("by_row", 0))
        done = at + norm_cycles(what.opcode, what.operands, self.by_row, self.machine.config.norm_lanes)
        self.command = None
        self.free_at = done + 1
        self.machine.scheduler.done(self.engine, command, done)
        self._start(self.machine.now)
