"""The forward cache: a slot is valid if and only if it was marked since all were cleared."""
from amaranth.hdl import Array, Const, Mux, Signal
from claim import Claim

from gradloom.rtl.control.valid import ValidBits

__all__ = ["valid_bits"]


def valid_bits(unit=ValidBits, *, slots):
    """One slot, any one, is followed: its bit is set by a range it lies in, and by nothing else, is cleared with all
    others, and is what a look at this slot alone tells."""
    claim = Claim()
    m = claim.m
    bits = unit(slots=slots)
    inside = claim.place(bits, memories=lambda memory: "one")
    claim.drive(bits)
    memory, = inside.kept
    low_bit = claim.fixed(5, "bit")
    place = memory.place
    claim.assume("a_slot", place < slots // 32)
    bit = Array(memory.word[n] for n in range(32))[low_bit]
    # The range that was asked for; who asks may be stopped, and ask for another before this one is done.
    slot_asked, count_asked, mark = (Signal.like(getattr(bits, name), name=f"{name}_asked")
                                     for name in ("slot", "count", "mark"))
    with m.If(inside.state("IDLE")):
        m.d.sync += [slot_asked.eq(bits.slot), count_asked.eq(bits.count), mark.eq(bits.mark)]
    held = (bits.slot == slot_asked) & (bits.count == count_asked)
    claim.assume("held_as_long_as_read", ~inside.state("END", "BOUND", "MASK") | held)

    # An empty range may begin behind the last slot.
    begin, slot = slot_asked[5:5 + len(place)], Signal(32, name="followed")
    end = Signal(33, name="range_end")
    m.d.comb += [slot.eq(low_bit | place << 5), end.eq(slot_asked + count_asked)]
    mine = (slot >= slot_asked) & (slot < end) & (end <= slots)
    cleared = inside.state("CLEAR") & (inside["address"] == inside["stop"])
    marked = Signal(name="marked")
    with m.If(bits.done & mark & mine):
        m.d.sync += marked.eq(1)
    with m.If(cleared):
        m.d.sync += marked.eq(0)

    # A bit that is there to be read is what it should be.
    claim.check("valid_if_marked", ~inside.state("IDLE") | (bit == marked))
    claim.check("outside_is_told", ~bits.done | (bits.outside == (end > slots)))
    alone = bits.done & ~mark & (count_asked == 1) & (slot_asked == slot) & ~bits.outside & claim.past(held, "held")
    claim.check("told_if_alone", ~alone | ((bits.complete == marked) & (bits.hits == marked)))
    claim.cover("found", alone & bits.complete)
    claim.cover("not_found_behind_another_mark", alone & ~bits.complete & memory.word.any())

    # On the way: which words of a range were read, and which are written.
    claim.lemma("states", inside.state())
    claim.lemma("marks_as_asked", inside.state("IDLE", "CLEAR") | (inside["marking"] == mark))
    scan, wait = inside.state("SCAN"), inside.state("WAIT")
    claim.lemma("not_outside", ~(scan | wait) | ~bits.outside)
    address, stop, nothing = inside["address"], inside["stop"], inside["nothing"]
    read, masked, back, back1 = (inside[name] for name in ("read", "masked", "back", "back1"))
    seen = Signal(name="seen")
    with m.If(inside.state("MASK")):
        m.d.sync += seen.eq(0)
    with m.If(scan & (address == place)):
        m.d.sync += seen.eq(1)
    under_way = scan | wait | (inside.state("DONE") & ~bits.outside)
    pending = (read & (back == place)) | (masked & (back1 == place))
    claim.lemma("written_as_far", ~under_way | (bit == (marked | (mark & mine & seen & ~pending))))
    claim.lemma("not_written_before", under_way | inside.state("CLEAR") | (bit == marked) | inside.state("DONE"))
    claim.lemma("outside_not_written", ~inside.state("DONE") | ~bits.outside | (bit == marked))
    claim.lemma("end", ~(under_way | inside.state("BOUND", "MASK")) | (inside["end"] == end))
    claim.lemma("nothing", ~(under_way | inside.state("BOUND", "MASK")) | (nothing == (count_asked == 0)))
    bounded = under_way | inside.state("MASK", "DONE")
    claim.lemma("outside", ~bounded | (bits.outside == (end > slots)))
    claim.lemma("final", ~bounded | (inside["final"] == (end - 1)[:len(inside["final"])]))
    claim.lemma("stop", ~under_way | (stop == Mux(nothing, begin, inside["final"][5:])[:len(stop)]))
    all_ = Const((1 << 32) - 1, 32)
    claim.lemma("low", ~under_way | (inside["low"] == (all_ << slot_asked[:5])[:32]))
    claim.lemma("high", ~under_way | (inside["high"] == Mux(nothing, 0, all_ >> ~inside["final"][:5])))
    claim.lemma("first", ~scan | (inside["first"] == (address == begin)))
    claim.lemma("between", ~scan | ((address >= begin) & (address <= stop)))
    claim.lemma("seen_in_scan", ~scan | (seen == ((place >= begin) & (place < address))))
    claim.lemma("seen_behind", ~(under_way & ~scan) | (seen == ((place >= begin) & (place <= stop))))
    claim.lemma("waits_from_0", ~scan | (inside["wait"] == 0))
    claim.lemma("reads", ~read | scan | (wait & (inside["wait"] == 0)))
    claim.lemma("masks", ~masked | scan | (wait & (inside["wait"] <= 1)))
    claim.lemma("counts", ~inside["counted"] | scan | (wait & (inside["wait"] <= 2)))
    claim.lemma("reads_apart", ~(read & masked) | (back != back1))
    claim.lemma("read_is_seen", ~read | (back != place) | seen)
    claim.lemma("masked_is_seen", ~masked | (back1 != place) | seen)
    claim.lemma("to_the_end", ~inside.state("CLEAR") | (stop == slots // 32 - 1))
    claim.lemma("cleared_as_far", ~inside.state("CLEAR") | (bit == (marked & (place >= address))))
    mask = Mux(back == begin, inside["low"], all_) & Mux(back == stop, inside["high"], all_)
    claim.lemma("mask", ~read | (inside["mask"] == mask))
    new = Array(inside["set_"][n] for n in range(32))[low_bit]
    claim.lemma("set", ~masked | (back1 != place) | (new == (marked | mine)))
    return claim
