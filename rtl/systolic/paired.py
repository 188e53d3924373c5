"""An array of slices with two products each: chains and their feet."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..formats.pair import Pair
from ..hierarchy import place
from ..stream.delay import delay
from .mesh import ROW_TAG, Skew, grid_of
from .pe import PE, Precision

__all__ = ["ChainFeet", "PairedArray"]

#: Bits of an operand.
_X = 8


class ChainFeet(wiring.Component):
    """Adds the sums of the chains of one column of slices.

    A tree of adders with registers; two sums a slice with a pair. Each chain begins with the pair's bound, so that its
    lanes are wires.

    Parameters
    ----------
    chains : int
    width : int
        Bits of a result.
    pair : Pair or None

    Members
    -------
    p : sums at the feet of the chains.
    o : results, those of the low codes first, :attr:`latency` cycles later.
    """

    def __init__(self, *, chains, width, pair):
        self.chains = chains
        self.width = width
        self.pair = pair
        self.sum = 48 if pair else width
        super().__init__({"p": In(signed(self.sum)).array(chains), "o": Out(signed(width)).array(2 if pair else 1)})

    @property
    def latency(self):
        """Levels of the tree."""
        return (self.chains - 1).bit_length()

    def elaborate(self, platform):
        m = Module()
        for lane, o in enumerate(self.o):
            # mutant unbiased: level = [self.pair.lanes(p)[lane] for p in self.p]
            level = [self.pair.biased_lanes(p)[lane] if self.pair else p for p in self.p]
            # A sum grows by a bit a level, up to that of all rows.
            bits = self.pair.apart if self.pair else self.width
            while len(level) > 1:
                bits = min(bits + 1, self.width)
                pairs = [level[at : at + 2] for at in range(0, len(level), 2)]
                level = []
                for pair in pairs:
                    total = Signal(signed(bits), reset_less=True)
                    m.d.sync += total.eq(sum(pair))
                    level.append(total)
            m.d.comb += o.eq(level[0])
        return m


class PairedArray(wiring.Component):
    """``rows`` x ``columns`` products a cycle, two a slice; no flow control.

    ::

        x --> skew --> chain of rows --> foot --+
                 +---> chain of rows --> foot --+--> align --> sums
        w --> pack --> skew --^

    Weight-stationary, as :class:`~.mesh.Mesh`; a weight row loads under compute, a row a cycle. Two neighbouring
    columns share a slice. A column of slices is cut into chains that start together; their sums are added at the feet.
    The weight code -128 becomes -127.

    Parameters
    ----------
    rows, columns : int
        Length of a dot product within a tile, sums a cycle.
    pair : Pair or None
        None: one product a slice, as where a multiplier is narrow; then a chain is all rows.

    Members
    -------
    tag : ``launch`` with a weight row; ``swap`` with the first operands of a tile, ``use_m`` with all. ``swap`` is in
        the cycle of the next tile's first weight row at the latest.
    row : number of the weight row.
    x, w : operands of each row, weight of each column.
    sums : of the columns, :attr:`latency` cycles behind their operands.
    clipped : weights -128 in this cycle.
    """

    def __init__(self, *, rows, columns, pair):
        for field, value in (("rows", rows), ("columns", columns)):
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{field}={value}: an array has at least 1")
        if pair is not None and columns % 2:
            raise ValueError(f"columns={columns}: two columns share a slice: must be even")
        if pair is not None and rows > pair.rows and rows % pair.rows:
            raise ValueError(
                f"rows={rows}: a chain of pairs {pair.apart} bits apart is at most {pair.rows} rows: "
                f"must be at most {pair.rows}, or a multiple of it"
            )
        self.rows = rows
        self.columns = columns
        self.pair = pair
        self.width = self.sum_bits(rows)
        if pair is None:
            self.chain, self.slices = rows, columns
            self.precision = Precision(x=_X, w=Pair.CODE, sum=self.width)
        else:
            self.chain, self.slices = min(rows, pair.rows), columns // 2
            self.precision = Precision.of_pairs(pair)
        self.precision.check_array(rows=self.chain)
        super().__init__(
            {
                "tag": In(ROW_TAG),
                "row": In(range(rows)),
                "x": In(unsigned(_X * rows)),
                "w": In(unsigned(Pair.CODE * columns)),
                "sums": Out(signed(self.width)).array(columns),
                "clipped": Out(range(columns + 1)),
            }
        )

    @staticmethod
    def sum_bits(rows):
        """Bits of the sum of a tile's column."""
        return (rows * Pair.MOST << _X - 1).bit_length() + 1

    @property
    def chains(self):
        """Chains in a column of slices."""
        return self.rows // self.chain

    @property
    def feet(self):
        """The foot of a column of slices."""
        return ChainFeet(chains=self.chains, width=self.width, pair=self.pair)

    @property
    def latency(self):
        """Cycles from operands to their sums."""
        return 1 + PE.latency + self.chain - 1 + (self.chains - 1).bit_length() + self.slices - 1

    def elaborate(self, platform):
        m = Module()
        tag, row = delay(m, self.tag, 1, reset_less=False), delay(m, self.row, 1)
        x, words = delay(m, self.x, 1), self._packed(m)

        def skewed(name, value, width, count, **options):
            if count == 1:
                return value
            # In registers: chips have plenty, and a LUT a bit would be a third of all LUTs.
            skew = Skew(width=width, count=count, registers=True, **options)
            return place(m, name, skew, platform, i=value).o

        w = skewed("skew_w", Cat(*words), self.precision.w, self.slices)
        start = Const(0 if self.pair is None else self.pair.bound, self.precision.sum)
        grids = []
        for number in range(self.chains):
            part = x.word_select(number, _X * self.chain)
            own = Signal(ROW_TAG, name=f"tag_{number}")
            m.d.comb += [own.eq(tag), own.launch.eq(tag.launch & (row // self.chain == number))]
            grid = place(
                m,
                f"chain_{number}",
                grid_of(self.chain, self.slices, self.precision),
                platform,
                x=skewed(f"skew_x_{number}", part, _X, self.chain),
                tag_i=own,
                w_i=w,
                p_i=Cat(start for _ in range(self.slices)),
            )
            grids.append(grid.p_o)
        found = []
        for column in range(self.slices):
            feet = place(m, f"feet_{column}", self.feet, platform)
            for p, grid in zip(feet.p, grids):
                m.d.comb += p.eq(grid.word_select(column, self.precision.sum))
            found += list(feet.o)
        lanes = len(found) // self.slices
        aligned = skewed("align", Cat(*found), lanes * self.width, self.slices, falling=True)
        m.d.comb += [o.eq(aligned.word_select(n, self.width)) for n, o in enumerate(self.sums)]
        return m

    def _packed(self, m):
        """Weight words of the slices, a cycle later."""
        least = Const(-Pair.MOST, signed(Pair.CODE))
        codes, beyond = [], []
        for column in range(self.columns):
            code = self.w.word_select(column, Pair.CODE).as_signed()
            wrong = code == -Pair.MOST - 1
            beyond.append(wrong & self.tag.launch)
            # mutant unclipped: codes.append(code)
            codes.append(Mux(wrong, least, code).as_signed())
        m.d.sync += self.clipped.eq(sum(beyond))
        words = []
        for first in range(0, self.columns, 1 if self.pair is None else 2):
            word = Signal(self.precision.w, reset_less=True, name=f"word_{first}")
            m.d.sync += word.eq(codes[first] if self.pair is None else self.pair.word(*codes[first : first + 2]))
            words.append(word)
        return words
