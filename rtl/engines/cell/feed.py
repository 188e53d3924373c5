"""Which operands enter the groups, and when."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from ...formats.cell import CODE
from .group import operand_layout

__all__ = ["Feed", "job_layout", "row_layout"]


def job_layout(config):
    """A command's operands."""
    return data.StructLayout(
        {
            "steps": 16,
            "sequences": range(config.sequences + 1),
            "hidden": range(config.groups + 1),
            "inputs": range(config.chunks + 1),
            "every": 1,
            "fresh": 1,
            "unsigned": 1,
        }
    )


def row_layout(config):
    """A step of a sequence: begins at zero, h leaves, is the last."""
    return data.StructLayout({"sequence": range(config.sequences), "zero": 1, "emit": 1, "last": 1})


class Feed(wiring.Component):
    """Gives the groups each step's input, then its hidden state.

    A chunk of the input is given when it is there; so is one of the hidden state. While a step's results are computed,
    chunks of the next step's input are given. A step whose results leave begins its hidden state when all of them have
    room.

    Parameters
    ----------
    config : CellParameters

    Members
    -------
    begins, job : a command; ``job`` holds still until the next.
    x : stream of beats of 16 codes.
    h_place, h : where a chunk of a hidden state is read in this cycle, and the chunk.
    arrives, new : results of a step, chunk by chunk in the order in which hidden states are read.
    roomy : results of a step have room. reserve : a step takes it in this cycle.
    o : operands of the first group; ``address`` is a cycle ahead.
    ends, row : the last chunk of a row is given in this cycle; it is in ``o`` a cycle later.
    """

    #: Beats of the queue in front.
    depth = 32

    def __init__(self, config):
        self.config = config
        chunk = data.ArrayLayout(signed(CODE), config.parallel)
        small = data.ArrayLayout(signed(8), config.parallel)
        places = config.sequences * config.groups
        super().__init__(
            {
                "begins": In(1),
                "job": In(job_layout(config)),
                "x": In(stream.Signature(128)),
                "h_place": Out(range(places)),
                "h": In(small),
                "arrives": In(1),
                "new": In(small),
                "roomy": In(1),
                "reserve": Out(1),
                "o": Out(operand_layout(config)),
                "ends": Out(1),
                "row": Out(row_layout(config)),
            }
        )
        self._chunk = chunk

    def elaborate(self, platform):
        m = Module()
        config, job = self.config, self.job
        m.submodules.queue = queue = SyncFIFOBuffered(width=128, depth=self.depth)
        m.d.comb += [queue.w_data.eq(self.x.p), queue.w_en.eq(self.x.valid), self.x.ready.eq(queue.w_rdy)]
        per_beat = 16 // config.parallel
        running, hidden = Signal(), Signal()
        position = Signal(range(max(config.groups, config.chunks)))
        sequence, step = Signal(range(config.sequences)), Signal(16)
        first_step, last_step, last_sequence = Signal(init=1), Signal(), Signal()
        waiting = Signal(range(2 * config.sequences * config.groups + 1))
        go, at_end, takes_h, begin_of_h = (Signal(name=name) for name in ("go", "at_end", "takes_h", "begin_of_h"))
        # One less than the operands; a step's number is looked at a cycle late, when its input enters.
        ends = {
            name: Signal.like(job[name], name=f"last_{name}") for name in ("hidden", "inputs", "sequences", "steps")
        }
        m.d.sync += [last_step.eq(step == ends["steps"]), *(end.eq(job[name] - 1) for name, end in ends.items())]
        m.d.comb += [
            last_sequence.eq(sequence == ends["sequences"]),
            self.row.sequence.eq(sequence),
            self.row.zero.eq(first_step & job.fresh),
            self.row.emit.eq(job.every | last_step),
            self.row.last.eq(last_step & last_sequence),
            at_end.eq(position == Mux(hidden, ends["hidden"], ends["inputs"])),
            begin_of_h.eq(hidden & (position == 0)),
            go.eq(
                running
                & Mux(
                    hidden,
                    (first_step | self.arrives | waiting.any()) & (self.roomy | ~begin_of_h | ~self.row.emit),
                    queue.r_rdy,
                )
            ),
            takes_h.eq(go & hidden & ~first_step),
            self.reserve.eq(go & begin_of_h & self.row.emit),
            self.ends.eq(go & hidden & at_end),
            self.h_place.eq(Cat(position[: (config.groups - 1).bit_length()], sequence)),
            queue.r_en.eq(go & ~hidden & (at_end | ((position & (per_beat - 1)) == per_beat - 1))),
        ]
        # Results wait in the memory of hidden states in the order in which they are read.
        # mutant early: with m.If(self.arrives):
        with m.If(self.arrives ^ takes_h):
            m.d.sync += waiting.eq(waiting + Mux(takes_h, -1, 1))
        with m.If(go):
            m.d.sync += position.eq(Mux(at_end, 0, position + 1))
            with m.If(at_end):
                m.d.sync += hidden.eq(~hidden)
        with m.If(self.ends):
            m.d.sync += sequence.eq(Mux(last_sequence, 0, sequence + 1))
            with m.If(last_sequence):
                m.d.sync += [step.eq(step + 1), first_step.eq(0), running.eq(~last_step)]
        with m.If(self.begins):
            m.d.sync += [
                running.eq(1),
                hidden.eq(0),
                position.eq(0),
                sequence.eq(0),
                step.eq(0),
                first_step.eq(1),
                waiting.eq(0),
            ]

        within = position[: (per_beat - 1).bit_length()]
        chunks = Array(queue.r_data.word_select(n, 8 * config.parallel) for n in range(per_beat))
        chunk = Signal(8 * config.parallel)
        m.d.comb += chunk.eq(chunks[within])
        for n in range(config.parallel):
            code = chunk.word_select(n, 8)
            state = Mux(self.row.zero, 0, Mux(waiting == 0, Mux(first_step, self.h[n], self.new[n]), self.h[n]))
            given = Mux(hidden, state, Cat(code, code[7] & ~job.unsigned).as_signed())
            m.d.sync += self.o.x[n].eq(Mux(go, given, 0))
        m.d.sync += self.o.first.eq(go & ~hidden & (position == 0))
        m.d.comb += self.o.address.eq(Mux(hidden, position, position + config.groups))
        return m
