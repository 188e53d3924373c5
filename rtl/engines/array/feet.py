"""Feet of the array: align, accumulate, round and store its sums."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...formats.fixed import Fixed
from ...formats.images import DECODED, PARAMETER
from ...formats.rounding import round_shift_hdl, saturate_hdl
from ...hierarchy import place
from ...stream.delay import delay
from ...systolic.slices import Add
from ...units.post import PostProcess
from .parameters import HIDDEN

__all__ = [
    "bias_format",
    "SumsToken",
    "DrainToken",
    "RunLayout",
    "Hidden",
    "HiddenWords",
    "Align",
    "Accumulate",
    "Finish",
]


def bias_format(config):
    """A bias has the fraction bits of an activation."""
    return Fixed(width=32, frac=config.activation.frac)


def SumsToken(config):
    """Token of a window's sums.

    Fields: ``valid``; the ``first`` and ``last`` channel of its ``position``.
    """
    return data.StructLayout({"valid": 1, "first": 1, "last": 1, "position": ceil_log2(config.positions)})


def DrainToken(config):
    """Token of a drain's sums.

    Fields: ``valid``; ``hidden``: forward pass of tap ``tap``, else a dense layer.
    """
    return data.StructLayout({"valid": 1, "hidden": 1, "tap": ceil_log2(config.taps), "samples": 6})


def RunLayout(config):
    """Operations on the words of one command, and their destination.

    ``final``: the last column in use.
    """
    return data.StructLayout(
        {
            "height": 8,
            "width": 8,
            "pool": 3,
            "relu": 1,
            "bias": ceil_log2(config.bias_depth),
            "to_dense": 1,
            "rows": 1,
            "row": ceil_log2(config.rows),
            "samples": 6,
            "target": 16,
            "stride": 10,
            "final": ceil_log2(config.columns),
        }
    )


class Align(wiring.Component):
    """Aligns a panel's sums, which leave column by column, to one cycle.

    Sums have ``width`` bits.
    """

    def __init__(self, *, panels, columns, width):
        self.panels = panels
        self.columns = columns
        total = panels * columns
        super().__init__({"p": In(signed(width)).array(total), "o": Out(signed(width)).array(total)})

    def elaborate(self, platform):
        m = Module()
        for index in range(self.panels * self.columns):
            m.d.comb += self.o[index].eq(delay(m, self.p[index], self.columns - 1 - index % self.columns))
        return m


def HiddenWords(config):
    """h of a sample of a tap."""
    return data.StructLayout(
        {
            "valid": 1,
            "tap": ceil_log2(config.taps),
            "sample": ceil_log2(config.rows),
            "h": data.ArrayLayout(config.activation.shape, config.rank),
        }
    )


class Hidden(wiring.Component):
    """Makes h of a forward pass: adds up the panels' sums and rounds.

    h has the format Q8.16. Samples come one by one, the last first.

    Members
    -------
    sums, valid, token : aligned sums, sample ``rows - 1`` first, while ``valid``; ``token`` holds.
    h : ``rank`` words of a sample of a tap, 4 cycles later.
    """

    latency = HIDDEN

    def __init__(self, config):
        self.config = config
        super().__init__(
            {
                "sums": In(signed(config.sum_bits)).array(config.columns),
                "valid": In(1),
                "sample": In(ceil_log2(config.rows)),
                "token": In(DrainToken(config)),
                "h": Out(HiddenWords(config)),
                "saturated": Out(range(config.rank + 1)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        # Of eight panels at most, and half a unit.
        width = signed(config.sum_bits + 4)
        over = []
        for lane in range(config.rank):
            terms = [self.sums[panel * config.rank + lane] for panel in range(config.panels)]
            for _ in range(2):
                # Two levels of adders: up to four panels in pairs, eight in threes and twos.
                group = 2 if len(terms) <= 4 else 4
                added = []
                for at in range(0, len(terms), group):
                    total = Signal(width, reset_less=True)
                    m.d.sync += total.eq(sum(terms[at + 1 : at + group], terms[at]))
                    added.append(total)
                terms = added
            rounded = Signal(width, reset_less=True)
            # Half to even needs the dropped bits only here: saturation takes a cycle of its own.
            m.d.sync += rounded.eq(round_shift_hdl(terms[0], DECODED.frac + PARAMETER.frac - config.activation.frac))
            word, lane_over = saturate_hdl(rounded, config.activation.shape)
            m.d.sync += self.h.h[lane].eq(word)
            over.append(lane_over)
        live = delay(m, self.valid & (self.sample < self.token.samples), 3, reset_less=False)
        m.d.sync += [
            self.h.valid.eq(live),
            self.h.sample.eq(delay(m, self.sample, 3)),
            self.h.tap.eq(delay(m, self.token.tap, 3)),
            self.saturated.eq(Mux(live, sum(over), 0)),
        ]
        return m


class Accumulate(wiring.Component):
    """Adds up the sums of a convolution's channels for each position.

    Sums of a dense layer pass.

    A position may come again after 4 cycles at the earliest. Complete sums, and sums that pass, leave a cycle after
    they came.

    Members
    -------
    ahead : :func:`SumsToken`, 2 cycles before its ``sums``.
    alone : ``sums`` are complete; without a token.
    o : ``valid`` and complete sums.
    """

    ahead_cycles = 2
    latency = Add.latency

    def __init__(self, config):
        self.config = config
        layout = data.ArrayLayout(signed(config.sum_bits), config.columns)
        super().__init__(
            {
                "ahead": In(SumsToken(config)),
                "alone": In(1),
                "sums": In(signed(config.sum_bits)).array(config.columns),
                "o": Out(data.StructLayout({"valid": 1, "sums": layout})),
            }
        )

    def elaborate(self, platform):
        m = Module()
        layout = data.ArrayLayout(signed(self.config.sum_bits), self.config.columns)
        m.submodules.partial = partial = memory.Memory(
            shape=layout, depth=self.config.positions, init=[], attrs={"ram_style": "ultra"}
        )
        read, write = partial.read_port(), partial.write_port()
        token = delay(m, self.ahead, 2, reset_less=False)
        old = Signal(layout, reset_less=True)
        m.d.comb += [read.en.eq(self.ahead.valid), read.addr.eq(self.ahead.position)]
        m.d.sync += old.eq(read.data)
        for column in range(self.config.columns):
            add = place(
                m,
                f"add_{column}",
                Add(width=self.config.sum_bits),
                platform,
                a=self.sums[column],
                c=old[column],
                add=token.valid & ~token.first,
            )
            m.d.comb += self.o.sums[column].eq(add.p)
        later = delay(m, token, 1, reset_less=False)
        m.d.comb += [
            # mutant first-channel-only: write.en.eq(later.valid & later.first),
            write.en.eq(later.valid & ~later.last),
            write.addr.eq(later.position),
            write.data.eq(self.o.sums),
        ]
        m.d.sync += self.o.valid.eq((token.valid & token.last) | self.alone)
        return m


class Finish(wiring.Component):
    """Applies bias, rounding, ReLU and pooling, and stores the words.

    Each command's words go to the feature maps or to the dense memory.

    Words to feature maps leave one a cycle; elements for dense layers one a cycle. In between is room for
    ``depth`` words; ``hold`` tells that what may be under way already could fill it.

    Members
    -------
    run : stream of :func:`RunLayout`, a command each, before its first sums.
    bias_write : ``In({valid, address, data})`` : a 32-bit bias a column.
    sums : ``valid`` and sums; ``ready`` is not asked.
    feature : write port of the feature maps. dense : write port of the rows' dense activations.
    done : a command's last word has been written.
    astray : a word has no place, beyond the end of its memory, and was not written; until reset, and nothing is done.
    saturated : sums of the command's outputs and samples that were clipped, also those that a pool drops.
    """

    depth = 512

    def __init__(self, config):
        self.config = config
        columns = config.columns
        words = data.ArrayLayout(config.activation.shape, columns)
        super().__init__(
            {
                "run": In(stream.Signature(RunLayout(config))),
                "bias_write": In(data.StructLayout({"valid": 1, "address": ceil_log2(config.bias_depth), "data": 512})),
                "sums": In(data.StructLayout({"valid": 1, "sums": data.ArrayLayout(signed(config.sum_bits), columns)})),
                "feature": Out(
                    data.StructLayout({"valid": 1, "address": ceil_log2(config.feature_depth), "data": words})
                ),
                "dense": Out(
                    data.StructLayout(
                        {
                            "valid": 1,
                            "row": ceil_log2(config.rows),
                            "address": ceil_log2(config.dense_depth),
                            "data": config.activation.shape,
                        }
                    )
                ),
                "hold": Out(1),
                "done": Out(1),
                "astray": Out(1),
                "saturated": Out(range(columns + 1)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        columns = config.columns
        layout = RunLayout(config)

        bias = bias_format(config)
        m.submodules.biases = biases = memory.Memory(
            shape=data.ArrayLayout(bias.shape, columns), depth=config.bias_depth, init=[]
        )
        bias_write, bias_read = biases.write_port(), biases.read_port()
        post = place(
            m,
            "post",
            PostProcess(
                lanes=columns,
                sum_shape=signed(config.sum_bits),
                sum_frac=config.activation.frac + PARAMETER.frac,
                bias=bias,
                fmt=config.activation,
                max_width=max(config.width, config.rows),
                max_height=config.width,
            ),
            platform,
        )
        m.submodules.words = words = SyncFIFOBuffered(width=config.activation.width * columns + 1, depth=self.depth)
        m.submodules.runs = runs = SyncFIFOBuffered(width=layout.size, depth=4)

        # A run waits for its bias, then for the runs before it to have left the post-processor.
        current = Signal(layout)
        fetched, waits = Signal(), Signal()
        m.d.comb += [
            bias_write.en.eq(self.bias_write.valid),
            bias_write.addr.eq(self.bias_write.address),
            bias_write.data.eq(self.bias_write.data[: 32 * columns]),
            bias_read.en.eq(1),
            bias_read.addr.eq(current.bias),
            self.run.ready.eq(~waits & runs.w_rdy),
            runs.w_data.eq(self.run.p),
            runs.w_en.eq(self.run.valid & self.run.ready),
            post.i_config.valid.eq(fetched),
            post.i_config.p.height.eq(current.height),
            post.i_config.p.width.eq(current.width),
            post.i_config.p.pool.eq(current.pool),
            post.i_config.p.relu.eq(current.relu),
            post.i_config.p.bias.eq(bias_read.data),
            # Of a dense layer, samples that are not there have stale sums.
            post.i_config.p.counted.eq(Mux(current.rows, current.samples, current.width)),
            post.i_config.p.final.eq(current.final),
        ]
        with m.If(self.run.valid & self.run.ready):
            m.d.sync += [current.eq(self.run.p), waits.eq(1)]
        m.d.sync += fetched.eq(waits)
        with m.If(fetched & post.i_config.ready):
            m.d.sync += [waits.eq(0), fetched.eq(0)]

        m.d.comb += [
            post.i.valid.eq(self.sums.valid),
            post.i.p.eq(self.sums.sums),
            post.o.ready.eq(words.w_rdy),
            words.w_en.eq(post.o.valid),
            words.w_data.eq(Cat(post.o.p.p, post.o.p.last)),
            self.saturated.eq(post.saturated),
        ]
        # Between the window generator and here, no more words are under way than this.
        m.d.sync += self.hold.eq(words.level > self.depth - 4 * config.rows - 64)
        self._write(m, words, runs)
        return m

    def _write(self, m, words, runs):
        """Writes the words of runs in order, to the memory of each run.

        The memory is that of features or of dense activations.
        """
        config = self.config
        run = data.View(RunLayout(config), runs.r_data)
        word = data.View(data.ArrayLayout(config.activation.shape, config.columns), words.r_data[:-1])
        last_word = words.r_data[-1]
        element = Signal(range(config.columns))
        base = Signal(17)
        row = Signal(range(config.rows))
        begun = Signal()
        pop, both = Signal(), Signal()
        m.d.comb += both.eq(words.r_rdy & runs.r_rdy)
        with m.If(runs.r_rdy & ~begun):
            m.d.sync += [
                begun.eq(1),
                base.eq(run.target),
                element.eq(0),
                row.eq(Mux(run.rows, config.rows - 1, run.row)),
            ]
        with m.Elif(both & begun):
            with m.If(run.to_dense):
                skip = run.rows & (row >= run.samples)
                m.d.comb += pop.eq(skip | (element == run.final))
                m.d.sync += element.eq(Mux(pop, 0, element + 1))
            with m.Else():
                m.d.comb += pop.eq(1)
            with m.If(pop):
                m.d.sync += [base.eq(base + Mux(run.to_dense, Mux(run.rows, 0, run.stride), 1)), row.eq(row - run.rows)]
                with m.If(last_word):
                    m.d.sync += begun.eq(0)
        writes = both & begun
        m.d.comb += [words.r_en.eq(pop), runs.r_en.eq(pop & last_word)]
        to_feature, to_dense, feature_at, dense_at = Signal(), Signal(), Signal(17), Signal(18)
        feature_over = feature_at[len(self.feature.address) :].any()
        dense_over = dense_at[len(self.dense.address) :].any()
        m.d.comb += [
            self.feature.valid.eq(to_feature & ~feature_over),
            self.feature.address.eq(feature_at),
            self.dense.valid.eq(to_dense & ~dense_over),
            self.dense.address.eq(dense_at),
        ]
        over, ended = Signal(), Signal()
        m.d.comb += [
            over.eq((to_feature & feature_over) | (to_dense & dense_over)),
            self.done.eq(ended & ~over & ~self.astray),
        ]
        with m.If(over):
            m.d.sync += self.astray.eq(1)
        m.d.sync += [
            to_feature.eq(writes & ~run.to_dense),
            feature_at.eq(base),
            self.feature.data.eq(word),
            to_dense.eq(writes & run.to_dense & ~(run.rows & (row >= run.samples))),
            self.dense.row.eq(row),
            dense_at.eq(base + element),
            self.dense.data.eq(word[element]),
            ended.eq(pop & last_word),
        ]
