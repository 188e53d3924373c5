"""The buses: AXI4-Lite as a subordinate, AXI4 as a manager."""

from amaranth.hdl import Array, Cat, Mux, Signal, Value
from amaranth.lib import data
from amaranth.utils import exact_log2

from gradloom.rtl.shell.bus.axi import BOUNDARY, BURST_BEATS
from gradloom.rtl.shell.bus.read_dma import ReadDMA
from gradloom.rtl.shell.bus.window import burst_beats
from gradloom.rtl.shell.bus.write_dma import WriteDMA
from gradloom.rtl.shell.registers.axilite import RegisterFile
from gradloom.rtl.shell.registers.regtable import REGISTERS
from gradloom.rtl.shell.signature import StoreOperands
from gradloom.sim.proofs.claim import Claim

__all__ = [
    "register_file",
    "read_window",
    "read_protocol",
    "write_window",
    "write_protocol",
    "held",
    "load_returns",
    "store_returns",
]


class Channel:
    """A channel of a bus as a stream: ``valid``, ``ready`` and all else as payload."""

    def __init__(self, bus, prefix):
        members = [
            name
            for name in bus.signature.members
            if name.startswith(prefix) and name not in (f"{prefix}valid", f"{prefix}ready")
        ]
        self.valid, self.ready = getattr(bus, f"{prefix}valid"), getattr(bus, f"{prefix}ready")
        self.payload = Cat(getattr(bus, name) for name in members)


def register_file(unit=RegisterFile):
    """AXI4-Lite: each write and each read has one answer, after 2 cycles; one that is refused does nothing."""
    claim = Claim()
    m = claim.m
    registers = unit()
    claim.place(registers)
    claim.drive(registers)
    bus = registers.bus
    aw, w, b, ar, r = (Channel(bus, prefix) for prefix in ("aw", "w", "b", "ar", "r"))
    for name, channel in (("aw", aw), ("w", w), ("ar", ar)):
        claim.holds(name, channel, assume=True)
    for name, channel in (("b", b), ("r", r)):
        claim.holds(name, channel)

    open_ = {}
    for name, channel, answer in (("aw", aw, b), ("w", w, b), ("ar", ar, r)):
        count = open_[name] = Signal(2, name=f"open_{name}")
        taken, answered = channel.valid & channel.ready, answer.valid & answer.ready
        m.d.sync += count.eq(count + taken - answered)
        # The next write may come before the answer to the last is taken.
        claim.check(f"few_{name}_at_a_time", count <= (1 if name == "ar" else 2))
        ready = Signal(2, name=f"idle_{name}")
        m.d.sync += ready.eq(Mux((count == 0) & ~taken, Mux(ready == 3, 3, ready + 1), 0))
        claim.check(f"{name}_is_asked_for", (ready < 2) | channel.ready)
    claim.check("b_answers_a_write", ~b.valid | ((open_["aw"] != 0) & (open_["w"] != 0)))
    claim.check("r_answers_a_read", ~r.valid | (open_["ar"] == 1))
    for name, waits in (
        ("write", (open_["aw"] != 0) & (open_["w"] != 0) & ~b.valid),
        ("read", (open_["ar"] == 1) & ~r.valid),
    ):
        late = Signal(2, name=f"late_{name}")
        m.d.sync += late.eq(Mux(waits, late + 1, 0))
        claim.check(f"{name}_is_answered_in_2_cycles", ~waits | (late < 2))
    claim.check("no_answer_but_okay_and_slverr", (bus.bresp[0] == 0) & (bus.rresp[0] == 0))

    # In the first cycle of its answer a write has had its effect.
    new_answer = b.valid & ~claim.past(b.valid, "b_valid")
    refused = new_answer & (bus.bresp != 0)
    stored = registers.stored.as_value()
    before = claim.past(stored, "stored")
    told = claim.past(registers.set.as_value(), "set")
    claim.check("refused_writes_change_nothing", ~refused | told.any() | (stored == before))
    claim.check("refused_writes_pulse_nothing", ~refused | ~registers.pulse.as_value().any())
    claim.check("only_writes_change_registers", new_answer | told.any() | claim.first | (stored == before))
    claim.check("only_writes_pulse", new_answer | ~registers.pulse.as_value().any())
    _bits(claim, registers)
    claim.cover("refused", refused)
    claim.cover("read_refused", r.valid & (bus.rresp != 0))
    claim.cover("bell", registers.pulse.CONTROL.bell)
    return claim


def _bits(claim, registers):
    """A bit pulses, or is cleared, if it was written with its byte's strobe; a set is never lost."""
    m, bus = claim.m, registers.bus
    wrote = Signal(32, name="wrote")
    with m.If(bus.wvalid & bus.wready):
        m.d.sync += wrote.eq(bus.wdata & Cat(strobe.replicate(8) for strobe in bus.wstrb))
    for register in REGISTERS:
        for field in register.fields:
            bits, name = wrote[field.lsb : field.lsb + field.width], f"{register.name}_{field.name}".lower()
            if field.pulse:
                pulse = registers.pulse[register.name][field.name]
                claim.check(f"{name}_pulses_if_written", (pulse & ~bits) == 0)
            if field.clear_on_one:
                set_, stored = (getattr(registers, what)[register.name][field.name] for what in ("set", "stored"))
                was, came = claim.past(stored, name), claim.past(set_, f"{name}_set")
                claim.check(f"{name}_set_is_not_lost", (came & ~stored) == 0)
                claim.check(f"{name}_clears_if_written", claim.first | ((was & ~stored & ~bits) == 0))


def _window(claim, dma, address_bits):
    """A window that stays, as the host has to choose it: on a page, and within what the bus can address."""
    base, size = claim.fixed(64, "base"), claim.fixed(32, "size")
    claim.m.d.comb += [dma.base.eq(base), dma.size.eq(size)]
    claim.assume("base_on_a_page", base[:12] == 0)
    claim.assume("window_on_the_bus", base + size <= 1 << address_bits)
    return base, size


def _address_rules(claim, name, *, valid, address, length, base, size, data_bits, address_bits):
    shift = exact_log2(data_bits // 8)
    bytes_ = ((length + 1) << shift)[:14]
    claim.check(f"{name}_at_most_16_beats", ~valid | (length < BURST_BEATS))
    claim.check(f"{name}_on_a_beat", ~valid | (address[:shift] == 0))
    claim.check(f"{name}_within_4_KB", ~valid | (address[:12] + bytes_ <= BOUNDARY))
    if base is not None:
        low = base[:address_bits]
        claim.check(f"{name}_not_below_the_window", ~valid | (address >= low))
        claim.check(f"{name}_not_above_the_window", ~valid | (address + bytes_ <= low + size))


def _free_engine(claim, dma, *, address_bits):
    claim.drive(dma, without=("base", "size"))
    base, size = _window(claim, dma, address_bits)
    claim.holds("command", dma.port.command, assume=True)
    return base, size


def _transfer(claim, inside, dma, *, size, data_bits):
    """A transfer under way stays within the window; with the cycles before it that is all there is to know."""
    shift = exact_log2(data_bits // 8)
    offset, beats = inside["offset"], inside["beats"]
    under_way = inside.state("BURST", "MEASURE")
    claim.lemma("states", inside.state())
    claim.lemma("rest_is_aligned", ~under_way | (offset[:shift] == 0))
    claim.lemma("rest_is_something", ~under_way | (beats != 0))
    claim.lemma("rest_is_within", ~under_way | (offset + (beats << shift) <= size))
    _measured(claim, inside, data_bits=data_bits)
    claim.cover("many_bursts", inside.state("MEASURE"))


def _measured(claim, inside, *, data_bits):
    length, final, room = burst_beats(inside["offset"], inside["beats"], data_bits=data_bits)
    measured = (inside["last"] + 1 == length) & (inside["final"] == final) & (inside["room"] == room)
    claim.lemma("burst_is_measured", ~inside.state("BURST") | measured)


def read_window(unit=ReadDMA, *, data_bits, address_bits, outstanding=16):
    """Bursts of LOAD and of the program's fetch: at most 16 beats, within 4 KB, within the window."""
    claim = Claim()
    dma = unit(data_bits=data_bits, addr_bits=address_bits, outstanding=outstanding)
    inside = claim.place(dma, memories=lambda memory: "any")
    base, size = _free_engine(claim, dma, address_bits=address_bits)
    shift = exact_log2(data_bits // 8)
    # What the fetch promises; ``fetch_window`` holds it to that, and the sequencer's claim to ``abort``.
    fetch, asks = dma.i_fetch.p, dma.i_fetch.valid
    claim.holds("fetch", dma.i_fetch, assume=True, unless=dma.abort)
    claim.assume("fetch_aligned", ~asks | (fetch.offset[:shift] == 0))
    claim.assume("fetch_something", ~asks | (fetch.beats != 0))
    claim.assume("fetch_within_a_burst", ~asks | (fetch.offset[shift : shift + 4] + fetch.beats <= BURST_BEATS))
    claim.assume("fetch_within", ~asks | (fetch.offset + (fetch.beats << shift) <= size))
    _transfer(claim, inside, dma, size=size, data_bits=data_bits)
    axi = dma.axi
    _address_rules(
        claim,
        "ar",
        valid=axi.arvalid,
        address=axi.araddr,
        length=axi.arlen,
        base=base,
        size=size,
        data_bits=data_bits,
        address_bits=address_bits,
    )
    claim.holds("ar", Channel(axi, "ar"))
    return claim


def _in_short_queue(claim, inside, name, depth, dma):
    fill = inside[f"{name}.fill"]
    level = Signal(range(depth + 1), name=f"{name}_level")
    claim.m.d.comb += level.eq(sum(fill[n] for n in range(depth - 1)) + inside[f"{name}.r_rdy"])
    claim.lemma(f"{name}_in_thermometer", (fill & (fill + 1)[: depth - 1]) == 0)
    return level


def write_window(unit=WriteDMA, *, data_bits, address_bits, outstanding=16, forwards=0, ahead=False):
    """Bursts of STORE: at most 16 beats, within 4 KB, within the window."""
    claim = Claim()
    dma = unit(data_bits=data_bits, addr_bits=address_bits, outstanding=outstanding, forwards=forwards, ahead=ahead)
    inside = claim.place(dma, memories=lambda memory: "any")
    base, size = _free_engine(claim, dma, address_bits=address_bits)
    _transfer(claim, inside, dma, size=size, data_bits=data_bits)
    axi = dma.axi
    _address_rules(
        claim,
        "aw",
        valid=axi.awvalid,
        address=axi.awaddr,
        length=axi.awlen,
        base=base,
        size=size,
        data_bits=data_bits,
        address_bits=address_bits,
    )
    claim.holds("aw", Channel(axi, "aw"))
    return claim


def read_protocol(unit=ReadDMA, *, data_bits, address_bits, outstanding=16):
    """Every burst is answered and taken; no more are in flight than may be; ``idle`` means that none is."""
    claim = Claim()
    m = claim.m
    dma = unit(data_bits=data_bits, addr_bits=address_bits, outstanding=outstanding)
    inside = claim.place(dma, memories=lambda memory: "words" if memory.depth == outstanding - 1 else "any")
    claim.drive(dma)
    claim.assume("abort_until_idle", ~claim.past(dma.abort & ~dma.idle, "aborting") | dma.abort)
    axi = dma.axi
    flying = Signal(range(outstanding + 2), name="flying")
    asked, ended = axi.arvalid & axi.arready, axi.rvalid & axi.rready & axi.rlast
    m.d.sync += flying.eq(flying + asked - ended)
    # A memory answers what it was asked for.
    claim.holds("r", Channel(axi, "r"), assume=True)
    claim.assume("r_was_asked_for", ~axi.rvalid | (flying != 0))
    claim.check("no_more_than_may_be", flying <= outstanding)
    claim.check("idle_means_idle", ~dma.idle | (flying == 0))
    claim.check("begins_nothing_while_aborted", ~claim.past(dma.idle & dma.abort, "stopped") | dma.idle)
    dropped = dma.abort | claim.past(dma.abort, "abort")
    claim.holds("o", dma.o, unless=dropped)
    # The requester keeps room for what it asks for.
    claim.assume("fetch_has_room", ~dma.o_fetch.valid | dma.o_fetch.ready)
    # While its consumers take what is offered, it takes what comes: a held-up bus is somebody else's doing.
    taken = Signal(2, name="taken_for")
    free = ~dma.o.valid | dma.o.ready
    m.d.sync += taken.eq(Mux(free, Mux(taken == 3, 3, taken + 1), 0))
    claim.check("takes_what_comes", (taken < 2) | axi.rready)
    # A burst is in the queue from when its address is made until its last beat goes on.
    lasts = inside["head_valid"] & inside["head"][-1]
    level = _in_short_queue(claim, inside, "bursts", outstanding, dma)
    claim.lemma("every_burst_is_known", level == flying + axi.arvalid + lasts)
    claim.lemma("shown_in_time", (level == 0) | inside["bursts.r_rdy"] | (inside["asked"] & (level == 1)))
    # A command has a context from when it is accepted until its last burst goes on.
    fill, read = inside["bursts.fill"], inside.find("place", "bursts")[1]
    (words,) = (memory.words for memory in inside.kept if hasattr(memory, "words"))
    shown = inside["bursts.r_data"]
    ends = shown[1] & ~shown[0] & inside["bursts.r_rdy"]
    open_ = ~shown[1] & ~shown[0] & inside["bursts.r_rdy"]
    for n in range(outstanding - 1):
        where = Mux(read + n >= outstanding - 1, read + n - (outstanding - 1), read + n)[
            : (outstanding - 1).bit_length()
        ]
        word = Signal(2, name=f"burst_{n}")
        m.d.comb += word.eq(Array(each[:2] for each in words)[where])
        ends = ends + (fill[n] & word[1] & ~word[0])
        open_ = Mux(fill[n] & ~word[0], ~word[1], open_)
    contexts = Signal(4, name="contexts_level")
    m.d.comb += contexts.eq(_in_short_queue(claim, inside, "contexts", 4, dma))
    normal = ~inside["failed"] & ~dropped
    claim.lemma("every_command_is_known", ~normal | (contexts == ends + inside.state("BURST", "MEASURE")))
    claim.lemma("last_burst_is_last", ~normal | ~open_ | inside.state("BURST", "MEASURE"))
    claim.lemma("places", (read < outstanding - 1) & (inside.find("place", "bursts")[0] < outstanding - 1))
    write = inside.find("place", "bursts")[0]
    stored = sum(fill[n] for n in range(outstanding - 1))
    claim.lemma("between_places", (read + stored == write) | (read + stored == write + outstanding - 1))
    claim.lemma("context_is_there", ~inside.wire("mine") | inside["contexts.r_rdy"])
    claim.lemma("mute", inside["mute"] == inside["failed"] | claim.past(dma.abort, "mute"))
    claim.lemma("states", inside.state())
    claim.lemma("context_in_time", ~normal | (contexts == 0) | inside["contexts.r_rdy"] | (contexts == 1))
    claim.lemma("head_is_known", ~inside["head_valid"] | inside["bursts.r_rdy"])
    claim.lemma("rest_follows", (flying != 0) | ~inside["head_valid"] | inside["head"][-1])
    claim.cover("all_in_flight", flying == outstanding)
    claim.cover("idle_again", dma.idle & claim.past(~dma.idle, "idle"))
    return claim


def _buffered(claim, inside, dma):
    """Beats of STORE are in a burst, in the buffer, or still to come: none is lost and none comes twice."""
    loose, pull, more, beats = inside["loose"] + inside["came"], inside["pull"], inside["more"], inside["beats"]
    writes, asks = inside.state("BURST", "MEASURE"), inside.state("BURST")
    under_way = writes
    if dma.forwards:
        passes = inside.state("FORWARD")
        under_way, asks = writes | passes, asks | passes
        claim.lemma("what_is_only_forwarded_is_not_kept", ~passes | (loose == 0))
        claim.lemma("asks_for_what_is_to_come", ~(passes & dma.o_request.valid) | more)
        claim.lemma("only_forwards", ~under_way | (inside["only"] == passes))
    claim.lemma("more_to_come", ~under_way | (more == (pull != 0)))
    claim.lemma("all_beats_are_somewhere", ~writes | (loose + pull == beats))
    claim.lemma("nothing_left_behind", under_way | ((loose == 0) & ~more & ~dma.o_request.valid))
    claim.lemma("nothing_before_the_request", ~dma.o_request.valid | ((loose == 0) & asks))


def write_protocol(unit=WriteDMA, *, data_bits, address_bits, outstanding=16, forwards=0, ahead=False):
    """A burst of STORE has as many beats as its address said, the last one marked; ``idle``: none flies."""
    claim = Claim()
    m = claim.m
    dma = unit(data_bits=data_bits, addr_bits=address_bits, outstanding=outstanding, forwards=forwards, ahead=ahead)
    inside = claim.place(dma, memories=lambda memory: "words" if memory.depth == 4 else "any")
    claim.drive(dma)
    axi = dma.axi
    claim.assume("abort_until_idle", ~claim.past(dma.abort & ~dma.idle, "aborting") | dma.abort)

    # One burst, any one, is followed from its address to its last beat.
    offered = axi.awvalid & ~claim.past(axi.awvalid & ~axi.awready, "aw_waits")
    ended = axi.wvalid & axi.wready & axi.wlast
    before, begun = Signal(4, name="before"), Signal(4, name="begun")
    followed, over = Signal(name="followed"), Signal(name="over")
    length, beat = Signal(4, name="length"), Signal(4, name="beat")
    mark = claim.free(1, "mark") & offered & ~followed & ~over
    m.d.sync += begun.eq(begun + offered - ended)
    with m.If(axi.wvalid & axi.wready):
        m.d.sync += beat.eq(Mux(axi.wlast, 0, beat + 1))
    with m.If(mark):
        m.d.sync += [followed.eq(1), length.eq(axi.awlen), before.eq(begun - ended)]
    with m.Elif(followed & ended):
        m.d.sync += before.eq(before - 1)
        with m.If(before == 0):
            m.d.sync += [followed.eq(0), over.eq(1)]
    mine = followed & (before == 0) & axi.wvalid
    claim.check("as_many_as_its_address_said", ~mine | (axi.wlast == (beat == length)))
    claim.check("no_beat_without_an_address", ~axi.wvalid | (begun != 0) | offered)
    claim.cover("over", over)

    # A memory answers each burst when it has its address and all its beats.
    answered = axi.bvalid & axi.bready
    addressed, sent = (Signal(range(outstanding + 2), name=name) for name in ("addressed", "sent_all"))
    m.d.sync += [addressed.eq(addressed + (axi.awvalid & axi.awready) - answered), sent.eq(sent + ended - answered)]
    claim.assume("b_was_waited_for", ~axi.bvalid | ((addressed != 0) & (sent != 0)))
    claim.check("takes_answers_at_once", axi.bready)
    claim.check("no_more_than_may_be", addressed <= outstanding)
    claim.check("idle_means_idle", ~dma.idle | ((addressed == 0) & (sent == 0)))
    claim.check("begins_nothing_while_aborted", ~claim.past(dma.idle & dma.abort, "stopped") | dma.idle)
    claim.lemma("buffer_has_what_is_sent", ~inside.wire("move") | inside.wire("beats.r_rdy"))
    claim.cover("idle_again", dma.idle & claim.past(~dma.idle, "idle"))
    if forwards:
        # A command is done by its last answer, or, without a burst of its own, when none before it flies.
        claim.check(
            "done_in_order", ~dma.port.done | claim.past(answered, "answered") | claim.past(dma.idle, "was_idle")
        )
        claim.cover("done_without_answer", dma.port.done & ~claim.past(answered, "answered_before"))

    claim.holds("w", Channel(axi, "w"))
    claim.holds("request", dma.o_request, unless=dma.abort)
    if ahead:
        _told(claim, inside, dma)

    # How its registers belong together.
    _buffered(claim, inside, dma)
    _measured(claim, inside, data_bits=data_bits)
    claim.lemma("states", inside.state())
    claim.lemma("rest_is_something", ~inside.state("BURST", "MEASURE") | (inside["beats"] != 0))
    (lengths,) = (memory.words for memory in inside.kept if hasattr(memory, "words"))
    waiting, first = inside["lengths.level"], inside["lengths.consume"]
    flying = inside["bursts.level"]
    last = axi.wvalid & axi.wlast
    moved, head = inside["sent"], Array(lengths)[first]
    claim.lemma("waiting_fits", waiting <= 4)
    claim.lemma("lengths_in_a_row", ((first + waiting) & 3) == inside["lengths.produce"])
    claim.lemma("flying_fits", flying <= outstanding)
    claim.lemma("flying_by_address", flying == addressed + axi.awvalid)
    claim.lemma("flying_by_data", flying == sent + waiting + last)
    claim.lemma("begun_by_data", ((begun + offered) & 15) == waiting + last)
    claim.lemma("moved_of_head", Mux(waiting == 0, moved == 0, moved <= head))
    claim.lemma("beat_of_moved", Mux(last, moved == 0, beat + axi.wvalid == moved))
    claim.lemma("begun_at_most", begun <= 5)
    # The one that is followed is on its way out or in the queue of lengths.
    place = before - last
    claim.lemma(
        "followed_is_known",
        ~followed
        | (before + 1 <= begun + 0)
        & Mux(last & (before == 0), beat == length, (place < waiting) & (Array(lengths)[first + place & 3] == length)),
    )
    claim.lemma(
        "new_one_is_last",
        ~offered | (waiting != 0) & (Array(lengths)[(first + waiting - 1) & 3] == axi.awlen[:4]) & (axi.awlen[4:] == 0),
    )
    total = sum(Mux(waiting > n, Array(lengths)[(first + n) & 3] + 1, 0) for n in range(4)) - moved
    dropped = Signal(8, name="dropped")
    loose = inside["loose"] + inside["came"]
    m.d.comb += dropped.eq(inside["beats.level"] - loose - total)
    claim.lemma("dropped_by_abort_only", (dropped == 0) | claim.past(dma.abort, "abort"))
    claim.lemma("buffer_fits", inside["beats.level"] <= 2 * BURST_BEATS)
    claim.lemma("loose_is_buffered", loose + total <= inside["beats.level"])
    return claim


def _told(claim, inside, dma):
    """What STORE tells of ahead is what it asks for next, and stays until that is taken."""
    command, ask = dma.port.command, dma.o_request
    claim.holds("command", command, unless=dma.abort, assume=True)
    payload, usual = Value.cast(ask.payload), ~dma.abort & ~claim.past(dma.abort, "aborted")
    told = claim.past(dma.ahead & ~(ask.valid & ask.ready) & usual, "told")
    claim.check("is_told_until_taken", ~told | dma.ahead)
    claim.check("is_the_same_until_taken", ~told | (payload == claim.past(payload, "told_payload")))
    claim.check("nothing_is_asked_for_untold", ~ask.valid | dma.ahead)
    claim.check("each_is_told_once", ~claim.past(ask.valid & ask.ready, "was_asked") | ~dma.ahead)
    claim.cover("told_of_what_waits", dma.ahead & inside.state("BURST") & ~ask.valid)
    # What is told waits, or was taken.
    args = data.View(StoreOperands, command.payload.args)
    same = Cat(getattr(ask.payload, name) == getattr(args, name) for name in ask.payload.shape().members).all()
    holds = inside.state("CHECK", "DECIDE", "REFUSE") | ask.valid
    claim.lemma("waits", ~dma.ahead | holds | ~usual | command.valid & same)
    claim.lemma("was_taken", ~holds | dma.ahead)


def load_returns(unit=ReadDMA, *, data_bits, address_bits, outstanding=16):
    """Whatever went wrong: ``abort``, held for 4 cycles, ends it, and LOAD is as after power-up once none flies."""
    claim = Claim()
    dma = unit(data_bits=data_bits, addr_bits=address_bits, outstanding=outstanding)
    inside = claim.place(dma, memories=lambda memory: "any")
    claim.drive(dma)
    long = held(claim, dma.abort)
    claim.lemma("states", inside.state())
    claim.check("in_its_first_state", ~long | inside.state("IDLE"))
    claim.check("without_error", ~long | (~dma.port.error.valid & ~inside["failed"]))
    claim.check("silent", ~long | (~dma.o.valid & ~dma.o_fetch.valid & ~dma.port.done))
    claim.check("from_the_first_beat", ~long | ((inside["index"] == 0) & ~inside["contexts.r_rdy"]))
    claim.check("asks_nothing", ~long | ~dma.axi.arvalid | claim.past(dma.axi.arvalid, "arvalid"))
    # And takes a command again as soon as it may.
    free = claim.past(long & dma.idle, "free") & ~dma.abort
    claim.check("takes_commands", ~free | dma.port.command.ready)
    claim.cover("after_an_error", long & claim.past(dma.port.error.valid, "error") | free)
    return claim


def store_returns(unit=WriteDMA, *, data_bits, address_bits, outstanding=16, forwards=0, ahead=False):
    """Whatever went wrong: ``abort``, held for 4 cycles, ends it, and STORE is as after power-up once none flies."""
    claim = Claim()
    dma = unit(data_bits=data_bits, addr_bits=address_bits, outstanding=outstanding, forwards=forwards, ahead=ahead)
    inside = claim.place(dma, memories=lambda memory: "any")
    claim.drive(dma)
    long = held(claim, dma.abort)
    claim.lemma("states", inside.state())
    claim.check("in_its_first_state", ~long | inside.state("IDLE"))
    claim.check("without_error", ~long | (~dma.port.error.valid & ~inside["failed"]))
    claim.check("silent", ~long | (~dma.o_request.valid & ~dma.port.done & ~dma.i.ready))
    claim.check("nothing_loose", ~long | ((inside["loose"] == 0) & ~inside["came"]))
    free = claim.past(long & dma.idle, "free") & ~dma.abort
    claim.check("buffer_empty", ~free | (inside["beats.level"] == 0))
    claim.check("takes_commands", ~free | dma.port.command.ready)
    claim.cover("free", free)
    return claim


def held(claim, signal):
    """High in the 4th cycle of ``signal``, which is how long the sequencer holds ``abort``, and while it goes on."""
    count = Signal(2, name="held_for")
    claim.m.d.sync += count.eq(Mux(signal, Mux(count == 3, 3, count + 1), 0))
    return (count == 3) & signal
