"""Splits a product into parts of tiles and schedules them."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...shell.registers.errors import Error
from ...shell.signature import EngineCommand
from ...stream.delay import delay
from ...stream.product import narrow_product
from ...stream.queue import stepped
from .commands import LinearOperands
from .core import RowCommand
from .feet import SumTag
from .panels import Panel
from .weights.dequantize import Dequantizer
from .weights.tile_buffer import TileBuffer

__all__ = ["OutputTile", "Sums", "PartSequencer"]


def OutputTile(config):
    """Start of a tile of outputs.

    Where its sums are, its adapter rows, how it will be read. Of several in a panel also its number there, and whether
    it is the last.
    """
    return data.StructLayout(
        {
            "valid": 1,
            "first": 1,
            "last": 1,
            "bank": 1,
            "slot": 1,
            "rank": range(config.rank + 1),
            "tokens": range(config.tokens + 1),
            "dot_shift": 6,
            "shift": 6,
            "rows": 16,
            **({"tile": range(config.span), "closes": 1} if config.span > 1 else {}),
        }
    )


def Sums(config):
    """Description of a cycle's sums.

    ``complete`` with the last of a panel of outputs.
    """
    return data.StructLayout({"tag": SumTag(config), "complete": 1})


class PartSequencer(wiring.Component):
    """Runs a command: a part of a tile every max(tokens, columns) cycles.

    It waits while there are no weights.

    A part takes ``columns`` columns of a tile, or of two that follow each other in a panel (:mod:`.panels`); the tiles
    of a panel that have the same inputs follow each other. Its weights are read from the tile buffer from its start on,
    a column a cycle, and its operands enter the array right behind the first of them, a token a cycle. The next command
    is taken when the last part has begun and its operands are judged 3 cycles later.

    An ``early`` command takes ``tokens`` of the words counted by ``counts`` for each tile of its first tile of outputs,
    which begins when there are so many, 2 cycles behind the last of them.

    Members
    -------
    command : stream of commands. error : code of one that was refused.
    counts : a word of operands, which an early command waits for, is written in the next cycle.
    full, both : of the tile buffer. index, by_column, release : to it.
    soon : where parts go across tiles: a tile will be full; it was taken ``Dequantizer.latency`` cycles, without
        :meth:`certain` of them, before.
    reuse : rows of a further tile may be sent to the half that is being read: they arrive when it has been.
    pending : panels of outputs that have begun and were not read yet; at most 2.
    row : command of row 0. sums : in step with ``row``: what the operand's sums will be.
    tile : a tile of outputs begins.
    """

    def __init__(self, config):
        self.config = config
        super().__init__(
            {
                "command": In(stream.Signature(EngineCommand)),
                "error": Out(8),
                "counts": In(1),
                "full": In(1),
                **({"both": In(1), "soon": In(1)} if config.span > 1 else {}),
                "index": Out(range(config.edge)),
                "by_column": Out(1),
                "release": Out(1),
                "reuse": Out(1),
                "pending": In(range(3)),
                "row": Out(RowCommand(config)),
                "sums": Out(Sums(config)),
                "tile": Out(OutputTile(config)),
            }
        )

    @staticmethod
    def reuse_delay(config):
        """Delay of :attr:`reuse` as ``(part, cycles)``, where columns divide a tile.

        With parts of the least length, :attr:`reuse` comes ``cycles`` cycles and a register after the start of this
        part. Longer parts are long enough for it to come with the last one.

        The first words of a tile, if it is a dense one, are written so many cycles after `reuse` and a register that
        all reads, of the last two parts if they follow at once, come before.
        """
        parts = 2 if config.subtiles > 1 else 1
        return config.subtiles - parts, max(parts * config.columns - (Dequantizer.latency + 2), 0)

    @staticmethod
    def certain(config):
        """So many cycles before its start a part is sure to start, where parts go across tiles.

        Nothing but the next tile can hold it, whose rows are all on their way, and what tells of a part is there 3
        cycles after the start of the one before.
        """
        return min(config.columns - 3, Dequantizer.latency)

    @staticmethod
    def freed(config, columns):
        """Cycles from the start of the part that has a tile's last ``columns`` columns to :attr:`reuse`.

        Negative before it. A further tile's first words for these columns are in its third beat at the soonest, since
        scales are before codes and a dense row has several beats. They go to the buffer ``Dequantizer.latency`` cycles
        behind that beat, in the cycle in which the last of these columns is read.
        """
        return max(columns - Dequantizer.latency - 3, 1 - PartSequencer.certain(config))

    def elaborate(self, platform):
        m = Module()
        config = self.config
        args = Signal(LinearOperands)
        running, judged, in_the_way = self._take(m, args)

        # ---- starts of parts
        inner, outer, part = Signal(8), Signal(8), Signal(range(config.subtiles))
        timer, span = Signal(9), Signal(9)
        starts, may, idle = Signal(), Signal(), Signal(init=1)
        x_tile, lane_tile, row_tile = Signal(16), Signal(16), Signal(16)
        is_part, last_part, is_inner, last_inner, first_outer, last_outer, risk = self._places(
            m, args, judged, in_the_way, part, inner, outer
        )
        panel = None
        if config.span > 1:
            panel = Panel.of(
                m,
                config,
                args=args,
                judged=judged,
                part=part,
                starts=starts,
                last_part=last_part,
                last_inner=last_inner,
            )
            m.d.comb += [last_part.eq(is_part & (part == panel.top)), last_outer.eq(panel.last)]
            m.d.comb += starts.eq(running & idle & Mux(panel.crosses, self.both, is_part | may))
        else:
            m.d.comb += starts.eq(running & idle & (is_part | may))
        # The first tile of outputs ends with new words of h: those that the command before left in the same slot must
        # have been read.
        is_here = self._guard(m, args, starts & ~is_part & first_outer)
        others = Mux(is_inner, self.pending > 1, self.pending != 0)
        m.d.comb += may.eq(self.full & (is_inner | (self.pending != 2)) & (is_here | ~first_outer) & ~(others & risk))
        m.d.sync += span.eq(Mux(args.tokens > config.columns, args.tokens, config.columns) - 1)
        m.d.sync += idle.eq(timer <= 1)
        with m.If(timer != 0):
            m.d.sync += timer.eq(timer - 1)
        with m.If(judged):
            m.d.sync += [
                inner.eq(0),
                outer.eq(0),
                part.eq(0),
                x_tile.eq(args.x_base),
                lane_tile.eq(args.a_base),
                row_tile.eq(args.b_base),
            ]
        with m.If(starts):
            # A part has two columns at least, so the timer is never loaded with 0.
            m.d.sync += [timer.eq(span), idle.eq(0), part.eq(part + 1)]
            with m.If(last_part):
                m.d.sync += [
                    part.eq(0),
                    inner.eq(inner + 1),
                    x_tile.eq(x_tile + args.tokens),
                    lane_tile.eq(lane_tile + args.rank),
                ]
                with m.If(last_inner):
                    m.d.sync += [
                        inner.eq(0),
                        outer.eq(outer + 1),
                        x_tile.eq(args.x_base),
                        lane_tile.eq(args.a_base),
                        *([row_tile.eq(row_tile + args.rank)] if panel is None else []),
                    ]
                    with m.If(last_outer):
                        m.d.sync += running.eq(0)

        # ---- columns of weights: one a cycle from the start of a part
        # The next command is taken while those of the last part are read.
        if panel is None:
            early, wait = self.reuse_delay(config)
            self._columns(m, args, starts, part, last_part)
            is_short = args.tokens <= config.columns
            m.d.sync += self.reuse.eq(
                (starts & ~is_short & last_part) | delay(m, starts & is_short & (part == early), wait, reset_less=False)
            )
        else:
            self._columns_across(m, args, starts, panel)
            self._reuse_across(m, running & (timer <= self.certain(config)), starts, panel)

        # ---- operands: a token a cycle, with what their sums are
        bank, closing = Signal(), Signal()
        rank = Signal(8 + ceil_log2(config.subtiles))
        m.d.comb += rank.eq(Cat(part, outer if panel is None else ~first_outer))
        run = Signal(data.StructLayout({"sums": Sums(config), "x": 16, "swap": 1}))
        left = Signal(range(config.tokens + 1))
        tag = run.sums.tag
        with m.If(starts):
            m.d.sync += [
                run.swap.eq(1),
                run.x.eq(x_tile),
                left.eq(args.tokens - 1),
                closing.eq(last_part & last_inner),
                tag.valid.eq(1),
                tag.first.eq(~is_inner),
                tag.last.eq(last_inner),
                tag.bank.eq(bank),
                tag.address.eq(part << ceil_log2(config.tokens)),
                tag.hidden.eq(rank < args.rank),
                tag.rank.eq(rank),
                tag.slot.eq(args.slot),
                tag.shift.eq(args.hidden_shift),
                run.sums.complete.eq(last_part & last_inner & (args.tokens == 1)),
            ]
            with m.If(last_part & last_inner):
                m.d.sync += bank.eq(~bank)
        with m.Elif(left != 0):
            m.d.sync += [
                left.eq(left - 1),
                run.swap.eq(0),
                run.x.eq(run.x + 1),
                tag.address.eq(tag.address + 1),
                run.sums.complete.eq((left == 1) & closing),
            ]
        with m.Else():
            m.d.sync += [run.swap.eq(0), tag.valid.eq(0), run.sums.complete.eq(0)]

        # The buffer shows the first column `latency` cycles after the start, `load` is a cycle ahead of that, and the
        # operands, which are a cycle behind the start, a cycle behind `load`.
        behind = TileBuffer.latency(config) - 1
        load = Signal(data.StructLayout({"load": 1, "lane": self.row.lane.shape()}))
        m.d.comb += [load.load.eq(starts), load.lane.eq(lane_tile + rank)]
        loads, runs = (delay(m, value, behind, reset_less=False) for value in (load, run))
        m.d.comb += [
            self.row.load.eq(loads.load),
            self.row.lane.eq(loads.lane),
            self.row.swap.eq(runs.swap),
            self.row.use.eq(runs.sums.tag.valid),
            self.row.x.eq(runs.x),
            self.sums.eq(runs.sums),
        ]
        begins, last = ~is_part, last_outer
        if panel is not None:
            begins, last = ~is_part | panel.crosses, last_outer & panel.closes
            m.d.comb += [self.tile.tile.eq(panel.begins), self.tile.closes.eq(panel.closes)]
            with m.If(self.tile.valid):
                m.d.sync += row_tile.eq(row_tile + args.rank)
        m.d.comb += [
            self.tile.valid.eq(starts & begins & ~is_inner),
            self.tile.first.eq(first_outer),
            self.tile.last.eq(last),
            self.tile.bank.eq(bank),
            self.tile.slot.eq(args.slot),
            self.tile.rank.eq(args.rank),
            self.tile.tokens.eq(args.tokens),
            self.tile.dot_shift.eq(args.dot_shift),
            self.tile.shift.eq(args.shift),
            self.tile.rows.eq(row_tile),
        ]
        return m

    def _columns(self, m, args, starts, part, last_part):
        """Reads a part's columns of one tile."""
        config = self.config
        reading, part_read, by_column, releasing = Signal(range(config.columns)), Signal.like(part), Signal(), Signal()
        with m.If(starts):
            m.d.sync += [reading.eq(1), part_read.eq(part), by_column.eq(args.by_column), releasing.eq(last_part)]
        with m.Elif(reading != 0):
            m.d.sync += reading.eq(reading + 1)
        m.d.comb += [
            self.index.eq(Cat(Mux(starts, 0, reading), Mux(starts, part, part_read))),
            self.by_column.eq(Mux(starts, args.by_column, by_column)),
            self.release.eq((reading == config.columns - 1) & releasing & ~starts),
        ]

    def _columns_across(self, m, args, starts, panel):
        """Reads a part's columns of a tile and of the next.

        Behind a panel's last tile, what is read has no use: neither its sums nor what they wrap to.
        """
        reading, column = Signal(range(self.config.columns)), Signal.like(self.index)
        by_column, releasing = Signal(), Signal()
        with m.If(starts):
            m.d.sync += [reading.eq(1), by_column.eq(args.by_column), releasing.eq(panel.ends)]
        with m.Elif(reading != 0):
            m.d.sync += reading.eq(Mux(reading == self.config.columns - 1, 0, reading + 1))
        with m.If(starts | (reading != 0)):
            m.d.sync += column.eq(self.index + 1)
        m.d.comb += [
            self.index.eq(Mux(starts, panel.first, column)),
            self.by_column.eq(Mux(starts, args.by_column, by_column)),
            # The last column of a tile is no part's first.
            self.release.eq((reading != 0) & releasing & column.all() & ~starts),
        ]

    def _reuse_across(self, m, near, starts, panel):
        """Sends ``reuse`` as soon as a tile's last part is sure to start; ``near``: the part before it is that far."""
        config = self.config
        # Tiles that are or will be in the buffer when the part starts.
        tiles, sure, told = Signal(range(3)), Signal(), Signal()
        left = Signal(range(config.columns + 1))
        m.d.comb += [sure.eq(near & panel.ends & (~panel.crosses | (tiles == 2)) & ~told), self.reuse.eq(left == 1)]
        waits = [self.certain(config) + self.freed(config, columns) for columns in range(config.columns + 1)]
        m.d.sync += [
            tiles.eq(stepped(tiles, self.soon, self.reuse)),
            told.eq(~starts & (told | sure)),
            left.eq(Mux(sure, Array(waits)[config.edge - panel.first], Mux(left == 0, 0, left - 1))),
        ]

    def _places(self, m, args, judged, in_the_way, part, inner, outer):
        """Registers that tell where the next part lies.

        They are behind the counts by a cycle, and no part starts in the cycle after another one.
        """
        config = self.config
        names = ("is_part", "last_part", "is_inner", "last_inner", "first_outer", "last_outer", "risk")
        is_part, last_part, is_inner, last_inner, first_outer, last_outer, risk = (
            Signal(name=name, reset_less=True) for name in names
        )
        alone = config.span == 1  # a panel says the rest
        inner_top, outer_top = (Signal(8, name=name, reset_less=True) for name in ("inner_top", "outer_top"))
        m.d.sync += [
            inner_top.eq(args.inner - 1),
            outer_top.eq(args.outer - 1),
            is_part.eq(part != 0),
            *([last_part.eq(part == config.subtiles - 1)] if alone else []),
            is_inner.eq(inner != 0),
            last_inner.eq(inner == inner_top),
            first_outer.eq(outer == 0),
            *([last_outer.eq(outer == outer_top)] if alone else []),
            risk.eq((inner == inner_top) & (outer == 0) & in_the_way),
        ]
        # The first part of a command may start at once.
        with m.If(judged):
            m.d.sync += [
                is_part.eq(0),
                *([last_part.eq(config.subtiles == 1)] if alone else []),
                is_inner.eq(0),
                last_inner.eq(args.inner == 1),
                first_outer.eq(1),
                *([last_outer.eq(args.outer == 1)] if alone else []),
                risk.eq((args.inner == 1) & in_the_way),
            ]
        return is_part, last_part, is_inner, last_inner, first_outer, last_outer, risk

    def _guard(self, m, args, begins):
        """Whether the operands of a tile are here.

        If the tile ``begins``, they are subtracted from the count.
        """
        words, begun, is_here = Signal(range(self.config.depth + 1)), Signal(), Signal()
        # What a tile took is gone three cycles later, before another can begin.
        m.d.sync += [
            begun.eq(begins & args.early),
            words.eq(words + self.counts - Mux(begun, args.tokens, 0)),
            is_here.eq(~args.early | (words >= args.tokens)),
        ]
        return is_here

    def _take(self, m, args):
        """Takes and judges commands.

        ``running`` from the cycle after ``judged`` until the last part has begun. ``in_the_way``: its h goes where the
        h of the command before is.
        """
        config = self.config
        running, known, slot, had_h = Signal(), Signal(), Signal(), Signal()
        steps = Signal(3)  # taken, products known, judged
        m.d.comb += self.command.ready.eq(~running & (steps == 0) & (self.error == 0))
        m.d.sync += steps.eq(steps << 1)
        with m.If(self.command.valid & self.command.ready):
            m.d.sync += [
                args.eq(self.command.p.args),
                known.eq(self.command.p.opcode == 0),
                steps.eq(1),
                slot.eq(args.slot),
                had_h.eq(args.rank != 0),
            ]
        x_words, a_words, b_words = Signal(16), Signal(14), Signal(14)
        # Words from each base to the memory's end, negative beyond it. An early command's may go on at the start.
        x_room, a_room, b_room = (Signal(signed(17), name=f"{name}_room") for name in "xab")
        # What is read for one panel of outputs is read once: it may pass through the memory.
        outside, once = Signal(), Signal()
        m.d.sync += [
            once.eq(args.early & (args.outer <= config.span)),
            x_room.eq(config.depth - Mux(args.early, 0, args.x_base)),
            a_room.eq(config.lane_depth - args.a_base),
            b_room.eq(config.lane_depth - args.b_base),
            outside.eq(args.x_base >= config.depth),
        ]
        # More bits than the largest of each has need not be looked at: it is refused anyway.
        tokens, rank = args.tokens[: len(self.tile.tokens)], args.rank[: len(self.tile.rank)]
        m.d.sync += [
            x_words.eq(narrow_product(args.inner, tokens)),
            a_words.eq(narrow_product(args.inner, rank)),
            b_words.eq(narrow_product(args.outer, rank)),
        ]
        bad, in_the_way = Signal(), Signal()
        m.d.sync += in_the_way.eq(had_h & (args.rank != 0) & (args.slot == slot))
        m.d.sync += bad.eq(
            (args.inner == 0)
            | (args.outer == 0)
            | (args.tokens == 0)
            | (args.tokens > config.tokens)
            | (args.rank > config.rank)
            | ((args.rank > args.outer * config.subtiles) if config.span == 1 else 0)
            | ((x_words > x_room) & ~once)
            | outside
            | ((args.rank != 0) & ((a_words > a_room) | (b_words > b_room)))
        )
        with m.If(steps[2]):
            with m.If(~known):
                m.d.sync += self.error.eq(Error.UNKNOWN_OPCODE)
            with m.Elif(bad):
                m.d.sync += self.error.eq(Error.BAD_OPERAND)
            with m.Else():
                m.d.sync += running.eq(1)
        return running, steps[2], in_the_way
