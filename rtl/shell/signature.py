"""Layouts shared by sequencer, DMA and engines."""

from enum import IntEnum

from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = [
    "ControlOpcode",
    "COMMAND_BYTES",
    "TOKENS",
    "Command",
    "EngineCommand",
    "EngineError",
    "EngineSignature",
    "FORWARD_BITS",
    "ForwardBeat",
    "ForwardSignature",
    "LoadBeat",
    "LoadSignature",
    "PortBeat",
    "PortRequest",
    "StoreRequest",
    "store_request",
    "StoreSignature",
    "LoadOperands",
    "StoreOperands",
    "ControlOperands",
    "Health",
    "Trace",
]

COMMAND_BYTES = 32
TOKENS = 16


class ControlOpcode(IntEnum):
    """Opcodes of the engine ``CONTROL``."""

    END = 0  #: waits until all engines and queues are empty; then the interrupt
    FENCE = 1  #: dispatch waits until all engines and queues are empty
    MARK = 2  #: sets the valid bits of a range of cache slots
    LOOKUP = 3  #: adds the valid slots of a range to ``CACHE_HITS``, the others to ``CACHE_MISSES``
    CLEAR = 4  #: clears all valid bits
    YIELD = 5  #: waits as FENCE does, clears all tokens, lets a pending request run


#: A command as it lies in memory: 32 bytes, little-endian.
Command = data.StructLayout(
    {
        # w0
        "opcode": 8,
        "engine": 4,
        "predicated": 1,
        "phase": 3,
        "wait": 16,
        # w1
        "post": 16,
        "count": 16,
        # w2
        "slot": 24,
        "_reserved": 8,
        # w3 .. w7
        "args": 160,
    }
)

#: A command as an engine receives it.
EngineCommand = data.StructLayout({"opcode": 8, "args": 160})

#: ``valid`` for one cycle (or more) stops the program with ``code``
#: (:class:`~gradloom.rtl.shell.registers.errors.Error`).
EngineError = data.StructLayout({"valid": 1, "code": 8})


class EngineSignature(wiring.Signature):
    """Port between the sequencer and an engine.

    The sequencer has this direction; an engine has ``In(EngineSignature())``.

    Members
    -------
    command : ``Out(stream.Signature(EngineCommand))``
        ``ready`` when the engine starts the command. An engine may start a command before the last one is
        done. Payload holds still while ``valid``.
    done : ``In(1)``
        High for one cycle a command, in order, when all effects of the command are visible to other engines.
        A dependent command is offered 4 cycles later at the earliest.
    error : ``In(EngineError)``
        The oldest command that is not done is at fault. No ``done`` need follow: the sequencer stops the
        program and asserts the shell's ``abort``, which resets the engine's datapath.
    """

    def __init__(self):
        super().__init__({"command": Out(stream.Signature(EngineCommand)), "done": In(1), "error": In(EngineError)})


#: One block of memory to one load port.
LoadOperands = data.StructLayout(
    {
        "offset": 32,  #: first byte, from the window's base; a multiple of a beat
        "beats": 24,  #: beats of the bus's width, 1 or more
        "dest": 8,  #: number of the load port
        "arg": 32,  #: operand of the load port
        "_reserved": 64,
    }
)

#: One store port to one block of memory, to a load port, or to both. Machines without forwards do not read ``to_arg``
#: and what follows it.
StoreOperands = data.StructLayout(
    {
        "offset": 32,  #: first byte, from the window's base; a multiple of a beat
        "beats": 24,  #: beats of the bus's width, 1 or more
        "source": 8,  #: number of the store port
        "arg": 32,  #: operand of the store port
        "to_arg": 32,  #: with ``forward``: operand of the load port
        "to": 8,  #: with ``forward``: number of the load port
        "forward": 1,  #: the beats also go to the load port ``to``
        "only": 1,  #: with ``forward``: nothing goes to memory, and ``offset`` means nothing
        "_reserved": 22,
    }
)

#: Bits of STORE's operands that a machine with forwards reads; others read up to ``arg``.
FORWARD_BITS = StoreOperands["_reserved"].offset

#: A range of cache slots, for MARK and LOOKUP; the other opcodes have no operands.
ControlOperands = data.StructLayout(
    {
        "slot": 32,  #: first slot
        "count": 32,  #: slots
        "_reserved": 96,
    }
)


def LoadBeat(data_bits, ports):
    """A beat that LOAD read.

    ``index`` counts beats in its command, which ``first`` and ``last`` bound. ``to`` has a bit for each load port,
    of which the beat's is high, and one more for a number that no port has.
    """
    return data.StructLayout({"data": data_bits, "first": 1, "last": 1, "to": ports + 1, "arg": 32, "index": 24})


#: What STORE asks of a source: ``beats`` beats on its input stream.
StoreRequest = data.StructLayout({"source": 8, "arg": 32, "beats": 24})
#: The same in machines with forwards: with ``forward`` the beats also go to the load port ``to``.
_FORWARD_REQUEST = data.StructLayout(
    {"source": 8, "arg": 32, "beats": 24, "to": 8, "to_arg": 32, "forward": 1, "only": 1}
)


def store_request(forwards):
    """What STORE asks of a source, in machines without or with ``forwards``."""
    return _FORWARD_REQUEST if forwards else StoreRequest


def PortBeat(data_bits):
    """A beat as a load port has it."""
    return data.StructLayout({"data": data_bits, "first": 1, "last": 1, "arg": 32, "index": 24})


class LoadSignature(wiring.Signature):
    """A load port of an engine.

    The engine has it as ``In(LoadSignature(data_bits))``.

    All load ports of an engine have the same payload, and at most one of them ``valid``.

    Members
    -------
    beats : ``Out(stream.Signature(PortBeat(data_bits)))``
    refuse : ``In(1)``
        In the same cycle as the payload, ``valid`` or not: the beat has no place. It is taken all the same, and the
        engine drops it; LOAD stops with BAD_OPERAND and the beat's address.
    """

    def __init__(self, data_bits):
        super().__init__({"beats": Out(stream.Signature(PortBeat(data_bits))), "refuse": In(1)})


def ForwardBeat(data_bits):
    """A beat of a record that STORE forwards, and where it belongs.

    It is beat ``beat`` of row ``row`` of slot ``slot``; with ``header`` it is the record's first, with the exponent.
    ``wide``: its codes have 16 bits.
    """
    return data.StructLayout({"valid": 1, "header": 1, "wide": 1, "slot": 8, "row": 6, "beat": 2, "data": data_bits})


class ForwardSignature(wiring.Signature):
    """The second way into a load port's slots: what STORE forwards.

    The engine has it as ``In(ForwardSignature(data_bits, arg))``, beside the port's ``LoadSignature``.

    Members
    -------
    beat : ``Out(ForwardBeat(data_bits))``
        All of one record before those of the next; not two cycles after LOAD's beat to the port. All ports of a machine
        have the same payload.
    arg : ``Out(arg)``, the port's operand
        A record to be: its slot, and what the source says of it.
    refuse : ``In(1)``
        In the same cycle: the port has no such slot, or codes of another width.
    """

    def __init__(self, data_bits, arg):
        super().__init__({"beat": Out(ForwardBeat(data_bits)), "arg": Out(arg), "refuse": In(1)})


#: What STORE asks of a store port.
PortRequest = data.StructLayout({"arg": 32, "beats": 24})


class StoreSignature(wiring.Signature):
    """A store port of an engine.

    The engine has it as ``In(StoreSignature(data_bits))``.

    Members
    -------
    request : ``Out(stream.Signature(PortRequest))``
        The payload is there two cycles ahead. No request comes before the beats of the last have left.
    refuse : ``In(1)``
        A cycle behind the payload of ``request``, ``valid`` or not: it asks for what is not there. STORE stops with
        BAD_OPERAND and the command's address, and does not make the request.
    beats : ``In(stream.Signature(data_bits))``
        ``ready`` only for as many beats as were requested.
    """

    def __init__(self, data_bits):
        super().__init__(
            {"request": Out(stream.Signature(PortRequest)), "refuse": In(1), "beats": In(stream.Signature(data_bits))}
        )


#: Numeric health in this cycle: values that saturated, values that vanished, and what to add to the gradient
#: norm.
Health = data.StructLayout({"saturated": 8, "underflowed": 8, "norm": 48})

#: Bit ``e`` is the engine of that number; bit 0 (CONTROL) starts and is done in one cycle. A machine has at most 16.
Trace = data.StructLayout({"started": 16, "done": 16})
