"""A sum of a PE never wraps within what the planner allows."""

from amaranth.hdl import Mux, Signal, signed

from gradloom.rtl.systolic.pe import PE, Precision
from gradloom.sim.proofs.claim import Claim

from .exact import within

__all__ = ["element"]


def element(unit=PE, *, precision=Precision()):
    """A PE's sum is the exact sum of what was added to it, if the weights' magnitudes add up to less than
    2^(sum - x): what the planner asks of a network, and what any sum of ``longest_sum`` products keeps.

    Products are cut: each is anything between minus and plus its weight's magnitude times 2^(x - 1). What comes from
    the PE above is within the bound that is claimed of this one, so the claim holds all down a column.
    """
    claim = Claim()
    m = claim.m
    pe = unit(precision=precision)
    inside = claim.place(pe)
    claim.drive(pe)
    product, mode = inside["product"], inside["mode"]
    scale = precision.x - 1
    bits = precision.sum - precision.x + 1  # of a sum of magnitudes that is still allowed, and one more
    wide = precision.sum + 2
    weight, above = claim.free(precision.w, "weight"), claim.free(bits, "above")
    exact, added = Signal(signed(wide), name="exact"), Signal(bits + 1, name="added")
    use, down, own = mode[2], mode[3], mode[4]
    claim.assume("one_origin", ~(down & own))  # both at once is the array of bytes' alone
    claim.assume("weight", weight <= 1 << precision.w - 1)
    claim.assume("product", within(product, weight, scale))
    claim.assume("above", within(pe.p_i, above, scale))
    next_added = Signal(bits + 2, name="next_added")
    m.d.comb += next_added.eq(Mux(use, weight, 0) + Mux(down, above, 0) + Mux(own, added, 0))
    claim.assume("planned", next_added < 1 << precision.sum - precision.x)
    m.d.sync += [exact.eq(Mux(use, product, 0) + Mux(down, pe.p_i, 0) + Mux(own, exact, 0)), added.eq(next_added)]
    claim.check("exact", exact == pe.p_o)
    claim.lemma("bounded", within(exact, added, scale))
    claim.lemma("added_fits", added < 1 << precision.sum - precision.x)
    claim.cover("negative", pe.p_o < 0)
    claim.cover("accumulates", use & own & (added > 1))
    return claim
