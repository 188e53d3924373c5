"""Parts that go across tiles: panels of several tiles of outputs.

::

    outputs   0 ........... 63 64 ......... 127 128 ........ 191        a panel of three tiles
    parts     | 0 | 1 | 2 | 3 | 4 | 5 | 6 | ...          | 15 |         of twelve columns each
                                    ^ crosses: both tiles must be there
"""

from dataclasses import dataclass

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.utils import ceil_log2

from .parameters import LinearParameters

__all__ = ["Panel", "crossings", "starts_of"]


def crossings(config: LinearParameters) -> list[int]:
    """Of each tile of a panel the part that has its last column."""
    return [((tile + 1) * config.edge - 1) // config.columns for tile in range(config.span)]


def starts_of(config: LinearParameters) -> list[tuple[int, int]]:
    """Of each tile of a panel, the part and the column of its first output."""
    return [divmod(tile * config.edge, config.columns) for tile in range(config.span)]


@dataclass
class Panel:
    """What a sequencer knows of the panel in which the next part lies.

    Registers are behind the counts by up to three cycles; no part starts sooner after another one.

    Attributes
    ----------
    crosses, ends : the part begins the next tile; it has the last column of one.
    top : number of the last part: those of the panel's tiles, and as many as make h.
    last : the panel is the product's last.
    begins, closes : number in the panel of the tile that begins; it is the panel's last.
    first : column of its tile in which the part begins.
    """

    crosses: Signal
    ends: Signal
    top: Signal
    last: Signal
    begins: Signal
    closes: Signal
    first: Signal

    @classmethod
    def of(
        cls,
        m: Module,
        config: LinearParameters,
        *,
        args: Signal,
        judged: Signal,
        part: Signal,
        starts: Signal,
        last_part: Signal,
        last_inner: Signal,
    ) -> "Panel":
        """The panel of a command ``args``, which is ``judged``; the next ``part`` of it ``starts``."""
        span, edge = config.span, config.edge
        names = ("crosses", "ends", "last", "closes")
        crosses, ends, last, closes = (Signal(name=f"panel_{name}", reset_less=True) for name in names)
        top, first = Signal(range(config.subtiles), reset_less=True), Signal(range(edge))
        left, wide = Signal(8), Signal(range(span + 1), reset_less=True)
        tile, begins, first_panel = Signal(range(span)), Signal(range(span)), Signal()
        m.d.comb += begins.eq(tile + crosses)
        m.d.sync += [
            wide.eq(Mux(left < span, left, span)),
            last.eq(left <= span),
            top.eq(_top(config, wide, Mux(first_panel, args.rank, 0))),
            crosses.eq(Cat((part == at) & (wide > n) for n, at in enumerate(crossings(config)[:-1], 1)).any()),
            ends.eq(Cat((part == at) & (wide >= n) for n, at in enumerate(crossings(config), 1)).any()),
            closes.eq(begins == wide - 1),
        ]
        with m.If(judged):
            m.d.sync += [
                left.eq(args.outer),
                first_panel.eq(1),
                first.eq(0),
                tile.eq(0),
                # The first part of a command may start at once.
                wide.eq(Mux(args.outer < span, args.outer, span)),
                last.eq(args.outer <= span),
                crosses.eq(0),
                ends.eq(0),
                closes.eq(args.outer == 1),
            ]
        with m.If(starts):
            m.d.sync += first.eq(Mux(last_part, 0, first + config.columns))
            with m.If(crosses):
                m.d.sync += tile.eq(tile + 1)
            with m.If(last_part):
                m.d.sync += tile.eq(0)
                with m.If(last_inner):
                    m.d.sync += [left.eq(left - span), first_panel.eq(0)]
        return cls(crosses=crosses, ends=ends, top=top, last=last, begins=begins, closes=closes, first=first)


def _top(config: LinearParameters, wide: Signal, rank: Signal) -> object:
    """Number of the last part of a panel of ``wide`` tiles that makes ``rank`` indices of h."""
    needed = [config.parts(max(tiles, 1)) - 1 for tiles in range(config.span + 1)]
    own = needed[-1]
    for tiles in range(config.span - 1, 0, -1):
        own = Mux(wide == tiles, needed[tiles], own)
    return Mux(rank > own, rank - 1, own)[: ceil_log2(config.subtiles)]
