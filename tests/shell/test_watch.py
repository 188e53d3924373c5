"""The watchdog's last cycle, the search for deadlocks, and resets: of a machine in which nothing runs, of a program."""

import pytest

from gradloom.program.assembler import Assembler
from gradloom.rtl.machines.images import ARRAY, IMAGES
from gradloom.rtl.shell.engines import CONTROL, LOAD
from gradloom.rtl.shell.registers.errors import Error
from gradloom.rtl.shell.sequencer.sequencer import Sequencer
from gradloom.rtl.shell.sequencer.watch import Watch
from gradloom.rtl.shell.signature import ControlOpcode
from gradloom.sim.bench.engine import simulate


def _cycles(inputs, output, *, watchdog=0, length):
    """Cycles in which ``output`` is high, if each of ``inputs`` is high in the cycles given."""
    watch, high = Watch(), []

    async def process(ctx):
        ctx.set(watch.watchdog, watchdog)
        for cycle in range(length):
            for name, cycles in inputs.items():
                ctx.set(getattr(watch, name), cycle in cycles)
            if ctx.get(getattr(watch, output)):
                high.append(cycle)
            await ctx.tick()

    simulate(watch, process)
    return high


@pytest.mark.parametrize("cycles", [1, 2, 3, 10])
def test_the_watchdog_expires_in_the_cycle_after_so_many_without_movement(cycles):
    assert _cycles({"moved": {5}}, "expired", watchdog=cycles, length=60) == [5 + cycles + 1]
    # What moves in the last of them is in time, and what moves behind it is too late.
    assert _cycles({"moved": {5, 5 + cycles}}, "expired", watchdog=cycles, length=60) == [5 + 2 * cycles + 1]
    late = 5 + cycles + 1
    assert _cycles({"moved": {5, late}}, "expired", watchdog=cycles, length=60) == [late, late + cycles + 1]
    # A rewind counts for a movement in the cycle before.
    assert _cycles({"rewind": {5}}, "expired", watchdog=cycles, length=60) == [4 + cycles + 1]


def test_a_watchdog_of_0_never_expires():
    assert _cycles({"moved": {5}, "rewind": {9}}, "expired", length=60) == []


def test_a_deadlock_is_found_after_8_cycles_without_a_break():
    assert _cycles({"stuck": set(range(10, 17))}, "locked", length=60) == []
    assert _cycles({"stuck": set(range(10, 18))}, "locked", length=60) == [18]


@pytest.mark.parametrize("idle_from", [0, 4, 20])
def test_a_reset_takes_4_cycles_and_ends_within_4_of_an_idle_bus(idle_from):
    """Engines and bus are reset meanwhile, and the machine is busy."""
    sequencer, high = Sequencer(IMAGES, data_bits=128, slots=64, depth=4), []

    async def process(ctx):
        for cycle in range(-1, 40):
            ctx.set(sequencer.reset, cycle == -1)
            ctx.set(sequencer.bus_idle, cycle >= idle_from)
            told = [ctx.get(each) for each in (sequencer.abort, sequencer.bus_abort, sequencer.busy)]
            assert len({*told}) == 1
            high.extend([cycle] * told[0])
            await ctx.tick()

    simulate(sequencer, process)
    least = max(4, idle_from + 1)
    assert high == list(range(len(high))) and least <= len(high) < least + 4 and (idle_from or len(high) == 4)


def _aborted(program, *, reset, takes=3, last=None):
    """The command that an error names, if the host resets in the cycle ``reset``.

    LOADs are done ``takes`` cycles after they started, the last of them in the cycle ``last``; no other engine takes a
    command. Also the cycle in which the last LOAD was queued.
    """
    sequencer, beats, ends = Sequencer(IMAGES, data_bits=128, slots=64, depth=4), [], []
    code = [program.code[n : n + 16] for n in range(0, len(program.code), 16)]
    left = sum(each.engine == LOAD for each in program.instructions)
    named = queued = None

    async def process(ctx):
        nonlocal left, named, queued
        load, fetch, entry = sequencer.engine(LOAD), sequencer.o_fetch, sequencer._dispatch.o
        for name, value in (("size", 1 << 20), ("program_commands", len(program)), ("bus_idle", 1)):
            ctx.set(getattr(sequencer, name), value)
        ctx.set(fetch.ready, 1)
        ctx.set(load.command.ready, 1)
        for cycle in range(reset + 20):
            ctx.set(sequencer.bell, cycle == 0)
            ctx.set(sequencer.reset, cycle == reset)
            ctx.set(sequencer.i_fetch.valid, bool(beats))
            ctx.set(sequencer.i_fetch.p.data, int.from_bytes(beats.pop(0) if beats else b"", "little"))
            ctx.set(load.done, cycle in ends)
            if ctx.get(fetch.valid):
                first = ctx.get(fetch.p.offset) // 16
                beats.extend(code[first : first + ctx.get(fetch.p.beats)])
            if ctx.get(load.command.valid):
                left -= 1
                ends.append(cycle + takes if left or last is None else last)
            if ctx.get(entry.valid) and ctx.get(entry.ready) and ctx.get(entry.p.engine) == LOAD:
                queued = cycle
            if ctx.get(sequencer.error) and named is None:
                assert ctx.get(sequencer.error_code) == Error.ABORTED
                named = ctx.get(sequencer.error_command)
            await ctx.tick()

    simulate(sequencer, process)
    return named, queued


@pytest.mark.parametrize("late", range(-3, 3))
def test_a_reset_names_the_oldest_command_that_is_not_done(late):
    """Also where that command is done in the cycles around the reset, and its queue is empty then."""
    program = Assembler()
    for _ in range(8):
        program.add(LOAD, 0, offset=48, beats=1, dest=ARRAY.load("image"))
    program.add(CONTROL, ControlOpcode.FENCE)
    program.add(CONTROL, ControlOpcode.END)
    # FENCE waits for the last LOAD.
    assert _aborted(program, reset=100 + late, last=100)[0] == (7 if late < -1 else 8)


def test_a_reset_names_no_command_that_comes_into_no_queue_any_more():
    """The first engine's second command: the first one is done, that of the other engine is not.

    In the cycle behind a reset the command is still queued. In the next one it is not, where what is done leaves; in
    the one behind that nothing has been done yet.
    """
    program = Assembler()
    for _ in range(2):
        program.add(ARRAY, 0)
        program.add(LOAD, 0, offset=48, beats=1, dest=ARRAY.load("image"))
    program.add(CONTROL, ControlOpcode.END)
    _, queued = _aborted(program, reset=60, last=100)
    assert [_aborted(program, reset=queued - n, takes=4, last=100)[0] for n in (1, 2, 3)] == [3, 0, 1]
