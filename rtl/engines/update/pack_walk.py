"""Where a command of the pack unit is, and the word that it takes of a pair of beats.

::

    PACK:    ROOM --> FILL --> SCALE --> READ --> ROOM of the next pair of blocks
                                          +--> DRAIN --> RECORD --> END
    UNPACK:  ROOM --> HEADER --> CODES --> SKIP --> ROOM of the next pair of beats
                                            +--> DRAIN
"""

from dataclasses import dataclass

from amaranth.hdl import Array, Cat, Mux, Signal

from ...formats.adamw import FRACTION
from ...formats.weights.linear import MASTER

__all__ = [
    "DECODED",
    "ENCODED",
    "EXPONENT",
    "FLOATED",
    "HIGHEST",
    "MANTISSA",
    "SIZE",
    "PackWalk",
    "TakenWord",
    "draw",
    "select",
    "walk_blocks",
]

#: Bits of a float without its sign, or of a word's size.
SIZE = MASTER.width - 1
#: A float's exponent, and mantissa.
EXPONENT, MANTISSA = SIZE - FRACTION, FRACTION + 1
#: Exponent of a word's highest bit.
HIGHEST = 127 + SIZE - 1
#: Cycles from a word that is read to its float; from a code that is read to its word; from an element to its code.
FLOATED, DECODED, ENCODED = 5, 14, 14


@dataclass(frozen=True)
class PackWalk:
    """Place of a command: a pair of blocks, or of beats of codes, at a time.

    ``n``: index of the word or code. ``batch``: the pair of blocks; ``last_batch``: it is the last. ``odd``: the second
    pair of beats of a pair of blocks. ``word_end``, ``code_end``: the beat is read to its end. ``fill``, ``read``,
    ``code``, ``header``, ``tail``: a word of a block comes in, an element is read back, a code or a word of a record
    comes in, a byte of a record leaves. ``scaling``: the scale of one of both blocks is chosen.
    """

    n: Signal
    batch: Signal
    last_batch: Signal
    odd: Signal
    word_end: Signal
    code_end: Signal
    fill: Signal
    read: Signal
    code: Signal
    header: Signal
    tail: Signal
    scaling: Signal


@dataclass(frozen=True)
class TakenWord:
    """A word, in a register; before that: whether it is of the second side, and its element's index in a block."""

    word: Signal
    second: Signal
    within: Signal


def walk_blocks(m, unit, walk):
    """The states of a command: words to codes, or codes to words."""
    rest = Signal(5)
    header_words = unit.record_beats(unit.config) * unit.config.beat_words
    with m.FSM() as fsm:
        m.d.comb += unit.busy.eq(~fsm.ongoing("IDLE"))
        with m.State("IDLE"):
            m.d.sync += [walk.n.eq(0), walk.batch.eq(0), walk.odd.eq(0)]
            with m.If(unit.start):
                m.next = "ROOM"
        with m.State("ROOM"):
            with m.If(unit.roomy):
                with m.If(~unit.unpack):
                    m.next = "FILL"
                with m.Elif(walk.batch.any() | walk.odd):
                    m.next = "CODES"
                with m.Else():
                    m.next = "HEADER"
        _pack_states(m, unit, walk, rest, header_words)
        with m.State("DRAIN"):
            m.d.sync += rest.eq(rest - 1)
            with m.If(rest == 0):
                m.d.sync += walk.n.eq(0)
                m.next = "IDLE"
                with m.If(~unit.unpack):
                    m.next = "RECORD"
        _unpack_states(m, unit, walk, rest, header_words)


def _pack_states(m, unit, walk, rest, header_words):
    """States of PACK: takes a pair of blocks, finds scales, makes codes.

    The blocks are read back for their codes; the record comes last.
    """
    with m.State("FILL"):
        m.d.comb += [walk.fill.eq(unit.i.valid), unit.i.ready.eq(walk.word_end)]
        with m.If(walk.fill):
            m.d.sync += walk.n.eq(walk.n + 1)
            with m.If(walk.n.all()):
                m.d.sync += rest.eq(FLOATED + 5)
                m.next = "SCALE"
    with m.State("SCALE"):
        # Scales of both blocks, one after the other, when their largest elements are known.
        m.d.comb += walk.scaling.eq((rest == 3) | (rest == 4))
        m.d.sync += rest.eq(rest - 1)
        with m.If(rest == 0):
            m.next = "READ"
    with m.State("READ"):
        m.d.comb += walk.read.eq(1)
        m.d.sync += walk.n.eq(walk.n + 1)
        with m.If(walk.n.all()):
            m.d.sync += [walk.batch.eq(walk.batch + 1), rest.eq(ENCODED + 3)]
            m.next = "ROOM"
            with m.If(walk.last_batch):
                m.next = "DRAIN"
    with m.State("RECORD"):
        m.d.comb += walk.tail.eq(1)
        m.d.sync += walk.n.eq(walk.n + 1)
        with m.If(walk.n == 4 * header_words - 1):
            m.d.sync += rest.eq(4)
            m.next = "END"
    with m.State("END"):
        m.d.sync += rest.eq(rest - 1)
        with m.If(rest == 0):
            m.next = "IDLE"


def _unpack_states(m, unit, walk, rest, header_words):
    """Takes the record, then beats of codes."""
    args = unit.args
    with m.State("HEADER"):
        m.d.comb += [walk.header.eq(unit.i.valid), unit.i.ready.eq(walk.word_end)]
        with m.If(walk.header):
            m.d.sync += walk.n.eq(walk.n + 1)
            with m.If(walk.n == header_words - 1):
                m.d.sync += walk.n.eq(0)
                m.next = "CODES"
    with m.State("CODES"):
        m.d.comb += [walk.code.eq(unit.i.valid), unit.i.ready.eq(walk.code_end)]
        with m.If(walk.code):
            m.d.sync += walk.n.eq(walk.n + 1)
            with m.If(walk.code_end):
                m.d.sync += walk.n.eq(0)
                m.next = "SKIP"
    with m.State("SKIP"):
        m.d.comb += unit.i.ready.eq(1)
        with m.If(unit.i.valid):
            m.d.sync += walk.odd.eq(~walk.odd & args.wide)
            m.next = "ROOM"
            with m.If(~args.wide | walk.odd):
                m.d.sync += walk.batch.eq(walk.batch + 1)
                with m.If(walk.last_batch):
                    m.d.sync += rest.eq(DECODED + 3)
                    m.next = "DRAIN"


def draw(m, unit, read):
    """Draws a random word for each word that is read.

    The generator is a xorshift of 32 bits, from the command's seed.
    """
    args = unit.args
    chance = Signal(32, reset_less=True)
    word = chance
    for left, right in ((13, 0), (0, 17), (5, 0)):
        word = word ^ ((word << left)[:32] if left else word >> right)
    with m.If(unit.start):
        m.d.sync += chance.eq(args.seed)
    with m.Elif(read):
        m.d.sync += chance.eq(word)
    return chance


def select(m, unit, code, n, low, side_bits):
    """Selects a word of the pair of beats.

    Words are of the first beat. Codes are of either.
    """
    args, few = unit.args, unit.config.beat_words
    half = low - 1  # bits of an index in half a beat
    second, within = Signal(), Signal(side_bits)
    m.d.comb += [second.eq(n[-1]), within.eq(n[:-1])]
    with m.If(args.moments):
        m.d.comb += [second.eq(n[half]), within.eq(Cat(n[:half], n[half + 1 :]))]
    with m.If(args.wide & ~args.moments):
        m.d.comb += second.eq(n[side_bits - 1])
    at = Signal(low + 1)
    m.d.comb += at.eq(Mux(code, Cat(Mux(args.wide, within[2 : 2 + low], within[3 : 3 + low]), second), n[:low]))
    words = Array(unit.i.p.word_select(index, 32) for index in range(2 * few))
    taken = Signal(32, reset_less=True)
    m.d.sync += taken.eq(words[at])
    return TakenWord(word=taken, second=second, within=within)
