"""Takes beats of operands, each with a tag for the lanes.

::

    walk over the operands ----+
                               v
    a, b, c ----------------> take --> tag --> a stage a cycle
       |                       ^
       +--> halves of rows ----+
              ^           of ROPE
    walk over the arrivals
"""

from dataclasses import dataclass

from amaranth.hdl import Cat, Mux, Signal

from gradloom.rtl.formats.vector import ELEMENTS, TERM, TILES, VectorOpcode
from gradloom.rtl.formats.weights.linear import MASTER, WEIGHT

from ..actions import ACTIONS, PLAIN, POWERS, TAG, TWO, USES_B, USES_C, Stage, one_of
from .halves import Halves
from .walk import Walk

__all__ = [
    "BeatTaken",
    "Kinds",
    "Walks",
    "place_walks",
    "register_kinds",
    "start_walks",
    "tag_beat",
    "take_beat",
    "turn_rows",
    "words_of",
]


@dataclass(frozen=True)
class Walks:
    """Where the operands are that are taken and, of ROPE, those that arrive; and ``halves`` of its rows between."""

    operands: Walk
    halves: Halves
    arrivals: Walk


@dataclass(frozen=True)
class Kinds:
    """Kind of the command's operation.

    ``plain``: it brings weights or targets. ``power``: a softmax. ``sharp``: its sums. ``single``: it has one token.
    """

    rope: Signal
    plain: Signal
    power: Signal
    sharp: Signal
    single: Signal


@dataclass(frozen=True)
class BeatTaken:
    """The beat of this cycle, if it may ``go``.

    ``phase``: it is the second of ``two`` that its operands take. ``room``: its results have room, which the queues of
    results drive. ``wide``: words have 25 bits.
    """

    phase: Signal
    room: Signal
    go: Signal
    two: Signal
    wide: Signal


def place_walks(m, engine):
    """Places the walk over the operands.

    For ROPE, also the halves of rows and the walk of the arriving operands.
    """
    side = (engine.lanes - 1).bit_length()
    walk = Walk(row=9, tokens=13, tiles=TILES, weights=ELEMENTS - side)
    m.submodules.walk = walk
    halves = Halves(
        depth=engine.head // engine.lanes, turned=engine.lanes * TERM.width, angle=engine.lanes * WEIGHT.width
    )
    m.submodules.halves = halves
    m.submodules.arrivals = arrivals = Walk(row=9, tokens=13, tiles=TILES, weights=1)
    return Walks(operands=walk, halves=halves, arrivals=arrivals)


def register_kinds(m, op, args):
    """Registers the kind of the command's operation."""
    rope, plain, power, sharp, single = (Signal(name=name) for name in ("rope", "plain", "power", "sharp", "single"))
    m.d.sync += [
        rope.eq(op == VectorOpcode.ROPE),
        plain.eq(one_of(op, PLAIN)),
        power.eq(one_of(op, POWERS)),
        sharp.eq(op == VectorOpcode.SOFTMAX_SUMS),
        single.eq(args.tokens == 1),
    ]
    return Kinds(rope=rope, plain=plain, power=power, sharp=sharp, single=single)


def start_walks(m, command, kinds, walks):
    """Starts each walk over the command's tensor.

    The tensor of WEIGHTS and TARGETS has one token.
    """
    args = command.args
    for each in (walks.operands, walks.arrivals):
        m.d.comb += each.start.eq(command.begin)
        m.d.sync += [
            each.row.eq(args.row - 1),
            each.tiles.eq(args.tiles - 1),
            each.tokens.eq(Mux(kinds.plain, 0, args.tokens - 1)),
        ]


def turn_rows(m, engine, command, kinds, walks):
    """Puts ROPE's operands into ``halves`` as they arrive.

    The lanes take them from there.
    """
    rope, halves, arrivals = kinds.rope, walks.halves, walks.arrivals
    m.d.comb += [
        halves.start.eq(command.begin),
        halves.row.eq(command.args.row),
        halves.i_turned.eq(_cut(engine, engine.a.p, TERM.width)),
        halves.i_angle.eq(_cut(engine, engine.b.p, WEIGHT.width)),
        halves.put.eq(command.running & rope & arrivals.busy & engine.a.valid & engine.b.valid & halves.put_ready),
        arrivals.step.eq(halves.put),
        halves.take.eq(walks.operands.step & rope),
    ]


def take_beat(m, engine, op, command, kinds, walks):
    """Takes a beat of operands when its inputs are there.

    Its results must have room.
    """
    rope, walk, halves = kinds.rope, walks.operands, walks.halves
    two, uses_b, uses_c, wide = (Signal(name=name) for name in ("two", "uses_b", "uses_c", "wide"))
    m.d.sync += [
        wide.eq(command.args.wide & (op == VectorOpcode.ADD)),
        two.eq(one_of(op, TWO)),
        uses_b.eq(one_of(op, USES_B)),
        uses_c.eq(one_of(op, USES_C)),
    ]
    phase, room, go = (Signal(name=name) for name in ("phase", "room", "go"))
    there = Mux(rope, halves.take_valid, engine.a.valid & (engine.b.valid | ~uses_b) & (engine.c.valid | ~uses_c))
    m.d.comb += [
        go.eq(command.running & walk.busy & room & there),
        walk.step.eq(go & (phase | ~two)),
        engine.a.ready.eq(Mux(rope, halves.put, walk.step)),
        engine.b.ready.eq(Mux(rope, halves.put, walk.step & uses_b)),
        engine.c.ready.eq(walk.step & uses_c),
    ]
    with m.If(go):
        m.d.sync += phase.eq(~phase & two)
    return BeatTaken(phase=phase, room=room, go=go, two=two, wide=wide)


def tag_beat(m, op, args, kinds, walk, beat):
    """Makes the tag of this cycle's beat.

    ``[n]`` of the result is of the beat at stage ``n``, see :class:`Stage`.
    """
    phase = beat.phase
    tag = Signal(TAG)
    with m.Switch(Cat(op, phase)):
        for name, actions in ACTIONS.items():
            for n, action in enumerate(actions):
                with m.Case(name | n << len(op)):
                    m.d.comb += [tag[field].eq(value) for field, value in action._asdict().items()]
    later = Signal()  # the second half of a row of ROPE
    m.d.comb += [
        tag.valid.eq(beat.go & ~kinds.plain),
        tag.phase.eq(phase),
        tag.first.eq(walk.first),
        tag.last.eq(walk.last),
        tag.opening.eq(walk.opening),
        later.eq((walk.at & (args.row >> 1)).any()),
        tag.later.eq(later ^ args.turn),
    ]
    line = [tag]
    for n in range(Stage.WORD):
        line.append(Signal(TAG, name=f"tag_{n + 1}"))
        m.d.sync += line[-1].eq(line[-2])
    return line


def words_of(engine, beat):
    """Words of a beat."""
    return [beat.word_select(n, MASTER.width) for n in range(engine.lanes)]


def _cut(engine, beat, width):
    """The low ``width`` bits of each word of a beat."""
    return Cat(*(word[:width] for word in words_of(engine, beat)))
