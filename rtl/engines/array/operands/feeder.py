"""Row feeders: decode cached activations for a row of the array."""

from amaranth.hdl import Module, Mux, Signal, unsigned
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradloom.rtl.formats.images import LEVEL, SCALE
from gradloom.rtl.hierarchy import place
from gradloom.rtl.stream.delay import delay
from gradloom.rtl.units.decoder import RowDecoder

from ..parameters import FEEDER

__all__ = ["RowControl", "RowFeeder", "WORD_CODES"]

#: Codes in a bank word.
WORD_CODES = 32


def RowControl(config):
    """Control of a row in a cycle; row r has it r cycles after row 0.

    ``fill``: entry ``k`` of table ``fill_table`` becomes ``level`` times the scale; ``fresh``: the scale is another
    one, and there. ``read``: codes ``group`` of bank word ``word`` leave, decoded through ``table``. ``dense``: dense
    word ``address`` leaves; ``peek``: it is read, but does not leave for the array.
    """
    return data.StructLayout(
        {
            "fill": 1,
            "fresh": 1,
            "fill_table": 1,
            "k": 4,
            "level": LEVEL.shape,
            "read": 1,
            "table": 1,
            "word": ceil_log2(8 * config.blocks),
            "group": ceil_log2(WORD_CODES // config.panels),
            "dense": 1,
            "peek": 1,
            "address": ceil_log2(config.dense_depth),
        }
    )


class RowFeeder(wiring.Component):
    """Feeds a row with decoded codes or with dense activations.

    Decodes a sample's codes, ``panels`` a cycle, or reads its dense activations, one a cycle.

    A ``read`` may follow the last ``fill`` of its table by one cycle, and a ``fill`` the last ``read``:
    the bank's pipeline is as long as the multiplier's.

    Latency is 6 cycles from control to operand; throughput is one operand of each panel a cycle.

    Members
    -------
    control, control_o : this row's control, and the next row's.
    codes : ``In({valid, address, data})`` : bank words, 32 codes, the first in the high nibble of the lowest byte.
    scale : of the block whose table is filled, when ``fresh``.
    dense_write : ``In({valid, address, data})``
    window : element of the convolution window; it is passed on to all panels, a cycle later.
    x : operand of each panel; 0 when nothing was asked.
    dense : the dense word that was read, one cycle before it is at ``x``.
    """

    latency = FEEDER

    def __init__(self, config):
        self.config = config
        bank = ceil_log2(8 * config.blocks)
        dense = ceil_log2(config.dense_depth)
        super().__init__(
            {
                "control": In(RowControl(config)),
                "control_o": Out(RowControl(config)),
                "codes": In(data.StructLayout({"valid": 1, "address": bank, "data": 128})),
                "scale": In(SCALE.shape),
                "dense_write": In(data.StructLayout({"valid": 1, "address": dense, "data": config.activation.shape})),
                "window": In(config.activation.shape),
                "x": Out(config.activation.shape).array(config.panels),
                "dense": Out(config.activation.shape),
            }
        )

    @property
    def key(self):
        """Equal for the rows of a design, so that they are one module."""
        return self.config.panels, self.config.blocks, self.config.dense_depth

    def elaborate(self, platform):
        m = Module()
        config = self.config
        control = self.control
        panels = config.panels
        m.d.sync += self.control_o.eq(control)

        # Two halves; four words a block hold codes of 8 bits, of which a beat reads one nibble, then the other.
        style = {"ram_style": "distributed"} if config.bank_luts else {}
        m.submodules.bank = bank = memory.Memory(shape=unsigned(128), depth=8 * config.blocks, init=[], attrs=style)
        m.submodules.dense = dense = memory.Memory(shape=config.activation.shape, depth=config.dense_depth, init=[])
        for store, port in ((bank, self.codes), (dense, self.dense_write)):
            write = store.write_port()
            m.d.comb += [write.en.eq(port.valid), write.addr.eq(port.address), write.data.eq(port.data)]

        decoder = place(m, "decoder", RowDecoder(lanes=panels), platform)
        m.d.comb += [
            decoder.scale.eq(self.scale),
            decoder.mul.valid.eq(control.fill),
            decoder.mul.fresh.eq(control.fresh),
            decoder.mul.level.eq(control.level),
            decoder.mul.k.eq(control.k),
            decoder.mul.half.eq(control.fill_table),
        ]

        # Bank latch, bank register, codes of the group, and one more to be as late as the tables.
        bank_read = bank.read_port()
        word = Signal(128, reset_less=True)
        codes = Signal(4 * panels, reset_less=True)
        m.d.comb += [bank_read.en.eq(control.read), bank_read.addr.eq(control.word)]
        m.d.sync += [word.eq(bank_read.data), codes.eq(word.word_select(delay(m, control.group, 2), 4 * panels))]
        m.d.comb += [
            decoder.out.valid.eq(delay(m, control.read, 4, reset_less=False)),
            decoder.out.half.eq(delay(m, control.table, 4)),
            decoder.out.codes.eq(delay(m, codes, 1)),
        ]

        # A dense word is due with the decoded ones.
        dense_read = dense.read_port()
        m.d.comb += [
            dense_read.en.eq(delay(m, control.dense | control.peek, 3, reset_less=False)),
            dense_read.addr.eq(delay(m, control.address, 3)),
        ]
        m.d.sync += self.dense.eq(dense_read.data)
        use_dense = delay(m, control.dense, 5, reset_less=False)

        for panel in range(panels):
            m.d.sync += self.x[panel].eq(Mux(use_dense, self.dense, decoder.x[panel] | self.window))
        return m
