"""NF4 decoders: a stream unit, and the core for a row of the array."""

from amaranth.hdl import Cat, Module, Signal, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..formats.codebook import NF4
from ..formats.fixed import Fixed
from ..formats.rounding import requantize_hdl

__all__ = ["DECODED", "SCALE", "NF4Decoder", "RowDecoder", "nibbles", "TableWrite"]

DECODED = Fixed(width=18, frac=10)
SCALE = Fixed(width=16, frac=8, is_signed=False)
LEVEL_FRAC = 7


def nibbles(packed):
    """Codes of packed bytes in element order.

    The first element is the high nibble of the lowest byte.
    """
    return [packed.word_select(n ^ 1, 4) for n in range(len(packed) // 4)]


class TableWrite(wiring.Signature):
    """Write port of a run-time table.

    ``en`` writes ``data`` at ``addr`` at the clock edge.

    Members
    -------
    en : ``Out(1)``
    addr : ``Out(4)``
    data : ``Out(shape)``
    """

    def __init__(self, shape):
        super().__init__({"en": Out(1), "addr": Out(4), "data": Out(shape)})


def check_decoded(fmt):
    if fmt.frac > LEVEL_FRAC + SCALE.frac:
        raise ValueError(
            f"fmt.frac={fmt.frac}: a decoded word has at most {LEVEL_FRAC + SCALE.frac} "
            f"fraction bits, those of level * scale"
        )


class NF4Decoder(wiring.Component):
    """Decodes 4-bit codes to fixed-point words, ``lanes`` a cycle.

    A word is ``level * scale``, rounded to nearest even and saturated.

    Latency is 4 cycles, throughput one beat a cycle; ``i.ready`` depends on ``o.ready``
    combinationally. One DSP slice a lane.

    Parameters
    ----------
    lanes : int
        Codes in a beat, at least 1.
    book : :class:`Codebook`
        What the table holds after reset.
    fmt : :class:`Fixed`
        Format of a decoded word; at most 15 fraction bits.

    Members
    -------
    i : ``In(stream)`` of ``{codes: 4 bit x lanes, scale: 16, last: 1}``
        Lane 0 is the first element. ``scale`` is in units of 2**-8 and holds for the beat.
    o : ``Out(stream)`` of ``{x: fmt x lanes, last: 1}``
    table : ``In(TableWrite(signed(9)))``
        Rewrites a level, in units of 2**-7. Beats accepted in later cycles see it.
    """

    latency = 4

    def __init__(self, *, lanes=1, book=NF4, fmt=DECODED):
        if lanes < 1:
            raise ValueError(f"lanes={lanes}: must be at least 1")
        check_decoded(fmt)
        self.lanes = lanes
        self.book = book
        self.fmt = fmt
        super().__init__(
            {
                "i": In(
                    stream.Signature(
                        data.StructLayout({"codes": data.ArrayLayout(4, lanes), "scale": SCALE.shape, "last": 1})
                    )
                ),
                "o": Out(stream.Signature(data.StructLayout({"x": data.ArrayLayout(fmt.shape, lanes), "last": 1}))),
                "table": In(TableWrite(signed(LEVEL_FRAC + 2))),
            }
        )

    def elaborate(self, platform):
        m = Module()

        levels = [int(v) for v in self.book.level_table(LEVEL_FRAC)]
        m.submodules.levels = table = Memory(shape=self.table.data.shape(), depth=16, init=levels)
        port = table.write_port()
        m.d.comb += [port.en.eq(self.table.en), port.addr.eq(self.table.addr), port.data.eq(self.table.data)]

        step = Signal()
        m.d.comb += [step.eq(~self.o.valid | self.o.ready), self.i.ready.eq(step)]

        valid = Signal(self.latency)
        last = Signal(self.latency)
        scale = Signal(SCALE.shape)
        m.d.comb += [self.o.valid.eq(valid[-1]), self.o.p.last.eq(last[-1])]
        with m.If(step):
            m.d.sync += [
                valid.eq(Cat(self.i.valid, valid)),
                last.eq(Cat(self.i.p.last, last)),
                scale.eq(self.i.p.scale),
            ]
        for lane in range(self.lanes):
            read = table.read_port(domain="comb")
            level = Signal(self.table.data.shape(), name=f"level_{lane}")
            product = Signal(signed(LEVEL_FRAC + 2 + SCALE.width), name=f"product_{lane}")
            held = Signal.like(product, name=f"held_{lane}")
            m.d.comb += read.addr.eq(self.i.p.codes[lane])
            with m.If(step):
                m.d.sync += [
                    level.eq(read.data),
                    product.eq(level * scale),
                    # A second register behind the multiplier, which the DSP slice has anyway.
                    held.eq(product),
                    self.o.p.x[lane].eq(requantize_hdl(self.fmt, held, LEVEL_FRAC + SCALE.frac)[0]),
                ]
        return m


class RowDecoder(wiring.Component):
    """Decodes one array row's codes, ``lanes`` a cycle.

    It reads a double-buffered table of scaled levels.

    No handshake: micro-ops come from outside at any cycle, ``mul`` and ``out`` independently, and
    every latency is fixed.

    - A ``mul`` op in cycle t makes ``table[half][k] = round_even(level * scale >> 5)``, saturated to
      18 bits. ``out`` ops see it from cycle ``t + mul_latency`` on; one a cycle can be given.
      ``scale`` must be there in the cycle of an op that is ``fresh``, and is kept for those that are not.
    - An ``out`` op in cycle t gives ``x`` in cycle ``t + out_latency`` (1), with ``valid``.
      ``x`` is 0 in cycles without.

    The table knows nothing of NF4: any 16 levels, and any meaning of a half.

    Parameters
    ----------
    lanes : int
        Codes decoded in a cycle: 2, 4 or another even number.
    fmt : :class:`Fixed`
        Format of a decoded word; at most 15 fraction bits.

    Members
    -------
    mul : ``In`` struct ``{valid: 1, fresh: 1, level: signed(9), k: 4, half: 1}``
    scale : ``In(16)``
        Units of 2**-8.
    out : ``In`` struct ``{valid: 1, half: 1, codes: 4 * lanes}``
        Packed codes: the first element is the high nibble of the lowest byte.
    x : ``Out`` array of ``lanes`` words of ``fmt``, the first element in lane 0
    valid : ``Out(1)``
    """

    mul_latency = 5
    out_latency = 1

    def __init__(self, *, lanes=4, fmt=DECODED):
        if lanes < 2 or lanes % 2:
            raise ValueError(f"lanes={lanes}: must be even and at least 2, codes come in bytes")
        check_decoded(fmt)
        self.lanes = lanes
        self.fmt = fmt
        super().__init__(
            {
                "mul": In(
                    data.StructLayout({"valid": 1, "fresh": 1, "level": signed(LEVEL_FRAC + 2), "k": 4, "half": 1})
                ),
                "scale": In(SCALE.shape),
                "out": In(data.StructLayout({"valid": 1, "half": 1, "codes": unsigned(4 * lanes)})),
                "x": Out(data.ArrayLayout(fmt.shape, lanes)),
                "valid": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.table = table = Memory(shape=self.fmt.shape, depth=32, init=[])
        write = table.write_port()

        level = Signal.like(self.mul.level)
        scale = Signal.like(self.scale)
        product = Signal(signed(LEVEL_FRAC + 2 + SCALE.width))
        held = Signal.like(product)
        word = Signal(self.fmt.shape)
        # Where each op in flight goes; the table's own write is the last of its cycles.
        depth = self.mul_latency - 1
        wen = Signal(depth)
        addr = [Signal(5, name=f"addr_{n}") for n in range(depth)]
        m.d.sync += [
            level.eq(self.mul.level),
            product.eq(level * scale),
            held.eq(product),
            word.eq(requantize_hdl(self.fmt, held, LEVEL_FRAC + SCALE.frac)[0]),
            wen.eq(Cat(self.mul.valid, wen)),
            addr[0].eq(Cat(self.mul.k, self.mul.half)),
            *(new.eq(old) for new, old in zip(addr[1:], addr)),
            self.valid.eq(self.out.valid),
        ]
        with m.If(self.mul.fresh):
            m.d.sync += scale.eq(self.scale)
        m.d.comb += [write.en.eq(wen[-1]), write.addr.eq(addr[-1]), write.data.eq(word)]

        for lane, code in enumerate(nibbles(self.out.codes)):
            read = table.read_port(domain="comb")
            m.d.comb += read.addr.eq(Cat(code, self.out.half))
            m.d.sync += self.x[lane].eq(0)
            with m.If(self.out.valid):
                m.d.sync += self.x[lane].eq(read.data)
        return m
