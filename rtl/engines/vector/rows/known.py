"""Memories and units that know a beat's rows: weights, targets, values of rows, maxima, sums.

::

    weights, targets --> memory --+
                                  +--> at CHOOSE, to the lanes, and from there on the shifts of their terms
    values of rows ----> memory --+
                           ^                     maxima <-- whole parts of exponents, at LOOK_UP
                           | roots                 | by how much a row's sum falls
                           +-------- sums <--------+------- products, at PRODUCT
"""

from dataclasses import dataclass

from amaranth.hdl import Cat, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory

from gradloom.rtl.formats.vector import AIM, LEVEL, VectorOpcode
from gradloom.rtl.hierarchy import place
from gradloom.rtl.stream.delay import delay

from ..actions import Stage
from ..lane import Factor, Fold, Other, Scale
from .beats import words_of
from .maxima import Maxima
from .roots import RootWord, RowSums

__all__ = ["Known", "Moves", "RowMaxima", "add_rows", "find_maxima", "recall", "shift_terms"]


@dataclass(frozen=True)
class Known:
    """Values kept for a beat: its ``weight`` or target, its row's value as ``row`` or ``root``, and ``level``.

    ``write`` keeps the value of a row.
    """

    weight: Value
    row: Value
    root: data.View
    level: Value
    write: wiring.PureInterface


@dataclass(frozen=True)
class Moves:
    """Shifts of both products and of the result, and how the other product enters, each at its stage."""

    right: Signal
    left: Signal
    shift: Signal
    fold: Signal


@dataclass(frozen=True)
class RowMaxima:
    """The unit that finds maxima, and the token at :attr:`Stage.LOOK_UP`."""

    unit: Maxima
    token: Value


def recall(m, engine, op, kinds, walk, beat):
    """Holds weights, targets and values of rows, and reads them.

    Those of this cycle's beat are there a cycle later, at :attr:`Stage.CHOOSE`; a row's level at :attr:`Stage.MASK`.
    """
    depth, side, power = engine.features // engine.lanes, (engine.lanes - 1).bit_length(), kinds.power
    # Targets lie behind the weights.
    behind = max(depth, engine.tokens // engine.lanes, 1)
    m.submodules.weights = weights = Memory(
        shape=engine.lanes * AIM, depth=behind + max(engine.tokens // engine.lanes, 1), init=[]
    )
    write, weight = weights.write_port(), weights.read_port()
    own, aims = Signal((behind - 1).bit_length()), Signal()
    m.d.sync += aims.eq(op == VectorOpcode.TARGETS)
    m.d.comb += [
        own.eq(Mux(power, walk.token >> side, walk.weight)),
        write.addr.eq(Cat(own, aims)),
        write.en.eq(beat.go & kinds.plain),
        write.data.eq(
            Cat(*(word[:AIM] | (aims & word[AIM:].any()).replicate(AIM) for word in words_of(engine, engine.a.p)))
        ),
        weight.addr.eq(Cat(own, power)),
    ]
    m.submodules.rows = rows = Memory(shape=RootWord.size, depth=engine.tokens, init=[])
    write_row, read_row = rows.write_port(), rows.read_port()
    root = Signal(RootWord)
    m.d.comb += [read_row.addr.eq(walk.token), root.eq(read_row.data)]
    level = Signal(LEVEL, reset_less=True)
    m.d.sync += level.eq(Mux(power & ~kinds.sharp, read_row.data[: LEVEL.width], 0))
    level = delay(m, level, Stage.MASK - Stage.CHOOSE - 1)
    return Known(weight=weight.data, row=read_row.data, root=root, level=level, write=write_row)


def shift_terms(m, args, kinds, beat, known, line):
    """Gives a beat's shifts and folds, each at the stage that uses it."""
    root = known.root
    pull, exponent = (
        delay(m, root.pull_shift, Stage.RIGHT - 1 - Stage.CHOOSE),
        delay(m, root.exponent, Stage.LEFT - 1 - Stage.CHOOSE),
    )
    right_next, left_next, fold_next = line[Stage.RIGHT - 1], line[Stage.LEFT - 1], line[Stage.FOLD - 1]
    before = Stage.PRODUCT - 2
    shift_next = line[before]
    # A stage early, and registered.
    right = Signal(6, reset_less=True)
    left, shift, moved = Signal(6, reset_less=True), Signal(6, reset_less=True), Signal(signed(8), reset_less=True)
    fold = Signal(Fold, reset_less=True)
    m.d.sync += [
        right.eq(Mux(right_next.other == Other.PULL, pull, args.right)),
        left.eq(Mux(left_next.scale == Scale.ROOT, exponent, Mux(left_next.phase, args.right, args.left))),
        fold.eq(Mux(kinds.rope, Mux(fold_next.later, Fold.PLUS, Fold.MINUS), fold_next.fold)),
        moved.eq(
            Mux(beat.two & ~shift_next.phase, args.second_shift, args.shift)
            + Mux(shift_next.factor == Factor.ROOT, delay(m, exponent, before - (Stage.LEFT - 1)), 0)
        ),
        shift.eq(Mux(moved < 0, 0, moved[:6] | moved[6].replicate(6))),
    ]
    return Moves(right=right, left=left, shift=shift, fold=fold)


def find_maxima(m, engine, kinds, walk, line):
    """Finds the maxima of a softmax's rows."""
    tag = line[Stage.LOOK_UP]
    maxima = Maxima(lanes=engine.lanes, tokens=engine.tokens)
    m.submodules.maxima = maxima
    token = delay(m, walk.token[: len(maxima.tag.token)], Stage.LOOK_UP)
    m.d.comb += [
        maxima.active.eq(kinds.sharp),
        maxima.single.eq(kinds.single),
        maxima.tag.valid.eq(tag.valid),
        maxima.tag.first.eq(tag.first),
        maxima.tag.last.eq(tag.last),
        maxima.tag.start.eq(tag.opening),
        maxima.tag.token.eq(token),
    ]
    return RowMaxima(unit=maxima, token=token)


def add_rows(m, platform, engine, kinds, beat, line, maxima):
    """Adds up the lanes' products by rows."""
    tag = line[Stage.PRODUCT]
    sums = place(m, "sums", RowSums(lanes=engine.lanes, tokens=engine.tokens), platform)
    m.d.comb += [
        sums.tag.valid.eq(tag.valid & tag.sums),
        sums.tag.along.eq(tag.phase),
        sums.tag.first.eq(tag.first),
        sums.tag.last.eq(tag.last),
        sums.tag.start.eq(tag.opening),
        sums.tag.token.eq(delay(m, maxima.token, Stage.PRODUCT - Stage.LOOK_UP)),
        sums.single.eq(kinds.single),
        sums.two.eq(beat.two),
        sums.power.eq(kinds.sharp),
        # Last a register that can be reset, which no shift register takes in: the longest way begins there.
        sums.fall.eq(delay(m, delay(m, maxima.unit.fall, 8 + sums.fall_latency(engine.lanes)), 1, reset_less=False)),
    ]
    return sums
