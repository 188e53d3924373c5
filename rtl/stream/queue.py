"""Queues with few levels of logic."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["LongQueue", "PlainQueue", "ShortQueue", "count_up_down", "stepped"]


def stepped(value, up, down):
    """``value``, one more with ``up``, one less with ``down``.

    Without a carry chain: which bits change is known before ``up`` and ``down`` are, and these pass one LUT. For up to
    8 bits or so. It wraps.
    """
    bits = range(len(value))
    more, less = Cat(value[:bit].all() for bit in bits), Cat(~value[:bit].any() for bit in bits)
    return value ^ Mux(up, Mux(down, 0, more), Mux(down, less, 0))


def count_up_down(m, fill, up, down):
    """``fill``, a counter in unary: as many ones as were counted.

    The ones begin at the lowest bit: one more with ``up``, one less with ``down``.

    Neither beyond its ends: the sources of ``up`` and ``down`` must see to that.
    """
    with m.If(up & ~down):
        m.d.sync += fill.eq(Cat(Const(1, 1), fill[:-1]))
    with m.Elif(down & ~up):
        m.d.sync += fill.eq(fill[1:])


def _go_around(m, depth, *ports):
    """Each address goes round ``depth`` words, one on when its port moves."""
    for port, moves in ports:
        place = Signal(range(depth))
        m.d.comb += port.addr.eq(place)
        with m.If(moves):
            m.d.sync += place.eq(place + 1)
            with m.If(place == depth - 1):
                m.d.sync += place.eq(0)


class PlainQueue(wiring.Component):
    """``SyncFIFO`` with a counter that has no carry chain.

    It is equal cycle by cycle: an entry is there in the cycle after it was written to an empty queue.

    Parameters
    ----------
    width, depth : int
        ``depth`` a power of two.
    late : bool
        The memory is written a cycle later, from a register. So ``r_data`` of an entry is not there yet in the first
        cycle in which ``r_rdy`` may tell of it: the reader waits for a further cycle.
    """

    def __init__(self, *, width, depth, late=False):
        if depth < 1 or depth & (depth - 1):
            raise ValueError(f"depth={depth}: must be a power of two")
        self.width, self.depth, self.late = width, depth, late
        super().__init__(
            {
                "w_data": In(width),
                "w_en": In(1),
                "w_rdy": Out(1),
                "r_data": Out(width),
                "r_en": In(1),
                "r_rdy": Out(1),
                "level": Out(range(depth + 1)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.storage = storage = memory.Memory(shape=self.width, depth=self.depth, init=[])
        write, read = storage.write_port(), storage.read_port(domain="comb")
        produce, consume = (Signal(range(self.depth), name=name) for name in ("produce", "consume"))
        put, take = Signal(), Signal()
        m.d.comb += [
            self.w_rdy.eq(~self.level[-1]),
            self.r_rdy.eq(self.level.any()),
            put.eq(self.w_en & self.w_rdy),
            take.eq(self.r_en & self.r_rdy),
            read.addr.eq(consume),
            self.r_data.eq(read.data),
        ]
        place, word, writes = produce, self.w_data, put
        if self.late:
            place, word = Signal.like(produce, name="place", reset_less=True), Signal(self.width, reset_less=True)
            writes = Signal(name="writes")
            m.d.sync += [place.eq(produce), word.eq(self.w_data), writes.eq(put)]
        m.d.comb += [write.addr.eq(place), write.data.eq(word), write.en.eq(writes)]
        m.d.sync += self.level.eq(stepped(self.level, put, take))
        # Enabled, not added to: what moves is known late.
        with m.If(put):
            m.d.sync += produce.eq(produce + 1)
        with m.If(take):
            m.d.sync += consume.eq(consume + 1)
        return m


class ShortQueue(wiring.Component):
    """``SyncFIFOBuffered`` of few entries, without its adders.

    It is equal cycle by cycle.

    ``r_data`` is a register; an entry is there 2 cycles after it was written to an empty queue. ``almost``: with one
    entry more there would be no room. ``empty``: there is none, also on its way.

    Parameters
    ----------
    width, depth : int
        ``depth`` at least 2.
    """

    def __init__(self, *, width, depth):
        if depth < 2:
            raise ValueError(f"depth={depth}: must be at least 2")
        self.width, self.depth = width, depth
        super().__init__(
            {
                "w_data": In(width),
                "w_en": In(1),
                "w_rdy": Out(1),
                "r_data": Out(width),
                "r_en": In(1),
                "r_rdy": Out(1),
                "almost": Out(1),
                "empty": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        depth = self.depth - 1  # the last entry is the output's register
        fill = Signal(depth)
        m.submodules.storage = storage = memory.Memory(shape=self.width, depth=depth, init=[])
        write, read = storage.write_port(), storage.read_port(domain="comb")
        put, take = Signal(), Signal()
        m.d.comb += [
            self.w_rdy.eq(~fill[-1]),
            self.almost.eq(fill[-2] if depth > 1 else self.r_rdy),
            self.empty.eq(~fill[0] & ~self.r_rdy),
            put.eq(self.w_en & ~fill[-1]),
            # mutant takes-over-a-word: take.eq(fill[0]),
            take.eq(fill[0] & (~self.r_rdy | self.r_en)),
            write.en.eq(put),
            write.data.eq(self.w_data),
        ]
        count_up_down(m, fill, put, take)
        _go_around(m, depth, (write, put), (read, take))
        with m.If(take):
            m.d.sync += [self.r_data.eq(read.data), self.r_rdy.eq(1)]
        with m.Elif(self.r_en):
            m.d.sync += self.r_rdy.eq(0)
        return m


class LongQueue(wiring.Component):
    """``SyncFIFOBuffered`` in block RAM, with its counter off the way.

    It is equal cycle by cycle. Whether it is full or empty is in registers; the number of entries is behind by a cycle.

    Parameters
    ----------
    width, depth : int
        ``depth`` at least 4.
    """

    def __init__(self, *, width, depth):
        if depth < 4:
            raise ValueError(f"depth={depth}: must be at least 4")
        self.width, self.depth = width, depth
        super().__init__(
            {
                "w_data": In(width),
                "w_en": In(1),
                "w_rdy": Out(1, init=1),
                "r_data": Out(width),
                "r_en": In(1),
                "r_rdy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        depth = self.depth - 1  # the last entry is the output's register
        m.submodules.storage = storage = memory.Memory(shape=self.width, depth=depth, init=[])
        write, read = storage.write_port(), storage.read_port()
        put, take, some = Signal(), Signal(), Signal()
        m.d.comb += [
            put.eq(self.w_en & self.w_rdy),
            take.eq(some & (~self.r_rdy | self.r_en)),
            write.en.eq(put),
            write.data.eq(self.w_data),
            read.en.eq(take),
            self.r_data.eq(read.data),
        ]
        _go_around(m, depth, (write, put), (read, take))
        # Entries in the memory: `level` and what moved in the cycle before.
        level, came, went = Signal(range(depth + 1)), Signal(), Signal()
        m.d.sync += [came.eq(put & ~take), went.eq(take & ~put)]
        with m.If(came | went):
            m.d.sync += level.eq(level + Mux(came, 1, -1))

        def holds(count):
            return Mux(came, level == count - 1, Mux(went, level == count + 1, level == count))

        m.d.sync += [
            some.eq((put | some) & ~(holds(1) & take & ~put)),
            self.w_rdy.eq((self.w_rdy | take) & ~(holds(depth - 1) & put & ~take)),
        ]
        with m.If(take):
            m.d.sync += self.r_rdy.eq(1)
        with m.Elif(self.r_en):
            m.d.sync += self.r_rdy.eq(0)
        return m
