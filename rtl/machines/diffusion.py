"""The machine for diffusion models: its engines."""

from ..engines.element.spec import SPEC as _ELEMENT
from ..engines.norm.spec import SPEC as _NORM
from ..engines.product.spec import SPEC as _PRODUCT
from ..engines.update.spec import SPEC as _UPDATE
from ..shell.engines import Engines
from .machine import Machine

__all__ = ["DIFFUSION", "DIFFUSION_MACHINE", "ELEMENT", "NORM", "PRODUCT"]

#: AdamW is that of the language models.
DIFFUSION = Engines(_PRODUCT, _ELEMENT, _NORM, _UPDATE)
PRODUCT, ELEMENT, NORM, _ = DIFFUSION.own
DIFFUSION_MACHINE = Machine(DIFFUSION)
