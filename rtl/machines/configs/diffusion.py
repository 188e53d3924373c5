"""Configuration of the machine for diffusion models."""

from dataclasses import dataclass
from typing import ClassVar

from ...engines.element.parameters import ElementParameters
from ...engines.norm.parameters import NormParameters
from ...engines.product.parameters import ProductParameters
from ...engines.update.parameters import UpdateParameters
from ...shell.parameters import ShellParameters, parameter

__all__ = ["DiffusionConfig"]


@dataclass(frozen=True, kw_only=True)
class DiffusionConfig(ProductParameters, ElementParameters, NormParameters, UpdateParameters, ShellParameters):
    """Configuration of the machine for diffusion models.

    Tensors are records of tiles: AdamW takes gradients as such, and a beat has 256 bits. STORE forwards records from
    engine to engine.
    """

    home: ClassVar = "gradloom.rtl.machines.diffusion:DIFFUSION_MACHINE"

    address_bits: int = parameter(40, 32, 64)
    edge: int = parameter(64, 64, 64, power=True, known=True)
    records: int = parameter(1, 1, 1)
    # A machine without them takes STORE's operands for those of memory.
    forwards: int = parameter(1, 0, 1, usual=1)
    ports: int = parameter(2, 1, 4, power=True)
