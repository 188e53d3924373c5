"""The machine for diffusion models: its engines in order, its configuration."""

from dataclasses import dataclass
from typing import ClassVar

from ..engines.element.parameters import ElementParameters
from ..engines.element.spec import SPEC as _ELEMENT
from ..engines.norm.parameters import NormParameters
from ..engines.norm.spec import SPEC as _NORM
from ..engines.product.parameters import ProductParameters
from ..engines.product.spec import SPEC as _PRODUCT
from ..engines.update.parameters import UpdateParameters
from ..engines.update.spec import SPEC as _UPDATE
from ..shell.engines import Engines
from ..shell.parameters import ShellParameters, parameter
from .machine import Machine

__all__ = ["DIFFUSION", "DIFFUSION_MACHINE", "DiffusionConfig", "ELEMENT", "NORM", "PRODUCT"]

#: AdamW is that of the language models.
DIFFUSION = Engines(_PRODUCT, _ELEMENT, _NORM, _UPDATE)
PRODUCT, ELEMENT, NORM, _ = DIFFUSION.own
DIFFUSION_MACHINE = Machine(DIFFUSION)


@dataclass(frozen=True, kw_only=True)
class DiffusionConfig(ProductParameters, ElementParameters, NormParameters, UpdateParameters, ShellParameters):
    """Configuration of the machine for diffusion models.

    Tensors are records of tiles: AdamW takes gradients as such, and a beat has 128 bits. STORE forwards records from
    engine to engine.
    """

    home: ClassVar = "gradloom.rtl.machines.diffusion:DIFFUSION_MACHINE"

    address_bits: int = parameter(40, 32, 64)
    edge: int = parameter(32, 32, 32, power=True, known=True)
    records: int = parameter(1, 1, 1)
    forwards: int = parameter(1, 0, 1)
