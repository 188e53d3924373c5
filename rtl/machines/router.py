"""Takes the beats that LOAD reads to the memories they are for."""
from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..config import SCALES_PER_BEAT
from ..engines.array.writes import write_layout, writes
from ..shell.signature import LoadBeat

__all__ = ["Destination", "RECORD_ARG", "Router"]


class Destination:
    """``dest`` of a LOAD, with what ``arg`` means."""

    WEIGHTS = 0     #: first address; two beats a word of one weight a column
    BIASES = 1      #: first address; four beats a word of one bias a column
    IMAGE = 2       #: first address, in words of four pixels
    RECORD = 3      #: see :data:`RECORD_ARG`
    LANES = 4       #: first address; two beats a word of one parameter a column
    HEAD = 5        #: B: two beats a word of one parameter a class
    LABELS = 6      #: which half; a byte a sample
    BOOKS = 7       #: first beat; below 8 eight 16-bit levels of a book, from 16 on a threshold each


#: A sample's record goes to ``row``, ``half``: beats below ``codes`` hold scales, those below ``logits`` codes.
RECORD_ARG = data.StructLayout({"row": 8, "half": 1, "codes": 11, "logits": 11, "_reserved": 1})


class Router(wiring.Component):
    """Spreads LOAD beats over write ports; one beat a cycle.

    Scales leave a beat's seven one by one, behind the stream's back; a record's last beat waits for them, so
    that LOAD is done when all of the record is in its row. Write ports come from registers: a write is in memory two
    cycles after its beat was accepted.

    Members
    -------
    i : LOAD beats.
    refuse : the beat has no place, and goes nowhere: ``dest`` or ``arg`` names what is not there, it is beyond its
        memory's end, or the command ends with it within a word. Scales are the exception: a record's beats say
        themselves which blocks they are of, and those of blocks that there are not are dropped.
    Everything else is a write port ``{valid, address..., data}``.
    """

    def __init__(self, config):
        self.config = config
        array = {name: Out(layout) for name, layout in writes(config).items()}
        super().__init__({
            "i": In(stream.Signature(LoadBeat(128))), "refuse": Out(1),
            "codes": array["codes"],
            "scales": array["scales"],
            "logits": Out(write_layout(128, sample=ceil_log2(config.rows), half=1, beat=2)),
            "labels": Out(write_layout(128, half=1, beat=1)),
            "head": Out(write_layout(128, beat=24)),
            "lanes": array["lanes"],
            "weights": array["weights"],
            "biases": array["biases"],
            "image": array["image"],
            "books": array["books"],
        })

    def elaborate(self, platform):
        m = Module()
        beat = self.i.p
        arg = data.View(RECORD_ARG, beat.arg)
        taken, is_record = Signal(), Signal()
        m.d.comb += [taken.eq(self.i.valid & self.i.ready), is_record.eq(beat.dest == Destination.RECORD)]

        # Scales wait here: base index, where to, seven of them.
        layout = data.StructLayout({"row": len(self.scales.row), "half": 1, "data": 128})
        m.submodules.waiting = waiting = SyncFIFOBuffered(width=layout.size, depth=16)
        entry, out = Signal(layout), data.View(layout, waiting.r_data)
        in_scales = Signal()
        m.d.comb += [
            in_scales.eq(is_record & (beat.index < arg.codes)),
            entry.row.eq(arg.row), entry.half.eq(arg.half), entry.data.eq(beat.data),
            waiting.w_data.eq(entry),
            waiting.w_en.eq(taken & in_scales),
        ]
        # Judging a beat takes long, and its wires are wide: what is refused waits there too, or is ready to be written,
        # and goes no further.
        refused, stopped = Signal(), Signal()
        m.d.sync += refused.eq(self.refuse)
        with m.If(taken & self.refuse):
            m.d.sync += stopped.eq(1)
        written = {}
        n = Signal(range(SCALES_PER_BEAT))
        index = Signal(17)
        m.d.comb += index.eq(out.data[:16] + n)
        m.d.sync += [
            # A tap's last beat has room to spare; what lies beyond the row's blocks is not for it.
            self.scales.valid.eq(waiting.r_rdy & (index < self.config.blocks) & ~stopped),
            self.scales.row.eq(out.row),
            self.scales.address.eq(Cat(index[:len(self.scales.address) - 1], out.half)),
            self.scales.data.eq(out.data[16:].word_select(n, 16)),
        ]
        m.d.comb += waiting.r_en.eq(n == SCALES_PER_BEAT - 1)
        with m.If(waiting.r_rdy):
            m.d.sync += n.eq(n + 1)
            with m.If(n == SCALES_PER_BEAT - 1):
                m.d.sync += n.eq(0)
        settled = Signal()
        m.d.sync += settled.eq(~waiting.r_rdy & (waiting.level == 0) & ~waiting.w_en)
        m.d.comb += self.i.ready.eq(~is_record | (waiting.w_rdy & (~beat.last | settled)))

        code_word = (beat.index - arg.codes)[:len(self.codes.address) - 1]
        logit_beat = (beat.index - arg.logits)[:len(arg.logits)]
        is_code, is_logits = Signal(), Signal()
        m.d.comb += [is_code.eq(~in_scales & (beat.index < arg.logits)), is_logits.eq(beat.index >= arg.logits)]
        written["codes"], written["logits"] = taken & is_record & is_code, taken & is_record & is_logits
        m.d.sync += [
            self.codes.row.eq(arg.row),
            self.codes.address.eq(Cat(code_word, arg.half)),
            self.codes.data.eq(beat.data),
            self.logits.sample.eq(arg.row),
            self.logits.half.eq(arg.half),
            self.logits.beat.eq(logit_beat),
            self.logits.data.eq(beat.data),
        ]

        # Words wider than a beat: the last of their beats writes, with those before it.
        before = Signal(384)
        with m.If(taken):
            m.d.sync += before.eq(Cat(before[128:], beat.data))
        address = beat.arg[:16]
        # Whether ``arg`` is good is seen with each beat; that the next is beyond the end, with the last that is not.
        nowhere, cut, full = {}, {}, {
            # Before the first of the logits ``logit_beat`` is -1.
            Destination.RECORD: (is_code & code_word.all() & ~logit_beat.all())
            | (is_logits & logit_beat[:len(self.logits.beat)].all()),
            Destination.HEAD: beat.index[:9] == 2 * self.config.taps * self.config.rank - 1,
            Destination.LABELS: beat.index[0],
            Destination.BOOKS: (beat.arg + beat.index)[:len(self.books.beat)].all(),
        }
        nowhere[Destination.RECORD] = (arg.row >= self.config.rows) | (arg.codes > arg.logits)
        nowhere[Destination.LABELS] = beat.arg[1:].any()
        nowhere[Destination.BOOKS] = beat.arg[len(self.books.beat):].any()
        for name, dest, log_beats in (("lanes", Destination.LANES, 1), ("weights", Destination.WEIGHTS, 1),
                                      ("biases", Destination.BIASES, 2), ("image", Destination.IMAGE, 0)):
            port = getattr(self, name)
            whole = beat.index[:log_beats].all() if log_beats else 1
            word = (address + (beat.index >> log_beats))[:len(port.address)]
            nowhere[dest] = beat.arg[len(port.address):].any()
            full[dest] = whole & word.all()
            if log_beats:
                cut[dest] = ~whole
            written[name] = taken & (beat.dest == dest) & whole
            m.d.sync += [
                port.address.eq(word),
                port.data.eq(Cat(before[384 - 128 * ((1 << log_beats) - 1):], beat.data)),
            ]
        for name, dest in (("labels", Destination.LABELS), ("head", Destination.HEAD), ("books", Destination.BOOKS)):
            written[name] = taken & (beat.dest == dest)
        for name, asked in written.items():
            ready = Signal(name=f"{name}_ready")
            m.d.sync += ready.eq(asked)
            m.d.comb += getattr(self, name).valid.eq(ready & ~refused)
        m.d.sync += [
            self.labels.half.eq(beat.arg[0]),
            self.labels.beat.eq(beat.index),
            self.labels.data.eq(beat.data),
            self.head.beat.eq(beat.index),
            self.head.data.eq(beat.data),
            self.books.beat.eq(beat.arg[:16] + beat.index),
            self.books.data.eq(beat.data),
        ]
        self._refuse(m, taken, nowhere, cut, full)
        return m

    def _refuse(self, m, taken, nowhere, cut, full):
        """Of the conditions of each destination the one of this beat's."""
        beat = self.i.p
        after = Signal()        # the beat before was the last that has room
        bad, ends = Signal(), Signal()
        with m.Switch(beat.dest):
            for dest in range(Destination.BOOKS + 1):
                with m.Case(dest):
                    m.d.comb += [bad.eq(nowhere.get(dest, 0) | (beat.last & cut.get(dest, 0))), ends.eq(full[dest])]
            with m.Default():
                m.d.comb += bad.eq(1)
        m.d.comb += self.refuse.eq(bad | after)
        with m.If(taken & ~self.refuse):
            m.d.sync += after.eq(ends & ~beat.last)
