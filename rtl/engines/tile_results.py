"""Results of an engine on tiles: words, and the largest of a slot."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from ..formats.tiles.codes import EDGE, WORD
from ..hierarchy import place
from ..stream.delay import delay
from .tile_port import EXPONENT, PEAK, TileRead

__all__ = ["TilePeak", "TileResults", "results_of"]

#: Words of half a beat of results.
_HALF = 8


class TilePeak(wiring.Component):
    """Keeps the exponent of the leading bit of a slot's largest word.

    Words of a cycle count :attr:`latency` cycles later.

    Parameters
    ----------
    slots, lanes : int

    Members
    -------
    valid, slot, exponent : words of this cycle, in units of ``2**exponent``. words : a lane counts with ``mask``.
    fresh, fresh_slot : the slot has no words but those that follow, this cycle's included.
    read : a slot. peak, some : its, a cycle later; ``some``: a word was not 0.
    """

    latency = 6

    def __init__(self, *, slots, lanes):
        self.slots = slots
        self.lanes = lanes
        slot = range(max(slots, 2))
        super().__init__(
            {
                "valid": In(1),
                "slot": In(slot),
                "exponent": In(signed(EXPONENT)),
                "words": In(data.ArrayLayout(signed(WORD), lanes)),
                "mask": In(lanes),
                "fresh": In(1),
                "fresh_slot": In(slot),
                "read": In(slot),
                "peak": Out(signed(PEAK)),
                "some": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        tag = data.StructLayout(
            {"valid": 1, "slot": self.slot.shape(), "exponent": signed(EXPONENT), "fresh": 1, "fresh_slot": 4}
        )
        now = Signal(tag)
        m.d.comb += [now[name].eq(getattr(self, name)) for name in tag.members]
        # Magnitudes, then a bit for each place in which one has a bit, in two steps of a tree.
        level = []
        for lane in range(self.lanes):
            magnitude = Signal(WORD, reset_less=True, name=f"magnitude_{lane}")
            word, counts = self.words[lane], self.mask[lane]
            # The mask is before the carry: a LUT a bit.
            flipped = (word ^ word[-1].replicate(WORD)) & counts.replicate(WORD)
            # mutant complement: m.d.sync += magnitude.eq(flipped)
            m.d.sync += magnitude.eq(flipped + (word[-1] & counts))
            level.append(magnitude)
        for step in range(2):
            size = max(-(-len(level) // 6), 6) if step == 0 else len(level)
            after = []
            for first in range(0, len(level), size):
                joined = Signal(WORD, reset_less=True, name=f"joined_{step}_{first}")
                some = level[first : first + size]
                total = some[0]
                for each in some[1:]:
                    total = total | each
                m.d.sync += joined.eq(total)
                after.append(joined)
            level = after
        (bits,) = level
        # The leading bit: of six groups of eight, then in the group.
        groups = [bits.word_select(n, 8) for n in range(WORD // 8)]
        first = Signal(WORD // 8)
        m.d.comb += first.eq(
            Cat(
                each.any() & ~Cat(other.any() for other in groups[n + 1 :]).any() if n < len(groups) - 1 else each.any()
                for n, each in enumerate(groups)
            )
        )
        high, content, found = Signal(3, reset_less=True), Signal(8, reset_less=True), Signal(reset_less=True)
        joined = Const(0, 8)
        for n, each in enumerate(groups):
            joined = joined | (each & first[n].replicate(8))
        m.d.sync += [
            high.eq(Cat(Cat(first[n] for n in range(len(groups)) if n >> bit & 1).any() for bit in range(3))),
            content.eq(joined),
            found.eq(first.any()),
        ]
        low = Signal(3)
        m.d.comb += low.eq(
            Mux(
                content[4:].any(),
                Mux(content[6:].any(), Mux(content[7], 7, 6), Mux(content[5], 5, 4)),
                Mux(content[2:4].any(), Mux(content[3], 3, 2), Mux(content[1], 1, 0)),
            )
        )
        lead = Signal(6, reset_less=True)
        m.d.sync += lead.eq(Cat(low, high))
        found = delay(m, found, 1)
        later = delay(m, now, 5, reset_less=False)
        value = Signal(signed(PEAK))
        m.d.comb += value.eq(later.exponent + lead)
        peaks, somes = [], []
        for slot in range(self.slots):
            peak, some = Signal(signed(PEAK), name=f"peak_{slot}"), Signal(name=f"some_{slot}")
            mine = later.valid & (later.slot == slot) & found
            fresh = later.fresh & (later.fresh_slot == slot)
            with m.If(fresh):
                m.d.sync += [some.eq(mine), peak.eq(value)]
            with m.Elif(mine & (~some | (value > peak))):
                m.d.sync += [some.eq(1), peak.eq(value)]
            peaks.append(peak)
            somes.append(some)
        m.d.sync += [self.peak.eq(Array(peaks)[self.read]), self.some.eq(Array(somes)[self.read])]
        return m


class TileResults(wiring.Component):
    """Words of result slots: written 8 or 16 at a time, read 16.

    An exponent a row. A word that is written counts in ``peak`` :attr:`latency` cycles later.

    Parameters
    ----------
    slots : int
    lanes : int
        Words that are written in a cycle: 8 or 16.

    Members
    -------
    write : ``{valid, slot, row, beat, mask, exponent, words}``: words of a row; its exponent is the last that was
        written. Lanes without ``mask`` do not count in ``peak``.
    fresh : ``{valid, slot}``: the slot is empty; this cycle's words count.
    asked, slot, read, words, exponent, peak, some : those of :class:`~.tile_port.ResultSignature`.
    """

    latency = TilePeak.latency

    def __init__(self, *, slots, lanes=_HALF):
        self.slots = slots
        self.lanes = lanes
        slot = range(max(slots, 2))
        super().__init__(
            {
                "write": In(
                    data.StructLayout(
                        {
                            "valid": 1,
                            "slot": slot,
                            "row": range(EDGE),
                            "beat": range(EDGE // lanes),
                            "mask": lanes,
                            "exponent": signed(EXPONENT),
                            "words": data.ArrayLayout(signed(WORD), lanes),
                        }
                    )
                ),
                "fresh": In(data.StructLayout({"valid": 1, "slot": slot})),
                "asked": In(slot),
                "slot": In(slot),
                "read": In(TileRead),
                "words": Out(data.ArrayLayout(signed(WORD), 2 * _HALF)),
                "exponent": Out(signed(EXPONENT)),
                "peak": Out(signed(PEAK)),
                "some": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        write, bits, whole = self.write, (self.slots - 1).bit_length(), self.lanes > _HALF
        halves = []
        for half in range(2):
            m.submodules[f"half_{half}"] = kept = memory.Memory(
                shape=WORD * _HALF, depth=self.slots * EDGE * 4, init=[], attrs={"ram_style": "ultra"}
            )
            port, read = kept.write_port(), kept.read_port()
            m.d.comb += [
                port.en.eq(write.valid & (whole | (write.beat[0] == half))),
                port.addr.eq(Cat(write.beat[-2:], write.row, write.slot[:bits])),
                port.data.eq(write.words.as_value().word_select(half if whole else 0, WORD * _HALF)),
                read.en.eq(self.read.en),
                read.addr.eq(Cat(self.read.column, self.read.row, self.slot[:bits])),
            ]
            halves.append(read.data)
        m.submodules.rows = rows = memory.Memory(shape=signed(EXPONENT), depth=self.slots * EDGE, init=[])
        port, read = rows.write_port(), rows.read_port()
        m.d.comb += [
            port.en.eq(write.valid),
            port.addr.eq(Cat(write.row, write.slot[:bits])),
            port.data.eq(write.exponent),
            read.en.eq(self.read.en),
            read.addr.eq(Cat(self.read.row, self.slot[:bits])),
            self.words.eq(Cat(halves)),
            self.exponent.eq(read.data),
        ]
        peak = place(m, "peak", TilePeak(slots=self.slots, lanes=self.lanes), platform)
        m.d.comb += [
            peak.valid.eq(write.valid),
            peak.slot.eq(write.slot),
            peak.exponent.eq(write.exponent),
            peak.words.eq(write.words),
            peak.mask.eq(write.mask),
            peak.fresh.eq(self.fresh.valid),
            peak.fresh_slot.eq(self.fresh.slot),
            peak.read.eq(self.asked),
            self.peak.eq(peak.peak),
            self.some.eq(peak.some),
        ]
        return m


def results_of(m, port, slots, platform, lanes=_HALF):
    """Places result slots that a :class:`~.tile_port.ResultSignature` reads."""
    results = place(m, "results", TileResults(slots=slots, lanes=lanes), platform)
    m.d.comb += [
        port.refuse.eq(port.asked >= slots),
        results.asked.eq(port.asked),
        results.slot.eq(port.slot),
        results.read.eq(port.read),
        port.words[0].eq(results.words),
        *(getattr(port, name).eq(getattr(results, name)) for name in ("exponent", "peak", "some")),
    ]
    return results
