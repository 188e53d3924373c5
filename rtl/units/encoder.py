"""Encoder of NF4 and INT8: fixed-point words to blocks of codes."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ..formats.codebook import NF4
from ..formats.fixed import Fixed
from ..stream.queue import stepped
from .decoder import SCALE, TableWrite

__all__ = ["NF4_THRESHOLDS", "ACTIVATION", "THRESHOLD_FRAC", "NF4Encoder", "block_layout"]

ACTIVATION = Fixed(width=24, frac=16)
THRESHOLD_FRAC = 16
#: Writes of the thresholds between codes of NF4.
NF4_THRESHOLDS = TableWrite(NF4.threshold_shape(THRESHOLD_FRAC))
ENTRIES = 15  # thresholds of 16 levels
SLOTS = 4  # blocks between their first element and their payload


def block_layout(block, *, wide=False):
    """A quantised block: codes, their scale, and ``last``.

    ``codes`` as packed bytes (first element in the high nibble of the lowest byte), ``scale`` in units of 2**-8,
    ``last`` on the last block of its tensor. ``wide``: codes may have 8 bits, of which ``codes`` are the high nibbles
    and ``low`` the low ones, packed alike.
    """
    more = {"low": unsigned(4 * block), "wide": 1} if wide else {}
    return data.StructLayout({"codes": unsigned(4 * block), "scale": SCALE.shape, "last": 1} | more)


class NF4Encoder(wiring.Component):
    """Quantises a stream of words in blocks.

    A block becomes 4-bit codes and a scale.

    The scale is the block's absmax rounded up to a multiple of 2**-8, as u16. The code of ``x`` is
    how many thresholds ``t`` have ``t * scale < x``, exactly, in integers; a block of zeros has scale 0
    and the codes of 0.0. ``i.p.last`` ends a tensor: a short block is filled with elements 0, which
    takes as many cycles as a full one. A tensor that is no multiple of ``lanes`` is filled with
    zeros by its source.

    Throughput is one beat a cycle for full blocks, as long as a waiting payload is taken at once.
    The first payload comes ``latency`` cycles after its block's first beat was taken. ``i.ready``
    comes from registers.

    With ``wide``, a tensor may ask for INT8 codes. Of a block with absmax ``a``, rounded up as above, the scale is
    ``a + (a >> 8) + 1``, and the code of ``x`` is ``round(128 * x / scale) + 128``, ties down and at most 255, by a
    division in eight stages; a short block is filled with 128.

    Parameters
    ----------
    lanes : int
        Elements in a beat: a divisor of ``block`` and at most ``block / 16``, since one multiplier
        scales the 15 thresholds within a block's time.
    block : int
        Elements that share a scale; a multiple of 16.
    book : :class:`Codebook`
        What the table holds after reset.
    fmt : :class:`Fixed`
        Format of an element. ``width - frac <= 8``: its absmax fits the scale; ``frac`` in 9..24.
    wide : bool
        Knows INT8 codes too; ``fmt.frac`` is 16.

    Members
    -------
    i : ``In(stream)`` of ``{x: fmt x lanes, last: 1}``, with ``wide`` also ``wide: 1``, equal in a tensor
        Lane 0 is the first element.
    o : ``Out(stream)`` of :func:`block_layout`
    table : ``In(TableWrite(signed(18)))``
        Rewrites a threshold, in units of 2**-16, 15 ascending entries; unused ones hold the largest
        number. To be used between tensors, when all payloads have been taken.
    """

    def __init__(self, *, lanes=1, block=64, book=NF4, fmt=ACTIVATION, wide=False):
        if block < 16 or block % 16:
            raise ValueError(f"block={block}: must be a positive multiple of 16")
        if lanes < 1 or block % lanes or lanes * 16 > block:
            raise ValueError(f"lanes={lanes}: must divide block={block} and be in 1..{block // 16}")
        if fmt.width - fmt.frac > SCALE.width - SCALE.frac or not fmt.is_signed:
            raise ValueError(
                f"fmt={fmt}: must be signed with width - frac <= {SCALE.width - SCALE.frac}, "
                f"else its absmax does not fit the scale"
            )
        if not SCALE.frac < fmt.frac <= THRESHOLD_FRAC + SCALE.frac:
            raise ValueError(f"fmt.frac={fmt.frac}: must be in {SCALE.frac + 1}..{THRESHOLD_FRAC + SCALE.frac}")
        if wide and fmt.frac != THRESHOLD_FRAC:
            raise ValueError(f"fmt.frac={fmt.frac}: INT8 codes are of elements with {THRESHOLD_FRAC} fraction bits")
        self.wide = wide
        self.lanes = lanes
        self.block = block
        self.book = book
        self.fmt = fmt
        super().__init__(
            {
                "i": In(
                    stream.Signature(
                        data.StructLayout(
                            {"x": data.ArrayLayout(fmt.shape, lanes), "last": 1} | ({"wide": 1} if wide else {})
                        )
                    )
                ),
                "o": Out(stream.Signature(block_layout(block, wide=wide))),
                "table": In(TableWrite(book.threshold_shape(THRESHOLD_FRAC))),
            }
        )

    @property
    def beats(self):
        """Beats of a block."""
        return self.block // self.lanes

    @property
    def tree_stages(self):
        """Register stages that find the largest of the lanes of a beat."""
        return (self.lanes - 1).bit_length()

    @property
    def latency(self):
        """Cycles from a block's first beat to its payload.

        They are two times the block, and its thresholds between.

        INT8 codes take 5 more.
        """
        return 2 * self.beats + self.tree_stages + ENTRIES + 12

    def elaborate(self, platform):
        m = Module()

        # A block passes three steps: it is buffered while its largest element is found; its 15
        # thresholds are multiplied with the scale; it is read back and each element searched among them.
        # Steps of successive blocks overlap, so what they share is kept per slot, block number mod 4.
        scales = self._scales(m)
        put = self._buffer(m)
        scaled = self._absmax(m, put, scales)
        ready, limits = self._thresholds(m, scaled, scales)
        self._search(m, ready, limits, scales)
        return m

    def _scales(self, m):
        """Scale and ``last`` of the blocks under way."""
        m.submodules.scales = scales = Memory(
            shape=data.StructLayout({"scale": SCALE.shape, "last": 1, "wide": 1}), depth=SLOTS, init=[]
        )
        return scales

    def _buffer(self, m):
        """Takes beats, fills short blocks, and stores them in the buffer.

        Returns a description of the stored beat.
        """
        depth = 1 << (self.beats + 32 - 1).bit_length()
        m.submodules.buffer = self._memory = Memory(shape=unsigned(self.lanes * self.fmt.width), depth=depth, init=[])
        write = self._memory.write_port()

        # Beats in the buffer, and blocks from their first beat to their payload; what is read back or taken leaves.
        # A beat that is read back leaves `level` a cycle late, so that the unit behind, whose `o.ready` lets the beat
        # be read, reaches no carry chain.
        level, slots = Signal(range(depth + 1)), Signal(range(SLOTS + 1))
        self._read, self._taken, late = Signal(), Signal(), Signal()
        beat = Signal(range(self.beats))
        fill = Signal()
        room = Signal(init=1)
        end = Signal()
        put = {
            "en": Signal(),
            "x": Signal.like(self.i.p.x),
            "end": end,
            "first": Signal(),
            "last": Signal(),
            "wide": Signal(),
        }
        m.d.comb += [
            self.i.ready.eq(room & ~fill),
            put["en"].eq(room & (fill | self.i.valid)),
            put["first"].eq(beat == 0),
            put["last"].eq(fill | self.i.p.last),
            end.eq(beat == self.beats - 1),
            write.en.eq(put["en"]),
            write.data.eq(put["x"]),
        ]
        with m.If(~fill):
            m.d.comb += put["x"].eq(self.i.p.x)
        if self.wide:
            wide = Signal()
            m.d.sync += wide.eq(put["wide"])
            m.d.comb += put["wide"].eq(Mux(fill, wide, self.i.p.wide))
        with m.If(put["en"]):
            m.d.sync += [write.addr.eq(write.addr + 1), beat.eq(Mux(end, 0, beat + 1)), fill.eq(put["last"] & ~end)]
        m.d.sync += [
            late.eq(self._read),
            level.eq(stepped(level, put["en"], late)),
            slots.eq(stepped(slots, put["en"] & put["first"], self._taken)),
        ]
        # A register, so that no path runs through `i.ready` from these counters to the unit before: whether the next
        # cycle finds the buffer below its depth, and a slot for a block's first beat. A beat that leaves late counts in
        # `level` still, which does not pass the depth: nothing is put into a full buffer, also while it is read.
        full = Mux(late, level[-1] & put["en"], level[-1] | (put["en"] & level[:-1].all())) & ~self._read
        within = Mux(put["en"], ~end, beat != 0)
        m.d.sync += room.eq(~full & (within | ~slots[-1] | self._taken))
        return put

    def _absmax(self, m, put, scales):
        """Pulses when the scale of the next block has been written."""
        # |x| rounded up to the scale's step in one carry chain: for a negative x, -floor(x) is ~x + 1.
        drop = self.fmt.frac - SCALE.frac
        values = []
        for lane in range(self.lanes):
            x = put["x"][lane]
            value = Signal(SCALE.shape, name=f"ceiling_{lane}")
            high = (x >> drop) ^ Mux(x[-1], -1, 0)
            m.d.sync += value.eq(high[: SCALE.width] + (x[-1] | x[:drop].any()))
            values.append(value)
        stages = 1
        while len(values) > 1:
            pairs = [values[n : n + 2] for n in range(0, len(values), 2)]
            values = [Signal(SCALE.shape, name=f"largest_{stages}_{n}") for n in range(len(pairs))]
            for value, pair in zip(values, pairs):
                m.d.sync += value.eq(Mux(pair[0] > pair[-1], pair[0], pair[-1]))
            stages += 1
        tags = []
        for tag in ("en", "first", "end", "last", "wide"):
            pipe = Signal(stages + 1, name=f"{tag}_pipe")
            m.d.sync += pipe.eq(Cat(put[tag], pipe))
            tags.append(pipe)
        en, first, end, last, wide = tags

        absmax = Signal(SCALE.shape)
        with m.If(en[-2]):
            with m.If(first[-2] | (values[0] > absmax)):
                m.d.sync += absmax.eq(values[0])
        write = scales.write_port()
        m.d.comb += [
            write.en.eq(en[-1] & end[-1]),
            # INT8: about 128 / 127.5 of the absmax, so that 128 * x / scale rounds to 127 at most.
            write.data.scale.eq(absmax + Mux(wide[-1], (absmax >> 8) + 1, 0)),
            write.data.last.eq(last[-1]),
            write.data.wide.eq(wide[-1]),
        ]
        with m.If(write.en):
            m.d.sync += write.addr.eq(write.addr + 1)
        return write.en

    def _thresholds(self, m, scaled, scales):
        """Multiplies the thresholds with each block's scale.

        Pulses when a block's thresholds are all there.

        Returns the pulse and the four memories of a search tree: stage s decides bit 3 - s of the code
        and holds the 2**s thresholds it may need, for each slot.
        """
        book = [int(v) for v in self.book.threshold_table(THRESHOLD_FRAC)]
        m.submodules.book = memory = Memory(shape=self.table.data.shape(), depth=16, init=book)
        rewrite, read = memory.write_port(), memory.read_port(domain="comb")
        m.d.comb += [rewrite.en.eq(self.table.en), rewrite.addr.eq(self.table.addr), rewrite.data.eq(self.table.data)]

        waiting = Signal(range(SLOTS + 1))
        slot = Signal(range(SLOTS))
        k = Signal(4, init=ENTRIES)
        start = Signal()
        scale = Signal(SCALE.width)
        source = scales.read_port(domain="comb")
        m.d.comb += [start.eq((k == ENTRIES) & (waiting != 0)), source.addr.eq(slot), read.addr.eq(k)]
        m.d.sync += waiting.eq(waiting + scaled - start)
        with m.If(start):
            # In a block of zeros 1 stands in for the scale, to put 0 between the same thresholds.
            m.d.sync += [scale.eq(source.data.scale | (source.data.scale == 0)), k.eq(0), slot.eq(slot + 1)]
        with m.Elif(k != ENTRIES):
            m.d.sync += k.eq(k + 1)

        threshold = Signal(self.table.data.shape())
        product = Signal(signed(len(threshold) + SCALE.width))
        held = Signal.like(product)
        m.d.sync += [threshold.eq(read.data), product.eq(threshold * scale), held.eq(product)]
        # Which entry of which slot each factor is; the slot was counted up at the start.
        depth = 3
        wen, entry, to = Signal(depth), [Signal(4, name=f"entry_{n}") for n in range(depth)], []
        to = [Signal(range(SLOTS), name=f"to_{n}") for n in range(depth)]
        m.d.sync += [
            wen.eq(Cat(k != ENTRIES, wen)),
            entry[0].eq(k),
            to[0].eq(slot - 1),
            *(new.eq(old) for new, old in zip(entry[1:] + to[1:], entry[:-1] + to[:-1])),
        ]
        # x > t * scale: below x's own bits the product may be floored, x has none there.
        limit = held >> (THRESHOLD_FRAC + SCALE.frac - self.fmt.frac)
        limits = []
        for stage in range(4):
            shape = signed(self.fmt.width + 1)
            tree = Memory(shape=shape, depth=SLOTS << stage, init=[])
            m.submodules[f"limits_{stage}"] = tree
            write = tree.write_port()
            # Stage 3 decides even codes, stage 2 those that end in 01, stage 1 in 011, stage 0 is 0111.
            tail = 4 - stage
            m.d.comb += [
                write.en.eq(wen[-1] & (entry[-1][:tail] == (1 << (tail - 1)) - 1)),
                write.addr.eq(Cat(entry[-1][tail:], to[-1])),
                write.data.eq(limit),
            ]
            limits.append(tree)
        done = Signal()
        m.d.sync += done.eq(wen[-1] & (entry[-1] == ENTRIES - 1))
        return done, limits

    def _search(self, m, ready, limits, scales):
        """Reads blocks back and finds their codes.

        It reads a beat a cycle while there is a block with thresholds.
        """
        step = Signal()
        m.d.comb += step.eq(~self.o.valid | self.o.ready)
        stages, wide_stages = 5, 10
        depth = wide_stages if self.wide else stages
        valid, final = Signal(depth), Signal(depth)

        waiting = Signal(range(SLOTS + 1))
        beat = Signal(range(self.beats))
        slot = Signal(range(SLOTS))
        go = Signal()
        end = Signal()
        read = self._memory.read_port()
        # INT8 codes take more stages: codes of the other kind wait until those under way are out.
        wide, same = Signal(), Signal()
        if self.wide:
            kind = scales.read_port(domain="comb")
            m.d.comb += [kind.addr.eq(slot), same.eq((kind.data.wide == wide) | ~valid.any())]
            with m.If(go):
                m.d.sync += wide.eq(kind.data.wide)
        else:
            m.d.comb += same.eq(1)
        m.d.comb += [go.eq(step & (waiting != 0) & same), end.eq(beat == self.beats - 1), read.en.eq(step)]
        m.d.sync += waiting.eq(waiting + ready - (go & end))
        with m.If(go):
            m.d.sync += [read.addr.eq(read.addr + 1), beat.eq(Mux(end, 0, beat + 1)), slot.eq(slot + end)]
        m.d.comb += self._read.eq(go)

        slots = [Signal(range(SLOTS), name=f"slot_{n}") for n in range(stages - 1)]
        with m.If(step):
            m.d.sync += [
                valid.eq(Cat((waiting != 0) & same, valid)),
                final.eq(Cat(end, final)),
                slots[0].eq(slot),
                *(new.eq(old) for new, old in zip(slots[1:], slots)),
            ]
            if self.wide:
                with m.If(~wide):
                    m.d.sync += valid[stages].eq(0)
        codes, low_codes = self._compare(m, step, read.data, slots, limits, kind if self.wide else None, wide)
        out = Mux(wide, valid[-1], valid[stages - 1])
        out_last = Mux(wide, final[-1], final[stages - 1])
        self._collect(m, step, out, out_last, codes, low_codes, scales)

    def _compare(self, m, step, block, slots, limits, kind, wide):
        """Codes of a beat's words, by thresholds or by division.

        Thresholds are compared down a tree. Returns upper and lower nibbles.
        """
        codes, low_codes = [], []
        words = data.View(data.ArrayLayout(self.fmt.shape, self.lanes), block)
        for lane in range(self.lanes):
            x, code = words[lane], Const(0, 0)
            for stage, tree in enumerate(limits):
                port = tree.read_port(domain="comb")
                m.d.comb += port.addr.eq(Cat(code, slots[stage]))
                next_code = Signal(stage + 1, name=f"code_{lane}_{stage}")
                next_x = Signal(self.fmt.shape, name=f"x_{lane}_{stage}")
                with m.If(step):
                    m.d.sync += [next_code.eq(Cat(x > port.data, code)), next_x.eq(x)]
                x, code = next_x, next_code
            codes.append(code)
        if self.wide:
            # What the first stage of the division takes of the scale, a cycle ahead.
            factor, offset = Signal(SCALE.width), Signal(SCALE.width + 9)
            with m.If(step):
                m.d.sync += [factor.eq(kind.data.scale), offset.eq((kind.data.scale << 8) + (kind.data.scale - 1))]
            for lane, (x, code) in enumerate(zip(words, codes)):
                wide_code = self._divide(m, step, x, factor, offset, lane)
                codes[lane] = Mux(wide, wide_code[4:], code)
                low_codes.append(wide_code[:4])
        return codes, low_codes

    def _collect(self, m, step, found, found_last, codes, low_codes, scales):
        """Shifts codes into the payload, from the top.

        Nibble ``n`` holds element ``n``.
        """
        shift, shift_low = Signal(4 * self.block), Signal(4 * self.block)
        full, out, out_last = Signal(), Signal(), Signal()
        m.d.comb += [out.eq(found), out_last.eq(found_last)]
        m.d.comb += self.o.valid.eq(full)
        with m.If(step):
            m.d.sync += full.eq(out & out_last)
            with m.If(out):
                m.d.sync += shift.eq(Cat(shift, *codes)[4 * self.lanes :])
                if self.wide:
                    m.d.sync += shift_low.eq(Cat(shift_low, *low_codes)[4 * self.lanes :])
        # Of the block whose last codes come; an output that waits looks at no memory.
        first = Signal(range(SLOTS))
        source = scales.read_port(domain="comb")
        done = Signal()
        scale, last = Signal(SCALE.shape), Signal()
        m.d.comb += [
            source.addr.eq(first),
            done.eq(step & out & out_last),
            self.o.p.codes.eq(Cat(shift.word_select(n ^ 1, 4) for n in range(self.block))),
            self.o.p.scale.eq(scale),
            self.o.p.last.eq(last),
        ]
        with m.If(done):
            m.d.sync += [scale.eq(source.data.scale), last.eq(source.data.last), first.eq(first + 1)]
        if self.wide:
            wide_codes = Signal()
            with m.If(done):
                m.d.sync += wide_codes.eq(source.data.wide)
            m.d.comb += [
                self.o.p.low.eq(Cat(shift_low.word_select(n ^ 1, 4) for n in range(self.block))),
                self.o.p.wide.eq(wide_codes),
            ]
        m.d.comb += self._taken.eq(self.o.valid & self.o.ready)

    def _divide(self, m, step, x, scale, offset, lane):
        """The INT8 code of ``x``, 9 stages later.

        It is the number of those of 1 .. 255 half steps and more that lie below ``x``.

        A step is ``scale * 2**-7``, so twice the scale where x has 16 fraction bits. From -128.5 steps on, ``x`` is ``x
        + 257 * scale``; a bit of the code is set where the remainder exceeds as many steps as the bit stands for. 1 is
        taken off first, so that the carry alone says so: ``offset`` is ``257 * scale - 1``.
        """
        width = SCALE.width + 9
        rest = Signal(width, name=f"rest_{lane}")
        factor = Signal(SCALE.width, name=f"factor_{lane}")
        with m.If(step):
            m.d.sync += [rest.eq(x + offset), factor.eq(scale)]
        code = Const(0, 0)
        for bit in range(7, -1, -1):
            less = Signal(width + 1, name=f"less_{lane}_{bit}")
            next_rest = Signal(width, name=f"rest_{lane}_{bit}")
            next_factor = Signal(SCALE.width, name=f"factor_{lane}_{bit}")
            next_code = Signal(8 - bit, name=f"quotient_{lane}_{bit}")
            m.d.comb += less.eq(rest - (factor << (bit + 1)))
            with m.If(step):
                m.d.sync += [
                    next_rest.eq(Mux(less[-1], rest, less)),
                    next_factor.eq(factor),
                    next_code.eq(Cat(~less[-1], code)),
                ]
            rest, factor, code = next_rest, next_factor, next_code
        return code
