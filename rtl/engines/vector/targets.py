"""Which elements of a softmax count, which is the target, and the loss that follows."""

from dataclasses import dataclass

from amaranth.hdl import Cat, Mux, Signal

from ...formats.vector import AIM, ELEMENTS, EXPONENT_FRAC, LossWord, VectorOpcode
from ...stream.delay import delay
from .actions import Stage
from .results import either

__all__ = ["Masks", "add_losses", "mask_elements"]


@dataclass(frozen=True)
class Masks:
    """A bit a lane, at :attr:`Stage.MASK`.

    ``masked``: the element does not count. ``hit``: it is the target.
    """

    masked: Signal
    hit: Signal


def mask_elements(m, engine, op, args, walk, targets, line):
    """Finds the elements that do not count, and the target among the others.

    ``targets``: the weight that :func:`recall` gives of a beat.
    """
    side = (engine.lanes - 1).bit_length()
    active = Signal()
    m.d.sync += active.eq((op == VectorOpcode.SOFTMAX) & args.targets)
    # CHOOSE: place of the beat; AIM: the last element that counts, and the target; behind it: where they are in this
    # beat.
    last, target = Signal(ELEMENTS + 1, reset_less=True), Signal(AIM, reset_less=True)
    token = delay(m, walk.token, Stage.CHOOSE)
    m.d.sync += [last.eq(args.limit + Mux(args.causal, token, 0)), target.eq(targets.word_select(token[:side], AIM))]
    beat = delay(m, walk.weight, Stage.AIM)
    none = target.all()
    beyond, ends, meets, empty = (Signal(name=name, reset_less=True) for name in ("beyond", "ends", "meets", "empty"))
    m.d.sync += [
        beyond.eq(beat > last[side:]),
        ends.eq(beat == last[side:]),
        empty.eq(active & none),
        meets.eq(active & line[Stage.AIM].valid & (beat == target[side:])),
    ]
    end, at = delay(m, last[:side], 1), delay(m, target[:side], 1)
    masked, hit = (Signal(engine.lanes, name=name, reset_less=True) for name in ("masked", "hit"))
    for n in range(engine.lanes):
        over = beyond | (ends & (n > end)) if n else beyond
        m.d.sync += [masked[n].eq(over | empty), hit[n].eq(~over & meets & (at == n))]
    return Masks(masked=masked, hit=hit)


def add_losses(m, engine, exponents, hit, begin):
    """The beat of the targets' losses.

    It is made from their exponents (at LOOK_UP) and their ``hit`` (at MASK).
    """
    exponent, hits = Signal.like(exponents[0], reset_less=True), Signal(2, name="hits")
    m.d.sync += [exponent.eq(either(exponents)), hits.eq(Cat(hit.any(), hits))]
    tokens = Signal(range(engine.tokens + 1))
    loss = Signal(len(exponent) + len(tokens))
    with m.If(begin):
        m.d.sync += [loss.eq(0), tokens.eq(0)]
    with m.Elif(hits[1]):
        # mutant exponents-above-0: m.d.sync += [loss.eq(loss - exponent), tokens.eq(tokens + 1)]
        m.d.sync += [loss.eq(loss - Mux(exponent[-1], exponent, 0)), tokens.eq(tokens + 1)]
    report = Signal(LossWord)
    m.d.comb += [report.loss.eq(loss[EXPONENT_FRAC - 16 :]), report.tokens.eq(tokens)]
    return report
