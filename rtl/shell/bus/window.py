"""Checks transfers against the window and splits them into bursts."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from .axi import BOUNDARY, BURST_BEATS, check_data_bits

__all__ = ["WindowCheck", "absolute", "advance", "burst_beats", "measure"]


class WindowCheck(wiring.Component):
    """Checks a transfer against the window.

    Latency is 2 cycles; throughput is one check a cycle.

    Parameters
    ----------
    data_bits : :class:`int`
        Width of a beat.

    Members
    -------
    offset : ``In(32)``
        First byte, from the window's base.
    beats : ``In(24)``
    size : ``In(32)``
        Bytes in the window; read one cycle after ``offset``.
    empty, misaligned, outside : ``Out(1)``
        No beats; ``offset`` is not a multiple of a beat; some byte lies outside the window.
    """

    latency = 2

    def __init__(self, *, data_bits=128):
        check_data_bits(data_bits)
        self.shift = exact_log2(data_bits // 8)
        super().__init__(
            {
                "offset": In(32),
                "beats": In(24),
                "size": In(32),
                "empty": Out(1),
                "misaligned": Out(1),
                "outside": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        end = Signal(34)
        empty, misaligned = Signal(), Signal()
        m.d.sync += [
            end.eq(self.offset + (self.beats << self.shift)),
            empty.eq(self.beats == 0),
            misaligned.eq(self.offset[: self.shift].any()),
            self.outside.eq(end > self.size),
            self.empty.eq(empty),
            self.misaligned.eq(misaligned),
        ]
        return m


def burst_beats(offset, beats, *, data_bits, longest=BURST_BEATS):
    """``(length, final, room)`` of the burst at ``offset``.

    ``beats`` remain in the transfer; ``longest``, a power of two, are those of a whole burst.

    A burst ends at the next multiple of a whole burst (``room``) or with the transfer (``final``). Bursts
    that end on multiples of their longest length cross no 4 KB boundary, and only a transfer's first and last
    are short.
    """
    assert BOUNDARY % (longest * data_bits // 8) == 0
    shift, bits = exact_log2(data_bits // 8), exact_log2(longest)
    room = (Const(longest, bits + 1) - offset[shift : shift + bits])[: bits + 1]
    # Apart from the subtraction of what remains, to keep the logic shallow.
    final = ~beats[bits + 1 :].any() & (beats[: bits + 1] <= room)
    return Mux(final, beats[: bits + 1], room), final, room


def absolute(base, offset):
    """``base + offset`` for a base that is a multiple of 4096."""
    low = exact_log2(BOUNDARY)
    return Cat(offset[:low], (base[low:] + offset[low:])[: len(base) - low])


def measure(m, offset, beats, *, data_bits, longest=BURST_BEATS):
    """``(last, final, room)`` of a burst, in registers.

    As :func:`burst_beats`, but ``last`` is the length less one, as buses and queues have it. The result is a cycle
    behind ``offset`` and ``beats``.
    """
    _, final, room = burst_beats(offset, beats, data_bits=data_bits, longest=longest)
    shift, bits = exact_log2(data_bits // 8), exact_log2(longest)
    registers = Signal(bits, name="last"), Signal(name="final"), Signal(bits + 1, name="room")
    # A beat less than ``room`` is no subtraction.
    last = Mux(final, (beats[: bits + 1] - 1)[:bits], ~offset[shift : shift + bits])
    m.d.sync += [register.eq(value) for register, value in zip(registers, (last, final, room))]
    return registers


def advance(offset, *, data_bits, longest=BURST_BEATS):
    """``offset`` after a burst that was not a transfer's last.

    It is the next multiple of a whole burst.
    """
    low = exact_log2(data_bits // 8) + exact_log2(longest)
    return Cat(Const(0, low), (offset[low:] + 1)[: 32 - low])
