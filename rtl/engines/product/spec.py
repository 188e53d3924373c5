"""The product engine as a machine knows it."""

from gradloom.plugins import Named

from ...formats.tiles.product import ProductOpcode, ProductOperands, ScanOperands
from ...formats.tiles.records import TileArgument
from ...shell.engines import EngineSpec, LoadPort
from ..tile_port import TileStorePort
from .parameters import ProductParameters

__all__ = ["SPEC"]

SPEC = EngineSpec(
    name="product",
    opcodes=ProductOpcode,
    default=ProductOperands,
    operands={ProductOpcode.SCAN: ScanOperands},
    phases=("product",),
    loads=(
        LoadPort("x", "records of tiles of 8-bit codes whose lines stream", TileArgument, forwards=True),
        LoadPort("w", "records of tiles of 8-bit codes that are kept in the array", TileArgument, forwards=True),
        LoadPort("bias", "records of a row of 16-bit codes", TileArgument),
    ),
    stores=(TileStorePort("o", "the record of a result slot", banks=2),),
    parameters=ProductParameters,
    unit=Named("gradloom.rtl.engines.product.engine", "ProductEngine"),
)
