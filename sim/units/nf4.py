"""A tensor through the unit ``nf4-encode``, beats with a scale each through ``nf4-decode``."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from gradloom.rtl.formats.codebook import NF4, unpack_nibbles

from ..reference.encode import decode_codes, encode_fixed
from .adapter import Arrays, UnitAdapter, UnitFeed, pack, payload_shape, signed_array, unsigned_array

__all__ = ["ENCODE", "DECODE"]


def _encode_feed(dut: Any, arrays: Arrays) -> UnitFeed:
    shape = payload_shape(dut, "i")
    x = arrays["x"]
    padded = np.pad(x, (0, -len(x) % dut.lanes)).reshape(-1, dut.lanes)
    beats = [pack(shape, {"x": row, "last": index == len(padded) - 1}) for index, row in enumerate(padded.tolist())]
    return UnitFeed(inputs={"i": beats}, outputs={"o": -(-len(x) // dut.block)})


def _encode_collect(dut: Any, arrays: Arrays, beats: dict[str, list[Any]]) -> Arrays:
    packed = b"".join(beat["codes"].to_bytes(dut.block // 2, "little") for beat in beats["o"])
    codes = unpack_nibbles(np.frombuffer(packed, np.uint8), len(beats["o"]) * dut.block)
    return {"codes": codes.astype(np.uint8), "scales": np.array([beat["scale"] for beat in beats["o"]], np.uint16)}


def _encode_reference(parameters: Mapping[str, Any], arrays: Arrays) -> Arrays:
    codes, scales = encode_fixed(arrays["x"], block=parameters["block"])
    return {"codes": codes, "scales": scales}


def _decode_feed(dut: Any, arrays: Arrays) -> UnitFeed:
    shape = payload_shape(dut, "i")
    codes, scales = arrays["codes"], arrays["scales"]
    beats = [
        pack(shape, {"codes": row, "scale": scale, "last": index == len(codes) - 1})
        for index, (row, scale) in enumerate(zip(codes.tolist(), scales.tolist(), strict=True))
    ]
    return UnitFeed(inputs={"i": beats}, outputs={"o": len(codes)})


def _decode_collect(dut: Any, arrays: Arrays, beats: dict[str, list[Any]]) -> Arrays:
    return {"x": np.array([beat["x"] for beat in beats["o"]], np.int64)}


def _decode_reference(parameters: Mapping[str, Any], arrays: Arrays) -> Arrays:
    return {"x": decode_codes(arrays["codes"], arrays["scales"][:, None], NF4.level_table(7))}


ENCODE = UnitAdapter(
    inputs=lambda p: [signed_array("x", 24, ("n",), "2**-16", "activations, Q8.16")],
    outputs=lambda p: [
        unsigned_array("codes", 4, ("n in whole blocks",), "index", "codes, the last block filled up"),
        unsigned_array("scales", 16, ("blocks",), "2**-8", "a block's largest magnitude, rounded up"),
    ],
    feed=_encode_feed,
    collect=_encode_collect,
    reference=_encode_reference,
)


DECODE = UnitAdapter(
    inputs=lambda p: [
        unsigned_array("codes", 4, ("beats", p["lanes"]), "index", "codes"),
        unsigned_array("scales", 16, ("beats",), "2**-8", "scale of a beat"),
    ],
    outputs=lambda p: [signed_array("x", 18, ("beats", p["lanes"]), "2**-10", "level * scale")],
    feed=_decode_feed,
    collect=_decode_collect,
    reference=_decode_reference,
)
