"""The array, and the sums of its tiles behind it."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...formats.tiles.aligned import WIDTH
from ...formats.tiles.codes import EDGE, WIDE
from ...formats.tiles.product import BIAS_LIFT, EXPOSED
from ...stream.delay import delay
from ...systolic.aligned import AlignedSums, aligned_tag
from ...systolic.paired import PairedArray
from .feeds import kept_layout, row_layout

__all__ = ["ProductSums", "sums_latency"]


def _array(config):
    return PairedArray(rows=config.array_rows, columns=config.array_columns, pair=config.pair)


def sums_latency(config):
    """Cycles from a row to its sums."""
    array = _array(config)
    array._MustUse__used = True
    return array.latency + AlignedSums.latency


class ProductSums(wiring.Component):
    """Adds up the products of stream rows and kept tiles, or a bias.

    ::

        w --> array --+
        i --> array --+--> align and add --> o
              bias ---+

    Never waits but for the tile that a row needs. A tile loads under the rows of the one before. An *exposed* one waits
    until its own first row is next, and for the cycles that it says behind the row before. Sums are there
    :attr:`latency` cycles behind their row.

    Parameters
    ----------
    config : ProductParameters

    Members
    -------
    i : stream of rows, ``{x, row}``. w : stream of lines, ``{w, exposed}``.
    bias_slot, bias_pass : whose codes are read, and ``bias`` in the next cycle: 16 bits a column.
    o : the row and its sums, with ``valid``.
    """

    def __init__(self, config):
        self.config = config
        columns = config.array_columns
        self.array = _array(config)
        # As wide as a bias, which is as large as the sum of a whole tile.
        width = max(self.array.width, WIDE + BIAS_LIFT)
        self.aligned = AlignedSums(columns=columns, width=width, tokens=EDGE * config.passes)
        self.latency = sums_latency(config)
        row = row_layout(config)
        super().__init__(
            {
                "i": In(stream.Signature(data.StructLayout({"x": 8 * config.array_rows, "row": row}))),
                "w": In(stream.Signature(kept_layout(config))),
                "bias_slot": Out(5),
                "bias_pass": Out(row["pass"].shape),
                "bias": In(16 * columns),
                "o": Out(data.StructLayout({"valid": 1, "row": row, "sums": data.ArrayLayout(signed(WIDTH), columns)})),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.array, m.submodules.aligned = array, aligned = self.array, self.aligned
        rows = config.array_rows
        waiting, complete, take, take_weight, swap = (Signal(range(rows + 1)), Signal(), Signal(), Signal(), Signal())
        row = self.i.p.row
        # Sums of a place go on when those before are kept: a part waits for the beginning of the one before, a command
        # for the end of the one before.
        settled, clear = Signal(), {}
        for name, begins in (("part", take & row.part), ("row", take)):
            left = Signal(range(AlignedSums.latency + 1), name=f"since_{name}")
            clear[name] = Signal(init=1, name=f"clear_{name}")
            with m.If(begins):
                m.d.sync += [left.eq(AlignedSums.latency - 1), clear[name].eq(0)]
            with m.Elif(~clear[name]):
                m.d.sync += [left.eq(left - 1), clear[name].eq(left == 1)]
        m.d.comb += settled.eq(row.start | ~row.part | (clear["part"] & (clear["row"] | ~row.opens)))
        # An exposed tile may load when its first row waits, so that all rows of the one before are in the array.
        may, since = Signal(), Signal(EXPOSED + 1, init=(2 << EXPOSED) - 1)
        with m.If(take):
            m.d.sync += since.eq(1)
        with m.Elif(~since.all()):
            m.d.sync += since.eq(since + 1)
        due = since >= self.w.p.exposed << 1
        m.d.sync += may.eq(self.w.valid & self.i.valid & row.first & ~complete & due)
        m.d.comb += [
            # mutant unsettled: self.i.ready.eq(complete | ~row.first),
            self.i.ready.eq((complete | ~row.first) & settled),
            take.eq(self.i.valid & self.i.ready),
            swap.eq(take & row.first),
            self.w.ready.eq(Mux(self.w.p.exposed == 0, ~complete | swap, ~complete & may)),
            take_weight.eq(self.w.valid & self.w.ready),
        ]
        with m.If(swap):
            m.d.sync += [waiting.eq(take_weight), complete.eq(0)]
        with m.Elif(take_weight):
            m.d.sync += [waiting.eq(waiting + 1), complete.eq(waiting == rows - 1)]
        m.d.comb += [
            array.tag.launch.eq(take_weight),
            array.tag.swap.eq(swap),
            array.tag.use_m.eq(take),
            array.row.eq(Mux(swap, 0, waiting)),
            array.x.eq(self.i.p.x),
            array.w.eq(self.w.p.w),
        ]
        # A row's tag goes with it; a bias takes a row's place.
        before = delay(m, row, array.latency - 1, reset_less=False)
        tag = delay(m, before, 1, reset_less=False)
        valid = delay(m, take, array.latency, reset_less=False)
        m.d.comb += [self.bias_slot.eq(before.slot), self.bias_pass.eq(before["pass"])]
        own = Signal(aligned_tag(EDGE * config.passes))
        m.d.comb += [
            own.valid.eq(valid),
            own.start.eq(tag.start),
            own.keep.eq(1),
            own.place.eq(Cat(tag.row, tag["pass"])),
            own.drop.eq(tag.drop),
            own.far.eq(tag.far),
            aligned.tag.eq(own),
        ]
        for n, (into, total) in enumerate(zip(aligned.sums, array.sums)):
            code = self.bias.word_select(n, 16).as_signed()
            m.d.comb += into.eq(Mux(tag.bias, code << BIAS_LIFT, total))
        m.d.comb += [
            self.o.valid.eq(delay(m, valid, AlignedSums.latency, reset_less=False)),
            self.o.row.eq(delay(m, tag, AlignedSums.latency, reset_less=False)),
            *(ours.eq(theirs) for ours, theirs in zip(self.o.sums, aligned.o)),
        ]
        return m
