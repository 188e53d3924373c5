"""Every system has the files and the verbs of all."""

from pathlib import Path

import pytest

import gradloom
from gradloom.preset import KINDS, PRESETS

SYSTEMS = Path(gradloom.__file__).parent / "systems"
FOLDERS = sorted(path.name for path in SYSTEMS.iterdir() if (path / "__init__.py").exists())
#: Options and presets, the program, the fine-tune, an answer.
FILES = ("workload.py", "presets.py", "program/__init__.py", "task.py", "answer.py")


def home(kind):
    """The system of a kind of workload."""
    return kind.__module__.removeprefix("gradloom.systems.").split(".")[0]


def test_there_is_a_preset_of_every_system():
    assert FOLDERS == sorted({home(type(preset.workload)) for preset in PRESETS.values()})
    assert FOLDERS == sorted({home(kind) for kind in KINDS.values()})


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("system", FOLDERS)
def test_a_system_has_its_files(system, file):
    assert (SYSTEMS / system / file).is_file()


@pytest.mark.parametrize("name", PRESETS)
def test_functions_of_a_preset_stand_in_its_system_and_exist(name):
    """Or in a room that serves all: models, sweeps, records of activity."""
    workload = PRESETS[name].workload
    for verb, where in workload.functions.items():
        assert callable(workload.function(verb))
        room = where.split(":")[0].removeprefix("gradloom.")
        assert room.startswith(
            (f"systems.{home(type(workload))}.", "sim.activity.", "sweeping.", "choosing.", "models.")
        )


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_learns_or_answers_and_tells_its_activity(name):
    workload = PRESETS[name].workload
    assert workload.can("energy")
    assert workload.can("infer")


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_kinds_are_those_of_presets(kind):
    assert KINDS[kind.kind] is kind and set(kind.takes) <= set(kind.functions)
    assert any(type(preset.workload) is kind for preset in PRESETS.values())
