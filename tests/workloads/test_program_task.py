"""A fine-tune that is one program: what differs between RTL, reference and forecast is told, word by word."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from gradloom.firmware.host import Counters
from gradloom.options import TuneOptions
from gradloom.program.placed import PlacedProgram
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.sim.run.counted import MismatchError, counted
from gradloom.sim.run.machine import Ran
from gradloom.systems.driver import Outcome
from gradloom.systems.program_task import ProgramTask

CONFIG = LanguageConfig()


class Task(ProgramTask):
    """Its program ends at once."""

    def reference(self):
        return {"words": np.array([[3, 4]])}, 2

    def losses(self, results):
        return [float(results["words"].sum())]


@pytest.fixture
def task():
    made = Task(SimpleNamespace(config=CONFIG), TuneOptions(), steps=1)
    made.program = PlacedProgram(CONFIG)
    made.program.end()
    assert made.forecast()["total"] == made.expected.total
    start, done = made.expected.commands[0]
    made.ran = Ran(
        program=made.program,
        pace={"read_latency": 40, "write_latency": 10},
        counters=Counters(
            cycles=made.expected.total,
            phases=made.expected.phases,
            saturated=2,
            underflowed=0,
            gradient_norm=0,
            **counted(made.program.instructions, beat_bytes=CONFIG.data_bits // 8),
        ),
        trace=np.array([start << 32 | 1, done << 32 | 1 << 16], np.uint64),
    )
    return made


def outcome(words=((3, 4),)):
    return Outcome(losses=[], learnt={"words": np.array(words)})


def test_equal_words_counters_and_cycles_are_counted(task):
    assert task.compared(outcome()).figures["equal_to_reference"] == {"words": 2, "counters": 9, "commands": 1}


def test_a_word_that_differs_is_told(task):
    with pytest.raises(MismatchError, match=r"words\[0, 1\] is 5, not 4"):
        task.compared(outcome([[3, 5]]))


@pytest.mark.parametrize(
    "field, value, said",
    [
        ("saturated", 1, "saturated is 1, not 2"),
        ("read_beats", 9, "read_beats is 9"),
        ("cycles", 1, "differ: 1 cycles"),
    ],
)
def test_a_counter_that_differs_is_told(task, field, value, said):
    counters = dataclasses.replace(task.ran.counters, **{field: value})
    task.ran = dataclasses.replace(task.ran, counters=counters)
    with pytest.raises(MismatchError, match=said):
        task.compared(outcome())


def test_a_command_of_other_length_is_told(task):
    later = task.ran.trace + np.array([0, 1 << 32], np.uint64)
    task.ran = dataclasses.replace(task.ran, trace=later)
    with pytest.raises(MismatchError, match="command 0, of control, runs from cycle 51 to 53, not 51 to 52"):
        task.compared(outcome())


def test_floating_point_has_no_forecast(task):
    task.options = TuneOptions(engine="float")
    assert task.forecast() is None
