"""Two tiles of weights, read by rows or by columns."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradloom.rtl.formats.weights.linear import WEIGHT
from gradloom.rtl.stream.delay import delay

from .rotate import rotate, turns

__all__ = ["BankWords", "TileBuffer"]


def BankWords(config):
    """Words of a row of a tile, each for its bank.

    Word c of row n is for bank ``(c + n) % edge``.

    ``enable``: banks that have one. ``last`` of a tile.
    """
    return data.StructLayout(
        {
            "enable": config.edge,
            "row": range(config.edge),
            "half": 1,
            "last": 1,
            "w": data.ArrayLayout(signed(WEIGHT.width), config.edge),
        }
    )


class TileBuffer(wiring.Component):
    """Two tiles of weights, written by rows and read by rows or by columns.

    Row n is stored turned by n places, so that a row and a column alike lie in ``edge`` different banks: the
    corner turn that lets the same bytes serve W x and W' dy. Banks are in LUTs, of which they take some four thousand:
    each would fill an eighth of half a block RAM.

    Members
    -------
    i : words, each for its bank; a dense row may come in pieces.
    full : the half that is next to be read is complete. release : it was read.
    both : the other half is, too; of a machine whose parts go across tiles.
    index, by_column : row or column of that half to read, any cycle; ``w`` holds it :meth:`latency` cycles later.
    """

    def __init__(self, config):
        self.config = config
        super().__init__(
            {
                "i": In(BankWords(config)),
                "full": Out(1),
                **({"both": Out(1)} if config.span > 1 else {}),
                "release": In(1),
                "index": In(range(config.edge)),
                "by_column": In(1),
                "w": Out(data.ArrayLayout(signed(WEIGHT.width), config.edge)),
            }
        )

    @staticmethod
    def latency(config):
        """Cycles from index to words."""
        return 2 + turns(config.edge)

    def elaborate(self, platform):
        m = Module()
        edge = self.config.edge
        write = self.i
        half = Signal()
        complete = Signal(2)
        for number in range(2):
            with m.If(write.last & (write.half == number)):
                m.d.sync += complete[number].eq(1)
            with m.If(self.release & (half == number)):
                m.d.sync += complete[number].eq(0)
        with m.If(self.release):
            m.d.sync += half.eq(~half)
        # Computed a cycle ahead: what `complete` will say of the half that will be read.
        will = Signal(2)
        m.d.comb += will.eq(complete | Mux(write.last, Mux(write.half, 0b10, 0b01), 0))
        m.d.sync += self.full.eq(will.bit_select(half ^ self.release, 1))
        if self.config.span > 1:
            m.d.sync += self.both.eq(will.all())

        index = Signal(range(edge), reset_less=True)
        m.d.sync += index.eq(self.index)
        words = []
        for bank in range(edge):
            m.submodules[f"bank_{bank}"] = bank_memory = memory.Memory(
                shape=signed(WEIGHT.width), depth=2 * edge, init=[], attrs={"ram_style": "distributed"}
            )
            fill, read = bank_memory.write_port(), bank_memory.read_port()
            address = Signal(range(2 * edge), reset_less=True)
            place_in_half = Mux(self.by_column, (bank - self.index)[: ceil_log2(edge)], self.index)
            m.d.sync += address.eq(Cat(place_in_half, half))
            m.d.comb += [
                fill.en.eq(write.enable[bank]),
                fill.addr.eq(Cat(write.row, write.half)),
                fill.data.eq(write.w[bank]),
                read.addr.eq(address),
            ]
            words.append(read.data)
        back = rotate(m, words, delay(m, index, 1), left=False)
        m.d.comb += [ours.eq(theirs) for ours, theirs in zip(self.w, back)]
        return m
