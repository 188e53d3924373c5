"""What connects engines and shell: a beat of LOAD waits for its own port alone, a request of STORE too."""

import itertools
from dataclasses import replace

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring

from gradloom.rtl.machines.fabric import Fabric, Machine
from gradloom.rtl.shell.engines import Engines
from gradloom.sim.bench.engine import simulate

from ..shell.family import family


class Gates(wiring.Component):
    """An engine whose ports take beats, refuse them and give beats as a bench says."""

    def __init__(self, spec, config):
        self.loads = [f"load_{port.name}" for port in spec.loads]
        self.stores = [f"store_{port.name}" for port in spec.stores]
        self.open, self.no = (Signal(len(self.loads), name=name) for name in ("open", "no"))
        self.asks, self.gives = (Signal(max(len(self.stores), 1), name=name) for name in ("asks", "gives"))
        super().__init__(spec.members(128))

    def elaborate(self, platform):
        m = Module()
        for n, name in enumerate(self.loads):
            port = getattr(self, name)
            m.d.comb += [port.beats.ready.eq(self.open[n]), port.refuse.eq(self.no[n])]
        for n, name in enumerate(self.stores):
            port = getattr(self, name)
            m.d.comb += [port.request.ready.eq(self.asks[n]), port.beats.valid.eq(self.gives[n]), port.refuse.eq(0)]
        return m


@pytest.fixture
def fabric():
    specs = [replace(each.spec, unit=Gates, loop=None) for each in family(4).own]
    return Fabric(Machine(Engines(*specs), ()), None, 128)


def ports(fabric, kind):
    """Unit and place of each port, by number."""
    return [(unit, n) for unit in fabric._units.values() for n in range(len(getattr(unit, kind)))]


def test_a_beat_waits_for_its_own_port_alone(fabric):
    loads = ports(fabric, "loads")
    assert len(loads) > 2

    async def play(ctx):
        ctx.set(fabric.load.valid, 1)
        for number, gates in itertools.product(range(len(loads) + 1), itertools.product((0, 1), repeat=len(loads))):
            ctx.set(fabric.load.p.to, 1 << number)
            for kind, value in (("open", gates), ("no", gates[::-1])):
                for unit in fabric._units.values():
                    bits = [value[at] for at, (owner, _) in enumerate(loads) if owner is unit]
                    ctx.set(getattr(unit, kind), sum(bit << n for n, bit in enumerate(bits)))
            here = [ctx.get(getattr(unit, unit.loads[n]).beats.valid) for unit, n in loads]
            assert here == [at == number for at in range(len(loads))]
            # A number that no port has is taken, and refused a cycle later.
            known = number < len(loads)
            assert ctx.get(fabric.load.ready) == (gates[number] if known else 1)
            await ctx.tick()
            assert ctx.get(fabric.refuse) == (gates[::-1][number] if known else 1)

    simulate(fabric, play)


def test_a_request_waits_for_its_own_port_alone(fabric):
    stores = ports(fabric, "stores")
    assert len(stores) > 1

    async def play(ctx):
        for number, gates in itertools.product(range(len(stores)), itertools.product((0, 1), repeat=len(stores))):
            ctx.set(fabric.request.p, {"source": number, "beats": 1})
            for unit in fabric._units.values():
                bits = [gates[at] for at, (owner, _) in enumerate(stores) if owner is unit]
                ctx.set(unit.asks, sum(bit << n for n, bit in enumerate(bits)))
                ctx.set(unit.gives, (1 << len(unit.gives)) - 1)
            await ctx.tick()
            ctx.set(fabric.request.valid, 1)
            asked = [ctx.get(getattr(unit, unit.stores[n]).request.valid) for unit, n in stores]
            assert asked == [at == number for at in range(len(stores))]
            assert ctx.get(fabric.request.ready) == gates[number] and not ctx.get(fabric.store.valid)
            if gates[number]:
                await ctx.tick()
                # Its beats alone are STORE's, until the last is taken; no request is until then.
                assert ctx.get(fabric.store.valid) and not ctx.get(fabric.request.ready)
                assert not any(ctx.get(getattr(unit, unit.stores[n]).request.valid) for unit, n in stores)
                ctx.set(fabric.store.ready, 1)
                taken = [ctx.get(getattr(unit, unit.stores[n]).beats.ready) for unit, n in stores]
                assert taken == [at == number for at in range(len(stores))]
                ctx.set(fabric.request.valid, 0)
                await ctx.tick()
                ctx.set(fabric.store.ready, 0)
                assert not ctx.get(fabric.store.valid)
            ctx.set(fabric.request.valid, 0)

    simulate(fabric, play)
