"""The systolic array: rows of PEs, in panels of columns."""

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..hierarchy import place
from .pe import DRAIN, PE, Precision, tag_layout

__all__ = ["Row", "SystolicArray"]


class Row(wiring.Component):
    """A row of PEs.

    Operands pass from left to right in each panel, weights and sums from top to bottom.

    Members
    -------
    x : operand of each panel.
    tag : what to do with it.
    w_i, w_o, p_i, p_o : per column, panel by panel.
    """

    def __init__(self, *, panels, columns, precision=Precision(), both=False):
        self.both = both
        self.panels = panels
        self.columns = columns
        self.precision = precision
        total = panels * columns
        super().__init__(
            {
                "x": In(signed(precision.x)).array(panels),
                "tag": In(tag_layout),
                "w_i": In(signed(precision.w)).array(total),
                "w_o": Out(signed(precision.w)).array(total),
                "p_i": In(signed(precision.sum)).array(total),
                "p_o": Out(signed(precision.sum)).array(total),
            }
        )

    def elaborate(self, platform):
        m = Module()
        for panel in range(self.panels):
            x, tag = self.x[panel], self.tag
            for column in range(self.columns):
                index = panel * self.columns + column
                pe = place(m, f"pe_{index}", PE(precision=self.precision, both=self.both), platform)
                m.d.comb += [
                    pe.x_i.eq(x),
                    pe.tag_i.eq(tag),
                    pe.w_i.eq(self.w_i[index]),
                    pe.p_i.eq(self.p_i[index]),
                    self.w_o[index].eq(pe.w_o),
                    self.p_o[index].eq(pe.p_o),
                ]
                x, tag = pe.x_o, pe.tag_o
        return m


class SystolicArray(wiring.Component):
    """``rows`` x ``panels * columns`` PEs without flow control.

    What enters must be skewed: row r's operand and tag r cycles after row 0's; column c of a panel's
    weight c cycles after column 0's. What leaves is skewed alike. An operand that enters row 0 in cycle
    t contributes to the sum that leaves column c in cycle ``t + latency + c``.

    Weight-stationary (:data:`~.pe.WSUM`): the weight launched into the columns in cycle t waits in row k
    if row k's ``load`` is set in cycle t + k. It may be launched once the ``swap`` of the tile before has
    been (in the same cycle at the earliest), and the next swap may follow one cycle after the last launch:
    tiles of at least ``rows`` operands follow each other without a bubble.

    Output-stationary: each operand's tag has ``swap``, and ``load`` is one cycle ahead of it, with the
    weight; the sums stay. ``drain`` for one cycle, ``rows`` cycles or more after row 0's last operand, moves
    them out of the bottom, that of the last row first, from ``drain_latency`` cycles later on; row 0's next
    operand may enter one cycle after ``drain``.

    Parameters
    ----------
    rows, panels, columns : int
        Columns are those of one panel. A panel has an operand per row of its own.
    pairs : bool
        The last row's tag may have ``from_self`` beside ``from_above``: the sum that leaves with it then is that of
        its operand and of the one before.
    """

    def __init__(self, *, rows, panels=1, columns, precision=Precision(), pairs=False):
        precision.check_array(rows=rows, panels=panels, columns=columns)
        self.rows = rows
        self.panels = panels
        self.columns = columns
        self.precision = precision
        self.pairs = pairs
        total = panels * columns
        super().__init__(
            {
                "x": In(signed(precision.x)).array(rows, panels),
                "tag": In(tag_layout).array(rows),
                "drain": In(1),
                "w": In(signed(precision.w)).array(total),
                "p": Out(signed(precision.sum)).array(total),
            }
        )

    @property
    def latency(self):
        """Cycles from row 0's operand to the sum at the foot of column 0."""
        return PE.latency + self.rows - 1

    @property
    def drain_latency(self):
        """Cycles from ``drain`` to the last row's sum at the foot of column 0."""
        return PE.latency - 1

    def elaborate(self, platform):
        m = Module()
        w, p = self.w, None
        ended = self.drain
        for index in range(self.rows):
            row = Row(
                panels=self.panels,
                columns=self.columns,
                precision=self.precision,
                both=self.pairs and index == self.rows - 1,
            )
            place(m, f"row_{index}", row, platform)
            # All rows start to move at once; a row stops when the sums of those above have passed,
            # which is one cycle later for each row further down.
            draining = Signal()
            moves = Signal()
            m.d.comb += moves.eq(self.drain | draining)
            m.d.sync += draining.eq(moves & ~ended)
            ended_below = Signal()
            m.d.sync += ended_below.eq(ended)
            ended = ended_below

            tag = self.tag[index]
            m.d.comb += [
                row.tag.load.eq(tag.load),
                row.tag.swap.eq(tag.swap),
                row.tag.use_m.eq(Mux(moves, DRAIN["use_m"], tag.use_m)),
                row.tag.from_above.eq(Mux(moves, DRAIN["from_above"], tag.from_above)),
                row.tag.from_self.eq(Mux(moves, DRAIN["from_self"], tag.from_self)),
                *(ours.eq(theirs) for ours, theirs in zip(row.x, self.x[index])),
                *(ours.eq(theirs) for ours, theirs in zip(row.w_i, w)),
            ]
            if p is not None:
                m.d.comb += [ours.eq(theirs) for ours, theirs in zip(row.p_i, p)]
            w, p = row.w_o, row.p_o
        m.d.comb += [ours.eq(theirs) for ours, theirs in zip(self.p, p)]
        return m
