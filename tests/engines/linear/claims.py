"""Sums over the tiles of an input never wrap."""

from amaranth.hdl import Cat, Const

from gradloom.rtl.engines.linear.feet import Foot
from gradloom.rtl.engines.words import PRECISION
from gradloom.rtl.formats.weights.linear import SUM
from gradloom.sim.proofs.claim import Claim

from ...proofs.exact import chain, kept_sum, within_bits

__all__ = ["tiles"]


def tiles(unit=Foot, *, config, most=255):
    """Sums over the tiles of a layer's input, as many as a command may ask for, none of whose columns was bent."""
    claim = Claim()
    foot = unit(config)
    inside = claim.place(foot, memories=lambda memory: "one")
    claim.drive(foot)
    tag = foot.tag
    bits = PRECISION.x - 1 + PRECISION.w - 1 + (config.edge - 1).bit_length()
    claim.assume("p", within_bits(foot.p, bits))
    banks = hasattr(foot, "read")
    where = Cat(tag.address, tag.bank) if banks else tag.address
    tags = chain(claim, Cat(where, tag.valid, tag.first), 3, "tag")
    for n in range(1, 4):
        # The array computes the tokens of a tile, and its parts, before it comes to the next tile.
        claim.assume(f"not_again_in_{n}", ~tag.valid | (tags[0][:-1] != tags[n][:-1]))
    if banks:
        claim.assume("not_read_while_used", ~tag.valid | ~foot.read.valid | (foot.read.bank != tag.bank))
    p, done = chain(claim, foot.p, 3, "p")[-1], tags[-1]
    for bank, memory in enumerate(inside.kept):
        put = done[-2] & (done[:-2] == (Cat(memory.place, Const(bank, 1)) if banks else memory.place))
        _, now = kept_sum(
            claim, memory, name=f"bank_{bank}", put=put, first=done[-1], term=p.as_signed(), bits=bits, most=most
        )
        claim.assume(f"bank_{bank}_tiles", ~put | (now <= most))
    assert len(inside.kept[0].word) == SUM
    return claim
