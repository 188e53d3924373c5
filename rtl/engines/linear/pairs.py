"""Two streams that are taken together, in one memory."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...stream.queue import stepped

__all__ = ["PairQueue"]


class PairQueue(wiring.Component):
    """A beat of each of two streams at a time, every other cycle at most.

    Parameters
    ----------
    width : int
        Bits of a beat.
    depth : int
        Beats of either stream that wait, a power of two.

    Members
    -------
    first, second : streams; where both are offered, the first is taken.
    room : there is room for a beat of ``second``, which is taken unless one of ``first`` is offered too.
    o : stream of both, ``first`` in the low half.
    """

    def __init__(self, *, width, depth):
        self.width, self.depth = width, depth
        super().__init__(
            {
                "first": In(stream.Signature(width)),
                "second": In(stream.Signature(width)),
                "room": Out(1),
                "o": Out(stream.Signature(2 * width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.beats = beats = memory.Memory(shape=self.width, depth=2 * self.depth, init=[])
        write, read = beats.write_port(), beats.read_port()
        bits = ceil_log2(self.depth)
        ports = self.first, self.second
        put, got = ([Signal(bits, name=f"{name}_{n}") for n in range(2)] for name in ("put", "got"))
        # Whether there is room is a bit of a register: the way from there to LOAD is long.
        levels, gets = [Signal(bits + 1, name=f"level_{n}") for n in range(2)], Signal(2)
        some = [Signal(name=f"some_{n}") for n in range(2)]  # its level is not 0
        room = [~level[-1] for level in levels]
        m.d.comb += [
            self.room.eq(room[1]),
            self.first.ready.eq(room[0]),
            self.second.ready.eq(room[1] & ~self.first.valid),
            write.en.eq((self.first.valid & room[0]) | (self.second.valid & self.second.ready)),
            write.addr.eq(Cat(Mux(self.first.valid, put[0], put[1]), ~self.first.valid)),
            write.data.eq(Mux(self.first.valid, self.first.p, self.second.p)),
        ]
        for port, count, level, there, get in zip(ports, put, levels, some, gets):
            puts = port.valid & port.ready
            m.d.sync += [level.eq(stepped(level, puts, get)), there.eq(puts | (there & ~(get & (level == 1))))]
            with m.If(puts):
                m.d.sync += count.eq(count + 1)

        # Beats are read by turns; one that its register has no room for stays at the memory's output.
        there, turn, side = Signal(), Signal(), Signal()
        have = [Signal(name=f"have_{n}") for n in range(2)]
        taken, move, fetch, free, stays = Signal(), Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            self.o.valid.eq(have[0] & have[1]),
            taken.eq(self.o.valid & self.o.ready),
            stays.eq(there & Array(have)[side]),
            move.eq(there & (~stays | taken)),
            # Whether a pair is taken comes last: all else is there before.
            free.eq(~stays | taken),
            fetch.eq(Mux(turn, some[1], some[0]) & free),
            read.en.eq(fetch),
            read.addr.eq(Cat(Mux(turn, got[1], got[0]), turn)),
            gets.eq(Cat(some[0] & ~turn & free, some[1] & turn & free)),
        ]
        with m.If(fetch):
            m.d.sync += [there.eq(1), side.eq(turn), turn.eq(~turn)]
        with m.Elif(move):
            m.d.sync += there.eq(0)
        for n in range(2):
            here = Signal(self.width, reset_less=True, name=f"beat_{n}")
            m.d.comb += self.o.p.word_select(n, self.width).eq(here)
            with m.If(gets[n]):
                m.d.sync += got[n].eq(got[n] + 1)
            mine = there & (side == n)
            with m.If(move & (side == n)):
                m.d.sync += here.eq(read.data)
            # Chosen by ``taken``, which is late, and not enabled by it.
            m.d.sync += have[n].eq(Mux(taken, mine, have[n] | (mine & ~stays)))
        return m
