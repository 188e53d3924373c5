"""Queues: nothing is lost, nothing is doubled, nothing changes its place."""

from amaranth.hdl import Mux, Signal

from gradloom.rtl.stream.queue import ShortQueue
from gradloom.sim.proofs.claim import Claim

__all__ = ["short_queue"]


def follow(claim, *, put, get, data, out, depth):
    """Follows one beat, any one, on its way through a queue.

    Returns ``count`` of beats inside, ``on_way`` (the beat is inside), ``ahead`` of it and its ``word``. What is
    claimed: no more than ``depth`` come in than go out, and what leaves in the beat's place is the beat.
    """
    m = claim.m
    bits = (depth + 1).bit_length()
    count, ahead = Signal(bits, name="count"), Signal(bits, name="ahead")
    on_way, over = Signal(name="on_way"), Signal(name="over")
    word = Signal(len(data), name="followed")
    mark = claim.free(1, "mark")
    marked = Signal(name="marked")
    m.d.comb += marked.eq(put & mark & ~on_way & ~over)
    m.d.sync += count.eq(count + put - get)
    with m.If(marked):
        m.d.sync += [on_way.eq(1), word.eq(data), ahead.eq(count - get)]
    with m.Elif(on_way & get):
        m.d.sync += ahead.eq(ahead - 1)
        with m.If(ahead == 0):
            m.d.sync += [on_way.eq(0), over.eq(1)]
    claim.check("fits", count <= depth)
    claim.check("nothing_from_nothing", ~get | (count != 0))
    claim.check("in_its_place", ~(on_way & (ahead == 0) & get) | (out == word))
    claim.lemma("ahead_is_inside", ~on_way | (ahead < count))
    claim.cover("followed_to_the_end", over)
    claim.cover("full", count == depth)
    return count, on_way, ahead, word, marked


def short_queue(unit=ShortQueue, *, width, depth):
    """ShortQueue is a queue of ``depth`` places; it shows a beat 2 cycles after it came."""
    claim = Claim()
    m = claim.m
    queue = unit(width=width, depth=depth)
    inside = claim.place(queue, memories=lambda memory: "one")
    claim.drive(queue)
    put, get = queue.w_en & queue.w_rdy, queue.r_en & queue.r_rdy
    count, on_way, ahead, word, marked = follow(
        claim, put=put, get=get, data=queue.w_data, out=queue.r_data, depth=depth
    )
    # What makes it inductive: how its registers belong together.
    inner = depth - 1
    fill, (write, read) = inside["fill"], inside.find("place")
    (memory,) = inside.kept
    claim.assume("followed_word_is_kept", ~marked | (write == memory.place))
    stored = Signal(range(depth + 1))
    m.d.comb += stored.eq(sum(fill[n] for n in range(inner)))
    claim.lemma("thermometer", (fill & (fill + 1)[:inner]) == 0)
    claim.lemma("places", (write < inner) & (read < inner))
    claim.lemma("between_places", (read + stored == write) | (read + stored == write + inner))
    claim.lemma("counted", count == stored + queue.r_rdy)
    where = Signal(range(2 * depth))
    m.d.comb += where.eq(Mux(memory.place >= read, memory.place - read, memory.place + inner - read))
    claim.lemma(
        "stored_or_shown",
        ~on_way
        | Mux(
            (ahead == 0) & queue.r_rdy,
            queue.r_data == word,
            (memory.place < inner) & (where + queue.r_rdy == ahead) & (where < stored) & (memory.word == word),
        ),
    )
    # As seen from outside.
    claim.check("takes_while_there_is_room", queue.w_rdy | (count >= depth - 1))
    waits = claim.past((count != 0) & ~queue.r_rdy, "waits")
    claim.check("shows_in_time", ~(waits & ~queue.r_rdy))
    claim.holds("out", _Reads(queue))
    return claim


class _Reads:
    def __init__(self, queue):
        self.payload, self.valid, self.ready = queue.r_data, queue.r_rdy, queue.r_en
