"""Tables of a weight tensor: second-level scales, offset, codebook."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from gradloom.rtl.formats.weights.linear import LEVEL, SCALE, SCALE_MAX
from gradloom.rtl.stream.delay import delay

from ..commands import TABLE_ARG

__all__ = ["TableBeat", "TableLoader"]


def TableBeat(config):
    """A beat of tables; ``index`` counts beats in its command."""
    return data.StructLayout({"data": config.data_bits, "index": 12, "arg": TABLE_ARG})


class TableLoader(wiring.Component):
    """Takes a weight tensor's tables apart: a word a cycle.

    Second-level scales and offset are IEEE single precision; a word with exponent e becomes the nearest integer
    (half away from zero) of its mantissa times ``2**(e - bias)``, so that ``bias = 150 - frac`` for ``frac``
    fraction bits. What is beyond +-SCALE_MAX is clipped to it.

    Members
    -------
    i : stream of :func:`TableBeat`.
    scale : a word of the table of second-level scales. level : a word of the codebook.
    offset : of the tensor.
    busy : a table is not complete: no tile may begin.
    saturated : a word was clipped.
    """

    def __init__(self, config):
        self.config = config
        super().__init__(
            {
                "i": In(stream.Signature(TableBeat(config))),
                "busy": Out(1),
                "scale": Out(
                    data.StructLayout({"valid": 1, "index": ceil_log2(config.groups), "value": signed(SCALE.width)})
                ),
                "level": Out(data.StructLayout({"valid": 1, "index": 4, "value": signed(LEVEL.width)})),
                "offset": Out(signed(SCALE.width)),
                "saturated": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        words = self.config.beat_words
        beat = Signal(self.i.p.shape())
        left = Signal(range(words + 1))
        index = Signal(17)
        m.d.comb += self.i.ready.eq(left == 0)
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [beat.eq(self.i.p), left.eq(words), index.eq(self.i.p.index * words)]
        with m.Elif(left != 0):
            m.d.sync += [beat.data.eq(beat.data >> 32), left.eq(left - 1), index.eq(index + 1)]

        word = beat.data[:32]
        context = data.StructLayout({"valid": 1, "index": 17, "arg": TABLE_ARG, "word": 32})
        first = Signal(context)
        mantissa, far = Signal(24, reset_less=True), Signal(reset_less=True)
        distance = Signal(range(64), reset_less=True)
        excess = Signal(signed(11))
        m.d.comb += excess.eq(beat.arg.bias - word[23:31])
        m.d.sync += [
            first.valid.eq(left != 0),
            first.index.eq(index),
            first.arg.eq(beat.arg),
            first.word.eq(word),
            mantissa.eq(Mux(word[23:31] == 0, 0, Cat(word[:23], 1))),
            # To the left: a value of 2**24 or more.
            far.eq(excess < 0),
            distance.eq(Mux(excess > 32, 32, excess[:6])),
        ]
        second = delay(m, first, 1, reset_less=False)
        shifted, far_then = Signal(25, reset_less=True), Signal(reset_less=True)
        m.d.sync += [shifted.eq(Cat(0, mantissa) >> distance), far_then.eq(far & (mantissa != 0))]
        third = delay(m, second, 1, reset_less=False)
        magnitude = Signal(25, reset_less=True)
        m.d.sync += magnitude.eq(Mux(far_then, SCALE_MAX + 1, (shifted + 1) >> 1))
        over = magnitude > SCALE_MAX
        clipped = Signal(signed(SCALE.width), reset_less=True)
        fourth = delay(m, third, 1, reset_less=False)
        limited = Mux(over, SCALE_MAX, magnitude)[: SCALE.width - 1]
        m.d.sync += clipped.eq(Mux(third.word[31], -limited, limited))

        is_scale = fourth.valid & ~fourth.arg.levels & (fourth.index <= fourth.arg.groups)
        m.d.sync += self.saturated.eq(third.valid & ~third.arg.levels & (third.index <= third.arg.groups) & over)
        m.d.comb += [
            self.scale.valid.eq(is_scale & (fourth.index < fourth.arg.groups)),
            self.scale.index.eq(fourth.index),
            self.scale.value.eq(clipped),
            self.level.valid.eq(fourth.valid & fourth.arg.levels & (fourth.index < 16)),
            self.level.index.eq(fourth.index),
            self.level.value.eq(fourth.word[: LEVEL.width].as_signed()),
        ]
        # Computed a cycle ahead: a word is in one of the stages.
        m.d.sync += self.busy.eq((self.i.valid & self.i.ready) | (left != 0) | first.valid | second.valid | third.valid)
        with m.If(is_scale & (fourth.index == fourth.arg.groups)):
            m.d.sync += self.offset.eq(clipped)
        return m
