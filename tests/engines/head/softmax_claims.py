"""Sums of softmax and of the losses: none wraps, of as many classes and samples as there may be."""

from amaranth.hdl import Cat, Const, Mux, Signal, Value
from amaranth.lib import data
from amaranth.utils import ceil_log2

from gradloom.rtl.engines.head.commands import HeadOperands
from gradloom.rtl.engines.head.engine import Head
from gradloom.rtl.formats.images import ACTIVATION
from gradloom.rtl.formats.rounding import round_shift_hdl
from gradloom.rtl.units.softmax import _CLAMP, _EXP2, _FRAC, _LN2, _LOG2, _LOG2E, SoftmaxCrossEntropy
from gradloom.sim.proofs.claim import Claim

from ...proofs.exact import chain

__all__ = ["losses", "softmax"]

#: Bounds by the formats alone: of a logit that is scaled by log2(e), with 12 bits more than its logarithm has; of that
#: logarithm; of its integer part.
_SCALED = (1 << ACTIVATION.width - 1) * _LOG2E + (1 << ACTIVATION.width - 2)
_LOGARITHM = (_SCALED >> 12) + 1
_WHOLE = (_LOGARITHM >> _FRAC) + 1


def softmax(unit=SoftmaxCrossEntropy, *, max_length):
    """The sum of exponentials over the classes, in units of a power of two that follows the greatest of them, and all
    that is added up before and after it; however long vectors are, and whoever holds the outputs back.

    Products are cut: each is anything within the bounds of its factors.
    """
    claim = Claim()
    m = claim.m
    component = unit(max_length=max_length)
    inside = claim.place(component, memories=lambda memory: "any")
    claim.drive(component)
    tags, places = _places(claim, inside, component)
    _room(claim, inside, component)
    guard = ceil_log2(max_length)

    # A logit's logarithm to base 2.
    product, scaled = (_later(inside, ACTIVATION.width + 18 + n)[0] for n in range(2))
    claim.assume("scaled_product", _up_to(product, (1 << ACTIVATION.width - 1) * _LOG2E))
    claim.lemma("scaled_bounded", _up_to(scaled, _SCALED))
    t4, top, total = (inside[name] for name in ("t4", "top", "total"))
    claim.check("logarithm_exact", t4 == claim.past(round_shift_hdl(scaled, 12), "rounded"))
    claim.check("logarithm_bounded", _up_to(t4, _LOGARITHM))

    # How far it, and the greatest before it, lie below the greatest so far.
    whole = t4[_FRAC:].as_signed()
    valid, first = (claim.past(value, name) for value, name in ((tags[5][0], "valid"), (places[5] == 0, "first")))
    for name, value in (("below", whole), ("fall", top)):
        gap = claim.past(top - claim.past(value, f"{name}_from"), f"{name}_gap")
        begins = first if name == "fall" else 0
        claim.check(f"{name}_exact", ~valid | (inside[name] == Mux(begins | (gap > _CLAMP), _CLAMP, gap)))
        claim.lemma(f"{name}_is_no_rise", ~valid | begins | (gap >= 0))

    # The sum, of at most as many as a vector may have; each vector begins anew.
    most = _interpolated(claim, inside, "power", _EXP2)
    assert most < 1 << _EXP2.frac_out
    ones = _FRAC + 2 + guard  # bits of a term
    fall, exact = chain(claim, inside["fall"], 2, "fall")[-1], Signal(len(total) + 2, name="exact")
    with m.If(tags[8][0]):
        m.d.sync += exact.eq(Mux(places[8] == 0, 0, exact >> fall) + inside["term"])
    claim.check("sum_exact", total == exact)
    claim.lemma("sum_bounded", exact <= max_length << ones)
    claim.lemma("sum_bounded_by_terms", (places[8] == 0) | (exact <= Value.cast(places[8]) << ones))
    claim.cover("sum_of_all", claim.past(tags[8][0] & (places[8] == max_length - 1), "all") & (exact[-3:] != 0))

    # Its logarithm, which waits for the second pass.
    _interpolated(claim, inside, "log", _LOG2)
    claim.lemma("place_bounded", inside["k"] <= guard)
    for n, each in enumerate((top, *_later(inside, len(top)))):
        claim.lemma(f"top_{n}_bounded", _up_to(each, _WHOLE))
    for n, each in enumerate(_later(inside, len(top) + 1)):
        claim.lemma(f"exponent_{n}_bounded", _up_to(each, _WHOLE + guard))
    log_sum, put = _later(inside, 11 + _FRAC)[0], inside.find("w_data", wires=True)[1][: 10 + _FRAC]
    claim.check("log_sum_exact", put.as_signed() == log_sum)
    claim.check("log_sum_bounded", _up_to(log_sum, _log_sum(max_length)))
    claim.cover("log_sum_negative", (log_sum < 0) & claim.past(inside["stage14"][2], "ends"))

    _second_pass(claim, inside, component)
    return claim


def _log_sum(max_length):
    return _WHOLE + ceil_log2(max_length) + 2 << _FRAC


def most_loss(max_length):
    """The greatest loss there may be."""
    return (_least(max_length) * _LN2 >> 18) + 1


def _least(max_length):
    """Magnitude of the least logarithm of a probability, as its product with ln(2) takes it."""
    return (_LOGARITHM + _log_sum(max_length) >> 3) + 1


def _up_to(value, bound):
    value = Value.cast(value).as_signed()
    return (value <= bound) & (value >= -bound)


def _later(inside, width):
    """Those of the delays of a unit that are so wide."""
    return [each for each in inside.find("later") if len(each) == width]


def _places(claim, inside, component):
    """What comes, and its place in its vector, as they go through the stages: since 0, 1, 2 .. cycles."""
    m = claim.m
    last = component.max_length - 1
    place = Signal(range(component.max_length), name="place")
    take, final = component.i.valid & component.i.ready, component.i.p.last | (place == last)
    after = Mux(take, Mux(final, 0, place + 1), place)
    m.d.sync += place.eq(after)
    tags, places = chain(claim, Cat(take, final), 15, "tag"), chain(claim, place, 15, "place")
    claim.lemma("index", (inside["index"] == place) & (place <= last))
    claim.lemma("begins", inside.wire("stage0")[1] == (place == 0))
    for n in range(16):
        stage = inside.wire("stage0") if n == 0 else inside[f"stage{n}"]
        claim.lemma(
            f"stage_{n}", (stage[0] == tags[n][0]) & (~stage[0] | (stage[1:3] == Cat(places[n] == 0, tags[n][1])))
        )
        if n:
            claim.lemma(
                f"place_{n}",
                (places[n] <= last) & (places[n - 1] == Mux(tags[n][0], Mux(tags[n][1], 0, places[n] + 1), places[n])),
            )
    return tags, places


def _room(claim, inside, component):
    """What is under way has a place in the queues: none of what they are given is lost."""
    stages = [inside.wire("stage0"), *(inside[f"stage{n}"] for n in range(1, 16))]
    for name, pending, under_way, bits, depth in (
        ("logs", "pending", range(1, 5), (0,), component.max_length + component.latency + 4),
        ("sums", "pending_vectors", range(1, 16), (0, 2), 16),
    ):
        level = inside[f"{name}.inner_level"] + inside[f"{name}.r_rdy"]
        claim.lemma(
            f"{name}_counted",
            inside[pending] == level + sum(Cat(stages[n][bit] for bit in bits).all() for n in under_way),
        )
        claim.lemma(f"{name}_leave_room", inside[pending] <= depth - 1 - inside["room"])
        now = stages[under_way[-1]]
        claim.check(f"{name}_fit", ~Cat(now[bit] for bit in bits).all() | inside.wire(f"{name}.w_rdy"))


def _interpolated(claim, inside, name, table, enable=1):
    """An interpolated value, whose product is cut, is the sum of its two terms, and no more than what it returns."""
    m = claim.m
    base, slope = table.table
    most, least = int((base + slope).max()), int(slope.min())
    base_q, slope_q, base_p, product, total = (
        inside[f"{name}.{each}"] for each in ("base_q", "slope_q", "base_p", "product", "total")
    )
    slope_p, exact = Signal.like(slope_q, name=f"{name}_slope"), Signal(len(total) + 2, name=f"{name}_exact")
    half = 1 << table.rest - 1
    with m.If(enable):
        m.d.sync += [slope_p.eq(slope_q), exact.eq(product + (base_p << table.rest) + half)]
    claim.assume(f"{name}_product", product <= (slope_p << table.rest) - slope_p)
    for stage, a, b in (("q", base_q, slope_q), ("p", base_p, slope_p)):
        claim.lemma(f"{name}_{stage}", ((b >= least) & (a + b <= most)) | ((a == 0) & (b == 0)))
    claim.check(f"{name}_exact", total == exact)
    claim.lemma(f"{name}_bounded", exact <= (most << table.rest) - least + half)
    claim.check(f"{name}_at_most", inside.wire(f"{name}.y") <= most)
    return most


def _second_pass(claim, inside, component):
    """From logarithms, as the first pass made them, to the gradient and the loss."""
    m = claim.m
    step = inside.find("step", wires=True)[1]
    t, log_sum = (memory.seen[0] for memory in inside.kept)
    t, log_sum = t[: 9 + _FRAC], log_sum[: 10 + _FRAC]
    # Queues give what they were given.
    claim.assume("logs_as_put", _up_to(t, _LOGARITHM))
    claim.assume("sums_as_put", _up_to(log_sum, _log_sum(component.max_length)))
    least, most = _least(component.max_length), most_loss(component.max_length)
    v1, v, v2, loss5, p5 = inside["v1"], inside.wire("v"), inside["v2"], inside["loss5"], inside["p5"]

    def register(value, name):
        """What ``value`` was at the last step, as wide as it is."""
        kept = Signal(Value.cast(value).shape(), name=f"{name}_wide")
        with m.If(step):
            m.d.sync += kept.eq(value)
        return kept

    claim.check("difference_exact", v1 == register(t.as_signed() - log_sum.as_signed(), "v1"))
    claim.lemma("difference_bounded", v1 >= -(_LOGARITHM + _log_sum(component.max_length)))
    claim.check("shifted_exact", v2 == register(v.as_signed() >> 3, "v2"))
    claim.lemma("shifted_bounded", (v2 <= 0) & (v2 >= -least))

    # The loss.
    product3, product4 = inside["product3"], inside["product4"]
    claim.assume("loss_product", (product3 >= 0) & (product3 <= least * _LN2))
    claim.lemma("loss_product_later", (product4 >= 0) & (product4 <= least * _LN2))
    claim.check("loss_exact", loss5 == register(round_shift_hdl(product4, 18), "loss5"))
    claim.lemma("loss_5_bounded", loss5 <= most)
    claim.lemma("loss_held_bounded", inside["held"] <= most)
    claim.check("loss_bounded", component.o_loss.p.loss <= most)

    # The gradient: a probability is at most 1, as only the logarithm 0 is not shifted, and its power is 1.
    _interpolated(claim, inside, "power_late", _EXP2, step)
    x = [v[:_FRAC]]
    for n in range(1, 4):
        x.append(register(x[-1], f"x{n}"))
    claim.assume("nothing_times_slope", (x[2] != 0) | (inside["power_late.product"] == 0))
    claim.lemma("nothing_1", (x[1] != 0) | (Cat(inside["power_late.base_q"], inside["power_late.rest_q"]) == 0))
    claim.lemma("nothing_2", (x[2] != 0) | (inside["power_late.base_p"] == 0))
    claim.lemma("nothing_3", (x[3] != 0) | (inside.wire("power_late.y") == 0))
    for n in range(1, 4):
        claim.lemma(f"unshifted_{n}", inside[f"shift{n + 1}"].any() | (x[n] == 0))
    claim.lemma("at_most_1", p5 <= 1 << _FRAC)
    wide = register(round_shift_hdl(Cat(p5, Const(0, 1)).as_signed(), 4) - (inside["late5"][1] << 16), "d")
    d = component.o.p.d
    claim.check("gradient_exact", d == wide)
    claim.check("gradient_bounded", _up_to(d, 1 << 16))
    claim.cover("gradient_of_minus_1", component.o.valid & (Value.cast(d).as_signed() == -(1 << 16)))
    claim.cover("greatest_gradient", component.o.valid & (Value.cast(d).as_signed() == 1 << 16))
    claim.cover("loss", component.o_loss.valid & (component.o_loss.p.loss > 1 << 23))


def losses(unit=Head, *, config):
    """Losses of all samples since a command of ``first``, and how many of them were right, as long as the greatest
    loss there may be, once for each, fits the sum. Softmax is cut: it may give a loss in any cycle but in which a
    command starts, and none greater than :func:`softmax` says."""
    claim = Claim()
    m = claim.m
    head = unit(
        rows=config.rows,
        rank=config.rank,
        max_taps=config.taps,
        max_classes=config.classes,
        activation=config.activation,
    )
    inside = claim.place(head, memories=lambda memory: "any")
    claim.drive(head)
    comes, told = inside["softmax.o_loss__valid"], inside["softmax.o_loss__payload"]
    start, most = inside.wire("start"), most_loss(config.classes)
    begins = start & data.View(HeadOperands, inside["args"]).first
    claim.assume("not_at_the_start", ~(comes & start))
    claim.assume("loss_bounded", told[:25] <= most)
    # What a command of ``last`` tells.
    (word,) = (each for each in inside.find("w_data", wires=True) if len(each) == 48 + 32 + 32)
    loss, samples, correct = word[:48], word[48:80], word[80:]
    limit = 1 << len(loss)
    exact, bound = (Signal(len(loss) + 2, name=name) for name in ("exact", "bound"))
    with m.If(begins):
        m.d.sync += [exact.eq(0), bound.eq(0)]
    with m.Elif(comes):
        m.d.sync += exact.eq(exact + told[:25])
        with m.If(bound < limit):
            m.d.sync += bound.eq(bound + most)
    claim.check("loss_exact", (bound >= limit) | (loss == exact))
    claim.lemma("loss_bounded_by_terms", (bound >= limit) | (exact <= bound))
    claim.cover("adds_up", (bound < limit) & (exact > 1 << 25))
    for name, value, counts in (("samples", samples, 1), ("correct", correct, told[25])):
        count = Signal(33, name=f"{name}_count")
        with m.If(begins):
            m.d.sync += count.eq(0)
        with m.Elif(comes & ~count[-1]):
            m.d.sync += count.eq(count + counts)
        claim.check(f"{name}_exact", count[-1] | (value == count))
    return claim
