"""Two sums of a slice stay apart as long as each is within the bound of :class:`CellImage`."""

from amaranth.hdl import Mux, Signal, signed

from gradloom.rtl.formats.cell import CODE, PAIR
from gradloom.rtl.systolic.slices import Accumulate
from gradloom.sim.proofs.claim import Claim

__all__ = ["chain"]

#: Bits of the exact sums: of more operands than the largest design has.
_WIDE = 28


def chain(unit=Accumulate, *, more=0):
    """The lanes of a slice's sum are the exact sums of its products, once these are within the bound (and ``more``).

    The product is cut: it is that of any two codes with any operand. Chains have any length, and sums on the way may be
    beyond the bound: only those that are read must be within.
    """
    claim = Claim()
    m = claim.m
    slice_ = unit(a=PAIR.width, b=CODE, width=2 * PAIR.apart)
    inside = claim.place(slice_)
    claim.drive(slice_)
    low, high = claim.free(signed(17), "low"), claim.free(signed(17), "high")
    claim.assume("product", inside["product"].as_signed() == (high << PAIR.apart) + low)
    exact = {"low": Signal(signed(_WIDE), name="exact_low"), "high": Signal(signed(_WIDE), name="exact_high")}
    for name, product in (("low", low), ("high", high)):
        m.d.sync += exact[name].eq(product + Mux(slice_.add, exact[name], 0))
        # Longer chains than there are would wrap these sums, not those of the slice.
        claim.assume(f"{name}_short", (exact[name] < 1 << _WIDE - 2) & (exact[name] >= -(1 << _WIDE - 2)))
    whole = (exact["high"] << PAIR.apart) + exact["low"]
    claim.lemma("sum", slice_.p == whole[: 2 * PAIR.apart].as_signed())
    bound = PAIR.bound + more
    within = [(each > -bound) & (each < bound) for each in exact.values()]
    for name, lane in zip(exact, PAIR.lanes(slice_.p)):
        claim.check(f"{name}_lane", ~(within[0] & within[1]) | (lane == exact[name]))
    claim.cover("both_negative", within[0] & within[1] & (exact["low"] < 0) & (exact["high"] < 0))
    claim.cover("full", within[1] & (exact["low"] == PAIR.bound - 1))
    return claim
