"""Counters of cycles: of phases, each since all were cleared; of a watchdog, since anything moved."""

from amaranth.hdl import Mux, Signal

from gradloom.rtl.shell.counters import Counters
from gradloom.rtl.shell.sequencer.watch import Watch
from gradloom.sim.proofs.claim import Claim

__all__ = ["phase_counters", "watchdog"]


def phase_counters(unit=Counters):
    """One counter, any one, is followed: it tells how many cycles there were, and stays at its end."""
    claim = Claim()
    m = claim.m
    counters = unit(12)
    inside = claim.place(counters, memories=lambda memory: "one")
    claim.drive(counters)
    claim.assume("a_phase_of_the_machine", counters.phase < 12)
    (memory,) = inside.kept
    most = 1 << 32
    exact = Signal(33, name="exact")
    with m.If(inside["counting"] & (inside["phase"] == memory.place) & (exact != most)):
        m.d.sync += exact.eq(exact + 1)
    # A clear comes before what is counted in its cycle, which was before it.
    with m.If(counters.clear):
        m.d.sync += exact.eq(0)
    used = inside["used"].bit_select(memory.place, 1)
    asked = counters.raddr[2:6] == memory.place
    claim.check("told", ~asked | (counters.value["PHASE_CYCLES0"].value == Mux(exact == most, most - 1, exact)))
    claim.lemma("at_most", exact <= most)
    claim.lemma("counts_for_a_phase_of_the_machine", inside["phase"] < 12)
    claim.lemma("known_is_used", inside["known"] == inside["used"].bit_select(inside["phase"], 1))
    claim.lemma("unused_is_none", used | (exact == 0))
    claim.lemma("beyond", ~used | (memory.word[32] == (exact == most)))
    claim.lemma("kept", ~used | memory.word[32] | (memory.word[:32] == exact[:32]))
    claim.cover("counts", asked & (exact == 3))
    return claim


def watchdog(unit=Watch, *, deadlock=8):
    """The watchdog expires in the cycle after so many without movement, and at no other time; a deadlock is found after
    ``deadlock`` cycles in which nothing can go on."""
    claim = Claim()
    m = claim.m
    watch = unit()
    inside = claim.place(watch)
    claim.drive(watch, without=("watchdog",))
    most = claim.fixed(32, "most")
    m.d.comb += watch.watchdog.eq(most)
    # Cycles since the last movement; a rewind is one in the cycle before. None at first.
    since, begun = Signal(34, name="since"), Signal(name="begun")
    m.d.sync += [
        since.eq(Mux(watch.moved, 1, Mux(watch.rewind, 2, since + ~since.all()))),
        begun.eq(begun | watch.moved | watch.rewind),
    ]
    claim.check("expires_in_time", watch.expired == (begun & (most != 0) & (since == most + 1)))
    stuck = Signal(range(deadlock + 1), name="stuck_for")
    m.d.sync += stuck.eq(Mux(watch.stuck & (stuck != deadlock), stuck + 1, 0))
    claim.check("locked_in_time", watch.locked == (stuck == deadlock))
    clock, runs, moving = inside["clock"], inside["runs"], inside["moving"]
    claim.lemma("moves", moving == (begun & (since == 1)))
    claim.lemma("runs", runs == (clock != 0))
    claim.lemma("ends", inside["ends"] == (clock == 1))
    claim.lemma("counts", ~begun | moving | (clock == Mux(since > most + 1, 0, (most + 2 - since)[:32])))
    claim.lemma("begins", begun | ~runs)
    claim.lemma("looks", inside["quiet"] == stuck)
    claim.cover("expires", watch.expired & (most == 3))
    claim.cover("just_in_time", moving & claim.past(since == most, "last") & (most == 3))
    return claim
