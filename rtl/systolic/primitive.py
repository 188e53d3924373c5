"""DSP slices by name: Verilog that replaces a module in synthesis.

::

    PE, multiply-add, accumulator, adder --+--> xc7, xcup: a slice by name, flip-flops beside it
                                           +--> ecp5: a multiplier by name, the sum in fabric
                                           +--> else, or where it does not fit: nothing
"""

from .dsp48 import accumulate_of_slice, add_of_slice, multiply_add_of_slice, pe_of_slice
from .ecp5 import accumulate_of_multiplier, multiply_add_of_multiplier, pe_of_multiplier

__all__ = ["pe_primitive", "multiply_add_primitive", "accumulate_primitive", "add_primitive", "MODEL_FAMILY"]

#: The family whose slice Yosys can simulate. Of the other one's slice, the same subset of ports is used.
MODEL_FAMILY = "xc7"

_SLICES = ("xc7", "xcup")


def pe_primitive(precision, *, family, name):
    """Module ``name``: a PE around one slice or multiplier of the family, or None.

    It has the ports of :class:`~.pe.PE`.
    """
    if family == "ecp5":
        return pe_of_multiplier(precision, name)
    return pe_of_slice(precision, family=family, name=name) if family in _SLICES else None


def multiply_add_primitive(unit, *, family, name):
    """Module ``name``: a multiply-add around one slice or multipliers of the family, or None.

    It has the ports of :class:`~.slices.MultiplyAdd`.
    """
    if family == "ecp5":
        return multiply_add_of_multiplier(unit, name)
    return multiply_add_of_slice(unit, family=family, name=name) if family in _SLICES else None


def accumulate_primitive(unit, *, family, name):
    """Module ``name``: an accumulator around one slice or multiplier of the family, or None.

    It has the ports of :class:`~.slices.Accumulate`.
    """
    header = [
        f"module {name} (clk, rst, a, b, add, p);",
        "  input clk, rst, add;",
        f"  input [{unit.a_width - 1}:0] a;",
        f"  input [{unit.b_width - 1}:0] b;",
    ]
    if family == "ecp5":
        return accumulate_of_multiplier(unit, header)
    return accumulate_of_slice(unit, header, family=family) if family in _SLICES else None


def add_primitive(width, *, family, name):
    """Module ``name``: an adder around one slice of the family, or None.

    It has the ports of :class:`~.slices.Add`.
    """
    return add_of_slice(width, family=family, name=name) if family in _SLICES else None
