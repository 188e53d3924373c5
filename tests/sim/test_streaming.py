"""An engine in time that takes a beat a cycle: its steps, its ends, and its waits for room."""

from types import SimpleNamespace

import pytest

from gradloom.sim.time.shell.streaming import Streaming

BEGIN, END, DELAY = 3, 5, 1


class Steps(Streaming):
    """One whose only command has steps as given, and that tells when it would begin the next."""

    def __init__(self, steps, *, limit=8):
        named = SimpleNamespace(store=lambda name: 4, load=lambda name: 7)
        self.told, self.due, self.pumped = [], [], 0
        machine = SimpleNamespace(
            engine_table=SimpleNamespace(named=lambda name: named),
            agenda=SimpleNamespace(decide=lambda cycle, action: self.due.append((cycle, action))),
            scheduler=SimpleNamespace(done=lambda engine, command, cycle: self.told.append((command, cycle))),
            bus=SimpleNamespace(pump=lambda: setattr(self, "pumped", self.pumped + 1)),
            commands=[steps],
            store=SimpleNamespace(queue=None, waking=0),
            now=0,
        )
        super().__init__(machine, "one", load="a", store="o", limit=limit, delay=DELAY, begin=BEGIN, end=END)
        assert self.queues == {4: self.output} and self.sinks == {7: self.take}
        self.command = 0

    def steps(self, what):
        return what

    def _start(self, cycle):
        self.told.append(("next", cycle))


@pytest.mark.parametrize("count", [1, 4])
def test_steps_without_beats_follow_one_another(count):
    engine = Steps((count, False, False))
    engine._begin(0, 10)
    last = 10 + BEGIN + count - 1
    assert engine.told == [(0, last + END), ("next", last + END + 1)]
    assert (engine.command, engine.free_at, engine.due) == (None, last + END + 1, [])


def test_a_beat_is_a_step_from_the_first_on():
    """Beats that come before it wait; those of the next command are not taken."""
    engine = Steps((4, True, False))
    engine._begin(0, 10)
    ((cycle, action),) = engine.due
    assert cycle == 13 and engine.told == []
    action(12)
    assert (engine.open_at, engine.pumped) == (13, 1)
    assert engine.take(9, 2, None) == [13, 14]
    assert engine.take(9, 1, None) == [15]
    assert engine.take(20, 5, None) == [20] and engine.take(21, 1, None) == []
    # Neither with all beats that were offered nor behind the last one is there anything to try again.
    assert len(engine.due) == 1
    assert engine.told == [(0, 20 + END), ("next", 21 + END)] and not engine.output.writes


def test_no_more_beats_are_taken_than_there_are():
    """The output is sure of two at a time."""
    engine = Steps((20, True, False), limit=4)
    engine._begin(0, -BEGIN)
    assert engine.take(0, 5, None) == [0, 1, 2, 3, 4] and engine.left == 15


def test_results_wait_for_room():
    """A beat of a cycle is in the queue two cycles later; with as many as its limit there, no step is made."""
    engine, taken = Steps((20, True, True), limit=4), []
    engine._begin(0, -BEGIN)
    for cycle in range(12):
        engine.machine.now = cycle
        taken.append(engine.take(cycle, 20, None))
        if engine.output.on_room:
            break
        engine._look(cycle + 1)
    # Two are sure at first; then each looks at the room, in its own cycle.
    assert taken == [[0, 1], [], [2], [3], [4], [5], []] and list(engine.output.writes)[-1] == 5 + DELAY
    assert engine.left == 20 - 6
    # STORE takes a beat: two cycles later it is tried again.
    engine.output.take(9)
    assert [each for each, _ in engine.due][-1] == 11 and engine.output.on_room is None
    # STORE takes three more: the last two do not show yet.
    for engine.machine.now in (10, 11, 12):
        engine.output.take(engine.machine.now)
    assert engine.output.sure() == 0 and engine.take(12, 1, None) == []
    assert [each for each, _ in engine.due][-1] == 13
    engine.machine.now = 13
    assert engine.take(13, 1, None) == [13]
