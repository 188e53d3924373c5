"""The element engine as a machine knows it."""

from gradloom.plugins import Named

from ...formats.tiles.element import ElementOpcode, ElementOperands
from ...formats.tiles.records import TileArgument
from ...shell.engines import EngineSpec, LoadPort
from ..tile_port import TileStorePort
from .parameters import ElementParameters

__all__ = ["SPEC"]

SPEC = EngineSpec(
    name="element",
    opcodes=ElementOpcode,
    default=ElementOperands,
    phases=("element",),
    loads=(
        LoadPort("a", "records of the first operand, 16 bits a code", TileArgument, forwards=True),
        LoadPort("b", "records of the second operand", TileArgument, forwards=True),
        LoadPort("c", "records of the third operand", TileArgument),
        LoadPort("words", "32-bit words that become codes, or pieces of tables; each row begins with a beat"),
    ),
    stores=(TileStorePort("o", "a record of results, 8 or 16 bits a code"),),
    parameters=ElementParameters,
    unit=Named("gradloom.rtl.engines.element.engine", "ElementEngine"),
)
