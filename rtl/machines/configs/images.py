"""Configuration of the machine for convolutional networks."""

from dataclasses import dataclass
from typing import ClassVar

from ...engines.head.parameters import HeadParameters
from ...shell.parameters import ShellParameters, parameter

__all__ = ["ImageConfig"]


@dataclass(frozen=True, kw_only=True)
class ImageConfig(HeadParameters, ShellParameters):
    """Configuration of the machine for convolutional networks.

    Its adapters are direct-to-output.
    """

    home: ClassVar = "gradloom.rtl.machines.images:IMAGE_MACHINE"

    address_bits: int = parameter(40, 32, 64)
    cache_slots: int = parameter(16384, 64, 32768)
