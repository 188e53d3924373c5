"""One lane of the element engine: a code a cycle."""

from enum import IntEnum
from functools import partial

from amaranth.hdl import Array, Cat, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...formats.tiles.codes import WIDE, WORD
from ...formats.tiles.element import CONSTANT, FACTOR_FRAC, LIFT
from ...formats.tiles.functions import Mirror
from ...formats.tiles.tables import ARGUMENT, BASE, INDEX, SLOPE
from ...stream.delay import delay, registered
from .latencies import LANE

__all__ = ["ElementLane", "Result"]

_REST = ARGUMENT - INDEX
#: Bits of an aligned code, and of a factor.
_ALIGNED, _FACTOR = WIDE + LIFT + 1, CONSTANT + 2
#: Bits of a word that a lane gets in place of two codes.
_LOADED = 2 * WIDE


class Result(IntEnum):
    """What a lane's word is."""

    SUM = 0
    PRODUCT = 1  # of code and factor
    TERM = 2  # of term and code


class ElementLane(wiring.Component):
    """Sum, or product of code, factor and code, of a cycle's codes.

    Never held: a word comes :attr:`latency` cycles after codes. Three multipliers: a table's piece, code times factor,
    term times code.

    Every input is documented with its stage; stage 0 is that of the codes. Inputs without a stage are held during a
    command.

    Members
    -------
    a, b, c : codes, stage 0.
    table : b is the argument of a table, else it is aligned as a is.
    right_a : a is multiplied by ``2**(8 - right_a)``, stage 1. right_b : b by ``2**(19 - right_b)``; the table's
        argument is ``|b| * 2**(20 - right_b)``, limited, stage 1.
    subtract : the sum is a - b. again : it is the last sum and a, stage 5.
    loaded : the sum is a word, of which a has the lower half and b the upper.
    piece : what is looked up, stage 5; behind : in the table with the next odd number. base, slope : what stands there,
        stage 7. mirror : a :class:`~...formats.functions.Mirror`.
    constant, mantissa : the factor is it, not the table's.
    mask, equal : the factor is 0 unless b is above 0; unless the sum is within half a unit of a code, as a - b.
    larger : in place of a - b the sum is the larger of a and b.
    gate : b is multiplied by the factor, not a. third : c is.
    result : see :class:`Result`. positive : a word below 0 becomes 0.
    word : stage 17.
    """

    latency = LANE

    def __init__(self):
        code = signed(WIDE)
        super().__init__(
            {
                "a": In(code),
                "b": In(code),
                "c": In(code),
                "table": In(1),
                "right_a": In(5),
                "right_b": In(6),
                "subtract": In(1),
                "again": In(1),
                "loaded": In(1),
                "piece": Out(INDEX),
                "behind": Out(1),
                "mirror": In(2),
                "base": In(BASE.shape),
                "slope": In(SLOPE.shape),
                "constant": In(1),
                "mantissa": In(CONSTANT),
                "mask": In(1),
                "equal": In(1),
                "larger": In(1),
                "gate": In(1),
                "third": In(1),
                "result": In(2),
                "positive": In(1),
                "word": Out(signed(WORD)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        register = partial(registered, m)
        # Of a few cycles: registers have a reset here, so that they are no shift register, a LUT a bit.
        soon = partial(delay, m, reset_less=False)

        # Stage 1; stages 2 to 4: shifts, by two bits of their distance each, with a bit below for the rounding.
        negative = register(self.b[-1])
        # mutant signed-argument: x = register(self.b)
        x = register(Mux(self.table & self.b[-1], -self.b, self.b)[:WIDE].as_signed())
        lift = ARGUMENT
        far = register((x << lift) >> (self.right_b & 0b110000), signed(WIDE + lift))
        right = delay(m, self.right_b[:4], 1)
        near = register(far >> (right & 0b1100), signed(WIDE + lift))
        shifted_b = register(near >> delay(m, right[:2], 1), signed(WIDE + lift))
        a1 = register(self.a)
        far = register((a1 << LIFT + 1) >> (self.right_a & 0b11000), signed(_ALIGNED))
        right = delay(m, self.right_a[:3], 1)
        near = register(far >> (right & 0b110), signed(_ALIGNED))
        shifted_a = register(near >> delay(m, right[:1], 1), signed(_ALIGNED))

        # Stage 5: aligned codes; the argument of the table.
        aligned_a, aligned_b = (Signal(signed(_ALIGNED), reset_less=True, name=f"aligned_{name}") for name in "ab")
        # mutant rounds-down: m.d.sync += aligned_a.eq(shifted_a >> 1)
        m.d.sync += aligned_a.eq((shifted_a + 1) >> 1)
        m.d.sync += aligned_b.eq((shifted_b[:_ALIGNED].as_signed() + 1) >> 1)
        # mutant wraps: argument = register(shifted_b[:ARGUMENT])
        argument = register(shifted_b[:ARGUMENT] | shifted_b[ARGUMENT:].any().replicate(ARGUMENT))
        m.d.comb += self.piece.eq(argument[_REST:])
        # mutant no-own: m.d.comb += self.behind.eq(0)
        m.d.comb += self.behind.eq(delay(m, negative, 4) & (self.mirror == Mirror.OWN))

        # Stage 6: the sum, or the word that came in.
        code_a, code_b, code_c = delay(m, self.a, 5), delay(m, self.b, 5), delay(m, self.c, 11)
        total = Signal(signed(_LOADED), reset_less=True)
        # mutant short: other = Mux(self.again, total[:_ALIGNED].as_signed(), aligned_b)
        other = Mux(self.again, total[: _ALIGNED + 1].as_signed(), aligned_b)
        added = aligned_a + (other ^ self.subtract.replicate(_ALIGNED + 1).as_signed()) + self.subtract
        m.d.sync += total.eq(Mux(self.loaded, Cat(code_a, code_b).as_signed(), added))

        # Stage 7: the larger one; whether the factor counts.
        larger = Mux(total[-1], delay(m, aligned_b, 1), delay(m, aligned_a, 1))
        # mutant last-sum: chosen = register(total)
        chosen = register(Mux(self.larger, larger, total))
        # mutant any-difference: near = ~total.any()
        near = total[LIFT - 1 :].all() | ~total[LIFT - 1 :].any()
        above = delay(m, ~self.b[-1] & self.b.any(), 6)
        gone = register((self.mask & ~above) | (self.equal & ~near))

        # Stages 8 to 10: between the ends of a piece of the table; 11: the factor.
        rest7, base9 = delay(m, argument[:_REST], 2), delay(m, self.base, 2)
        product = register(register(self.slope * Cat(rest7, 0).as_signed()))
        found = register((base9 << _REST) + product + (1 << (_REST - 1)), signed(BASE.width + _REST + 1))
        found = found[_REST:].as_signed()
        # mutant one-side: turns = negative & 0
        turns = negative & ((self.mirror == Mirror.REST) | (self.mirror == Mirror.OPPOSITE))
        opposite, one = delay(m, turns, 9), self.mirror == Mirror.REST
        factor = register(
            Mux(
                self.constant,
                # mutant always: self.mantissa,
                Mux(delay(m, gone, 3), 0, self.mantissa),
                (found ^ opposite.replicate(len(found)).as_signed())
                + Mux(opposite, Mux(one, (1 << FACTOR_FRAC) + 1, 1), 0),
            ),
            signed(_FACTOR),
        )

        # Stages 12 and 13: code times factor; 14: the term; 15 and 16: term times code.
        code_a, code_b = delay(m, code_a, 6), delay(m, code_b, 6)
        first = register(register(Mux(self.gate, code_b, Mux(self.third, code_c, code_a)) * factor))
        term = register(((first >> (LIFT - 1)) + 1) >> 1, signed(_ALIGNED + 1))
        second = register(register(term * soon(code_a, 3)))

        # Stage 17: the word.
        choices = Array([_wide(delay(m, chosen, 9)), _wide(soon(first, 3)), _wide(second), _wide(second)])
        word = choices[self.result]
        # mutant negative: m.d.sync += self.word.eq(word)
        m.d.sync += self.word.eq(Mux(self.positive & word[-1], 0, word))
        return m


def _wide(value):
    """``value`` with the bits of a word."""
    return Cat(value, value[-1].replicate(WORD - len(value)))[:WORD].as_signed()
