"""Words that enter the array from above, and the adapter's lanes, which learn from the sums that leave below.

::

    weights --> words ------------+
    dh of a sample ---------------+--> columns 0, 1, ... of each panel --> array
    lanes of a column, a pair ----+                                          |
      ^                                                                      |
      +----------------------- sums of a gradient ---------------------------+

Each column is a cycle behind the one before it in its panel.
"""

from dataclasses import dataclass

from amaranth.hdl import Mux, Signal, Value
from amaranth.lib import data, memory
from amaranth.utils import ceil_log2

from gradloom.rtl.formats.images import PARAMETER
from gradloom.rtl.hierarchy import place
from gradloom.rtl.stream.delay import delay
from gradloom.rtl.units.optimizer import lane_config

from ..parameters import EDGE
from .lane import AdapterLanes

__all__ = ["feed_columns"]


@dataclass(frozen=True)
class _Words:
    """Words for column 0, and whether it ``use``s them, in the cycle before it has them."""

    use: Value
    words: Value


@dataclass(frozen=True)
class _LaneSteps:
    """Actions of column 0's lanes: ``ask`` for words, ``use`` those that were asked for, ``learn`` from sums."""

    ask: Value
    use: Value
    learn: Value


def feed_columns(m, platform, ports, parts, dispatched):
    """Feeds the array's columns with their weights.

    The adapter's lanes learn from the sums that leave the columns. Returns how many of them saturated in a cycle.
    """
    weights = _read_weights(m, ports, parts)
    dh = _read_dh(m, ports, parts.passes)
    lanes = _time_lanes(m, ports.config, parts.passes, parts.array)
    saturated = _place_lanes(m, platform, ports, parts.array, dispatched, weights, dh, lanes)
    _end_gradients(m, ports.config, parts, dispatched)
    return saturated


def _read_weights(m, ports, parts):
    """Holds the weights of convolutions and dense layers, and reads a word for all columns."""
    config, convolve, dense = ports.config, parts.convolve, parts.dense
    columns = config.columns
    m.submodules.weights = weights = memory.Memory(
        shape=data.ArrayLayout(PARAMETER.shape, columns),
        depth=config.weight_depth,
        init=[],
        attrs={"ram_style": "ultra"},
    )
    write, read = weights.write_port(), weights.read_port()
    # Column 0 wants its word EDGE - 1 cycles after it was asked for, of which the last is spent below. A word is
    # far wider than its address: the address waits.
    asks = convolve.weight.valid | dense.beat.valid
    asked = Mux(dense.beat.valid, dense.beat.weight, convolve.weight.address)
    m.d.comb += [
        write.en.eq(ports.weights.valid),
        write.addr.eq(ports.weights.address),
        write.data.eq(ports.weights.data[: 16 * columns]),
        read.en.eq(delay(m, asks, EDGE - 4, reset_less=False)),
        read.addr.eq(delay(m, asked, EDGE - 4)),
    ]
    weight = Signal(data.ArrayLayout(PARAMETER.shape, columns), reset_less=True)
    m.d.sync += weight.eq(read.data)
    use_weight = delay(m, (convolve.weight.valid & convolve.weight.live) | dense.beat.valid, EDGE - 2, reset_less=False)
    return _Words(use=use_weight, words=weight)


def _read_dh(m, ports, passes):
    """Asks for the dh that a gradient loads into the array."""
    m.d.comb += [
        ports.dh.tap.eq(delay(m, passes.weight.tap, EDGE - 3)),
        ports.dh.sample.eq(delay(m, passes.weight.row, EDGE - 3)),
    ]
    use_dh = delay(m, passes.weight.valid & passes.weight.live, EDGE - 2, reset_less=False)
    return _Words(use=use_dh, words=ports.dh_data)


def _time_lanes(m, config, passes, array):
    """Times the lanes: a forward pass reads them, a gradient changes them."""
    lane_layout = data.StructLayout({"valid": 1, "address": ceil_log2(config.adapter_depth)})
    ask = Signal(lane_layout)
    m.d.comb += [ask.valid.eq(passes.beat.valid & ~passes.beat.backward), ask.address.eq(passes.beat.lane)]
    ask = delay(m, ask, EDGE - 2 - AdapterLanes.read_latency, reset_less=False)
    use_lane = delay(m, ask.valid, AdapterLanes.read_latency, reset_less=False)
    # The sums of high nibbles are in those of the low ones.
    learn = Signal(lane_layout)
    m.d.comb += [
        learn.valid.eq(passes.beat.valid & passes.beat.backward & ~passes.beat.high),
        learn.address.eq(passes.beat.lane),
    ]
    learn = delay(m, learn, EDGE + array.latency, reset_less=False)
    return _LaneSteps(ask=ask, use=use_lane, learn=learn)


def _place_lanes(m, platform, ports, array, dispatched, weights, dh, steps):
    """Places the lanes of each column, and gives each column of each panel its word.

    Returns how many lanes saturated in a cycle.
    """
    config, rank = ports.config, ports.config.rank
    optimiser = delay(m, lane_config(m, dispatched.optimiser), 1)
    saturated, underflowed, norm = [], [], 0
    for column in range(rank):
        lanes = AdapterLanes(depth=config.adapter_depth, panels=config.panels)
        place(m, f"lanes_{column}", lanes, platform)
        asked = delay(m, steps.ask, column, reset_less=False)
        m.d.comb += [
            lanes.config.eq(optimiser),
            lanes.read.valid.eq(asked.valid | ports.dump.valid),
            lanes.read.address.eq(Mux(ports.dump.valid, ports.dump.address, asked.address)),
            lanes.gradient.eq(delay(m, steps.learn, column, reset_less=False)),
            lanes.write.valid.eq(ports.lanes.valid),
            lanes.write.address.eq(ports.lanes.address),
            lanes.norm_i.eq(norm),
        ]
        norm = lanes.norm_o
        saturated.append(lanes.saturated)
        underflowed.append(lanes.underflowed)
        of_weight = delay(m, weights.use, column, reset_less=False)
        of_dh = delay(m, dh.use, column, reset_less=False)
        of_lane = delay(m, steps.use, column, reset_less=False)
        for panel in range(config.panels):
            index = panel * rank + column
            m.d.comb += [
                lanes.g[panel].eq(array.p[index]),
                lanes.write.data[panel].eq(ports.lanes.data[16 * index : 16 * index + 16].as_signed()),
                ports.words[index].eq(lanes.w[panel]),
            ]
            m.d.sync += array.w[index].eq(
                Mux(of_weight, delay(m, weights.words[index], column), 0)
                | Mux(of_dh, delay(m, dh.words[column], column), 0)
                | Mux(of_lane, lanes.w[panel], 0)
            )
    lanes_saturated = Signal(8)
    m.d.sync += [lanes_saturated.eq(sum(saturated)), ports.underflowed.eq(sum(underflowed))]
    m.d.comb += ports.norm.eq(norm)
    return lanes_saturated


def _end_gradients(m, config, parts, dispatched):
    """Tells that a pass has learnt: its last word is in the last column's memory."""
    passes, array, rank = parts.passes, parts.array, config.rank
    last = passes.beat.valid & passes.beat.backward & passes.beat.last
    m.d.comb += dispatched.gradient_done.eq(
        delay(m, last, EDGE + array.latency + rank - 1 + AdapterLanes.latency, reset_less=False)
    )
