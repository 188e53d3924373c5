"""Load port of records of tiles: takes headers and rows apart."""

from types import SimpleNamespace

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..formats.tiles.codes import EDGE, NARROW, WIDE
from ..formats.tiles.records import BEAT, TileArgument
from ..hierarchy import place
from ..shell.signature import PortBeat
from ..stream.delay import delay

__all__ = ["TileIntake", "SlotMemory", "records", "tile_exponent", "tile_write"]


def tile_write(slots):
    """A beat of a row on its way to a slot."""
    return data.StructLayout(
        {"valid": 1, "slot": range(max(slots, 2)), "row": range(EDGE), "beat": 2, "data": 8 * BEAT}
    )


def tile_exponent(slots):
    """Exponent of a record, which comes before its rows; ``short``: its codes have 8 bits where a port's have 16."""
    return data.StructLayout({"valid": 1, "slot": range(max(slots, 2)), "exponent": signed(8), "short": 1})


def records(m, engine, name, platform, **options):
    """Places the :class:`TileIntake` of an engine's load port NAME.

    It is called ``intake_NAME``. ``options``: its parameters. Returns what has its ``write`` and ``exponent``; where
    the port takes forwards, a cycle later, and with those of what STORE forwards.
    """
    intake = place(m, f"intake_{name}", TileIntake(**options), platform)
    port, forward = getattr(engine, f"load_{name}"), getattr(engine, f"forward_{name}", None)
    connect(m, flipped(port.beats), intake.beats)
    m.d.comb += port.refuse.eq(intake.refuse)
    return intake if forward is None else _with_forwards(m, intake, forward)


def _with_forwards(m, intake, forward):
    """LOAD's beats and those of STORE, of which one comes at a time."""
    beat, arg = forward.beat, forward.arg
    other = Const(0, 1) if intake.both else arg.wide != (intake.bits == WIDE)
    m.d.comb += forward.refuse.eq((arg.slot >= intake.slots) | other)
    write, exponent = Signal(tile_write(intake.slots)), Signal(tile_exponent(intake.slots))
    loaded, header = (delay(m, each, 1, reset_less=False) for each in (intake.write, intake.exponent))
    m.d.comb += [
        write.valid.eq(loaded.valid | (beat.valid & ~beat.header)),
        *(write[name].eq(Mux(beat.valid, beat[name], loaded[name])) for name in ("slot", "row", "beat", "data")),
        exponent.valid.eq(header.valid | (beat.valid & beat.header)),
        exponent.slot.eq(Mux(beat.valid, beat.slot, header.slot)),
        exponent.exponent.eq(Mux(beat.valid, beat.data[:8], header.exponent)),
        exponent.short.eq(Mux(beat.valid, ~beat.wide, header.short)),
    ]
    return SimpleNamespace(write=write, exponent=exponent)


class SlotMemory(wiring.Component):
    """Slots of rows of codes of 16 bits: a beat is written in a cycle, and half of one is read, or a whole one.

    Parameters
    ----------
    slots : int
    lanes : int
        Codes that are read: 8 or 16.
    both : bool
        Slots have rows of codes of 8 bits, too.

    Members
    -------
    write : see :func:`tile_write`.
    slot, row, half : of the codes that are read, 8 a half; of 16, the first half. short : the slot's codes have 8 bits.
    o : they, a cycle later.
    """

    def __init__(self, *, slots, lanes=8, both=False):
        self.slots = slots
        self.lanes = lanes
        self.both = both
        super().__init__(
            {
                "write": In(tile_write(slots)),
                "slot": In(range(max(slots, 2))),
                "row": In(range(EDGE)),
                "half": In(3),
                **({"short": In(1)} if both else {}),
                "o": Out(WIDE * lanes),
            }
        )

    def elaborate(self, platform):
        m = Module()
        write, bits = self.write, (self.slots - 1).bit_length()
        m.submodules.codes = kept = memory.Memory(
            shape=8 * BEAT, depth=self.slots * EDGE * 4, init=[], attrs={"ram_style": "ultra"}
        )
        into, read = kept.write_port(), kept.read_port()
        beat, half = self.half[1:], delay(m, self.half, 1)
        # mutant other-half: codes = read.data[: WIDE * self.lanes]
        codes = read.data if self.lanes == 16 else read.data.word_select(half[0], WIDE * self.lanes)
        if self.both:
            beat = Mux(self.short, self.half[2], beat)
            few = read.data.word_select(half[1] if self.lanes == 16 else half[:2], NARROW * self.lanes)
            parts = [few.word_select(n, NARROW) for n in range(self.lanes)]
            # mutant unsigned: whole = Cat(Cat(part, Const(0, WIDE - NARROW)) for part in parts)
            whole = Cat(Cat(part, part[-1].replicate(WIDE - NARROW)) for part in parts)
            codes = Mux(delay(m, self.short, 1), whole, codes)
        m.d.comb += [
            into.en.eq(write.valid),
            into.addr.eq(Cat(write.beat, write.row, write.slot[:bits])),
            into.data.eq(write.data),
            read.addr.eq(Cat(beat, self.row, self.slot[:bits])),
            self.o.eq(codes),
        ]
        return m


class TileIntake(wiring.Component):
    """Takes records of tiles apart, a beat a cycle.

    See :class:`~gradloom.rtl.formats.tiles.records.TileRecord`. It never waits; ``write`` and ``exponent`` are a cycle
    late. Consecutive records of one LOAD go to consecutive slots.

    Parameters
    ----------
    slots : int
    bits : int
        Of a code: 8 or 16.
    row : bool
        Records have one row.
    both : bool
        Of codes of 16 bits: records may have codes of 8, too.

    Members
    -------
    beats : stream of beats of a load port, ``arg`` as :data:`~...formats.tiles.records.TileArgument`.
    refuse : with the beat: its slot is not there, it has a code that no quantiser makes, or more rows than one.
    write : ``{valid, slot, row, beat, data}``. exponent : ``{valid, slot, exponent, short}``.
    """

    def __init__(self, *, slots, bits, row=False, both=False):
        self.slots = slots
        self.bits = bits
        self.row = row
        self.both = both
        super().__init__(
            {
                "beats": In(stream.Signature(PortBeat(8 * BEAT))),
                "refuse": Out(1),
                "write": Out(tile_write(slots)),
                "exponent": Out(tile_exponent(slots)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        beat, arg = self.beats.p, Signal(TileArgument)
        m.d.comb += [self.beats.ready.eq(1), arg.eq(beat.arg)]
        # Where the beat belongs; the first of a LOAD is a header.
        header, slot, row, at = Signal(init=1), Signal(9), Signal(range(EDGE)), Signal(2)
        own, is_header = Signal(9), Signal()
        m.d.comb += [own.eq(Mux(beat.first, arg.slot, slot)), is_header.eq(beat.first | header)]
        # Beats of a row, less 1: 32 codes of 8 bits, or 16 of 16.
        wide, wrong = self._row(beat, arg, self.bits)
        if self.both:
            short = self._row(beat, arg, NARROW)
            wide, wrong = Mux(arg.short, short[0], wide), Mux(arg.short, short[1], wrong)
        # Which beat is the first is known late: what each of the two would be waits for it.
        first, later = arg.slot >= self.slots, slot >= self.slots
        if not self.both:
            first = first | arg.short
        if self.row:
            first, later = first | (arg.rows != 0), later | (arg.rows != 0)
        # mutant accepts: wrong = 0
        wrong = wrong & ~header
        m.d.comb += self.refuse.eq(Mux(beat.first, first, later | wrong))
        taken = Signal()
        m.d.comb += taken.eq(self.beats.valid & ~self.refuse)
        with m.If(self.beats.valid):
            with m.If(is_header):
                m.d.sync += [header.eq(0), slot.eq(own), row.eq(0), at.eq(0)]
            with m.Elif(at != wide):
                m.d.sync += at.eq(at + 1)
            with m.Else():
                m.d.sync += [at.eq(0), row.eq(row + 1)]
                with m.If(row == arg.rows):
                    m.d.sync += [header.eq(1), slot.eq(slot + (slot < self.slots))]
        m.d.sync += [
            self.write.valid.eq(taken & ~is_header),
            self.write.slot.eq(own),
            self.write.row.eq(row),
            self.write.beat.eq(at),
            self.write.data.eq(beat.data),
            self.exponent.valid.eq(taken & is_header),
            self.exponent.slot.eq(own),
            self.exponent.exponent.eq(beat.data[:8].as_signed()),
            self.exponent.short.eq(arg.short),
        ]
        return m

    @staticmethod
    def _row(beat, arg, bits):
        """Of codes of so many bits: beats of a row less 1, and whether a beat has one that no quantiser makes."""
        codes = [beat.data.word_select(n, bits) for n in range(8 * BEAT // bits)]
        return arg.features[(len(codes) - 1).bit_length() :], Cat(code == 1 << bits - 1 for code in codes).any()
