"""How arrays become a unit's streams, and streams arrays."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from amaranth.hdl import Shape
from amaranth.lib import data

__all__ = [
    "Arrays",
    "UnitAdapter",
    "UnitArray",
    "UnitFeed",
    "pack",
    "payload_shape",
    "signed_array",
    "unpack",
    "unsigned_array",
]

Arrays = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnitArray:
    """An array in a file.

    ``shape`` in words, ``units`` of one count, bounds of its integers.
    """

    name: str
    shape: tuple[str | int, ...]
    units: str
    description: str
    low: int = 0
    high: int = 0
    optional: bool = False

    def as_dict(self) -> dict[str, str]:
        """Plain values, for JSON."""
        label = f"integer {self.low} to {self.high}" + (", optional" if self.optional else "")
        return {
            "name": self.name,
            "shape": f"({', '.join(map(str, self.shape))}{',' * (len(self.shape) == 1)})",
            "dtype": label,
            "units": self.units,
            "description": self.description,
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnitFeed:
    """Inputs of a simulation.

    They are payloads by input stream, beats to await by output, ``held`` inputs.

    ``stall``: seed by which outputs are ready every other cycle, in simulators of Verilog; always, without.
    """

    inputs: dict[str, list[int]]
    outputs: dict[str, int]
    held: dict[str, int] = dataclasses.field(default_factory=dict)
    stall: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnitAdapter:
    """How a unit's arrays are its streams.

    ``feed(component, arrays)`` makes beats, ``collect(component, arrays, beats)`` makes arrays of what came
    out, ``reference(parameters, arrays)`` says what should have. ``inputs`` and ``outputs`` describe the
    arrays for the given parameters. ``busy(arrays)``: cycles for which all of the unit must work; where it is
    given, the result tells the share of the cycles that this is. ``wrap``: makes a component with stream ports of a
    unit that has others; all else is given that component.
    """

    inputs: Callable[[Mapping[str, Any]], list[UnitArray]]
    outputs: Callable[[Mapping[str, Any]], list[UnitArray]]
    feed: Callable[[Any, Arrays], UnitFeed]
    collect: Callable[[Any, Arrays, dict[str, list[Any]]], Arrays]
    reference: Callable[[Mapping[str, Any], Arrays], Arrays]
    busy: Callable[[Arrays], int] | None = None
    wrap: Callable[[Any], Any] | None = None


def signed_array(name: str, bits: int, shape: tuple[str | int, ...], units: str, description: str) -> UnitArray:
    """An array of signed integers of ``bits`` bits."""
    return UnitArray(
        name=name, shape=shape, units=units, description=description, low=-(1 << (bits - 1)), high=(1 << (bits - 1)) - 1
    )


def unsigned_array(name: str, bits: int, shape: tuple[str | int, ...], units: str, description: str) -> UnitArray:
    """An array of integers of ``bits`` bits without sign."""
    return UnitArray(name=name, shape=shape, units=units, description=description, high=(1 << bits) - 1)


def payload_shape(component: Any, name: str) -> Any:
    """Shape of the payload of a stream port."""
    return component.signature.members[name].signature.members["payload"].shape


def pack(shape: Any, value: Any) -> int:
    """``value`` as the bits of ``shape``.

    It is nested mappings and sequences of integers.
    """
    if isinstance(shape, data.StructLayout):
        return sum(pack(shape.members[name], item) << shape[name].offset for name, item in value.items())
    if isinstance(shape, data.ArrayLayout):
        width = Shape.cast(shape.elem_shape).width
        return sum(pack(shape.elem_shape, item) << (index * width) for index, item in enumerate(value))
    shape = Shape.cast(shape)
    return int(value) & ((1 << shape.width) - 1)


def unpack(shape: Any, bits: int) -> Any:
    """Inverse of :func:`pack`."""
    if isinstance(shape, data.StructLayout):
        return {name: unpack(member, bits >> shape[name].offset) for name, member in shape.members.items()}
    if isinstance(shape, data.ArrayLayout):
        width = Shape.cast(shape.elem_shape).width
        return [unpack(shape.elem_shape, bits >> (index * width)) for index in range(shape.length)]
    shape = Shape.cast(shape)
    bits &= (1 << shape.width) - 1
    return bits - (1 << shape.width) if shape.signed and bits >> (shape.width - 1) else bits
