"""Passes, convolutions and dense layers are refused where they reach too far, and taken otherwise."""

# amaranth: UnusedElaboratable=no
from types import SimpleNamespace

import numpy as np
import pytest
from amaranth.hdl import Module, Signal

from gradloom.rtl.engines.array.commands import ConvolveOperands, DenseOperands, PassOperands
from gradloom.rtl.engines.array.control.reach import judge, measure
from gradloom.sim.bench.engine import simulate

from .small import CONFIG as C

PASS = {"elements": 64, "samples": 3, "tap": 1, "lane": 4, "scale": 2, "bank": 5, "book": 2}
CONVOLUTION = dict.fromkeys(("kernel_h", "kernel_w", "stride_h", "stride_w", "pool", "channels", "outputs", "row"), 1)
CONVOLUTION |= {"height": 5, "width": 6, "out_height": 5, "out_width": 6, "bias": 2}
WINDOWS = {"kernel_h": 2, "kernel_w": 2, "pad_top": 1, "pad_left": 1}
DENSE = {"inputs": 16, "samples": 3, "outputs": 4, "from": 8, "target": 32, "weights": 9, "bias": 1}


def passes(v):
    """Samples and the tap are there, and codes, scales and adapter words end within their memories."""
    blocks, words = -(-v["elements"] // 64), 4 if v["wide"] else 2
    return (
        0 < v["elements"]
        and 0 < v["samples"] <= C.rows
        and v["tap"] < C.taps
        and v["lane"] + -(-v["elements"] // C.panels) <= C.adapter_depth
        and v["scale"] + blocks <= C.blocks
        and v["bank"] + words * blocks <= 4 * C.blocks
        and not (v["wide"] and v["book"] % 2)
    )


def convolves(v):
    """Sizes are those of the design, pads less than the kernel, and windows and pools have room."""
    spans = [
        v["height"] + v["pad_top"] + v["pad_bottom"] - v["kernel_h"],
        v["width"] + v["pad_left"] + v["pad_right"] - v["kernel_w"],
    ]
    return (
        v["channels"] > 0
        and all(0 < v[field] <= C.kernel for field in ("kernel_h", "kernel_w", "stride_h", "stride_w"))
        and all(0 <= v[field] <= C.width for field in ("height", "width", "out_height", "out_width"))
        and v["height"] * v["width"] > 0
        and 4 <= v["out_height"] * v["out_width"] <= C.positions
        and 0 < v["outputs"] <= C.columns
        and max(v["pad_top"], v["pad_bottom"]) < v["kernel_h"]
        and max(v["pad_left"], v["pad_right"]) < v["kernel_w"]
        and all(0 <= span < C.width for span in spans)
        and 0 < v["pool"] <= min(4, v["out_height"], v["out_width"])
        and v["row"] < C.rows
        and v["bias"] < C.bias_depth
    )


def is_dense(v):
    """Inputs, outputs and weights end within their memories."""
    return (
        v["inputs"] > 0
        and 0 < v["samples"] <= C.rows
        and 0 < v["outputs"] <= C.columns
        and max(v["from"] + v["inputs"], v["target"] + v["outputs"]) <= C.dense_depth
        and v["weights"] + v["inputs"] <= C.weight_depth
        and v["bias"] < C.bias_depth
    )


KINDS = {
    "pass": (PassOperands, passes, [PASS, PASS | {"wide": 1}]),
    "convolution": (ConvolveOperands, convolves, [CONVOLUTION, CONVOLUTION | WINDOWS]),
    "dense": (DenseOperands, is_dense, [DENSE]),
}
#: Bounds of operands; what is next to them is drawn, too.
BOUNDS = [0, 64, C.rows, C.taps, C.columns, C.kernel, C.width, C.positions, C.blocks, 2 * C.blocks, 4 * C.blocks]
BOUNDS += [C.bias_depth, C.weight_depth, C.dense_depth, C.adapter_depth, C.panels * C.adapter_depth, 64 * C.blocks]


def drawn(layout, start, rng):
    """One operand at a bound, another so that a sum of two is at one, or some anywhere."""
    value = dict.fromkeys((name for name, _ in layout), 0) | start
    fields = [name for name, _ in layout if not name.startswith("_")]
    for name in rng.choice(fields, rng.integers(1, 4), replace=False):
        near = int(rng.choice(BOUNDS)) + int(rng.integers(-2, 3))
        if rng.random() < 0.3:
            near -= value[str(rng.choice(fields))]
        value[str(name)] = near % (1 << layout[name].width)
    return value


@pytest.mark.parametrize("name", KINDS)
def test_commands_are_refused_where_they_reach_too_far(name):
    layout, allowed, starts = KINDS[name]
    rng = np.random.default_rng(5)
    cases = [dict.fromkeys((field for field, _ in layout), 0) | start for start in starts]
    cases += [
        case | {field: bound + more}
        for case in cases
        for field, shape in layout
        for bound in BOUNDS
        for more in (-1, 0, 1)
        if 0 <= bound + more < 1 << shape.width
    ]
    cases += [drawn(layout, starts[n % len(starts)], rng) for n in range(1000)]
    m = Module()
    port = SimpleNamespace(
        command=SimpleNamespace(valid=Signal(), ready=Signal(), p=SimpleNamespace(args=Signal(layout.size)))
    )
    ends = measure(m, C, port)
    bad = judge(m, C, port, ends)[list(KINDS).index(name)]
    found = []

    async def script(ctx):
        for case in cases:
            args = sum(value << layout[field].offset for field, value in case.items())
            ctx.set(port.command.p.args, args)
            ctx.set(port.command.valid, 1)
            await ctx.tick().repeat(2)
            assert ctx.get(ends.looked)
            found.append(not ctx.get(bad))
            ctx.set(port.command.valid, 0)
            await ctx.tick()

    simulate(m, script)
    wanted = [bool(allowed(case)) for case in cases]
    assert 0.1 < np.mean(wanted) < 0.9
    wrong = next((case for case, taken, may in zip(cases, found, wanted) if taken != may), None)
    assert found == wanted, str(wrong)
