"""Comparisons of RTL with its program, reference and forecast."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from gradloom.firmware.device.host import ProgramCounters
from gradloom.program.assembler import Instruction
from gradloom.rtl.shell.engines import CONTROL, LOAD, STORE
from gradloom.rtl.shell.signature import COMMAND_BYTES, ControlOpcode

from ..time.timing import Timing, compare

__all__ = ["HELD", "PACED", "MismatchError", "Words", "check_counters", "check_forecast", "check_words", "counted"]

#: Words that RTL and reference have in common: arrays by name, by kind.
Words = Mapping[str, Mapping[str, ArrayLike]]
#: Counters that depend on the pace of memory, and are the forecast's to tell.
PACED = ("cycles", "phases")
#: Share by which cycles may differ from a forecast with encoders that wait for STORE (:attr:`Timing.held`).
HELD = 0.01


class MismatchError(ValueError):
    """Simulated RTL and the bit-exact reference differ."""


def counted(instructions: Sequence[Instruction], *, beat_bytes: int) -> dict[str, int]:
    """Counters that a program leaves when it ends.

    They are ``commands_done``, ``commands_dropped``, ``cache_hits``, ``cache_misses``, ``read_beats`` and
    ``write_beats``, if no slot of the cache was valid before it.
    """
    found = dict.fromkeys(("commands_done", "commands_dropped", "cache_hits", "cache_misses", "write_beats"), 0)
    found["read_beats"] = len(instructions) * COMMAND_BYTES // beat_bytes
    valid: set[int] = set()
    for each in instructions:
        if each.slots is not None and valid.issuperset(range(each.slots[0], sum(each.slots))):
            found["commands_dropped"] += 1
            continue
        found["commands_done"] += 1
        if each.engine == LOAD:
            found["read_beats"] += each.operands["beats"]
        elif each.engine == STORE and not each.operands.get("only"):
            found["write_beats"] += each.operands["beats"]
        elif each.engine == CONTROL:
            first, count = (each.operands.get(name, 0) for name in ("slot", "count"))
            slots = range(first, first + count)
            if each.opcode == ControlOpcode.LOOKUP:
                hits = len(valid.intersection(slots))
                found["cache_hits"] += hits
                found["cache_misses"] += count - hits
            elif each.opcode == ControlOpcode.MARK:
                valid.update(slots)
            elif each.opcode == ControlOpcode.CLEAR:
                valid.clear()
    return found


def check_counters(
    counters: ProgramCounters,
    instructions: Sequence[Instruction],
    *,
    beat_bytes: int,
    health: Mapping[str, int],
    interrupted: bool = False,
) -> int:
    """Raises :class:`MismatchError` at a counter that is not as expected.

    It is the first one; cycles and phases are the forecast's (:func:`check_forecast`). Returns how many are compared.

    Parameters
    ----------
    health : mapping
        ``saturated``, ``underflowed`` and ``gradient_norm``, of the reference.
    interrupted : bool
        Requests were served beside the program, which reads the commands after a YIELD twice: beats read are at least
        those of all commands.
    """
    expected = counted(instructions, beat_bytes=beat_bytes) | dict(health)
    if interrupted:
        expected["read_beats"] = max(expected["read_beats"], counters.read_beats)
    found = {name: value for name, value in counters.as_dict().items() if name not in PACED}
    for name, value in found.items():
        if value != expected[name]:
            raise MismatchError(f"RTL and program differ: the counter {name} is {value}, not {expected[name]}")
    return len(found)


def check_words(found: Mapping[str, ArrayLike], wanted: Mapping[str, ArrayLike]) -> int:
    """Raises :class:`MismatchError` at the first word that differs.

    ``wanted`` has all that was ``found``, arrays by name. Returns the number of words.
    """
    count = 0
    for name, words in found.items():
        ours, theirs = np.asarray(words), np.asarray(wanted[name])
        if ours.shape != theirs.shape:
            raise MismatchError(f"RTL and reference differ: {name} has shape {ours.shape}, not {theirs.shape}")
        count += ours.size
        if not np.array_equal(ours, theirs):
            at = tuple(int(n) for n in np.argwhere(ours != theirs)[0])
            raise MismatchError(
                f"RTL and reference differ: {name}{list(at) if at else ''} is {ours[at]}, not {theirs[at]}"
            )
    return count


def check_forecast(counters: ProgramCounters, timing: Timing, trace: np.ndarray | None) -> int:
    """Raises :class:`MismatchError` where cycles are not as forecast.

    They are the cycles of the program, of each phase, and where there is a trace of each command's start and end. Where
    encoders wait for STORE, the forecast bounds those of the program alone, by :data:`HELD`. Returns the number of
    commands that are compared.
    """
    if timing.held:
        if abs(counters.cycles - timing.total) > HELD * timing.total:
            raise MismatchError(
                f"RTL and forecast differ: {counters.cycles:,} cycles, not within {100 * HELD:g} % of {timing.total:,}"
            )
        return 0
    if counters.cycles != timing.total:
        raise MismatchError(f"RTL and forecast differ: {counters.cycles:,} cycles, not {timing.total:,}")
    for name, cycles in timing.phases.items():
        if counters.phases[name] != cycles:
            raise MismatchError(
                f"RTL and forecast differ: {counters.phases[name]:,} cycles of the phase {name}, not {cycles:,}"
            )
    if trace is None:
        return 0
    found = compare(timing, trace)
    wrong = np.flatnonzero((found.started != 0) | (found.done != 0))
    if wrong.size:
        at, one = int(found.index[wrong[0]]), int(wrong[0])
        started, done = timing.commands[at] or (0, 0)
        engine = timing.instructions[at].engine.name
        raise MismatchError(
            f"RTL and forecast differ: command {at}, of {engine}, runs from cycle "
            f"{started - int(found.started[one]):,} to {done - int(found.done[one]):,}, not {started:,} to {done:,}"
        )
    return len(found.index)
