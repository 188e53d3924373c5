"""Control of adapter passes: FORWARD and GRADIENT of a microbatch."""

from dataclasses import dataclass

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

__all__ = ["pass_layout", "FeedControl", "PassControl", "BEATS", "LEVELS"]

#: Beats of ``panels`` elements in a block of 64 are 64 / panels; a table takes 16 cycles to fill.
LEVELS = 16


def BEATS(panels):
    """Cycles in which a block of 64 codes passes the array."""
    return 64 // panels


def pass_layout(config):
    """A pass over one tap.

    ``blocks``: of 64 codes. ``tail``: beats in the last block, minus 1. ``bank``, ``scale``: where the tap's codes
    (in 128-bit words) and scales (in blocks) begin, the microbatch's half included. ``lane``: first address in the
    lanes. ``book``: code book. ``wide``: codes of 8 bits, see :class:`PassControl`. ``samples``: rows in
    use. ``backward``: gradient, else forward.
    """
    return data.StructLayout(
        {
            "blocks": ceil_log2(config.blocks) + 1,
            "tail": ceil_log2(BEATS(config.panels)),
            "bank": ceil_log2(8 * config.blocks),
            "scale": ceil_log2(2 * config.blocks),
            "lane": ceil_log2(config.adapter_depth),
            "tap": ceil_log2(config.taps),
            "book": 2,
            "wide": 1,
            "samples": 6,
            "backward": 1,
        }
    )


def FeedControl(config):
    """Control of all rows; row r has it a cycle after row r - 1.

    ``fill``: multiply level ``k`` of ``book`` by the scale at ``scale`` into table ``fill_table``. ``read``: read bank
    word ``word`` and decode its codes ``group`` through ``table``.
    """
    return data.StructLayout(
        {
            "fill": 1,
            "fill_table": 1,
            "level": 4,
            "book": 2,
            "scale": ceil_log2(2 * config.blocks),
            "read": 1,
            "table": 1,
            "word": ceil_log2(8 * config.blocks),
            "group": 5,
        }
    )


@dataclass(frozen=True)
class _Tables:
    """Strobes that a table is full and read out, and how many are full from the next cycle on."""

    fill_done: Signal
    read_done: Signal
    now_full: Signal


@dataclass(frozen=True)
class _Filling:
    """The block whose table is filled, if one is (``active``), with its ``low`` nibbles or not.

    ``last``: the block is the last; ``last_block``: and so is the table. ``room``: a table may be started.
    """

    active: Signal
    low: Signal
    block: Signal
    last: Signal
    last_block: Signal
    room: Signal


@dataclass(frozen=True)
class _Loading:
    """Whether dh is ``loaded``, or ``loading`` and its ``last`` row; ``swapped``: it came into use."""

    loaded: Signal
    loading: Signal
    last: Signal
    swapped: Signal


@dataclass(frozen=True)
class _Reading:
    """The beat that is read, if one is (``active``), and the cycles left until a forward pass drains (``gap``)."""

    beat: Signal
    block: Signal
    active: Signal
    lane: Signal
    pass_end: Signal
    last: Signal
    gap: Signal


class PassControl(wiring.Component):
    """Runs passes: fills a table of scaled levels while another is read.

    A row has two tables. Codes are read through the full one; the roles alternate.

    Filling takes 16 cycles a block and reading ``64 / panels``; both overlap, across passes too. A forward pass is
    followed by ``rows`` cycles until its sums may drain. Before a gradient pass the microbatch's dh are loaded as
    weights, a row a cycle, under the pass before it.

    A wide pass has codes of 8 bits: two nibbles, whose levels add up. Of a block, one table holds the levels of the
    high nibbles, the other those of the low ones (``book`` with its lowest bit set), and each beat is read twice, high
    and low, at the same address of the lanes. A forward pass adds up the products of both in the array, a gradient
    pass their sums in the lanes. A block has four bank words, those of its high nibbles first; it takes 32 cycles to
    fill and ``2 * 64 / panels`` to read, one after the other.

    ::

        i --> filling --> waiting --> reading --> drain
                 |           |           |
                 v           v           v
              tables      loads dh     beats

    Members
    -------
    i : stream of :func:`pass_layout`; a pass is taken when its first table may be filled.
    feed : to the rows.
    beat : a beat of ``panels`` elements is read in this cycle. ``lane``: its address in the lanes. ``first``, ``last``:
        of its pass. ``backward``: of a gradient pass. ``high``, ``low``: of a wide pass, which nibble.
    drain : the sums of forward pass ``drain_tap`` may leave: ``rows`` cycles after its last beat.
    weight : dh of sample ``row`` of tap ``tap`` is due as weight of row ``row``. ``live``: the row is in use.
    idle : nothing is under way here; a register's word of it, so that it may decide what is offered on ``i``.
    """

    def __init__(self, config):
        self.config = config
        self.layout = pass_layout(config)
        address = ceil_log2(config.adapter_depth)
        tap = ceil_log2(config.taps)
        super().__init__(
            {
                "i": In(stream.Signature(self.layout)),
                "feed": Out(FeedControl(config)),
                "beat": Out(
                    data.StructLayout(
                        {"valid": 1, "lane": address, "first": 1, "last": 1, "backward": 1, "high": 1, "low": 1}
                    )
                ),
                "drain": Out(data.StructLayout({"valid": 1, "tap": tap, "samples": 6})),
                "weight": Out(data.StructLayout({"valid": 1, "tap": tap, "row": ceil_log2(config.rows), "live": 1})),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        layout = self.layout
        # Three stages hold a pass each at most: filling, waiting to be read, being read.
        filling, waiting, reading = (Signal(layout, name=n) for n in ("filling", "waiting", "reading"))
        fills, waits, reads = (Signal(name=n) for n in ("fills", "waits", "reads"))
        tables = self._count_tables(m, reading)

        fill = self._fill(m, tables, filling, fills)
        hand = self._hand_on(m, tables, fill, filling, fills, waiting, waits)
        load = self._load(m, hand, filling)
        read = self._read(m, tables, load, reading, reads)
        self._start(m, tables, load, read, waiting, waits, reading, reads)
        self._drain(m, load, read, reading, fills, waits, reads)
        return m

    def _count_tables(self, m, reading):
        """Counts the full tables, now and in the next cycle.

        A table is full from its last fill to its last read.
        """
        full = Signal(range(3))
        fill_done, read_done = Signal(), Signal()
        freed, now_full = Signal(2), Signal(range(3))
        m.d.comb += [freed.eq(read_done << reading.wide), now_full.eq(full + fill_done - freed)]
        m.d.sync += full.eq(now_full)
        return _Tables(fill_done=fill_done, read_done=read_done, now_full=now_full)

    def _fill(self, m, tables, filling, fills):
        """Fills tables with the levels of the pass's blocks, in order."""
        fill_done = tables.fill_done
        level = Signal(range(LEVELS))
        fill_active, fill_table, fill_low = Signal(), Signal(), Signal()
        fill_block = Signal(self.layout.members["blocks"])
        fill_last_block, fill_last = Signal(), Signal()
        m.d.comb += [
            fill_last_block.eq(fill_last & (fill_low | ~filling.wide)),
            fill_done.eq(fill_active & (level == LEVELS - 1)),
            self.feed.fill.eq(fill_active),
            self.feed.fill_table.eq(fill_table),
            self.feed.level.eq(level),
            self.feed.book.eq(filling.book | fill_low),
            self.feed.scale.eq(filling.scale + fill_block),
        ]
        # A table may be started when, from the next cycle on, at most one other is full.
        room = Signal()
        m.d.comb += room.eq(tables.now_full < 2)
        with m.If(fill_active):
            m.d.sync += level.eq(level + 1)
        with m.If(fill_done):
            m.d.sync += [fill_table.eq(~fill_table), fill_active.eq(0), fill_low.eq(filling.wide & ~fill_low)]
            with m.If(fill_low | ~filling.wide):
                # Compared a cycle ahead: what follows from a last block reaches far.
                m.d.sync += [fill_block.eq(fill_block + 1), fill_last.eq(fill_block + 2 == filling.blocks)]
        more = Signal()
        m.d.comb += more.eq(fills & (fill_block != filling.blocks) & ~(fill_done & fill_last_block))
        with m.If(more & room & (~fill_active | fill_done)):
            m.d.sync += fill_active.eq(1)
        return _Filling(
            active=fill_active, low=fill_low, block=fill_block, last=fill_last, last_block=fill_last_block, room=room
        )

    def _hand_on(self, m, tables, fill, filling, fills, waiting, waits):
        """Hands a pass with its last block to the next stage, if that is free.

        Takes the next pass.
        """
        take = Signal()
        fill_left = Signal()
        m.d.comb += fill_left.eq(fills & tables.fill_done & fill.last_block)
        handed, hand = Signal(), Signal()
        m.d.comb += hand.eq(fills & ~handed & ~waits)
        m.d.comb += [
            # The pass must have been handed on before its place is given away.
            take.eq((~fills | (fill_left & (handed | hand))) & fill.room),
            self.i.ready.eq(take),
        ]
        with m.If(hand):
            m.d.sync += [waiting.eq(filling), waits.eq(1), handed.eq(1)]
        stale = Signal()
        m.d.comb += stale.eq(fill_left | (fills & handed & ~fill.active & (fill.block == filling.blocks)))
        with m.If(stale & (handed | hand)):
            m.d.sync += [fills.eq(0), handed.eq(0)]
        # The place is free, and may hold what is no pass yet: the path from the command's queue ends at few registers.
        with m.If(take):
            m.d.sync += [
                filling.eq(self.i.p),
                fill.block.eq(0),
                fill.last.eq(self.i.p.blocks == 1),
                fill.low.eq(0),
                handed.eq(0),
            ]
            with m.If(self.i.valid):
                m.d.sync += [fills.eq(1), fill.active.eq(1)]
        return hand

    def _load(self, m, hand, filling):
        """Loads the dh of gradient passes as weights.

        It is one pass ahead of the reader at most.
        """
        rows = self.config.rows
        loaded, loading = Signal(), Signal()
        row = Signal(range(rows))
        swapped = Signal()
        load_last = Signal()
        load_pass = Signal(self.layout)
        load_known = Signal()
        m.d.comb += [
            load_last.eq(loading & (row == rows - 1)),
            self.weight.valid.eq(loading),
            self.weight.row.eq(row),
            self.weight.tap.eq(load_pass.tap),
            self.weight.live.eq(row < load_pass.samples),
        ]
        with m.If(hand & filling.backward):
            m.d.sync += [load_known.eq(1), load_pass.eq(filling)]
        with m.If(load_known & ~loading & (~loaded | swapped)):
            m.d.sync += [loading.eq(1), load_known.eq(0), row.eq(0)]
        with m.If(loading):
            m.d.sync += row.eq(row + 1)
        with m.If(load_last):
            m.d.sync += [loading.eq(0), loaded.eq(1)]
        with m.Elif(swapped):
            m.d.sync += loaded.eq(0)
        return _Loading(loaded=loaded, loading=loading, last=load_last, swapped=swapped)

    def _read(self, m, tables, load, reading, reads):
        """Reads the codes of a pass through the full tables.

        A beat and a nibble a cycle.
        """
        beats, rows, layout = BEATS(self.config.panels), self.config.rows, self.layout
        read_done, swapped = tables.read_done, load.swapped
        beat = Signal(range(beats))
        read_block = Signal(layout.members["blocks"])
        read_active, read_table, low, step = Signal(), Signal(), Signal(), Signal()
        read_word = Signal(layout.members["blocks"] + 2)
        lane = Signal(layout.members["lane"])
        block_end, pass_end, half_way, read_last = Signal(), Signal(), Signal(), Signal()
        gap = Signal(range(rows + 1))
        m.d.comb += [
            block_end.eq(beat == Mux(read_last, reading.tail, beats - 1)),
            step.eq(read_active & (low | ~reading.wide)),
            read_done.eq(step & block_end),
            pass_end.eq(read_done & read_last),
            self.feed.read.eq(read_active),
            self.feed.table.eq(read_table ^ low),
            self.feed.group.eq(beat),
            half_way.eq(beat >= beats // 2),
            read_word.eq(Mux(reading.wide, Cat(half_way, low, read_block), Cat(half_way, read_block))),
            self.feed.word.eq(reading.bank + read_word),
            self.beat.valid.eq(read_active),
            self.beat.lane.eq(lane),
            self.beat.first.eq((read_block == 0) & (beat == 0) & ~low),
            self.beat.last.eq(pass_end),
            self.beat.backward.eq(reading.backward),
            self.beat.high.eq(reading.wide & ~low),
            self.beat.low.eq(low),
            swapped.eq(read_active & self.beat.first & reading.backward),
        ]
        with m.If(read_active):
            m.d.sync += low.eq(reading.wide & ~low)
        with m.If(step):
            m.d.sync += [beat.eq(beat + 1), lane.eq(lane + 1)]
        with m.If(read_done):
            # Two tables were read out, or one.
            m.d.sync += [
                beat.eq(0),
                read_table.eq(read_table ^ ~reading.wide),
                read_block.eq(read_block + 1),
                read_last.eq(read_block + 2 == reading.blocks),
                read_active.eq(0),
            ]
        with m.If(pass_end):
            m.d.sync += [reads.eq(0), gap.eq(Mux(reading.backward, 0, rows))]
        with m.Elif(gap != 0):
            m.d.sync += gap.eq(gap - 1)
        return _Reading(
            beat=beat, block=read_block, active=read_active, lane=lane, pass_end=pass_end, last=read_last, gap=gap
        )

    def _start(self, m, tables, load, read, waiting, waits, reading, reads):
        """Starts to read the waiting pass, or the next tables of this pass."""
        now_full, pass_end = tables.now_full, read.pass_end
        ready_table, open_gap = Signal(), Signal()
        m.d.comb += [
            ready_table.eq(Mux(Mux(reads & ~pass_end, reading.wide, waiting.wide), now_full == 2, now_full != 0)),
            # The next pass may begin one cycle after the drain of a forward pass.
            open_gap.eq(Mux(pass_end, reading.backward, read.gap <= 1)),
        ]
        start = Signal()
        m.d.comb += start.eq(
            waits
            & ready_table
            & (~reads | pass_end)
            & open_gap
            & (~waiting.backward | ((load.loaded & ~load.swapped) | load.last))
        )
        with m.If(start):
            m.d.sync += [
                reading.eq(waiting),
                reads.eq(1),
                waits.eq(0),
                read.active.eq(1),
                read.block.eq(0),
                read.last.eq(waiting.blocks == 1),
                read.beat.eq(0),
                read.lane.eq(waiting.lane),
            ]
        with m.Elif(reads & ~pass_end & ready_table & (~read.active | tables.read_done)):
            m.d.sync += read.active.eq(1)

    def _drain(self, m, load, read, reading, fills, waits, reads):
        """Reports when a forward pass's sums may leave, and when all is idle."""
        layout = self.layout
        drain_tap = Signal(layout.members["tap"])
        drain_samples = Signal(layout.members["samples"])
        with m.If(read.pass_end):
            m.d.sync += [drain_tap.eq(reading.tap), drain_samples.eq(reading.samples)]
        m.d.comb += [
            self.drain.valid.eq(read.gap == 1),
            self.drain.tap.eq(drain_tap),
            self.drain.samples.eq(drain_samples),
            self.idle.eq(~fills & ~waits & ~reads & (read.gap == 0) & ~load.loading),
        ]
