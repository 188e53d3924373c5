"""Words through the unit ``optimizer``: a beat has ``lanes`` of them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from gradloom.rtl.formats.fixed import Rounding

from ..reference.optimizer import Noise, optimize
from .adapter import Arrays, UnitAdapter, UnitArray, UnitFeed, pack, payload_shape, signed_array, unsigned_array

__all__ = ["ADAPTER"]


#: Largest value of each mode.
_MODES = {"q": 3, "v_mode": 2, "apply": 1, "mu": 65535}


def _optimizer_modes(arrays: Arrays) -> dict[str, int]:
    return {"q": 0, "v_mode": 0, "apply": 1, "mu": 0} | {
        name: int(arrays[name][0]) for name in _MODES if name in arrays
    }


def _optimizer_feed(dut: Any, arrays: Arrays) -> UnitFeed:
    shape = payload_shape(dut, "i")
    beats = [
        pack(shape, [{"w": w, "v": v, "g": g} for w, v, g in zip(*rows, strict=True)])
        for rows in zip(*(arrays[name].tolist() for name in ("w", "v", "g")), strict=True)
    ]
    held = pack(dut.signature.members["config"].shape, _optimizer_modes(arrays))
    return UnitFeed(inputs={"i": beats}, outputs={"o": len(beats)}, held={"config": held})


def _optimizer_collect(dut: Any, arrays: Arrays, beats: dict[str, list[Any]]) -> Arrays:
    return {
        name: np.array([[word[name] for word in beat] for beat in beats["o"]], np.int64)
        for name in ("w", "v", "saturated", "underflowed", "magnitude")
    }


def _optimizer_reference(parameters: Mapping[str, Any], arrays: Arrays) -> Arrays:
    rounding = Rounding(parameters["rounding"])
    modes = _optimizer_modes(arrays)
    columns = []
    for lane in range(parameters["lanes"]):
        noise = Noise(parameters["seed"] + lane) if rounding is Rounding.STOCHASTIC else None
        columns.append(
            optimize(
                *(arrays[name][:, lane] for name in ("w", "v", "g")),
                offset=parameters["offset"],
                rounding=rounding,
                noise=noise,
                q=modes["q"],
                v_mode=modes["v_mode"],
                apply=bool(modes["apply"]),
                mu=modes["mu"],
            )
        )
    return {
        name: np.stack([np.asarray(getattr(column, name), np.int64) for column in columns], axis=1)
        for name in ("w", "v", "saturated", "underflowed", "magnitude")
    }


def _optimizer_inputs(p: Mapping[str, Any]) -> list[UnitArray]:
    shape = ("beats", p["lanes"])
    modes = {
        "q": "the gradient's exponent is 24 - 4q; default 0",
        "v_mode": "the velocity starts at 0: zero, 1: itself, 2: mu times itself; default 0",
        "apply": "whether w changes; default 1",
        "mu": "momentum in 2**-16; default 0",
    }
    return [
        signed_array("w", 16, shape, "2**-12", "parameters, Q4.12"),
        signed_array("v", 27, shape, "2**-23", "velocities"),
        signed_array("g", 48, shape, f"2**-(24-4q{p['offset']:+d})", "gradient sums"),
        *(
            UnitArray(name=name, shape=(1,), units="mode", description=text, high=_MODES[name], optional=True)
            for name, text in modes.items()
        ),
    ]


def _optimizer_outputs(p: Mapping[str, Any]) -> list[UnitArray]:
    shape = ("beats", p["lanes"])
    return [
        signed_array("w", 16, shape, "2**-12", "new parameters"),
        signed_array("v", 27, shape, "2**-23", "new velocities"),
        unsigned_array("saturated", 1, shape, "0 or 1", "was clipped"),
        unsigned_array("underflowed", 1, shape, "0 or 1", "v is too small to move w"),
        unsigned_array("magnitude", 25, shape, "2**-23", "abs(g), cut and clipped to 2"),
    ]


ADAPTER = UnitAdapter(
    inputs=_optimizer_inputs,
    outputs=_optimizer_outputs,
    feed=_optimizer_feed,
    collect=_optimizer_collect,
    reference=_optimizer_reference,
)
