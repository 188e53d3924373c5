"""The hardware of the element engine."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import memory, wiring

from ...formats.tiles.codes import EDGE, WIDE, ZERO
from ...formats.tiles.element import FACTOR_FRAC, LIFT, ElementOpcode, ElementOperands
from ...formats.tiles.functions import FIXED, Times, packed_pieces
from ...formats.tiles.tables import ARGUMENT, BASE, FIXED_TABLES, INDEX, SLOPE, TABLES
from ...hierarchy import place
from ...stream.delay import delay, registered
from ...stream.queue import ShortQueue
from ..tile_load import SlotMemory, records
from ..tile_port import EXPONENT
from ..tile_results import TileResults, results_of
from ..words import accept
from .lane import ElementLane, Result
from .latencies import FINISH, START

__all__ = ["ElementEngine"]

_LANES = 8
#: Of words.
_BEAT = _LANES * 2 * WIDE
#: Steps of a beat of SQUARES.
_SQUARE = 4
_SUMS = (ElementOpcode.ADD, ElementOpcode.JOIN, ElementOpcode.SQUARES, ElementOpcode.LARGER)
#: With b; with ``exponent``; with words of the port; of which a - b is compared.
_PAIRS = (ElementOpcode.ADD, ElementOpcode.MASK, ElementOpcode.MULTIPLY, ElementOpcode.LARGER, ElementOpcode.EQUAL)
_SCALED = (ElementOpcode.SCALE, ElementOpcode.WORDS, ElementOpcode.FUNCTION)
_TAKEN = (ElementOpcode.WORDS, ElementOpcode.TABLE)
_COMPARED = (ElementOpcode.LARGER, ElementOpcode.EQUAL)
#: With a factor that is no table's.
_CONSTANTS = (ElementOpcode.SCALE, ElementOpcode.MASK, ElementOpcode.MULTIPLY, ElementOpcode.EQUAL)
#: Pieces of a beat of words; bits of a piece.
_PIECES, _PIECE = 8, BASE.width + SLOPE.width


def _any(op, some):
    return Cat(op == each for each in some).any()


def _function(op, args):
    """Whether an opcode is FUNCTION, of a alone, with b as argument, and with c."""
    function = op == ElementOpcode.FUNCTION
    return function, function & ~args.gate, function & args.gate, function & (args.times == Times.THIRD)


class ElementEngine(wiring.Component):
    """Elementwise operations on rows of tiles, 8 codes a cycle.

    Opcodes and operands: :class:`~...formats.element.ElementOpcode`, :data:`~...formats.element.ElementOperands`.
    Words are those of the reference, bit for bit.

    ::

        a --> slots --+
        b --> slots --+--> codes, exponents --> lanes --> results --> o
        c --> slots --+                           |
        words --> queue --------------------------+

    Cycles of a command that is taken in cycle 0: from cycle :attr:`start` on a beat of results is begun in each cycle,
    of SQUARES in each fourth, of WORDS with each beat of words. TABLE takes a piece in each cycle. ``done`` follows the
    last of them by :attr:`finish`.

    A lane looks functions up in one of two memories, that of fixed tables and that of those which TABLE writes. Two
    lanes share them.

    Members
    -------
    engine, load_*, store_*, health : see ``EngineSpec``. ``BAD_OPERAND``: a slot, row or beat that is not there, in an
        operand that the opcode has; ``split`` beyond a row; of SQUARES an odd ``a_row``, ``side`` above 6 or rows that
        are no whole rows of pixels; an exponent below -512 or above 511; a table that is not there, or of TABLE is
        fixed; ``times`` of 3. Words wait in a queue of 4 beats until a command takes them.
    """

    #: Cycles from a command to its first beat; from a beat's last step to its word; from the last beat to ``done``.
    start, latency, finish = START, FINISH - TileResults.latency, FINISH
    #: Beats of words that have room.
    depth = 4

    def __init__(self, spec, config):
        self.config = config
        super().__init__(spec.members(config.data_bits, config.forwards))

    def elaborate(self, platform):
        m = Module()
        self._busy = busy = Signal()
        # What may be wrong with its operands is in registers before it is judged.
        op, args, begins = accept(
            m,
            self.engine,
            ElementOpcode,
            ElementOperands,
            busy=busy,
            bad=lambda op, args: Cat(registered(m, each) for each in self._wrong(op, args)).any(),
            steps=1,
        )
        begin = delay(m, begins, 1, reset_less=False)
        m.d.comb += self.engine.done.eq(self._walk(m, op, args, begin))
        with m.If(begins | self.engine.done):
            m.d.sync += busy.eq(begins)
        kind = self._kind(m, op, args)
        codes, exponents = self._operands(m, platform, op, args, kind)
        self._compute(m, platform, op, args, kind, codes, exponents, begin)
        return m

    def _wrong(self, op, args):
        """Bits: what of an opcode's operands is not there."""
        slots, beats = self.config.element_slots, args.features[3:]
        join, squares = op == ElementOpcode.JOIN, op == ElementOpcode.SQUARES
        function, _, gated, third = _function(op, args)
        uses_a = ~_any(op, _TAKEN) & ~(join & (args.split == 0))
        uses_b = _any(op, _PAIRS) | gated | (join & (args.split <= beats))
        uses_c = third | (op == ElementOpcode.EQUAL)
        written = op == ElementOpcode.TABLE
        # Rows and slots of SQUARES.
        pixels = Cat(args.side > n for n in range(6))
        last_row = args.a_row + Cat(Const(3, 2), args.rows)
        last_slot = args.a + (last_row >> 6)
        plain_a = uses_a & ~squares
        return (
            args.o >= self.config.element_results,
            args.o_row + args.rows >= EDGE,
            uses_a & ~join & (beats + args.a_beat >= _LANES),
            uses_a & join & (args.split - 1 + args.a_beat >= _LANES),
            plain_a & (args.a_row + args.rows >= EDGE),
            plain_a & (args.a >= slots),
            squares & (args.a_row[0] | (args.side == 7) | ((args.rows & pixels) != pixels)),
            squares & (last_slot >= slots),
            uses_b & (args.b >= slots),
            uses_b & ~join & (beats + args.b_beat >= _LANES),
            uses_b & join & (beats - args.split + args.b_beat >= _LANES),
            uses_b & ~args.one_row & (args.b_row + args.rows >= EDGE),
            uses_c & (args.c >= slots),
            join & (args.split > beats + 1),
            _any(op, _SCALED) & (args.exponent[-1] ^ args.exponent[-2]),
            (function | written) & (args.table >= TABLES),
            written & (args.table < FIXED_TABLES),
            function & (args.times == 3),
        )

    def _walk(self, m, op, args, begin):
        """Counts rows, beats and steps of the result; returns ``done``."""
        queue = ShortQueue(width=_BEAT, depth=self.depth)
        m.submodules.words = queue
        m.d.comb += [
            queue.w_en.eq(self.load_words.beats.valid),
            queue.w_data.eq(self.load_words.beats.p.data),
            self.load_words.beats.ready.eq(queue.w_rdy),
        ]
        running, go, last = Signal(), Signal(), Signal()
        row, at, step = Signal(range(EDGE)), Signal(3), Signal(range(_SQUARE))
        words, squares, table = (
            op == each for each in (ElementOpcode.WORDS, ElementOpcode.SQUARES, ElementOpcode.TABLE)
        )
        ends_beat, ends_row = Signal(), Signal()
        take = Signal()
        m.d.comb += [
            ends_row.eq(at == (args.features[3:] | table.replicate(3))),
            take.eq(running & (words | table) & queue.r_rdy),
            # mutant same-words: queue.r_en.eq(take & at.all()),
            queue.r_en.eq(take & (words | at.all())),
            go.eq(Mux(words | table, take, running)),
            # mutant three-pixels: ends_beat.eq(~squares | (step == 2)),
            ends_beat.eq(~squares | (step == _SQUARE - 1)),
            last.eq(go & ends_beat & ends_row & (row == args.rows)),
        ]
        with m.If(go):
            m.d.sync += step.eq(Mux(ends_beat, 0, step + 1))
            with m.If(ends_beat):
                m.d.sync += at.eq(Mux(ends_row, 0, at + 1))
                with m.If(ends_row):
                    m.d.sync += row.eq(row + 1)
        with m.If(begin):
            m.d.sync += [running.eq(1), row.eq(0), at.eq(0), step.eq(0)]
        with m.Elif(last):
            m.d.sync += running.eq(0)
        self._row, self._at, self._step = row, at, step
        self._valid, self._ends_row = go & ends_beat & ~table, ends_row
        # A piece, and its place in the memory of tables.
        self._piece = (
            delay(m, go & table, 1, reset_less=False),
            registered(m, Cat(at, (args.o_row + row)[:6], args.table[:3])),
            registered(m, queue.r_data.word_select(at, _BEAT // _PIECES)[:_PIECE]),
        )
        # With a reset: shift registers would be a LUT for each of these bits.
        self._pair = delay(m, queue.r_data, 5, reset_less=False)
        # mutant early: return delay(m, last, 2, reset_less=False)
        return delay(m, last, self.finish, reset_less=False)

    def _kind(self, m, op, args):
        """What the opcode is, in registers; held during a command."""
        function, own, gated, third = _function(op, args)
        plain = args.times == Times.NOTHING
        multiply, scale = op == ElementOpcode.MULTIPLY, op == ElementOpcode.SCALE
        terms = multiply | (gated & ~plain)
        kind = {
            name: registered(m, value)
            for name, value in {
                "table": function,
                "squares": op == ElementOpcode.SQUARES,
                "join": op == ElementOpcode.JOIN,
                "own": own,
                "alone": own & plain,
                "loaded": op == ElementOpcode.WORDS,
                "constant": _any(op, _CONSTANTS),
                "gate": multiply | (gated & (args.times == Times.ARGUMENT)),
                "third": third | (op == ElementOpcode.EQUAL),
                "mask": op == ElementOpcode.MASK,
                "equal": op == ElementOpcode.EQUAL,
                "larger": op == ElementOpcode.LARGER,
                "sums": _any(op, _SUMS),
                "subtract": ((op == ElementOpcode.ADD) & args.subtract) | _any(op, _COMPARED),
                # The exponent of a does not count.
                "apart": _any(op, (ElementOpcode.WORDS, ElementOpcode.EQUAL)) | (own & (args.times != Times.ARGUMENT)),
                # Which exponents count in the larger one.
                "first": ~((op == ElementOpcode.JOIN) & (args.split == 0)),
                "second": (op != ElementOpcode.JOIN) | (args.split <= args.features[3:]),
            }.items()
        }
        result = Signal(2)
        with m.If(_any(op, (*_SUMS, ElementOpcode.WORDS))):
            m.d.sync += result.eq(Result.SUM)
        with m.Elif(terms):
            m.d.sync += result.eq(Result.TERM)
        with m.Else():
            m.d.sync += result.eq(Result.PRODUCT)
        mantissa = registered(m, Mux(scale, args.mantissa, 1 << FACTOR_FRAC))
        # What the opcode adds to exponents of codes.
        own = Mux(_any(op, _SUMS), -LIFT, Mux(terms, LIFT - FACTOR_FRAC, -FACTOR_FRAC))
        unit = registered(
            m,
            Mux(scale | (op == ElementOpcode.WORDS), 0, own) + Mux(_any(op, _SCALED), args.exponent, 0),
            signed(EXPONENT),
        )
        return kind | {"result": result, "mantissa": mantissa, "unit": unit}

    def _operands(self, m, platform, op, args, kind):
        """Codes of the beat in stage 5, and exponents in stage 4."""
        slots, row, step = self.config.element_slots, self._row, self._step
        bits = (slots - 1).bit_length()
        # Stage 1: rows. A row of pixels of the result is two rows of twice as many.
        pixels = registered(m, Cat(args.side > n for n in range(6)))
        across, down = (row & pixels) << 1, (row & ~pixels) << 2
        below = Signal(8)
        m.d.comb += below.eq((pixels + 1) << 1)
        upper, lower = Signal(8, reset_less=True), Signal(8, reset_less=True)
        own = Signal(8, reset_less=True)
        m.d.sync += [
            upper.eq(across | down),
            lower.eq(across | down | below),
            own.eq(Mux(kind["squares"], across | down | step[0] | Mux(step[1], below, 0), row)),
        ]
        at_a, at_b = Signal(3, reset_less=True), Signal(3, reset_less=True)
        m.d.sync += [
            at_a.eq(self._at + args.a_beat),
            at_b.eq(self._at + args.b_beat - Mux(kind["join"], args.split, 0)),
        ]
        # Stages 2 and 3: addresses.
        first = registered(m, args.a_row + upper)
        second = registered(m, args.a_row + lower)
        mine = registered(m, args.a_row + own)
        # mutant all-rows: row_b = registered(m, (args.b_row + own)[:6])
        row_b = registered(m, (args.b_row + Mux(args.one_row, 0, own))[:6])
        slot_a, slot_second = (
            registered(m, (args.a + Mux(kind["squares"], each[6:], 0))[:bits]) for each in (first, second)
        )
        address_a = registered(m, Cat(delay(m, at_a, 1), mine[:6], (args.a + Mux(kind["squares"], mine[6:], 0))[:bits]))
        address_b = registered(m, Cat(delay(m, at_b, 1), row_b, args.b[:bits]))
        address_c = registered(m, Cat(delay(m, at_a, 1), mine[:6], args.c[:bits]))
        codes, tops = [], []
        for name, address in (("a", address_a), ("b", address_b), ("c", address_c)):
            intake = records(m, self, name, platform, slots=slots, bits=WIDE)
            kept = place(m, f"slots_{name}", SlotMemory(slots=slots), platform)
            exponents = Array(Signal(signed(8), name=f"exponent_{name}_{n}", init=ZERO) for n in range(slots))
            m.d.comb += [kept.write.eq(intake.write), Cat(kept.half, kept.row, kept.slot[:bits]).eq(address)]
            with m.If(intake.exponent.valid):
                m.d.sync += exponents[intake.exponent.slot[:bits]].eq(intake.exponent.exponent)
            codes.append(registered(m, kept.o))
            tops.append(exponents)
        # Exponents: of b and c one a command, of a one a pixel.
        held_b = registered(m, Mux(kind["own"], tops[0][args.a[:bits]], tops[1][args.b[:bits]]), signed(8))
        held_c = registered(m, tops[2][args.c[:bits]])
        one = registered(m, tops[0][slot_a])
        other = registered(m, Mux(kind["squares"], tops[0][slot_second], held_b), signed(8))
        return codes, (one, other, held_c)

    def _tables(self, m, args):
        """Memories of tables.

        Returns a function of a lane's number and the lane, whose result is the piece that it asked for in the cycle
        before the last."""
        write, place_, piece = self._piece
        init = [int(word) for each in FIXED for word in packed_pieces(each).flat]
        pairs = []
        for n in range(_LANES // 2):
            fixed = memory.Memory(shape=_PIECE, depth=len(init), init=init, attrs={"ram_style": "block"})
            written = memory.Memory(
                shape=_PIECE, depth=(TABLES - FIXED_TABLES) << INDEX, init=[], attrs={"ram_style": "ultra"}
            )
            m.submodules[f"fixed_{n}"], m.submodules[f"written_{n}"] = fixed, written
            port = written.write_port()
            pairs.append((fixed, written, port))
        is_fixed = registered(m, args.table < FIXED_TABLES)

        def found(n, lane):
            fixed, written, port = pairs[n // 2]
            table = Cat(lane.piece, args.table[0] | lane.behind, args.table[1:3])
            one, other = fixed.read_port(), written.read_port()
            m.d.comb += one.addr.eq(table)
            if n % 2:
                m.d.comb += other.addr.eq(table)
            else:
                # An ultra RAM has two ports: the first lane does not read while the memory is written.
                address = Signal(len(port.addr), name=f"address_{n}")
                m.d.comb += [
                    address.eq(Mux(write, place_, table)),
                    other.addr.eq(address),
                    other.en.eq(~write),
                    port.addr.eq(address),
                    port.en.eq(write),
                    port.data.eq(piece),
                ]
            return registered(m, Mux(is_fixed, one.data, other.data))

        return found

    def _compute(self, m, platform, op, args, kind, codes, exponents, begin):
        """From codes to results."""
        one4, other4, held_c = exponents
        step4, at4 = delay(m, self._step, 4), delay(m, self._at, 4)
        # Stage 5: the larger exponent, and which codes count.
        own = Mux(kind["squares"] & step4[1], other4, one4)
        own5, one5, other5 = registered(m, own), registered(m, one4), registered(m, other4)
        # mutant counts-zeros: counts_a = registered(m, ~kind["join"] | (at4 < args.split))
        counts_a = registered(m, (own != ZERO) & (~kind["join"] | (at4 < args.split)))
        counts_b = registered(m, (other4 != ZERO) & ~kind["squares"] & (~kind["join"] | (at4 >= args.split)))
        counts_c = registered(m, held_c != ZERO)
        # mutant first-exponent: takes_one = kind["first"]
        takes_one = ~kind["second"] | (kind["first"] & (one4 >= other4))
        top5 = registered(m, Mux(takes_one, one4, other4), signed(8))
        # Stage 6: distances from it; codes. Stage 7: shifts.
        fall_a, fall_b = registered(m, top5 - own5), registered(m, top5 - other5)
        left = registered(m, args.range - other5, signed(9))
        base = ARGUMENT - LIFT - 1
        deep = fall_b[:9].as_unsigned() + base
        # mutant near: right_a = registered(m, fall_a[:5])
        right_a = registered(m, fall_a[:5] | fall_a[5:9].any().replicate(5))
        right_b = registered(
            m,
            Mux(
                kind["table"],
                Mux(left < 0, 0, left[:6] | left[6:].any().replicate(6)),
                deep[:6] | deep[6:].any().replicate(6),
            ),
            6,
        )
        again = delay(m, self._step != 0, 11) & kind["squares"]
        # The exponent of the row.
        size = signed(EXPONENT)
        left_part, right_part = Signal(size, reset_less=True), Signal(size, reset_less=True)
        m.d.sync += [
            left_part.eq(Mux(kind["apart"], 0, Mux(kind["sums"], top5, one5))),
            right_part.eq(kind["unit"] + Mux(kind["gate"], other5, Mux(kind["third"], held_c, 0))),
        ]
        exponent = registered(m, left_part + right_part, size)

        results = results_of(m, self.store_o, self.config.element_results, platform)
        found = self._tables(m, args)
        # mutant all-lanes: enough = (1 << _LANES) - 1
        enough = Cat(n <= args.features[:3] for n in range(_LANES))
        for n in range(_LANES):
            lane = place(m, f"lane_{n}", ElementLane(), platform)
            pair = self._pair.word_select(n, 2 * WIDE)
            a, b, c = (each.word_select(n, WIDE) for each in codes)
            second = Mux(kind["own"], a, b)
            counts_second = Mux(kind["own"], counts_a, counts_b)
            look = found(n, lane)
            lane_a, lane_b, lane_c = (
                registered(m, value, signed(WIDE))
                for value in (
                    # mutant factor-zero: Mux(kind["loaded"], pair[:WIDE], Mux(counts_a, a, 0)),
                    Mux(kind["loaded"], pair[:WIDE], Mux(kind["alone"], 1, Mux(counts_a, a, 0))),
                    Mux(kind["loaded"], pair[WIDE:], Mux(counts_second, second, 0)),
                    Mux(counts_c, c, 0),
                )
            )
            m.d.comb += [
                lane.a.eq(lane_a),
                lane.b.eq(lane_b),
                lane.c.eq(lane_c),
                lane.table.eq(kind["table"]),
                lane.right_a.eq(right_a),
                lane.right_b.eq(right_b),
                lane.subtract.eq(kind["subtract"]),
                lane.again.eq(again),
                lane.loaded.eq(kind["loaded"]),
                lane.mirror.eq(args.mirror),
                lane.base.eq(look[: BASE.width].as_signed()),
                lane.slope.eq(look[BASE.width :].as_signed()),
                lane.constant.eq(kind["constant"]),
                lane.mantissa.eq(kind["mantissa"]),
                lane.mask.eq(kind["mask"]),
                lane.equal.eq(kind["equal"]),
                lane.larger.eq(kind["larger"]),
                lane.positive.eq(args.positive),
                lane.gate.eq(kind["gate"]),
                lane.third.eq(kind["third"]),
                lane.result.eq(kind["result"]),
                results.write.words[n].eq(lane.word),
            ]
        mask = Mux(self._ends_row, enough, (1 << _LANES) - 1)
        m.d.comb += [
            # mutant stale: results.fresh.valid.eq(0),
            results.fresh.valid.eq(begin & args.fresh),
            results.fresh.slot.eq(args.o),
            results.write.valid.eq(delay(m, self._valid, self.latency, reset_less=False)),
            results.write.slot.eq(args.o),
            results.write.row.eq(delay(m, (args.o_row + self._row)[:6], self.latency)),
            results.write.beat.eq(delay(m, self._at, self.latency)),
            results.write.mask.eq(delay(m, mask, self.latency)),
            results.write.exponent.eq(delay(m, exponent, self.latency - 7)),
        ]
