"""Load port of records of tiles: takes headers and rows apart."""

from types import SimpleNamespace

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ..formats.tiles.codes import EDGE, WIDE
from ..formats.tiles.records import BEAT, TileArgument
from ..hierarchy import place
from ..shell.signature import PortBeat
from ..stream.delay import delay

__all__ = ["TileIntake", "SlotMemory", "records", "tile_exponent", "tile_pair", "tile_write"]


def tile_write(slots):
    """A beat of a row on its way to a slot."""
    return data.StructLayout(
        {"valid": 1, "slot": range(max(slots, 2)), "row": range(EDGE), "beat": 3, "data": 8 * BEAT}
    )


def tile_pair(slots):
    """A beat of a row, or two on their way to a slot: ``first`` if valid is of an even number, ``second`` the next."""
    half = data.StructLayout({"valid": 1, "data": 8 * BEAT})
    return data.StructLayout(
        {"slot": range(max(slots, 2)), "row": range(EDGE), "pair": 2, "halves": data.ArrayLayout(half, 2)}
    )


def tile_exponent(slots):
    """Exponent of a record, which comes before its rows."""
    return data.StructLayout({"valid": 1, "slot": range(max(slots, 2)), "exponent": signed(8)})


def records(m, engine, name, platform, *, pairs=False, **options):
    """Places the :class:`TileIntake` of an engine's load port NAME.

    It is called ``intake_NAME``. ``options``: its parameters. Returns what has its ``write`` and ``exponent``; where
    the port takes forwards, a cycle later, and with those of what STORE forwards. ``pair`` is ``write`` for
    :class:`SlotMemory`: with ``pairs`` STORE forwards two beats of codes of 16 bits at once.
    """
    intake = place(m, f"intake_{name}", TileIntake(**options), platform)
    port, forward = getattr(engine, f"load_{name}"), getattr(engine, f"forward_{name}", None)
    connect(m, flipped(port.beats), intake.beats)
    m.d.comb += port.refuse.eq(intake.refuse)
    if forward is None:
        return _with_pair(m, intake, intake.write, intake.exponent)
    return _with_forwards(m, intake, forward, pairs)


def _with_pair(m, intake, write, exponent, both=0, behind=None):
    """``write`` as it is, and as a pair."""
    pair = Signal(tile_pair(intake.slots))
    m.d.comb += [
        *(pair[name].eq(write[name]) for name in ("slot", "row")),
        pair.pair.eq(write.beat[1:]),
        pair.halves[0].valid.eq(write.valid & ~write.beat[0]),
        pair.halves[0].data.eq(write.data),
        pair.halves[1].valid.eq(write.valid & (write.beat[0] | both)),
        pair.halves[1].data.eq(write.data if behind is None else behind),
    ]
    return SimpleNamespace(write=write, pair=pair, exponent=exponent)


def _with_forwards(m, intake, forward, pairs):
    """LOAD's beats and those of STORE, of which one comes at a time."""
    beat, arg = forward.beat, forward.arg
    m.d.comb += forward.refuse.eq((arg.slot >= intake.slots) | (arg.wide != (intake.bits == WIDE)))
    write, exponent = Signal(tile_write(intake.slots)), Signal(tile_exponent(intake.slots))
    loaded, header = (delay(m, each, 1, reset_less=False) for each in (intake.write, intake.exponent))
    m.d.comb += [
        write.valid.eq(loaded.valid | (beat.valid & ~beat.header)),
        write.slot.eq(Mux(beat.valid, beat.slot, loaded.slot)),
        write.row.eq(Mux(beat.valid, beat.row, loaded.row)),
        write.beat.eq(Mux(beat.valid, beat.beat, loaded.beat)),
        write.data.eq(Mux(beat.valid, beat.data, loaded.data)),
        exponent.valid.eq(header.valid | (beat.valid & beat.header)),
        exponent.slot.eq(Mux(beat.valid, beat.slot, header.slot)),
        exponent.exponent.eq(Mux(beat.valid, beat.data[:8], header.exponent)),
    ]
    if not pairs:
        return _with_pair(m, intake, write, exponent)
    behind = Mux(beat.valid, beat.behind, loaded.data)
    return _with_pair(m, intake, write, exponent, beat.valid & beat.both, behind)


class SlotMemory(wiring.Component):
    """Slots of rows of codes of 16 bits: one beat is read in a cycle.

    Parameters
    ----------
    slots : int
    pairs : bool
        Two beats may be written in a cycle: even beats and odd ones have a memory each. Else both halves of ``write``
        have the same data.

    Members
    -------
    write : of :func:`records`, its ``pair``. slot, row, beat : of the beat that is read. o : it, a cycle later.
    """

    def __init__(self, *, slots, pairs):
        self.slots, self.pairs = slots, pairs
        super().__init__(
            {
                "write": In(tile_pair(slots)),
                "slot": In(range(max(slots, 2))),
                "row": In(range(EDGE)),
                "beat": In(3),
                "o": Out(8 * BEAT),
            }
        )

    def elaborate(self, platform):
        m = Module()
        write, bits, codes = self.write, (self.slots - 1).bit_length(), []
        even, odd = write.halves
        for number, half in enumerate((even, odd) if self.pairs else (even,)):
            m.submodules[f"codes_{number}"] = kept = memory.Memory(
                shape=8 * BEAT,
                depth=self.slots * EDGE * (4 if self.pairs else 8),
                init=[],
                attrs={"ram_style": "ultra"},
            )
            into, read = kept.write_port(), kept.read_port()
            below = Const(0, 0) if self.pairs else odd.valid
            m.d.comb += [
                into.en.eq(half.valid if self.pairs else even.valid | odd.valid),
                into.addr.eq(Cat(below, write.pair, write.row, write.slot[:bits])),
                into.data.eq(half.data),
                read.addr.eq(Cat(self.beat[1:] if self.pairs else self.beat, self.row, self.slot[:bits])),
            ]
            codes.append(read.data)
        # mutant other-half: m.d.comb += self.o.eq(codes[0])
        m.d.comb += self.o.eq(Mux(delay(m, self.beat[0], 1), codes[-1], codes[0]))
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

    Members
    -------
    beats : stream of beats of a load port, ``arg`` as :data:`~...formats.tiles.records.TileArgument`.
    refuse : with the beat: its slot is not there, it has a code that no quantiser makes, or more rows than one.
    write : ``{valid, slot, row, beat, data}``. exponent : ``{valid, slot, exponent}``.
    """

    def __init__(self, *, slots, bits, row=False):
        self.slots = slots
        self.bits = bits
        self.row = row
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
        header, slot, row, at = Signal(init=1), Signal(9), Signal(range(EDGE)), Signal(3)
        own, is_header = Signal(9), Signal()
        m.d.comb += [own.eq(Mux(beat.first, arg.slot, slot)), is_header.eq(beat.first | header)]
        # Beats of a row, less 1: 16 codes of 8 bits, or 8 of 16.
        wide = arg.features[(BEAT * 8 // self.bits - 1).bit_length() :]
        least = 1 << self.bits - 1
        wrong = Cat(beat.data.word_select(n, self.bits) == least for n in range(8 * BEAT // self.bits)).any()
        # Which beat is the first is known late: what each of the two would be waits for it.
        first, later = arg.slot >= self.slots, slot >= self.slots
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
        ]
        return m
