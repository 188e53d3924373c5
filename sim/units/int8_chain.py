"""Products of 8-bit tiles through the unit ``int8-chain``."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from gradloom.rtl.formats.tiles.aligned import DROP, FRACTION, LOST, TILES

from ..reference.units.int8_chain import drops, int8_chain
from .adapter import Arrays, UnitAdapter, UnitArray, UnitFeed, pack

__all__ = ["ADAPTER"]


def _exponent(name: str, shape: tuple[str | int, ...], description: str) -> UnitArray:
    return UnitArray(name=name, shape=shape, units="1", description=description, low=-128, high=127)


def _codes(name: str, shape: tuple[str | int, ...], description: str) -> UnitArray:
    return UnitArray(
        name=name, shape=shape, units="2**exponent of its tile", description=description, low=-127, high=127
    )


def _inputs(p: Mapping[str, Any]) -> list[UnitArray]:
    return [
        _codes("x", ("sums", "tiles", "m", p["rows"]), "codes of activation rows, m tokens a sum"),
        _codes("w", ("sums", "tiles", p["rows"], p["cols"]), "codes of weight tiles"),
        _exponent("x_exponent", ("sums", "tiles", "m"), "power of two of each token's tile"),
        _exponent("w_exponent", ("sums", "tiles"), "power of two of each weight tile"),
    ]


def _outputs(p: Mapping[str, Any]) -> list[UnitArray]:
    return [
        UnitArray(
            name="y",
            shape=("sums", "m", p["cols"]),
            units="2**unit",
            description="sums over the tiles",
            low=-(1 << 47),
            high=(1 << 47) - 1,
        ),
        UnitArray(name="unit", shape=("sums", "m"), units="1", description="power of two of y", low=-272, high=238),
        UnitArray(
            name="lost",
            shape=("sums", "m"),
            units="tiles' sums",
            description=f"those more than {FRACTION} powers of two below the token's largest tile",
            high=(1 << LOST) - 1,
        ),
    ]


def _feed(dut: Any, arrays: Arrays) -> UnitFeed:
    x, w = arrays["x"], arrays["w"]
    sums, tiles, m, _ = x.shape
    for name, value, most in (("m", m, dut.tokens), ("tiles", tiles, TILES)):
        if value > most:
            raise ValueError(f"x: {name} is {value}, must be at most {'tokens=' * (name == 'm')}{most}")
    _, drop = drops(arrays["x_exponent"], arrays["w_exponent"])
    members = dut.signature.members
    rows, weights = (members[name].signature.members["payload"].shape for name in ("i", "w"))
    near = np.minimum(drop, (1 << DROP) - 1).tolist()
    beats = [
        pack(
            rows,
            {"x": row, "first": n == 0, "start": tile == 0, "last": tile == tiles - 1, "drop": near[number][tile][n]},
        )
        for number, of_sum in enumerate(x.tolist())
        for tile, of_tile in enumerate(of_sum)
        for n, row in enumerate(of_tile)
    ]
    words = [pack(weights, {"w": row}) for row in w.reshape(-1, w.shape[3]).tolist()]
    return UnitFeed(inputs={"i": beats, "w": words}, outputs={"o": sums * m})


def _answer(arrays: Arrays, y: np.ndarray, lost: np.ndarray) -> Arrays:
    top, _ = drops(arrays["x_exponent"], arrays["w_exponent"])
    return {"y": y, "unit": top - FRACTION, "lost": lost}


def _collect(dut: Any, arrays: Arrays, beats: dict[str, list[Any]]) -> Arrays:
    sums, _, m, _ = arrays["x"].shape
    y = np.array([beat["sum"] for beat in beats["o"]], np.int64).reshape(sums, m, dut.columns)
    return _answer(arrays, y, np.array([beat["lost"] for beat in beats["o"]], np.int64).reshape(sums, m))


def _reference(parameters: Mapping[str, Any], arrays: Arrays) -> Arrays:
    _, drop = drops(arrays["x_exponent"], arrays["w_exponent"])
    return _answer(arrays, *int8_chain(arrays["x"], arrays["w"], drop))


def _busy(arrays: Arrays) -> int:
    sums, tiles, m, _ = arrays["x"].shape
    return sums * tiles * m


ADAPTER = UnitAdapter(inputs=_inputs, outputs=_outputs, feed=_feed, collect=_collect, reference=_reference, busy=_busy)
