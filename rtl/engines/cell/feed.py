"""Which operands enter the groups, and when."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from ...formats.gates import GATES
from .group import operand_layout
from .parameters import APART, FEED_BEATS

__all__ = ["Feed", "given_layout", "job_layout", "row_layout"]


def job_layout(config):
    """A command's operands."""
    return data.StructLayout(
        {
            "steps": 16,
            "sequences": range(config.sequences + 1),
            "hidden": range(config.groups + 1),
            "inputs": range(config.chunks + 1),
            "window": range(config.window_chunks + 1),
            "filters": range(config.groups + 1),
            "front": range(config.groups),
            "classes": range(config.groups + 1),
            "every": 1,
            "fresh": 1,
            "unsigned": 1,
            "window_unsigned": 1,
            "each": 1,
            "quiet": 1,
            "channels": range(config.tap_chunks + 1),
            "own": 8,
            **({"cell": range(config.cells), "both": 1} if config.cells > 1 else {}),
            **({"gru": 1} if config.gru else {}),
            **({"passes": 1} if config.gru == 2 else {}),
        }
    )


def given_layout(config):
    """A chunk that is given in this cycle, for the taps.

    It is of a row of x, or of a hidden state; of the first step; its row's last; of the last sequence.
    """
    return data.StructLayout(
        {
            "source": 1,
            "state": 1,
            "first": 1,
            "ends": 1,
            "last_sequence": 1,
            "position": range(max(config.groups, config.chunks, config.window_chunks)),
            "sequence": range(config.sequences),
        }
    )


def row_layout(config):
    """A row of a step of a sequence.

    It begins at zero, its h leaves, it is the command's last, it is one of the dense layer. In a design with several
    cells: whose it is. Where steps may have two passes: whose states they are, it makes a GRU's new state, the state
    that it makes it from is zero.
    """
    own = {"cell": range(config.cells)} if config.cells > 1 else {}
    if config.gru == 2:
        own |= {"home": range(config.cells), "mixes": 1, "empty": 1}
    return data.StructLayout({"sequence": range(config.sequences), "zero": 1, "emit": 1, "last": 1, "classes": 1} | own)


class Feed(wiring.Component):
    """Gives the groups rows of operands, one behind another.

    A step of a sequence is a row of its input and one of its hidden state. Where there is a convolution, the window of
    the next step is a row in front of them: its results are the next step's input. The rows of the dense layer are
    those of the step's new hidden states, behind all sequences::

        window 0 | window 1, input 0, state 0 | window 2, input 1, state 1 | ... | input n, state n | classes

    With ``both``, odd sequences are those of the next cell: a network's two directions take turns. With ``passes``, odd
    steps have the weights of another cell, the next of the same direction, and go on from the states of the first: a
    GRU that resets in front of the product. The rows of x of both passes are alike.

    A chunk of the input is given when it is there; so is one of the hidden state. While a step's results are computed,
    the next window and the next step's input are given. A step whose results leave begins its hidden state when all of
    them have room. The last chunk of a row waits until its sums leave the groups :attr:`apart` cycles behind those of
    the row before.

    Parameters
    ----------
    config : CellParameters

    Members
    -------
    begins, job : a command; ``job`` holds still until the next.
    x : stream of beats of 16 codes.
    h_place, h : where a chunk of a hidden state is read in this cycle, and the chunk.
    u_place, u : the same of a convolution's results, in words of a group.
    u_arrives : all results of a window are there in the next cycle.
    arrives, new : results of a step, chunk by chunk in the order in which hidden states are read.
    roomy : results of a step have room. reserve : a step takes it in this cycle.
    sums_roomy, reserve_sums : likewise of a row of the dense layer.
    o : operands of the first group; ``address`` is a cycle ahead.
    ends, row : the last chunk of a row of hidden states is given in this cycle; it is in ``o`` a cycle later.
    window_ends : likewise of a window.
    given : the chunk that is given; it is in ``o`` a cycle later.
    """

    #: Beats of the queue in front.
    depth = FEED_BEATS
    #: See :data:`.parameters.APART`.
    apart = APART

    def __init__(self, config):
        self.config = config
        small = data.ArrayLayout(signed(8), config.parallel)
        super().__init__(
            {
                "begins": In(1),
                "job": In(job_layout(config)),
                "x": In(stream.Signature(128)),
                "h_place": Out(range(config.state_places)),
                "h": In(small),
                "u_place": Out(range(2 * config.sequences * config.input_words)),
                "u": In(8 * GATES * config.parallel),
                "u_arrives": In(1),
                "arrives": In(1),
                "new": In(small),
                "roomy": In(1),
                "reserve": Out(1),
                "sums_roomy": In(1),
                "reserve_sums": Out(1),
                "o": Out(operand_layout(config)),
                "ends": Out(1),
                "window_ends": Out(1),
                "row": Out(row_layout(config)),
                "given": Out(given_layout(config)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        job = self.job
        m.submodules.queue = queue = SyncFIFOBuffered(width=128, depth=self.depth)
        m.d.comb += [queue.w_data.eq(self.x.p), queue.w_en.eq(self.x.valid), self.x.ready.eq(queue.w_rdy)]
        self._kinds = kinds = {name: Signal(name=f"is_{name}") for name in ("window", "input", "state", "classes")}
        at = self._at(m)
        windowed = at.windowed
        go, fresh_sums = Signal(), Signal()
        # States that are there from the step's beginning: of the command before, or seen by the dense layer.
        known = Signal()
        m.d.comb += known.eq(at.first_step | at.each)
        ready = (
            (kinds["window"] & queue.r_rdy)
            | (kinds["input"] & Mux(windowed, ~at.begins_row | at.inputs_waiting, queue.r_rdy))
            | (kinds["state"] & (known | fresh_sums) & (self.roomy | ~at.begins_row | ~self.row.emit))
            | (kinds["classes"] & fresh_sums & (self.sums_roomy | ~at.begins_row))
        )
        m.d.comb += [
            fresh_sums.eq(self.arrives | at.waiting.any()),
            go.eq(ready & (~at.at_end | kinds["input"] | Mux(kinds["window"], at.window_clear, at.clear))),
            at.go.eq(go),
            at.takes_h.eq(go & ((kinds["state"] & ~known) | kinds["classes"])),
            self.row.sequence.eq(at.sequence),
            self.row.zero.eq(at.first_step & job.fresh & kinds["state"]),
            self.row.emit.eq((job.every | at.last_step) & ~job.quiet & kinds["state"]),
            self.row.last.eq(at.last_step & at.last_sequence & (kinds["classes"] | ~at.classes_any)),
            self.row.classes.eq(kinds["classes"]),
            *([self.row.cell.eq(at.cell)] if self.config.cells > 1 else []),
            *(self._passes(at) if self.config.gru == 2 else []),
            self.reserve.eq(go & at.begins_row & self.row.emit),
            self.reserve_sums.eq(go & at.begins_row & kinds["classes"]),
            self.ends.eq(go & at.at_end & (kinds["state"] | kinds["classes"])),
            self.window_ends.eq(go & at.at_end & kinds["window"]),
            self.given.source.eq(go & (kinds["window"] | (kinds["input"] & ~windowed))),
            self.given.state.eq(go & kinds["state"]),
            self.given.first.eq(at.first_step),
            self.given.ends.eq(at.at_end),
            self.given.last_sequence.eq(at.last_sequence),
            self.given.position.eq(at.position),
            self.given.sequence.eq(at.sequence),
        ]
        self._operands(m, queue, at, go, known)
        return m

    def _at(self, m):
        """Registers of the place in the command, and what moves them."""
        config, job, kinds = self.config, self.job, self._kinds
        at = _Place(config)
        # One less than the operands; a step's number is looked at a cycle late, when its input enters.
        last = {name: Signal.like(job[name], name=f"last_{name}") for name in ("sequences", "steps")}
        counts = {"window": job.window, "input": job.inputs, "state": job.hidden, "classes": job.hidden}
        final = {name: Signal.like(count, name=f"final_{name}") for name, count in counts.items()}
        single = {name: Signal(name=f"single_{name}") for name in counts}
        last_two, many, before_last, prologue = Signal(16), Signal(), Signal(), Signal()
        m.d.sync += [
            *(each.eq(job[name] - 1) for name, each in last.items()),
            last_two.eq(job.steps - 2),
            *(final[name].eq(count - 1) for name, count in counts.items()),
            *(single[name].eq(count == 1) for name, count in counts.items()),
            many.eq(job.steps != 1),
            at.windowed.eq(job.window.any()),
            at.classes_any.eq(job.classes.any()),
            at.each.eq(job.each & job.classes.any()),
            at.last_step.eq(at.step == last["steps"]),
            before_last.eq(at.step == last_two),
        ]
        windowed = job.window.any()
        if config.cells > 1:
            m.d.comb += at.home.eq(job.cell | (job.both & at.sequence[:1].any()))
            # mutant unpassed: m.d.comb += at.cell.eq(at.home)
            m.d.comb += at.cell.eq(at.home | (self._again(at) << job.both))
        m.d.comb += at.last_sequence.eq(at.sequence == last["sequences"])
        row_ends, step_ends, passes = Signal(), Signal(), Signal()
        turns = at.each | (at.classes_any & at.last_step)
        m.d.comb += [
            row_ends.eq(at.go & at.at_end),
            # All sequences had their turn.
            passes.eq(at.last_sequence & ((kinds["state"] & ~turns) | kinds["classes"])),
            step_ends.eq(row_ends & passes),
        ]
        follows = {name: Signal(name=f"{name}_follows") for name in kinds}
        inner = kinds["state"] & ~at.last_sequence
        window_row = Signal()
        m.d.comb += [
            window_row.eq(at.windowed & ((inner & ~at.last_step) | (passes & ~before_last))),
            follows["window"].eq((kinds["window"] & prologue & (~at.last_sequence | many)) | window_row),
            follows["input"].eq(
                (kinds["window"] & ~(prologue & (~at.last_sequence | many))) | ((inner | passes) & ~window_row)
            ),
            follows["state"].eq(kinds["input"]),
            follows["classes"].eq((kinds["state"] & at.last_sequence & turns) | (kinds["classes"] & ~at.last_sequence)),
        ]
        ahead = Signal()
        m.d.comb += ahead.eq(Cat(kinds[name] & (at.position + 1 == final[name]) for name in kinds).any())
        with m.If(at.go):
            m.d.sync += [
                at.position.eq(Mux(at.at_end, 0, at.position + 1)),
                at.begins_row.eq(at.at_end),
                at.at_end.eq(Mux(at.at_end, Cat(follows[name] & single[name] for name in kinds).any(), ahead)),
            ]
        with m.If(row_ends):
            m.d.sync += [kinds[name].eq(follows[name] & ~(step_ends & at.last_step)) for name in kinds]
            with m.If(kinds["state"] | kinds["classes"] | (kinds["window"] & prologue)):
                m.d.sync += at.sequence.eq(Mux(at.last_sequence, 0, at.sequence + 1))
            with m.If(kinds["window"] & at.last_sequence):
                m.d.sync += prologue.eq(0)
        with m.If(step_ends):
            m.d.sync += [at.step.eq(at.step + 1), at.first_step.eq(0)]
        if config.gru == 2:
            with m.If(step_ends & at.step[0]):
                m.d.sync += at.first_pair.eq(0)
            with m.If(self.begins):
                m.d.sync += at.first_pair.eq(1)
        self._counts(m, at, row_ends)
        with m.If(self.begins):
            m.d.sync += [
                kinds["window"].eq(windowed),
                kinds["input"].eq(~windowed),
                prologue.eq(1),
                at.position.eq(0),
                at.begins_row.eq(1),
                at.at_end.eq(Mux(windowed, job.window == 1, job.inputs == 1)),
                at.sequence.eq(0),
                at.step.eq(0),
                at.first_step.eq(1),
                at.waiting.eq(0),
                at.inputs.eq(0),
                at.inputs_waiting.eq(0),
            ]
        return at

    def _again(self, at):
        """It is the second pass of a step."""
        return self.job.passes & at.step[0] if self.config.gru == 2 else Const(0, 1)

    def _passes(self, at):
        """What a row of a step of two passes is."""
        job = self.job
        begins = Mux(job.passes, at.first_pair, at.first_step)
        return [
            self.row.home.eq(at.home),
            self.row.mixes.eq(job.gru & (~job.passes | self._again(at))),
            self.row.empty.eq(begins & job.fresh & self._kinds["state"]),
        ]

    def _counts(self, m, at, row_ends):
        """What waits, and when the sums of a row may leave the groups."""
        job, kinds = self.job, self._kinds
        # Results wait in the memory of hidden states in the order in which they are read.
        # mutant early: with m.If(self.arrives):
        with m.If(self.arrives ^ at.takes_h):
            m.d.sync += at.waiting.eq(at.waiting + Mux(at.takes_h, -1, 1))
        takes_u = at.go & at.begins_row & kinds["input"] & at.windowed
        inputs = at.inputs + self.u_arrives - takes_u
        m.d.sync += [at.inputs.eq(inputs), at.inputs_waiting.eq(inputs[: len(at.inputs)].any())]
        spans = {"window": job.front + job.filters, "state": job.hidden, "classes": job.classes}
        busy = Signal(range(2 * self.config.groups + self.apart + 1))
        kept = {name: Signal.like(busy, name=f"span_{name}") for name in spans}
        front = Signal(range(self.config.groups + 1))
        m.d.sync += [front.eq(job.front + 1), *(kept[name].eq(span + (self.apart - 1)) for name, span in spans.items())]
        sums_end = row_ends & ~kinds["input"]
        # mutant crowded: m.d.sync += [at.clear.eq(1), at.window_clear.eq(1)]
        m.d.sync += [at.clear.eq((busy <= 1) & ~sums_end), at.window_clear.eq((busy <= front) & ~sums_end)]
        with m.If(sums_end):
            m.d.sync += busy.eq(
                Mux(kinds["window"], kept["window"], Mux(kinds["state"], kept["state"], kept["classes"]))
            )
        with m.Elif(busy != 0):
            m.d.sync += busy.eq(busy - 1)

    def _operands(self, m, queue, at, go, known):
        """Operands of a row, and where their weights are."""
        config, job, kinds = self.config, self.job, self._kinds
        per_beat = 16 // config.parallel
        within = at.position[: (per_beat - 1).bit_length()]
        beats = kinds["window"] | (kinds["input"] & ~at.windowed)
        m.d.comb += [
            self.h_place.eq(Cat(at.position[: (config.groups - 1).bit_length()], at.sequence, at.home)),
            self.u_place.eq(Cat(at.position[2:][: (config.input_words - 1).bit_length()], at.sequence, at.step[0])),
            queue.r_en.eq(go & beats & (at.at_end | (within == per_beat - 1))),
        ]
        plain, of_h, of_u = Signal(), Signal(), Signal()
        chunk = Signal(8 * config.parallel)
        chunks = Array(queue.r_data.word_select(n, 8 * config.parallel) for n in range(per_beat))
        words = Array(self.u.word_select(n, 8 * config.parallel) for n in range(GATES))
        m.d.comb += [
            of_h.eq(kinds["state"] | kinds["classes"]),
            of_u.eq(kinds["input"] & at.windowed),
            plain.eq(Mux(kinds["window"], job.window_unsigned, job.unsigned)),
            chunk.eq(Mux(of_u, words[at.position[:2]], chunks[within])),
        ]
        fresh = (at.waiting == 0) & (kinds["classes"] | ~known)
        for n in range(config.parallel):
            code = chunk.word_select(n, 8)
            state = Mux(self.row.zero, 0, Mux(fresh, self.new[n], self.h[n]))
            given = Mux(of_h, state, Cat(code, code[7] & ~plain).as_signed())
            m.d.sync += self.o.x[n].eq(Mux(go, given, 0))
        first = kinds["classes"] | kinds["window"] | kinds["input"]
        m.d.sync += self.o.first.eq(go & first & at.begins_row)
        bases = {"window": config.window_place, "input": config.input_place, "classes": config.class_place}
        base = Signal(range(config.places))
        for name, begin in bases.items():
            with m.If(kinds[name]):
                m.d.comb += base.eq(begin)
        place = at.position + base
        if config.cells > 1:
            place = Cat(place[: (config.places - 1).bit_length()], at.cell)
        m.d.comb += self.o.address.eq(place)


class _Place:
    """Registers of a :class:`Feed`: place in a command, and what waits."""

    def __init__(self, config):
        self.go, self.takes_h = Signal(), Signal()
        self.position = Signal(range(max(config.groups, config.chunks, config.window_chunks)))
        self.begins_row, self.at_end = Signal(), Signal()
        self.sequence, self.step = Signal(range(config.sequences)), Signal(16)
        #: Cell whose weights count, and whose states.
        self.cell, self.home = (Signal(range(config.cells), name=name) for name in ("cell", "home"))
        self.first_pair = Signal()
        self.first_step, self.last_step, self.last_sequence = Signal(init=1), Signal(), Signal()
        #: There are windows; a dense layer; it follows each step.
        self.windowed, self.classes_any, self.each = Signal(), Signal(), Signal()
        #: Chunks of new hidden states, and rows of a convolution's results, that wait.
        self.waiting = Signal(range(2 * config.sequences * config.groups + 1))
        self.inputs, self.inputs_waiting = Signal(range(2 * config.sequences + 2)), Signal()
        self.clear, self.window_clear = Signal(), Signal()
