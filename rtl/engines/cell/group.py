"""A group of rows of weights, with their slices."""

from amaranth.hdl import Cat, Module, signed
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from ...formats.cell import CODE, PAIR, SINGLE
from ...formats.gates import GATES
from ...hierarchy import place
from ...stream.delay import delay
from ...systolic.slices import Accumulate

__all__ = ["CellGroup", "operand_layout"]

#: From so many weight words on they are in block RAM: in LUTs they would cost as much as the rest of the engine.
_BLOCK = 128


def operand_layout(config):
    """Operands that go from group to group.

    A chunk, whether it is the first of a sum, and the place of the weights of the next chunk.
    """
    return data.StructLayout(
        {
            "x": data.ArrayLayout(signed(CODE), config.parallel),
            "first": 1,
            "address": range(config.cells * config.places),
        }
    )


class CellGroup(wiring.Component):
    """Sums of products of some elements' gates, and their weights.

    ::

        i -+-> address --> weights --+
           |                         v
           +-> x ----------------> slices --> sums
           +-> a cycle later --> o

    Row ``r`` is gate ``r % 4`` of element ``r // 4``; lane ``l`` takes element ``l`` of each chunk. With two products a
    slice, rows ``2k`` and ``2k + 1`` share slice ``k`` of a lane: codes of a :class:`~...formats.pair.Pair`, as it
    stores them. Otherwise a weight word has 8 bits a row.

    Parameters
    ----------
    config : CellParameters

    Members
    -------
    i : operands; ``x`` and ``first`` of cycle t belong to ``address`` of cycle t - 1.
    o : the same, a cycle later.
    write, write_address, write_data : weights; an enable for each 128 bits of a word, or for the word.
    sums : of lane and slice; a chunk of cycle t is in that of cycle t + :attr:`latency`.
    """

    latency = Accumulate.latency

    def __init__(self, config):
        self.config = config
        layout = operand_layout(config)
        self.rows = GATES * config.parallel
        self.slices = self.rows // config.products
        self.width = 2 * PAIR.apart if config.products == 2 else SINGLE
        self.columns = max(config.word_bits // 128, 1)
        super().__init__(
            {
                "i": In(layout),
                "o": Out(layout),
                "write": In(self.columns),
                "write_address": In(range(config.cells * config.places)),
                "write_data": In(min(config.word_bits, 128)),
                "sums": Out(self.width).array(config.parallel, self.slices),
            }
        )

    @property
    def key(self):
        """What two of them must share to be one module."""
        config = self.config
        return config.parallel, config.products, config.places, config.cells

    def elaborate(self, platform):
        m = Module()
        config = self.config
        depth = config.cells * config.places
        style = "block" if depth >= _BLOCK else "distributed"
        m.submodules.weights = weights = memory.Memory(
            shape=config.word_bits, depth=depth, init=[], attrs={"ram_style": style}
        )
        write = weights.write_port(granularity=config.word_bits // self.columns)
        read = weights.read_port()
        m.d.comb += [
            read.addr.eq(self.i.address),
            write.addr.eq(self.write_address),
            write.data.eq(Cat(self.write_data for _ in range(self.columns))),
            write.en.eq(self.write),
        ]
        m.d.sync += self.o.eq(self.i)
        add = delay(m, ~self.i.first, 2, reset_less=False)
        for lane in range(config.parallel):
            for number in range(self.slices):
                word = read.data.word_select(lane * self.slices + number, 8 * config.products)
                a = PAIR.wide(word) if config.products == 2 else word.as_signed()
                unit = place(
                    m,
                    f"slice_{lane}_{number}",
                    Accumulate(a=len(a), b=CODE, width=self.width),
                    platform,
                    a=a,
                    b=self.i.x[lane],
                    add=add,
                )
                m.d.comb += self.sums[lane][number].eq(unit.p)
        return m
