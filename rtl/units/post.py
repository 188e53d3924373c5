"""Post-processing of sums: bias, rounding, ReLU, max-pool."""

from amaranth.hdl import Cat, Module, Mux, Shape, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from gradloom.rtl.formats.fixed import Fixed

from ..latencies import POST

__all__ = ["PostProcess"]


class PostProcess(wiring.Component):
    """Turns words of sums into words of activations.

    Its stages are bias, rounding, saturation, ReLU and max-pool.

    Lane by lane, ``max over the pool of relu(saturate(round_half_to_even(sum + bias)))``. Pools are
    ``pool`` x ``pool`` at a stride of ``pool``; rows and columns that do not fill one are dropped. A
    run of a dense layer is one of height 1 and pool 1.

    One word a cycle; a run takes :meth:`cycles` cycles when neither side stalls. An output word
    leaves ``latency`` cycles after the last input word of its pool was taken; ``i.ready`` depends
    on ``o.ready`` combinationally.

    Parameters
    ----------
    lanes : :class:`int`
        Sums in a word.
    sum_shape : :class:`~amaranth.hdl.Shape`
        Of a sum; signed.
    sum_frac : :class:`int`
        Fraction bits of a sum.
    bias : :class:`~gradloom.rtl.formats.fixed.Fixed`
        Format of a bias; as many fraction bits as ``fmt``.
    fmt : :class:`~gradloom.rtl.formats.fixed.Fixed`
        Format of an activation.
    max_width, max_height : :class:`int`
        Most columns and rows of a run.
    max_pool : :class:`int`
        Largest pool.

    Members
    -------
    i_config : ``In(stream.Signature(config_layout))``
        A run: ``height`` x ``width`` words, ``pool`` (1 to ``max_pool``, and no larger than either side),
        ``relu``, and a ``bias`` a lane. The last ``counted`` words of a row, and their lanes up to ``final``, are the
        run's: clipped sums elsewhere are not counted.
    i : ``In(stream.Signature(data.ArrayLayout(sum_shape, lanes)))``
        Sums, in raster order.
    o : ``Out(stream.Signature(word_layout))``
        Activations, in raster order of pools; ``last`` marks the last word of a run.
    saturated : ``Out(range(lanes + 1))``
        How many of the run's lanes clipped in a word (before ReLU, pooled or dropped): non-zero for one cycle a
        word, to be summed by a counter.
    """

    #: Cycles from an input word to the output word it completes.
    latency = POST

    def __init__(
        self,
        *,
        lanes=16,
        sum_shape=signed(48),
        sum_frac=28,
        bias=Fixed(width=32, frac=16),
        fmt=Fixed(width=24, frac=16),
        max_width=32,
        max_height=32,
        max_pool=4,
    ):
        self.sum_shape = Shape.cast(sum_shape)
        for name, value, least in (
            ("lanes", lanes, 1),
            ("max_width", max_width, 2),
            ("max_height", max_height, 1),
            ("max_pool", max_pool, 1),
        ):
            if value < least:
                raise ValueError(f"{name}={value}: must be at least {least}")
        if not self.sum_shape.signed:
            raise ValueError(f"sum_shape={self.sum_shape}: must be signed")
        if bias.frac != fmt.frac:
            raise ValueError(f"bias.frac={bias.frac}: must be fmt.frac={fmt.frac}")
        if not 2 <= sum_frac - fmt.frac < self.sum_shape.width:
            raise ValueError(
                f"sum_frac={sum_frac}: must exceed fmt.frac={fmt.frac} by 2 to {self.sum_shape.width - 1} bits"
            )
        self.lanes = lanes
        self.sum_frac = sum_frac
        self.bias = bias
        self.fmt = fmt
        self.max_width = max_width
        self.max_height = max_height
        self.max_pool = max_pool
        self.config_layout = data.StructLayout(
            {
                "height": range(max_height + 1),
                "width": range(max_width + 1),
                "pool": range(max_pool + 1),
                "relu": 1,
                "bias": data.ArrayLayout(bias.shape, lanes),
                "counted": range(max_width + 1),
                "final": range(lanes),
            }
        )
        self.word_layout = data.StructLayout({"p": data.ArrayLayout(fmt.shape, lanes), "last": 1})
        super().__init__(
            {
                "i_config": In(stream.Signature(self.config_layout)),
                "i": In(stream.Signature(data.ArrayLayout(self.sum_shape, lanes))),
                "o": Out(stream.Signature(self.word_layout)),
                "saturated": Out(range(lanes + 1)),
            }
        )

    def cycles(self, height: int, width: int) -> int:
        """Cycles from a run's configuration to the next one's.

        This holds when neither side stalls.
        """
        return 1 + height * width

    def elaborate(self, platform):
        m = Module()
        go = Signal()
        o_valid = Signal()
        m.d.comb += go.eq(~o_valid | self.o.ready)

        step, bias, tags, valid = self._place_words(m, go)
        with m.If(go):
            m.d.sync += [valid.eq(Cat(step, valid[:3])), *(tags[n + 1].eq(tags[n]) for n in range(3))]

        words = self._round_and_clip(m, go, step, bias, tags, valid)
        self._fold(m, go, o_valid, words, tags[3], valid[3])
        return m

    @property
    def _groups(self):
        """Most pools in a row."""
        return (self.max_width + 1) // 2

    def _place_words(self, m, go):
        """Follows the position of the word at ``i``.

        The position is the number of columns and rows that remain after it, and its place in its pool.

        Returns whether a word is taken, the biases, and its tags in the four stages behind.
        """
        bias = Signal(data.ArrayLayout(self.bias.shape, self.lanes), reset_less=True)
        relu = Signal()
        counted = Signal(range(self.max_width + 1))
        final = Signal(range(self.lanes))
        pool = Signal(range(self.max_pool + 1))
        width = Signal(range(self.max_width))
        cols = Signal(range(self.max_width))
        rows = Signal(range(self.max_height))
        pool_col = Signal(range(self.max_pool))  # columns of the pool after this one
        pool_row = Signal(range(self.max_pool))
        top = Signal()  # first row of a pool
        left = Signal()
        single = Signal()  # one pool a row
        dropped = Signal()  # right of the last whole pool of a row
        active = Signal()
        step = Signal()
        m.d.comb += [self.i.ready.eq(active & go), step.eq(self.i.valid & self.i.ready)]

        groups = self._groups
        group = Signal(range(groups))  # pool of this word, and the one whose maximum so far
        following = Signal(range(groups))  # is needed next
        fits = Signal()  # another whole pool follows in this row
        fits2 = Signal()  # and another one after that
        tags_layout = data.StructLayout(
            {
                "fold": 1,
                "fresh": 1,
                "load": 1,
                "store": 1,
                "emit": 1,
                "last": 1,
                "relu": 1,
                "counts": 1,
                "final": final.shape(),
                "group": group.shape(),
                "following": following.shape(),
            }
        )
        tags = [Signal(tags_layout, name=f"tags{n}") for n in range(4)]
        valid = Signal(4)  # of the four stages
        ended = pool_col == 0
        m.d.comb += [
            fits.eq(cols >= pool),
            fits2.eq(cols >= (pool << 1)),
            # As the pipeline moves: its first stage still uses the biases.
            self.i_config.ready.eq(~active & go),
        ]

        config = self.i_config.payload
        with m.If(self.i_config.ready):
            m.d.sync += [
                bias.eq(config.bias),
                relu.eq(config.relu),
                pool.eq(config.pool),
                counted.eq(config.counted),
                final.eq(config.final),
                width.eq(config.width - 1),
                cols.eq(config.width - 1),
                rows.eq(config.height - 1),
                pool_col.eq(config.pool - 1),
                pool_row.eq(config.pool - 1),
                top.eq(1),
                left.eq(1),
                single.eq(config.width < (config.pool << 1)),
                dropped.eq(0),
                group.eq(0),
                following.eq(1),
                active.eq(self.i_config.valid),
            ]
        with m.If(step):
            with m.If(ended):
                m.d.sync += [
                    pool_col.eq(pool - 1),
                    left.eq(1),
                    dropped.eq(dropped | ~fits),
                    group.eq(group + 1),
                    following.eq(Mux(fits2, following + 1, 0)),
                ]
            with m.Else():
                m.d.sync += [pool_col.eq(pool_col - 1), left.eq(0)]
            m.d.sync += cols.eq(cols - 1)
            with m.If(cols == 0):
                m.d.sync += [
                    cols.eq(width),
                    rows.eq(rows - 1),
                    pool_col.eq(pool - 1),
                    left.eq(1),
                    dropped.eq(0),
                    group.eq(0),
                    following.eq(1),
                    top.eq(pool_row == 0),
                    pool_row.eq(Mux(pool_row == 0, pool - 1, pool_row - 1)),
                ]
                with m.If(rows == 0):
                    m.d.sync += active.eq(0)
            m.d.sync += [
                tags[0].fold.eq(~dropped),
                tags[0].fresh.eq(top & left),
                tags[0].load.eq(ended & ~single),
                tags[0].store.eq(ended & ~dropped),
                tags[0].emit.eq(ended & ~dropped & (pool_row == 0)),
                tags[0].last.eq(~fits & (rows < pool)),
                tags[0].relu.eq(relu),
                tags[0].counts.eq(cols < counted),
                tags[0].final.eq(final),
                tags[0].group.eq(group),
                tags[0].following.eq(following),
            ]
        return step, bias, tags, valid

    def _round_and_clip(self, m, go, step, bias, tags, valid):
        """Computes each lane up to its activation.

        Returns its word, four stages behind ``i``.

        Whether the sum rounds up is known from the bits that go and the parity that the bias will leave, so the adder
        takes it as its carry: one carry chain, not two.
        """
        drop = self.sum_frac - self.fmt.frac
        words = []
        counts = Signal(self.lanes)  # lanes that the run asks for
        clipped = Signal(self.lanes)
        for n in range(self.lanes):
            sums = self.i.payload[n]
            kept = Signal(signed(self.sum_shape.width - drop), name=f"kept{n}", reset_less=True)
            up = Signal(name=f"up{n}", reset_less=True)
            with m.If(step):
                m.d.sync += [
                    kept.eq(sums[drop:].as_signed()),
                    up.eq(sums[drop - 1] & (sums[: drop - 1].any() | (sums[drop] ^ bias[n][0]))),
                ]
            total = Signal(signed(max(len(kept), self.bias.width) + 1), name=f"total{n}", reset_less=True)
            # Clipping takes two cycles: what is out of range becomes zero, then, if it is positive, all ones.
            # Resets and sets of registers take no logic.
            near = Signal(self.fmt.shape, name=f"near{n}", reset_less=True)
            high = Signal(name=f"high{n}", reset_less=True)
            over = Signal(name=f"over{n}", reset_less=True)
            low = Signal(self.fmt.width - 1, name=f"low{n}", reset_less=True)
            negative = Signal(name=f"negative{n}", reset_less=True)
            above, sign = total[self.fmt.width - 1 :], total[-1]
            beyond, cut = Signal(name=f"beyond{n}"), Signal(name=f"cut{n}")
            m.d.comb += [beyond.eq(above.any() & ~above.all()), cut.eq(tags[1].relu & sign)]
            with m.If(go):
                m.d.sync += [
                    total.eq(kept + bias[n] + up),
                    near.eq(Cat(Mux(beyond | cut, 0, total[: self.fmt.width - 1]), sign & ~cut)),
                    high.eq(beyond & ~sign),
                    over.eq(beyond),
                    low.eq(Mux(high, (1 << self.fmt.width - 1) - 1, near[:-1])),
                    negative.eq(near[-1]),
                    # Lane 0 always is the run's.
                    counts[n].eq(valid[1] & tags[1].counts & ((n <= tags[1].final) if n else 1)),
                    clipped[n].eq(over & counts[n]),
                ]
            word = Cat(low, negative).as_signed()
            words.append(word)
        count = Signal(range(self.lanes + 1))
        m.d.comb += count.eq(sum(clipped[n] for n in range(self.lanes)))
        m.d.sync += self.saturated.eq(Mux(go, count, 0))
        return words

    def _fold(self, m, go, o_valid, words, tags, valid):
        """Maxima of pools, from the words' own tags.

        Running maximum: of this row of a pool in ``best``; of its rows so far in the row buffer, whose next entry is
        loaded into ``best`` as a pool ends. It was read from its address the cycle after that was known and is needed
        two words later at the soonest, and an entry is next read at least a word after it was written, for a pool is at
        least 2 wide. With one pool a row nothing is loaded: ``best`` waits through the words dropped.
        """
        best_layout = data.ArrayLayout(self.fmt.shape, self.lanes)
        m.submodules.rows = memory = Memory(shape=best_layout, depth=self._groups, init=[])
        read = memory.read_port()
        write = memory.write_port()
        fold = Signal()
        m.d.comb += [
            fold.eq(go & valid & tags.fold),
            read.en.eq(1),
            read.addr.eq(tags.following),
            write.en.eq(fold & tags.store),
            write.addr.eq(tags.group),
        ]
        best = Signal(best_layout, reset_less=True)
        out = Signal(best_layout, reset_less=True)
        last = Signal()
        with m.If(go):
            m.d.sync += o_valid.eq(fold & tags.emit)
        for n, word in enumerate(words):
            keep = Signal(name=f"keep{n}")
            folded = Signal(self.fmt.shape, name=f"folded{n}")
            m.d.comb += [
                keep.eq((best[n] > word) & ~tags.fresh),
                folded.eq(Mux(keep, best[n], word)),
                write.data[n].eq(folded),
            ]
            with m.If(fold):
                m.d.sync += [out[n].eq(folded), best[n].eq(Mux(tags.load, read.data[n], folded))]
        with m.If(fold):
            m.d.sync += last.eq(tags.last)
        m.d.comb += [self.o.valid.eq(o_valid), self.o.payload.p.eq(out), self.o.payload.last.eq(last)]
