"""Adds the adapter's part to finished sums and requantises them."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2, exact_log2

from ...formats.weights.linear import ACTIVATION, DOT_GUARD, MASTER, SUM, WEIGHT
from ...hierarchy import place
from ...stream.delay import delay
from ..beats import BeatQueue
from ..words import PRECISION, Requantize, sign_extended
from .feet import HiddenWord, address_bits
from .panels import starts_of

__all__ = ["DrainJob", "RowWord", "Drain"]


def DrainJob(config):
    """A tile of outputs of tokens up to number ``final``, for :class:`Drain`.

    ``bank`` of its sums, which ``slot`` of h and ``half`` of adapter rows, ``rank`` (0: no adapter), shifts, and
    whether it is the ``last`` of its command. In a panel of several also its number, and whether it is the last.
    """
    return data.StructLayout(
        {
            "bank": 1,
            "slot": 1,
            "half": 1,
            "last": 1,
            "rank": range(config.rank + 1),
            "final": range(config.tokens),
            "dot_shift": 6,
            "shift": 6,
            **({"tile": range(config.span), "closes": 1} if config.span > 1 else {}),
        }
    )


def RowWord(config):
    """An adapter word for the next tile.

    ``row`` within the tile, ``rank`` index, ``half`` of the memory.
    """
    return data.StructLayout(
        {"valid": 1, "half": 1, "row": range(config.edge), "rank": range(config.rank), "value": signed(WEIGHT.width)}
    )


class Drain(wiring.Component):
    """Makes outputs from sums: adds the adapter's part and requantises.

    ``config.outputs`` outputs a cycle: ``y = requantise(sum + align(h . b))``, tokens outermost. With an adapter they
    are made in phases, ``config.dots`` a cycle.

    The dot product of a token's h with an output's adapter row has DOT_GUARD more fraction bits and is shifted
    right by ``dot_shift`` (floor) before it is added. ``edge`` words of 32 bits a token leave in beats.

    Members
    -------
    job : stream of :func:`DrainJob`; taken when it is done.
    read : bank and address of sums, and the first of their columns; ``sums`` are there 3 cycles later, those from
        ``dots`` on only if ``outputs`` are read there. Columns before the first are of the next part, whose address
        is ``beyond``: see :meth:`address_of`. The last of a job are read ``rank`` + 1 cycles after it was taken, long
        before a product that begins then has sums.
    row : adapter words. hidden : words of h.
    o : stream of beats; ``last`` marks the last beat of a command.
    saturated : how many outputs were clipped.
    """

    def __init__(self, config):
        self.config = config
        super().__init__(
            {
                "job": In(stream.Signature(DrainJob(config))),
                "read": Out(
                    data.StructLayout(
                        {
                            "valid": 1,
                            "bank": 1,
                            "address": address_bits(config),
                            "column": range(config.columns),
                            **({"beyond": address_bits(config)} if config.span > 1 else {}),
                        }
                    )
                ),
                "sums": In(data.ArrayLayout(signed(SUM), config.outputs)),
                "row": In(RowWord(config)),
                "hidden": In(HiddenWord(config)),
                "o": Out(stream.Signature(data.StructLayout({"data": config.data_bits, "last": 1}))),
                "saturated": Out(range(config.outputs + 1)),
            }
        )

    def address_of(self, column):
        """Address that is read of a column."""
        if self.config.span == 1:
            return self.read.address
        return Mux(self.read.column > column, self.read.beyond, self.read.address)

    def elaborate(self, platform):
        m = Module()
        config = self.config
        together, few = config.outputs, config.dots
        steps = config.beat_words // together
        row, token = Signal(range(config.edge)), Signal(range(config.tokens))
        last_row, last_phase = Signal(), Signal()
        # Room for all that is under way: a beat takes `steps` cycles, the way some 30 cycles.
        queue = place(
            m,
            "queue",
            BeatQueue(bits=config.data_bits, word_bits=together * MASTER.width, depth=64, spare=40 // steps + 2),
            platform,
        )
        connect(m, queue.o, flipped(self.o))
        job = self.job.p
        go, ends, all_at_once = Signal(), Signal(), Signal()
        low, phases = exact_log2(few), row[exact_log2(few) : exact_log2(together)]
        m.d.comb += [
            all_at_once.eq(job.rank == 0),
            last_phase.eq(all_at_once | (phases.all() if together > few else 1)),
            last_row.eq(last_phase & row[exact_log2(together) :].all()),
            go.eq(self.job.valid & queue.roomy),
            ends.eq(last_row & (token == job.final)),
            self.job.ready.eq(go & ends),
        ]
        at_dot = config.rank + 2
        read = Signal.like(self.read)
        m.d.comb += [
            read.valid.eq(self.job.valid),
            read.bank.eq(job.bank),
            # So that they come when they are added to the dot products.
            self.read.eq(delay(m, read, at_dot + 2 - 3, reset_less=False)),
        ]
        if config.span == 1:
            m.d.comb += [
                read.column.eq(row[: ceil_log2(config.columns)]),
                read.address.eq(Cat(token, row[ceil_log2(config.columns) :])),
            ]
        else:
            self._across(m, read, row, token, go, Mux(all_at_once, together, few))
        with m.If(go):
            m.d.sync += row.eq(row + Mux(all_at_once, together, few))
            with m.If(last_row):
                m.d.sync += token.eq(Mux(ends, 0, token + 1))

        # The dot products: a rank index a cycle, each behind the other.
        where = Signal(
            data.StructLayout(
                {
                    "slot": 1,
                    "half": 1,
                    "rank": range(config.rank + 1),
                    "token": range(config.tokens),
                    "row": range(config.edge),
                }
            )
        )
        m.d.comb += [
            where.slot.eq(job.slot),
            where.half.eq(job.half),
            where.rank.eq(job.rank),
            where.token.eq(token),
            where.row.eq(row),
        ]
        dots = [None] * few
        for index in range(config.rank):
            m.submodules[f"h_{index}"] = h = memory.Memory(
                shape=signed(ACTIVATION.width), depth=2 * config.tokens, init=[]
            )
            h_write, h_read = h.write_port(), h.read_port(domain="comb")
            a = Signal(signed(ACTIVATION.width), reset_less=True)
            m.d.comb += [
                h_write.en.eq(self.hidden.valid & (self.hidden.rank == index)),
                h_write.addr.eq(Cat(self.hidden.token, self.hidden.slot)),
                h_write.data.eq(self.hidden.value),
                h_read.addr.eq(Cat(where.token, where.slot)),
            ]
            m.d.sync += a.eq(h_read.data)
            for side in range(few):
                m.submodules[f"rows_{index}_{side}"] = rows = memory.Memory(
                    shape=signed(WEIGHT.width), depth=2 * config.edge // few, init=[]
                )
                row_write, row_read = rows.write_port(), rows.read_port(domain="comb")
                b = Signal(signed(WEIGHT.width), reset_less=True)
                product = Signal(signed(ACTIVATION.width + WEIGHT.width), reset_less=True)
                partial = Signal(signed(PRECISION.sum), reset_less=True)
                mine = (self.row.row[:low] == side) if low else 1
                m.d.comb += [
                    row_write.en.eq(self.row.valid & (self.row.rank == index) & mine),
                    row_write.addr.eq(Cat(self.row.row[low:], self.row.half)),
                    row_write.data.eq(self.row.value),
                    row_read.addr.eq(Cat(where.row[low:], where.half)),
                ]
                m.d.sync += [
                    b.eq(Mux(index < where.rank, row_read.data, 0)),
                    product.eq(a * b),
                    partial.eq(product if dots[side] is None else product + dots[side]),
                ]
                dots[side] = partial
            where = delay(m, where, 1)
        dots += [None] * (together - few)
        results = [self._finish(m, platform, side, dot, at_dot) for side, dot in enumerate(dots)]
        tag = Signal(data.StructLayout({"valid": 1, "all": 1, "phase": max(len(phases), 1), "whole": 1, "last": 1}))
        m.d.comb += [
            tag.valid.eq(go),
            tag.all.eq(all_at_once),
            tag.phase.eq(phases),
            tag.whole.eq(last_phase),
            tag.last.eq(ends & job.last),
        ]
        out = delay(m, tag, at_dot + 3 + Requantize.latency, reset_less=False)
        counted = [out.valid & clipped & (1 if side < few else out.all) for side, (_, clipped) in enumerate(results)]
        m.d.comb += [
            self.saturated.eq(sum(counted)),
            queue.i.valid.eq(out.valid & out.whole),
            queue.i.last.eq(out.last),
            queue.i.data.eq(self._gathered(m, Cat(sign_extended(word) for word, _ in results), out)),
        ]
        return m

    def _across(self, m, read, row, token, go, step):
        """Parts and columns of outputs in panels, ``step`` outputs further with ``go``."""
        config, tile = self.config, self.job.p.tile
        starts = Array([Cat(Const(column, 4), Const(part, 6)) for part, column in starts_of(config)])
        now, column, part = Signal(10), Signal(range(config.columns)), Signal(range(config.subtiles))
        # The first output of a tile, or what follows the last one.
        m.d.comb += [
            now.eq(Mux(row == 0, starts[tile], Cat(column, Const(0, 4 - len(column)), part))),
            read.column.eq(now[:4]),
            read.address.eq(Cat(token, now[4:][: len(part)])),
            read.beyond.eq(Cat(token, (now[4:] + 1)[: len(part)])),
        ]
        after = Signal(5)
        m.d.comb += after.eq(now[:4] + step)
        with m.If(go):
            wraps = after >= config.columns
            m.d.sync += [column.eq(Mux(wraps, after - config.columns, after)), part.eq(now[4:] + wraps)]

    def _gathered(self, m, words, out):
        """Returns the words of all phases.

        With ``out.all``, ``words`` holds them all. Else those of all phases but the last came in earlier cycles.
        """
        few = self.config.dots
        size = few * MASTER.width
        now, made = words[:size], []
        for phase in range(self.config.outputs // few - 1):
            kept = Signal(size, reset_less=True)
            with m.If(out.valid & (out.phase == phase)):
                m.d.sync += kept.eq(now)
            made.append(Mux(out.all, words.word_select(phase, size), kept))
        last = words[-size:]
        return Cat(*made, Mux(out.all, last, now))

    def _finish(self, m, platform, side, dot, at_dot):
        """Adds ``dot``, if any, to a sum and requantises it.

        Returns ``(word, clipped)``. ``dot`` is there ``at_dot`` cycles after its address; it is aligned before it is
        added.
        """
        job = self.job.p
        aligned, total = Signal(signed(SUM), reset_less=True), Signal(signed(SUM + 1), reset_less=True)
        if dot is not None:
            coarse = Signal(signed(SUM), reset_less=True)
            shift = delay(m, job.dot_shift, at_dot)
            m.d.sync += [
                coarse.eq((dot << DOT_GUARD) >> (shift & 0b111100)),
                aligned.eq(coarse >> delay(m, shift[:2], 1)),
            ]
        m.d.sync += total.eq(aligned + self.sums[side])
        requantize = place(m, f"requantize_{side}", Requantize(width=SUM + 1, result=ACTIVATION.width), platform)
        m.d.comb += [requantize.i.eq(total), requantize.shift.eq(delay(m, job.shift, at_dot + 3))]
        return requantize.o, requantize.saturated
