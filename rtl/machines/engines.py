"""The machines: their engines in order, and their wires."""

from ..engines.array.spec import SPEC as _ARRAY
from ..engines.cell.spec import SPEC as _CELL
from ..engines.element.spec import SPEC as _ELEMENT
from ..engines.encode.spec import SPEC as _ENCODE
from ..engines.gradient.spec import SPEC as _GRADIENT
from ..engines.head.spec import SPEC as _HEAD
from ..engines.linear.spec import SPEC as _LINEAR
from ..engines.norm.spec import SPEC as _NORM
from ..engines.product.spec import SPEC as _PRODUCT
from ..engines.update.spec import SPEC as _UPDATE
from ..engines.vector.spec import SPEC as _VECTOR
from ..shell.engines import Engines
from .machine import Machine, Wire

__all__ = [
    "ARRAY",
    "CELL",
    "DIFFUSION",
    "DIFFUSION_MACHINE",
    "ELEMENT",
    "ENCODE",
    "GRADIENT",
    "HEAD",
    "IMAGES",
    "IMAGE_MACHINE",
    "LANGUAGE",
    "LANGUAGE_MACHINE",
    "LINEAR",
    "NORM",
    "PRODUCT",
    "RECURRENT",
    "RECURRENT_MACHINE",
    "SEQUENCE",
    "SEQUENCE_MACHINE",
    "UPDATE",
    "VECTOR",
]

#: Convolutional networks.
IMAGES = Engines(_ARRAY, _HEAD, _ENCODE)
ARRAY, HEAD, ENCODE = IMAGES.own
#: Language models.
LANGUAGE = Engines(_LINEAR, _GRADIENT, _UPDATE, _VECTOR)
LINEAR, GRADIENT, UPDATE, VECTOR = LANGUAGE.own
#: Quantised recurrent networks.
RECURRENT = Engines(_CELL)
(CELL,) = RECURRENT.own
#: Diffusion models; AdamW is that of the language models.
DIFFUSION = Engines(_PRODUCT, _ELEMENT, _NORM, _UPDATE)
PRODUCT, ELEMENT, NORM, _ = DIFFUSION.own
#: Recurrent networks beside the engines that learn, whose numbers are those of IMAGES.
SEQUENCE = Engines(*(each.spec for each in IMAGES.own), _CELL)

_IMAGE_WIRES = (
    Wire("array.h", "head.h"),
    Wire("array.dh", "head.dh"),
    Wire("array.logits", "head.logits"),
    Wire("array.peek", "encode.peek"),
    Wire("array.thresholds", "encode.thresholds"),
)
IMAGE_MACHINE = Machine(IMAGES, wires=_IMAGE_WIRES)
LANGUAGE_MACHINE = Machine(LANGUAGE, wires=(Wire("linear.hidden", "gradient.hidden"),))
RECURRENT_MACHINE = Machine(RECURRENT)
DIFFUSION_MACHINE = Machine(DIFFUSION)
SEQUENCE_MACHINE = Machine(SEQUENCE, wires=_IMAGE_WIRES)
