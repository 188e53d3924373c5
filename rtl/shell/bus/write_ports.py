"""Several AXI4 ports that write as one wide one; the design is that of :mod:`.read_ports`."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.utils import exact_log2

from ...stream.queue import PlainQueue, ShortQueue, stepped
from .axi import AXI4WriteSignature, Burst
from .read_ports import Ports, stripe_of

__all__ = ["WritePorts"]


class WritePorts(Ports):
    """Writes by several ports what is written at one.

    Bursts at ``wide`` are as those of :class:`~.read_ports.ReadPorts`, with all bytes; each is one burst of its port.
    An address passes in its cycle, data waits for its address. A port has a buffer of two bursts: a word that finds it
    empty is at the port 2 cycles later, a part a cycle. Words for a port whose buffer is full wait, and so do those
    after them. Responses are in order of the addresses; one is at ``wide`` 2 cycles after it came, if all before it
    have left. A port has at most ``outstanding`` bursts from an address's handshake until its response has left
    ``wide``, and its responses never wait. A response that nobody asked for since the reset is dropped.

    Parameters
    ----------
    ports, data_bits, port_bits, addr_bits, id_bits, outstanding
        See :class:`~.read_ports.ReadPorts`.

    Members
    -------
    wide : ``In(AXI4WriteSignature(data_bits))``
    port_0, ... : ``Out(AXI4WriteSignature(port_bits))``
    """

    bus = AXI4WriteSignature

    def elaborate(self, platform):
        m = Module()
        wide, ports = self.wide, [getattr(self, f"port_{n}") for n in range(self.ports)]
        width, depth = exact_log2(self.ports), self.ports * self.outstanding
        # Ports of the bursts whose data, and whose responses, are to come.
        m.submodules.turns = turns = PlainQueue(width=width, depth=depth)
        m.submodules.order = order = PlainQueue(width=width, depth=depth)
        to, asks, answers = Signal(width), Signal(), Signal()
        free, buffers, told = [], [], []
        for n, port in enumerate(ports):
            held, flying = (Signal(range(self.outstanding + 1), name=f"{name}_{n}") for name in ("held", "flying"))
            asked, answered, come = (Signal(name=f"{name}_{n}") for name in ("asked", "answered", "come"))
            m.d.comb += [
                asked.eq(asks & (to == n)),
                answered.eq(answers & (order.r_data == n)),
                come.eq(port.bvalid & flying.any()),
                port.awvalid.eq(wide.awvalid & (to == n) & ~held[-1] & order.w_rdy),
            ]
            m.d.sync += [held.eq(stepped(held, asked, answered)), flying.eq(stepped(flying, asked, come))]
            free.append(~held[-1] & port.awready)
            m.submodules[f"told_{n}"] = tell = ShortQueue(width=2, depth=max(self.outstanding, 2))
            m.d.comb += [tell.w_data.eq(port.bresp), tell.w_en.eq(come), tell.r_en.eq(answered), port.bready.eq(1)]
            told.append(Cat(tell.r_data, tell.r_rdy))
            buffers.append(self._data(m, n, port, turns))
        answer = Array(told)[order.r_data]
        moves = Signal()
        m.d.comb += [
            to.eq(stripe_of(wide.awaddr, self.ports, self.port_bits)),
            wide.awready.eq(Array(free)[to] & order.w_rdy),
            asks.eq(wide.awvalid & wide.awready),
            turns.w_data.eq(to),
            turns.w_en.eq(asks),
            order.w_data.eq(to),
            order.w_en.eq(asks),
            wide.wready.eq(turns.r_rdy & Array(buffer.w_rdy for buffer in buffers)[turns.r_data]),
            moves.eq(wide.wvalid & wide.wready),
            turns.r_en.eq(moves & wide.wlast),
            wide.bresp.eq(answer),
            wide.bvalid.eq(order.r_rdy & answer[-1]),
            answers.eq(wide.bvalid & wide.bready),
            order.r_en.eq(answers),
        ]
        return m

    def _data(self, m, n, port, turns):
        """The address's constants and the data of a port; returns its buffer."""
        wide, parts = self.wide, self.data_bits // self.port_bits
        m.submodules[f"buffer_{n}"] = buffer = ShortQueue(width=self.data_bits + 1, depth=2 * self.words)
        word, last = buffer.r_data[:-1], buffer.r_data[-1]
        part, moves = Signal(range(parts), name=f"part_{n}"), Signal(name=f"moves_{n}")
        final = part == parts - 1 if parts > 1 else Const(1, 1)
        m.d.comb += [
            *(getattr(port, name).eq(getattr(wide, name)) for name in ("awaddr", "awcache", "awprot", "awid")),
            port.awlen.eq(Cat(Const(parts - 1, exact_log2(parts)), wide.awlen)),
            port.awsize.eq(exact_log2(self.port_bits // 8)),
            port.awburst.eq(Burst.INCR),
            buffer.w_data.eq(Cat(wide.wdata, wide.wlast)),
            buffer.w_en.eq(wide.wvalid & turns.r_rdy & (turns.r_data == n)),
            port.wvalid.eq(buffer.r_rdy),
            port.wdata.eq(word.word_select(part, self.port_bits)),
            port.wstrb.eq(~0),
            port.wlast.eq(last & final),
            moves.eq(port.wvalid & port.wready),
            buffer.r_en.eq(moves & final),
        ]
        if parts > 1:
            with m.If(moves):
                m.d.sync += part.eq(Mux(final, 0, part + 1))
        return buffer
