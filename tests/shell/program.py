"""Writes programs as bytes."""

from gradloom.rtl.shell.engines import CONTROL, LOAD, STORE
from gradloom.rtl.shell.signature import Command, ControlOpcode, ControlOperands, LoadOperands, StoreOperands


def command(engine, opcode=0, *, args=0, wait=0, post=0, phase=0, predicate=None):
    slot, count = predicate or (0, 0)
    return (
        Command.const(
            {
                "opcode": opcode,
                "engine": int(engine),
                "predicated": predicate is not None,
                "phase": phase,
                "wait": wait,
                "post": post,
                "count": count,
                "slot": slot,
                "args": args,
            }
        )
        .as_value()
        .value.to_bytes(32, "little")
    )


def _const(layout, **fields):
    return layout.const(fields).as_value().value


def load(offset, beats, word, *, port=0, **kwargs):
    return command(LOAD, args=_const(LoadOperands, offset=offset, beats=beats, dest=int(port), arg=word), **kwargs)


def store(offset, beats, word, *, port=0, **kwargs):
    return command(STORE, args=_const(StoreOperands, offset=offset, beats=beats, source=int(port), arg=word), **kwargs)


def control(opcode, slot=0, count=0, **kwargs):
    return command(CONTROL, opcode, args=_const(ControlOperands, slot=slot, count=count), **kwargs)


def end(**kwargs):
    return control(ControlOpcode.END, **kwargs)


def fence(**kwargs):
    return control(ControlOpcode.FENCE, **kwargs)


def timer(engine, cycles, **kwargs):
    return command(engine, args=cycles, **kwargs)


def pause(**kwargs):
    return control(ControlOpcode.YIELD, **kwargs)
