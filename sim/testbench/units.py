"""Vectors of stand-alone units, made by their references."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gradloom.rtl.catalog import Unit

from ..units.adapter import Arrays, UnitAdapter
from ..units.adapters import unit_adapter
from . import engines
from .plan import BenchPart, BenchPlan
from .vectors import Parameters, draw, masked, numbers, packed

__all__ = ["PLANS", "plan_unit"]

#: Fields of each beat by output stream; those that are left out are not compared.
Beats = Mapping[str, Sequence[Any]]


def plan_unit(unit: Unit, parameters: Parameters, component: Any) -> BenchPlan | None:
    """Test of a unit; None where it has no vectors.

    ``parameters``: those of ``component``.
    """
    make = PLANS.get(unit.name)
    return None if make is None else make(unit, parameters, component)


def _adapted(
    extents: Callable[[Parameters], Mapping[str, int]],
    beats: Callable[[Parameters, Arrays, UnitAdapter], Beats],
    *,
    cases: Callable[[Parameters, Arrays], Sequence[Arrays]] = lambda _, arrays: [arrays],
    zero: Mapping[str, tuple[int, str | None]] | None = None,
) -> Callable[[Unit, Parameters, Any], BenchPlan]:
    """Plan of a unit that its adapter feeds.

    ``extents(parameters)``: dimensions of the arrays by their words; ``cases``: runs of the unit, each its arrays.
    """

    def plan(unit: Unit, parameters: Parameters, component: Any) -> BenchPlan:
        adapter, parts = unit_adapter(unit), []
        arrays = {
            array.name: numbers(f"{unit.name} {array.name}", array, extents(parameters))
            for array in adapter.inputs(parameters)
            if not array.optional
        }
        for case in cases(parameters, arrays):
            feed = adapter.feed(component, case)
            told = beats(parameters, case, adapter)
            outputs = {name: masked(component, name, told[name]) for name in feed.outputs}
            assert feed.outputs == {name: len(each) for name, each in outputs.items()}, unit.name
            parts.append(BenchPart(inputs=feed.inputs, outputs=outputs, held=feed.held))
        return BenchPlan(parts=parts, zero=zero or {})

    return plan


def _mesh(p: Parameters, arrays: Arrays, adapter: UnitAdapter) -> Beats:
    return {"o": [{"sum": row} for tile in adapter.reference(p, arrays)["y"].tolist() for row in tile]}


def _int8_chain(p: Parameters, arrays: Arrays, adapter: UnitAdapter) -> Beats:
    answer = adapter.reference(p, arrays)
    rows, lost = answer["y"].reshape(-1, p["cols"]).tolist(), answer["lost"].reshape(-1).tolist()
    return {"o": [{"sum": row, "lost": count} for row, count in zip(rows, lost, strict=True)]}


def _encode(p: Parameters, arrays: Arrays, adapter: UnitAdapter) -> Beats:
    from gradloom.rtl.formats.codebook import pack_nibbles

    answer = adapter.reference(p, arrays)
    codes = pack_nibbles(answer["codes"].reshape(-1, p["block"]))
    last = len(codes) - 1
    return {
        "o": [
            {"codes": int.from_bytes(row.tobytes(), "little"), "scale": int(scale), "last": index == last}
            for index, (row, scale) in enumerate(zip(codes, answer["scales"], strict=True))
        ]
    }


def _decode(p: Parameters, arrays: Arrays, adapter: UnitAdapter) -> Beats:
    rows = adapter.reference(p, arrays)["x"].tolist()
    return {"o": [{"x": row, "last": index == len(rows) - 1} for index, row in enumerate(rows)]}


def _forward(p: Parameters, arrays: Arrays, adapter: UnitAdapter) -> Beats:
    return {"o": [{"h": row} for row in adapter.reference(p, arrays)["h"].tolist()]}


def _gradient(p: Parameters, arrays: Arrays, adapter: UnitAdapter) -> Beats:
    """The sums after each sample are those of the samples up to it."""
    beats = []
    for sample in range(len(arrays["h"])):
        answer = adapter.reference(p, {**arrays, "h": arrays["h"][: sample + 1], "d": arrays["d"][: sample + 1]})
        rows = zip(answer["dh"][-1].tolist(), answer["db"].T.tolist(), strict=True)
        beats += [{"k": k, "dh": dh, "db": db} for k, (dh, db) in enumerate(rows)]
    return {"o": beats}


def _softmax(p: Parameters, arrays: Arrays, adapter: UnitAdapter) -> Beats:
    answer, last = adapter.reference(p, arrays), arrays["z"].shape[1] - 1
    return {
        "o": [
            {"d": d, "first": index == 0, "last": index == last}
            for row in answer["d"].tolist()
            for index, d in enumerate(row)
        ],
        "o_loss": [
            {"loss": int(loss), "correct": int(correct)}
            for loss, correct in zip(answer["loss"], answer["correct"], strict=True)
        ],
    }


def _targets(_: Parameters, arrays: Arrays) -> Sequence[Arrays]:
    """Most vectors have a target, among them the largest logit."""
    count, length = arrays["z"].shape
    wanted = [-1, int(arrays["z"][1].argmax()), *(number * 7 % length for number in range(2, count))]
    return [{**arrays, "target": np.array(wanted)}]


def _optimizer(p: Parameters, arrays: Arrays, adapter: UnitAdapter) -> Beats:
    answer = adapter.reference(p, arrays)
    names = ("w", "v", "saturated", "underflowed", "magnitude")
    return {
        "o": [
            [dict(zip(names, word)) for word in zip(*row, strict=True)]
            for row in zip(*(answer[name].tolist() for name in names), strict=True)
        ]
    }


def _modes(_: Parameters, arrays: Arrays) -> Sequence[Arrays]:
    """Every mode of the velocity, in four runs."""
    chosen = ((0, 0, 1, 0), (1, 1, 1, 0), (3, 2, 1, 58982), (2, 2, 0, 65535))
    return [
        {**arrays, **{name: np.array([value]) for name, value in zip(("q", "v_mode", "apply", "mu"), modes)}}
        for modes in chosen
    ]


def _window(unit: Unit, parameters: Parameters, component: Any) -> BenchPlan:
    import dataclasses

    from gradloom.rtl.window_run import WindowRun

    from ..reference.array import windows

    edge, width, height = (parameters[name] for name in ("max_kernel", "max_width", "max_height"))
    wide, high = min(width, 11), min(height, 9)
    small = min(edge, 2, wide, high)
    runs = [
        WindowRun(height=high, width=wide, kernel_h=1, kernel_w=1),
        WindowRun(
            height=high, width=wide, channels=2, kernel_h=small, kernel_w=small, stride_h=small, pad_left=small - 1
        ),
    ]
    if edge <= min(wide, high):
        runs.append(WindowRun(height=high, width=wide, channels=3, kernel_h=edge, kernel_w=edge, stride_w=small))
    pixels, beats = [], []
    for number, run in enumerate(runs):
        x = draw(f"window {number}", component.shape.width, run.channels, run.height, run.width)
        pixels += x.ravel().tolist()
        seen = windows(
            x,
            kernel=(run.kernel_h, run.kernel_w),
            stride=(run.stride_h, run.stride_w),
            pads=(run.pad_top, run.pad_left, run.pad_bottom, run.pad_right),
            max_kernel=edge,
        ).reshape(run.channels, -1, edge**2)
        for channel, rows in enumerate(seen.tolist()):
            begins, ends = channel == 0, channel == run.channels - 1
            for index, row in enumerate(rows):
                last = index == len(rows) - 1
                tags = {"first": index == 0, "last": last, "first_channel": begins, "last_channel": ends}
                beats.append({"p": row, **tags, "end": ends and last})
    inputs = {
        "i_config": packed(component, "i_config", [dataclasses.asdict(run) for run in runs]),
        "i": packed(component, "i", pixels),
    }
    return BenchPlan(parts=[BenchPart(inputs=inputs, outputs={"o": masked(component, "o", beats)})])


def _post(unit: Unit, parameters: Parameters, component: Any) -> BenchPlan:
    from ..reference.array import post_process

    lanes = parameters["lanes"]
    configs, sums, beats = [], [], []
    for number, (height, width, pool, relu) in enumerate(((4, 6, 2, 1), (5, 4, 1, 0), (6, 7, 3, 0), (1, 9, 1, 1))):
        bias = draw(f"post bias {number}", 32, lanes)
        x = draw(f"post sums {number}", 47, lanes, height, width)
        value, _ = post_process(x, bias, relu=bool(relu), pool=pool)
        rows = value.reshape(lanes, -1).T.tolist()
        beats += [{"p": row, "last": index == len(rows) - 1} for index, row in enumerate(rows)]
        sums += x.reshape(lanes, -1).T.tolist()
        configs.append(
            {"height": height, "width": width, "pool": pool, "relu": relu, "bias": bias.tolist()}
            | {"counted": width, "final": lanes - 1}
        )
    inputs = {"i_config": packed(component, "i_config", configs), "i": packed(component, "i", sums)}
    return BenchPlan(parts=[BenchPart(inputs=inputs, outputs={"o": masked(component, "o", beats)})])


def _sha256(unit: Unit, parameters: Parameters, component: Any) -> BenchPlan:
    """Messages whose padding does and does not take a block of its own."""
    import hashlib

    messages = [draw(f"sha256 {size}", 8, size).astype(np.uint8).tobytes() for size in (1, 55, 56, 64, 130)]
    beats = [{"data": byte, "last": at == len(each) - 1} for each in messages for at, byte in enumerate(each)]
    digests = [int.from_bytes(hashlib.sha256(each).digest(), "big") for each in messages]
    inputs = {"i": packed(component, "i", beats)}
    return BenchPlan(parts=[BenchPart(inputs=inputs, outputs={"o": [(each, (1 << 256) - 1) for each in digests]})])


PLANS: dict[str, Callable[[Unit, Parameters, Any], BenchPlan]] = {
    "mesh": _adapted(lambda p: {"tiles": 3, "m": 6}, _mesh),
    "int8-chain": _adapted(lambda p: {"sums": 3, "tiles": 3, "m": min(6, p["tokens"])}, _int8_chain),
    "nf4-encode": _adapted(lambda p: {"n": 4 * p["block"] - 3}, _encode),
    "nf4-decode": _adapted(lambda p: {"beats": 100}, _decode),
    "lora-forward": _adapted(lambda p: {"vectors": 5, "n": 10 * p["lanes"] + 1}, _forward),
    "lora-gradient": _adapted(lambda p: {"samples": min(3, p["samples"])}, _gradient),
    "softmax-cross-entropy": _adapted(
        lambda p: {"vectors": 6, "length": min(p["max_length"], 40)},
        _softmax,
        cases=_targets,
        zero={"error": (1, None)},
    ),
    "optimizer": _adapted(lambda p: {"beats": 24}, _optimizer, cases=_modes),
    "window": _window,
    "post-process": _post,
    "sha256": _sha256,
    **engines.PLANS,
}
