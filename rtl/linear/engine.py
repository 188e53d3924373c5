"""The engine of a quantised linear layer, forward and backward, with the adapter beside it."""
from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from ..control.errors import Error
from ..control.signature import EngineSignature
from ..hierarchy import place
from ..stream.delay import delay
from .core import LaneWrite, LinearArray, OperandWrite
from .drain import Drain, DrainJob, RowWord
from .feet import Foot, HiddenFoot, HiddenWord, SumTag
from .weights import Dequantizer, TableBeat, TableLoader, TileBeat, TileBuffer
from .words import SUM, WEIGHT, LinearConfig

__all__ = ["LinearOperands", "LinearEngine"]

#: Operands of the one command. ``inner``, ``outer``: tiles along the input and the output. ``by_column``: the
#: product with the transposed weights. ``a_base``: adapter words that multiply the input, ``inner * rank`` words
#: a row from here; ``b_base``: those that multiply h.
LinearOperands = data.StructLayout({
    "inner": 8, "outer": 8, "tokens": 8, "rank": 6, "by_column": 1, "slot": 1,
    "x_base": 16, "a_base": 16,
    "b_base": 16, "hidden_shift": 6, "dot_shift": 6, "_pad": 4,
    "shift": 6, "_reserved": 58})


class _Stager(wiring.Component):
    """Fetches the adapter rows of the next tile of outputs, a word a cycle.

    Members
    -------
    job : stream of ``base`` and ``rank``; taken when all rows are there or on their way.
    half : which half of the row memory is to be filled; ``blocked``: not now.
    peek, word : see :class:`LinearArray`.
    row : words. done : a cycle after the last word of a job.
    """

    def __init__(self, config):
        self.config = config
        super().__init__({
            "job": In(stream.Signature(data.StructLayout({"base": 16, "rank": range(config.rank + 1)}))),
            "half": In(1), "blocked": In(1),
            "peek": Out(data.StructLayout({"row": range(config.edge), "address": 16})),
            "word": In(signed(WEIGHT.width)),
            "row": Out(RowWord(config)), "done": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        row, rank = Signal(range(config.edge)), Signal(range(config.rank))
        issue, ends = Signal(), Signal()
        m.d.comb += [
            issue.eq(self.job.valid & ~self.blocked),
            ends.eq(row.all() & (rank == self.job.p.rank - 1)),
            self.job.ready.eq(issue & ends),
            self.peek.row.eq(row), self.peek.address.eq(self.job.p.base + rank),
        ]
        with m.If(issue):
            m.d.sync += row.eq(row + 1)
            with m.If(row.all()):
                m.d.sync += rank.eq(Mux(ends, 0, rank + 1))
        tag = Signal(data.StructLayout({
            "valid": 1, "half": 1, "row": range(config.edge), "rank": range(config.rank), "ends": 1}))
        m.d.comb += [tag.valid.eq(issue), tag.half.eq(self.half), tag.row.eq(row), tag.rank.eq(rank), tag.ends.eq(ends)]
        out = delay(m, tag, LinearArray.peek_latency, reset_less=False)
        m.d.comb += [self.row.valid.eq(out.valid), self.row.half.eq(out.half), self.row.row.eq(out.row),
                     self.row.rank.eq(out.rank), self.row.value.eq(self.word)]
        m.d.sync += self.done.eq(out.valid & out.ends)
        return m


class LinearEngine(wiring.Component):
    """``Y = X W' + (X A') B'`` with streamed 4-bit weights; with ``by_column``, ``Y = X W + (X A') B'``.

    X is in operand memory, a word a row for each tile and token, A and B in adapter memory, a word a row for each
    tile and rank index. Weights come as tiles in the order in which they are used: those of the first ``edge``
    outputs along the input first. Y leaves tile by tile, tokens within a tile.

    A part of a tile, ``columns`` of its outputs, takes max(tokens, columns) cycles, and the next follows without
    a bubble while weights keep coming. While the sums of a tile of outputs are read, the next are made: a
    command of ``inner`` tiles of input is bound by its reading, ``edge * tokens`` cycles a tile of outputs,
    only if ``inner < columns``. h of the first 2 * subtiles rank indices is made in the shadow of the first
    tiles of outputs, and added as these are read, so the adapter takes no cycle of the array; with more than
    ``subtiles`` rank indices the first reading waits for the second tile.

    The engine takes the next command when the last part of a tile has begun. ``done``: the last beat of the
    command has left.

    Members
    -------
    engine : see :class:`EngineSignature`.
    tables, tiles : streams of the weights' parts. operand_write, lane_write : beats into memories.
    o : stream of beats of Y. hidden : words of h, as they are made.
    saturated : values clipped in this cycle. busy : a part of a tile is in the array.
    """

    def __init__(self, config=LinearConfig()):
        self.config = config
        super().__init__({
            "engine": In(EngineSignature()),
            "tables": In(stream.Signature(TableBeat(config))), "tiles": In(stream.Signature(TileBeat(config))),
            "operand_write": In(OperandWrite(config)), "lane_write": In(LaneWrite(config)),
            "o": Out(stream.Signature(config.beat_bits)),
            "hidden": Out(HiddenWord(config)),
            "saturated": Out(3), "busy": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        loader = place(m, "loader", TableLoader(config), platform)
        dequantizer = place(m, "dequantizer", Dequantizer(config), platform)
        buffer = place(m, "buffer", TileBuffer(config), platform)
        array = place(m, "array", LinearArray(config), platform)
        stager = place(m, "stager", _Stager(config), platform)
        drain = place(m, "drain", Drain(config), platform)
        hidden_foot = place(m, "hidden_foot", HiddenFoot(config), platform)
        connect(m, flipped(self.tables), loader.i)
        connect(m, flipped(self.tiles), dequantizer.i)
        m.d.comb += [
            dequantizer.scale.eq(loader.scale), dequantizer.level.eq(loader.level), dequantizer.offset.eq(loader.offset),
            dequantizer.free.eq(buffer.release), buffer.i.eq(dequantizer.o), array.w.eq(buffer.w),
            array.operand_write.eq(self.operand_write), array.lane_write.eq(self.lane_write),
            array.peek.row.eq(stager.peek.row), array.peek.address.eq(stager.peek.address), stager.word.eq(array.word), stager.blocked.eq(self.lane_write.valid),
            drain.row.eq(stager.row), drain.hidden.eq(hidden_foot.o), self.hidden.eq(hidden_foot.o),
        ]

        # ---- commands
        port = self.engine
        args = Signal(LinearOperands)
        inner, outer, part = Signal(8), Signal(8), Signal(range(config.subtiles))
        timer = Signal(9)
        checked, running = Signal(), Signal()
        starts = Signal()       # a part of a tile
        begins = Signal()       # the first part for a tile of outputs
        free = Signal()         # a bank of sums
        last_part, last_inner, last_outer = Signal(), Signal(), Signal()
        m.d.comb += [last_part.eq(part == config.subtiles - 1), last_inner.eq(inner == args.inner - 1),
                     last_outer.eq(outer == args.outer - 1)]
        known = Signal()
        bad = Signal(5)
        m.d.comb += port.command.ready.eq(~checked & ~running & ~port.error.valid)
        with m.If(port.command.valid & port.command.ready):
            m.d.sync += [args.eq(port.command.payload.args), known.eq(port.command.payload.opcode == 0), checked.eq(1)]
        ready_to_run = Signal()
        m.d.sync += ready_to_run.eq(checked)
        x_words, a_words, b_words = Signal(16), Signal(14), Signal(14)
        m.d.sync += [x_words.eq(args.inner * args.tokens), a_words.eq(args.inner * args.rank),
                     b_words.eq(args.outer * args.rank)]
        m.d.comb += bad.eq(Cat(
            (args.inner == 0) | (args.outer == 0), (args.tokens == 0) | (args.tokens > config.tokens),
            (args.rank > config.rank) | (args.rank > args.outer * config.subtiles),
            args.x_base + x_words > config.depth,
            (args.a_base + a_words > config.lane_depth) | (args.b_base + b_words > config.lane_depth)))
        judged = Signal()
        verdict = Signal(5)
        m.d.sync += [judged.eq(ready_to_run & checked), verdict.eq(Mux(args.rank == 0, bad[:4], bad))]
        with m.If(judged & checked):
            m.d.sync += checked.eq(0)
            with m.If(~known):
                m.d.sync += [port.error.valid.eq(1), port.error.code.eq(Error.UNKNOWN_OPCODE)]
            with m.Elif(verdict.any()):
                m.d.sync += [port.error.valid.eq(1), port.error.code.eq(Error.BAD_OPERAND)]
            with m.Else():
                m.d.sync += [running.eq(1), inner.eq(0), outer.eq(0), part.eq(0)]
            m.d.sync += [judged.eq(0), ready_to_run.eq(0)]

        # ---- parts of tiles
        pending = Signal(range(3))
        m.d.comb += [
            begins.eq(starts & (part == 0) & (inner == 0)),
            free.eq((part != 0) | (inner != 0) | (pending != 2)),
            starts.eq(running & (timer == 0) & free & ((part != 0) | buffer.full)),
        ]
        span = Signal(9)
        m.d.sync += span.eq(Mux(args.tokens > config.columns, args.tokens, config.columns) - 1)
        with m.If(timer != 0):
            m.d.sync += timer.eq(timer - 1)
        x_tile, lane_tile = Signal(16), Signal(16)   # of the input tile
        with m.If(judged):
            m.d.sync += [x_tile.eq(args.x_base), lane_tile.eq(args.a_base)]
        row_tile = Signal(16)
        with m.If(judged):
            m.d.sync += row_tile.eq(args.b_base)
        with m.If(starts):
            m.d.sync += [timer.eq(span), part.eq(part + 1)]
            with m.If(last_part):
                m.d.sync += [part.eq(0), inner.eq(inner + 1), x_tile.eq(x_tile + args.tokens),
                             lane_tile.eq(lane_tile + args.rank)]
                with m.If(last_inner):
                    m.d.sync += [inner.eq(0), outer.eq(outer + 1), x_tile.eq(args.x_base), lane_tile.eq(args.a_base),
                                 row_tile.eq(row_tile + args.rank)]
                    with m.If(last_outer):
                        m.d.sync += running.eq(0)

        # Columns of the weights: one a cycle from the start of a part.
        reading, part_read = Signal(range(config.columns)), Signal.like(part)
        releasing = Signal()
        with m.If(starts):
            m.d.sync += [reading.eq(1), part_read.eq(part), releasing.eq(last_part)]
        with m.Elif(reading != 0):
            m.d.sync += reading.eq(reading + 1)
        m.d.comb += [
            buffer.index.eq(Cat(Mux(starts, 0, reading), Mux(starts, part, part_read))), buffer.by_column.eq(args.by_column),
            buffer.release.eq((reading == config.columns - 1) & releasing & ~starts),
        ]

        # Operands: a token a cycle, with what their sums are.
        bank = Signal()
        first_rank = Signal(9)
        m.d.comb += first_rank.eq(outer * config.subtiles + part)
        what = data.StructLayout({"tag": SumTag(config), "x": 16, "outer_done": 1, "valid": 1, "swap": 1})
        run = Signal(what)
        left = Signal(range(config.tokens + 1))
        closing = Signal()
        with m.If(starts):
            m.d.sync += [
                run.tag.valid.eq(1), run.valid.eq(1), run.swap.eq(1), run.x.eq(x_tile), run.tag.first.eq(inner == 0),
                run.tag.last.eq(last_inner), run.tag.bank.eq(bank), run.tag.address.eq(part << ceil_log2(config.tokens)),
                run.tag.hidden.eq(first_rank < args.rank), run.tag.rank.eq(first_rank), run.tag.slot.eq(args.slot),
                run.tag.shift.eq(args.hidden_shift), left.eq(args.tokens - 1),
                run.outer_done.eq(last_part & last_inner & (args.tokens == 1)), closing.eq(last_part & last_inner),
            ]
            with m.If(last_part & last_inner):
                m.d.sync += bank.eq(~bank)
        with m.Elif(left != 0):
            m.d.sync += [left.eq(left - 1), run.swap.eq(0), run.x.eq(run.x + 1),
                         run.tag.address.eq(run.tag.address + 1), run.outer_done.eq((left == 1) & closing)]
        with m.Else():
            m.d.sync += [run.tag.valid.eq(0), run.valid.eq(0), run.swap.eq(0), run.outer_done.eq(0)]
        m.d.comb += self.busy.eq(run.valid)

        # The tile buffer shows the first column `buffer.latency` cycles after the start; `load` is a cycle earlier,
        # and operands may follow `load` by one. `run` is a cycle behind the start itself.
        at_load = buffer.latency - 1
        load = Signal(data.StructLayout({"load": 1, "lane": len(array.command.lane)}))
        m.d.comb += [load.load.eq(starts), load.lane.eq(lane_tile + first_rank)]
        loading = delay(m, load, at_load, reset_less=False)
        running_in = delay(m, run, at_load, reset_less=False)
        m.d.comb += [
            array.command.load.eq(loading.load), array.command.lane.eq(loading.lane),
            array.command.swap.eq(running_in.swap), array.command.use.eq(running_in.valid),
            array.command.x.eq(running_in.x),
        ]
        tag = delay(m, running_in, array.latency, reset_less=False)
        finished = Signal(range(3))
        chosen = Signal(signed(SUM), reset_less=True)
        outs = []
        for column in range(config.columns):
            foot = place(m, f"foot_{column}", Foot(config), platform)
            m.d.comb += [foot.tag.eq(tag.tag), foot.p.eq(array.p[column]), foot.read.valid.eq(drain.read.valid),
                         foot.read.bank.eq(drain.read.bank), foot.read.address.eq(drain.read.address)]
            outs.append(foot.o)
            tag = delay(m, tag, 1, reset_less=False)
        m.d.comb += [hidden_foot.tag.eq(tag.tag), hidden_foot.p.eq(array.p[config.columns])]
        m.d.sync += chosen.eq(Cat(*outs).word_select(delay(m, drain.read.column, 2), SUM).as_signed())
        m.d.comb += drain.sum.eq(chosen)
        complete = delay(m, tag.outer_done & tag.valid, HiddenFoot.latency + 1, reset_less=False)

        # ---- reading of sums: one job a tile of outputs, in order
        job = data.StructLayout({"first": 1, **dict(DrainJob(config).members)})
        m.submodules.jobs = jobs = SyncFIFOBuffered(width=job.size, depth=2)
        late = Signal()
        entry = Signal(job)
        half = Signal()
        m.d.comb += [
            entry.first.eq(outer == 0), entry.bank.eq(bank), entry.slot.eq(args.slot), entry.half.eq(half), entry.last.eq(last_outer),
            entry.rank.eq(args.rank), entry.tokens.eq(args.tokens), entry.dot_shift.eq(args.dot_shift),
            entry.shift.eq(args.shift), jobs.w_data.eq(entry), jobs.w_en.eq(begins),
        ]
        m.d.sync += pending.eq(pending + begins - (drain.job.valid & drain.job.ready))
        m.d.sync += finished.eq(finished + complete - (drain.job.valid & drain.job.ready))
        head = data.View(job, jobs.r_data)
        # Rows of the adapter.
        row_job = stager.job.p.shape()
        m.submodules.row_jobs = row_jobs = SyncFIFOBuffered(width=row_job.size, depth=2)
        row_entry = Signal(row_job)
        staged = Signal(range(3))
        m.d.comb += [
            row_entry.base.eq(row_tile), row_entry.rank.eq(args.rank), row_jobs.w_data.eq(row_entry),
            row_jobs.w_en.eq(begins & (args.rank != 0)),
            stager.job.valid.eq(row_jobs.r_rdy), stager.job.p.eq(row_jobs.r_data), row_jobs.r_en.eq(stager.job.ready),
        ]
        with m.If(begins & (args.rank != 0)):
            m.d.sync += half.eq(~half)
        filling = Signal()
        m.d.comb += stager.half.eq(filling)
        with m.If(stager.job.valid & stager.job.ready):
            m.d.sync += filling.eq(~filling)
        m.d.sync += staged.eq(staged + stager.done - (drain.job.valid & drain.job.ready & (head.rank != 0)))
        m.d.comb += [
            # h of so many rank indices is complete after the second tile only.
            late.eq(head.first & (head.rank > config.subtiles) & (finished < 2)),
            drain.job.valid.eq(jobs.r_rdy & (finished != 0) & ((head.rank == 0) | (staged != 0)) & ~late),
            *(getattr(drain.job.p, name).eq(getattr(head, name)) for name in DrainJob(config).members), jobs.r_en.eq(drain.job.ready),
        ]
        m.d.comb += [
            self.o.valid.eq(drain.o.valid), self.o.p.eq(drain.o.p.data), drain.o.ready.eq(self.o.ready),
        ]
        m.d.sync += [
            port.done.eq(drain.o.valid & drain.o.ready & drain.o.p.last),
            self.saturated.eq(loader.saturated + dequantizer.saturated + hidden_foot.saturated + drain.saturated),
        ]
        return m
