"""The cell engine as a machine knows it."""

from amaranth.lib.data import StructLayout

from gradloom.plugins import Named

from ...formats.cell import CellOpcode, CellOperands, TapArgument
from ...shell.engines import EngineSpec, LoadPort, StorePort
from .parameters import CellParameters

__all__ = ["SPEC"]

#: Where a transfer of states begins.
STATE_BEAT = StructLayout(
    {
        "beat": 32  #: first beat
    }
)

SPEC = EngineSpec(
    name="cell",
    opcodes=CellOpcode,
    default=CellOperands,
    phases=("cell",),
    loads=(
        LoadPort("x", "codes of inputs or windows, a byte each; each step of a sequence begins with a beat"),
        LoadPort("weights", "weights, from the first on"),
        LoadPort("rows", "offset, multiplier and addend of each row: GateWord"),
        LoadPort("tables", "codes of sigmoid and tanh: TableWord"),
        LoadPort("quantizers", "requantisers, one for all elements: QuantizerWord"),
        LoadPort("state", "states of cells, then hidden ones: 16 bits a code, a beat a group of each sequence"),
    ),
    stores=(
        StorePort("h", "codes of hidden states, a byte each; each step of a sequence begins with a beat"),
        StorePort("logits", "sums of the dense layer, 32 bits each; a beat has four, a group ``parallel`` beats"),
        StorePort("state", "states as ``state`` loads them, from beat ``arg`` on", STATE_BEAT),
        StorePort("taps", "taps of a sequence, 32 bits each; only in a design with ``tap_channels``", TapArgument),
    ),
    parameters=CellParameters,
    unit=Named("gradloom.rtl.engines.cell.engine", "CellEngine"),
)
