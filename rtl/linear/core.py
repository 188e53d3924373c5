"""The array of a linear layer: operands and adapter words in memory beside each row, weights from a bus a row."""
from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ..array.pe import PE
from ..array.systolic import Row
from ..formats.linear import ACTIVATION, WEIGHT
from ..hierarchy import place
from ..stream.delay import delay
from .words import PRECISION

__all__ = ["RowCommand", "OperandWrite", "LaneWrite", "Bank", "LinearArray"]


def RowCommand(config):
    """What row 0 does in a cycle, and row r does r cycles later.

    ``load``: its weight for column 0 is on its bus 2 cycles later, that for column c c cycles after it; the
    adapter column's is the word at ``lane``. ``use``: the operand at ``x`` enters column 0 2 cycles later, the
    first of a tile with ``swap``.
    """
    return data.StructLayout({
        "load": 1, "swap": 1, "use": 1,
        "x": ceil_log2(config.depth), "lane": ceil_log2(config.lane_depth)})


def OperandWrite(config):
    """A beat of operands: ``part`` says which rows it is for, ``counts`` that it completes a word for which an early
    command waits."""
    return data.StructLayout({
        "valid": 1, "counts": 1, "address": ceil_log2(config.depth), "part": 3,
        "data": data.ArrayLayout(signed(ACTIVATION.width), config.beat_words)})


def LaneWrite(config):
    """A beat of adapter words."""
    return data.StructLayout({
        "valid": 1, "address": ceil_log2(config.lane_depth), "part": 3,
        "data": data.ArrayLayout(signed(WEIGHT.width), config.beat_words)})


class Bank(wiring.Component):
    """Operand memory and adapter memory of a row.

    Members
    -------
    i, o : command, and the same a cycle later for the row below.
    x, tag : operand and what the PEs do, 2 cycles after the command.
    lane : word for the adapter column, ``columns`` cycles later still.
    operand_write, lane_write : beats that this row has a word of when ``operand_enable``, ``lane_enable``.
    peek : address of an adapter word, unless ``lane_write.valid``; ``word`` holds it 2 cycles later.
    """

    def __init__(self, config):
        self.config = config
        super().__init__({
            "i": In(RowCommand(config)), "o": Out(RowCommand(config)),
            "x": Out(signed(ACTIVATION.width)),
            "tag": Out(data.StructLayout({"load": 1, "swap": 1, "use": 1})),
            "lane": Out(signed(WEIGHT.width)),
            "operand_enable": In(1), "operand_address": In(ceil_log2(config.depth)),
            "operand": In(signed(ACTIVATION.width)),
            "lane_enable": In(1), "lane_address": In(ceil_log2(config.lane_depth)),
            "lane_word": In(signed(WEIGHT.width)),
            "word": Out(signed(WEIGHT.width)),
        })

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.operands = operands = memory.Memory(
            shape=signed(ACTIVATION.width), depth=config.depth, init=[])
        m.submodules.lanes = lanes = memory.Memory(shape=signed(WEIGHT.width), depth=config.lane_depth, init=[])
        write, read = operands.write_port(), operands.read_port()
        # One address for both, so that the pair is one port of a block RAM.
        fill, peek, feed = lanes.write_port(), lanes.read_port(), lanes.read_port()
        m.d.comb += [
            write.en.eq(self.operand_enable), write.addr.eq(self.operand_address), write.data.eq(self.operand),
            fill.en.eq(self.lane_enable), fill.addr.eq(self.lane_address), fill.data.eq(self.lane_word),
            peek.addr.eq(self.lane_address), read.addr.eq(self.i.x), feed.addr.eq(self.i.lane),
        ]
        x, word, lane = (delay(m, value, 1) for value in (read.data, peek.data, feed.data))
        tag = Signal.like(self.tag)
        m.d.comb += [tag.load.eq(self.i.load), tag.swap.eq(self.i.swap), tag.use.eq(self.i.use)]
        m.d.sync += self.o.eq(self.i)
        m.d.comb += [
            self.x.eq(x), self.word.eq(word), self.tag.eq(delay(m, tag, 2, reset_less=False)),
            self.lane.eq(delay(m, lane, config.columns)),
        ]
        return m


class LinearArray(wiring.Component):
    """``edge`` rows of ``columns`` PEs and one more for the adapter, with their memories.

    Weight-stationary. Sums leave column c :meth:`latency` + c cycles after their operand's command.

    Members
    -------
    command : of row 0.
    w : weights that leave the tile buffer for one column, in the cycle after ``command.load`` for column 0 and so on.
    p : sums of each column, the adapter's last.
    operand_write, lane_write : beats into the memories.
    peek : ``row`` and ``address`` of an adapter word; ``word`` holds it :attr:`peek_latency` cycles later. Not in a
        cycle with ``lane_write.valid``.
    """

    #: Cycles from the weight bus to row 0, so that ``w`` comes a cycle after ``load``.
    peek_latency = 4

    def __init__(self, config):
        self.config = config
        super().__init__({
            "command": In(RowCommand(config)),
            "w": In(data.ArrayLayout(signed(WEIGHT.width), config.edge)),
            "p": Out(signed(PRECISION.sum)).array(config.columns + 1),
            "operand_write": In(OperandWrite(config)), "lane_write": In(LaneWrite(config)),
            "peek": In(data.StructLayout({"row": range(config.edge), "address": ceil_log2(config.lane_depth)})),
            "word": Out(signed(WEIGHT.width)),
        })

    @staticmethod
    def latency(config):
        """Cycles from a command to the sum of column 0."""
        return 2 + PE.latency + config.edge - 1

    def elaborate(self, platform):
        m = Module()
        config = self.config
        parts = config.beat_words
        # Beats go to all rows: a register first.
        operand, lane, peek = Signal.like(self.operand_write), Signal.like(self.lane_write), Signal.like(self.peek)
        m.d.sync += [operand.eq(self.operand_write), lane.eq(self.lane_write), peek.eq(self.peek)]
        command, above = self.command, None
        words = []
        for index in range(config.edge):
            bank = place(m, f"bank_{index}", Bank(config), platform)
            row = place(m, f"row_{index}", Row(panels=1, columns=config.columns + 1, precision=PRECISION), platform)
            part, word = divmod(index, parts)
            bus = delay(m, self.w[index], 1 + index)
            m.d.comb += [
                bank.i.eq(command),
                bank.operand_enable.eq(operand.valid & (operand.part == part)),
                bank.operand_address.eq(operand.address), bank.operand.eq(operand.data[word]),
                bank.lane_enable.eq(lane.valid & (lane.part == part)),
                bank.lane_address.eq(Mux(lane.valid, lane.address, peek.address)), bank.lane_word.eq(lane.data[word]),
                row.x[0].eq(bank.x),
                row.tag.load.eq(bank.tag.load), row.tag.swap.eq(bank.tag.swap), row.tag.use_m.eq(bank.tag.use),
                row.tag.from_above.eq(1), row.tag.from_self.eq(0),
                *(row.w_i[column].eq(bus) for column in range(config.columns)),
                row.w_i[config.columns].eq(bank.lane),
            ]
            if above is not None:
                m.d.comb += [ours.eq(theirs) for ours, theirs in zip(row.p_i, above)]
            command, above = bank.o, row.p_o
            words.append(bank.word)
        m.d.comb += [ours.eq(theirs) for ours, theirs in zip(self.p, above)]

        # One word of all, in two steps.
        at_bank = delay(m, peek.row, 2)
        groups = []
        for low in range(0, config.edge, 8):
            chosen = Signal(signed(WEIGHT.width), reset_less=True)
            m.d.sync += chosen.eq(Cat(*words[low:low + 8]).word_select(at_bank[:3], WEIGHT.width).as_signed())
            groups.append(chosen)
        m.d.comb += self.word.eq(
            Cat(*groups).word_select(delay(m, at_bank[3:], 1), WEIGHT.width).as_signed())
        return m
