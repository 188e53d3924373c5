"""The program's fetch: within the program, in order, and never more than its buffer holds."""

from amaranth.hdl import Cat, Mux, Signal
from amaranth.utils import exact_log2

from gradloom.rtl.shell.bus.axi import BURST_BEATS
from gradloom.rtl.shell.bus.window import burst_beats
from gradloom.rtl.shell.sequencer.fetch import Fetch
from gradloom.rtl.shell.signature import COMMAND_BYTES
from gradloom.sim.proofs.claim import Claim

__all__ = ["fetch_window"]


def fetch_window(unit=Fetch, *, data_bits):
    """What LOAD's claims assume of the fetch: bursts on a beat, not across a multiple of 16 beats, within a window that
    holds the program; and each beat of the program is asked for once, in order, while there is room."""
    claim = Claim()
    m = claim.m
    fetch = unit(data_bits=data_bits)
    inside = claim.place(fetch, memories=lambda memory: "any")
    claim.drive(fetch)
    shift, depth = exact_log2(data_bits // 8), 2 * BURST_BEATS
    parts = COMMAND_BYTES * 8 // data_bits

    # The sequencer's claim holds it to that: a program runs that was shown for two cycles, and lies within the window.
    size, within = Signal(32, name="window"), Signal(name="within")
    given = {name: getattr(fetch, name) for name in ("offset", "commands")}
    same = claim.past(fetch.fresh, "fresh")
    for name, value in given.items():
        same = same & (value == claim.past(value, name))
    with m.If(fetch.fresh):
        end = fetch.offset + fetch.commands * COMMAND_BYTES
        m.d.sync += [
            size.eq(window := claim.free(32, "size")),
            within.eq(same & (fetch.offset[: exact_log2(COMMAND_BYTES)] == 0) & (end <= window)),
        ]
    claim.assume("runs_what_is_within", ~fetch.run | within)

    ask, beat = fetch.o_fetch, fetch.i_fetch
    asks, offset, beats = ask.valid, ask.p.offset, ask.p.beats
    claim.holds("ask", ask, unless=fetch.fresh)
    claim.check("aligned", ~asks | (offset[:shift] == 0))
    claim.check("something", ~asks | (beats != 0))
    claim.check("within_a_burst", ~asks | (offset[shift : shift + 4] + beats <= BURST_BEATS))
    claim.check("within_the_window", ~asks | (offset + (beats << shift) <= size))

    # In order, to the end: where the next burst begins, and how many beats are still to be asked for.
    place, rest = Signal(32, name="place"), Signal(26, name="rest")
    taken = asks & ask.ready
    with m.If(fetch.fresh):
        m.d.sync += [place.eq(fetch.offset), rest.eq(fetch.commands * parts)]
    with m.Elif(taken):
        m.d.sync += [place.eq(place + (beats << shift)), rest.eq(rest - beats)]
    claim.check("where_the_last_ended", ~asks | (offset == place))
    claim.check("no_further_than_the_program", ~asks | (beats <= rest))

    # Room: what was asked for comes to a queue that nothing holds back.
    flying, level, popped = Signal(8, name="flying"), Signal(8, name="level"), fetch.o.valid & fetch.o.ready
    m.d.sync += flying.eq(Mux(fetch.fresh, 0, flying + Mux(taken, beats, 0) - (beat.valid & beat.ready)))
    m.d.sync += level.eq(Mux(fetch.fresh, 0, level + (beat.valid & beat.ready) - popped))
    claim.assume("what_comes_was_asked_for", ~beat.valid | (flying != 0))
    claim.check("takes_what_comes", beat.ready)
    claim.check("has_room", ~beat.valid | (level < depth))
    claim.check("has_room_for_what_it_asks", ~asks | (level + flying + beats <= depth))
    claim.lemma("levels", level == inside["fetched.level"])
    shown = Signal(32, name="shown")
    with m.If(popped):
        m.d.sync += shown.eq(shown + data_bits // 8)
    with m.If(fetch.fresh):
        m.d.sync += shown.eq(fetch.offset)
    claim.check("tells_where_a_beat_is_from", claim.first | (fetch.o_offset == shown))
    claim.cover("last_burst", taken & (beats == rest) & (beats < BURST_BEATS))
    claim.cover("full", level == depth)

    # How its registers belong together.
    next_offset, left, wanted = inside["next_offset"], inside["left"], inside["wanted"]
    fresh_then = claim.past(fetch.fresh, "was_fresh")
    now = (*burst_beats(next_offset, left, data_bits=data_bits), left != 0)
    measured = Cat(register == value for register, value in zip(inside.find("$signal"), now, strict=True)).all()
    settled = ~wanted & within
    claim.lemma("measured", ~settled | measured)
    claim.lemma("wanted_was_measured", ~wanted | within)
    claim.lemma("no_ask_when_fresh", ~fresh_then | ~wanted)
    claim.lemma("next", ~within | (left == 0) | (next_offset == Mux(wanted, place + (beats << shift), place)[:32]))
    claim.lemma("left", ~within | (left == Mux(wanted, rest - beats, rest)[:26]))
    claim.lemma("rest", ~within | ((place + (rest << shift)) <= size) & (place[:shift] == 0))
    claim.lemma("no_more_than_rest", ~wanted | (beats <= rest))
    room = inside["credit"] + level + flying + Mux(wanted, beats, 0)
    claim.lemma("credit", ~within | (room <= depth))
    claim.lemma("nothing_flies", within | (flying == 0))
    return claim
