"""Tiles through the unit ``mesh``, each with activation rows of its own."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..reference.units.systolic import weight_stationary
from .adapter import Arrays, UnitAdapter, UnitFeed, pack, payload_shape, signed_array

__all__ = ["ADAPTER"]


def _mesh_feed(dut: Any, arrays: Arrays) -> UnitFeed:
    rows, weights = payload_shape(dut, "i"), payload_shape(dut, "w")
    beats = [
        pack(rows, {"x": row, "first": index == 0}) for tile in arrays["x"].tolist() for index, row in enumerate(tile)
    ]
    tiles = [pack(weights, {"w": row}) for tile in arrays["w"].tolist() for row in tile]
    return UnitFeed(inputs={"i": beats, "w": tiles}, outputs={"o": len(beats)})


def _mesh_collect(dut: Any, arrays: Arrays, beats: dict[str, list[Any]]) -> Arrays:
    tiles, m, _ = arrays["x"].shape
    return {"y": np.array([beat["sum"] for beat in beats["o"]], np.int64).reshape(tiles, m, dut.columns)}


def _mesh_reference(parameters: Mapping[str, Any], arrays: Arrays) -> Arrays:
    return {"y": np.stack(list(weight_stationary(arrays["x"], arrays["w"])))}


ADAPTER = UnitAdapter(
    inputs=lambda p: [
        signed_array("x", p["x_bits"], ("tiles", "m", p["rows"]), "1", "activation rows of each tile"),
        signed_array("w", p["w_bits"], ("tiles", p["rows"], p["cols"]), "1", "weights of each tile"),
    ],
    outputs=lambda p: [signed_array("y", 48, ("tiles", "m", p["cols"]), "1", "x[t] @ w[t]")],
    feed=_mesh_feed,
    collect=_mesh_collect,
    reference=_mesh_reference,
    # An activation row takes each PE a cycle.
    busy=lambda arrays: arrays["x"].shape[0] * arrays["x"].shape[1],
)
