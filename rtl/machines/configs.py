"""Configurations: each inherits the parameters of its engines."""

from dataclasses import dataclass
from typing import ClassVar

from ..engines.cell.parameters import CellParameters
from ..engines.element.parameters import ElementParameters
from ..engines.gradient.parameters import GradientParameters
from ..engines.head.parameters import HeadParameters
from ..engines.norm.parameters import NormParameters
from ..engines.product.parameters import ProductParameters
from ..engines.update.parameters import UpdateParameters
from ..engines.vector.parameters import VectorParameters
from ..shell.parameters import ShellParameters, parameter

__all__ = ["DiffusionConfig", "ImageConfig", "LanguageConfig", "RecurrentConfig", "SequenceConfig"]


@dataclass(frozen=True, kw_only=True)
class ImageConfig(HeadParameters, ShellParameters):
    """Configuration of the machine for convolutional networks.

    Its adapters are direct-to-output.
    """

    home: ClassVar = "gradloom.rtl.machines.engines:IMAGE_MACHINE"

    address_bits: int = parameter(40, 32, 64)
    cache_slots: int = parameter(16384, 64, 32768)


@dataclass(frozen=True, kw_only=True)
class LanguageConfig(VectorParameters, UpdateParameters, GradientParameters, ShellParameters):
    """Configuration of the machine for language models."""

    home: ClassVar = "gradloom.rtl.machines.engines:LANGUAGE_MACHINE"

    requests: int = parameter(1, 0, 1)


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig(CellParameters, ShellParameters):
    """Configuration of the machine for quantised recurrent networks."""

    home: ClassVar = "gradloom.rtl.machines.engines:RECURRENT_MACHINE"


@dataclass(frozen=True, kw_only=True)
class SequenceConfig(CellParameters, ImageConfig):
    """Configuration of the machine for recurrent networks that learn.

    The cell engine makes taps, from which the engines of the image machine learn an adapter.
    """

    home: ClassVar = "gradloom.rtl.machines.engines:SEQUENCE_MACHINE"


@dataclass(frozen=True, kw_only=True)
class DiffusionConfig(ProductParameters, ElementParameters, NormParameters, UpdateParameters, ShellParameters):
    """Configuration of the machine for diffusion models.

    Tensors are records of tiles: AdamW takes gradients as such, and a beat has 128 bits. STORE forwards records from
    engine to engine.
    """

    home: ClassVar = "gradloom.rtl.machines.engines:DIFFUSION_MACHINE"

    address_bits: int = parameter(40, 32, 64)
    edge: int = parameter(32, 32, 32, power=True, known=True)
    records: int = parameter(1, 1, 1)
    forwards: int = parameter(1, 0, 1)
