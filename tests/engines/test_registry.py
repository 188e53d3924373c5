"""One engine, four places, one name; and a page of opcodes, a proof of streams and a budget."""

import importlib
import re
import runpy
from pathlib import Path

import pytest

from gradloom.boards.budgets import budgets
from gradloom.preset import PRESETS
from gradloom.rtl.machines.diffusion import DIFFUSION
from gradloom.rtl.machines.images import IMAGES
from gradloom.rtl.machines.language import LANGUAGE
from gradloom.rtl.machines.recurrent import RECURRENT
from gradloom.sim.proofs.claim import streams_of
from gradloom.sim.time.forecast import MODELS

from ..proofs.catalog import PROOFS

ROOT = Path(__file__).parents[2]
ENGINES = {engine.name: engine for table in (IMAGES, LANGUAGE, RECURRENT, DIFFUSION) for engine in table.own}
named = pytest.mark.parametrize("name", ENGINES)


def component(name):
    """The class of an engine's hardware."""
    module = importlib.import_module(f"gradloom.rtl.engines.{name}.engine")
    found = [each for each in (f"{name.capitalize()}Engine", name.capitalize()) if hasattr(module, each)]
    assert found, f"rtl/engines/{name}/engine.py: has no {name.capitalize()}Engine"
    return found[0]


def presets(name):
    """Presets whose machine has the engine."""
    return [
        preset
        for preset, each in PRESETS.items()
        if name in (engine.name for engine in each.config.machine.engines.own)
    ]


def offers(preset, name):
    """Whether the engine offers a stream in the preset."""
    unit = ENGINES[name].spec.unit(ENGINES[name].spec, PRESETS[preset].config)
    return not all(is_input for _name, is_input, _port in streams_of(unit))


@named
@pytest.mark.parametrize(
    "place",
    [
        "rtl/engines/{}/engine.py",
        "rtl/engines/{}/spec.py",
        "sim/reference/{}.py",
        "sim/time/{}.py",
        "tests/engines/{}/__init__.py",
        "tests/engines/{}/proofs.py",
    ],
)
def test_an_engine_has_one_name_in_every_place(name, place):
    assert (ROOT / place.format(name)).is_file()


def test_every_engine_has_a_model_of_its_time():
    assert set(MODELS) == set(ENGINES)
    for name, model in MODELS.items():
        assert model.__module__ == f"gradloom.sim.time.{name}"


@pytest.fixture(scope="module")
def instructions():
    """The page of instruction sets, as the site has it."""
    return "\n".join(runpy.run_path(str(ROOT / "docs/site.py"))["PARTS"]["instructions"]())


@named
def test_every_opcode_is_described(name, instructions):
    section = re.search(rf"^### {name}$.*?(?=^##|\Z)", instructions, re.MULTILINE | re.DOTALL)
    assert section, f"docs/reference/instructions.md: has no section for the engine {name}"
    for opcode in ENGINES[name].spec.opcodes:
        assert re.search(rf"^\| {int(opcode)} \| `{opcode.name}` \| \S", section[0], re.MULTILINE), opcode.name


@named
def test_a_self_tests_copy_is_whole_groups_of_words(name):
    """As wide as words of memory may be, and from 1 to all of a group come back."""
    for config in (PRESETS[preset].config for preset in presets(name) if ENGINES[name].spec.loop is not None):
        loop = ENGINES[name].spec.loop(config)
        assert loop.bits in (8, 16, 32) and 1 <= loop.kept <= loop.group
        assert loop.beats >= 1 and loop.beats * config.data_bits % (loop.bits * loop.group) == 0


@named
def test_streams_are_proven(name):
    """Of every engine that offers one: alone, or in all engines of a preset at once."""
    proven = {proof.name for proof in PROOFS}
    shown = proven & {
        f"streams-{what}-{preset}" for preset in presets(name) for what in (component(name).lower(), "fabric")
    }
    # Of what a proof would say nothing is not in the list of what is proven.
    assert bool(shown) == any(offers(preset, name) for preset in presets(name))


@named
def test_every_preset_with_an_engine_has_a_budget_for_it(name):
    module = "gradloom_" + re.sub(r"(?<=[a-z])(?=[A-Z])", "_", component(name)).lower()
    assert presets(name)
    for preset in presets(name):
        assert module in budgets()[preset]
