"""Sums of the element engine's lanes never wrap: those of two codes, and of four pixels."""

from amaranth.hdl import Mux, Signal, signed

from gradloom.rtl.engines.element.lane import ElementLane
from gradloom.rtl.formats.tiles.codes import WIDE
from gradloom.rtl.formats.tiles.element import LIFT
from gradloom.rtl.formats.tiles.tables import ARGUMENT
from gradloom.sim.proofs.claim import Claim

__all__ = ["DEEP", "sums"]

#: Bits of the exact sums.
_EXACT = 32
#: Cycles from a code to its sum.
DEEP = 6


def sums(unit=ElementLane):
    """The sum is the exact one of two codes that are aligned, or of a code and the last sum, three times at most.

    As the engine gives them: no code is the least of two's complement, none is aligned upwards, and where sums go on
    there is no b.
    """
    claim = Claim()
    m = claim.m
    lane = unit()
    inside = claim.place(lane)
    claim.drive(lane)
    squares = claim.fixed(1, "squares")
    least = -(1 << WIDE - 1)
    claim.assume("codes", (lane.a != least) & (lane.b != least) & (~squares | (lane.b == 0)))
    claim.assume("falls", lane.right_b >= ARGUMENT - LIFT - 1)
    claim.assume("adds", ~lane.loaded & ~lane.table & (~squares | ~lane.subtract))
    # Codes that were there before the first cycle are 0: what the registers start with.
    a, b = inside["aligned_a"], inside["aligned_b"]
    most = ((1 << WIDE - 1) - 1) << LIFT
    step = Signal(2)
    claim.assume("four", Mux(squares, lane.again == (step != 0), ~lane.again))
    m.d.sync += step.eq(step + 1)
    exact = Signal(signed(_EXACT), name="exact")
    other = Mux(lane.again, exact, b)
    m.d.sync += exact.eq(a + Mux(lane.subtract, -other, other))
    claim.lemma("aligned", (a <= most) & (a >= -most) & (b <= most) & (b >= -most) & (~squares | (b == 0)))
    for count in range(4):
        now = Mux(step == 0, 3, step - 1) == count
        bound = (count + 1) * most
        claim.lemma(f"sum_{count}", ~squares | ~now | ((exact <= bound) & (exact >= -bound)))
    claim.lemma("pair", squares | ((exact <= 2 * most) & (exact >= -2 * most)))
    claim.check("sum", inside["total"] == exact)
    claim.cover("four_largest", squares & (exact == 4 * most))
    claim.cover("least_pair", ~squares & (exact == -2 * most))
    return claim
