"""Commands of the head, one at a time.

::

    idle --+--> check --+--> run --> finish --> update --> idle
           |            +--> error, idle
           +--> dump --> idle

``done`` comes when ``finish`` ends: B is updated under whatever comes next.
"""

from dataclasses import dataclass

from amaranth.hdl import Signal, Value
from amaranth.lib import data

from gradloom.rtl.shell.registers.errors import Error

from .commands import HeadOpcode, HeadOperands

__all__ = ["HeadStrobes", "run_commands"]


@dataclass(frozen=True)
class HeadStrobes:
    """The command under way, and the strobes of others about it.

    ``start``: a pulse, when it was checked. ``finishing``, ``updating``, ``dumping``: its states. Others drive
    ``finished``, ``updated`` and ``dumped``, which end these states; ``loss_ready``, there is room for a loss; and
    ``label_error``, ``b_error``.
    """

    args: data.View
    start: Signal
    finishing: Value
    updating: Value
    dumping: Value
    finished: Signal
    updated: Signal
    dumped: Signal
    loss_ready: Signal
    label_error: Signal
    b_error: Signal


def run_commands(m, head):
    """Takes, checks and runs commands, then updates B; meanwhile nothing is taken."""
    depth = head.max_taps * head.rank
    args = Signal(HeadOperands)
    opcode = Signal(8)
    bad = Signal()
    good_k = Signal()
    start = Signal()
    finished = Signal()
    updated = Signal()
    dumped = Signal()
    label_error, b_error = Signal(), Signal()
    with m.Switch(args.k):
        with m.Case(*range(head.rank, depth + 1, head.rank)):
            m.d.comb += good_k.eq(1)
    m.d.comb += bad.eq(
        (args.samples == 0)
        | (args.samples > head.rows)
        | ~good_k
        | (args.classes == 0)
        | (args.classes > head.max_classes)
    )
    m.d.sync += [head.done.eq(0), head.error.valid.eq(label_error | b_error), head.error.code.eq(Error.BAD_OPERAND)]
    loss_ready = Signal()
    with m.FSM() as fsm:
        with m.State("idle"):
            m.d.comb += [head.i_dump.ready.eq(1), head.command.ready.eq(~head.i_dump.valid)]
            m.d.sync += [opcode.eq(head.command.p.opcode), args.eq(head.command.p.args)]
            with m.If(head.i_dump.valid):
                m.next = "dump"
            with m.Elif(head.command.valid):
                m.next = "check"
        with m.State("check"):
            with m.If((opcode != HeadOpcode.STEP) | bad):
                m.d.sync += head.error.valid.eq(1)
                with m.If(opcode != HeadOpcode.STEP):
                    m.d.sync += head.error.code.eq(Error.UNKNOWN_OPCODE)
                m.next = "idle"
            with m.Else():
                m.d.comb += start.eq(1)
                m.next = "run"
        with m.State("run"):
            with m.If(finished):
                m.next = "finish"
        with m.State("finish"):
            with m.If(loss_ready | ~args.last):
                m.d.sync += head.done.eq(1)
                m.next = "update"
        with m.State("update"):
            with m.If(updated):
                m.next = "idle"
        with m.State("dump"):
            with m.If(dumped):
                m.next = "idle"
    updating = fsm.ongoing("update")
    m.d.comb += head.busy.eq(~fsm.ongoing("idle"))
    return HeadStrobes(
        args=args,
        start=start,
        finishing=fsm.ongoing("finish"),
        updating=updating,
        dumping=fsm.ongoing("dump"),
        finished=finished,
        updated=updated,
        dumped=dumped,
        loss_ready=loss_ready,
        label_error=label_error,
        b_error=b_error,
    )
