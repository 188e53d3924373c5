"""Takes the array engine's commands, and reports them done in order.

::

    command --+--> decode ---------------------+
              +--> measure --> judge --+       |
              |                        v       v
              +--> offer            choose --> take --> count (of gradients, of forward passes)
                     |                          |
                     v                          v
                 controls                   order of kinds --> report --> done
"""

from dataclasses import dataclass

from amaranth.hdl import Cat, Mux, Signal, Value
from amaranth.utils import ceil_log2

from gradloom.rtl.shell.registers.errors import Error
from gradloom.rtl.stream.queue import ShortQueue, stepped
from gradloom.rtl.units.optimizer import OPTIMIZER_CONFIG

from ..commands import ArrayOpcode
from .reach import judge, measure, operands

__all__ = ["DispatchJoints", "TapBase", "dispatch"]


@dataclass(frozen=True)
class TapBase:
    """A stream of one word a convolution that encodes: where its tap's scales begin."""

    base: Signal
    valid: Signal
    ready: Signal


@dataclass(frozen=True)
class DispatchJoints:
    """Joints of the commands with the rest of the engine.

    ``optimiser``: its operands, which hold while gradients are under way. ``gradient_done``, ``drained``: a gradient, a
    forward pass is done; strobes of others.
    """

    base: TapBase
    optimiser: Signal
    gradient_done: Signal
    drained: Signal


@dataclass(frozen=True)
class _Choice:
    """Whether the offered command is ``bad`` or ``unknown``, and may ``go``; its ``kind`` by the order of its end.

    ``take``: it is taken. ``may``: it could go in the cycle before.
    """

    bad: Value
    unknown: Value
    go: Value
    take: Signal
    may: Signal
    kind: Value


def dispatch(m, config, port, parts):
    """Hands each checked command to its control, and reports ``done``.

    Commands are done in the order in which they came. Who makes the events they end with drives ``drained`` and
    ``gradient_done`` of the result.
    """
    is_kind = _decode(m, port)
    ends = measure(m, config, port)
    bad_operands = judge(m, config, port, ends)
    base = TapBase(base=Signal(16), valid=Signal(), ready=Signal())
    kinds = ShortQueue(width=2, depth=8)
    m.submodules.kinds = kinds
    # How many are in it.
    inside = Signal(range(9), name="inside")
    m.d.sync += inside.eq(stepped(inside, kinds.w_en & kinds.w_rdy, kinds.r_en))

    # The optimiser's operands hold while gradients are under way.
    optimiser = Signal(OPTIMIZER_CONFIG)
    gradients, forwards = Signal(4), Signal(4)
    gradient_done = Signal()
    drained = Signal()

    out = DispatchJoints(base=base, optimiser=optimiser, gradient_done=gradient_done, drained=drained)
    _offer(m, config, port, parts, is_kind, ends, base)
    choice = _choose(m, port, parts, is_kind, bad_operands, gradients, forwards, out)
    _take(m, port, parts, ends.looked, choice, kinds, inside)
    _count(m, port, is_kind, choice.take, gradients, forwards, out)
    _report(m, port, parts, kinds, inside, out)
    return out


def _decode(m, port):
    """Registers the offered command's kind.

    It is that of the offered command from the second cycle on, before one can be taken.
    """
    opcode = port.command.p.opcode
    kinds = {kind: Signal(name=f"is_{kind.name.lower()}") for kind in ArrayOpcode}
    m.d.sync += [flag.eq(opcode == kind) for kind, flag in kinds.items()]
    return kinds


def _offer(m, config, port, parts, is_kind, ends, base):
    """Offers the command's operands to all controls and to the feet."""
    passes, convolve, dense, finish = parts.passes, parts.convolve, parts.dense, parts.finish
    to_pass, to_convolve, to_dense = operands(port)
    tail = ((to_pass.elements - 1)[:6]) >> ceil_log2(config.panels)
    p, run = passes.i.p, finish.run.p
    m.d.comb += [
        p.blocks.eq(ends.pass_blocks),
        p.tail.eq(tail),
        p.bank.eq(Cat(to_pass.bank[: len(p.bank) - 1], to_pass.half)),
        p.scale.eq(Cat(to_pass.scale[: len(p.scale) - 1], to_pass.half)),
        p.lane.eq(to_pass.lane),
        p.tap.eq(to_pass.tap),
        p.book.eq(to_pass.book),
        p.wide.eq(to_pass.wide),
        p.samples.eq(to_pass.samples),
        p.backward.eq(is_kind[ArrayOpcode.GRADIENT]),
        convolve.i.p.eq(to_convolve),
        convolve.positions.eq(ends.positions),
        dense.i.p.eq(to_dense),
        convolve.hold.eq(finish.hold),
        dense.hold.eq(finish.hold),
        base.base.eq(to_convolve.scale),
    ]
    with m.If(is_kind[ArrayOpcode.CONVOLVE]):
        m.d.comb += [
            run.height.eq(to_convolve.out_height),
            run.width.eq(to_convolve.out_width),
            run.pool.eq(to_convolve.pool),
            run.relu.eq(to_convolve.relu),
            run.bias.eq(to_convolve.bias),
            run.to_dense.eq(to_convolve.to_dense),
            run.row.eq(to_convolve.row),
            run.target.eq(to_convolve.target),
            run.stride.eq(to_convolve.stride),
            run.final.eq(to_convolve.outputs - 1),
        ]
    with m.Else():
        m.d.comb += [
            run.height.eq(1),
            run.width.eq(config.rows),
            run.pool.eq(1),
            run.relu.eq(to_dense.relu),
            run.bias.eq(to_dense.bias),
            run.to_dense.eq(1),
            run.rows.eq(1),
            run.samples.eq(to_dense.samples),
            run.target.eq(to_dense.target),
            run.final.eq(to_dense.outputs - 1),
        ]


def _choose(m, port, parts, is_kind, bad_operands, gradients, forwards, out):
    """Decides whether a command is bad or unknown, and its kind.

    Also decides whether the control of that kind can take it.
    """
    passes, convolve, dense, finish = parts.passes, parts.convolve, parts.dense, parts.finish
    bad_pass, bad_convolve, bad_dense = bad_operands
    to_pass, to_convolve, _ = operands(port)
    forward, gradient, convolves, layer = (
        is_kind[kind] for kind in (ArrayOpcode.FORWARD, ArrayOpcode.GRADIENT, ArrayOpcode.CONVOLVE, ArrayOpcode.DENSE)
    )
    asked = Cat(to_pass.q, to_pass.v_mode, to_pass.apply, to_pass.mu)
    same = (out.optimiser.as_value() == asked) | (gradients == 0)
    take, may = Signal(), Signal()
    # Forward reads the words that gradients write, through the same port; and a gradient's weights must not pass
    # while forward streams its own.
    go_forward = forward & (gradients == 0) & (forwards != 15)
    go_gradient = gradient & same & (forwards == 0) & (gradients != 15)
    go_pass = (go_forward | go_gradient) & passes.i.ready & convolve.idle & dense.idle
    go_convolve = (
        convolves
        & convolve.i.ready
        & passes.idle
        & dense.idle
        & finish.run.ready
        & (~to_convolve.encode | out.base.ready)
    )
    go_dense = layer & dense.i.ready & passes.idle & convolve.idle & finish.run.ready
    m.d.comb += [
        passes.i.valid.eq(take & (forward | gradient)),
        convolve.i.valid.eq(take & convolves),
        out.base.valid.eq(take & convolves & to_convolve.encode),
        dense.i.valid.eq(take & layer),
    ]
    return _Choice(
        bad=((forward | gradient) & bad_pass) | (convolves & bad_convolve) | (layer & bad_dense),
        unknown=~(forward | gradient | convolves | layer),
        go=go_pass | go_convolve | go_dense,
        take=take,
        may=may,
        kind=Cat(gradient, convolves | layer),
    )


def _take(m, port, parts, looked, choice, kinds, inside):
    """Takes a command when all is ready for it, or refuses it.

    A refusal waits until all earlier commands are done.
    """
    command, convolve, finish = port.command, parts.convolve, parts.finish
    bad, unknown, take, may, kind = choice.bad, choice.unknown, choice.take, choice.may, choice.kind
    m.d.comb += [
        # No control may take an unknown command, so that ``may`` is of a known one.
        take.eq(looked & command.valid & ~bad & may),
        command.ready.eq(take),
        kinds.w_en.eq(take),
        kinds.w_data.eq(kind),
        finish.run.valid.eq(take & kind[1]),
    ]
    # An error is of the oldest command that is not done. A convolution that went astray is the last that was taken:
    # none follows.
    refused = Signal()
    m.d.comb += refused.eq(looked & command.valid & (bad | unknown) & (inside == 0))
    m.d.sync += [
        port.error.valid.eq(refused | (convolve.astray & (inside == 1)) | finish.astray),
        port.error.code.eq(Mux(refused & unknown, Error.UNKNOWN_OPCODE, Error.BAD_OPERAND)),
    ]
    # `go` stays once it is set until a command is taken, so that it may be a cycle old: the paths from the
    # controls' states to the queues of commands would be twice as deep otherwise.
    m.d.sync += may.eq(choice.go & kinds.w_rdy & ~take & ~convolve.astray)


def _count(m, port, is_kind, take, gradients, forwards, out):
    """Counts the passes in flight; holds the optimiser's operands.

    The operands are held for gradients.
    """
    to_pass, _, _ = operands(port)
    starts_gradient = take & is_kind[ArrayOpcode.GRADIENT]
    m.d.sync += [
        gradients.eq(gradients + starts_gradient - out.gradient_done),
        forwards.eq(forwards + (take & is_kind[ArrayOpcode.FORWARD]) - out.drained),
    ]
    with m.If(starts_gradient):
        m.d.sync += out.optimiser.eq(Cat(to_pass.q, to_pass.v_mode, to_pass.apply, to_pass.mu))


def _report(m, port, parts, kinds, inside, out):
    """Reports that commands are done, in the order in which they were taken."""
    convolve, finish = parts.convolve, parts.finish
    # Commands of different kinds may end out of order; they are reported in order. A convolution that is still at
    # work is the last that was taken: its results may be there, but not all of its tap.
    unread = ~convolve.idle & (inside == 1)
    ended = [Signal(4, name=f"ended_{n}") for n in range(3)]
    events = (out.drained, out.gradient_done, finish.done)
    for n, (count, event) in enumerate(zip(ended, events)):
        report = kinds.r_rdy & (kinds.r_data == n) & (count != 0) & (~unread if n == 2 else 1)
        m.d.sync += count.eq(stepped(count, event, report))
        with m.If(report):
            m.d.comb += [kinds.r_en.eq(1), port.done.eq(1)]
