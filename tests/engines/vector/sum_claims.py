"""Sums of the vector engine: over rows, of products and of powers; over tokens, of losses."""

from types import SimpleNamespace

import numpy as np
from amaranth.hdl import Cat, Mux, Signal, signed
from amaranth.lib import data

from gradloom.rtl.engines.vector.actions import NORMS, POWERS, PULLS, SUMS, TAG, TWO
from gradloom.rtl.engines.vector.engine import VectorEngine
from gradloom.rtl.engines.vector.lane import Lane
from gradloom.rtl.engines.vector.rows.maxima import Maxima
from gradloom.rtl.engines.vector.rows.roots import RowSums
from gradloom.rtl.formats.vector import (
    ELEMENTS,
    EXP2,
    EXPONENT,
    EXPONENT_FRAC,
    FALL,
    FINE,
    POWER_FRAC,
    PROBABILITY_FRAC,
    PULLED,
    ROW_SUM,
    SUM,
    TERM,
    LossWord,
    VectorOpcode,
    VectorOperands,
)
from gradloom.sim.proofs.claim import Claim

from ...proofs.exact import chain, within, within_bits

__all__ = ["losses", "row_sums", "rows_in_order", "units"]

#: Bits of the largest product of a term and an operand, and of the largest power, 2.
_PRODUCT, _POWER = 2 * (TERM.width - 1), PROBABILITY_FRAC + FINE + 1


class _Row:
    """What is known of a row that is watched: whether it has ``begun`` and is in a ``part`` that has not ended; whether
    the last beat of all was its own, or only the last ``but_one``; how many it had, its ``count``."""

    _BITS = {"begun": 1, "part": 1, "last": 1, "but_one": 1, "count": ELEMENTS + 1}

    def __init__(self, **values):
        self.__dict__.update(values)

    @classmethod
    def kept(cls, m, name, beat, forgotten):
        """As registers, which follow the ``beat`` of this cycle, and what they would be of rows before."""
        row = cls(**{field: Signal(bits, name=f"{name}_{field}") for field, bits in cls._BITS.items()})
        before = cls(**{field: Mux(forgotten, 0, value) for field, value in vars(row).items()})
        m.d.sync += [value.eq(after) for value, after in zip(vars(row).values(), vars(before.after(beat)).values())]
        return row, before

    def after(self, beat):
        """With a beat more, if there is one: ``valid``, ``mine``, of the row, ``fresh``, its first, ``last`` of a
        part."""
        return _Row(
            begun=self.begun | beat.mine,
            part=Mux(beat.mine, ~beat.last, self.part),
            last=Mux(beat.valid, beat.mine, self.last),
            but_one=Mux(beat.valid, self.last & ~beat.mine, self.but_one),
            count=Mux(beat.mine, Mux(beat.fresh, 1, self.count + 1)[: ELEMENTS + 1], self.count),
        )

    def same(self, other):
        return Cat(a == b for a, b in zip(vars(self).values(), vars(other).values())).all()


def _in_order(claim, say, beat, place, *, most, settled):
    """How the beats of rows come to :class:`RowSums`: what it asks for, and the engine keeps to.

    ``beat``: what comes, its ``valid`` that of a beat that is summed; ``place``: whose row is watched. ``most``: how
    many beats it may have. ``settled``: cycles after which a beat's sum is in memory.
    """
    m = claim.m
    modes = Cat(beat.power, beat.single, beat.two)
    changed, mine, fresh = Signal(name="changed"), Signal(name="mine"), Signal(name="fresh")
    m.d.comb += [
        changed.eq((modes != claim.past(modes, "modes")) & ~claim.first),
        mine.eq(beat.valid & (Cat(beat.along, beat.token) == place)),
        fresh.eq(beat.first & beat.start),
    ]
    # Cycles since the last beat, and since the last of this row.
    quiet, since = Signal(range(settled + 1), name="quiet", init=settled), Signal(2, name="since")
    m.d.sync += [
        quiet.eq(Mux(beat.valid, 1, Mux(quiet == settled, quiet, quiet + 1))),
        since.eq(Mux(mine, 1, Mux(since == 3, since, since + 1))),
    ]
    step = SimpleNamespace(valid=beat.valid, mine=mine, fresh=fresh, last=beat.last)
    row, before = _Row.kept(m, "row", step, changed)
    follows = Mux(beat.two, before.but_one, before.last)
    say("modes_stay", ~changed | (quiet == settled))
    say("asked_when_settled", ~beat.ask | (~beat.valid & (quiet == settled)))
    say("powers_alone", ~(beat.power & beat.two))
    say("part_goes_on", ~mine | beat.first | (before.part & follows))
    say(
        "row_goes_on",
        ~mine | ~beat.first | beat.start | (before.begun & ~before.part & Mux(beat.single, follows, since == 3)),
    )
    say("no_longer_row", ~mine | (before.after(step).count <= most))
    return SimpleNamespace(**vars(step), row=row, changed=changed, quiet=quiet, since=since)


def row_sums(unit=RowSums, *, lanes, tokens):
    """The sum of a row is exact when it is asked for: of 4,096 products of a term and an operand, which is the longest
    row of a softmax's gradient, or of 2**17 powers up to 2, each sum of which was shifted right as the unit rose.

    In the engine (:func:`rows_in_order`) rows come as is assumed here. A row's first beat leaves nothing of what was
    there before, by the greatest shift, and no power is above its unit (:func:`units`); the table gives at most 2. That
    products are within bounds is arithmetic.
    """
    assert EXP2(np.arange(1 << EXPONENT_FRAC)).max() <= 1 << POWER_FRAC
    claim = Claim()
    m = claim.m
    sums = unit(lanes=lanes, tokens=tokens)
    inside = claim.place(sums, memories=lambda memory: "one")
    claim.drive(sums)
    (memory,) = inside.kept
    late, side, power = sums.fall_latency(lanes), (lanes - 1).bit_length(), sums.power
    beat = SimpleNamespace(
        **{name: sums.tag[name] for name in ("valid", "along", "first", "last", "start", "token")},
        power=power,
        single=sums.single,
        two=sums.two,
        ask=sums.ask,
    )
    most = Mux(power, 1 << ELEMENTS - side, 1 << PULLED - side)
    order = _in_order(claim, claim.assume, beat, memory.place, most=most, settled=sums.latency(lanes))
    for n, product in enumerate(sums.products):
        claim.assume(f"product_{n}", ~beat.valid | within_bits(product, _PRODUCT))
        claim.assume(f"power_{n}", ~beat.valid | ~power | ((product >= 0) & (product <= 1 << _POWER)))

    # Once more where its sum is taken: what is known there is what will be, with the beats on their way.
    names = "valid", "mine", "fresh", "last"
    lines = {name: chain(claim, getattr(order, name), late, name) for name in names}
    steps = [SimpleNamespace(**{name: line[n] for name, line in lines.items()}) for n in range(1, late + 1)]
    now = steps[-1]
    row, _ = _Row.kept(m, "summed", now, order.changed)
    known = row
    for step in reversed(steps):
        known = known.after(step)
    claim.lemma("all_are_on_their_way", order.row.same(known))
    claim.assume("nothing_is_left", ~power | ~now.mine | ~now.fresh | (sums.fall == 15))

    level = list(sums.products)
    while len(level) > 1:
        level = [a + b for a, b in zip(level[::2], level[1::2])]
    term = chain(claim, level[0], late, "term")[-1].as_signed()
    exact, exact_powers = Signal(signed(SUM + 2), name="exact"), Signal(ROW_SUM + 2, name="exact_powers")
    stored, ended = Signal(name="stored"), claim.past(now.mine & now.last, "ended")
    with m.If(order.changed):
        m.d.sync += [exact.eq(0), exact_powers.eq(0), stored.eq(0)]
    with m.Elif(now.mine):
        m.d.sync += [
            exact.eq(Mux(now.fresh, 0, exact) + term),
            stored.eq(0),
            exact_powers.eq(
                Mux(now.fresh | (sums.fall >= FALL), 0, exact_powers >> (sums.fall << 2)) + term[: ROW_SUM + 2]
            ),
        ]
    with m.Elif(ended):
        m.d.sync += stored.eq(1)

    stays = ~order.changed
    claim.lemma("bounded", power | ~stays | within(exact, row.count, _PRODUCT + side))
    claim.lemma("powers_bounded", ~power | ~stays | (exact_powers <= row.count << _POWER + side))
    claim.lemma("counted", ~stays | (row.count <= most))
    claim.lemma("goes_to_memory", ~stays | ~row.begun | row.part | stored | ended)
    wanted = Mux(power, exact_powers, exact)
    total, other, powers = (inside[name] for name in ("total", "other", "powers"))
    claim.lemma("total_exact", ~(row.last & stays) | (Mux(power, powers, total) == wanted))
    claim.lemma("other_exact", ~(row.but_one & stays & ~power) | (other == exact))
    claim.lemma("word_exact", ~(stored & stays) | (memory.word.as_signed() == wanted))
    asked = claim.past(beat.ask & (sums.address == memory.place) & order.row.begun & ~order.row.part & stays, "asked")
    claim.check("told_exact", ~asked | (sums.sum == claim.past(wanted, "wanted").as_signed()))
    claim.cover("products", asked & ~power & (sums.sum < 0) & (row.count > 2))
    claim.cover("powers", asked & power & (sums.sum > 0) & (row.count > 2))
    return claim


def rows_in_order(unit=VectorEngine, *, lanes, tokens, **sizes):
    """The engine's beats come to :class:`RowSums` as :func:`row_sums` assumes, of each command that it does not refuse,
    and none of them twice: those of a token have rising indices, so that it meets its target in one at most.

    What follows a beat to the sums is a line of registers, as long for all that is said of it.
    """
    claim = Claim()
    m = claim.m
    engine = unit(lanes=lanes, tokens=tokens, **sizes)
    inside = claim.place(engine, memories=lambda memory: None if any(memory.init) else "any")
    claim.drive(engine)
    side = (lanes - 1).bit_length()
    args, op = data.View(VectorOperands, inside["args"]), inside.wire("op")
    # The units' tags come later, and so do sizes of what arrives.
    tag = data.View(TAG, inside.find("tag", wires=True)[0])
    place = claim.fixed(1 + (tokens - 1).bit_length(), "place")
    along, token = place[0], place[1:]
    running, begin, busy, phase, rest = (inside[name] for name in ("running", "begin", "walk.busy", "phase", "rest"))
    at_token, at, tile, base, weight = (inside[f"walk.{name}"] for name in ("token", "at", "tile", "base", "weight"))
    two, single, power = inside["two"], inside["single"], inside["sharp"]
    beat = SimpleNamespace(
        valid=tag.valid & tag.sums,
        along=phase,
        token=at_token[: len(token)],
        first=tag.first,
        last=tag.last,
        start=tag.opening,
        power=power,
        single=single,
        two=two,
        ask=inside["asking"],
    )
    most = Mux(power, 1 << ELEMENTS - side, 1 << PULLED - side)
    # Sums are taken of what was multiplied.
    settled = Lane.latency - 4 + RowSums.latency(lanes)
    order = _in_order(claim, claim.check, beat, place, most=most, settled=settled)
    row, quiet = order.row, order.quiet

    # What a command is, and what was judged of it.
    steps = [inside[name] for name in ("idle", "measuring", "judging", "begin", "running")]
    claim.lemma("one_step", sum(steps) <= 1)
    known, judged = Cat(steps[2:]).any(), begin | running
    is_sums = inside["is_sums"]
    for name, value in (
        ("is_sums", _one_of(op, SUMS)),
        ("sharp", op == VectorOpcode.SOFTMAX_SUMS),
        ("two", _one_of(op, TWO)),
        ("single", args.tokens == 1),
    ):
        claim.lemma(f"{name}_is_known", ~known | (inside[name] == value))
    sizes = {name: inside.find(name)[0] for name in ("row", "tokens", "tiles")}
    of_rows = _one_of(op, NORMS + POWERS + PULLS)
    for name, size in sizes.items():
        claim.lemma(f"{name}_are_known", ~judged | ~of_rows | (size == (args[name] - 1)[: len(size)]))
    claim.lemma(
        "rows_are_judged",
        ~judged
        | ~of_rows
        | (
            (args.row >= 2)
            & (args.tiles != 0)
            & (args.tokens != 0)
            & (args.tokens <= tokens)
            & (inside["beats"] <= Mux(_one_of(op, POWERS), 1 << ELEMENTS - side, 1 << PULLED - side))
        ),
    )

    # Where the walk is.
    later = tile != 0
    claim.lemma("walks_while_it_runs", ~busy | running)
    claim.lemma("one_phase", ~phase | (two & busy))
    claim.lemma(
        "within_sizes", ~busy | ((at <= sizes["row"]) & (at_token <= sizes["tokens"]) & (tile <= sizes["tiles"]))
    )
    claim.lemma("weight_is_counted", ~busy | ~of_rows | ((weight == base + at) & (later | (base == 0))))
    # Of tiles * row beats, of which fewer than `tiles` rows are gone, a row is left: by arithmetic, not looked into.
    left = Signal.like(inside["beats"], name="left")
    with m.If(begin):
        m.d.sync += left.eq(inside["beats"])
    with m.Elif(inside.wire("go") & (phase | ~two) & tag.last & (at_token == sizes["tokens"])):
        m.d.sync += left.eq(left - args.row)
    claim.assume("a_row_is_left", ~busy | (left >= args.row))
    claim.lemma("left_is_counted", ~busy | ~of_rows | (base + left == inside["beats"]))

    # What the rules know of the row, by that.
    here, passed = at_token == token, at_token > token
    counted = at + (phase & ~along)
    busy_row = busy & is_sums & (along <= two) & (token <= sizes["tokens"])
    seen = later | passed | (here & (counted != 0))
    claim.lemma(
        "count_is_known",
        ~busy_row
        | ~seen
        | (
            row.begun
            & (row.count == base + Mux(passed, args.row, Mux(here, counted, 0)))
            & (row.part == (here & (counted != 0) & (counted != args.row)))
        ),
    )
    goes_on = here & ((at != 0) | (single & later))
    claim.lemma(
        "last_is_known",
        ~busy_row | Mux(two & (along == phase), ~goes_on | row.but_one, (~goes_on & ~(two & here & phase)) | row.last),
    )
    since = order.since
    claim.lemma("others_came_since", ~busy_row | here | ~seen | (since == 3) | (since > at))
    claim.lemma("others_came_between", ~busy_row | ~here | (counted != 0) | ~later | single | (since == 3))

    # When it is quiet.
    resting, asked, asking = engine.settling, inside["asked"], inside["asking"]
    claim.lemma("quiet_between", (running & is_sums) | (quiet == settled))
    claim.lemma(
        "quiet_in_the_end", ~(running & ~busy & ~asking & ~asked) | (quiet == settled) | (quiet + rest > resting)
    )
    claim.lemma("asks_in_the_end", ~(asking | (asked & running)) | (running & ~busy & is_sums & (quiet == settled)))
    claim.lemma("counts_so_far", (rest <= resting) & (quiet <= settled))

    # Of any command that takes rows.
    mine = tag.valid & (beat.token == token)
    index = Signal(len(weight) + 1, name="index")
    with m.If(begin):
        m.d.sync += index.eq(0)
    with m.Elif(mine & ~(two & ~phase)):
        m.d.sync += index.eq(weight + 1)
    claim.check("indices_rise", ~mine | ~of_rows | (weight >= index))
    claim.lemma("index_is_known", ~busy | ~of_rows | (index <= base + Mux(passed, args.row, Mux(here, at, 0))))
    claim.cover("both_sums", beat.valid & order.mine & (row.count > 4) & later & two)
    claim.cover("asks", asking & power)
    return claim


def units(unit=Maxima, *, lanes, tokens):
    """The unit of a sum of powers is above each power that is added, and a row's first beat shifts all that was there
    before out of it: its first element counts, and no argument is below -4096 (``LEAST_GATE``)."""
    claim = Claim()
    maxima = unit(lanes=lanes, tokens=tokens)
    claim.place(maxima, memories=lambda memory: "any")
    claim.drive(maxima, without=("active", "single"))
    claim.m.d.comb += [
        port.eq(claim.fixed(1, name)) for name, port in (("active", maxima.active), ("single", maxima.single))
    ]
    tag = maxima.tag
    fresh = tag.first & tag.start
    claim.assume("counts", ~tag.valid | ~fresh | (maxima.wholes[0] >= -(1 << EXPONENT - EXPONENT_FRAC - 1)))
    claim.assume("not_asked", ~maxima.ask)
    came, begins = (chain(claim, value, 6, name)[-1] for name, value in (("valid", tag.valid), ("fresh", fresh)))
    claim.check("nothing_is_left", ~came | ~begins | (maxima.fall == 15))
    for n, whole in enumerate(maxima.wholes):
        before = chain(claim, whole, 6, f"whole_{n}")[-1].as_signed()
        claim.check(f"none_is_above_{n}", ~came | ~maxima.active | (maxima.top - before >= 2))
    claim.cover("stays", came & ~begins & (maxima.fall == 0))
    return claim


def losses(unit=VectorEngine, *, lanes, tokens, **sizes):
    """The loss that is told is the exact sum over the tokens that met their target, and they are counted, however far
    the targets are from where their rows lie.

    As many as there are tokens do, since none meets it twice: :func:`rows_in_order`; targets stay during a command.
    """
    claim = Claim()
    m = claim.m
    engine = unit(lanes=lanes, tokens=tokens, **sizes)
    inside = claim.place(engine, memories=lambda memory: None if any(memory.init) else "any")
    claim.drive(engine)
    hit, begin, told = inside["hit"], inside["begin"], inside.wire("telling")
    shape = inside.wire("lane_0.exponent").shape()
    exponents = [inside.wire(f"lane_{n}.exponent") for n in range(lanes)]
    came = claim.past(hit, "hit")
    term = claim.past(sum(Mux(came[n] & (each < 0), -each, 0) for n, each in enumerate(exponents)), "term")
    exact, count = Signal(shape.width + tokens.bit_length() + 2, name="exact"), Signal(range(2 * tokens), name="count")
    met = claim.past(came.any(), "met")
    with m.If(begin):
        m.d.sync += [exact.eq(0), count.eq(0)]
    with m.Elif(met):
        m.d.sync += [exact.eq(exact + term), count.eq(count + 1)]
    claim.assume("once_a_token", ~met | begin | (count < tokens))
    claim.lemma("counted", (inside["hits"] == Cat(came.any(), met)) & (count <= tokens))
    claim.lemma("one_at_a_time", (hit & (hit - 1)[:lanes]) == 0)
    claim.lemma("bounded", exact <= count << shape.width - 1)
    # After those of the walks.
    claim.lemma("told_of_is_exact", (inside["loss"] == exact) & (inside.find("tokens")[-1] == count))
    report = data.View(LossWord, engine.q.p[: LossWord.size])
    claim.check("told_exact", ~told | ((report.loss == exact[EXPONENT_FRAC - 16 :]) & (report.tokens == count)))
    claim.cover("told", told & (count > 1) & (report.loss > 0))
    return claim


def _one_of(op, opcodes):
    return Cat(op == each for each in opcodes).any()
