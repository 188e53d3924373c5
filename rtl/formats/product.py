"""Commands of the product engine: opcodes and operand layouts."""

from enum import IntEnum

from amaranth.hdl import signed
from amaranth.lib import data

__all__ = ["BIAS_LIFT", "EXPOSED", "ProductOpcode", "ProductOperands"]


class ProductOpcode(IntEnum):
    """Opcodes.

    An output tile is SCAN with ``fresh``, further SCANs, BIAS and PRODUCT with ``start``, then PRODUCTs, the last with
    ``last``. A tile of one PRODUCT needs no SCAN.
    """

    SCAN = 0  #: looks at the exponents of a PRODUCT, or with ``last`` of a BIAS: the largest sum is the tile's unit
    PRODUCT = 1  #: adds products of stream rows and kept tiles; with ``fresh`` it is its own SCAN
    BIAS = 2  #: adds a row of 16-bit codes to rows


#: Powers of two that a bias's code gains, to be as large as the sum of a tile.
BIAS_LIFT = 5
#: Bits of the cycles between the last row of a kept tile and the load of the next, where loads are not hidden.
EXPOSED = 7

#: Tiles are 64 x 64. K counts what products are summed over: ``tiles`` pairs of tiles, 64 indices each.
ProductOperands = data.StructLayout(
    {
        "x": 6,  #: slot of the first tile of the stream
        "x_step": 6,  #: slots from one tile of K to the next
        "x_pitch": 6,  #: gather: slots from one row tile to the next
        "w": 6,  #: slot of the first kept tile
        "w_step": 6,  #: slots from one tile of K to the next
        "tiles": 6,  #: tiles of K, less 1
        "k_from": 6,  #: first index that counts in the first tile
        "k_to": 6,  #: last index that counts in the last tile
        "w_row": 6,  #: the kept tile's row is the index plus this, modulo 64
        "x_turn": 1,  #: stream rows are columns of their tiles
        "w_turn": 1,  #: kept tiles are transposed
        "x_row": 6,  #: first stream row; 0 with gather
        "rows": 6,  #: stream rows, less 1
        "o_row": 6,  #: row of the output tile for the first
        "columns": 6,  #: columns, less 1
        "o_column": 6,  #: first column of the output tile
        "w_column": 6,  #: column of the kept tile for it; further ones modulo 64
        "o": 2,  #: result slot
        "fresh": 1,  #: the slot is empty before; looks at the exponents first
        "start": 1,  #: sums begin at 0
        "last": 1,  #: sums become results. SCAN: of a BIAS
        "bias": 5,  #: slot of the bias
        "gather": 1,  #: stream rows are pixels by address, see ``RowFeed``
        "side": 3,  #: gather: log2 of the output's pixels in a row
        "double": 1,  #: gather: two pixels of the input for one of the output
        "half": 1,  #: gather: two places for a pixel of the input
        "even": 1,  #: gather: odd places are zeros
        "dy": signed(2),  #: gather: place below the output's
        "dx": signed(2),  #: gather: place to the right
        "row_tile": 10,  #: gather: number of the output's row tile
        "x_first": 10,  #: gather: number of the row tile in slot ``x``
        "reach": 3,  #: gather: row tiles that are held, less 1
        "exposed": EXPOSED,  #: 0: kept tiles load under the rows before; else so many cycles behind the last of them
        "_reserved": 14 - EXPOSED,
    }
)
