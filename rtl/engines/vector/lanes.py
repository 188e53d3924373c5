"""The lanes of the vector engine, and the tables that two of them share."""

from dataclasses import dataclass

from amaranth.hdl import Cat, Mux, Value
from amaranth.lib.memory import Memory

from ...formats.vector import AIM, TERM
from ...formats.weights.linear import MASTER, WEIGHT
from ...hierarchy import place
from ...stream.delay import delay
from .actions import Stage
from .lane import BASE, PRODUCT, Lane, tables

__all__ = ["LaneResults", "place_lanes"]


@dataclass(frozen=True)
class LaneResults:
    """Of each lane its word, and the word's size without its sign, at :attr:`Stage.WORD`.

    ``clipped``: of each lane two bits, whether word and term were. ``exponents``: of the target, at
    :attr:`Stage.LOOK_UP`, 0 where it is not in the lane.
    """

    words: list[Value]
    clipped: list[Value]
    sizes: list[Value]
    exponents: list[Value]


def place_lanes(m, platform, engine, command, kinds, beat, line, halves, known, moves, maxima, masks, sums):
    """Places the lanes."""
    args, chosen, looks, word = command.args, line[Stage.CHOOSE], line[Stage.LOOK_UP], line[Stage.WORD]
    rope, power, root = kinds.rope, kinds.power, known.root
    words, clipped, sizes, exponents = [], [], [], []
    pieces = tables(engine.gelu)
    for n in range(engine.lanes):
        lane = place(m, f"lane_{n}", Lane(), platform)
        if n % 2 == 0:
            m.submodules[f"table_{n}"] = table = Memory(shape=BASE + 12, depth=len(pieces), init=pieces)
        piece = table.read_port()
        own = engine.a.p.word_select(n, MASTER.width)[: TERM.width]
        turned = halves.own.word_select(n, TERM.width)
        cosine = halves.first.word_select(n, WEIGHT.width).as_signed()
        sine = halves.second.word_select(n, WEIGHT.width).as_signed()
        m.d.comb += [
            lane.a.eq(Mux(rope, turned, own)),
            lane.b.eq(Mux(rope, cosine, engine.b.p.word_select(n, MASTER.width)[: TERM.width].as_signed())),
            lane.c.eq(Mux(rope, sine, engine.c.p.word_select(n, MASTER.width)[: TERM.width].as_signed())),
            lane.d.eq(halves.other.word_select(n, TERM.width)),
            lane.weight.eq(known.weight.word_select(n, AIM)[: WEIGHT.width]),
            lane.gate.eq(args.gate),
            lane.wide.eq(beat.wide),
            piece.addr.eq(Cat(lane.piece, looks.slope, power, *([args.causal & ~power] if engine.gelu else []))),
            lane.base.eq(piece.data[:BASE]),
            lane.slope.eq(piece.data[BASE:]),
            lane.other.eq(chosen.other),
            lane.operand.eq(chosen.operand),
            lane.scale.eq(chosen.scale),
            lane.factor.eq(chosen.factor),
            lane.pull.eq(root.pull),
            lane.root.eq(root.mantissa),
            lane.row.eq(known.row[: TERM.width].as_signed()),
            lane.power.eq(power),
            lane.sharp.eq(kinds.sharp),
            lane.level.eq(known.level),
            lane.masked.eq(masks.masked[n]),
            lane.hit.eq(delay(m, masks.hit[n], Stage.FOLD - Stage.MASK)),
            lane.top.eq(maxima.unit.top),
            maxima.unit.wholes[n].eq(lane.whole),
            lane.right.eq(moves.right),
            lane.fold.eq(moves.fold),
            lane.left.eq(moves.left),
            lane.shift.eq(moves.shift),
            lane.valid.eq(line[Stage.ROUND].valid),
            lane.kept.eq(line[Stage.ROUND].kept),
            sums.products[n].eq(lane.product),
        ]
        words.append(lane.word)
        clipped += [lane.clipped & (word.o | word.q), lane.term_clipped]
        sizes.append(lane.rounded[:-1] ^ lane.rounded[-1].replicate(PRODUCT))
        exponents.append(Mux(delay(m, masks.hit[n], Stage.LOOK_UP - Stage.MASK), lane.exponent, 0))
    return LaneResults(words=words, clipped=clipped, sizes=sizes, exponents=exponents)
