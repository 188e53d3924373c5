"""Widening, requantising and multiplying words; checks of commands."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..formats.rounding import saturate_hdl
from ..formats.weights.linear import ACTIVATION, MASTER, WEIGHT
from ..shell.registers.errors import Error
from ..systolic.pe import Precision

__all__ = ["PRECISION", "Requantize", "accept", "judge", "sign_extended"]

#: Of the array.
PRECISION = Precision(x=ACTIVATION.width, w=WEIGHT.width)


def sign_extended(word):
    """``word`` as it lies in memory."""
    word = Value.cast(word)
    return Cat(word, word[-1].replicate(MASTER.width - len(word)))


def accept(m, port, opcodes, layout, *, busy, bad, steps=0):
    """Takes a command while the engine is not ``busy``.

    Returns its opcode, its operands and, high for a cycle, whether it begins: the cycle after it is taken, or ``steps``
    cycles later. The engine must be ``busy`` from the next cycle on.

    A command with an opcode that is not in ``opcodes``, or with operands for which ``bad(opcode, operands)``, ends in
    an error. With ``steps``, ``bad`` may have as many registers.
    """
    opcode, args, judged, known = Signal(8), Signal(layout), Signal(), Signal()
    command, begun = port.command, judged
    free = ~busy
    if steps:
        examined = Signal(steps)
        begun, free = examined, free & ~examined.any()
        m.d.sync += examined.eq(examined << 1)
        with m.If(examined[-1]):
            m.d.sync += judged.eq(1)
    m.d.comb += command.ready.eq(free & ~judged & ~port.error.valid)
    with m.If(command.valid & command.ready):
        m.d.sync += [
            opcode.eq(command.p.opcode),
            args.eq(command.p.args),
            begun.eq(1),
            known.eq(Cat(command.p.opcode == each for each in opcodes).any()),
        ]
    return opcode, args, judge(m, port, judged, known=known, bad=bad(opcode, args))


def judge(m, port, judged, *, known, bad):
    """Decides whether the examined command may begin, or sends its error.

    The examination is in the cycle of ``judged``. ``port`` carries the error.

    ``known``: its opcode is. ``bad``: an operand is. ``judged`` ends after a cycle.
    """
    refused = ~known | bad
    with m.If(judged):
        m.d.sync += judged.eq(0)
        with m.If(refused):
            m.d.sync += [
                port.error.valid.eq(1),
                port.error.code.eq(Mux(known, Error.BAD_OPERAND, Error.UNKNOWN_OPCODE)),
            ]
    return judged & ~refused


class Requantize(wiring.Component):
    """Shifts, rounds half up and saturates.

    A word a cycle, :attr:`latency` cycles later.

    Members
    -------
    i, shift : word and shift, 0 to 63.
    o : result. saturated : whether it had to be clipped.
    """

    latency = 4

    def __init__(self, *, width, result):
        self.width = width
        self.result = result
        super().__init__({"i": In(signed(width)), "shift": In(6), "o": Out(signed(result)), "saturated": Out(1)})

    def elaborate(self, platform):
        m = Module()
        guarded = signed(self.width + 1)
        coarse, fine = Signal(guarded, reset_less=True), Signal(guarded, reset_less=True)
        small = Signal(2, reset_less=True)
        rounded = Signal(signed(self.width + 1), reset_less=True)
        clipped, over = saturate_hdl(rounded, signed(self.result))
        m.d.sync += [
            # Of four choices each a LUT of six inputs takes two bits of the shift.
            coarse.eq((self.i << 1) >> (self.shift & 0b111100)),
            small.eq(self.shift[:2]),
            fine.eq(coarse >> small),
            rounded.eq((fine + 1) >> 1),
            self.o.eq(clipped),
            self.saturated.eq(over),
        ]
        return m
