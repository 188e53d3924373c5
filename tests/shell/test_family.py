"""Any number of engines stands in the shell; the drivers read from it what there is."""

import ctypes
import functools
import subprocess
from dataclasses import replace

import pytest
from amaranth.lib.data import StructLayout

from gradloom.firmware.chip.soc_image import includes, source
from gradloom.firmware.device.machine import MachineDesign, parse_table
from gradloom.rtl.machines.configs.diffusion import DiffusionConfig
from gradloom.rtl.machines.configs.images import ImageConfig
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.rtl.machines.configs.recurrent import RecurrentConfig
from gradloom.rtl.machines.configs.sequence import SequenceConfig
from gradloom.rtl.machines.fabric import Fabric, Machine, Wire
from gradloom.rtl.machines.images import IMAGES
from gradloom.rtl.machines.language import LANGUAGE
from gradloom.rtl.shell.engines import Engines, LoadPort
from gradloom.rtl.shell.table import machine_table, needed_table, table_of, table_words

from ..deep import DEEP
from ..laws import cases
from .bench import built
from .family import FAMILIES, family, machine

#: Of those machines that need one.
CONFIGS = {IMAGES: ImageConfig(), LANGUAGE: LanguageConfig()}


@functools.cache
def _built(count):
    engines = family(count)
    return built(engines=engines, machine=machine(engines))


@pytest.mark.parametrize(
    "count, law",
    #: The ends without GRADLOOM_DEEP=1.
    [case for count in FAMILIES[:: 1 if DEEP else 3] for case in cases("tests.shell.laws.family_laws", count)],
)
def test_the_shell_runs_any_number_of_engines(count, law, law_holds):
    law_holds(
        law,
        module="tests.shell.laws.family_laws",
        where=_built(count),
        top="shell_bench",
        ENGINES=str(count),
        DATA_BITS="128",
    )


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The C driver."""
    target = tmp_path_factory.mktemp("driver") / "libgradloom.so"
    subprocess.run(["gcc", "-shared", "-fPIC", *includes(), "-o", str(target), str(source("gradloom.c"))], check=True)
    return ctypes.CDLL(str(target))


@pytest.mark.parametrize("engines", [*map(family, FAMILIES), IMAGES, LANGUAGE], ids=lambda each: str(len(each)))
def test_both_drivers_read_every_machines_table(engines, library):
    parameters = {"rows": 25, "row": 7, "rank": 4}
    for loop in (None, *((each, each.spec.loop(CONFIGS.get(engines))) for each in engines.own if each.spec.loop)):
        text = machine_table(engines, parameters, loop)
        table = parse_table(text)
        assert (table.parameters, table.phases) == (parameters, engines.phases)
        assert table.loads == tuple(map(str, engines.loads)) and table.stores == tuple(map(str, engines.stores))
        if loop is None:
            assert table.loop is None
        else:
            engine, way = loop
            assert (table.loop.dest, table.loop.source) == (engine.load(way.load), engine.store(way.store))
            assert all(
                getattr(table.loop, name) == getattr(way, name) for name in ("arg", "beats", "bits", "kept", "group")
            )
        name = ctypes.create_string_buffer(32)
        for number, phase in enumerate((*engines.phases, "")):
            library.gl_phase_name(text.encode(), number, name)
            assert name.value.decode() == phase
        for key, value in (*parameters.items(), ("ro", 99), ("rowsy", 99), ("25", 99)):
            assert library.gl_parameter(text.encode(), key.encode(), 99) == value


#: A board's configuration, that of a program, and what both drivers say.
UNLIKE = {
    "the same": (LanguageConfig(), LanguageConfig(), ""),
    "more of all that may be more": (
        LanguageConfig(features=4096, head=128, groups=2048, lane_depth=2048, gelu=1),
        LanguageConfig(),
        "",
    ),
    "no GELU": (LanguageConfig(), LanguageConfig(gelu=1), "gelu=0, must be at least 1 (--set gelu=1)"),
    "shorter rows": (
        LanguageConfig(features=1024),
        LanguageConfig(),
        "features=1024, must be at least 2048 (--set features=2048)",
    ),
    "more operands": (LanguageConfig(depth=4096), LanguageConfig(), "depth=4096, must be 2048 (--set depth=2048)"),
    "a higher rank": (LanguageConfig(rank=16), LanguageConfig(), "rank=16, must be 8 (--set rank=8)"),
    "other words": (ImageConfig(), ImageConfig(activation_bits=18), "activation_bits=24, must be as usual"),
    "usual words": (
        ImageConfig(activation_bits=18),
        ImageConfig(),
        "activation_bits is as usual, must be 24 (--set activation_bits=24)",
    ),
    "smaller windows": (ImageConfig(kernel=3), ImageConfig(), "kernel=3, must be 5 (--set kernel=5)"),
    "several cells": (RecurrentConfig(cells=2), RecurrentConfig(), "cells=2, must be as usual"),
    "other ties": (RecurrentConfig(), RecurrentConfig(ties=1), "ties is as usual, must be 1 (--set ties=1)"),
    "no forwards": (DiffusionConfig(forwards=0), DiffusionConfig(), "forwards=0, must be as usual"),
    "another machine": (ImageConfig(), SequenceConfig(), "hidden is as usual, must be 64 (--set hidden=64)"),
}


@pytest.mark.parametrize("case", UNLIKE)
def test_both_drivers_compare_a_program_with_its_machine(case, library):
    there, made_for, said = UNLIKE[case]
    table, needs = table_of(there), needed_table(made_for)
    why = ctypes.create_string_buffer(b"?" * 112, 112)
    assert library.gl_unlike(table.encode(), needs.encode(), why) == len(said)
    assert not said or why.value.decode() == said
    found = MachineDesign("mine", needs, there.data_bits).differs_in_table(table)
    assert found.startswith(said) and bool(found) == bool(said)
    # What nobody else's programs need is what a machine's own are content with.
    assert library.gl_unlike(table.encode(), table.encode(), why) == 0


def test_engines_and_ports_are_compared_too(library):
    why = ctypes.create_string_buffer(112)
    for table, needs in (("a=1;;x:p:i:o", "a=1;;x:p:i:q"), ("a=1;;x:p:i:o", "a>=1;"), ("a=1;", "a=1;;x:p:i:o")):
        assert library.gl_unlike(table.encode(), needs.encode(), why) == len("other engines or ports")
        assert MachineDesign("mine", needs, 128).differs_in_table(table) == "other engines or ports"


def test_no_text_leaves_the_room_for_what_is_unlike(library):
    """A job's text is whoever's who wrote the card."""
    why = ctypes.create_string_buffer(b"!" * 128, 128)
    for needs in (f"{'n' * 400}=1;", f"n={'9' * 400};", ",,=;", "=", ">", "n", "n>", ""):
        length = library.gl_unlike(b"n=5;", needs.encode(), why)
        assert 0 < length < 112 and len(why.value) == length and why.raw[112:] == b"!" * 16


def test_a_table_ends_with_a_zero_byte():
    for length in range(9):
        words = table_words("x" * length)
        assert words[-1] == 0
        assert b"".join(word.to_bytes(4, "little") for word in words).rstrip(b"\0") == b"x" * length


def test_engines_that_cannot_stand_together_are_refused():
    one, two = (each.spec for each in family(2).own)
    with pytest.raises(ValueError, match="engine dummy_0: a machine has one engine of a name"):
        Engines(one, two, one)
    for engines in (IMAGES, LANGUAGE):
        with pytest.raises(ValueError, match="a machine has one engine of a name"):
            Engines(*(each.spec for each in engines.own), engines.own[0].spec)
    with pytest.raises(ValueError, match="phase phase_0_0: two engines"):
        Engines(one, type(one)(name="other", opcodes=one.opcodes, default=one.default, phases=one.phases))
    with pytest.raises(ValueError, match="engines: 14 besides the shell's, must be at most 13"):
        family(14)
    with pytest.raises(ValueError, match="engines: 17 phases with the shell's three, must be at most 16"):
        Engines(
            *(
                type(one)(
                    name=f"e{n}", opcodes=one.opcodes, default=one.default, phases=tuple(f"p{n}_{p}" for p in range(7))
                )
                for n in range(2)
            )
        )
    with pytest.raises(ValueError, match="a name must be a lower-case identifier"):
        type(one)(name="Array", opcodes=one.opcodes, default=one.default, phases=("p",))
    with pytest.raises(ValueError, match="engine e: has 0 phases, must be 1 to 8"):
        type(one)(name="e", opcodes=one.opcodes, default=one.default, phases=())


def test_ports_and_wires_that_do_not_fit_are_refused():
    one, two = (each.spec for each in family(2).own)
    with pytest.raises(ValueError, match="engine dummy_0: has two load ports l0"):
        replace(one, loads=(*one.loads, one.loads[0]))
    with pytest.raises(ValueError, match="port 'A': a name must be a lower-case identifier"):
        LoadPort("A", "words")
    with pytest.raises(ValueError, match="port a: arg has 31 bits, must have 32"):
        LoadPort("a", "words", StructLayout({"word": 31}))
    with pytest.raises(ValueError, match="engines: 260 load ports, must be at most 256"):
        Engines(replace(one, loads=tuple(LoadPort(f"p{n}", "words") for n in range(260))))
    engines = Engines(one, two)
    with pytest.raises(ValueError, match="load port 'x': engine dummy_0 has l0, l1"):
        engines.own[0].load("x")
    with pytest.raises(ValueError, match="store port 'x': engine dummy_1 has s0, s1"):
        engines.own[1].store("x")

    def made(*wires, engines=engines):
        return Fabric(Machine(engines, tuple(Wire(*each) for each in wires)), None, 128)

    ring = [("dummy_0.tell", "dummy_1.told"), ("dummy_1.tell", "dummy_0.told")]
    made(*ring)
    for wires, message in (
        (ring[:1], "machine: no wire leads to dummy_0.told, dummy_1.tell"),
        ([*ring, ring[0]], "wire dummy_0.tell - dummy_1.told: dummy_0.tell has another wire or is none"),
        ([("dummy_0.engine", "dummy_1.told")], "dummy_0.engine has another wire or is none"),
        ([("dummy_0.tell", "other.told")], "wire dummy_0.tell - other.told: there is no engine other"),
        (
            [("dummy_0.tell", "dummy_1.tell"), ("dummy_0.told", "dummy_1.told")],
            "wire dummy_0.tell - dummy_1.tell: Out\\(8\\) does not fit Out\\(8\\)",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            made(*wires)
    with pytest.raises(ValueError, match="engine dummy_0: its unit needs a member load_l0"):
        Fabric(machine(engines), None, 64)
    with pytest.raises(ValueError, match="engine dummy_0: has no unit"):
        made(engines=Engines(replace(one, unit=None)))
