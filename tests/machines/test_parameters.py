"""A machine's configuration is the sum of its engines' parameters, each given once."""

import dataclasses
import re
import types

import pytest

from gradloom import boards
from gradloom.firmware.device.machine import MachineDesign
from gradloom.preset import PRESETS
from gradloom.rtl.machines.configs.diffusion import DiffusionConfig
from gradloom.rtl.machines.configs.images import ImageConfig
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.rtl.machines.configs.recurrent import RecurrentConfig
from gradloom.rtl.machines.configs.sequence import SequenceConfig
from gradloom.rtl.machines.fabric import Fabric
from gradloom.rtl.machines.fit import check_fit
from gradloom.rtl.machines.language import LANGUAGE_MACHINE
from gradloom.rtl.shell.parameters import Parameters, Resources, ShellParameters, parameter
from gradloom.rtl.shell.table import needed_table, table_of

CONFIGS = pytest.mark.parametrize("kind", [ImageConfig, LanguageConfig])


@dataclasses.dataclass(frozen=True, kw_only=True)
class One(Parameters):
    size: int = parameter(8, 2, 64, power=True, known=True, mesh=True)

    def check(self):
        if self.size == 32:
            raise ValueError("one")

    def resources(self):
        return Resources(dsp={"one": self.size})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Other(Parameters):
    size: int = parameter(8, 2, 64, power=True, known=True, mesh=True)
    depth: int = parameter(3, 1, 5)

    def check(self):
        if self.depth == 4:
            raise ValueError("other")

    def resources(self):
        return Resources(dsp={"other": 2}, bits={"memory": self.depth * self.size})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Both(One, Other, ShellParameters):
    pass


@pytest.mark.parametrize("preset", PRESETS)
def test_forwards_are_of_machines_whose_ports_take_them(preset):
    config = PRESETS[preset].config
    takes = any(getattr(each.port, "forwards", False) for each in config.machine.engines.loads)
    assert takes == (type(config).largest("forwards") > 0)
    if not takes:
        with pytest.raises(ValueError, match="forwards=2: must be 0"):
            config.replace(forwards=2)


def test_a_parameter_of_two_engines_is_one_field():
    names = [field.name for field in dataclasses.fields(Both)]
    assert names.count("size") == 1 and {"depth", "clock_mhz"} < set(names)
    assert Both(size=16).known == {"size": 16}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Told(Parameters):
    size: int = parameter(8, 2, 64, known=True)
    room: int = parameter(4, 1, 9, least=True)
    mode: int = parameter(1, 0, 2, usual=0)


def test_what_a_machine_names():
    assert (Told().known, Told(mode=0).known) == ({"size": 8, "room": 4, "mode": 1}, {"size": 8, "room": 4})
    assert Told().least == {"room"}


#: What a table that does not name it means: those are machines on boards, whose tables nobody can change.
USUAL = {"activation_bits": 18, "cells": 1, "forwards": 1, "kernel": 2, "ties": 0}
#: A program is the same with any of it, and takes another time.
TIME = {
    *("address_bits", "outstanding", "queue_depth", "requests", "ports", "clock_mhz", "bank_luts", "table_cycles"),
    *("outputs", "dots", "ultra", "norm_lanes", "apart"),
}
#: An engine refuses a command, a LOAD or an opcode that has no room or no unit (BAD_OPERAND, UNKNOWN_OPCODE); slots of
#: the cache are in CONFIG_MEMORY, and the shell's.
REFUSED = {
    *("cache_slots", "taps", "adapter_depth", "weight_depth", "bias_depth", "feature_depth", "image_depth", "width"),
    *("positions", "dense_depth", "blocks", "gru", "records", "packing", "norm_slots", "element_slots"),
    "element_results",
}


@pytest.mark.parametrize("kind", [ImageConfig, LanguageConfig, RecurrentConfig, SequenceConfig, DiffusionConfig])
def test_a_parameter_is_known_or_no_program_means_another_thing(kind):
    """Whoever adds one says here why no table names it."""
    fields = dataclasses.fields(kind)
    assert {field.name for field in fields if not field.metadata["known"]} <= TIME | REFUSED | {"forwards"}
    assert {
        field.name: field.metadata["usual"] for field in fields if field.metadata["usual"] is not None
    }.items() <= USUAL.items()
    # Only machines whose ports take them have forwards.
    assert ("forwards" in kind().known or kind().forwards in (0, USUAL["forwards"])) and not TIME & REFUSED


@pytest.mark.parametrize("preset", PRESETS)
def test_a_table_tells_each_known_parameter(preset):
    """With the largest values there is still room for it."""
    config = PRESETS[preset].config
    for field in dataclasses.fields(config):
        if not field.metadata["known"]:
            continue
        low, high = field.metadata["low"], field.metadata["high"]
        for value in {low, high, field.metadata["usual"]} - {getattr(config, field.name), None}:
            try:
                other = config.replace(**{field.name: value})
            except ValueError:
                continue
            assert table_of(other) != table_of(config)
            said = MachineDesign(preset, needed_table(config), config.data_bits).differs_in_table(table_of(other))
            assert (field.name in said) != (field.metadata["least"] and value >= getattr(config, field.name))


def test_each_engine_checks_and_counts_its_own():
    for changes, who in (({"size": 32}, "one"), ({"depth": 4}, "other")):
        with pytest.raises(ValueError, match=who):
            Both(**changes)
    assert Both(depth=2).counted == Resources(dsp={"other": 2, "one": 8}, bits={"memory": 16})


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"size": 12}, "size=12: must be a power of two from 2 to 64"),
        ({"depth": 6}, "depth=6: must be an integer from 1 to 5"),
        ({"depth": True}, "depth=True: must be an integer from 1 to 5"),
        ({"depth": "3"}, "depth='3': must be an integer from 1 to 5"),
    ],
)
def test_a_value_out_of_bounds_is_refused(changes, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        Both(**changes)


def test_sizes_are_chosen_within_bounds():
    assert (Both.smallest("size", 9), Both.smallest("depth", 0), Both.smallest("depth", 6)) == (16, 1, None)
    assert Both.largest("size") == 64


@CONFIGS
def test_engines_that_share_a_parameter_agree_on_it(kind):
    """A machine may have another default; bounds and meaning are the same."""
    of = {
        field.name: (field.metadata["low"], field.metadata["high"], field.metadata["power"], field.metadata["known"])
        for field in dataclasses.fields(kind)
    }
    for engine in kind().machine.engines.own:
        for field in dataclasses.fields(engine.spec.parameters):
            bound = field.metadata
            assert of[field.name] == (bound["low"], bound["high"], bound["power"], bound["known"]), field.name


@CONFIGS
def test_a_parameter_that_the_shell_has_keeps_its_bounds(kind):
    for field in dataclasses.fields(ShellParameters):
        assert kind.largest(field.name) == ShellParameters.largest(field.name)
        assert kind.smallest(field.name, 0) == ShellParameters.smallest(field.name, 0)


@CONFIGS
def test_every_parameter_is_described(kind):
    described = "".join(each.__doc__ or "" for each in kind.__mro__)
    for field in dataclasses.fields(kind):
        assert re.search(rf"\b{field.name} : (int|float)", described) or f"{field.name}, " in described


def test_an_engine_needs_its_parameters_in_the_configuration():
    with pytest.raises(
        ValueError, match="engine linear: the machine's configuration ImageConfig must inherit LinearParameters"
    ):
        Fabric(LANGUAGE_MACHINE, ImageConfig(), 256)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_knows_its_machine(name):
    config = PRESETS[name].config
    assert all(isinstance(config, engine.spec.parameters) for engine in config.machine.engines.own)
    assert config.counted.dsp and config.counted.bits


def test_presets_ask_for_sixteen_reads_where_memory_is_no_part_of_the_chip():
    """The memory of the ECP5's presets takes one read at a time: more would only wait."""
    for preset in PRESETS.values():
        on_chip = boards.find(preset.board).family == "ecp5"
        assert preset.config.outstanding == (2 if on_chip else 16), preset.name


@pytest.mark.parametrize(
    "change, blocks",
    [
        ({}, 106),
        ({"rank": 16}, 107),
        ({"features": 4096, "groups": 2048}, 108.5),
        ({"rank": 16, "lane_depth": 2048, "features": 4096, "groups": 4096}, 143),
    ],
    ids=str,
)
def test_block_rams_by_count_are_those_of_open_synthesis(change, blocks):
    """Those of ``gradloom report`` for the KV260."""
    config = PRESETS["edge-qlora-kv260"].config.replace(**change)
    assert sum(config.counted.block_rams.values()) == blocks
    assert sum(config.counted.ultra_rams.values()) == 44
    check_fit(config, boards.find("kv260"))


def test_more_block_rams_than_a_board_has_are_refused():
    config = PRESETS["edge-qlora-kv260"].config
    for change, says in (
        ({"lane_depth": 4096}, "kv260 has 144 block RAMs, this design needs 202 (128 for adapters): make the depths"),
        ({"depth": 16384}, "kv260 has 64 ultra RAMs, this design needs 140 (128 for operands): make the depths"),
    ):
        with pytest.raises(ValueError, match=re.escape(says)):
            check_fit(config.replace(**change), boards.find("kv260"))


@pytest.mark.parametrize("name", ["dsp", "block_rams", "ultra_rams", "bits"])
def test_a_design_may_take_all_that_a_board_has_and_no_more(name):
    """Bits are those of both kinds of memory; what is refused is told with its largest part."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Design(Parameters):
        few: int = parameter(1, 0, 1 << 30)
        most: int = parameter(1, 0, 1 << 30)

        def resources(self):
            return Resources(**{name: {"few": self.few, "most": self.most}})

    board = types.SimpleNamespace(name="b", dsp=20, bram36=30, uram=40)
    has = {"dsp": 20, "block_rams": 30, "ultra_rams": 40, "bits": (30 * 36 + 40 * 288) * 1024}[name]
    check_fit(Design(few=2, most=has - 2), board)
    told = rf"^b has {has:,} .*, this design needs {has + 1:,} \({has - 1:,} for most\): make the \w+ smaller$"
    with pytest.raises(ValueError, match=told):
        check_fit(Design(few=2, most=has - 1), board)
