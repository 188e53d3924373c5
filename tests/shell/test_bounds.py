"""Sizes of the shell's parts: what is allowed is taken, the next value is refused in words."""

from enum import IntEnum

import pytest
from amaranth.lib.data import StructLayout

from gradloom.rtl.machines.images import IMAGES
from gradloom.rtl.shell.bus.axi import AXI4ReadSignature, AXILiteSignature, check_bursts, check_data_bits
from gradloom.rtl.shell.bus.read_ports import ReadPorts, burst_words
from gradloom.rtl.shell.bus.write_ports import WritePorts
from gradloom.rtl.shell.engines import Engines, EngineSpec, LoadPort, StorePort
from gradloom.rtl.shell.sequencer.scheduler import Scheduler
from gradloom.rtl.shell.sequencer.valid import ValidBits
from gradloom.sim.bench.engine import simulate

#: What is made of a value, all values that are allowed, some that are not, and how a refusal begins.
SIZES = {
    "outstanding": (lambda n: check_bursts(n, 16), (1, 2, 4, 8, 16, 32, 64), (0, 3, 128), "outstanding is"),
    "longest": (lambda n: check_bursts(16, n), (4, 8, 16), (2, 5, 12, 32), "longest is"),
    "data_bits": (check_data_bits, (64, 128, 256), (32, 65, 512), "data_bits is"),
    "other data_bits": (lambda n: check_data_bits(n, (128,)), (128,), (64, 256), "data_bits is"),
    "bits of AXI4": (
        lambda n: AXI4ReadSignature(addr_bits=32, data_bits=n, id_bits=1),
        (32, 64, 128, 256, 512, 1024),
        (16, 33, 2048),
        "data_bits is",
    ),
    "bits of AXI4-Lite": (lambda n: AXILiteSignature(data_bits=n), (32, 64), (16, 128), "data_bits is"),
    "bits of a port": (lambda n: burst_words(256, n), (64, 128, 256), (32, 512, 100), "(port|data)_bits is"),
    "bits of ports": (lambda n: burst_words(n, 128), (128, 256, 512), (64, 1024, 384), "data_bits is"),
    "ports that read": (lambda n: ReadPorts(ports=n), (2, 4), (1, 3, 5, 8), "ports is"),
    "ports that write": (lambda n: WritePorts(ports=n), (2, 4), (1, 3, 5, 8), "ports is"),
    "slots": (lambda n: ValidBits(slots=n), (64, 96, 65504), (32, 65, 63, 65536), "slots is"),
    "queue": (lambda n: Scheduler(IMAGES, depth=n), (2, 4, 8, 16, 32), (1, 3, 64), "queue depth is"),
}


@pytest.mark.parametrize("name", SIZES)
def test_a_size_is_one_of_those_that_are_allowed(name):
    make, allowed, others, said = SIZES[name]
    for value in allowed:
        make(value)
    for value in others:
        with pytest.raises(ValueError, match=f"^{said}.* must be "):
            make(value)


@pytest.mark.parametrize("slots", [64, 96])
def test_ranges_and_a_clear_take_so_many_cycles(slots):
    """Also where the words are no power of two."""
    bits, words, told = ValidBits(slots=slots), slots // 32, []

    async def process(ctx):
        async def until(signal, value):
            cycles = 1
            while ctx.get(signal) != value:
                await ctx.tick()
                cycles += 1
            return cycles

        for mark, cleared in ((1, False), (0, False), (0, True)):
            if cleared:
                ctx.set(bits.clear, 1)
                await ctx.tick()
                ctx.set(bits.clear, 0)
                assert await until(bits.busy, 0) == 1 + words
            ctx.set(bits.slot, 1)
            ctx.set(bits.count, slots - 1)
            ctx.set(bits.mark, mark)
            ctx.set(bits.start, 1)
            await ctx.tick()
            ctx.set(bits.start, 0)
            assert await until(bits.done, 1) == 9 + words
            told.append((ctx.get(bits.hits), ctx.get(bits.complete)))
            await ctx.tick()

    simulate(bits, process)
    assert told[1:] == [(slots - 1, 1), (0, 0)]


@pytest.mark.parametrize(("wide", "narrow", "words"), [(128, 128, 16), (256, 128, 8), (512, 128, 4), (256, 64, 4)])
def test_a_burst_of_a_port_has_so_many_beats_of_the_shell(wide, narrow, words):
    assert burst_words(wide, narrow) == words


def spec(name="one", **more):
    empty = StructLayout({"size": 16})
    return EngineSpec(**{"name": name, "opcodes": IntEnum("Opcode", ()), "default": empty, "phases": (name,)} | more)


def phases(count):
    """Engines with so many phases in all."""
    names = [f"phase_{n}" for n in range(count)]
    return Engines(*(spec(names[n], phases=tuple(names[n : n + 8])) for n in range(0, count, 8)))


def ports(count):
    return Engines(*(spec(name, loads=tuple(LoadPort(f"p{n}", "x") for n in range(count))) for name in ("a", "b")))


def test_so_many_phases_and_ports_have_numbers():
    assert len(phases(13).phases) == 16 and len(ports(128).loads) == 256
    assert len(Engines(*map(spec, "abcdefghijklm"))) == 16
    eight = spec(phases=tuple("abcdefgh"))
    assert Engines(eight).named("one").spec is eight and LoadPort("a", "x", StructLayout({"all": 32})).arg.size == 32


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: LoadPort("One", "x"), "port 'One': a name must be a lower-case identifier"),
        (lambda: LoadPort("one", "x", StructLayout({"all": 31})), "port one: arg has 31 bits, must have 32"),
        (lambda: spec(phases=tuple("abcdefghi")), "engine one: has 9 phases, must be 1 to 8"),
        (lambda: phases(14), "engines: 17 phases with the shell's three, must be at most 16"),
        (lambda: ports(129), "engines: 258 load ports, must be at most 256"),
        (lambda: spec("two words"), "engine 'two words': a name must be a lower-case identifier"),
        (lambda: spec(phases=()), "engine one: has 0 phases, must be 1 to "),
        (lambda: spec(loads=(LoadPort("a", "x"), LoadPort("a", "y"))), "engine one: has two load ports a; give one"),
        (lambda: spec(stores=(StorePort("a", "x"), StorePort("a", "y"))), "engine one: has two store ports a; give"),
        (lambda: Engines(spec(), spec()), "engine one: a machine has one engine of a name; give the second another"),
        (lambda: Engines(spec(), spec("two", phases=("one",))), "phase one: two engines of a machine have one of this"),
        (lambda: Engines(spec("load")), "engine load: a machine has one engine of a name"),
        (lambda: Engines(*map(spec, "abcdefghijklmn")), "engines: 14 besides the shell's, must be at most 13"),
        (lambda: Engines(spec()).named("two"), "engine 'two': this machine has one"),
        (lambda: Engines(spec()).named("one").load("x"), "load port 'x': engine one has none"),
    ],
)
def test_engines_of_a_machine_have_names_of_their_own(make, said):
    with pytest.raises(ValueError, match=f"^{said}"):
        make()
