"""The machine for convolutional networks: engines and wires."""

from ..engines.array.spec import SPEC as _ARRAY
from ..engines.encode.spec import SPEC as _ENCODE
from ..engines.head.spec import SPEC as _HEAD
from ..shell.engines import Engines
from .machine import Machine, Wire

__all__ = ["ARRAY", "ENCODE", "HEAD", "IMAGES", "IMAGE_MACHINE", "IMAGE_WIRES"]

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
