"""A chain of pairs never spills from one lane into the other."""

from amaranth.hdl import Signal, signed

from gradloom.rtl.formats.pair import Pair
from gradloom.rtl.systolic.paired import ChainFeet
from gradloom.rtl.systolic.pe import PE, Precision
from gradloom.sim.proofs.claim import Claim

from .exact import within

__all__ = ["chain"]


def chain(unit=ChainFeet, *, pair, more=0):
    """Both lanes of a PE's sum, as the foot of its chain reads them, are the exact sums of what was added, if the chain
    is of ``pair.rows`` rows (and ``more``) and starts with the pair's bound.

    The product is cut: it is that of any two codes with any operand. What comes from the PE above is within the bound
    that is claimed of this one, with a row less, so the claim holds all down a chain.
    """
    claim = Claim()
    m = claim.m
    pe = PE(precision=Precision.of_pairs(pair))
    inside = claim.place(pe)
    claim.drive(pe)
    m.submodules.feet = feet = unit(chains=1, width=29, pair=pair)
    m.d.comb += feet.p[0].eq(pe.p_o)
    most = Pair.MOST << Pair.CODE - 1  # of a product
    product, mode = inside["product"], inside["mode"]
    low, high = claim.free(signed(16), "low"), claim.free(signed(16), "high")
    low_above, high_above = claim.free(signed(24), "low_above"), claim.free(signed(24), "high_above")
    above = claim.free(range(pair.rows + more), "above")  # rows of the chain above
    claim.assume("product", product.as_signed() == (high << pair.apart) + low)
    claim.assume("codes", within(low, most, 0) & within(high, most, 0))
    claim.assume("rows_above", above < pair.rows + more)
    # 127 of 128 parts: a multiplication would be cut, too.
    reach = ((above << 7) - above)[: len(above) + 7] << Pair.CODE - 1
    claim.assume("sums_above", within(low_above, reach, 0) & within(high_above, reach, 0))
    claim.assume("from_above", pe.p_i == (high_above << pair.apart) + low_above + pair.bound)
    exact_low, exact_high, there = Signal(signed(25)), Signal(signed(25)), Signal()
    m.d.sync += [
        exact_low.eq(low_above + low),
        exact_high.eq(high_above + high),
        there.eq(mode[2] & mode[3] & ~mode[4]),
    ]
    claim.check("low_lane", ~there | (feet.o[0] == exact_low))
    claim.check("high_lane", ~there | (feet.o[1] == exact_high))
    claim.cover("both_negative", there & (feet.o[0] < 0) & (feet.o[1] < 0))
    claim.cover("full", there & (feet.o[0] > (pair.rows - 1) * most))
    return claim
