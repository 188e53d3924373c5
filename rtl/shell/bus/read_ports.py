"""Several AXI4 ports that read as one wide one.

Design of the memory side with ``ports`` managers, which :mod:`.write_ports` shares::

                       one stream of W bits                          P bits each
    LOAD, fetch --> ReadDMA ---- address --> by stripe --+--> port 0 --> words --> buffer --+
                       ^                                 +--> port 1 --> words --> buffer --+
                       +---- words, in order of addresses <-- the burst whose turn it is <--+
    STORE -------> WriteDMA ---- words, by stripe --+--> buffer --> parts --> port 0 --+
                       ^                            +--> buffer --> parts --> port 1 --+
                       +---- responses, in order of addresses <------------------------+

*One stream, not two LOADs.* Engines, records and programs know one LOAD that fills one load port at a time, and the
engines that wait for memory wait for one stream each: the language machine for codes of weights (256 bits are a row of
a tile of 64), the tile machine for the tile that comes next. So commands, window checks, errors and counters stay where
they are, once: what is inside the window, and not across a stripe, is so on every port. Only bursts are dealt out. A
wide stream (W = ports x P) doubles what a machine reads whose engines take such beats; a stream as wide as a port
(W = P) has twice the reads in flight, which is what a slow memory, or a port that keeps 8 reads, is short of.

*A stripe is a burst*: 16 beats of a port, 256 bytes at 128 bits, ``stripe`` below. Bits of the address above these
choose the port, so a burst lies in one port, and a transfer of two bursts keeps two ports busy. With
pages of 4 KiB a transfer below 4 KiB would have one port, and a reader that keeps the order would have to keep a page.
The price: transfers of one stripe each at a stride of ``ports`` stripes use one port.

*A port never waits for another.* A port's buffer has room for all that may be in flight there, reserved with the
address: ``rready`` is always high, and when a beat comes depends on its port alone. 16 bursts are a quarter of four
block RAMs at 256 bits.
"""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from ...hierarchy import place
from ...stream.queue import LongQueue, PlainQueue, stepped
from .axi import BURST_BEATS, AXI4ReadSignature, Burst

__all__ = ["Ports", "ReadPorts", "burst_words", "stripe_of"]


def burst_words(data_bits, port_bits):
    """Beats of ``data_bits`` in the longest burst of a port of ``port_bits``."""
    for name, bits in (("data_bits", data_bits), ("port_bits", port_bits)):
        if bits not in (64, 128, 256, 512):
            raise ValueError(f"{name} is {bits!r}, must be one of 64, 128, 256, 512")
    if not port_bits <= data_bits <= 4 * port_bits:
        raise ValueError(f"data_bits is {data_bits}, must be 1, 2 or 4 times port_bits={port_bits}")
    return BURST_BEATS * port_bits // data_bits


def stripe_of(address, ports, port_bits):
    """Number of the port of an address: the bits above those of a burst."""
    low = exact_log2(BURST_BEATS * port_bits // 8)
    return address[low : low + exact_log2(ports)]


class Ports(wiring.Component):
    """What readers and writers by several ports have: ``wide``, and the ports.

    Attributes
    ----------
    bus : type
        Signature of all of them, of a subclass.
    words : :class:`int`
        :func:`burst_words`.
    """

    def __init__(self, *, ports=2, data_bits=256, port_bits=128, addr_bits=64, id_bits=1, outstanding=16):
        if ports not in (2, 4):
            raise ValueError(f"ports is {ports!r}, must be 2 or 4")
        self.ports, self.data_bits, self.port_bits, self.outstanding = ports, data_bits, port_bits, outstanding
        self.words = burst_words(data_bits, port_bits)
        common = {"addr_bits": addr_bits, "id_bits": id_bits}
        super().__init__(
            {
                "wide": In(self.bus(data_bits=data_bits, **common)),
                **{f"port_{n}": Out(self.bus(data_bits=port_bits, **common)) for n in range(ports)},
            }
        )


class ReadPorts(Ports):
    """Reads by several ports what is asked for at one.

    Bursts at ``wide`` are INCR, of at most :func:`burst_words` beats, and cross no multiple of these: each is one burst
    of the port that :func:`stripe_of` names, with the same address. Answers are in order of the addresses, for any
    latency of each port. An address passes in its cycle; with all quiet, a beat of ``wide`` is there 2 cycles after its
    last part came, then one a cycle. A port has at most ``outstanding`` bursts from an address's handshake until its
    last beat has left ``wide``, and is never held.

    A beat's response is the worst of its parts': SLVERR and DECERR are DECERR. What a port brings that nobody asked for
    since the reset is dropped.

    Parameters
    ----------
    ports : :class:`int`
        2 or 4.
    data_bits, port_bits : :class:`int`
        Of ``wide``, and of a port: 1, 2 or 4 of these make one beat of ``wide``.
    addr_bits, id_bits : :class:`int`
        Of all of them. Ids are 0.
    outstanding : :class:`int`
        Bursts of a port, a power of two.

    Members
    -------
    wide : ``In(AXI4ReadSignature(data_bits))``
    port_0, ... : ``Out(AXI4ReadSignature(port_bits))``
    """

    bus = AXI4ReadSignature

    def elaborate(self, platform):
        m = Module()
        wide, ports = self.wide, [getattr(self, f"port_{n}") for n in range(self.ports)]
        turn = data.StructLayout({"port": exact_log2(self.ports), "last": exact_log2(self.words)})
        m.submodules.turns = turns = PlainQueue(width=turn.size, depth=self.ports * self.outstanding)
        comes, goes = data.View(turn, turns.w_data), data.View(turn, turns.r_data)
        asks, ends, buffers, free = Signal(), Signal(), [], []
        for n, port in enumerate(ports):
            mine = Signal(name=f"mine_{n}")
            m.d.comb += mine.eq(comes.port == n)
            buffer, room = self._port(m, n, port, platform, asks & mine, ends & (goes.port == n))
            buffers.append(buffer)
            free.append(room)
            m.d.comb += [
                port.arvalid.eq(wide.arvalid & mine & room & turns.w_rdy),
                buffer.r_en.eq(turns.r_rdy & (goes.port == n) & wide.rready),
            ]
        ready = Array(port.arready & room for port, room in zip(ports, free))
        word = Array(Cat(buffer.r_data, buffer.r_rdy) for buffer in buffers)[goes.port]
        sent, ending, moves = Signal(exact_log2(self.words)), Signal(), Signal()
        m.d.comb += [
            comes.port.eq(stripe_of(wide.araddr, self.ports, self.port_bits)),
            comes.last.eq(wide.arlen),
            wide.arready.eq(ready[comes.port] & turns.w_rdy),
            asks.eq(wide.arvalid & wide.arready),
            turns.w_en.eq(asks),
            ending.eq(sent == goes.last),
            wide.rlast.eq(ending),
            Cat(wide.rdata, wide.rresp).eq(word),
            wide.rvalid.eq(turns.r_rdy & word[-1]),
            moves.eq(wide.rvalid & wide.rready),
            ends.eq(moves & ending),
            turns.r_en.eq(ends),
        ]
        with m.If(moves):
            m.d.sync += sent.eq(Mux(ending, 0, sent + 1))
        return m

    def _port(self, m, n, port, platform, asks, ends):
        """Makes the channels of a port; returns its buffer, and whether it has room for a burst.

        ``asks``, ``ends``: a burst begins, or has left the buffer.
        """
        parts = self.data_bits // self.port_bits
        depth = self.outstanding * self.words
        buffer = place(m, f"buffer_{n}", LongQueue(width=self.data_bits + 2, depth=depth), platform)
        # Bursts that have a place, and those of them whose answers still come.
        held, flying = (Signal(range(self.outstanding + 1), name=f"{name}_{n}") for name in ("held", "flying"))
        come, whole = Signal(name=f"come_{n}"), Signal(name=f"whole_{n}")
        wide = self.wide
        m.d.sync += [held.eq(stepped(held, asks, ends)), flying.eq(stepped(flying, asks, come & port.rlast))]
        m.d.comb += [
            *(getattr(port, name).eq(getattr(wide, name)) for name in ("araddr", "arcache", "arprot", "arid")),
            port.arlen.eq(Cat(Const(parts - 1, exact_log2(parts)), wide.arlen)),
            port.arsize.eq(exact_log2(self.port_bits // 8)),
            port.arburst.eq(Burst.INCR),
            port.rready.eq(1),
            come.eq(port.rvalid & flying.any()),
            buffer.w_en.eq(come & whole),
        ]
        if parts == 1:
            m.d.comb += [whole.eq(1), buffer.w_data.eq(Cat(port.rdata, port.rresp))]
        else:
            # The parts before the last, the first in the lowest bits.
            before = Signal((parts - 1) * self.port_bits, name=f"before_{n}", reset_less=True)
            part, worst = Signal(range(parts), name=f"part_{n}"), Signal(2, name=f"worst_{n}")
            m.d.comb += [whole.eq(part == parts - 1), buffer.w_data.eq(Cat(before, port.rdata, port.rresp | worst))]
            with m.If(come):
                m.d.sync += [
                    before.eq(Cat(before, port.rdata)[self.port_bits :]),
                    part.eq(part + 1),
                    worst.eq(Mux(whole, 0, port.rresp | worst)),
                ]
        return buffer, ~held[-1]
