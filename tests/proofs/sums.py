"""Sums: none wraps while as much is added as the format and the planner allow, whatever the operands are."""

from amaranth.hdl import Cat, Const, Mux, Signal, signed

from gradloom.rtl.engines.array.feet import Accumulate
from gradloom.rtl.engines.head.engine import _ClassLane
from gradloom.rtl.engines.linear.feet import Foot
from gradloom.rtl.engines.words import PRECISION
from gradloom.rtl.formats.images import PARAMETER
from gradloom.rtl.formats.linear import SUM
from gradloom.rtl.systolic.pe import PE, Precision
from gradloom.rtl.units.lora_gradient import GRADIENT_WIDTH
from gradloom.sim.proofs.claim import Claim

from .exact import chain, kept_sum, within, within_bits

__all__ = ["channels", "class_lane", "element", "tiles"]


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


def class_lane(unit=_ClassLane, *, depth, rows, classes, activation):
    """The three sums of a class of the head, whose products are cut: the logit over all rank indices, the gradient of
    B over a batch, and that of h over the classes, on its way from lane to lane."""
    claim = Claim()
    m = claim.m
    lane = unit(depth=depth, rows=rows, classes=classes, activation=activation)
    inside = claim.place(lane, memories=lambda memory: "one" if memory.shape.width == lane.sum_width else "any")
    claim.drive(lane)
    x, w, d = activation.width - 1, PARAMETER.width - 1, GRADIENT_WIDTH - 1
    products = {}
    for name, bits in (("z", x + w), ("dh", w + d), ("db", x + d)):
        products[name] = inside[f"{name}_mac.product"]
        claim.assume(f"{name}_product", within_bits(products[name], bits))

    # The logit: of no more indices than there are.
    first = chain(claim, lane.forward_i.first, 3, "first")[-1]
    exact, count = Signal(signed(lane.z_width + 2), name="z_exact"), Signal(range(2 * depth + 2), name="z_count")
    m.d.sync += [
        exact.eq(Mux(first, 0, exact) + products["z"]),
        count.eq(Mux(first, 1, Mux(count > depth, count, count + 1))),
    ]
    claim.check("z_exact", (count > depth) | (lane.z == exact))
    claim.lemma("z_bounded", (count > depth) | within(exact, count, x + w))
    claim.cover("z_of_all", (count == depth) & (exact < 0))

    # The gradient of h: what comes from the lanes before, and one more.
    before = claim.fixed(range(classes), "before")
    claim.assume("lanes", before < classes)
    claim.assume("dh_before", within(lane.dh_i, before, w + d))
    total = Signal(signed(lane.dh_width + 2), name="dh_total")
    m.d.sync += total.eq(products["dh"] + lane.dh_i)
    claim.check("dh_exact", lane.dh_o == total)
    claim.check("dh_bounded", within(lane.dh_o, before + 1, w + d))

    # That of B, an index of which comes again after 4 cycles at the earliest.
    tag = lane.backward_i
    tags = chain(claim, Cat(tag.k, tag.valid, tag.first), 4, "tag")
    for n in range(1, 4):
        claim.assume(f"not_again_in_{n}", ~tag.valid | (tags[0][:-1] != tags[n][:-1]))
    claim.assume("not_read_while_used", ~tags[1][-2] | ~lane.read)
    (memory,) = (each for each in inside.kept if hasattr(each, "place") and len(each.word) == lane.sum_width)
    put = tags[4][-2] & (tags[4][:-2] == memory.place)
    _, now = kept_sum(
        claim,
        memory,
        name="db",
        put=put,
        first=tags[4][-1],
        term=claim.past(products["db"], "db_term"),
        bits=x + d,
        most=rows,
    )
    claim.assume("samples", ~put | (now <= rows))
    return claim


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
