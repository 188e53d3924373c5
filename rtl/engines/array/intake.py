"""Writes beats of the array's load ports to its memories."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...formats.images import SCALES_PER_BEAT
from ...hierarchy import place
from ...shell.signature import LoadSignature
from ...stream.queue import ShortQueue
from .commands import RECORD_ARG
from .writes import logits_write, writes

__all__ = ["ArrayIntake", "ScaleWriter"]

_PORTS = ("weights", "biases", "image", "record", "lanes", "books")
#: Beats of a word, as a power of two, of ports that write word by word.
_LOG_BEATS = {"lanes": 1, "weights": 1, "biases": 2, "image": 0}


class ScaleWriter(wiring.Component):
    """Writes the seven scales of a beat one by one; 16 beats wait.

    Scales of blocks that do not exist are dropped.

    A unit of its own, as what enters is late in its cycle and has little logic left.

    Members
    -------
    valid, ready : a beat of a record, taken if both are high. ``last``: it waits until all scales before it have
        left. ``wanted``: it has scales.
    row, half, data : of it.
    stopped : nothing is written.
    write : write port.
    """

    def __init__(self, config):
        self.config = config
        write = writes(config)["scales"]
        super().__init__(
            {
                "valid": In(1),
                "wanted": In(1),
                "last": In(1),
                "ready": Out(1),
                "row": In(ceil_log2(config.rows)),
                "half": In(1),
                "data": In(128),
                "stopped": In(1),
                "write": Out(write),
            }
        )

    def elaborate(self, platform):
        m = Module()
        # Scales wait here: base index, where to, seven of them.
        layout = data.StructLayout({"row": len(self.row), "half": 1, "data": 128})
        m.submodules.waiting = waiting = ShortQueue(width=layout.size, depth=16)
        entry, out = Signal(layout), data.View(layout, waiting.r_data)
        settled, may_go = Signal(), Signal()
        m.d.comb += [
            entry.row.eq(self.row),
            entry.half.eq(self.half),
            entry.data.eq(self.data),
            waiting.w_data.eq(entry),
            may_go.eq(~self.last | settled),
            self.ready.eq(waiting.w_rdy & may_go),
            # The queue looks itself whether it has room.
            waiting.w_en.eq(self.valid & self.wanted & may_go),
        ]
        n = Signal(range(SCALES_PER_BEAT))
        index = Signal(17)
        m.d.comb += [index.eq(out.data[:16] + n), waiting.r_en.eq(n == SCALES_PER_BEAT - 1)]
        with m.If(waiting.r_rdy):
            m.d.sync += n.eq(n + 1)
            with m.If(n == SCALES_PER_BEAT - 1):
                m.d.sync += n.eq(0)
        m.d.sync += [
            # A tap's last beat has room to spare; what lies beyond the row's blocks is not for it.
            self.write.valid.eq(waiting.r_rdy & (index < self.config.blocks) & ~self.stopped),
            self.write.row.eq(out.row),
            self.write.address.eq(Cat(index[: len(self.write.address) - 1], out.half)),
            self.write.data.eq(out.data[16:].word_select(n, 16)),
            settled.eq(waiting.empty & ~waiting.w_en),
        ]
        return m


class ArrayIntake(wiring.Component):
    """Spreads beats over write ports; one beat a cycle.

    Scales leave a beat's seven one by one, behind the stream's back; a record's last beat waits for them, so
    that LOAD is done when all of the record is in its row. Write ports come from registers: a write is in memory two
    cycles after its beat was accepted.

    Members
    -------
    load_weights, ... : load ports. ``refuse``: the beat goes nowhere: ``arg`` names what is not there, it is beyond its
        memory's end, or the command ends with it within a word. Scales are the exception: a record's beats say
        themselves which blocks they are of, and those of blocks that there are not are dropped.
    Everything else is a write port ``{valid, address..., data}``.
    """

    def __init__(self, config):
        self.config = config
        super().__init__(
            {
                **{f"load_{name}": In(LoadSignature(128)) for name in _PORTS},
                **{name: Out(layout) for name, layout in writes(config).items()},
                "logits": Out(logits_write(config)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        self._ports = ports = {name: getattr(self, f"load_{name}") for name in _PORTS}
        # All have the same payload.
        beat = self.load_record.beats.p
        taken = {name: port.beats.valid & port.beats.ready for name, port in ports.items()}
        m.d.comb += [port.beats.ready.eq(1) for name, port in ports.items() if name != "record"]
        # Judging a beat takes long, and its wires are wide: what is refused is ready to be written, or waits among the
        # scales, and goes no further.
        self._refused, stopped, went = Signal(), Signal(), Signal()
        refused = Signal(len(ports))
        m.d.sync += [
            refused.eq(Cat(port.beats.valid & port.refuse for port in ports.values())),
            went.eq(self.load_record.beats.ready),
        ]
        m.d.comb += self._refused.eq(refused.any())
        with m.If(self._refused & went):
            m.d.sync += stopped.eq(1)

        # Whether ``arg`` is good is seen with each beat; that the next is beyond the end, with the last that is not.
        nowhere, cut, full = {}, {}, {}
        self._record(m, platform, taken["record"], stopped, nowhere, full)
        self._words(m, beat, taken, nowhere, cut, full)
        nowhere["books"] = beat.arg[len(self.books.beat) :].any()
        full["books"] = [(beat.arg + beat.index)[: len(self.books.beat)].all()]
        m.d.sync += [self.books.beat.eq(beat.arg[:16] + beat.index), self.books.data.eq(beat.data)]
        self._write(m, "books", taken["books"])

        # The beat before was the last that has room. What follows from that beat is put together a cycle later.
        after, before, took, last = Signal(), Signal(), Signal(), Signal()
        ends = Cat(taken[name] & each for name, conditions in full.items() for each in conditions)
        ended = Signal(len(ends))
        m.d.comb += after.eq(Mux(took & ~self._refused, ended.any() & ~last, before))
        m.d.sync += [before.eq(after), took.eq(Cat(taken.values()).any()), last.eq(beat.last), ended.eq(ends)]
        for name, port in ports.items():
            m.d.comb += port.refuse.eq(nowhere[name] | (beat.last & cut.get(name, 0)) | after)
        return m

    def _write(self, m, name, asked):
        """Write port, valid a cycle after ``asked``.

        It is not valid if that beat is refused.
        """
        ready = Signal(name=f"{name}_ready")
        m.d.sync += ready.eq(asked)
        m.d.comb += getattr(self, name).valid.eq(ready & ~self._refused)

    def _record(self, m, platform, taken, stopped, nowhere, full):
        """Scales, codes and logits of a record."""
        stream = self.load_record.beats
        beat, arg = stream.p, data.View(RECORD_ARG, stream.p.arg)
        in_scales = Signal()
        scales = place(m, "scale_writer", ScaleWriter(self.config), platform)
        m.d.comb += [
            in_scales.eq(beat.index < arg.codes),
            scales.valid.eq(stream.valid),
            scales.wanted.eq(in_scales),
            scales.last.eq(beat.last),
            stream.ready.eq(scales.ready),
            scales.row.eq(arg.row),
            scales.half.eq(arg.half),
            scales.data.eq(beat.data),
            scales.stopped.eq(stopped),
            self.scales.eq(scales.write),
        ]

        code_word = (beat.index - arg.codes)[: len(self.codes.address) - 1]
        logit_beat = (beat.index - arg.logits)[: len(arg.logits)]
        is_code, is_logits = Signal(), Signal()
        m.d.comb += [is_code.eq(~in_scales & (beat.index < arg.logits)), is_logits.eq(beat.index >= arg.logits)]
        m.d.sync += [
            self.codes.row.eq(arg.row),
            self.codes.address.eq(Cat(code_word, arg.half)),
            self.codes.data.eq(beat.data),
            self.logits.sample.eq(arg.row),
            self.logits.half.eq(arg.half),
            self.logits.beat.eq(logit_beat),
            self.logits.data.eq(beat.data),
        ]
        self._write(m, "codes", taken & is_code)
        self._write(m, "logits", taken & is_logits)
        nowhere["record"] = (arg.row >= self.config.rows) | (arg.codes > arg.logits)
        # Before the first of the logits ``logit_beat`` is -1.
        full["record"] = [
            is_code & code_word.all() & ~logit_beat.all(),
            is_logits & logit_beat[: len(self.logits.beat)].all(),
        ]

    def _words(self, m, beat, taken, nowhere, cut, full):
        """Writes words of one or more beats.

        The last beat of a word writes it together with the earlier ones.
        """
        before = Signal(384)
        with m.If(Cat(taken[name] for name, log_beats in _LOG_BEATS.items() if log_beats).any()):
            m.d.sync += before.eq(Cat(before[128:], beat.data))
        for name, log_beats in _LOG_BEATS.items():
            port = getattr(self, name)
            whole = beat.index[:log_beats].all() if log_beats else 1
            word = (beat.arg[:16] + (beat.index >> log_beats))[: len(port.address)]
            nowhere[name] = beat.arg[len(port.address) :].any()
            full[name] = [whole & word.all()]
            if log_beats:
                cut[name] = ~whole
            m.d.sync += [
                port.address.eq(word),
                port.data.eq(Cat(before[384 - 128 * ((1 << log_beats) - 1) :], beat.data)),
            ]
            self._write(m, name, taken[name] & whole)
