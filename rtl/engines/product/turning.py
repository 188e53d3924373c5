"""Memory of tiles whose rows and columns are read alike."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from ...formats.tiles.codes import EDGE
from ...formats.tiles.records import BEAT
from ...stream.delay import delay, registered
from ..tile_load import tile_write

__all__ = ["TurningMemory", "turning_read"]

_BITS = (EDGE - 1).bit_length()
_BEAT_BITS = (BEAT - 1).bit_length()


def turning_read(slots):
    """A line that is read.

    It is row ``line`` of a tile, or with ``turn`` column ``line``, from element ``first`` on, modulo 64.
    """
    return data.StructLayout({"slot": range(max(slots, 2)), "line": _BITS, "first": _BITS, "turn": 1})


class TurningMemory(wiring.Component):
    """Keeps tiles of bytes; reads parts of rows and of columns.

    The element of row r and column c is in bank (r + c) modulo ``banks``, so that neighbours in a row and in a column
    are in different banks. A line a cycle, :attr:`latency` cycles later; a beat of 32 bytes a cycle is written.

    ::

        write --> turn --> banks --> turn --> o
                             ^
        read --> addresses --+

    Parameters
    ----------
    banks : int
        Bytes that are read in a cycle: 32 or 64.
    slots : int

    Members
    -------
    write : see :func:`~..tile_load.tile_write`.
    read : see :func:`turning_read`. blank : the line that was read in the cycle before is zeros. o : ``banks`` bytes.
    """

    latency = 6

    def __init__(self, *, banks, slots):
        if banks not in (BEAT, EDGE):
            raise ValueError(f"banks={banks}: must be {BEAT} or {EDGE}")
        self.banks = banks
        self.slots = slots
        super().__init__(
            {"write": In(tile_write(slots)), "read": In(turning_read(slots)), "blank": In(1), "o": Out(8 * banks)}
        )

    def elaborate(self, platform):
        m = Module()
        banks, log = self.banks, (self.banks - 1).bit_length()
        blocks = EDGE // banks
        bits = max((self.slots - 1).bit_length(), 1)
        # A beat lies from bank row + 32 * beat on: its bytes turn within 32 banks, which are a beat's own.
        write = self.write
        codes = [write.data.word_select(n, 8) for n in range(BEAT)]
        turned = [registered(m, code) for code in _rotated(m, codes, (-write.row)[:_BEAT_BITS])]
        there = delay(m, write.valid, 1, reset_less=False)
        slot, row, beat = (delay(m, each, 1) for each in (write.slot, write.row, write.beat))
        begin = registered(m, (write.row + (write.beat << _BEAT_BITS))[:log])

        # The lowest bits of where the line begins say how far its bytes are turned.
        early = delay(m, self.read, 1)
        begins = (early.line + early.first)[:log]
        read, shift = delay(m, early, 1), registered(m, begins)
        line = read.line[:log]
        # The line's first element is in bank ``shift``; elements of the block behind its own are from bank ``line`` on,
        # and before ``shift``.
        straight = registered(m, begins < early.line[:log])
        out = []
        for bank in range(banks):
            m.submodules[f"bank_{bank}"] = kept = memory.Memory(
                shape=8, depth=self.slots * EDGE * blocks, init=[], attrs={"ram_style": "block"}
            )
            w, r = kept.write_port(), kept.read_port()
            m.d.comb += [
                w.en.eq(there & _looked_up(begin, lambda at, bank=bank: (bank - at) % banks < BEAT)),
                w.data.eq(turned[bank % BEAT]),
                w.addr.eq(self._address(beat >> (log - _BEAT_BITS), row, slot[:bits])),
            ]
            # Element of the line that the bank has.
            which = [_looked_up(line[: n + 1], lambda at, bank=bank, n=n: (bank - at) >> n & 1) for n in range(log)]
            if blocks > 1:
                after = registered(m, _looked_up(begins, lambda at, bank=bank: bank >= at))
                before = registered(m, _looked_up(early.line[:log], lambda at, bank=bank: bank < at))
                which.append((read.first >> log) + ~Mux(straight, after & before, after | before))
            address = Signal(len(r.addr), reset_less=True, name=f"address_{bank}")
            which = Cat(which)[:_BITS]
            natural = self._address(which >> log, read.line, read.slot[:bits])
            other = self._address(read.line >> log, which, read.slot[:bits])
            # mutant straight: m.d.sync += address.eq(natural)
            m.d.sync += address.eq(Mux(read.turn, other, natural))
            m.d.comb += r.addr.eq(address)
            out.append(r.data)
        # Back: by multiples of four, then by the rest.
        by = delay(m, shift, 2)
        coarse = [registered(m, byte) for byte in _rotated(m, out, by[2:], step=4)]
        rest, blank = delay(m, by[:2], 1), delay(m, self.blank, self.latency - 2)
        fine = [registered(m, Mux(blank, 0, byte)) for byte in _rotated(m, coarse, rest)]
        m.d.comb += self.o.eq(Cat(fine))
        return m

    def _address(self, block, row, slot):
        """Of a byte in its bank."""
        blocks = (EDGE // self.banks - 1).bit_length()
        return Cat(block[:blocks], row, slot)


def _rotated(m, values, by, *, step=1):
    """``values`` from ``step * by`` on, then those before.

    By two bits at a time: a LUT a bit for each.
    """
    count = len(values)
    for first in reversed(range(0, len(by), 2)):
        bits, before, values = by[first : first + 2], values, []
        for n in range(count):
            value = Signal(8)
            each = [before[(n + (k * step << first)) % count] for k in range(1 << len(bits))]
            m.d.comb += value.eq(Array(each)[bits])
            values.append(value)
    return values


def _looked_up(value, rule):
    """A bit that ``rule`` makes of a value of few bits: a LUT."""
    table = sum(bool(rule(at)) << at for at in range(1 << len(value)))
    return Const(table, 1 << len(value)).bit_select(value, 1)
