"""The linear engine: quantised products with an adapter beside them."""

from math import gcd

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import exact_log2

from ...formats.weights.linear import SUM
from ...hierarchy import place
from ...shell.signature import EngineSignature
from ...stream.delay import delay
from ...stream.queue import ShortQueue
from .core import LaneWrite, LinearArray, OperandWrite
from .drain import Drain, DrainJob
from .feet import Foot, HiddenFoot, HiddenWord
from .parameters import LinearParameters
from .parts import PartSequencer
from .stager import Stager, StagerJob
from .weights.dequantize import Dequantizer, TileBeat
from .weights.tables import TableBeat, TableLoader
from .weights.tile_buffer import TileBuffer

__all__ = ["LinearEngine"]


class LinearEngine(wiring.Component):
    """``Y = X W' + (X A') B'`` with streamed 4-bit weights.

    With ``by_column``, ``Y = X W + (X A') B'``.

    X is in operand memory, a word a row for each tile and token, A and B in adapter memory, a word a row for each
    tile and rank index. Weights come as tiles in the order in which they are used: those of the first ``edge``
    outputs along the input first. Y leaves tile by tile, tokens within a tile.

    A part of a tile, ``columns`` of its outputs, takes max(tokens, columns) cycles, and the next follows without
    a bubble while weights keep coming. While the sums of a tile of outputs are read, the next are made: a
    command of ``inner`` tiles of input is bound by its reading, ``edge * tokens / outputs`` cycles a tile of
    outputs, only if ``inner < columns / outputs``; with an adapter ``dots`` counts in place of ``outputs``. h is
    made in the shadow of the first tiles of outputs, a rank index a part, and added as these are read, so the
    adapter takes no cycle of the array; with more than ``subtiles`` rank indices the first reading waits for the
    second tile. h of neighbours in one slot makes the second wait until the first was read.

    The engine takes the next command when the last part of a tile has begun. ``done``: the last beat of the
    command has left.

    ::

        tables --> TableLoader
                        | scales, levels
                        v
        tiles --> Dequantizer --> TileBuffer -- w --+   +-- operand_write, lane_write
                                                    v   v
        engine --> PartSequencer ---- rows ----> LinearArray
                        |                           | sums
                        |                           +--> Foot, one a column --+
                        |                           +--> HiddenFoot --> h ----+--> hidden
                        | tiles of outputs                                    v
                        +--> jobs --> Stager -- rows of B' ----------------> Drain --> o

    Members
    -------
    engine : see :class:`EngineSignature`; operands are :data:`~.parts.LinearOperands`.
    tables, tiles : streams of the weights' parts. operand_write, lane_write : beats into memories.
    refuse : with a beat of tiles, see :class:`Dequantizer`.
    o : stream of beats of Y. hidden : words of h, as they are made.
    saturated : values clipped in this cycle.
    """

    def __init__(self, config=LinearParameters()):
        self.config = config
        super().__init__(
            {
                "engine": In(EngineSignature()),
                "tables": In(stream.Signature(TableBeat(config))),
                "tiles": In(stream.Signature(TileBeat(config))),
                "operand_write": In(OperandWrite(config)),
                "lane_write": In(LaneWrite(config)),
                "refuse": Out(1),
                "o": Out(stream.Signature(config.data_bits)),
                "hidden": Out(HiddenWord(config)),
                # Three beside the drain's can be clipped in a cycle.
                "saturated": Out(range(config.outputs + 4)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        ahead = PartSequencer.certain(config) if config.span > 1 else None
        loader = place(m, "loader", TableLoader(config), platform)
        dequantizer = place(m, "dequantizer", Dequantizer(config, ahead), platform)
        buffer = place(m, "buffer", TileBuffer(config), platform)
        parts = place(m, "parts", PartSequencer(config), platform)
        array = place(m, "array", LinearArray(config), platform)
        hidden_foot = place(m, "hidden_foot", HiddenFoot(config), platform)
        drain = place(m, "drain", Drain(config), platform)
        connect(m, flipped(self.tables), loader.i)
        connect(m, flipped(self.engine.command), parts.command)
        m.d.comb += [
            dequantizer.i.valid.eq(self.tiles.valid & ~loader.busy),
            dequantizer.i.p.eq(self.tiles.p),
            self.tiles.ready.eq(dequantizer.i.ready & ~loader.busy),
            self.refuse.eq(dequantizer.refuse),
            self.engine.error.valid.eq(parts.error != 0),
            self.engine.error.code.eq(parts.error),
            dequantizer.scale.eq(loader.scale),
            dequantizer.level.eq(loader.level),
            dequantizer.offset.eq(loader.offset),
            dequantizer.free.eq(parts.reuse),
            buffer.i.eq(dequantizer.o),
            buffer.index.eq(parts.index),
            buffer.by_column.eq(parts.by_column),
            buffer.release.eq(parts.release),
            parts.full.eq(buffer.full),
            *([parts.both.eq(buffer.both), parts.soon.eq(dequantizer.taken)] if config.span > 1 else []),
            array.w.eq(buffer.w),
            array.command.eq(parts.row),
            parts.counts.eq(self.operand_write.valid & self.operand_write.counts),
            array.operand_write.eq(self.operand_write),
            array.lane_write.eq(self.lane_write),
            drain.hidden.eq(hidden_foot.o),
            self.hidden.eq(hidden_foot.o),
        ]

        # What is known of an operand travels with it to the feet.
        sums = delay(m, parts.sums, array.latency(config), reset_less=False)
        columns = []
        for column in range(config.columns):
            foot = place(m, f"foot_{column}", Foot(config), platform)
            m.d.comb += [
                foot.tag.eq(sums.tag),
                foot.p.eq(array.p[column]),
                foot.read.valid.eq(drain.read.valid),
                foot.read.bank.eq(drain.read.bank),
                foot.read.address.eq(drain.address_of(column)),
            ]
            columns.append(foot.o)
            sums = delay(m, sums, 1, reset_less=False)
        m.d.comb += [hidden_foot.tag.eq(sums.tag), hidden_foot.p.eq(array.p[config.columns])]
        # Outputs with an adapter's part may be of any group of `dots` columns, the others are of their own.
        column, bank = delay(m, drain.read.column, 2), delay(m, drain.read.bank, 2)
        chosen = Signal(drain.sums.shape(), reset_less=True)
        for side in range(config.outputs):
            step = gcd(config.columns, config.dots if side < config.dots else config.outputs)
            choice = column[exact_log2(step) :]
            words = []
            for half in range(2):
                own = [columns[(side + n) % config.columns][half] for n in range(0, config.columns, step)]
                words += own + own[-1:] * ((1 << len(choice)) - len(own))
            m.d.sync += chosen[side].eq(Cat(*words).word_select(Cat(choice, bank), SUM).as_signed())
        m.d.comb += drain.sums.eq(chosen)

        complete = delay(m, sums.complete, HiddenFoot.latency + 1, reset_less=False)
        self._read(m, platform, parts, array, drain, complete)
        m.d.comb += [self.o.valid.eq(drain.o.valid), self.o.p.eq(drain.o.p.data), drain.o.ready.eq(self.o.ready)]
        m.d.sync += [
            self.engine.done.eq(drain.o.valid & drain.o.ready & drain.o.p.last),
            self.saturated.eq(loader.saturated + dequantizer.saturated + hidden_foot.saturated + drain.saturated),
        ]
        return m

    def _read(self, m, platform, parts, array, drain, complete):
        """Makes the drain's jobs: one for each tile of outputs, in order.

        A job starts when the tile's sums are complete and its adapter rows are there.
        """
        config = self.config
        stager = place(m, "stager", Stager(config), platform)
        m.d.comb += [
            array.peek.row.eq(stager.peek.row),
            array.peek.address.eq(stager.peek.address),
            stager.word.eq(array.word),
            stager.blocked.eq(self.lane_write.valid),
            drain.row.eq(stager.row),
        ]
        tile, span = parts.tile, config.span
        read = Signal()
        m.d.comb += read.eq(drain.job.valid & drain.job.ready)
        pending, finished, staged = (Signal(range(3), name=name) for name in ("pending", "finished", "staged"))
        layout = data.StructLayout({"first": 1, "job": DrainJob(config)})
        m.submodules.jobs = jobs = ShortQueue(width=layout.size, depth=2 * span)
        m.submodules.row_jobs = row_jobs = ShortQueue(width=StagerJob(config).size, depth=2 * span)
        entry, head = Signal(layout), data.View(layout, jobs.r_data)
        rows = Signal(StagerJob(config))
        ahead = Signal(range(3))  # jobs whose rows were fetched and not read
        half = Signal()
        with_rows = tile.valid & (tile.rank != 0)
        with m.If(with_rows):
            m.d.sync += half.eq(~half)
        m.d.comb += [
            *(
                getattr(entry.job, name).eq(getattr(tile, name))
                for name in ("bank", "slot", "last", "rank", "dot_shift", "shift")
            ),
            entry.job.final.eq(tile.tokens - 1),
            entry.first.eq(tile.first),
            entry.job.half.eq(half),
            jobs.w_data.eq(entry),
            jobs.w_en.eq(tile.valid),
            rows.base.eq(tile.rows),
            rows.rank.eq(tile.rank),
            row_jobs.w_data.eq(rows),
            row_jobs.w_en.eq(with_rows),
            stager.job.valid.eq(row_jobs.r_rdy if span == 1 else row_jobs.r_rdy & (ahead != 2)),
            stager.job.p.eq(row_jobs.r_data),
            row_jobs.r_en.eq(stager.job.ready),
            parts.pending.eq(pending),
        ]
        has_rows = head.job.rank != 0
        # h of so many rank indices is complete after the second tile only; a panel completes it.
        late = head.first & (head.job.rank > config.subtiles) & (finished < 2) if span == 1 else 0
        # Sums of a panel are read tile by tile. Rows of a further tile must not come before those of the last but one
        # were read.
        opens, closed = tile.valid, read
        if span > 1:
            opens, closed = tile.valid & (tile.tile == 0), read & head.job.closes
            m.d.comb += [entry.job.tile.eq(tile.tile), entry.job.closes.eq(tile.closes)]
            taken = stager.job.valid & stager.job.ready
            m.d.sync += ahead.eq(ahead + taken - (read & has_rows))
        m.d.sync += [
            pending.eq(pending + opens - closed),
            finished.eq(finished + complete - closed),
            staged.eq(staged + stager.done - (read & has_rows)),
        ]
        m.d.comb += [
            drain.job.valid.eq(jobs.r_rdy & (finished != 0) & (~has_rows | (staged != 0)) & ~late),
            drain.job.p.eq(head.job),
            jobs.r_en.eq(drain.job.ready),
        ]
