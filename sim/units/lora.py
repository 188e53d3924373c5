"""The units ``lora-forward``, vectors with one A, and ``lora-gradient``, samples with every rank index of each."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..reference.array import hidden
from ..reference.head import adapter_gradients
from .adapter import Arrays, UnitAdapter, UnitFeed, pack, payload_shape, signed_array

__all__ = ["FORWARD", "GRADIENT"]


def _forward_feed(dut: Any, arrays: Arrays) -> UnitFeed:
    shape = payload_shape(dut, "i")
    x, a = (np.pad(arrays[name], ((0, 0), (0, -arrays["x"].shape[1] % dut.lanes))) for name in ("x", "a"))
    columns = a.T.reshape(-1, dut.lanes, dut.rank).tolist()
    beats = [
        pack(shape, {"x": part, "a": column, "first": n == 0, "last": n == len(columns) - 1})
        for vector in x.reshape(len(x), -1, dut.lanes).tolist()
        for n, (part, column) in enumerate(zip(vector, columns, strict=True))
    ]
    return UnitFeed(inputs={"i": beats}, outputs={"o": len(x)})


def _forward_collect(dut: Any, arrays: Arrays, beats: dict[str, list[Any]]) -> Arrays:
    return {"h": np.array([beat["h"] for beat in beats["o"]], np.int64)}


def _forward_reference(parameters: Mapping[str, Any], arrays: Arrays) -> Arrays:
    return {"h": hidden(arrays["x"], arrays["a"])[0]}


def _gradient_feed(dut: Any, arrays: Arrays) -> UnitFeed:
    h, d, b = arrays["h"], arrays["d"], arrays["b"]
    if h.shape[0] > dut.samples:
        raise ValueError(f"h: has {h.shape[0]} samples, must be at most samples={dut.samples}")
    shape = payload_shape(dut, "i")
    beats = [
        pack(shape, {"k": k, "first": sample == 0, "h": value, "d": d[sample].tolist(), "b": b[:, k].tolist()})
        for sample, row in enumerate(h.tolist())
        for k, value in enumerate(row)
    ]
    return UnitFeed(inputs={"i": beats}, outputs={"o": len(beats)})


def _gradient_collect(dut: Any, arrays: Arrays, beats: dict[str, list[Any]]) -> Arrays:
    samples, depth = arrays["h"].shape
    last = beats["o"][-depth:]
    return {
        "dh": np.array([beat["dh"] for beat in beats["o"]], np.int64).reshape(samples, depth),
        "db": np.array([beat["db"] for beat in last], np.int64).T,
    }


def _gradient_reference(parameters: Mapping[str, Any], arrays: Arrays) -> Arrays:
    dh, db, _ = adapter_gradients(arrays["d"], arrays["b"], arrays["h"])
    return {"dh": dh, "db": db}


FORWARD = UnitAdapter(
    inputs=lambda p: [
        signed_array("x", 18, ("vectors", "n"), "2**-10", "decoded activations, Q8.10"),
        signed_array("a", 16, (p["rank"], "n"), "2**-12", "A, Q4.12"),
    ],
    outputs=lambda p: [signed_array("h", 24, ("vectors", p["rank"]), "2**-16", "A x, Q8.16")],
    feed=_forward_feed,
    collect=_forward_collect,
    reference=_forward_reference,
)


GRADIENT = UnitAdapter(
    inputs=lambda p: [
        signed_array("h", 24, ("samples", p["depth"]), "2**-16", "A x of each sample"),
        signed_array("d", 18, ("samples", p["classes"]), "2**-e", "scaled output gradient d'"),
        signed_array("b", 16, (p["classes"], p["depth"]), "2**-12", "B, Q4.12"),
    ],
    outputs=lambda p: [
        signed_array("dh", 18, ("samples", p["depth"]), "2**-(e-1)", "B' d'"),
        signed_array("db", 48, (p["classes"], p["depth"]), "2**-(e+16)", "sum over the samples of d' h'"),
    ],
    feed=_gradient_feed,
    collect=_gradient_collect,
    reference=_gradient_reference,
)
