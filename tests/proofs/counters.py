"""Counters of phases: each tells how many cycles there were since all were cleared, and stays at its end."""
from amaranth.hdl import Mux, Signal
from claim import Claim

from gradloom.rtl.control.counters import Counters

__all__ = ["phase_counters"]


def phase_counters(unit=Counters):
    """One counter, any one, is followed."""
    claim = Claim()
    m = claim.m
    counters = unit()
    inside = claim.place(counters, memories=lambda memory: "one")
    claim.drive(counters)
    memory, = inside.kept
    most = 1 << 32
    exact = Signal(33, name="exact")
    with m.If(inside["counting"] & (inside["phase"] == memory.place) & (exact != most)):
        m.d.sync += exact.eq(exact + 1)
    # A clear comes before what is counted in its cycle, which was before it.
    with m.If(counters.clear):
        m.d.sync += exact.eq(0)
    used = inside["used"].bit_select(memory.place, 1)
    asked = counters.raddr[2:5] == memory.place
    claim.check("told", ~asked | (counters.value["PHASE_CYCLES0"].value == Mux(exact == most, most - 1, exact)))
    claim.lemma("at_most", exact <= most)
    claim.lemma("unused_is_none", used | (exact == 0))
    claim.lemma("beyond", ~used | (memory.word[32] == (exact == most)))
    claim.lemma("kept", ~used | memory.word[32] | (memory.word[:32] == exact[:32]))
    claim.cover("counts", asked & (exact == 3))
    return claim
