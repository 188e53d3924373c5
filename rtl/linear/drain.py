"""Finished sums become outputs: the adapter's part is added, and the result is requantised."""
from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..formats.linear import ACTIVATION, DOT_GUARD, MASTER, SUM, WEIGHT
from ..hierarchy import place
from ..stream.delay import delay
from .feet import HiddenWord, address_bits
from .words import PRECISION, Requantize, sign_extended

__all__ = ["DrainJob", "RowWord", "Drain"]


def DrainJob(config):
    """A tile of outputs of ``tokens`` tokens: ``bank`` of its sums, which ``slot`` of h and ``half`` of adapter rows,
    ``rank`` (0: no adapter), shifts, and whether it is the ``last`` of its command."""
    return data.StructLayout({
        "bank": 1, "slot": 1, "half": 1, "last": 1, "rank": range(config.rank + 1),
        "tokens": range(config.tokens + 1), "dot_shift": 6, "shift": 6})


def RowWord(config):
    """An adapter word for the next tile: ``row`` within it, ``rank`` index, ``half`` of the memory."""
    return data.StructLayout({
        "valid": 1, "half": 1, "row": range(config.edge), "rank": range(config.rank), "value": signed(WEIGHT.width)})


class Drain(wiring.Component):
    """An output a cycle: ``y = requantise(sum + align(h . b))``, tokens outermost.

    The dot product of a token's h with an output's adapter row has DOT_GUARD more fraction bits and is shifted
    right by ``dot_shift`` (floor) before it is added. ``edge`` words of 32 bits a token leave in beats.

    Members
    -------
    job : stream of :func:`DrainJob`; taken when it is done.
    read : bank, address and column of a sum; ``sum`` is there 3 cycles later.
    row : adapter words. hidden : words of h.
    o : stream of beats; ``last`` marks the last beat of a command.
    saturated : an output was clipped.
    """

    def __init__(self, config):
        self.config = config
        super().__init__({
            "job": In(stream.Signature(DrainJob(config))),
            "read": Out(data.StructLayout({
                "valid": 1, "bank": 1, "address": address_bits(config), "column": range(config.columns)})),
            "sum": In(signed(SUM)),
            "row": In(RowWord(config)), "hidden": In(HiddenWord(config)),
            "o": Out(stream.Signature(data.StructLayout({"data": config.beat_bits, "last": 1}))),
            "saturated": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        words = config.beat_words
        row, token = Signal(range(config.edge)), Signal(range(config.tokens))
        fifo = SyncFIFOBuffered(width=config.beat_bits + 1, depth=64)
        m.submodules.fifo = fifo
        job = self.job.p
        go, ends = Signal(), Signal()
        roomy = Signal()
        # Room for all that is under way: a beat takes `words` cycles, the way some 30 cycles.
        m.d.sync += roomy.eq(fifo.w_level < 64 - (40 // words + 2))
        m.d.comb += [
            go.eq(self.job.valid & roomy), ends.eq(row.all() & (token == job.tokens - 1)),
            self.job.ready.eq(go & ends),
            self.read.valid.eq(self.job.valid), self.read.bank.eq(job.bank),
            self.read.column.eq(row[:ceil_log2(config.columns)]),
            self.read.address.eq(Cat(token, row[ceil_log2(config.columns):])),
        ]
        with m.If(go):
            m.d.sync += row.eq(row + 1)
            with m.If(row.all()):
                m.d.sync += token.eq(Mux(ends, 0, token + 1))

        # The dot product: a rank index a cycle, each behind the other.
        where = Signal(data.StructLayout({
            "slot": 1, "half": 1, "rank": range(config.rank + 1),
            "token": range(config.tokens), "row": range(config.edge)}))
        m.d.comb += [where.slot.eq(job.slot), where.half.eq(job.half), where.rank.eq(job.rank),
                     where.token.eq(token), where.row.eq(row)]
        dot = None
        for index in range(config.rank):
            m.submodules[f"h_{index}"] = h = memory.Memory(
                shape=signed(ACTIVATION.width), depth=2 * config.tokens, init=[])
            m.submodules[f"rows_{index}"] = rows = memory.Memory(
                shape=signed(WEIGHT.width), depth=2 * config.edge, init=[])
            h_write, h_read = h.write_port(), h.read_port(domain="comb")
            row_write, row_read = rows.write_port(), rows.read_port(domain="comb")
            a, b = Signal(signed(ACTIVATION.width), reset_less=True), Signal(signed(WEIGHT.width), reset_less=True)
            product = Signal(signed(ACTIVATION.width + WEIGHT.width), reset_less=True)
            partial = Signal(signed(PRECISION.sum), reset_less=True)
            m.d.comb += [
                h_write.en.eq(self.hidden.valid & (self.hidden.rank == index)),
                h_write.addr.eq(Cat(self.hidden.token, self.hidden.slot)), h_write.data.eq(self.hidden.value),
                row_write.en.eq(self.row.valid & (self.row.rank == index)),
                row_write.addr.eq(Cat(self.row.row, self.row.half)), row_write.data.eq(self.row.value),
                h_read.addr.eq(Cat(where.token, where.slot)), row_read.addr.eq(Cat(where.row, where.half)),
            ]
            m.d.sync += [a.eq(h_read.data), b.eq(Mux(index < where.rank, row_read.data, 0)), product.eq(a * b)]
            m.d.sync += partial.eq(product if dot is None else product + dot)
            dot = partial
            where = delay(m, where, 1)
        # Visible rank + 2 cycles after the address.
        coarse, aligned = Signal(signed(SUM), reset_less=True), Signal(signed(SUM), reset_less=True)
        total = Signal(signed(SUM + 1), reset_less=True)
        at_dot = config.rank + 2
        shift = delay(m, job.dot_shift, at_dot)
        m.d.sync += [
            coarse.eq((dot << DOT_GUARD) >> (shift & 0b111000)),
            aligned.eq(coarse >> delay(m, shift[:3], 1)),
            total.eq(aligned + delay(m, self.sum, at_dot + 2 - 3)),
        ]
        at_total = at_dot + 3
        requantize = place(m, "requantize", Requantize(width=SUM + 1, result=ACTIVATION.width), platform)
        m.d.comb += [requantize.i.eq(total), requantize.shift.eq(delay(m, job.shift, at_total))]
        tag = Signal(data.StructLayout({"valid": 1, "last": 1}))
        m.d.comb += [tag.valid.eq(go), tag.last.eq(ends & job.last)]
        out = delay(m, tag, at_total + Requantize.latency, reset_less=False)
        m.d.comb += self.saturated.eq(out.valid & requantize.saturated)

        word = Signal(range(words))
        beat = Signal(config.beat_bits)
        push, last = Signal(), Signal()
        m.d.sync += push.eq(0)
        with m.If(out.valid):
            m.d.sync += [
                beat.eq(Cat(beat[MASTER.width:], sign_extended(requantize.o))),
                word.eq(word + 1), push.eq(word == words - 1), last.eq(out.last),
            ]
        m.d.comb += [
            fifo.w_data.eq(Cat(beat, last)), fifo.w_en.eq(push),
            self.o.valid.eq(fifo.r_rdy), self.o.p.eq(fifo.r_data), fifo.r_en.eq(self.o.ready),
        ]
        return m
