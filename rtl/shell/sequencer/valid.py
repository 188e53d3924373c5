"""Valid bits of the forward cache, one a slot."""

from types import SimpleNamespace

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

__all__ = ["ValidBits"]

_WORD = 32


class ValidBits(wiring.Component):
    """A bit for each slot, counted or set 32 a cycle.

    A range takes ``9 + words`` cycles from ``start`` to ``done``, where ``words`` is how many aligned groups
    of 32 slots it touches (1 for an empty range); clearing all takes ``1 + slots // 32``.

    Parameters
    ----------
    slots : :class:`int`
        Number of slots, a multiple of 32. All are invalid after power-up.

    Members
    -------
    start : ``In(1)``
        Begin; ignored while ``busy`` and with ``clear``.
    mark : ``In(1)``
        Set the range instead of counting it. Read with ``start``.
    slot, count : ``In(32)``
        The range ``[slot, slot + count)``. Held by the caller from ``start`` to ``done``; one that is stopped holds it
        for 3 cycles, and looks at nothing that follows.
    clear : ``In(1)``
        Clears all bits, as soon as a range that is under way is done. Kept in mind until then.
    busy : ``Out(1)``
    done : ``Out(1)``
        High for one cycle at the end of a range; the three below are then valid.
    hits : ``Out(32)``
        Valid slots in the range.
    complete : ``Out(1)``
        All slots of the range are valid. An empty range is complete.
    outside : ``Out(1)``
        The range ends beyond the last slot; nothing was done.
    """

    def __init__(self, *, slots=16384):
        if slots < 2 * _WORD or slots % _WORD or slots > 65535:
            raise ValueError(f"slots is {slots!r}, must be a multiple of {_WORD} from {2 * _WORD} to 65504")
        self.slots = slots
        super().__init__(
            {
                "start": In(1),
                "mark": In(1),
                "slot": In(32),
                "count": In(32),
                "clear": In(1),
                "busy": Out(1),
                "done": Out(1),
                "hits": Out(32),
                "complete": Out(1),
                "outside": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        words = self.slots // _WORD
        bits = ceil_log2(self.slots) + 1
        m.submodules.memory = memory = Memory(shape=_WORD, depth=words, init=[])
        rd = memory.read_port()
        wr = memory.write_port()

        wanted = Signal()
        with m.If(self.clear):
            m.d.sync += wanted.eq(1)

        hits = Signal(bits)
        m.d.comb += self.hits.eq(hits)
        end = Signal(33)
        final = Signal(bits)  # last slot of the range
        address = Signal(range(words))
        stop = Signal(range(words))
        low = Signal(_WORD)
        high = Signal(_WORD)
        scan = Signal()
        first = Signal()
        nothing = Signal()
        wait = Signal(range(5))
        marking = Signal()  # ``mark`` of this range: a caller that was stopped may have another one already
        walk = SimpleNamespace(
            wanted=wanted,
            hits=hits,
            end=end,
            final=final,
            address=address,
            stop=stop,
            low=low,
            high=high,
            scan=scan,
            first=first,
            nothing=nothing,
            wait=wait,
            marking=marking,
        )
        fsm = self._walk(m, walk)
        m.d.comb += self.busy.eq(~fsm.ongoing("IDLE") | wanted)
        self._count(m, rd, wr, fsm, walk)
        return m

    def _walk(self, m, walk):
        """States that clear all bits, or check a range and walk its words.

        Returns the state machine.
        """
        with m.FSM() as fsm:
            with m.State("IDLE"):
                m.d.sync += [walk.address.eq(0), walk.stop.eq(self.slots // _WORD - 1), walk.marking.eq(self.mark)]
                with m.If(walk.wanted | self.clear):
                    m.next = "CLEAR"
                with m.Elif(self.start):
                    m.next = "END"
            with m.State("CLEAR"):
                m.d.sync += [walk.address.eq(walk.address + 1), walk.wanted.eq(self.clear)]
                with m.If(walk.address == walk.stop):
                    m.next = "IDLE"
            with m.State("END"):
                m.d.sync += [walk.end.eq(self.slot + self.count), walk.nothing.eq(self.count == 0)]
                m.next = "BOUND"
            with m.State("BOUND"):
                m.d.sync += [self.outside.eq(walk.end > self.slots), walk.final.eq(walk.end - 1), walk.hits.eq(0)]
                m.next = "MASK"
            with m.State("MASK"):
                m.d.sync += [
                    walk.address.eq(self.slot[5:]),
                    walk.stop.eq(Mux(walk.nothing, self.slot[5:], walk.final[5:])),
                    walk.first.eq(1),
                    walk.low.eq(Const((1 << _WORD) - 1, _WORD) << self.slot[:5]),
                    walk.high.eq(Mux(walk.nothing, 0, Const((1 << _WORD) - 1, _WORD) >> ~walk.final[:5])),
                    walk.wait.eq(0),
                ]
                with m.If(self.outside):
                    m.next = "DONE"
                with m.Else():
                    m.next = "SCAN"
            with m.State("SCAN"):
                m.d.comb += walk.scan.eq(1)
                m.d.sync += [walk.address.eq(walk.address + 1), walk.first.eq(0)]
                with m.If(walk.address == walk.stop):
                    m.next = "WAIT"
            with m.State("WAIT"):
                m.d.sync += [walk.wait.eq(walk.wait + 1), self.complete.eq(walk.hits == self.count[: len(walk.hits)])]
                with m.If(walk.wait == 4):
                    m.next = "DONE"
            with m.State("DONE"):
                m.d.comb += self.done.eq(1)
                m.next = "IDLE"
        return fsm

    def _count(self, m, rd, wr, fsm, walk):
        """Reads a word, masks it, and counts its bits or writes it back.

        The count takes two stages.
        """
        m.d.comb += rd.addr.eq(walk.address)
        read = Signal()
        masked = Signal()
        counted = Signal()
        mask = Signal(_WORD)
        word = Signal(_WORD)
        set_ = Signal(_WORD)
        back = Signal.like(walk.address)
        back1 = Signal.like(walk.address)
        m.d.sync += [
            read.eq(walk.scan),
            back.eq(walk.address),
            # mutant wrong-end: mask.eq(Mux(walk.first, walk.low, ~0) & Mux(walk.address == walk.stop, walk.low, ~0)),
            mask.eq(Mux(walk.first, walk.low, ~0) & Mux(walk.address == walk.stop, walk.high, ~0)),
            masked.eq(read),
            back1.eq(back),
            word.eq(rd.data & mask),
            set_.eq(rd.data | mask),
            counted.eq(masked),
        ]
        eights = [Signal(4, name=f"eight{i}") for i in range(4)]
        for i, e in enumerate(eights):
            m.d.sync += e.eq(sum(word[8 * i : 8 * i + 8]))
        with m.If(counted):
            m.d.sync += walk.hits.eq(walk.hits + ((eights[0] + eights[1]) + (eights[2] + eights[3])))

        m.d.comb += [
            wr.addr.eq(Mux(fsm.ongoing("CLEAR"), walk.address, back1)),
            # mutant cleared-to-ones: wr.data.eq(set_),
            wr.data.eq(Mux(fsm.ongoing("CLEAR"), 0, set_)),
            # mutant never-marked: wr.en.eq(fsm.ongoing("CLEAR") | 0),
            # mutant marked-too-late: wr.en.eq(fsm.ongoing("CLEAR") | (masked & self.mark)),
            # mutant never-cleared: wr.en.eq(0 | (masked & walk.marking)),
            wr.en.eq(fsm.ongoing("CLEAR") | (masked & walk.marking)),
        ]
