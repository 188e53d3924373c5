"""AXI4-Lite decoder, generated from the register map."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from ..bus.axi import AXILiteSignature, Resp
from .regtable import REGISTERS

__all__ = ["RegisterFile"]

_ADDR_BITS = 12


def _layout(pick):
    """Layout with one member a register.

    It is made of the fields that ``pick`` selects.
    """
    out = {}
    for r in REGISTERS:
        fields = {f.name: f.width for f in r.fields if pick(f)}
        if fields:
            out[r.name] = data.StructLayout(fields)
    return data.StructLayout(out)


class RegisterFile(wiring.Component):
    """Holds and decodes the registers of ``registers.rdl``.

    Write address and write data may arrive in any order and far apart. A write takes effect, and is answered,
    2 cycles after the later of the two; a read is answered after 2 cycles. One transaction of each kind at a
    time. Every output of the bus is a register: no ``ready`` depends on a ``valid`` combinationally.
    The two lowest address bits are ignored. ``SLVERR`` answers an address that is not a register's, a write
    to a register without writable fields, and a write to a register while what locks it is ``busy``; none of them
    has an effect.

    Parameters
    ----------
    requests : :class:`bool`
        Without them, there are neither registers nor bits of that name.

    Members
    -------
    bus : ``In(AXILiteSignature(addr_bits=12, data_bits=32))``
    busy : ``In(Busy)``
        Whether a program runs, whether a request is pending or runs: what is locked then refuses writes.
    stored : ``Out(RegisterFile.Stored)``
        What software wrote, by register and field (``stored.WINDOW_SIZE.value``).
    pulse : ``Out(RegisterFile.Pulse)``
        High for one cycle after software wrote 1 (``pulse.CONTROL.bell``).
    written : ``Out(REGISTER: 1)``
        High for one cycle, with the old value still in ``stored``, when a stored register is being written,
        and ``wdata`` is the new value.
    wdata : ``Out(32)``
    raddr : ``Out(12)``
        Address of the read that is being answered, for values that are looked up.
    value : ``In(RegisterFile.Value)``
        What the hardware supplies to read.
    set : ``In(RegisterFile.Set)``
        Sets bits that software clears by writing 1 (``set.IRQ_STATUS.done``); a set wins over a clear.
    """

    Stored = _layout(lambda f: f.stored)
    Pulse = _layout(lambda f: f.pulse)
    Value = _layout(lambda f: f.readable and not f.stored and not f.constant)
    Set = _layout(lambda f: f.clear_on_one)
    Written = data.StructLayout({r.name: 1 for r in REGISTERS if any(f.stored for f in r.fields)})
    Busy = data.StructLayout({"program": 1, "request": 1})

    def __init__(self, *, requests=True):
        self.requests = requests
        super().__init__(
            {
                "bus": In(AXILiteSignature(addr_bits=_ADDR_BITS, data_bits=32)),
                "busy": In(self.Busy),
                "stored": Out(self.Stored),
                "pulse": Out(self.Pulse),
                "written": Out(self.Written),
                "wdata": Out(32),
                "raddr": Out(_ADDR_BITS),
                "value": In(self.Value),
                "set": In(self.Set),
            }
        )

    def elaborate(self, platform):
        m = Module()
        registers = [r for r in REGISTERS if self.requests or not r.name.startswith("REQUEST_")]

        # The registers reset to what the map says, so each is a signal of its own.
        held = {}
        for r in registers:
            for f in self._fields(r):
                if f.stored:
                    held[r.name, f.name] = s = Signal(f.width, init=f.reset, name=f"{r.name}_{f.name}")
                    m.d.comb += self.stored[r.name][f.name].eq(s)

        wdata, wstrb, takes = self._take_writes(m, registers)
        self._store(m, registers, held, wdata, Cat(b.replicate(8) for b in wstrb), takes)
        self._answer_reads(m, registers, held)
        return m

    def _fields(self, r):
        return [f for f in r.fields if self.requests or f.name != "request"]

    def _take_writes(self, m, registers):
        """Takes writes: catches, decodes and executes them.

        Address and data are caught apart, decoded in the next cycle, and executed in the one after.

        Returns data and strobes, and for each register whether it takes them.
        """
        bus = self.bus
        have_aw, have_w, decoded = Signal(), Signal(), Signal()
        waddr = Signal(_ADDR_BITS)
        wdata, wstrb = Signal(32), Signal(4)
        select = Signal(len(registers))
        locked = Signal()
        m.d.comb += self.wdata.eq(wdata)
        with m.If(bus.awvalid & bus.awready):
            m.d.sync += [waddr.eq(bus.awaddr), have_aw.eq(1)]
        with m.If(bus.wvalid & bus.wready):
            m.d.sync += [wdata.eq(bus.wdata), wstrb.eq(bus.wstrb), have_w.eq(1)]
        m.d.sync += [
            bus.awready.eq(~have_aw & ~(bus.awvalid & bus.awready)),
            bus.wready.eq(~have_w & ~(bus.wvalid & bus.wready)),
        ]

        act = Signal()
        m.d.comb += act.eq(decoded & ~bus.bvalid)
        # mutant without-data: m.d.sync += decoded.eq(have_aw & ~act & ~bus.bvalid)
        m.d.sync += decoded.eq(have_aw & have_w & ~act & ~bus.bvalid)
        hits = Cat((waddr[2:] == r.address >> 2) if r.writable else Const(0, 1) for r in registers)
        m.d.sync += select.eq(hits)
        busy = {"machine": self.busy.as_value().any()}
        m.d.sync += locked.eq(
            Cat(
                Cat(h for h, r in zip(hits, registers) if r.locked == by).any()
                & (busy[by] if by in busy else self.busy[by])
                for by in sorted({r.locked for r in registers} - {""})
            ).any()
        )
        refuse = Signal()
        m.d.comb += refuse.eq(locked | ~select.any())
        with m.If(act):
            m.d.sync += [
                bus.bvalid.eq(1),
                bus.bresp.eq(refuse.replicate(2) & int(Resp.SLVERR)),
                have_aw.eq(0),
                have_w.eq(0),
            ]
        with m.If(bus.bvalid & bus.bready):
            m.d.sync += bus.bvalid.eq(0)
        takes = []
        for index, r in enumerate(registers):
            take = Signal(name=f"take_{r.name}")
            m.d.comb += take.eq(act & select[index] & ~locked)
            takes.append(take)
        return wdata, wstrb, takes

    def _store(self, m, registers, held, wdata, mask, takes):
        """Stores written values in the registers, or gives them as pulses."""
        for r, take in zip(registers, takes):
            if r.name in self.Written.members:
                m.d.comb += self.written[r.name].eq(take)
            for f in self._fields(r):
                bits = slice(f.lsb, f.lsb + f.width)
                if f.pulse:
                    m.d.sync += self.pulse[r.name][f.name].eq(
                        # mutant without-strobes: wdata[bits] & take.replicate(f.width)
                        (wdata & mask)[bits] & take.replicate(f.width)
                    )
                elif f.clear_on_one:
                    clear = (wdata & mask)[bits] & take.replicate(f.width)
                    m.d.sync += held[r.name, f.name].eq(
                        # mutant clear-first: (held[r.name, f.name] | self.set[r.name][f.name]) & ~clear
                        held[r.name, f.name] & ~clear | self.set[r.name][f.name]
                    )
                elif f.stored:
                    h = held[r.name, f.name]
                    with m.If(take):
                        m.d.sync += h.eq((wdata[bits] & mask[bits]) | (h & ~mask[bits]))

    def _answer_reads(self, m, registers, held):
        """Catches the address, looks up in the next cycle."""
        bus = self.bus
        raddr = Signal(_ADDR_BITS)
        have_ar = Signal()
        m.d.comb += self.raddr.eq(raddr)
        with m.If(bus.arvalid & bus.arready):
            m.d.sync += [raddr.eq(bus.araddr), have_ar.eq(1)]
        m.d.sync += bus.arready.eq(~have_ar & ~bus.rvalid & ~(bus.arvalid & bus.arready))
        with m.If(have_ar & ~bus.rvalid):
            m.d.sync += [bus.rvalid.eq(1), have_ar.eq(0)]
            with m.Switch(raddr[2:]):
                for r in registers:
                    with m.Case(r.address >> 2):
                        m.d.sync += [bus.rdata.eq(self._word(r, held)), bus.rresp.eq(Resp.OKAY)]
                with m.Default():
                    m.d.sync += [bus.rdata.eq(0), bus.rresp.eq(Resp.SLVERR)]
        with m.If(bus.rvalid & bus.rready):
            m.d.sync += bus.rvalid.eq(0)

    def _word(self, r, held):
        """A register as it is read."""
        word = []
        for f in sorted(self._fields(r), key=lambda f: f.lsb):
            word.append(Const(0, f.lsb - sum(len(p) for p in word)))
            if not f.readable:
                word.append(Const(0, f.width))
            elif f.constant:
                word.append(Const(f.reset, f.width))
            elif f.stored:
                word.append(held[r.name, f.name])
            else:
                word.append(self.value[r.name][f.name])
        return Cat(word)
