"""Vectors of one length through the unit ``softmax-cross-entropy``."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..reference.loss import softmax_cross_entropy
from .adapter import Arrays, UnitAdapter, UnitArray, UnitFeed, pack, payload_shape, signed_array, unsigned_array

__all__ = ["ADAPTER"]


def _softmax_feed(dut: Any, arrays: Arrays) -> UnitFeed:
    z, target = arrays["z"], arrays["target"]
    if z.shape[1] > dut.max_length:
        raise ValueError(f"z: has vectors of {z.shape[1]}, must be at most max_length={dut.max_length}")
    shape = payload_shape(dut, "i")
    beats = [
        pack(shape, {"z": value, "target": index == wanted, "first": index == 0, "last": index == len(row) - 1})
        for row, wanted in zip(z.tolist(), target.tolist(), strict=True)
        for index, value in enumerate(row)
    ]
    return UnitFeed(inputs={"i": beats}, outputs={"o": z.size, "o_loss": len(z)})


def _softmax_collect(dut: Any, arrays: Arrays, beats: dict[str, list[Any]]) -> Arrays:
    return {
        "d": np.array([beat["d"] for beat in beats["o"]], np.int64).reshape(arrays["z"].shape),
        "loss": np.array([beat["loss"] for beat in beats["o_loss"]], np.int64),
        "correct": np.array([beat["correct"] for beat in beats["o_loss"]], np.int64),
    }


def _softmax_reference(parameters: Mapping[str, Any], arrays: Arrays) -> Arrays:
    return softmax_cross_entropy(arrays["z"], arrays["target"], max_length=parameters["max_length"])._asdict()


ADAPTER = UnitAdapter(
    inputs=lambda p: [
        signed_array("z", 24, ("vectors", "length"), "2**-16", "logits, Q8.16"),
        UnitArray(
            name="target",
            shape=("vectors",),
            units="index",
            low=-1,
            high=65535,
            description="which one should win; one outside the vector: none",
        ),
    ],
    outputs=lambda p: [
        signed_array("d", 18, ("vectors", "length"), "2**-16", "softmax minus target"),
        unsigned_array("loss", 25, ("vectors",), "2**-16", "cross-entropy in nats"),
        unsigned_array("correct", 1, ("vectors",), "0 or 1", "the target is the first of the largest"),
    ],
    feed=_softmax_feed,
    collect=_softmax_collect,
    reference=_softmax_reference,
)
