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
        put, got = ([Signal(bits, name=f"{name}_{n}") for n in range(2)] for name in ("put", "got"))
        # Whether there is room is a bit of a register: the way from there to LOAD is long.
        levels = [Signal(bits + 1, name=f"level_{n}") for n in range(2)]
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

        # Beats are read by turns; one that its register has no room for stays at the memory's output. Whether a pair is
        # taken is late: it chooses between what follows if it is and if not, and is in front of nothing else.
        there, turn, side = Signal(), Signal(), Signal()
        have = [Signal(name=f"have_{n}") for n in range(2)]
        taken, stays = Signal(), Signal()
        m.d.comb += [
            self.o.valid.eq(have[0] & have[1]),
            taken.eq(self.o.valid & self.o.ready),
            stays.eq(there & Array(have)[side]),
        ]
        wanted = [some[0] & ~turn, some[1] & turn]  # the beat that is read next, if there is room for it
        free = [each & ~stays for each in wanted]  # ... and there is, also if no pair is taken
        gets = Signal(2)
        m.d.comb += gets.eq(Mux(taken, Cat(wanted), Cat(free)))
        m.d.comb += [read.en.eq(gets.any()), read.addr.eq(Cat(Mux(turn, got[1], got[0]), turn))]
        m.d.sync += there.eq(Mux(taken, Cat(wanted).any(), Cat(free).any() | stays))
        with m.If(gets.any()):
            m.d.sync += [side.eq(turn), turn.eq(~turn)]
        for n, port in enumerate((self.first, self.second)):
            puts, level = port.valid & port.ready, levels[n]
            one = level == 1
            m.d.sync += [
                level.eq(Mux(taken, stepped(level, puts, wanted[n]), stepped(level, puts, free[n]))),
                some[n].eq(puts | Mux(taken, some[n] & ~(wanted[n] & one), some[n] & ~(free[n] & one))),
            ]
            with m.If(puts):
                m.d.sync += put[n].eq(put[n] + 1)
            with m.If(gets[n]):
                m.d.sync += got[n].eq(got[n] + 1)
            here = Signal(self.width, reset_less=True, name=f"beat_{n}")
            m.d.comb += self.o.p.word_select(n, self.width).eq(here)
            mine = there & (side == n)
            with m.If(mine & (~stays | taken)):
                m.d.sync += here.eq(read.data)
            m.d.sync += have[n].eq(Mux(taken, mine, have[n] | (mine & ~stays)))
        return m
