"""Memories of the norm engine: operands, exponents, statistics."""

from amaranth.hdl import Cat, Const, Module, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ...formats.tiles.codes import EDGE, WIDE
from ...formats.tiles.records import BEAT
from ...hierarchy import place
from ...stream.delay import delay
from ..tile_load import SlotMemory, tile_exponent, tile_write
from .lane import GradientWord, GroupWord

__all__ = ["NormGains", "NormOperand", "NormKnown", "GAINS"]

#: Slots of gains and biases.
GAINS = 32


class NormOperand(wiring.Component):
    """Tiles of an operand in slots, and their exponents.

    Parameters
    ----------
    slots : int
    lanes : int
        Codes that are read: 8 or 16.
    both : bool
        Tiles may have codes of 8 bits.

    Members
    -------
    write, exponent : of :func:`~..tile_load.records`.
    slot, row, half : of the codes that are read, see :class:`~..tile_load.SlotMemory`. codes, at : they and the tile's
        exponent, a cycle later.
    """

    def __init__(self, *, slots, lanes, both):
        self.slots = slots
        self.lanes = lanes
        self.both = both
        super().__init__(
            {
                "write": In(tile_write(slots)),
                "exponent": In(tile_exponent(slots)),
                "slot": In(range(slots)),
                "row": In(range(EDGE)),
                "half": In(3),
                "codes": Out(WIDE * lanes),
                "at": Out(signed(8)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        tiles = place(m, "tiles", SlotMemory(slots=self.slots, lanes=self.lanes, both=self.both), platform)
        kind = data.StructLayout({"at": signed(8), "short": 1})
        m.submodules.exponents = exponents = Memory(shape=kind, depth=self.slots, init=[])
        own, at = exponents.write_port(), exponents.read_port(domain="comb")
        if self.both:
            m.d.comb += tiles.short.eq(at.data.short)
        m.d.comb += [
            tiles.write.eq(self.write),
            *(getattr(tiles, name).eq(getattr(self, name)) for name in ("slot", "row", "half")),
            self.codes.eq(tiles.o),
            own.en.eq(self.exponent.valid),
            own.addr.eq(self.exponent.slot),
            own.data.at.eq(self.exponent.exponent),
            own.data.short.eq(self.exponent.short),
            at.addr.eq(self.slot),
        ]
        m.d.sync += self.at.eq(at.data.at)
        return m


class NormGains(wiring.Component):
    """Gains and biases: a row a slot, of which two are read at once.

    Parameters
    ----------
    lanes : int
        Codes of each that are read: 8 or 16.

    Members
    -------
    write, exponent : of :class:`~..tile_load.TileIntake`.
    gain, bias : slots. half : of both. gains, biases, gain_at, bias_at : codes and an exponent each, a cycle later.
    """

    def __init__(self, *, lanes):
        self.lanes = lanes
        super().__init__(
            {
                "write": In(tile_write(GAINS)),
                "exponent": In(tile_exponent(GAINS)),
                "gain": In(range(GAINS)),
                "bias": In(range(GAINS)),
                "half": In(3),
                "gains": Out(WIDE * lanes),
                "biases": Out(WIDE * lanes),
                "gain_at": Out(signed(8)),
                "bias_at": Out(signed(8)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.rows = rows = Memory(
            shape=unsigned(8 * BEAT), depth=GAINS * 4, init=[], attrs={"ram_style": "distributed"}
        )
        m.submodules.exponents = exponents = Memory(shape=signed(8), depth=GAINS, init=[])
        into, own = rows.write_port(), exponents.write_port()
        m.d.comb += [
            into.en.eq(self.write.valid),
            into.addr.eq(Cat(self.write.beat, self.write.slot)),
            into.data.eq(self.write.data),
            own.en.eq(self.exponent.valid),
            own.addr.eq(self.exponent.slot),
            own.data.eq(self.exponent.exponent),
        ]
        for slot, codes, exponent in ((self.gain, self.gains, self.gain_at), (self.bias, self.biases, self.bias_at)):
            read, at = rows.read_port(), exponents.read_port(domain="comb")
            m.d.comb += [
                read.addr.eq(Cat(self.half[1:], slot)),
                codes.eq(read.data if self.lanes == 16 else read.data.word_select(delay(m, self.half[0], 1), 4 * BEAT)),
                at.addr.eq(slot),
            ]
            m.d.sync += exponent.eq(at.data)
        return m


class NormKnown(wiring.Component):
    """What is known of groups, for each lane to look up its own.

    Parameters
    ----------
    lanes : int

    Members
    -------
    group, slope : writes of :class:`~.statistics.NormStatistics`.
    columns, size, row, beat : of the beat that is read: features are in groups of ``2**size``, else a group is a row.
    groups, slopes : of its lanes, a cycle later.
    """

    def __init__(self, *, lanes):
        self.lanes = lanes

        def write(word):
            return data.StructLayout({"valid": 1, "index": range(EDGE), "word": word})

        super().__init__(
            {
                "group": In(write(GroupWord)),
                "slope": In(write(GradientWord)),
                "columns": In(1),
                "size": In(3),
                "row": In(range(EDGE)),
                "beat": In(range(EDGE // lanes)),
                "groups": Out(data.ArrayLayout(GroupWord, lanes)),
                "slopes": Out(data.ArrayLayout(GradientWord, lanes)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        for lane in range(self.lanes):
            for name, given, shape, out in (
                ("group", self.group, GroupWord, self.groups),
                ("slope", self.slope, GradientWord, self.slopes),
            ):
                kept = Memory(shape=unsigned(shape.size), depth=EDGE, init=[], attrs={"ram_style": "distributed"})
                m.submodules[f"{name}_{lane}"] = kept
                into, read = kept.write_port(), kept.read_port()
                m.d.comb += [
                    into.en.eq(given.valid),
                    into.addr.eq(given.index),
                    into.data.eq(given.word),
                    out[lane].eq(read.data),
                ]
                with m.If(self.columns):
                    m.d.comb += read.addr.eq(Cat(Const(lane, range(self.lanes)), self.beat) >> self.size)
                with m.Else():
                    m.d.comb += read.addr.eq(self.row)
        return m
