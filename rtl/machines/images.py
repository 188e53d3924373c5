"""The machine for convolutional networks: its engines in order, their wires, its configuration."""

from dataclasses import dataclass
from typing import ClassVar

from ..engines.array.spec import SPEC as _ARRAY
from ..engines.encode.spec import SPEC as _ENCODE
from ..engines.head.parameters import HeadParameters
from ..engines.head.spec import SPEC as _HEAD
from ..shell.engines import Engines
from ..shell.parameters import ShellParameters, parameter
from .machine import Machine, Wire

__all__ = ["ARRAY", "ENCODE", "HEAD", "IMAGES", "IMAGE_MACHINE", "IMAGE_WIRES", "ImageConfig"]

IMAGES = Engines(_ARRAY, _HEAD, _ENCODE)
ARRAY, HEAD, ENCODE = IMAGES.own
IMAGE_WIRES = (
    Wire("array.h", "head.h"),
    Wire("array.dh", "head.dh"),
    Wire("array.logits", "head.logits"),
    Wire("array.peek", "encode.peek"),
    Wire("array.thresholds", "encode.thresholds"),
)
IMAGE_MACHINE = Machine(IMAGES, wires=IMAGE_WIRES)


@dataclass(frozen=True, kw_only=True)
class ImageConfig(HeadParameters, ShellParameters):
    """Configuration of the machine for convolutional networks.

    Its adapters are direct-to-output.
    """

    home: ClassVar = "gradloom.rtl.machines.images:IMAGE_MACHINE"

    address_bits: int = parameter(40, 32, 64)
    cache_slots: int = parameter(16384, 64, 32768)
