"""Packs words and moments into blocks of codes, and unpacks them."""

from types import SimpleNamespace

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from ...formats.adamw import FRACTION, LARGEST
from ...formats.linear import LEVEL, MASTER
from ...formats.packed import BLOCKS, FINE, GAPS, INVERSES, LEVELS, LONG, NOISE, RECORD, TOP
from ...stream.delay import delay, registered
from .commands import PackOperands
from .parameters import UpdateParameters

__all__ = ["PackUnit"]

#: Bits of a float without its sign, or of a word's size.
_SIZE = MASTER.width - 1
#: A float's exponent, and mantissa.
_EXPONENT, _MANTISSA = _SIZE - FRACTION, FRACTION + 1
#: Exponent of a word's highest bit.
_HIGHEST = 127 + _SIZE - 1
#: Cycles from a word that is read to its float; from a code that is read to its word; from an element to its code.
_FLOATED, _DECODED, _ENCODED = 5, 14, 14


class PackUnit(wiring.Component):
    """Converts blocks to codes and a record of scales, or back.

    A group of blocks, ``edge`` elements each; an element a cycle.

    Bit for bit ``pack`` and ``unpack`` of the reference; ``gradloom.rtl.formats.packed`` has the layout of bytes. PACK
    reads two blocks, chooses their scales, then writes their codes: ``4 * edge + 13`` cycles for both. It takes beats
    of words, or of half m and half v, from the first stream and lets go those of the second one. UNPACK takes the
    record from the first stream, then codes: the second stream has the same beats one earlier, so that of every other
    pair both beats count and the next one is let go.

    Its numbers are floats, words on their way in and out too: one normaliser, one shifter and one multiplier serve both
    directions.

    Members
    -------
    start : ``args`` (:data:`PackOperands`) and ``unpack`` hold from now on until ``busy`` ends.
    roomy : there is room for what comes of a pair of blocks, and for a record.
    i : pairs of beats, the first stream's in the low half.
    o, valid, last : a beat leaves; it is the group's last.
    saturated : words that had to be clipped.
    """

    def __init__(self, config=UpdateParameters()):
        self.config = config
        super().__init__(
            {
                "start": In(1),
                "args": In(PackOperands),
                "unpack": In(1),
                "busy": Out(1),
                "roomy": In(1),
                "i": In(stream.Signature(2 * config.data_bits)),
                "o": Out(config.data_bits),
                "valid": Out(1),
                "last": Out(1),
                "saturated": Out(1),
            }
        )

    @staticmethod
    def record_beats(config):
        """Beats of a record."""
        return -(-RECORD // (config.data_bits // 8))

    def elaborate(self, platform):
        m = Module()
        args, few = self.args, self.config.beat_words
        # Bits of a word's index in a beat, of an element's in a block.
        low, side_bits = exact_log2(few), exact_log2(self.config.edge)

        # What is done: a pair of blocks, or of beats of codes, at a time.
        n = Signal(side_bits + 1)
        batch, last_batch = Signal(range(BLOCKS // 2)), Signal()
        m.d.comb += last_batch.eq(batch == (args.blocks >> 1) - 1)
        fill, read, code, header, tail = (Signal(name=name) for name in ("fill", "read", "code", "header", "tail"))
        odd = Signal()  # the second pair of beats of a pair of blocks
        scaling = Signal()
        word_end, code_end = Signal(), Signal()
        m.d.comb += [word_end.eq(n[:low].all()), code_end.eq(n[:-1].all() & (n[-1] | args.wide))]
        walk = SimpleNamespace(
            n=n,
            batch=batch,
            last_batch=last_batch,
            odd=odd,
            word_end=word_end,
            code_end=code_end,
            fill=fill,
            read=read,
            code=code,
            header=header,
            tail=tail,
            scaling=scaling,
        )
        self._walk(m, walk)
        chance = self._draw(m, read)
        taken, second, within = self._select(m, code, n, low, side_bits)
        tops = self._tops(m, header, n, taken)
        sizes = self._floats(m, taken)
        scale, v, floats, elements = self._buffer(m, fill, n, sizes, scaling, read, chance, tops, batch)
        unpacked = self._codes(m, code, taken, within, Mux(args.wide & ~args.moments, odd, second), batch, tops)
        self._multiply(m, scale, floats, unpacked)
        packed = self._encode(m, v, scale, floats, elements)
        self._decode(m, unpacked)
        self._leave(m, code, read, packed, tail, n, tops, last_batch, odd)
        return m

    def _walk(self, m, walk):
        """The states of a command: words to codes, or codes to words."""
        rest = Signal(5)
        header_words = self.record_beats(self.config) * self.config.beat_words
        with m.FSM() as fsm:
            m.d.comb += self.busy.eq(~fsm.ongoing("IDLE"))
            with m.State("IDLE"):
                m.d.sync += [walk.n.eq(0), walk.batch.eq(0), walk.odd.eq(0)]
                with m.If(self.start):
                    m.next = "ROOM"
            with m.State("ROOM"):
                with m.If(self.roomy):
                    with m.If(~self.unpack):
                        m.next = "FILL"
                    with m.Elif(walk.batch.any() | walk.odd):
                        m.next = "CODES"
                    with m.Else():
                        m.next = "HEADER"
            self._pack_states(m, walk, rest, header_words)
            with m.State("DRAIN"):
                m.d.sync += rest.eq(rest - 1)
                with m.If(rest == 0):
                    m.d.sync += walk.n.eq(0)
                    m.next = "IDLE"
                    with m.If(~self.unpack):
                        m.next = "RECORD"
            self._unpack_states(m, walk, rest, header_words)

    def _pack_states(self, m, walk, rest, header_words):
        """States of PACK: takes a pair of blocks, finds scales, makes codes.

        The blocks are read back for their codes; the record comes last.
        """
        with m.State("FILL"):
            m.d.comb += [walk.fill.eq(self.i.valid), self.i.ready.eq(walk.word_end)]
            with m.If(walk.fill):
                m.d.sync += walk.n.eq(walk.n + 1)
                with m.If(walk.n.all()):
                    m.d.sync += rest.eq(_FLOATED + 5)
                    m.next = "SCALE"
        with m.State("SCALE"):
            # Scales of both blocks, one after the other, when their largest elements are known.
            m.d.comb += walk.scaling.eq((rest == 3) | (rest == 4))
            m.d.sync += rest.eq(rest - 1)
            with m.If(rest == 0):
                m.next = "READ"
        with m.State("READ"):
            m.d.comb += walk.read.eq(1)
            m.d.sync += walk.n.eq(walk.n + 1)
            with m.If(walk.n.all()):
                m.d.sync += [walk.batch.eq(walk.batch + 1), rest.eq(_ENCODED + 3)]
                m.next = "ROOM"
                with m.If(walk.last_batch):
                    m.next = "DRAIN"
        with m.State("RECORD"):
            m.d.comb += walk.tail.eq(1)
            m.d.sync += walk.n.eq(walk.n + 1)
            with m.If(walk.n == 4 * header_words - 1):
                m.d.sync += rest.eq(4)
                m.next = "END"
        with m.State("END"):
            m.d.sync += rest.eq(rest - 1)
            with m.If(rest == 0):
                m.next = "IDLE"

    def _unpack_states(self, m, walk, rest, header_words):
        """Takes the record, then beats of codes."""
        args = self.args
        with m.State("HEADER"):
            m.d.comb += [walk.header.eq(self.i.valid), self.i.ready.eq(walk.word_end)]
            with m.If(walk.header):
                m.d.sync += walk.n.eq(walk.n + 1)
                with m.If(walk.n == header_words - 1):
                    m.d.sync += walk.n.eq(0)
                    m.next = "CODES"
        with m.State("CODES"):
            m.d.comb += [walk.code.eq(self.i.valid), self.i.ready.eq(walk.code_end)]
            with m.If(walk.code):
                m.d.sync += walk.n.eq(walk.n + 1)
                with m.If(walk.code_end):
                    m.d.sync += walk.n.eq(0)
                    m.next = "SKIP"
        with m.State("SKIP"):
            m.d.comb += self.i.ready.eq(1)
            with m.If(self.i.valid):
                m.d.sync += walk.odd.eq(~walk.odd & args.wide)
                m.next = "ROOM"
                with m.If(~args.wide | walk.odd):
                    m.d.sync += walk.batch.eq(walk.batch + 1)
                    with m.If(walk.last_batch):
                        m.d.sync += rest.eq(_DECODED + 3)
                        m.next = "DRAIN"

    def _draw(self, m, read):
        """Draws a random word for each word that is read.

        The generator is a xorshift of 32 bits, from the command's seed.
        """
        args = self.args
        chance = Signal(32, reset_less=True)
        word = chance
        for left, right in ((13, 0), (0, 17), (5, 0)):
            word = word ^ ((word << left)[:32] if left else word >> right)
        with m.If(self.start):
            m.d.sync += chance.eq(args.seed)
        with m.Elif(read):
            m.d.sync += chance.eq(word)
        return chance

    def _select(self, m, code, n, low, side_bits):
        """Selects a word of the pair of beats.

        Words are of the first beat. Codes are of either.

        Registers the word, whether it is of the second side, and its element's index in a block.
        """
        args, few = self.args, self.config.beat_words
        half = low - 1  # bits of an index in half a beat
        second, within = Signal(), Signal(side_bits)
        m.d.comb += [second.eq(n[-1]), within.eq(n[:-1])]
        with m.If(args.moments):
            m.d.comb += [second.eq(n[half]), within.eq(Cat(n[:half], n[half + 1 :]))]
        with m.If(args.wide & ~args.moments):
            m.d.comb += second.eq(n[side_bits - 1])
        at = Signal(low + 1)
        m.d.comb += at.eq(Mux(code, Cat(Mux(args.wide, within[2 : 2 + low], within[3 : 3 + low]), second), n[:low]))
        words = Array(self.i.p.word_select(index, 32) for index in range(2 * few))
        taken = Signal(32, reset_less=True)
        m.d.sync += taken.eq(words[at])
        return taken, second, within

    # ---- scales

    def _tops(self, m, header, n, taken):
        """Largest scale of either side, and the format of the scales below it."""
        tops = [Signal(12, reset_less=True, name=f"top_{side}") for side in range(2)]
        at, known = delay(m, n, 1), delay(m, header, 1, reset_less=False)
        m.submodules.stored = self._stored = Memory(shape=32, depth=4, init=[])
        write = self._stored.write_port()
        m.d.comb += [
            write.addr.eq((at - 2)[:2]),
            write.data.eq(taken),
            write.en.eq(known & (at >= 2) & (at < RECORD // 4)),
        ]
        with m.If(self.start):
            m.d.sync += [top.eq(0) for top in tops]
        with m.Elif(known & (at == 0)):
            m.d.sync += [tops[0].eq(taken[:12]), tops[1].eq(taken[16:28])]
        return tops

    def _floats(self, m, taken):
        """Makes floats without sign, and signs, 4 cycles after ``taken``.

        The normaliser serves products of codes too.
        """
        args = self.args
        size = taken[:_SIZE] ^ (taken[-1] & ~args.moments).replicate(_SIZE)
        self._product = Signal(_SIZE)
        value, down = registered(m, Mux(self.unpack, self._product, size)), Const(0, 0)
        moves = delay(m, self.unpack | ~args.moments, 1)
        for unit in (16, 4, 1):
            empty = [~value[_SIZE - unit * k :].any() & moves for k in (1, 2, 3) if unit * k < _SIZE]
            if unit == 16:
                empty = empty[:1]
            count = Cat(empty[0] & (~empty[1] | empty[2]), empty[1]) if len(empty) == 3 else empty[0]
            shifted = [(value << unit * k)[:_SIZE] for k in range(len(empty) + 1)]
            choice = Mux(count[0], shifted[1], shifted[0])
            if len(empty) == 3:
                choice = Mux(count[1], Mux(count[0], shifted[3], shifted[2]), choice)
            value, down = registered(m, choice), registered(m, Cat(count, down))
        self._normal, self._down = value, down
        # A float as it is, or made of a word.
        made = Cat(value[_SIZE - 1 - FRACTION : _SIZE - 1], (_HIGHEST - down)[:_EXPONENT])
        bits = Mux(args.moments, value, made)
        nothing = Mux(args.moments, ~value[FRACTION:].any(), ~value[-1])
        return Mux(nothing, 0, bits), delay(m, taken[-1], 4)

    def _buffer(self, m, fill, n, sizes, scaling, read, chance, tops, batch):
        """Holds two blocks, their scales, and elements in the order of codes.

        They are there 2 cycles after ``read``.
        """
        args, few, edge = self.args, self.config.beat_words, self.config.edge
        half, side_bits = exact_log2(few) - 1, exact_log2(edge)
        bits, negative = sizes
        m.submodules.buffer = buffer = Memory(shape=MASTER.width, depth=2 * edge, init=[])
        write, look = buffer.write_port(), buffer.read_port()
        there, place = delay(m, fill, _FLOATED, reset_less=False), delay(m, n, _FLOATED)
        m.d.comb += [write.en.eq(there), write.addr.eq(place), write.data.eq(Cat(bits, negative))]
        largest = [Signal(_SIZE, reset_less=True, name=f"largest_{side}") for side in range(2)]
        side = Mux(args.moments, place[half], place[-1])
        more = Signal()
        m.d.comb += more.eq(bits > Mux(side, largest[1], largest[0]))
        for number, each in enumerate(largest):
            with m.If(there & (side == number) & more):
                m.d.sync += each.eq(bits)
        with m.If(self.start | (read & n.all())):
            m.d.sync += [each.eq(0) for each in largest]

        # Scales: three cycles for one.
        of = Signal()
        with m.If(scaling):
            m.d.sync += of.eq(~of)
        with m.Else():
            m.d.sync += of.eq(0)
        chosen, v = Mux(of, largest[1], largest[0]), args.moments & of
        mantissa = Cat(chosen[:FRACTION], Const(1, 1))
        addend = Mux(v, Mux(args.wide, 1 << FRACTION - LONG, 1 << FRACTION), Mux(args.wide, mantissa >> 7, 0))
        sum1 = registered(m, chosen + addend)
        some1, v1, of1 = registered(m, chosen.any()), registered(m, v), registered(m, of)
        # Up to the next step: no element is cut.
        sum2 = registered(m, sum1 + Mux(v1, 0, (1 << FRACTION - FINE) - 1))
        some2, v2, of2 = registered(m, some1), registered(m, v1), registered(m, of1)
        scaled = delay(m, scaling, 2, reset_less=False)
        fine, long = sum2[FRACTION - FINE :], sum2[FRACTION - LONG :]
        long = Cat(long[:LONG] & args.wide.replicate(LONG), long[LONG:])
        most = Mux(args.wide, TOP[LONG], 254 << LONG)
        new = Signal(12)
        m.d.comb += new.eq(Mux(some2, Mux(v2, Mux(long > most, most, long), Mux(fine > TOP[FINE], TOP[FINE], fine)), 0))
        scales = [Signal(12, reset_less=True, name=f"scale_{number}") for number in range(2)]
        m.submodules.scales = kept = Memory(shape=12, depth=BLOCKS, init=[])
        keep = kept.write_port()
        m.d.comb += [keep.en.eq(scaled), keep.addr.eq(Cat(of2, batch)), keep.data.eq(new)]
        self._kept = kept
        for number, (scale, top) in enumerate(zip(scales, tops)):
            with m.If(scaled & (of2 == number)):
                m.d.sync += scale.eq(new)
                with m.If(new > top):
                    m.d.sync += top.eq(new)

        # Elements, blocks one after the other or, 8-bit codes of moments, by halves.
        block, element = Signal(), Signal(side_bits)
        m.d.comb += [block.eq(n[-1]), element.eq(n[:-1])]
        with m.If(args.moments & args.wide):
            m.d.comb += [block.eq(n[side_bits - 1]), element.eq(Cat(n[: side_bits - 1], n[-1]))]
        m.d.comb += look.addr.eq(Mux(args.moments, Cat(element[:half], block, element[half:]), Cat(element, block)))
        which = registered(m, block)
        noise = delay(m, chance, 2)
        element2 = registered(m, look.data)
        scale2 = registered(m, Mux(which, scales[1], scales[0]))
        return scale2, registered(m, which) & args.moments, element2, noise

    # ---- products

    def _codes(self, m, code, taken, within, block, batch, tops):
        """``(level, negative, scale, v, word of v)`` of a code.

        They are there 4 cycles after ``code``.
        """
        args = self.args
        # A code is there 2 cycles after it was asked for.
        index = delay(m, within[:3], 1)
        wide = taken.word_select(index[:2], 8)
        byte = taken.word_select(index[1:3], 8)
        value = registered(m, Mux(args.wide, wide, Mux(index[0], byte[:4], byte[4:])), 8)
        look = self._stored.read_port(domain="comb")
        number = delay(m, Cat(block, batch), 1)
        m.d.comb += look.addr.eq(number[2:])
        below = registered(m, look.data.word_select(number[:2], 8))
        of = delay(m, block, 2)
        top = Mux(of, tops[1], tops[0])
        # Cycle 3: the scale; the level.
        scale = registered(m, top - 255 + below)
        none = registered(m, ~below.any())
        level, negative = Signal(LEVEL.frac + 1, reset_less=True), Signal(reset_less=True)
        with m.If(args.wide):
            number = Mux(value[7], value[:7], 128 - value[:7])
            m.d.sync += [level.eq(number << 9), negative.eq(~value[7])]
        with m.Else():
            with m.Switch(value[:4]):
                for each, amount in enumerate(LEVELS):
                    with m.Case(each):
                        m.d.sync += [level.eq(abs(amount)), negative.eq(int(amount < 0))]
        some = registered(m, value.any())
        last = registered(m, value)
        v = registered(m, of) & args.moments
        # Cycle 4.
        bad = none | scale[-1]
        place = Mux(args.wide, scale, scale >> LONG) - Mux(args.wide, 255 - last, 15 - last[:4])
        place4 = registered(m, place)
        none4 = registered(m, bad | ~some)
        v4 = registered(m, v)
        # Cycle 5.
        high = place4 > Mux(args.wide, TOP[LONG], 254)
        low = place4 < Mux(args.wide, 1 << LONG, 1)
        wide_word = Cat(Const(0, FRACTION - LONG), Mux(high, TOP[LONG], place4[:11]))
        narrow_word = Cat(Const(0, FRACTION), Mux(high, 254, place4[:8]))
        word = registered(m, Mux(none4 | low, 0, Mux(args.wide, wide_word, narrow_word)))
        return {
            "level": registered(m, Mux(bad, 0, level)),
            "negative": registered(m, negative),
            "scale": registered(m, scale[:12]),
            "v": registered(m, v4),
            "word": word,
        }

    def _multiply(self, m, scale, element, unpacked):
        """A multiplier, which PACK and UNPACK share: 17 x 17 bits.

        PACK: an element, aligned to its block's exponent, over the fraction of the block's scale; 7 cycles after
        ``element``. UNPACK: a level times that fraction; 3 cycles after it.
        """
        # What is shifted down: PACK's mantissas, words of UNPACK. Operands are registered in both.
        exponent = element[FRACTION:_SIZE]
        ahead = scale[FINE:] - exponent
        mantissa = Mux(exponent.any(), Cat(Const(0, _SIZE - _MANTISSA), element[:FRACTION], Const(1, 1)), 0)
        self._low = Signal(signed(11))  # of UNPACK
        self._into = Signal(_SIZE)
        distance = Mux(self.unpack, self._low, ahead)
        value = registered(m, Mux(self.unpack, self._into, mantissa), _SIZE)
        by = registered(m, distance[:5] | distance[5:].any().replicate(5), 5)
        coarse, fine = registered(m, value >> (by & 0b11000)), registered(m, by[:3])
        self._shifted = registered(m, coarse >> fine)
        part = self._shifted[_SIZE - 1 - LEVEL.frac :]
        fraction = delay(m, scale[:FINE], 3)
        inverse = Signal(17)
        with m.Switch(fraction):
            for number, amount in enumerate(INVERSES):
                with m.Case(number):
                    m.d.comb += inverse.eq(amount)
        a = registered(m, Mux(self.unpack, unpacked["level"], part), 17)
        b = registered(m, Mux(self.unpack, Cat(unpacked["scale"][:FINE], Const(1, 1)), inverse), 17)
        self._out = registered(m, registered(m, a * b))
        m.d.comb += self._product.eq(Cat(Const(0, _SIZE - 22), self._out[:22]))

    # ---- codes

    def _encode(self, m, v, scale, element, chance):
        """The code of an element, :data:`_ENCODED` cycles after ``read``.

        ``element`` is there after 2.
        """
        args = self.args
        # v: 3 sum, 4 distance, 5 code.
        bits = element[:_SIZE]
        noise = Mux(args.wide, chance[32 - (FRACTION - LONG) :], chance[32 - FRACTION :])
        total = registered(m, bits + noise)
        place = Mux(args.wide, total[FRACTION - LONG :], total[FRACTION:])
        high = Mux(args.wide, TOP[LONG], 254)
        own = registered(m, Mux(args.wide, scale, scale >> LONG))
        some = delay(m, bits.any(), 2)
        off = registered(m, own - Mux(place > high, high, place), signed(14))
        most = Mux(args.wide, 255, 15)
        code = Mux(off >= most, 1, most - off)
        long = registered(m, Mux(some, code, 0), 8)
        # The unit is there 6 cycles after the element: 8.
        raw = self._out[LEVEL.frac : LEVEL.frac + 17]
        one = 1 << LEVEL.frac
        unit = registered(m, Mux(raw > one, one, raw), 17)  # 9
        negative, noise = delay(m, element[-1], 7), delay(m, chance, 7)
        number = (unit + noise[32 - NOISE["wide"] :]) >> NOISE["wide"]
        number = Mux(number[7], 127, number[:7])
        wide = registered(m, Mux(negative, 128 - number, 128 + number), 8)  # 10
        # NF4: four looks, then how far above its level the unit is.
        own = registered(m, Mux(negative, -unit, unit), signed(18))  # 10
        found, units = Const(0, 0), own
        for stage in range(4):
            step = 8 >> stage
            level = Signal(signed(18), init=LEVELS[step])
            for prefix in range(1, 1 << stage):
                with m.If(found == prefix):
                    m.d.comb += level.eq(LEVELS[prefix * 2 * step + step])
            bit = units >= level
            found = Cat(bit, found)
            if stage % 2:
                found, units = registered(m, found), registered(m, units)  # 11, 12
        base, gap = Signal(signed(18)), Signal(15)
        with m.Switch(found):
            for number, (level, distance) in enumerate(zip(LEVELS, GAPS)):
                with m.Case(number):
                    m.d.comb += [base.eq(level), gap.eq(distance)]
        above = registered(m, (units - base)[:15], 15)  # 13
        noise = delay(m, noise[32 - NOISE["narrow"] :], 3)
        odds = registered(m, gap * Cat(Const(1, 1), noise), 24)
        below = registered(m, found)
        narrow = registered(m, below + ((above << 9) > odds), 4)  # 14
        long, is_long = delay(m, long, _ENCODED - 5), delay(m, v, _ENCODED - 2)
        return Mux(is_long, long, Mux(args.wide, delay(m, wide, _ENCODED - 10), narrow))

    def _decode(self, m, unpacked):
        """Words of codes, :data:`_DECODED` cycles after ``code``."""
        args = self.args
        # A code's level is there after 4 cycles, its product after 7, which leaves the normaliser after 11.
        scale = delay(m, unpacked["scale"], 7)
        exponent = Signal(signed(11))
        m.d.comb += exponent.eq(scale[FINE:] + 1 - self._down)
        some = self._normal[-1] & (exponent >= 1)
        over = some & Mux(args.moments, exponent > 254, exponent > _HIGHEST)
        fraction = self._normal[_SIZE - 1 - FRACTION : _SIZE - 1]
        m.d.comb += [self._low.eq(_HIGHEST - exponent), self._into.eq(self._normal)]
        sign = delay(m, unpacked["negative"], 7) & some
        floated = Mux(over, LARGEST, Cat(fraction, exponent[:_EXPONENT]))
        word = Mux(delay(m, unpacked["v"], 6), delay(m, unpacked["word"], 6), Mux(some, Cat(floated[:_SIZE], sign), 0))
        over = over & ~delay(m, unpacked["v"], 6)
        some, over3, sign = delay(m, some, 3), delay(m, over, 3), delay(m, sign, 3)
        size = (self._shifted | over3.replicate(_SIZE)) & some.replicate(_SIZE)
        self._word = Mux(args.moments, delay(m, word, 3), Cat(size ^ sign.replicate(_SIZE), sign))
        self._over = over3

    # ---- beats

    def _leave(self, m, code, read, packed, tail, n, tops, last_batch, odd):
        """Codes and records by bytes, words of codes, into beats."""
        args, few = self.args, self.config.beat_words
        # Records: bytes.
        look = self._kept.read_port(domain="comb")
        place = (n - 8)[: exact_log2(BLOCKS)]
        m.d.comb += look.addr.eq(place)
        scale, top = look.data, Mux(place[0], tops[1], tops[0])
        off = top - scale
        stored = Mux(scale == 0, 0, Mux(off > 254, args.moments & place[0], 255 - off[:8]))
        byte = Signal(8)
        with m.Switch(n):
            for at, value in enumerate((tops[0][:8], tops[0][8:], tops[1][:8], tops[1][8:])):
                with m.Case(at):
                    m.d.comb += byte.eq(value)
            with m.Default():
                m.d.comb += byte.eq(Mux((n >= 8) & (n - 8 < args.blocks), stored, 0))
        of_record = delay(m, tail, 1, reset_less=False)
        done = _ENCODED
        of_code = delay(m, read, done, reset_less=False)
        # Codes: two of 4 bits are a byte, the first in its high half.
        turn, high = Signal(), Signal(4, reset_less=True)
        with m.If(of_code):
            m.d.sync += [turn.eq(~turn & ~args.wide), high.eq(packed[:4])]
        entering, whole_byte = Signal(8, reset_less=True), Signal()
        m.d.sync += [
            whole_byte.eq(of_record | (of_code & (args.wide | turn))),
            entering.eq(Mux(of_record, registered(m, byte), Mux(args.wide, packed, Cat(packed[:4], high)))),
        ]
        three, count = Signal(24, reset_less=True), Signal(2)
        with m.If(whole_byte):
            m.d.sync += [three.eq(Cat(three[8:], entering)), count.eq(count + 1)]
        decoded = delay(m, code, _DECODED, reset_less=False)
        m.d.comb += self.saturated.eq(decoded & self._over)
        word, whole_word = Signal(32, reset_less=True), Signal()
        m.d.sync += [
            whole_word.eq(decoded | (whole_byte & count.all())),
            word.eq(Mux(self.unpack, self._word, Cat(three, entering))),
        ]
        words = Signal(range(max(few, 2)))
        with m.If(whole_word):
            m.d.sync += [words.eq(words + 1), self.o.eq(Cat(self.o[32:], word))]
        m.d.sync += self.valid.eq(whole_word & (words == few - 1))
        # The last: of a record, or of the codes.
        ends = delay(m, tail & (n == 4 * self.record_beats(self.config) * few - 1), 3, reset_less=False)
        ended = delay(
            m,
            code & last_batch & (odd | ~args.wide) & n[:-1].all() & (n[-1] | args.wide),
            _DECODED + 1,
            reset_less=False,
        )
        m.d.sync += self.last.eq(ends | ended)
