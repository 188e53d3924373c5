"""Sums over the channels of a convolution never wrap."""

from amaranth.hdl import Cat, Mux, Signal, signed

from gradloom.rtl.engines.array.feet import Accumulate
from gradloom.sim.proofs.claim import Claim

from ...proofs.exact import chain, within

__all__ = ["channels"]


def channels(unit=Accumulate, *, config):
    """Sums over the channels of a convolution, exact while weights add up to what the planner allows."""
    claim = Claim()
    m = claim.m
    accumulate = unit(config)
    inside = claim.place(accumulate, memories=lambda memory: "one")
    claim.drive(accumulate)
    scale, limit = config.activation.width - 1, config.sum_bits - config.activation.width
    ahead, memory = accumulate.ahead, inside.kept[0]
    came = chain(claim, Cat(ahead.position, ahead.valid, ahead.first, ahead.last), 3, "came")
    for n in range(1, 4):
        claim.assume(f"not_again_in_{n}", ~ahead.valid | (came[0][:-2] != came[n][:-2]))
    # Magnitudes of the weights of a column, as many as go into these sums.
    weights = claim.free(limit + 1, "weights")
    came = came[2]
    claim.assume("sums", within(accumulate.sums[0], weights, scale))
    mine = came[-3] & (came[:-3] == memory.place)
    exact, added = Signal(signed(50), name="exact"), Signal(limit + 2, name="added")
    total, next_added = Signal(signed(50), name="total"), Signal(limit + 2, name="next_added")
    m.d.comb += [
        next_added.eq(Mux(came[-2], 0, added) + weights),
        total.eq(Mux(came[-2], 0, exact) + accumulate.sums[0]),
    ]
    claim.assume("planned", ~mine | (next_added < 1 << limit))
    complete, told = Signal(signed(50), name="complete"), Signal(name="told")
    kept = Signal(name="kept")
    with m.If(mine):
        m.d.sync += [exact.eq(total), added.eq(next_added), kept.eq(~came[-1]), complete.eq(total)]
        # A sum begins with its first channel.
        claim.assume("begins", ~mine | came[-2] | kept)
    m.d.sync += told.eq(mine & came[-1])
    claim.check("exact", ~told | (accumulate.o.valid & (accumulate.o.sums[0] == complete)))
    written = claim.past(kept, "kept_before") & kept & ~claim.past(mine, "mine")
    claim.lemma("word", ~written | (memory.word[: config.sum_bits].as_signed() == exact))
    claim.lemma("bounded", within(exact, added, scale))
    claim.lemma("planned_before", added < 1 << limit)
    claim.cover("adds_up", told & (complete < 0) & (added > 1))
    return claim
