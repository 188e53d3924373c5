"""SHA-256 of bytes as they arrive."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.data import StructLayout
from amaranth.lib.wiring import In, Out

__all__ = ["Sha256"]


def _primes(count):
    found = []
    number = 2
    while len(found) < count:
        if all(number % each for each in found):
            found.append(number)
        number += 1
    return found


def _fraction(prime, root):
    """The first 32 bits behind the point of a root of ``prime``."""
    whole = prime << 32 * root
    low, high = 0, 1 << 40
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if middle**root <= whole else (low, middle)
    return low & 0xFFFFFFFF


#: FIPS 180-4: fractions of the square roots of 8 primes, and of the cube roots of 64.
_START = [_fraction(prime, 2) for prime in _primes(8)]
_ROUNDS = [_fraction(prime, 3) for prime in _primes(64)]


def _turned(word, by):
    return word.rotate_right(by)


class Sha256(wiring.Component):
    """SHA-256 (FIPS 180-4) of one message after another, a byte a beat.

    ::

        i ──> words of a block ──> 64 rounds ──> digest += state ──> o
              and the padding      (5 cycles)    (8 x 2 cycles)

    A block of 64 bytes is taken in 64 cycles and hashed in the next 336: 6.25 cycles a byte. A digest leaves 400 to
    800 cycles after the last byte of its message was taken, with the padding's block or two. The next message begins
    a cycle after the digest was taken. ``i.ready`` and ``o.valid`` depend on registers alone.

    Members
    -------
    i : ``In(stream.Signature({data: 8, last: 1}))``
        Bytes of a message, at least one and at most 2**32 - 1; ``last`` is with the last one.
    o : ``Out(stream.Signature(unsigned(256)))``
        The digest; its first byte is the highest.
    """

    def __init__(self):
        super().__init__(
            {"i": In(stream.Signature(StructLayout({"data": 8, "last": 1}))), "o": Out(stream.Signature(unsigned(256)))}
        )

    def elaborate(self, platform):
        m = Module()

        # Every message begins with a reset of its own, for which the flip-flops' pins stay free.
        state = [Signal(32, name=f"state_{n}", reset_less=True) for n in range(8)]
        digest = [Signal(32, name=f"digest_{n}", reset_less=True) for n in range(8)]
        word = [Signal(32, name=f"word_{n}") for n in range(16)]
        m.d.comb += self.o.p.eq(Cat(*reversed(digest)))

        # Of the block: the next byte, then the round. Of the message: bytes so far.
        count = Signal(6)
        length = Signal(32, reset_less=True)
        part = Signal(24)
        # The message has ended; its mark 0x80 is there; this block is its last one.
        ended, marked, final = Signal(), Signal(), Signal()

        # ---- bytes of the message, and of its padding
        byte, push = Signal(8), Signal()
        bits = Cat(Const(0, 3), length, Const(0, 29))
        room = count < 56
        with m.If(~ended):
            m.d.comb += byte.eq(self.i.p.data)
        with m.Elif(~marked):
            m.d.comb += byte.eq(0x80)
        with m.Elif(final & ~room):
            # The highest byte of the length first.
            m.d.comb += byte.eq(bits.word_select(~count[:3], 8))

        # ---- a round: x becomes the sum for e, y the rest of the sum for a, ahead the word of the round after 16
        a, b, c, d, e, f, g, h = state
        x, y, ahead = Signal(32), Signal(32), Signal(32)
        phase = Signal(range(5))
        shift, adds = Signal(), Signal()
        term, early = Signal(32), Signal(32)
        s0, s1 = (
            _turned(word[1], 7) ^ _turned(word[1], 18) ^ word[1][3:],
            _turned(word[14], 17) ^ _turned(word[14], 19) ^ word[14][10:],
        )
        with m.Switch(phase):
            with m.Case(0):
                m.d.comb += [term.eq(Mux(adds, digest[7], Array(_ROUNDS)[count])), early.eq(s0)]
            with m.Case(1):
                m.d.comb += [term.eq(word[0]), early.eq(word[9])]
            with m.Case(2):
                m.d.comb += [term.eq(_turned(e, 6) ^ _turned(e, 11) ^ _turned(e, 25)), early.eq(s1)]
            with m.Default():
                m.d.comb += term.eq(g ^ (e & (f ^ g)))
        m.d.sync += [
            x.eq(Mux(phase == 0, h, x) + term),
            y.eq((_turned(a, 2) ^ _turned(a, 13) ^ _turned(a, 22)) + ((a & b) | (c & (a | b)))),
        ]
        with m.If(adds):
            m.d.sync += y.eq(0)
        with m.If(phase < 3):
            m.d.sync += ahead.eq(Mux(phase == 0, word[0], ahead) + early)
        with m.If(shift):
            m.d.sync += [to.eq(of) for to, of in zip(state[1:], state)]
            m.d.sync += [a.eq(x + y), e.eq(d + Mux(adds, 0, x))]

        # ---- the words move with each round, and with each fourth byte
        whole = push & (count[:2] == 3)
        with m.If(whole | (shift & ~adds)):
            m.d.sync += [to.eq(of) for to, of in zip(word, word[1:])]
            m.d.sync += word[15].eq(Mux(push, Cat(byte, part), ahead))

        with m.FSM():
            with m.State("START"):
                m.d.sync += [each.eq(value) for each, value in zip(state, _START)]
                m.d.sync += [each.eq(value) for each, value in zip(digest, _START)]
                m.d.sync += [ended.eq(0), marked.eq(0), final.eq(0), length.eq(0)]
                m.next = "FILL"
            with m.State("FILL"):
                m.d.comb += [self.i.ready.eq(~ended), push.eq(ended | self.i.valid)]
                with m.If(push):
                    m.d.sync += [part.eq(Cat(byte, part)), count.eq(count + 1)]
                    with m.If(ended):
                        m.d.sync += [marked.eq(1), final.eq(final | room)]
                    with m.Else():
                        m.d.sync += [length.eq(length + 1), ended.eq(self.i.p.last)]
                    with m.If(count == 63):
                        m.next = "ROUND"
            with m.State("ROUND"):
                m.d.sync += phase.eq(phase + 1)
                with m.If(phase == 4):
                    m.d.comb += shift.eq(1)
                    m.d.sync += [phase.eq(0), count.eq(count + 1)]
                    with m.If(count == 63):
                        m.next = "ADD"
            with m.State("ADD"):
                m.d.comb += adds.eq(1)
                m.d.sync += phase.eq(1)
                with m.If(phase == 1):
                    m.d.comb += shift.eq(1)
                    m.d.sync += [phase.eq(0), count.eq(count + 1), Cat(digest).eq(Cat(x, *digest[:7]))]
                    with m.If(count == 7):
                        m.d.sync += count.eq(0)
                        m.next = "FILL"
                        with m.If(final):
                            m.next = "DONE"
            with m.State("DONE"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.next = "START"

        return m
