"""Commands of the product engine: opcodes and operand layouts."""

from enum import IntEnum

from amaranth.hdl import signed
from amaranth.lib import data

__all__ = ["BIAS_LIFT", "EXPOSED", "REACH", "SIDE", "SOURCE", "ProductOpcode", "ProductOperands", "ScanOperands"]


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
#: Bits of the time between the last row of a kept tile and the load of the next, where loads are not hidden. It is in
#: pairs of cycles, as rows and columns of an array are even.
EXPOSED = 6
#: Bits of a place in an image, of row tiles that are held, and of an address: it is modulo ``2**SOURCE``.
SIDE, REACH, SOURCE = 10, 3, 13

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
        "reach": REACH,  #: gather: row tiles that are held, less 1
        "exposed": EXPOSED,  #: 0: kept tiles load under the rows before; else so many pairs of cycles behind them
        "positive": 1,  #: with ``last``: sums below 0 become results of 0
        "column": SIDE,  #: gather: place of the first row in its image
        "line": SIDE,  #: gather: the same, from the top
        "dx": signed(7),  #: gather: place to the right
        "dy": signed(7),  #: gather: place below
        "source": SOURCE,  #: gather: the first row's source, from the first row of slot ``x`` on
    }
)

#: A SCAN has the operands of its PRODUCT that it reads. With ``gather`` it also has the shape of the images, for all
#: PRODUCTs from here to the next. A SCAN of a bias has ``bias``, ``last``, ``o`` and ``fresh``.
ScanOperands = data.StructLayout(
    {
        "x": 6,  #: slot of the first tile of the stream
        "x_step": 6,  #: slots from one tile of K to the next
        "x_pitch": 6,  #: gather: slots from one row tile to the next
        "w": 6,  #: slot of the first kept tile
        "w_step": 6,  #: slots from one tile of K to the next
        "tiles": 6,  #: tiles of K, less 1
        "width": SIDE,  #: pixels of the result in a line, less 1
        "height": SIDE,  #: lines, less 1
        "end_x": SIDE + 1,  #: last place that is in the source
        "end_y": SIDE + 1,  #: the same, from the top
        "same": SOURCE,  #: address from a line's end to the next line, where that reads the same line of the source
        "divide": 1,  #: ``stride`` places for a pixel of the source, not ``stride`` pixels for a place
        "o": 2,  #: result slot
        "fresh": 1,  #: the slot is empty before
        "start": 1,  #: as of the PRODUCT; not read
        "last": 1,  #: of a BIAS
        "bias": 5,  #: slot of the bias
        "gather": 1,  #: stream rows are pixels by address; sets the shape
        "reach": REACH,  #: gather: row tiles that are held, less 1
        "below": SOURCE,  #: the same where it reads a further line
        "image": SOURCE,  #: the same to the next image
        "stride_x": 2,  #: less 1
        "stride_y": 2,  #: less 1
        "every": 1,  #: divide: the other ``stride - 1`` places are zeros
        "rest_x": 2,  #: divide: ``width`` modulo the stride
        "rest_y": 2,  #: divide: ``height`` modulo the stride
        "_reserved": 19,
    }
)
