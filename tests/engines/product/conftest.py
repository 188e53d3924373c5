"""A small product engine."""

from dataclasses import dataclass
from typing import ClassVar

from gradloom.rtl.engines.product.parameters import ProductParameters

__all__ = ["CONFIG"]


@dataclass(frozen=True, kw_only=True)
class _Alone(ProductParameters):
    """Parameters of the engine with those of the bus."""

    data_bits: ClassVar[int] = 128


#: Two chains of 16 rows, four passes of 16 columns.
CONFIG = _Alone(array_rows=32, array_columns=16, x_slots=8, w_slots=8)
