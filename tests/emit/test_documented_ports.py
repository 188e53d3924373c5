"""Ports have the widths and directions that their units' docstrings say."""

import inspect
import re

import pytest
from amaranth.hdl import Shape
from amaranth.lib import wiring

from gradloom.preset import find_preset
from gradloom.rtl.hierarchy import Emitter
from gradloom.rtl.machines.accelerator import Accelerator

#: ``slot, count : ``In(32)````: names, direction, bits.
PORT = re.compile(r"((?:\w+, )*\w+) : ``(In|Out)\((\d+)\)``")


@pytest.fixture(scope="module")
def components():
    """One of each class in two machines that have most of them."""
    found, made = {}, wiring.Component.__init__

    def noted(self, *arguments, **keywords):
        made(self, *arguments, **keywords)
        found.setdefault(type(self), self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wiring.Component, "__init__", noted)
        for preset in ("edge-qlora-kv260", "digits-ulx3s"):
            Emitter().top(Accelerator(find_preset(preset).config), "machine", prefix="machine_")
    return found


def test_ports_are_as_wide_as_their_documentation_says(components):
    said = {}
    for cls, component in components.items():
        for names, flow, width in PORT.findall(inspect.getdoc(cls) or ""):
            for name in names.split(", "):
                # Some machines leave a port out.
                if name in component.signature.members:
                    member = component.signature.members[name]
                    assert member.is_port, f"{cls.__qualname__}.{name}"
                    found = member.flow.name, Shape.cast(member.shape).width
                    said[cls, name] = found == (flow, int(width))
    assert len(said) >= 140
    assert all(said.values()), [f"{cls.__qualname__}.{name}" for (cls, name), right in said.items() if not right]
