"""Any number of engines stands in the shell; the drivers read from it what there is."""
import ctypes
import subprocess
from importlib.resources import files

import pytest

from gradloom.firmware.machine import parse_table
from gradloom.rtl.machines.engines import IMAGES, LANGUAGE
from gradloom.rtl.shell.engines import Engines
from gradloom.rtl.shell.table import machine_table, table_words
from gradloom.sim.run import runner

from .bench import built
from .family import FAMILIES, family


@pytest.mark.parametrize("count", FAMILIES)
def test_the_shell_runs_any_number_of_engines(count, tmp_path):
    runner.run_cocotb(built(engines=family(count)), top="shell_bench", module="tests.shell.family_laws",
                      directory=tmp_path, environment={"ENGINES": str(count), "DATA_BITS": "128"})


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The C driver."""
    target = tmp_path_factory.mktemp("driver") / "libgradloom.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(target), str(files("gradloom.firmware") / "gradloom.c")],
                   check=True)
    return ctypes.CDLL(str(target))


@pytest.mark.parametrize("engines", [*map(family, FAMILIES), IMAGES, LANGUAGE], ids=lambda each: str(len(each)))
def test_both_drivers_read_every_machines_table(engines, library):
    parameters = {"rows": 25, "row": 7, "rank": 4}
    for loop in (None, (5, 4)):
        text = machine_table(engines, parameters, loop)
        table = parse_table(text)
        assert (table.parameters, table.loop, table.phases) == (parameters, loop, engines.phases)
        name = ctypes.create_string_buffer(32)
        for number, phase in enumerate((*engines.phases, "")):
            library.gl_phase_name(text.encode(), number, name)
            assert name.value.decode() == phase
        for key, value in (*parameters.items(), ("ro", 99), ("rowsy", 99), ("25", 99)):
            assert library.gl_parameter(text.encode(), key.encode(), 99) == value


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
        Engines(*(type(one)(name=f"e{n}", opcodes=one.opcodes, default=one.default,
                            phases=tuple(f"p{n}_{p}" for p in range(7))) for n in range(2)))
    with pytest.raises(ValueError, match="a name must be a lower-case identifier"):
        type(one)(name="Array", opcodes=one.opcodes, default=one.default, phases=("p",))
    with pytest.raises(ValueError, match="engine e: has 0 phases, must be 1 to 8"):
        type(one)(name="e", opcodes=one.opcodes, default=one.default, phases=())
