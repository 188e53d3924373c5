"""Sums of the norm engine's lanes never wrap."""

from amaranth.hdl import Mux, Signal, signed

from gradloom.rtl.engines.norm.lane import PRODUCT
from gradloom.rtl.engines.norm.sums import NormSums
from gradloom.sim.proofs.claim import Claim

__all__ = ["sums"]

#: Most beats of a segment: a column of 16 tiles.
_BEATS = 1 << 10
#: Bits of exact sums.
_EXACT = 64
#: Bits of a word: of a gradient times a gain; of a power, or p times dp, of which a row of 16 tiles has 64 beats.
_WORD, _ROW_WORD, _ROW, _SEEN = 18, 30, 64, 8


def sums(unit=NormSums):
    """A lane's sums are the exact ones of up to 1024 words of 18 bits, or 64 of 30, and of the products beside."""
    claim = Claim()
    m = claim.m
    made = unit(lanes=16)
    inside = claim.place(made)
    claim.drive(made, without=("largest",))
    row = claim.fixed(1, "row")
    word, second = made.i.words[0], made.i.seconds[0]
    most, beyond = Signal(signed(_EXACT)), 1 << PRODUCT - 1
    m.d.comb += most.eq(Mux(row, 1 << _ROW_WORD, 1 << _WORD - 1))
    claim.assume("words", (word <= most) & (word >= -most))
    count, total, beside = Signal(11), Signal(signed(_EXACT)), Signal(signed(_EXACT))
    claim.assume("begins", made.i.first | (count != 0) | ~made.i.valid)
    claim.assume("beats", ~made.i.valid | made.i.first | (count < Mux(row, _ROW, _BEATS)))
    fresh = made.i.first
    with m.If(made.i.valid):
        m.d.sync += [
            count.eq(Mux(fresh, 0, count) + 1),
            total.eq(Mux(fresh, 0, total) + word),
            beside.eq(Mux(fresh, 0, beside) + second),
        ]
    reach = Mux(row, count << _ROW_WORD, count << _WORD - 1)
    claim.lemma("count", count <= Mux(row, _ROW, _BEATS))
    claim.lemma("total_within", (total <= reach) & (total >= -reach))
    claim.lemma("beside_within", (beside <= count << PRODUCT - 1) & (beside >= -(count << PRODUCT - 1)))
    claim.check("total", inside["lane_total_0"] == total)
    claim.check("second", inside["lane_second_0"] == beside)
    claim.cover("row_ends", row & (count == _SEEN) & (total == _SEEN << _ROW_WORD))
    claim.cover("least", ~row & (beside == -3 * beyond))
    return claim
