"""Sums of a class of the head never wrap."""

from amaranth.hdl import Cat, Mux, Signal, signed

from gradloom.rtl.engines.head.lane import _ClassLane
from gradloom.rtl.formats.images import PARAMETER
from gradloom.rtl.units.lora_gradient import GRADIENT_WIDTH
from gradloom.sim.proofs.claim import Claim

from ...proofs.exact import chain, kept_sum, within, within_bits

__all__ = ["class_lane"]


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
