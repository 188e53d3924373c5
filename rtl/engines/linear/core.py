"""The array of the linear engine, with operands beside each row."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...formats.weights.linear import ACTIVATION, WEIGHT
from ...hierarchy import place
from ...stream.delay import delay
from ...systolic.pe import PE
from ...systolic.systolic import Row
from ..words import PRECISION

__all__ = ["RowCommand", "OperandWrite", "LaneWrite", "Bank", "LinearArray"]


def RowCommand(config):
    """Command of row 0; row r executes it r cycles later.

    ``load``: its weight for column 0 is on its bus 2 cycles later, that for column c c cycles after it; the
    adapter column's is the word at ``lane``. ``use``: the operand at ``x`` enters column 0 2 cycles later, the
    first of a tile with ``swap``.
    """
    return data.StructLayout(
        {"load": 1, "swap": 1, "use": 1, "x": ceil_log2(config.depth), "lane": ceil_log2(config.lane_depth)}
    )


#: What the PEs of a row do.
RowTag = data.StructLayout({"load": 1, "swap": 1, "use": 1})


def OperandWrite(config):
    """A beat of operands for the rows of ``part``.

    ``counts``: it completes a word for which an early command waits.
    """
    return data.StructLayout(
        {
            "valid": 1,
            "counts": 1,
            "address": ceil_log2(config.depth),
            "part": 3,
            "data": data.ArrayLayout(signed(ACTIVATION.width), config.beat_words),
        }
    )


def LaneWrite(config):
    """A beat of adapter words."""
    return data.StructLayout(
        {
            "valid": 1,
            "address": ceil_log2(config.lane_depth),
            "part": 3,
            "data": data.ArrayLayout(signed(WEIGHT.width), config.beat_words),
        }
    )


class Bank(wiring.Component):
    """Operand memory of :meth:`rows` neighbouring rows.

    The operands are one memory; each row has adapter memories of its own.

    A beat of operands has a word of all these rows, and all are read together: words of 24 bits fill blocks of 18 or 36
    bits when they lie side by side. Words that a row needs later wait in registers.

    Members
    -------
    i, o : command of the first row, and the same :meth:`rows` cycles later for the row below.
    x, tag : of each row operand and what the PEs do, 2 cycles after the row's command.
    lane : word for the adapter column, 2 cycles after its address.
    operand, lane_word : words that are written when ``operand_enable``, ``lane_enable``.
    lane_address : also of the adapter words that ``word`` holds 2 cycles later, unless ``lane_enable``.
    """

    def __init__(self, config):
        self.config = config
        rows = self.rows(config)
        super().__init__(
            {
                "i": In(RowCommand(config)),
                "o": Out(RowCommand(config)),
                "x": Out(data.ArrayLayout(signed(ACTIVATION.width), rows)),
                "tag": Out(data.ArrayLayout(RowTag, rows)),
                "lane": Out(data.ArrayLayout(signed(WEIGHT.width), rows)),
                "operand_enable": In(1),
                "operand_address": In(ceil_log2(config.depth)),
                "operand": In(data.ArrayLayout(signed(ACTIVATION.width), rows)),
                "lane_enable": In(1),
                "lane_address": In(ceil_log2(config.lane_depth)),
                "lane_word": In(data.ArrayLayout(signed(WEIGHT.width), rows)),
                "word": Out(data.ArrayLayout(signed(WEIGHT.width), rows)),
            }
        )

    @staticmethod
    def rows(config):
        """Rows of a bank: four, or as many as a beat has words."""
        return min(4, config.beat_words)

    def elaborate(self, platform):
        m = Module()
        config = self.config
        attrs = {"ram_style": "ultra"} if config.ultra else {}
        m.submodules.operands = operands = memory.Memory(
            shape=self.operand.shape(), depth=config.depth, init=[], attrs=attrs
        )
        write, read = operands.write_port(), operands.read_port()
        m.d.comb += [
            write.en.eq(self.operand_enable),
            write.addr.eq(self.operand_address),
            write.data.eq(self.operand),
            read.addr.eq(self.i.x),
        ]
        command = self.i
        for row in range(self.rows(config)):
            m.submodules[f"lanes_{row}"] = lanes = memory.Memory(
                shape=signed(WEIGHT.width), depth=config.lane_depth, init=[]
            )
            # One address for both, so that the pair is one port of a block RAM.
            fill, peek, feed = lanes.write_port(), lanes.read_port(), lanes.read_port()
            m.d.comb += [
                fill.en.eq(self.lane_enable),
                fill.addr.eq(self.lane_address),
                fill.data.eq(self.lane_word[row]),
                peek.addr.eq(self.lane_address),
                feed.addr.eq(command.lane),
            ]
            tag = Signal(RowTag)
            m.d.comb += [tag.load.eq(command.load), tag.swap.eq(command.swap), tag.use.eq(command.use)]
            m.d.comb += [
                # Registers, which are plenty: shift registers would take LUTs.
                self.x[row].eq(delay(m, read.data[row], 1 + row, reset_less=row < 2)),
                self.word[row].eq(delay(m, peek.data, 1)),
                self.tag[row].eq(delay(m, tag, 2, reset_less=False)),
                self.lane[row].eq(delay(m, feed.data, 1)),
            ]
            below = Signal.like(self.i)
            m.d.sync += below.eq(command)
            command = below
        m.d.comb += self.o.eq(command)
        return m


class LinearArray(wiring.Component):
    """``edge`` rows of ``columns`` PEs, one more column for the adapter.

    The rows' memories are part of it.

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
        super().__init__(
            {
                "command": In(RowCommand(config)),
                "w": In(data.ArrayLayout(signed(WEIGHT.width), config.edge)),
                "p": Out(signed(PRECISION.sum)).array(config.columns + 1),
                "operand_write": In(OperandWrite(config)),
                "lane_write": In(LaneWrite(config)),
                "peek": In(data.StructLayout({"row": range(config.edge), "address": ceil_log2(config.lane_depth)})),
                "word": Out(signed(WEIGHT.width)),
            }
        )

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
        # The adapter's column is behind all others.
        command, above = Signal.like(self.command), None
        m.d.comb += [command.eq(self.command), command.lane.eq(delay(m, self.command.lane, config.columns))]
        words = []
        for first in range(0, config.edge, Bank.rows(config)):
            bank = place(m, f"bank_{first // Bank.rows(config)}", Bank(config), platform)
            part, word = divmod(first, parts)
            m.d.comb += [
                bank.i.eq(command),
                bank.operand_enable.eq(operand.valid & (operand.part == part)),
                bank.operand_address.eq(operand.address),
                bank.lane_enable.eq(lane.valid & (lane.part == part)),
                bank.lane_address.eq(Mux(lane.valid, lane.address, peek.address)),
            ]
            command = bank.o
            for index in range(Bank.rows(config)):
                m.d.comb += [
                    bank.operand[index].eq(operand.data[word + index]),
                    bank.lane_word[index].eq(lane.data[word + index]),
                ]
                above = self._row(m, platform, first + index, bank.x[index], bank.tag[index], bank.lane[index], above)
                words.append(bank.word[index])
        m.d.comb += [ours.eq(theirs) for ours, theirs in zip(self.p, above)]

        # One word of all, in two steps.
        at_bank = delay(m, peek.row, 2)
        groups = []
        for low in range(0, config.edge, 4):
            chosen = Signal(signed(WEIGHT.width), reset_less=True)
            m.d.sync += chosen.eq(Cat(*words[low : low + 4]).word_select(at_bank[:2], WEIGHT.width).as_signed())
            groups.append(chosen)
        m.d.comb += self.word.eq(Cat(*groups).word_select(delay(m, at_bank[2:], 1), WEIGHT.width).as_signed())
        return m

    def _row(self, m, platform, index, x, tag, lane, above):
        """PEs of a row; its sums."""
        columns = self.config.columns
        row = place(m, f"row_{index}", Row(panels=1, columns=columns + 1, precision=PRECISION), platform)
        # Shift registers take a LUT for up to 32 cycles: a few cycles, or a few more than that, are in registers.
        few = (1 + index) % 32
        few = few if few <= 8 else 0
        bus = delay(m, delay(m, self.w[index], few, reset_less=False), 1 + index - few)
        m.d.comb += [
            row.x[0].eq(x),
            row.tag.load.eq(tag.load),
            row.tag.swap.eq(tag.swap),
            row.tag.use_m.eq(tag.use),
            row.tag.from_above.eq(1),
            row.tag.from_self.eq(0),
            *(row.w_i[column].eq(bus) for column in range(columns)),
            row.w_i[columns].eq(lane),
        ]
        if above is not None:
            m.d.comb += [ours.eq(theirs) for ours, theirs in zip(row.p_i, above)]
        return row.p_o
