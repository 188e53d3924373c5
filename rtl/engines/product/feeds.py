"""Which lines of tiles enter the array, and when."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from ...formats.tiles.aligned import DROP, FRACTION
from ...formats.tiles.codes import EDGE, ZERO
from ...formats.tiles.product import BIAS_LIFT, EXPOSED, REACH, ProductOperands
from ...stream.delay import delay, registered
from ...stream.queue import ShortQueue, count_up_down
from .places import ADDRESSED, Places, place_layout
from .turning import TurningMemory, turning_read

__all__ = ["DEPTH", "JOBS", "TOP", "KeptFeed", "RowFeed", "job_layout", "kept_layout", "row_job_layout", "row_layout"]

_BITS = (EDGE - 1).bit_length()
#: Bits of an exponent of sums.
TOP = 10
#: Jobs that wait, and lines before the array.
JOBS, DEPTH = 4, 16


def job_layout():
    """A command's operands, and the exponent of its tile's unit."""
    return data.StructLayout({"args": ProductOperands, "top": signed(TOP), "bias": 1})


def row_job_layout():
    """The same, and where its rows begin."""
    return data.StructLayout(job_layout().members | {"place": place_layout()})


def row_layout(config):
    """A stream row's place.

    ``first``: the next kept tile comes into use. ``opens``, ``part``: it is the first of its command, of its part.
    ``start``: its sums begin. ``last``: they are results, with ``positive`` none below 0. ``ends``: it is the command's
    last. ``bias``: the bias in place of a product. ``bad``: it is outside the tiles that are held.
    """
    return data.StructLayout(
        {
            "first": 1,
            "opens": 1,
            "part": 1,
            "start": 1,
            "last": 1,
            "positive": 1,
            "ends": 1,
            "bias": 1,
            "bad": 1,
            "far": 1,
            "drop": DROP,
            "row": _BITS,
            "pass": range(config.passes),
            "slot": 5,
            "o": 2,
            "unit": signed(TOP + 1),
            "o_column": _BITS,
            "columns": _BITS,
        }
    )


def kept_layout(config):
    """A line of the array, and how its tile loads.

    ``exposed``: see ``ProductOperands``.
    """
    return data.StructLayout({"w": 8 * config.array_columns, "exposed": EXPOSED})


class _Nest:
    """Loops over passes, tiles of K and parts of a tile.

    A part is as many indices of K as the array has rows.
    """

    def __init__(self, m, config, job, name):
        args = job.args
        self.log = (config.array_columns - 1).bit_length()
        self.part_log = (config.array_rows - 1).bit_length()
        parts = EDGE // config.array_rows
        self.pass_ = Signal(range(config.passes), name=f"{name}_pass")
        self.tile, self.part = Signal(_BITS, name=f"{name}_tile"), Signal(range(max(parts, 2)), name=f"{name}_part")
        self.slot = Signal(8, name=f"{name}_slot")
        end = args.o_column + args.columns
        self.first_pass, self.last_pass = args.o_column >> self.log, end[:_BITS] >> self.log
        first_part, last_part = (each >> self.part_log for each in (args.k_from, args.k_to))
        self.begin_part = Mux(job.bias, 0, first_part)
        first_tile, last_tile = self.tile == 0, self.tile == Mux(job.bias, 0, args.tiles)
        ends_part = self.part == Mux(job.bias, 0, Mux(last_tile, last_part, parts - 1))
        ends_pass = ends_part & last_tile
        found = {
            "first_tile": first_tile,
            "last_tile": last_tile,
            "opens": first_tile & (self.part == self.begin_part),
            "last_part": ends_part,
            "ends_pass": ends_pass,
            "ends": ends_pass & (self.pass_ == self.last_pass),
        }
        # Registers: they are a line's in the cycle after it was issued, and the part's from its second cycle on.
        self.stale = Signal(name=f"{name}_stale")
        m.d.sync += self.stale.eq(0)
        for flag, value in found.items():
            register = Signal(name=f"{name}_{flag}")
            m.d.sync += register.eq(value)
            setattr(self, flag, register)
        self.m = m

    def begin(self, args, bias):
        """Statements at the start of a job with these operands."""
        return [
            self.stale.eq(1),
            self.pass_.eq(args.o_column >> self.log),
            self.tile.eq(0),
            self.part.eq(Mux(bias, 0, args.k_from >> self.part_log)),
        ]

    def step(self, slot, step):
        """Statements after a part."""
        m = self.m
        m.d.sync += self.stale.eq(1)
        with m.If(~self.last_part):
            m.d.sync += self.part.eq(self.part + 1)
        with m.Elif(~self.last_tile):
            m.d.sync += [self.part.eq(0), self.tile.eq(self.tile + 1), self.slot.eq(self.slot + step)]
        with m.Else():
            m.d.sync += [
                self.part.eq(self.begin_part),
                self.tile.eq(0),
                self.slot.eq(slot),
                self.pass_.eq(self.pass_ + 1),
            ]


class _Jobs:
    """A queue of jobs, and the one at work.

    The one that follows begins in the cycle after the last is over.
    """

    def __init__(self, m, port, width):
        m.submodules.jobs = fifo = SyncFIFOBuffered(width=width, depth=JOBS)
        self.job, self.busy = Signal(port.p.shape()), Signal()
        self.next = Signal(port.p.shape())
        self.over, self.begins = Signal(), Signal()
        m.d.comb += [
            fifo.w_data.eq(port.p),
            fifo.w_en.eq(port.valid),
            port.ready.eq(fifo.w_rdy),
            self.next.eq(fifo.r_data),
            self.begins.eq(fifo.r_rdy & (~self.busy | self.over)),
            fifo.r_en.eq(self.begins),
        ]
        with m.If(self.begins):
            m.d.sync += [self.job.eq(self.next), self.busy.eq(1)]
        with m.Elif(self.over):
            m.d.sync += self.busy.eq(0)


class KeptFeed(wiring.Component):
    """Reads the kept tiles of jobs, a line of the array a cycle.

    Lines outside K are zeros. A job of a bias has none.

    Members
    -------
    jobs : stream of jobs. read, blank, o : those of a :class:`~.turning.TurningMemory`.
    w : stream of lines, with their :func:`kept_layout`.
    """

    def __init__(self, config):
        self.config = config
        self.layout = kept_layout(config)
        super().__init__(
            {
                "jobs": In(stream.Signature(job_layout())),
                "read": Out(turning_read(config.w_slots)),
                "blank": Out(1),
                "o": In(8 * config.array_columns),
                "w": Out(stream.Signature(self.layout)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        jobs = _Jobs(m, self.jobs, len(self.jobs.p.as_value()))
        args = jobs.job.args
        nest = _Nest(m, config, jobs.job, "kept")
        row, last = Signal(range(config.array_rows)), Signal()
        credit, go = Signal(DEPTH, init=(1 << DEPTH) - 1), Signal()
        m.d.comb += [go.eq(jobs.busy & credit[0]), last.eq(row == config.array_rows - 1)]
        m.d.comb += jobs.over.eq(go & last & nest.ends)
        index = Signal(_BITS)
        m.d.comb += [
            index.eq(Cat(row, nest.part)[:_BITS]),
            self.read.slot.eq(nest.slot),
            self.read.line.eq(index + args.w_row),
            self.read.first.eq((nest.pass_ << nest.log) - args.o_column + args.w_column),
            self.read.turn.eq(args.w_turn),
        ]
        with m.If(go):
            m.d.sync += row.eq(Mux(last, 0, row + 1))
            with m.If(last):
                nest.step(args.w, args.w_step)
        with m.If(jobs.begins):
            m.d.sync += [*nest.begin(jobs.next.args, 0), nest.slot.eq(jobs.next.args.w), row.eq(0)]
        below, above = Signal(), Signal()
        m.d.sync += [below.eq(index < args.k_from), above.eq(index > args.k_to)]
        # mutant unmasked: m.d.comb += self.blank.eq(0)
        m.d.comb += self.blank.eq((nest.first_tile & below) | (nest.last_tile & above))
        there = delay(m, go, TurningMemory.latency, reset_less=False)
        m.submodules.queue = queue = ShortQueue(width=self.layout.size, depth=DEPTH)
        # A line's room is free again when it is taken.
        count_up_down(m, credit, queue.r_rdy & queue.r_en, go)
        m.d.comb += [
            queue.w_en.eq(there),
            queue.w_data.eq(Cat(self.o, delay(m, args.exposed, TurningMemory.latency))),
            self.w.valid.eq(queue.r_rdy),
            self.w.p.eq(queue.r_data),
            queue.r_en.eq(self.w.ready),
        ]
        return m


class RowFeed(wiring.Component):
    """Reads the stream rows of jobs, and knows each row's power of two.

    Each part of each kept tile gets all rows. A row is ready :attr:`latency` cycles after it was issued. With
    ``gather`` output rows are pixels (y, x) of images that follow each other line by line, the first (``line``,
    ``column``). Each reads place (``dy``, ``dx``) beside it::

        t = y * stride + dy                 zeros outside 0 ... end
        t = y + dy                          with ``divide``: pixel t // stride; with ``every`` only where none remains

    and x likewise. Its address goes on from that of the row before, see ``ScanOperands``.

    Members
    -------
    jobs : stream of jobs. read, blank, o : those of a :class:`~.turning.TurningMemory`.
    x_exponent, w_exponent, b_exponent : places whose exponents are read, and the exponents in the next cycle.
    i : stream of lines, with their :func:`row_layout`.
    """

    #: Of the address, then of the memory.
    addresses = 7
    latency = addresses + TurningMemory.latency

    def __init__(self, config):
        self.config = config
        self.layout = data.StructLayout({"x": 8 * config.array_rows, "row": row_layout(config)})
        super().__init__(
            {
                "jobs": In(stream.Signature(row_job_layout())),
                "read": Out(turning_read(config.x_slots)),
                "blank": Out(1),
                "o": In(8 * config.array_rows),
                "x_slot": Out(range(config.x_slots)),
                "w_slot": Out(range(config.w_slots)),
                "b_slot": Out(5),
                "x_exponent": In(signed(8)),
                "w_exponent": In(signed(8)),
                "b_exponent": In(signed(8)),
                "i": Out(stream.Signature(self.layout)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        jobs = _Jobs(m, self.jobs, len(self.jobs.p.as_value()))
        job, args = jobs.job, jobs.job.args
        nest = _Nest(m, config, job, "row")
        w_slot = Signal(8)
        row, last = Signal(_BITS), Signal()
        credit, go = Signal(DEPTH, init=(1 << DEPTH) - 1), Signal()
        m.d.comb += [go.eq(jobs.busy & credit[0] & ~(last & nest.stale)), last.eq(row == args.rows)]
        m.d.comb += jobs.over.eq(go & last & nest.ends)
        with m.If(go):
            m.d.sync += row.eq(Mux(last, 0, row + 1))
            with m.If(last):
                nest.step(args.x, args.x_step)
                with m.If(nest.last_part):
                    m.d.sync += w_slot.eq(Mux(nest.last_tile, args.w, w_slot + args.w_step))
        begins = Signal()
        with m.If(go):
            m.d.sync += begins.eq(0)
        with m.If(jobs.begins):
            following = jobs.next.args
            m.d.sync += [*nest.begin(following, jobs.next.bias), nest.slot.eq(following.x), w_slot.eq(following.w)]
            m.d.sync += [row.eq(0), begins.eq(1)]

        now = Signal(row_layout(config))
        m.d.comb += [
            now.first.eq((row == 0) & ~job.bias),
            now.opens.eq(begins),
            now.part.eq(row == 0),
            now.start.eq(args.start),
            now.last.eq(args.last),
            now.positive.eq(args.positive),
            now.ends.eq(last),
            now.bias.eq(job.bias),
            now.row.eq(args.o_row + row),
            now["pass"].eq(nest.pass_),
            now.slot.eq(args.bias),
            now.o.eq(args.o),
            now.unit.eq(job.top - FRACTION),
            now.o_column.eq(args.o_column),
            now.columns.eq(args.columns),
        ]
        # Where the row is in its command is known a cycle later.
        tag, there, first = Signal(now.shape()), go, nest.part << nest.part_log
        came = delay(m, now, 1)
        m.d.comb += [
            tag.eq(came),
            tag.start.eq(came.start & nest.opens),
            tag.last.eq(came.last & nest.ends_pass),
            tag.ends.eq(came.ends & nest.ends),
        ]
        lines, slot, inside, bad = self._addresses(m, job, go, nest.slot, row)
        wait = self.addresses
        there, came = delay(m, there, wait, reset_less=False), delay(m, tag, wait - 1, reset_less=False)
        tag = Signal(now.shape())
        m.d.comb += [tag.eq(came), tag.bad.eq(bad)]
        own_w, first, turn, top = (delay(m, each, wait) for each in (w_slot, first, args.x_turn, job.top))
        m.d.comb += [
            self.read.slot.eq(slot),
            self.read.line.eq(lines),
            self.read.first.eq(first),
            self.read.turn.eq(turn),
            self.x_slot.eq(slot),
            self.w_slot.eq(own_w),
            self.b_slot.eq(tag.slot),
        ]
        # Exponents, then how far a row is below its tile's unit.
        own, zero = Signal(signed(TOP), reset_less=True), Signal(reset_less=True)
        bias = delay(m, tag.bias, 1)
        present = delay(m, inside, 1)
        pairs = self.x_exponent + self.w_exponent
        m.d.sync += [
            own.eq(Mux(bias, self.b_exponent - BIAS_LIFT, pairs)),
            zero.eq(
                Mux(bias, self.b_exponent == ZERO, (self.x_exponent == ZERO) | (self.w_exponent == ZERO) | ~present)
            ),
        ]
        below = Signal(signed(TOP + 1))
        m.d.comb += below.eq(delay(m, top, 2) - own)
        drop, far = Signal(DROP, reset_less=True), Signal(reset_less=True)
        m.d.sync += [drop.eq(below), far.eq(zero | (below > FRACTION))]
        rest = TurningMemory.latency - 3
        drop, far = delay(m, drop, rest), delay(m, far, rest)
        there, tag = (delay(m, each, TurningMemory.latency, reset_less=False) for each in (there, tag))
        m.submodules.queue = queue = ShortQueue(width=len(self.i.p.as_value()), depth=DEPTH)
        line = Signal(self.layout)
        m.d.comb += [
            self.blank.eq(~present),
            line.x.eq(self.o),
            line.row.eq(tag),
            line.row.drop.eq(drop),
            line.row.far.eq(far),
            queue.w_en.eq(there),
            queue.w_data.eq(line),
            self.i.valid.eq(queue.r_rdy),
            self.i.p.eq(queue.r_data),
            queue.r_en.eq(self.i.ready),
        ]
        # A line's room is free again when it is taken.
        count_up_down(m, credit, queue.r_rdy & queue.r_en, go)
        return m

    def _addresses(self, m, job, go, base, row):
        """Line, slot, whether it is in the image, and whether no slot has it.

        They are there :attr:`addresses` cycles later."""
        stages = [job]
        for _ in range(self.addresses - 1):
            stages.append(delay(m, stages[-1], 1))
        places = Places(m, stages, go, row == 0)
        wait = self.addresses - 1 - ADDRESSED
        line, inside, bad = (delay(m, each, wait) for each in (places.line, places.inside, places.bad))
        args = stages[ADDRESSED].args
        tiles = registered(m, Mux(args.gather, places.near[:REACH] * args.x_pitch, 0)[: len(self.x_slot)])
        args = stages[-1].args
        base, row = (delay(m, each, self.addresses - 1) for each in (base, row))
        line = registered(m, Mux(args.gather, line, args.x_row + row), _BITS)
        slot = registered(m, (base + tiles)[: len(self.x_slot)])
        inside = registered(m, ~args.gather | (inside & ~bad))
        return line, slot, inside, delay(m, bad, 1)
