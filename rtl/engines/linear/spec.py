"""The linear engine as a machine knows it."""

from gradloom.plugins import Named

from ...shell.engines import EngineSpec, LoadPort, StorePort
from .commands import LANES_ARG, OPERAND_ARG, TABLE_ARG, TILE_ARG, LinearOpcode, LinearOperands
from .parameters import LinearParameters

__all__ = ["SPEC"]

SPEC = EngineSpec(
    name="linear",
    opcodes=LinearOpcode,
    default=LinearOperands,
    phases=("forward", "backward"),
    loads=(
        LoadPort("tables", "second-level scales and offset of a weight tensor, or the codebook", TABLE_ARG),
        LoadPort("tiles", "tiles of weights, in the order in which products use them", TILE_ARG),
        LoadPort("operands", "a layer's input: tiles of features, tokens within a tile", OPERAND_ARG),
        LoadPort("lanes", "adapter words: tiles of features, rank indices within a tile", LANES_ARG),
    ),
    stores=(StorePort("outputs", "y or dx: tiles of features, tokens within a tile"),),
    parameters=LinearParameters,
    unit=Named("gradloom.rtl.engines.linear.unit", "LinearUnit"),
)
