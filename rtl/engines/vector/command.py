"""Commands of the vector engine, one at a time: measured, judged, run.

::

    command --> measuring --> judging --+--> begin --> running --> done
                                        +--> error
"""

from dataclasses import dataclass

from amaranth.hdl import Mux, Signal
from amaranth.lib import data

from ...formats.vector import ELEMENTS, EPS_SHIFT, LEAST_GATE, PULLED, TILES, VectorOpcode, VectorOperands
from ...shell.registers.errors import Error
from ...stream.product import narrow_product
from .actions import NORMS, PLAIN, POWERS, PULLS, SCALES, one_of

__all__ = ["RunningCommand", "take_command"]


@dataclass(frozen=True)
class RunningCommand:
    """The checked command: ``begin`` is a pulse at its start, ``running`` is high while it runs."""

    opcode: Signal
    args: data.View
    begin: Signal
    running: Signal


def take_command(m, engine, finished):
    """Takes a command, measures and judges it, and lets it run until ``finished``."""
    port = engine.engine
    opcode, args = Signal(8), Signal(VectorOperands)
    idle = Signal(init=1)
    measuring, judging, begin, running = (Signal(name=name) for name in ("measuring", "judging", "begin", "running"))
    beats = Signal(TILES + 9)
    most, bad, known = Signal(len(beats)), Signal(), Signal()
    rows, rope, plain, powers = Signal(), Signal(), Signal(), Signal()
    m.d.comb += port.command.ready.eq(idle & ~port.error.valid)
    with m.If(port.command.valid & port.command.ready):
        m.d.sync += [
            opcode.eq(port.command.payload.opcode),
            args.eq(port.command.payload.args),
            idle.eq(0),
            measuring.eq(1),
        ]
    with m.If(measuring):
        m.d.sync += [
            measuring.eq(0),
            judging.eq(1),
            beats.eq(narrow_product(args.tiles, args.row)),
            known.eq(opcode <= max(VectorOpcode)),
            rope.eq(opcode == VectorOpcode.ROPE),
            plain.eq(one_of(opcode, PLAIN)),
            powers.eq(one_of(opcode, POWERS)),
            rows.eq(one_of(opcode, NORMS + POWERS + PULLS)),
            most.eq((1 << len(most)) - 1),
        ]
        for opcodes, elements in (
            (NORMS, engine.features),
            ((VectorOpcode.WEIGHTS, *SCALES), engine.features),
            ((VectorOpcode.TARGETS,), max(engine.tokens, engine.lanes)),
            (POWERS, 1 << ELEMENTS),
            (PULLS, 1 << PULLED),
        ):
            with m.If(one_of(opcode, opcodes)):
                m.d.sync += most.eq(elements // engine.lanes)
    half = engine.head // engine.lanes
    uneven = (args.row & (args.row - 1)).any() | (args.row < 2) | (args.row > half)
    m.d.comb += bad.eq(
        (args.row == 0)
        | (args.tiles == 0)
        | (~plain & (args.tokens == 0))
        | (args.eps_shift > EPS_SHIFT)
        | (beats > most)
        # mutant rows-of-one-beat: | (rows & ((args.row < 1) | (args.tokens > engine.tokens)))
        | (rows & ((args.row < 2) | (args.tokens > engine.tokens)))
        | (powers & (args.gate < LEAST_GATE))
        | (rope & uneven)
    )
    with m.If(judging):
        m.d.sync += [
            judging.eq(0),
            port.error.valid.eq(~known | bad),
            port.error.code.eq(Mux(known, Error.BAD_OPERAND, Error.UNKNOWN_OPCODE)),
            begin.eq(known & ~bad),
        ]
    with m.If(begin):
        m.d.sync += [begin.eq(0), running.eq(1)]
    with m.If(finished):
        m.d.sync += [running.eq(0), idle.eq(1)]
    m.d.sync += port.done.eq(finished)
    return RunningCommand(opcode=opcode, args=args, begin=begin, running=running)
