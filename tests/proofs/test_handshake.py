"""No stream of a preset waits with its ``valid`` for its ``ready``; which readers look at ``valid`` is written down."""

import pytest
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from gradloom.preset import PRESETS
from gradloom.rtl.emit.verilog import convert
from gradloom.sim.run.builds.designs import design

from ..deep import deep
from .handshake import Handshakes

#: Readers that look at what is offered before they take it: engines at a command, which they judge first, what joins
#: several streams, and what passes one on. Their writers never wait, so none of these is a circle.
IMAGES = {"array__command", "encode__command", "shell.sequencer.i"}
LANGUAGE = {
    *(f"engines.inner.unit.vector.{name}" for name in "abc"),
    "engines.inner.unit.gradient.queue.o",
    "engines.inner.unit.linear.linear.job",
    "engines.inner.unit.linear.linear.stager.job",
    "shell.sequencer.i",
}
#: By the first engine of the machine.
LOOKED_AT = {"array": IMAGES, "linear": LANGUAGE, "cell": {"shell.sequencer.i"}, "product": {"shell.sequencer.i"}}
#: Writers that look at ``ready``, by the same: a job goes to two queues at once, and a beat of gradients leaves in no
#: cycle of one of words. Their readers' ``ready`` looks at no ``valid``, so none of these is a circle.
WAITING = {
    "product": [
        "engines.inner.unit.product.kept.jobs",
        "engines.inner.unit.product.rows.jobs",
        "engines.inner.unit.update.gradient",
    ]
}
#: A preset of each configuration that presets have.
MACHINES = {preset.config: name for name, preset in reversed(list(PRESETS.items()))}.values()


class Waits(wiring.Component):
    """A writer and a reader that wait, and a writer that waits for no more than the cycle before."""

    def __init__(self):
        super().__init__(
            {"i": In(stream.Signature(4)), "o": Out(stream.Signature(4)), "kept": Out(stream.Signature(1))}
        )

    def elaborate(self, platform):
        m = Module()
        m.d.comb += [
            self.o.p.eq(self.i.p + 1),
            self.o.valid.eq(self.i.valid & self.o.ready),
            self.i.ready.eq(self.i.valid & self.o.ready),
        ]
        m.d.sync += self.kept.valid.eq(self.kept.ready)
        return m


@pytest.mark.parametrize(
    "preset", [pytest.param(name, marks=() if name == "digits-ulx3s" else deep) for name in MACHINES]
)
def test_no_valid_waits_for_its_ready(preset, tmp_path):
    config = PRESETS[preset].config
    found = Handshakes(design(config), "gradloom", tmp_path)
    first = config.machine.engines.own[0].name
    assert len(found.streams) > 20
    assert found.valid_waits() == WAITING.get(first, [])
    assert set(found.ready_waits()) == LOOKED_AT[first]


def test_what_waits_is_found(tmp_path):
    path = tmp_path / "waits.v"
    path.write_text(convert(Waits(), name="waits").files["waits"])
    found = Handshakes([path], "waits", tmp_path)
    assert found.valid_waits() == ["o"] and found.ready_waits() == ["i"] and len(found.streams) == 3
