"""The forward cache: a slot is valid if and only if it was marked since all were cleared."""

from types import SimpleNamespace

from amaranth.hdl import Array, Const, Mux, Signal

from gradloom.rtl.shell.sequencer.valid import ValidBits
from gradloom.sim.proofs.claim import Claim

__all__ = ["valid_bits"]


def valid_bits(unit=ValidBits, *, slots):
    """One slot, any one, is followed: its bit is set by a range it lies in, and by nothing else, is cleared with all
    others, and is what a look at this slot alone tells."""
    claim = Claim()
    m = claim.m
    bits = unit(slots=slots)
    inside = claim.place(bits, memories=lambda memory: "one")
    claim.drive(bits)
    (memory,) = inside.kept
    low_bit = claim.fixed(5, "bit")
    place = memory.place
    claim.assume("a_slot", place < slots // 32)
    bit = Array(memory.word[n] for n in range(32))[low_bit]
    # What was asked for, as whoever asks knows it: by what goes in, ``busy`` and ``done``.
    slot_asked, count_asked, mark = (
        Signal.like(getattr(bits, name), name=f"{name}_asked") for name in ("slot", "count", "mark")
    )
    asked, ranging, clearing = Signal(name="asked"), Signal(name="ranging"), Signal(name="clearing")
    m.d.comb += asked.eq(bits.start & ~bits.busy & ~bits.clear)
    with m.If(asked):
        m.d.sync += [slot_asked.eq(bits.slot), count_asked.eq(bits.count), mark.eq(bits.mark), ranging.eq(1)]
    with m.Elif(bits.done):
        m.d.sync += ranging.eq(0)
    # Who asks may be stopped, and ask for another before this one is done.
    held, kept, age = Signal(name="held"), Signal(name="kept"), Signal(2, name="age")
    m.d.comb += held.eq((bits.slot == slot_asked) & (bits.count == count_asked))
    m.d.sync += [kept.eq(asked | (kept & held)), age.eq(Mux(asked, 3, Mux(age == 0, 0, age - 1)))]
    claim.assume("held_for_3_cycles", (age == 0) | held)

    # An empty range may begin behind the last slot.
    begin, slot = slot_asked[5 : 5 + len(place)], Signal(32, name="followed")
    end = Signal(33, name="range_end")
    m.d.comb += [slot.eq(low_bit | place << 5), end.eq(slot_asked + count_asked)]
    mine = (slot >= slot_asked) & (slot < end) & (end <= slots)
    # The slot is valid from the end of a range that marks it until a clear, which waits for a range under way.
    valid = Signal(name="slot_valid")
    with m.If(bits.done & mark & mine):
        m.d.sync += valid.eq(1)
    m.d.sync += clearing.eq((clearing | bits.clear) & ranging & ~bits.done)
    with m.If((bits.clear & ~ranging) | (bits.done & (clearing | bits.clear))):
        m.d.sync += valid.eq(0)

    claim.check("done_is_of_a_range", ~bits.done | ranging)
    claim.check("outside_is_told", ~bits.done | (bits.outside == (end > slots)))
    alone = bits.done & ~mark & (count_asked == 1) & (slot_asked == slot) & ~bits.outside & kept & held
    claim.check("told_if_alone", ~alone | ((bits.complete == valid) & (bits.hits == valid)))
    claim.cover("found", alone & bits.complete)
    claim.cover("not_found_behind_another_mark", alone & ~bits.complete & memory.word.any())
    # Nothing goes on for ever: a range of all slots, and a clear behind one that has begun.
    words, waits = slots // 32, {}
    for name, busy, most in (("range", ranging, 9 + words), ("clear", bits.busy & ~ranging, 2 * words)):
        waits[name] = Signal(range(4 * words + 16), name=f"{name}_waits")
        m.d.sync += waits[name].eq(Mux(busy & ~bits.clear, waits[name] + 1, 0))
        claim.check(f"{name}_ends_within_{most}", waits[name] <= most)

    # As the unit goes about it: marked at the end of a range, and cleared word by word.
    marked = Signal(name="marked")
    with m.If(bits.done & mark & mine):
        m.d.sync += marked.eq(1)
    with m.If(inside.state("CLEAR") & (inside["address"] == inside["stop"])):
        m.d.sync += marked.eq(0)
    wanted, clears, rests = inside["wanted"], inside.state("CLEAR"), inside.state("IDLE")
    claim.lemma("valid_if_marked", ~rests | (bit == marked))
    claim.lemma("ranges", ranging == ~(rests | clears))
    claim.lemma("clears_behind_a_range", ~ranging | (clearing == wanted))
    claim.lemma("valid_as_marked", Mux(clears | (rests & wanted), ~valid, valid == marked))
    _walk(
        claim,
        bits,
        inside,
        SimpleNamespace(
            slots=slots,
            words=words,
            waits=waits,
            place=place,
            low_bit=low_bit,
            bit=bit,
            slot=slot_asked,
            count=count_asked,
            mark=mark,
            begin=begin,
            end=end,
            mine=mine,
            marked=marked,
        ),
    )
    return claim


def _walk(claim, bits, inside, asked):
    """On the way: which words of the range that was asked for were read, and which are written."""
    m, place, mark, mine, marked, bit = claim.m, asked.place, asked.mark, asked.mine, asked.marked, asked.bit
    begin, end, words, waits = asked.begin, asked.end, asked.words, asked.waits
    wanted, clears, rests = inside["wanted"], inside.state("CLEAR"), inside.state("IDLE")
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
    claim.lemma("nothing", ~(under_way | inside.state("BOUND", "MASK")) | (nothing == (asked.count == 0)))
    bounded = under_way | inside.state("MASK", "DONE")
    claim.lemma("outside", ~bounded | (bits.outside == (end > asked.slots)))
    claim.lemma("final", ~bounded | (inside["final"] == (end - 1)[: len(inside["final"])]))
    claim.lemma("stop", ~under_way | (stop == Mux(nothing, begin, inside["final"][5:])[: len(stop)]))
    all_ = Const((1 << 32) - 1, 32)
    claim.lemma("low", ~under_way | (inside["low"] == (all_ << asked.slot[:5])[:32]))
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
    claim.lemma("to_the_end", ~inside.state("CLEAR") | (stop == asked.slots // 32 - 1))
    claim.lemma("cleared_as_far", ~inside.state("CLEAR") | (bit == (marked & (place >= address))))
    mask = Mux(back == begin, inside["low"], all_) & Mux(back == stop, inside["high"], all_)
    claim.lemma("mask", ~read | (inside["mask"] == mask))
    claim.lemma("range_from_0", ~inside.state("END") | (waits["range"] == 0))
    claim.lemma("range_before_it_reads", ~inside.state("BOUND", "MASK") | (waits["range"] <= 2))
    claim.lemma("range_by_word", ~scan | (waits["range"] <= 3 + address))
    claim.lemma("range_by_wait", ~wait | (waits["range"] <= 3 + words + inside["wait"]) & (inside["wait"] <= 4))
    # In its first cycle a clear is still wanted, and behind that another one is.
    left = Mux(clears, words - address, 0) + Mux(wanted & (rests | (address != 0)), 1 + words, 0)
    claim.lemma("clear_by_word", ~(clears | (rests & wanted)) | (waits["clear"] + left <= 2 * words))
    new = Array(inside["set_"][n] for n in range(32))[asked.low_bit]
    claim.lemma("set", ~masked | (back1 != place) | (new == (marked | mine)))
