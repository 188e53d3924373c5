"""A fine-tune that is one program: what differs between RTL, reference and forecast is told, word by word."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from gradloom.firmware.device.host import ProgramCounters
from gradloom.options import TuneOptions
from gradloom.program.placed import PlacedProgram
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.sim.run.counted import MismatchError, counted
from gradloom.sim.run.machine import Ran
from gradloom.sim.time.forecast import MemoryTime
from gradloom.systems.task import Outcome, ProgramTask

CONFIG = LanguageConfig()


class Task(ProgramTask):
    """Its program ends at once."""

    def reference(self):
        return self.outcome({"words": np.array([[3, 4]])}, saturated=2)

    def losses(self, results):
        return [float(results["words"].sum())]


@pytest.fixture
def task():
    made = Task(SimpleNamespace(config=CONFIG), TuneOptions(), steps=1)
    made.program = PlacedProgram(CONFIG)
    made.program.end()
    assert made.forecast()["total"] == made.expected.total
    return made


@pytest.fixture
def ran(task):
    start, done = task.expected.commands[0]
    return Ran(
        program=task.program,
        memory=MemoryTime(),
        counters=ProgramCounters(
            cycles=task.expected.total,
            phases=task.expected.phases,
            saturated=2,
            underflowed=0,
            gradient_norm=0,
            **counted(task.program.instructions, beat_bytes=CONFIG.data_bits // 8),
        ),
        trace=np.array([start << 32 | 1, done << 32 | 1 << 16], np.uint64),
    )


def outcome(ran, words=((3, 4),)):
    return Outcome(losses=[], learnt=None, checked={"words": {"words": np.array(words)}}, ran=[ran])


def test_equal_words_counters_and_cycles_are_counted(task, ran):
    made = task.compared(outcome(ran))
    assert made.figures["equal_to_reference"] == {"words": 2, "counters": 9, "commands": 1}
    assert made.losses == [7.0]


def test_a_word_that_differs_is_told(task, ran):
    with pytest.raises(MismatchError, match=r"words\[0, 1\] is 5, not 4"):
        task.compared(outcome(ran, [[3, 5]]))


def test_steps_that_were_compared_one_by_one_are_not_compared_again(task):
    made = Outcome(losses=[1.0], learnt=None)
    assert task.compared(made) is made


@pytest.mark.parametrize(
    "field, value, said",
    [
        ("saturated", 1, "saturated is 1, not 2"),
        ("read_beats", 9, "read_beats is 9"),
        ("cycles", 1, "differ: 1 cycles"),
    ],
)
def test_a_counter_that_differs_is_told(task, ran, field, value, said):
    counters = dataclasses.replace(ran.counters, **{field: value})
    with pytest.raises(MismatchError, match=said):
        task.compared(outcome(dataclasses.replace(ran, counters=counters)))


def test_a_command_of_other_length_is_told(task, ran):
    later = ran.trace + np.array([0, 1 << 32], np.uint64)
    with pytest.raises(MismatchError, match="command 0, of control, runs from cycle 51 to 53, not 51 to 52"):
        task.compared(outcome(dataclasses.replace(ran, trace=later)))


def test_floating_point_has_no_forecast():
    made = Task(SimpleNamespace(config=CONFIG), TuneOptions(engine="float"), steps=1)
    assert made.forecast() is None
