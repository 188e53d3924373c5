"""Layout of frozen weights in memory: one stream of square tiles.

``docs/reference/weight-stream.md`` is the description; this is the only code that knows it.
"""

from dataclasses import dataclass

import numpy as np

from ..codebook import NF2, NF3, NF4, Codebook, pack_nibbles, unpack_nibbles
from .blocks import GROUP

__all__ = ["BOOKS", "TILE", "StreamShape", "pack_codes", "pack_stream", "unpack_codes", "unpack_stream"]

#: Rows and columns of a tile, unless others are asked for; a row of it is a block of codes with one scale.
TILE = 64
#: Edges that a tile may have: those of the machine's array.
TILES = (16, 32, 64)
#: The codebook of each width of code.
BOOKS: dict[int, Codebook] = {4: NF4, 3: NF3, 2: NF2}


@dataclass(frozen=True, kw_only=True)
class StreamShape:
    """Sizes of the stream of a linear in codes of ``bits``.

    The linear is ``W [outputs, inputs]``. In memory of a machine whose products have panels of ``span`` tiles of
    outputs, tiles are in the order of such products; in files ``span`` is 1.

    ``inputs`` must be a multiple of ``tile``, so that no block of ``tile`` along the flattened tensor crosses rows;
    ``outputs`` is padded with rows of zeros.
    """

    outputs: int
    inputs: int
    bits: int = 4
    tile: int = TILE
    span: int = 1

    def __post_init__(self) -> None:
        if self.bits not in BOOKS:
            raise ValueError(f"bits={self.bits}: must be one of {', '.join(map(str, BOOKS))}")
        if self.tile not in TILES:
            raise ValueError(f"tile={self.tile}: must be one of {', '.join(map(str, TILES))}")
        if self.outputs < 1:
            raise ValueError(f"outputs={self.outputs}: must be at least 1")
        if self.inputs < 1 or self.inputs % self.tile:
            raise ValueError(f"inputs={self.inputs}: K must be a multiple of {self.tile}, or blocks would cross rows")

    @property
    def tiles(self) -> tuple[int, int]:
        """Tiles along the outputs, and along the inputs."""
        return -(-self.outputs // self.tile), self.inputs // self.tile

    @property
    def places(self) -> np.ndarray:
        """How many tiles lie before each, ``[rows of tiles, columns of tiles]``."""
        rows, columns = self.tiles
        row, column = np.indices((rows, columns))
        above = row // self.span * self.span
        return above * columns + column * np.minimum(self.span, rows - above) + row - above

    @property
    def beat(self) -> int:
        """Bytes of which header and tiles are multiples.

        They are a row of 4-bit codes, a beat of the machine's port.
        """
        return self.tile // 2

    @property
    def blocks(self) -> int:
        """Scales of the linear itself, without padding."""
        return self.outputs * self.inputs // self.tile

    @property
    def groups(self) -> int:
        """Second-level scales."""
        return -(-self.blocks // GROUP)

    @property
    def header_bytes(self) -> int:
        """Second-level scales and offset, padded to a beat."""
        return self._whole(4 * (self.groups + 1))

    @property
    def row_bytes(self) -> int:
        """Codes of a tile's row."""
        return self.tile * self.bits // 8

    @property
    def tile_bytes(self) -> int:
        """Scales and codes of a tile, padded to a beat."""
        return self._whole(self.tile + self.tile * self.row_bytes)

    @property
    def bytes(self) -> int:
        """The whole stream."""
        return self.header_bytes + self.tiles[0] * self.tiles[1] * self.tile_bytes

    @property
    def frozen_bytes(self) -> int:
        """Bytes of codes and scales alone.

        bitsandbytes keeps these of the linear, without any padding.
        """
        return -(-self.outputs * self.inputs * self.bits // 8) + self.blocks + 4 * (self.groups + 1)

    def _whole(self, count: int) -> int:
        return -(-count // self.beat) * self.beat


def pack_stream(shape: StreamShape, codes, scale_codes, absmax2, offset) -> np.ndarray:
    """The stream as uint8.

    Parameters
    ----------
    codes : uint8, ``outputs * inputs`` of them, row-major
    scale_codes : uint8, one a block of ``shape.tile``, in order
    absmax2 : float32, one a group of 256 blocks
    offset : float32
    """
    zero, tile = BOOKS[shape.bits].zero_code, shape.tile
    rows, cols = shape.tiles
    missing = rows * tile - shape.outputs
    codes = _sized("codes", codes, shape.outputs * shape.inputs, np.uint8).reshape(shape.outputs, shape.inputs)
    if codes.max() >= 1 << shape.bits:
        raise ValueError(f"codes: {codes.max()} is among them, {shape.bits} bits hold up to {(1 << shape.bits) - 1}")
    scales = _sized("scale_codes", scale_codes, shape.blocks, np.uint8).reshape(shape.outputs, cols)
    codes = np.pad(codes, ((0, missing), (0, 0)), constant_values=zero)
    scales = np.pad(scales, ((0, missing), (0, 0)))
    second = np.append(_sized("absmax2", absmax2, shape.groups, np.float32), np.float32(offset)).astype("<f4")

    stream = np.zeros(shape.bytes, np.uint8)
    stream[: 4 * second.size] = second.view(np.uint8)
    tiles = stream[shape.header_bytes :].reshape(rows * cols, shape.tile_bytes)
    tile_scales = scales.reshape(rows, tile, cols).swapaxes(1, 2)
    for row, places in enumerate(shape.places):  # bits take eight times the memory of bytes
        block = codes[row * tile : (row + 1) * tile].reshape(tile, cols, tile).swapaxes(0, 1)
        tiles[places, :tile] = tile_scales[row]
        tiles[places, tile : tile + tile * shape.row_bytes] = pack_codes(block, shape.bits).reshape(cols, -1)
    return stream


def unpack_stream(shape: StreamShape, stream) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.float32]:
    """``(codes, scale_codes, absmax2, offset)`` of a packed stream.

    These are the arguments of :func:`pack_stream`; ``codes`` is ``[outputs, inputs]``.
    """
    stream = _sized("stream", stream, shape.bytes, np.uint8)
    (rows, cols), tile = shape.tiles, shape.tile
    second = stream[: 4 * (shape.groups + 1)].view("<f4").astype(np.float32)
    tiles = stream[shape.header_bytes :].reshape(rows * cols, shape.tile_bytes)
    scales = tiles[shape.places, :tile].swapaxes(1, 2).reshape(rows * tile, cols)
    codes = np.empty((rows * tile, shape.inputs), np.uint8)
    for row, places in enumerate(shape.places):
        held = tiles[places, tile : tile + tile * shape.row_bytes].reshape(cols, tile, shape.row_bytes)
        codes[row * tile : (row + 1) * tile] = unpack_codes(held, shape.bits).swapaxes(0, 1).reshape(tile, -1)
    return (codes[: shape.outputs], np.ascontiguousarray(scales[: shape.outputs]).reshape(-1), second[:-1], second[-1])


def pack_codes(codes, bits: int) -> np.ndarray:
    """Codes of ``bits`` packed along the last axis.

    The first is in the highest bits of its byte.
    """
    codes = np.asarray(codes, np.uint8)
    if bits == 4:
        return pack_nibbles(codes)
    planes = (codes[..., None] >> np.arange(bits - 1, -1, -1, dtype=np.uint8)) & 1
    return np.packbits(planes.reshape(*codes.shape[:-1], -1), axis=-1)


def unpack_codes(packed, bits: int) -> np.ndarray:
    """The codes that :func:`pack_codes` packed, whole bytes of them."""
    packed = np.asarray(packed, np.uint8)
    if bits == 4:
        return unpack_nibbles(packed)
    planes = np.unpackbits(packed, axis=-1)
    planes = planes.reshape(*packed.shape[:-1], -1, bits)
    return (planes << np.arange(bits - 1, -1, -1, dtype=np.uint8)).sum(axis=-1, dtype=np.uint8)


def _sized(name: str, values, count: int, dtype) -> np.ndarray:
    values = np.asarray(values)
    if values.size != count:
        raise ValueError(f"{name}={values.size} values: the linear has {count}")
    if values.dtype != dtype:
        raise ValueError(f"{name} is {values.dtype}: must be {np.dtype(dtype)}")
    return np.ascontiguousarray(values).reshape(-1)
