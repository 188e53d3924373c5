"""Memory of tiles whose rows and columns are read alike."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from ...formats.tile_codes import EDGE
from ...formats.tile_records import BEAT
from ...stream.delay import delay
from ..tile_load import tile_write

__all__ = ["TurningMemory", "turning_read"]

_BITS = (EDGE - 1).bit_length()


def turning_read(slots):
    """A line that is read.

    It is row ``line`` of a tile, or with ``turn`` column ``line``, from element ``first`` on, modulo 64.
    """
    return data.StructLayout({"slot": range(max(slots, 2)), "line": _BITS, "first": _BITS, "turn": 1})


class TurningMemory(wiring.Component):
    """Keeps tiles of bytes; reads parts of rows and of columns.

    The element of row r and column c is in bank (r + c) modulo ``banks``, so that neighbours in a row and in a column
    are in different banks. A line a cycle, :attr:`latency` cycles later; a beat of 16 bytes a cycle is written.

    ::

        write --> turn --> banks --> turn --> o
                             ^
        read --> addresses --+

    Parameters
    ----------
    banks : int
        Bytes that are read in a cycle: 16, 32 or 64.
    slots : int

    Members
    -------
    write : see :func:`~..tile_load.tile_write`.
    read : see :func:`turning_read`. o : ``banks`` bytes.
    """

    latency = 6

    def __init__(self, *, banks, slots):
        if banks not in (16, 32, 64):
            raise ValueError(f"banks={banks}: must be 16, 32 or 64")
        self.banks = banks
        self.slots = slots
        super().__init__({"write": In(tile_write(slots)), "read": In(turning_read(slots)), "o": Out(8 * banks)})

    def elaborate(self, platform):
        m = Module()
        banks, log = self.banks, (self.banks - 1).bit_length()
        blocks = EDGE // banks
        bits = max((self.slots - 1).bit_length(), 1)
        # A beat lies from bank row + 16 * beat on: its bytes turn within 16 banks, which are a beat's own.
        write = self.write
        codes = Array(write.data.word_select(n, 8) for n in range(BEAT))
        turned = [Signal(8, reset_less=True, name=f"turned_{n}") for n in range(BEAT)]
        m.d.sync += [byte.eq(codes[(n - write.row)[:4]]) for n, byte in enumerate(turned)]
        there = delay(m, write.valid, 1, reset_less=False)
        slot, row, beat = (delay(m, each, 1) for each in (write.slot, write.row, write.beat))
        begin = Signal(log)
        m.d.comb += begin.eq(row + (beat << 4))

        # The lowest bits of where the line begins say how far its bytes are turned.
        first = delay(m, self.read, 1)
        read, shift = delay(m, first, 1), Signal(log, reset_less=True)
        m.d.sync += shift.eq(first.line + first.first)
        out = []
        for bank in range(banks):
            m.submodules[f"bank_{bank}"] = kept = memory.Memory(
                shape=8, depth=self.slots * EDGE * blocks, init=[], attrs={"ram_style": "block"}
            )
            w, r = kept.write_port(), kept.read_port()
            place, which = Signal(log, name=f"place_{bank}"), Signal(_BITS, name=f"which_{bank}")
            m.d.comb += [
                place.eq(bank - begin),
                w.en.eq(there & (place < BEAT)),
                w.data.eq(turned[bank % BEAT]),
                w.addr.eq(self._address(beat >> (log - 4), row, slot[:bits])),
            ]
            # Element of the line that the bank has.
            at = Signal(log, name=f"at_{bank}")
            m.d.comb += [at.eq(bank - shift), which.eq(read.first + at)]
            address = Signal(len(r.addr), reset_less=True, name=f"address_{bank}")
            natural = self._address(which >> log, read.line, read.slot[:bits])
            other = self._address(read.line >> log, which, read.slot[:bits])
            # mutant straight: m.d.sync += address.eq(natural)
            m.d.sync += address.eq(Mux(read.turn, other, natural))
            m.d.comb += r.addr.eq(address)
            out.append(r.data)
        # Back: by multiples of four, then by the rest.
        by = delay(m, shift, 2)
        coarse = []
        for n in range(banks):
            byte = Signal(8, reset_less=True, name=f"coarse_{n}")
            m.d.sync += byte.eq(Array(out[(n + 4 * step) % banks] for step in range(banks // 4))[by[2:]])
            coarse.append(byte)
        rest = delay(m, by[:2], 1)
        fine = []
        for n in range(banks):
            byte = Signal(8, reset_less=True, name=f"fine_{n}")
            m.d.sync += byte.eq(Array(coarse[(n + step) % banks] for step in range(4))[rest])
            fine.append(byte)
        m.d.comb += self.o.eq(Cat(fine))
        return m

    def _address(self, block, row, slot):
        """Of a byte in its bank."""
        blocks = (EDGE // self.banks - 1).bit_length()
        return Cat(block[:blocks], row, slot)
