"""Prefetches adapter rows for the next tile of outputs."""

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...formats.weights.linear import WEIGHT
from ...stream.delay import delay
from .core import LinearArray
from .drain import RowWord

__all__ = ["StagerJob", "Stager"]


def StagerJob(config):
    """Rows of ``rank`` words each, for :class:`Stager`.

    The first word is at ``base`` of every row's adapter memory.
    """
    return data.StructLayout({"base": 16, "rank": range(config.rank + 1)})


class Stager(wiring.Component):
    """Fetches ``edge`` adapter rows a job, a word a cycle.

    They go to the two halves of the row memory alternately.

    Members
    -------
    job : stream of :func:`StagerJob`; taken with its last word.
    blocked : adapter memory is being written: no word in this cycle.
    peek, word : see :class:`LinearArray`.
    row : words. done : the last word of a job was written.
    """

    def __init__(self, config):
        self.config = config
        super().__init__(
            {
                "job": In(stream.Signature(StagerJob(config))),
                "blocked": In(1),
                "peek": Out(data.StructLayout({"row": range(config.edge), "address": 16})),
                "word": In(signed(WEIGHT.width)),
                "row": Out(RowWord(config)),
                "done": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        row, rank, half = Signal(range(config.edge)), Signal(range(config.rank)), Signal()
        issue, ends = Signal(), Signal()
        m.d.comb += [
            issue.eq(self.job.valid & ~self.blocked),
            ends.eq(row.all() & (rank == self.job.p.rank - 1)),
            self.job.ready.eq(issue & ends),
            self.peek.row.eq(row),
            self.peek.address.eq(self.job.p.base + rank),
        ]
        with m.If(issue):
            m.d.sync += row.eq(row + 1)
            with m.If(row.all()):
                m.d.sync += rank.eq(Mux(ends, 0, rank + 1))
            with m.If(ends):
                m.d.sync += half.eq(~half)
        tag = Signal(
            data.StructLayout({"valid": 1, "half": 1, "row": range(config.edge), "rank": range(config.rank), "ends": 1})
        )
        m.d.comb += [tag.valid.eq(issue), tag.half.eq(half), tag.row.eq(row), tag.rank.eq(rank), tag.ends.eq(ends)]
        out = delay(m, tag, LinearArray.peek_latency, reset_less=False)
        m.d.comb += [
            self.row.valid.eq(out.valid),
            self.row.half.eq(out.half),
            self.row.row.eq(out.row),
            self.row.rank.eq(out.rank),
            self.row.value.eq(self.word),
        ]
        m.d.sync += self.done.eq(out.valid & out.ends)
        return m
