"""How far a command's operands reach, and whether that is too far.

::

    operands --> measure --> judge --> dispatch
                 2 cycles    1 cycle
"""

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Mux, Signal, Value, signed
from amaranth.lib import data
from amaranth.utils import ceil_log2

from ...compare import beyond
from ..commands import ConvolveOperands, DenseOperands, PassOperands

__all__ = ["Reach", "judge", "measure", "operands"]


@dataclass(frozen=True)
class Reach:
    """How far the offered command's operands reach, in registers.

    ``looked``: they are those of this command. Of a pass: ``pass_blocks``, ends of its adapter words (``lane``) and its
    scales, and whether its codes end beyond the bank, for codes of 4 and of 8 bits. Of a convolution: ``pixels`` and
    ``positions``, and ``spans`` of windows at stride 1, less one. Of a dense layer: ends in each of its memories.
    """

    looked: Signal
    pass_blocks: Signal
    lane: Signal
    scale: Signal
    bank_over: list[Value]
    pixels: Signal
    positions: Signal
    spans: list[Signal]
    dense_from: Signal
    dense_target: Signal
    dense_weights: Signal


def operands(port):
    """Operands of the offered command, read with each of three layouts.

    The layouts are those of a pass, of a convolution and of a dense layer.
    """
    args = port.command.p.args
    return data.View(PassOperands, args), data.View(ConvolveOperands, args), data.View(DenseOperands, args)


def measure(m, config, port):
    """Registers how far a command's operands reach, in two cycles."""
    command = port.command
    to_pass, to_convolve, to_dense = operands(port)
    # One cycle to check, a second to begin: the sums of a check are registered.
    first_look, looked = Signal(), Signal()
    pass_blocks, lane_end = Signal(11), Signal(18)
    scale_end, bank_end, bank_odd = Signal(17), Signal(17), Signal()
    conv_pixels, conv_positions = Signal(17), Signal(17)
    # Rows and columns of windows at stride 1, minus one.
    spans = [Signal(signed(11), name=f"span_{side}") for side in "hw"]
    from_end, target_end, weights_end = Signal(17), Signal(17), Signal(17)
    m.d.sync += [
        first_look.eq(command.valid & ~command.ready),
        looked.eq(first_look & command.valid & ~command.ready),
        pass_blocks.eq((to_pass.elements + 63) >> 6),
        lane_end.eq(to_pass.lane + ((to_pass.elements + config.panels - 1) >> ceil_log2(config.panels))),
        # Ends in blocks, of which a bank word is a half or a quarter: what a bank has beyond a whole number of
        # blocks asks for room in one more.
        scale_end.eq((to_pass.elements + Cat(Const(63, 6), to_pass.scale)) >> 6),
        bank_end.eq((to_pass.elements + Cat(Const(63, 6), Mux(to_pass.wide, to_pass.bank[2:], to_pass.bank[1:]))) >> 6),
        bank_odd.eq(Mux(to_pass.wide, to_pass.bank[:2].any(), to_pass.bank[0])),
        conv_pixels.eq(to_convolve.height * to_convolve.width),
        conv_positions.eq(to_convolve.out_height * to_convolve.out_width),
        spans[0].eq(to_convolve.height + (to_convolve.pad_top + to_convolve.pad_bottom - to_convolve.kernel_h)),
        spans[1].eq(to_convolve.width + (to_convolve.pad_left + to_convolve.pad_right - to_convolve.kernel_w)),
        from_end.eq(to_dense["from"] + to_dense.inputs),
        target_end.eq(to_dense.target + to_dense.outputs),
        weights_end.eq(to_dense.weights + to_dense.inputs),
    ]
    bank_room = [config.blocks << shift for shift in (1, 0)]
    bank_over = [beyond(bank_end, room) | (bank_odd & (bank_end == room)) for room in bank_room]
    return Reach(
        looked=looked,
        pass_blocks=pass_blocks,
        lane=lane_end,
        scale=scale_end,
        bank_over=bank_over,
        pixels=conv_pixels,
        positions=conv_positions,
        spans=spans,
        dense_from=from_end,
        dense_target=target_end,
        dense_weights=weights_end,
    )


def judge(m, config, port, ends):
    """Registers whether the operands are bad, for each kind of command.

    The kinds are a pass, a convolution and a dense layer.
    """
    to_pass, to_convolve, to_dense = operands(port)
    bad_pass, bad_convolve, bad_dense = Signal(), Signal(), Signal()
    m.d.sync += [
        bad_pass.eq(
            (to_pass.elements == 0)
            | (to_pass.samples == 0)
            | (to_pass.samples > config.rows)
            | beyond(ends.lane, config.adapter_depth)
            | (to_pass.tap >= config.taps)
            | beyond(ends.scale, config.blocks)
            | (to_pass.wide & to_pass.book[0])
            | Mux(to_pass.wide, ends.bank_over[1], ends.bank_over[0])
        ),
        bad_convolve.eq(
            (to_convolve.channels == 0)
            | (to_convolve.kernel_h > config.kernel)
            | (to_convolve.kernel_w > config.kernel)
            | (to_convolve.height > config.width)
            | (to_convolve.width > config.width)
            | (to_convolve.out_height > config.width)
            | (to_convolve.out_width > config.width)
            | (ends.pixels == 0)
            | (to_convolve.kernel_h == 0)
            | (to_convolve.kernel_w == 0)
            | (to_convolve.stride_h == 0)
            | (to_convolve.stride_w == 0)
            | (ends.positions < 4)
            | beyond(ends.positions, config.positions)
            | (to_convolve.outputs == 0)
            | (to_convolve.outputs > config.columns)
            | (to_convolve.stride_h > config.kernel)
            | (to_convolve.stride_w > config.kernel)
            | (to_convolve.pad_top >= to_convolve.kernel_h)
            | (to_convolve.pad_bottom >= to_convolve.kernel_h)
            | (to_convolve.pad_left >= to_convolve.kernel_w)
            | (to_convolve.pad_right >= to_convolve.kernel_w)
            | Cat((span < 0) | (span >= config.width) for span in ends.spans).any()
            | (to_convolve.pool == 0)
            | (to_convolve.pool > 4)
            | (to_convolve.pool > to_convolve.out_height)
            | (to_convolve.pool > to_convolve.out_width)
            | (to_convolve.row >= config.rows)
            | (to_convolve.bias >= config.bias_depth)
        ),
        bad_dense.eq(
            (to_dense.inputs == 0)
            | (to_dense.samples == 0)
            | (to_dense.samples > config.rows)
            | (to_dense.outputs == 0)
            | (to_dense.outputs > config.columns)
            | beyond(ends.dense_from, config.dense_depth)
            | beyond(ends.dense_target, config.dense_depth)
            | beyond(ends.dense_weights, config.weight_depth)
            | (to_dense.bias >= config.bias_depth)
        ),
    ]
    return bad_pass, bad_convolve, bad_dense
