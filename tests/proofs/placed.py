"""What the machine of a preset is made of: its units, as it makes them."""

import functools

from amaranth.hdl import Fragment
from amaranth.lib.wiring import Component

from gradloom.preset import PRESETS
from gradloom.rtl.hierarchy import key_of
from gradloom.rtl.machines.fabric import Fabric

__all__ = ["units_of"]


@functools.cache
def units_of(preset):
    """The different units in the engines of ``preset`` by the names of their classes: none twice that is equal."""
    config = PRESETS[preset].config
    found = {}

    def walk(fragment):
        for origin in fragment.origins or ():
            if isinstance(origin, Component):
                found.setdefault(type(origin).__name__, {}).setdefault(key_of(origin), origin)
        for inner, _name, _source in fragment.subfragments:
            walk(inner)

    walk(Fragment.get(Fabric(config.machine, config, config.shell["data_bits"]), None))
    return {name: list(units.values()) for name, units in found.items()}
