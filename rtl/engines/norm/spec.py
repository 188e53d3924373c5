"""The norm engine as a machine knows it."""

from gradloom.plugins import Named

from ...formats.tiles.norm import NormOpcode, NormOperands
from ...formats.tiles.records import TileArgument
from ...shell.engines import EngineSpec, LoadPort
from ..tile_port import TileStorePort
from .parameters import NormParameters

__all__ = ["SPEC"]

SPEC = EngineSpec(
    name="norm",
    opcodes=NormOpcode,
    default=NormOperands,
    phases=("norm",),
    loads=(
        LoadPort("a", "tiles of the first operand, codes of 16 bits or of 8", TileArgument, forwards=True),
        LoadPort("b", "tiles of the second operand, codes of 16 bits", TileArgument, forwards=True),
        LoadPort("gain", "gains and biases: records of one row, codes of 16 bits", TileArgument),
    ),
    stores=(TileStorePort("o", "the tile of a slot of results"),),
    parameters=NormParameters,
    unit=Named("gradloom.rtl.engines.norm.engine", "NormEngine"),
)
