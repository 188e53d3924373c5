"""The stand-alone mesh: a weight-stationary array with streams."""

from amaranth.hdl import Cat, Module, Signal, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from ..hierarchy import place
from .pe import PE, Precision, tag_layout

__all__ = ["ROW_TAG", "Delay", "Mesh", "MeshRow", "MeshRows", "Skew", "grid_of", "tile_gate"]

#: What travels down the rows: ``launch``, a weight row that is still looking for its row; ``swap``, the
#: weights that wait come into use; ``use_m``, there is an operand.
ROW_TAG = data.StructLayout({"launch": 1, "swap": 1, "use_m": 1})


class Delay(wiring.Component):
    """A word, ``cycles`` cycles later.

    ``registers``: never in shift-register LUTs, which have no reset.
    """

    def __init__(self, *, width, cycles, registers=False):
        self.width = width
        self.cycles = cycles
        self.registers = registers
        super().__init__({"i": In(unsigned(width)), "o": Out(unsigned(width))})

    def elaborate(self, platform):
        m = Module()
        # One register for the whole line is one line of Verilog.
        line = Signal(self.width * self.cycles, reset_less=not self.registers)
        m.d.sync += line.eq(Cat(self.i, line))
        m.d.comb += self.o.eq(line[-self.width :])
        return m


class Skew(wiring.Component):
    """Delays element n of ``count`` by n cycles.

    With ``falling``, by ``count - 1 - n`` cycles. ``registers``: see :class:`Delay`.
    """

    def __init__(self, *, width, count, falling=False, registers=False):
        self.registers = registers
        self.width = width
        self.count = count
        self.falling = falling
        super().__init__({"i": In(unsigned(width * count)), "o": Out(unsigned(width * count))})

    def elaborate(self, platform):
        m = Module()
        width, half = self.width, self.count // 2
        parts = {"lower": (0, half), "upper": (half, self.count)}
        # Halves of halves: all but the first lie in modules that exist already.
        other = "lower" if self.falling else "upper"
        late = self.count - half if self.falling else half
        out = []
        for name, (start, end) in parts.items():
            lanes = [self.i[n * width : (n + 1) * width] for n in range(start, end)]
            if name == other:
                lanes = [
                    place(
                        m, f"delay_{n}", Delay(width=width, cycles=late, registers=self.registers), platform, i=lane
                    ).o
                    for n, lane in enumerate(lanes)
                ]
            if len(lanes) > 1:
                skew = Skew(width=width, count=len(lanes), falling=self.falling, registers=self.registers)
                lanes = [place(m, name, skew, platform, i=Cat(*lanes)).o]
            out += lanes
        m.d.comb += self.o.eq(Cat(*out))
        return m


class MeshRow(wiring.Component):
    """A row of PEs that keeps its own weights.

    The first weight that arrives after a ``swap`` stays, the rest pass.

    Members
    -------
    x : operand.
    tag_i, tag_o : what to do with it, and a cycle later for the row below.
    w_i, w_o, p_i, p_o : a column each, packed, as in :class:`~.systolic.Row`.
    """

    def __init__(self, *, columns, precision):
        self.columns = columns
        self.precision = precision
        super().__init__(_row_ports(1, columns, precision))

    def elaborate(self, platform):
        m = Module()
        # A swap takes the row's weight away, so that in its cycle the next tile's may arrive.
        has = Signal()
        served = Signal()
        tag = Signal(tag_layout)
        m.d.comb += [
            served.eq(has & ~self.tag_i.swap),
            tag.load.eq(self.tag_i.launch & ~served),
            tag.swap.eq(self.tag_i.swap),
            tag.use_m.eq(self.tag_i.use_m),
            tag.from_above.eq(self.tag_i.use_m),
        ]
        m.d.sync += [
            has.eq(served | self.tag_i.launch),
            self.tag_o.launch.eq(self.tag_i.launch & served),
            self.tag_o.swap.eq(self.tag_i.swap),
            self.tag_o.use_m.eq(self.tag_i.use_m),
        ]
        w_bits, p_bits = self.precision.w, self.precision.sum
        x, w, p = self.x, [], []
        for column in range(self.columns):
            pe = place(
                m,
                f"pe_{column}",
                PE(precision=self.precision),
                platform,
                x_i=x,
                tag_i=tag,
                w_i=self.w_i[column * w_bits : (column + 1) * w_bits],
                p_i=self.p_i[column * p_bits : (column + 1) * p_bits],
            )
            x, tag = pe.x_o, pe.tag_o
            w.append(pe.w_o)
            p.append(pe.p_o)
        m.d.comb += [self.w_o.eq(Cat(*w)), self.p_o.eq(Cat(*p))]
        return m


class MeshRows(wiring.Component):
    """``rows`` of :class:`MeshRow`, one below the other.

    Its ports are those of one row, and an ``x`` for each row.
    """

    def __init__(self, *, rows, columns, precision):
        self.rows = rows
        self.columns = columns
        self.precision = precision
        super().__init__(_row_ports(rows, columns, precision))

    def elaborate(self, platform):
        m = Module()
        bits, half = self.precision.x, self.rows // 2
        tag, w, p = self.tag_i, self.w_i, self.p_i
        for name, start, end in (("upper", 0, half), ("lower", half, self.rows)):
            part = place(
                m,
                name,
                grid_of(end - start, self.columns, self.precision),
                platform,
                x=self.x[start * bits : end * bits],
                tag_i=tag,
                w_i=w,
                p_i=p,
            )
            tag, w, p = part.tag_o, part.w_o, part.p_o
        m.d.comb += [self.tag_o.eq(tag), self.w_o.eq(w), self.p_o.eq(p)]
        return m


def grid_of(rows, columns, precision):
    """Rows of PEs, one below the other."""
    if rows == 1:
        return MeshRow(columns=columns, precision=precision)
    return MeshRows(rows=rows, columns=columns, precision=precision)


def _row_ports(rows, columns, precision):
    return {
        "x": In(unsigned(rows * precision.x)),
        "tag_i": In(ROW_TAG),
        "tag_o": Out(ROW_TAG),
        "w_i": In(unsigned(columns * precision.w)),
        "w_o": Out(unsigned(columns * precision.w)),
        "p_i": In(unsigned(columns * precision.sum)),
        "p_o": Out(unsigned(columns * precision.sum)),
    }


def tile_gate(m, rows, i, w, o, credit, *, last=None):
    """Takes activation rows and weight rows of tiles.

    An activation row with ``first`` waits until its tile's weights are complete, and all wait for room for their
    results: ``credit`` of them; rows without ``last`` have none. Returns ``(take, take_weight, swap, waiting)``; the
    weight row is the first of its tile with ``swap``, else number ``waiting``.
    """
    waiting = Signal(range(rows + 1))
    complete = Signal()
    take, take_weight, swap = Signal(), Signal(), Signal()
    m.d.comb += [
        complete.eq(waiting == rows),
        i.ready.eq((credit != 0) & (complete | ~i.p.first)),
        take.eq(i.valid & i.ready),
        swap.eq(take & i.p.first),
        w.ready.eq(~complete | swap),
        take_weight.eq(w.valid & w.ready),
    ]
    m.d.sync += credit.eq(credit - (take if last is None else take & last) + (o.valid & o.ready))
    with m.If(swap):
        m.d.sync += waiting.eq(take_weight)
    with m.Elif(take_weight):
        m.d.sync += waiting.eq(waiting + 1)
    return take, take_weight, swap, waiting


class Mesh(wiring.Component):
    """Products of activation rows with weight tiles, a row a cycle.

    The next tile loads underneath.

    ::

        o.sum[c] = sum_r i.x[r] * w[r][c]        for each activation row, in order

    A tile is ``rows`` weight rows. Tiles of at least ``rows`` activation rows follow each other without a
    bubble. An activation row with ``first`` waits until its tile is complete; results leave ``latency``
    cycles after their row was taken, at full rate as long as they are taken. ``i.ready`` depends on
    ``i.p.first``, ``w.ready`` on ``i.valid`` and ``i.p.first``, combinationally.

    The rows' ports are packed, unlike those of :class:`~.systolic.SystolicArray`: Verilog is a tenth as long.

    Parameters
    ----------
    rows : int
        Length of a dot product within a tile.
    columns : int
        Results a cycle.
    precision : :class:`Precision`
        Bits of activations, weights and sums.

    Members
    -------
    i : ``In(stream.Signature({x: ArrayLayout(signed(precision.x), rows), first: 1}))``
        Activation rows. ``first``: the next tile comes into use with this row.
    w : ``In(stream.Signature({w: ArrayLayout(signed(precision.w), columns)}))``
        Weight rows; row 0 of a tile first.
    o : ``Out(stream.Signature({sum: ArrayLayout(signed(precision.sum), columns), first: 1}))``
        One result row an activation row, with its ``first``.
    """

    def __init__(self, *, rows, columns, precision=Precision()):
        precision.check_array(rows=rows, columns=columns)
        self.rows = rows
        self.columns = columns
        self.precision = precision
        super().__init__(
            {
                "i": In(
                    stream.Signature(data.StructLayout({"x": data.ArrayLayout(signed(precision.x), rows), "first": 1}))
                ),
                "w": In(stream.Signature(data.StructLayout({"w": data.ArrayLayout(signed(precision.w), columns)}))),
                "o": Out(
                    stream.Signature(
                        data.StructLayout({"sum": data.ArrayLayout(signed(precision.sum), columns), "first": 1})
                    )
                ),
            }
        )

    @property
    def to_feet(self):
        """Cycles from an activation row to its sums, side by side at the feet."""
        return PE.latency + self.rows - 1 + self.columns - 1

    @property
    def latency(self):
        """Cycles from taking an activation row to offering its result."""
        return self.to_feet + 2

    def cycles(self, tiles, m):
        """Cycles from the first weight row to the last result.

        Both are counted when they are taken. Nobody waits.

        ``m``: activation rows a tile.
        """
        return self.rows + (tiles - 1) * max(m, self.rows) + m + self.latency

    def utilisation(self, tiles, m):
        """Part of all PE cycles in which a PE multiplies.

        ``(from the first weight, from the first activation)``, both until the last result is taken.
        """
        cycles = self.cycles(tiles, m)
        return tiles * m / cycles, tiles * m / (cycles - self.rows)

    def elaborate(self, platform):
        m = Module()
        precision = self.precision
        depth = self.latency + 2

        m.submodules.results = results = SyncFIFOBuffered(width=len(self.o.p.as_value()), depth=depth)
        # The array cannot stall: a row is taken only if there is room for what it will become.
        credit = Signal(range(depth + 1), init=depth)
        take, take_weight, swap, _ = tile_gate(m, self.rows, self.i, self.w, self.o, credit)

        tag = Signal(ROW_TAG)
        m.d.comb += [tag.launch.eq(take_weight), tag.swap.eq(swap), tag.use_m.eq(take)]

        def skewed(name, value, width, count, **options):
            if count == 1:
                return value
            return place(m, name, Skew(width=width, count=count, **options), platform, i=value).o

        grid = place(
            m,
            "grid",
            grid_of(self.rows, self.columns, precision),
            platform,
            x=skewed("skew_x", self.i.p.x.as_value(), precision.x, self.rows),
            tag_i=tag,
            w_i=skewed("skew_w", self.w.p.w.as_value(), precision.w, self.columns),
            p_i=0,
        )
        feet = skewed("align", grid.p_o, precision.sum, self.columns, falling=True)

        # One register each: a line of Verilog.
        valid, first = Signal(self.to_feet), Signal(self.to_feet, reset_less=True)
        m.d.sync += [valid.eq(Cat(take, valid)), first.eq(Cat(self.i.p.first, first))]
        m.d.comb += [
            results.w_en.eq(valid[-1]),
            results.w_data.eq(Cat(feet, first[-1])),
            self.o.valid.eq(results.r_rdy),
            self.o.payload.eq(results.r_data),
            results.r_en.eq(self.o.ready),
        ]
        return m
