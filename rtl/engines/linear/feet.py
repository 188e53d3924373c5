"""At the feet of the array: sums over the tiles of a layer's input."""

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...formats.weights.linear import ACTIVATION, SUM
from ...hierarchy import place
from ...stream.delay import delay
from ..words import PRECISION, Requantize
from .parameters import LinearParameters

__all__ = ["SumTag", "address_bits", "Foot", "HiddenFoot", "HiddenWord"]


def address_bits(config: LinearParameters):
    """Address of a sum: part of the tile, and token."""
    return ceil_log2(config.subtiles) + ceil_log2(config.tokens)


def SumTag(config):
    """Origin of a sum: tile of the input, bank, and rank index.

    ``first`` and ``last`` tile of the input, ``bank`` of the sums. For the adapter's product (``hidden``): the ``rank``
    index and the ``slot`` in which h is kept.
    """
    return data.StructLayout(
        {
            "valid": 1,
            "first": 1,
            "last": 1,
            "bank": 1,
            "address": address_bits(config),
            "hidden": 1,
            "rank": range(config.rank),
            "slot": 1,
            "shift": 6,
        }
    )


class Foot(wiring.Component):
    """Sums of one column, in two banks.

    One bank accumulates while the other is read.

    Members
    -------
    tag, p : a sum and what it is. It is in memory 4 cycles later.
    read : bank and address, if ``valid``; ``o`` of that bank is there 2 cycles later. It must not be in use.
    """

    def __init__(self, config):
        self.config = config
        super().__init__(
            {
                "tag": In(SumTag(config)),
                "p": In(signed(PRECISION.sum)),
                "read": In(data.StructLayout({"valid": 1, "bank": 1, "address": address_bits(config)})),
                "o": Out(data.ArrayLayout(signed(SUM), 2)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        depth = 1 << address_bits(self.config)
        later = delay(m, self.tag, 2, reset_less=False)
        sum_ = Signal(signed(SUM), reset_less=True)
        done = delay(m, later, 1, reset_less=False)
        outs = []
        for bank in range(2):
            # One of the two leaves block RAMs to others where there is ultra RAM.
            attrs = {"ram_style": "ultra"} if self.config.ultra and bank == 0 else {}
            m.submodules[f"bank_{bank}"] = bank_memory = memory.Memory(
                shape=signed(SUM), depth=depth, init=[], attrs=attrs
            )
            read, write = bank_memory.read_port(), bank_memory.write_port()
            kept = Signal(signed(SUM), reset_less=True)
            m.d.comb += [
                read.addr.eq(Mux(self.read.valid & (self.read.bank == bank), self.read.address, self.tag.address)),
                write.addr.eq(done.address),
                write.data.eq(sum_),
                write.en.eq(done.valid & (done.bank == bank)),
            ]
            m.d.sync += kept.eq(read.data)
            outs.append(kept)
        before = Mux(later.bank, outs[1], outs[0])
        # mutant sum-of-46-bits: m.d.sync += sum_.eq(delay(m, self.p, 2) + Mux(later.first, 0, before[:46].as_signed()))
        m.d.sync += sum_.eq(delay(m, self.p, 2) + Mux(later.first, 0, before))
        m.d.comb += [o.eq(out) for o, out in zip(self.o, outs)]
        return m


def HiddenWord(config):
    """A word of h: ``rank`` index and ``token``."""
    return data.StructLayout(
        {
            "valid": 1,
            "rank": range(config.rank),
            "slot": 1,
            "token": range(config.tokens),
            "value": signed(ACTIVATION.width),
        }
    )


class HiddenFoot(wiring.Component):
    """Sums of the adapter's column; the last tile's leave as words of h.

    Members
    -------
    tag, p : a sum and what it is.
    o : h, :attr:`latency` cycles after its last sum. saturated : it was clipped.
    """

    latency = 3 + Requantize.latency

    def __init__(self, config):
        self.config = config
        super().__init__(
            {
                "tag": In(SumTag(config)),
                "p": In(signed(PRECISION.sum)),
                "o": Out(HiddenWord(config)),
                "saturated": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.sums = sums = memory.Memory(shape=signed(SUM), depth=1 << address_bits(config), init=[])
        read, write = sums.read_port(), sums.write_port()
        later = delay(m, self.tag, 2, reset_less=False)
        done = delay(m, later, 1, reset_less=False)
        kept, sum_ = Signal(signed(SUM), reset_less=True), Signal(signed(SUM), reset_less=True)
        m.d.sync += [
            kept.eq(read.data),
            # mutant hidden-sum-of-46-bits: sum_.eq(delay(m, self.p, 2) + Mux(later.first, 0, kept[:46].as_signed())),
            sum_.eq(delay(m, self.p, 2) + Mux(later.first, 0, kept)),
        ]
        requantize = place(m, "requantize", Requantize(width=SUM, result=ACTIVATION.width), platform)
        out = delay(m, done, Requantize.latency, reset_less=False)
        leaves = out.valid & out.last & out.hidden
        m.d.comb += [
            read.addr.eq(self.tag.address),
            write.addr.eq(done.address),
            write.data.eq(sum_),
            write.en.eq(done.valid),
            requantize.i.eq(sum_),
            requantize.shift.eq(done.shift),
            self.o.valid.eq(leaves),
            self.o.rank.eq(out.rank),
            self.o.slot.eq(out.slot),
            self.o.token.eq(out.address[: ceil_log2(config.tokens)]),
            self.o.value.eq(requantize.o),
            self.saturated.eq(leaves & requantize.saturated),
        ]
        return m
