"""One source is a tree of submodules to the simulator and of shared modules to Verilog."""

import gc
import warnings

import pytest
from amaranth.hdl import ClockDomain, Module, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from gradloom.rtl.hierarchy import Emitter, key_of, place
from gradloom.sim.bench.engine import simulate


class Scale(wiring.Component):
    """``o = factor * i``, a cycle later."""

    def __init__(self, *, factor=1, reset=True):
        self.factor = factor
        self.reset = reset
        super().__init__({"i": In(signed(8)), "o": Out(signed(16))})

    def elaborate(self, platform):
        m = Module()
        held = Signal(signed(16), reset_less=not self.reset)
        m.d.sync += held.eq(self.i * self.factor)
        m.d.comb += self.o.eq(held)
        return m


class Bank(wiring.Component):
    """Sum of scaled inputs; ``named`` drives the inputs through ``place``."""

    def __init__(self, *, factors, named=False):
        self.factors = tuple(factors)
        self.named = named
        super().__init__({"i": In(data.ArrayLayout(signed(8), len(self.factors))), "o": Out(signed(20))})

    def elaborate(self, platform):
        m = Module()
        total = 0
        for index, factor in enumerate(self.factors):
            inputs = {"i": self.i[index]} if self.named else {}
            unit = place(m, f"unit{index}", Scale(factor=factor), platform, **inputs)
            if not self.named:
                m.d.comb += unit.i.eq(self.i[index])
            total = total + unit.o
        m.d.comb += self.o.eq(total)
        return m


def emitted(component, name="top"):
    emitter = Emitter()
    return emitter.top(component, name, prefix="p_"), emitter


def outputs(component, samples):
    seen = []

    async def bench(ctx):
        for row in samples:
            ctx.set(component.i, row)
            await ctx.tick()
            seen.append(ctx.get(component.o))

    simulate(component, bench)
    return seen


@pytest.mark.parametrize("named", [False, True])
def test_the_simulator_sees_real_submodules(named):
    assert outputs(Bank(factors=(2, 3), named=named), [[1, 1], [-5, 100]]) == [5, 290]


@pytest.mark.parametrize("named", [False, True])
def test_equal_parameters_are_one_module(named):
    top, emitter = emitted(Bank(factors=(3, 3, 3, 5), named=named))
    assert sorted(module.name for module in emitter.modules) == ["p_scale_factor3", "p_scale_factor5", "top"]
    assert sorted(top.children.values()) == [1, 3]


def test_names_say_only_what_differs():
    _, emitter = emitted(Bank(factors=(3, 3)))
    assert [module.name for module in emitter.modules] == ["p_scale", "top"]


def test_leaves_come_first():
    _, emitter = emitted(Bank(factors=(3,)))
    assert [type(module.component) for module in emitter.modules] == [Scale, Bank]


def test_a_reset_that_is_not_used_is_not_a_port():
    with_reset, _ = emitted(Scale())
    without, _ = emitted(Scale(reset=False))
    assert "rst" in [port.name for port in with_reset.ports]
    assert [port.name for port in without.ports] == ["clk", "i", "o"]
    assert r"\rst" in with_reset.text and r"\rst" not in without.text


def test_ports_have_the_direction_and_width_of_their_members():
    class Pass(wiring.Component):
        def __init__(self):
            super().__init__({"i": In(stream.Signature(signed(7))), "o": Out(stream.Signature(signed(7)))})

        def elaborate(self, platform):
            m = Module()
            wiring.connect(m, wiring.flipped(self.i), wiring.flipped(self.o))
            return m

    top, _ = emitted(Pass())
    assert {port.name: (port.direction, port.width) for port in top.ports} == {
        "i__payload": ("input", 7),
        "i__valid": ("input", 1),
        "i__ready": ("output", 1),
        "o__payload": ("output", 7),
        "o__valid": ("output", 1),
        "o__ready": ("input", 1),
    }


def test_whatever_is_stored_tells_components_apart():
    class Table(wiring.Component):
        def __init__(self, words):
            self.words = list(words)
            super().__init__({"i": In(2), "o": Out(8)})

    assert key_of(Table([1, 2])) == key_of(Table([1, 2]))
    assert key_of(Table([1, 2])) != key_of(Table([2, 1]))
    assert key_of(Table([object()])) != key_of(Table([object()]))


def test_a_key_of_its_own_counts_alone():
    class Keyed(Scale):
        key = ("all alike",)

    assert key_of(Keyed(factor=1)) == key_of(Keyed(factor=2))


def test_things_that_cannot_be_compared_meet_by_their_text():
    class Odd(Scale):
        def __init__(self):
            super().__init__()
            self.token = object()

    class Pair(wiring.Component):
        def __init__(self):
            super().__init__({"i": In(signed(8)), "o": Out(signed(16))})

        def elaborate(self, platform):
            m = Module()
            first, second = place(m, "first", Odd(), platform), place(m, "second", Odd(), platform)
            m.d.comb += [first.i.eq(self.i), second.i.eq(self.i), self.o.eq(first.o ^ second.o)]
            return m

    top, emitter = emitted(Pair())
    assert len(emitter.modules) == 2 and list(top.children.values()) == [2]


def test_another_clock_domain_is_refused():
    class Foreign(wiring.Component):
        def __init__(self):
            super().__init__({"o": Out(1)})

        def elaborate(self, platform):
            m = Module()
            m.d.fast += self.o.eq(~self.o)
            return m

    with pytest.raises(ValueError, match="'fast'"):
        emitted(Foreign())


def test_a_domain_of_its_own_is_fine():
    class Halved(wiring.Component):
        def __init__(self):
            super().__init__({"clock": In(1), "o": Out(1)})

        def elaborate(self, platform):
            m = Module()
            m.domains.other = other = ClockDomain(local=True, reset_less=True)
            m.d.comb += other.clk.eq(self.clock)
            m.d.other += self.o.eq(~self.o)
            return m

    top, _ = emitted(Halved())
    assert "o" in [port.name for port in top.ports]


def test_only_components_can_be_placed():
    with pytest.raises(TypeError, match="Component"):
        Emitter().module(Module())


def test_nothing_is_said_of_components_that_others_stand_for():
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        emitted(Bank(factors=(1,) * 6))
        gc.collect()
    assert not [each for each in said if "Scale" in str(each.message)]
