"""The norm engine: norms and softmaxes on tiles of codes."""

from functools import partial

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, wiring

from ...formats.tiles.codes import EDGE, LEAST, WIDE
from ...formats.tiles.norm import (
    BIAS_LIFT,
    EPS,
    EPS_SPAN,
    FACTOR,
    LIFT,
    NARROWED,
    POWER,
    PULL_WORD,
    ROW_TILES,
    SIZE,
    SPREAD,
    UNIT,
    NormOpcode,
    NormOperands,
)
from ...formats.vector import POWER_FRAC, ROOT_FRAC
from ...hierarchy import place
from ...shell.registers.errors import Error
from ...stream.delay import delay, registered
from ..tile_load import records
from ..tile_port import EXPONENT
from ..tile_results import TileResults, results_of
from ..words import accept
from .lane import Kind, NormLane
from .memories import GAINS, NormGains, NormKnown, NormOperand
from .passes import FIRST, GO_ON, GROUPS, ROWS, SUMS, WHOLE, any_of
from .statistics import NormStatistics
from .sums import NormSums
from .walk import NormWalk

__all__ = ["RESULTS", "NormEngine"]

#: Words of a beat of results at least.
_BEAT = 8
#: Slots of results.
RESULTS = 4
#: From beats that are read to lanes, and to their results.
_TO_LANES = 2
_TO_WORDS = _TO_LANES + NormLane.latency


class NormEngine(wiring.Component):
    """Reads rows of tiles, a code for each of its lanes a cycle.

    A command reads them once or more.

    ::

        a, b, gain --> exponents --> lanes --+--> results --> store
                                       ^     |
                                       |     +--> sums --> roots, means, levels --+
                                       +------------- what is known of groups <---+

    Opcodes and operands: :class:`NormOpcode`, :data:`NormOperands`; results are those of ``sim/reference/norm.py``.
    A softmax of one tile reads it three times: for each row's largest score, for its sum of powers, for results; its
    gradient twice. All other commands read their operands once.

    Cycles from a command taken to ``done``: :attr:`ready` and one a tile, then for each reading the beats and
    :meth:`settle` where sums come of it, :attr:`finish` where results do; :attr:`again` before each but the first.
    Where sums come of it a row, or a column of beats by groups of features, takes as many cycles as its sums have
    :func:`~...formats.tiles.norm.positions` at least; the last one takes its beats. A beat has as many features as
    there are lanes.

    Members
    -------
    engine, load_*, store_*, health : see ``EngineSpec``. ``BAD_OPERAND``: slots or rows that are not there; a group
        that has not a power of two values up to 2**15, goes beyond a tile's features, or, in BACK_SUMS, not those of
        SUMS; eps that is not 16 bits times a power of two up to 1; a factor's exponent below -512 or above 511 in
        SOFTMAX_BACK or SOFT_BACK, bits below 0 or above 63 in PULLS; tiles with a larger exponent than those had of
        which what is used was gathered, but in SOFT_BACK; in SOFTMAX_BACK probabilities whose exponent is above -8;
        rows that go on beyond 256 tiles. ``gain`` has records of a row.
    """

    #: Cycles of a command besides those of tiles and beats; see above.
    ready, again = 4, 1
    finish = _TO_WORDS + TileResults.latency

    @staticmethod
    def settle(lanes, *, columns=False):
        """Cycles from the last beat of operands to its groups' values; ``columns``: groups of features."""
        return _TO_WORDS + NormSums.latency(lanes, columns=columns) + NormStatistics.latency

    def __init__(self, spec, config):
        self.slots, self.lanes = config.norm_slots, config.norm_lanes
        super().__init__(spec.members(config.data_bits, config.forwards))

    def elaborate(self, platform):
        m = Module()
        self._busy = Signal()
        # Operands are examined beside the scan of exponents, in steps.
        opcode, self._args, begins = accept(
            m, self.engine, NormOpcode, NormOperands, busy=self._busy, bad=lambda opcode, args: Const(0, 1)
        )
        self._opcode = Signal(NormOpcode)
        m.d.comb += self._opcode.eq(opcode)
        kind = self._kind = Signal(Kind)
        self._starts = Signal()
        self._side = (self.lanes - 1).bit_length()
        bad = self._bad(m)
        walk = self._control(m, platform, begins)
        operands = self._operands(m, platform, walk)
        self._compare(m, bad)
        exponent = self._exponents(m)
        lanes, mask = self._lanes(m, platform, walk, operands)
        tag = data.StructLayout({"valid": 1, "first": 1, "last": 1, "row": range(EDGE), "beat": walk.beat.shape()})
        now = Signal(tag)
        m.d.comb += [now[name].eq(getattr(walk, name)) for name in tag.members]
        there = delay(m, now, _TO_WORDS, reset_less=False)
        counts = delay(m, mask, _TO_WORDS - 1)
        lost = self._sums(m, platform, walk, lanes, there, counts)
        results = results_of(m, self.store_o, RESULTS, platform, lanes=max(self.lanes, _BEAT))
        m.d.comb += [
            results.write.slot.eq(self._args.o),
            results.write.row.eq(self._args.o_row + there.row),
            results.write.exponent.eq(exponent),
            # mutant stale: results.fresh.valid.eq(0),
            results.fresh.valid.eq(self._starts & self._args.fresh & ~any_of(kind, SUMS)),
            results.fresh.slot.eq(self._args.o),
        ]
        self._write(m, results, lanes, there, counts)
        # Half of the lanes each.
        clipped = [Mux(there.valid, lane.clipped, 0) for lane in lanes]
        halves = [registered(m, sum(clipped[n::2])) for n in range(2)]
        m.d.sync += self.health.saturated.eq(sum(halves) + lost)
        return m

    def _write(self, m, results, lanes, there, counts):
        """Words become results; of fewer lanes than a beat of results has words, two beats at once."""
        words, write = Cat(lane.word for lane in lanes), results.write
        made = there.valid & ~any_of(self._kind, SUMS)
        if self.lanes >= _BEAT:
            m.d.comb += [write.valid.eq(made), write.beat.eq(there.beat), write.mask.eq(counts), write.words.eq(words)]
            return
        upper, lower = there.beat[0], registered(m, words)
        m.d.comb += [
            write.valid.eq(made & (upper | there.last)),
            write.beat.eq(there.beat[1:]),
            # A row that ends in a lower half has nothing above it.
            write.mask.eq(Mux(upper, Cat(Const(-1, self.lanes), counts), counts)),
            write.words.eq(Cat(Mux(upper, lower, words), words)),
        ]

    def _bad(self, m):
        """Whether an operand is beyond its bounds.

        Three cycles behind the operands.
        What SUMS says of its groups holds until the next.
        """
        args, opcode, register = self._args, self._opcode, partial(registered, m)
        sums, back_sums = opcode == NormOpcode.SUMS, opcode == NormOpcode.BACK_SUMS
        groups, norm, rows = sums | back_sums, opcode <= NormOpcode.BACK, any_of(opcode, ROWS)
        pulls = opcode == NormOpcode.PULLS
        soft_back = any_of(opcode, (NormOpcode.SOFTMAX_BACK, NormOpcode.SOFT_BACK))
        self._soft_b = soft_back | pulls
        uses_b = back_sums | (opcode == NormOpcode.BACK) | self._soft_b
        self._sums_of_x, self._rows, self._gathers = Signal(), register(rows), register(groups | rows)
        # What the opcode says is in registers, which settle before they are looked at.
        self._more, self._gathered = register(rows & args.more), Signal(range(ROW_TILES + 1))
        tiles = self._tiles = register(Mux(groups | rows, args.tiles, 0), 4)
        with m.If(self._starts & any_of(self._kind, GO_ON)):
            m.d.sync += self._gathered.eq(Mux(self._more, self._gathered, 0) + tiles + 1)
        self._by_row, self._group, self._size = Signal(), Signal(3), Signal(4)
        by_row = Mux(sums, args.by_row, self._by_row)
        group = Mux(sums, args.group, self._group)
        # Of a power of two less 1 the logarithm is the number of ones.
        high, count, features = (sum(args[name]) for name in ("rows", "tiles", "features"))
        size = register(register(count) + register(Mux(by_row, features, high + group)), 5)
        m.d.comb += self._sums_of_x.eq(sums)
        with m.If(self._starts & sums):
            m.d.sync += [self._by_row.eq(args.by_row), self._group.eq(args.group), self._size.eq(size)]
        powers = {name: ~(args[name] & (args[name] + 1)).any() for name in ("rows", "tiles", "features")}
        # Features of a tile that are no whole groups, by the group.
        ragged = Cat((args.features + 1)[:n].any() for n in range(1, 7))
        tile_count = Mux(groups | rows, args.tiles, 0)
        wrong = [
            args.a + tile_count >= self.slots,
            uses_b & (args.b + tile_count >= self.slots),
            args.a_row + args.rows >= EDGE,
            ~self._gathers & (args.o_row + args.rows >= EDGE),
            ~self._gathers & (args.o >= RESULTS),
            groups & (~powers["tiles"] | ~Mux(by_row, powers["features"], powers["rows"])),
            # mutant wraps-rows: Const(0, 1),
            self._more & (self._gathered + args.tiles >= ROW_TILES),
            norm & ~by_row & ((group == 7) | (Cat(Const(0, 1), ragged, Const(0, 1)) >> group)[0]),
            sums & (args.mantissa[EPS:].any() | (args.exponent > 0)),
            back_sums & by_row & (args.gain + args.tiles >= GAINS),
            soft_back & (args.exponent[-1] ^ args.exponent[-2]),
            pulls & args.exponent[6:].any(),
        ]
        wrong = Cat(register(each) for each in wrong)
        return register(wrong.any()) | register(groups & (size > SIZE)) | register(back_sums & (size != self._size))

    def _control(self, m, platform, begins):
        """Passes of a command, one after another.

        Returns the walk over its beats.
        """
        args, kind = self._args, self._kind
        walk = place(m, "walk", NormWalk(lanes=self.lanes), platform)
        tiles, goes_on = self._tiles, registered(m, any_of(self._opcode, WHOLE))
        self._columns = registered(m, any_of(self._opcode, GROUPS)) & ~self._by_row
        sums = Signal()
        m.d.comb += [
            sums.eq(any_of(kind, SUMS)),
            walk.start.eq(self._starts),
            walk.columns.eq(self._columns),
            walk.paced.eq(sums),
            walk.rows.eq(args.rows),
            walk.tiles.eq(tiles),
            walk.fill.eq(self._rows),
            walk.beats.eq(args.features >> self._side),
        ]
        # Tiles are looked at first, for the largest exponent.
        self._scan, self._scan_tile, self._refused = Signal(), Signal(4), Signal()
        settle = Mux(self._columns, self.settle(self.lanes, columns=True), self.settle(self.lanes))
        left = Signal(range(max(self.settle(self.lanes, columns=True), self.finish)))
        with m.FSM(name="pass"):
            with m.State("IDLE"):
                with m.If(begins):
                    m.d.sync += [
                        self._busy.eq(1),
                        kind.eq(Array(FIRST[opcode] for opcode in NormOpcode)[self._opcode]),
                        self._scan_tile.eq(0),
                    ]
                    m.next = "SCAN"
            with m.State("SCAN"):
                m.d.comb += self._scan.eq(1)
                m.d.sync += self._scan_tile.eq(self._scan_tile + 1)
                with m.If(self._scan_tile == tiles):
                    m.d.sync += [self._scan_tile.eq(0), left.eq(1)]
                    m.next = "SETTLE"
            with m.State("SETTLE"):
                m.d.sync += left.eq(left - 1)
                with m.If(left == 0):
                    m.next = "CHECK"
            with m.State("CHECK"):
                with m.If(self._refused):
                    m.d.sync += [self.engine.error.valid.eq(1), self.engine.error.code.eq(Error.BAD_OPERAND)]
                    m.next = "REFUSED"
                with m.Else():
                    m.d.comb += self._starts.eq(1)
                    m.next = "PASS"
            with m.State("REFUSED"):
                pass
            with m.State("PASS"):
                with m.If(walk.valid & walk.end):
                    m.d.sync += left.eq(Mux(sums, settle - 1, self.finish - 1))
                    m.next = "REST"
            with m.State("REST"):
                m.d.sync += left.eq(left - 1)
                with m.If(left == 0):
                    with m.If(goes_on & any_of(kind, GO_ON)):
                        m.d.sync += kind.eq(kind + 1)
                        m.next = "AGAIN"
                    with m.Else():
                        m.d.sync += self._busy.eq(0)
                        m.d.comb += self.engine.done.eq(1)
                        m.next = "IDLE"
            with m.State("AGAIN"):
                m.d.comb += self._starts.eq(1)
                m.next = "PASS"
        return walk

    def _operands(self, m, platform, walk):
        """Memories of operands, read where the walk is."""
        args, codes = self._args, max(self.lanes, _BEAT)
        intakes = {}
        for port, unit in (
            ("a", NormOperand(slots=self.slots, lanes=codes, both=True)),
            ("b", NormOperand(slots=self.slots, lanes=codes, both=False)),
            ("gain", NormGains(lanes=codes)),
        ):
            gain = port == "gain"
            memory = place(m, f"memory_{port}", unit, platform)
            slots = GAINS if gain else self.slots
            intake = records(m, self, port, platform, slots=slots, bits=WIDE, row=gain, both=port == "a")
            m.d.comb += [
                memory.write.eq(intake.write),
                memory.exponent.eq(intake.exponent),
                memory.half.eq((walk.beat << self._side) >> 3),
            ]
            intakes[port] = memory
        a, b, gains = (intakes[port] for port in ("a", "b", "gain"))
        tile = Mux(self._scan, self._scan_tile, walk.tile)
        m.d.comb += [
            a.slot.eq(args.a + tile),
            b.slot.eq(args.b + tile),
            a.row.eq(args.a_row + walk.row),
            b.row.eq(args.a_row + walk.row),
            # mutant one-gain: gains.gain.eq(args.gain),
            gains.gain.eq(args.gain + Mux(self._by_row, tile, 0)),
            gains.bias.eq(args.bias),
        ]
        self._at = {"a": a.at, "b": b.at, "gain": gains.gain_at, "bias": gains.bias_at}
        return a.codes, b.codes, gains.gains, gains.biases

    def _compare(self, m, bad):
        """Keeps the largest exponents of what is gathered.

        What follows is refused where an exponent is larger, as is a command whose operands are bad. Rows that go on
        fall to the new exponent.
        """
        opcode = self._opcode
        back = (opcode == NormOpcode.BACK_SUMS) | (opcode == NormOpcode.BACK)
        # Of x and of gradients times gains, among the tiles so far.
        self._x_at, self._gradient_at = Signal(signed(8)), Signal(signed(9))
        m.d.comb += [
            self._x_at.eq(self._at["a"]),
            self._gradient_at.eq(self._at["b"] + Mux(registered(m, self._soft_b), 0, self._at["gain"])),
        ]
        seen, first = delay(m, self._scan, 1, reset_less=False), delay(m, self._scan & (self._scan_tile == 0), 1)
        x_most, gradient_most = Signal(signed(8)), Signal(signed(9))
        with m.If(seen):
            m.d.sync += [
                x_most.eq(Mux(first | (self._x_at > x_most), self._x_at, x_most)),
                gradient_most.eq(Mux(first | (self._gradient_at > gradient_most), self._gradient_at, gradient_most)),
            ]
        self._top, self._gradient_top = Signal(signed(8), init=LEAST), Signal(signed(10))
        self._pull_at = Signal(signed(10))
        pulls, more = registered(m, self._kind == Kind.PULLS), self._more
        soft_back = registered(m, self._kind == Kind.SOFT_BACK)
        rises = more & (x_most > self._top), more & (gradient_most > self._gradient_top)
        x_rise = registered(m, Mux(rises[0], x_most - self._top, 0), 8)
        gradient_rise = registered(m, Mux(rises[1] & pulls, gradient_most - self._gradient_top, 0), 9)
        fall, self._fall = x_rise + gradient_rise, Signal(6)
        with m.If(self._starts):
            # mutant stays: m.d.sync += self._fall.eq(0)
            m.d.sync += self._fall.eq(fall[:6] | fall[6:].any().replicate(6))
        with m.If(self._starts & (self._sums_of_x | pulls | (self._kind == Kind.LARGEST)) & (rises[0] | ~more)):
            m.d.sync += self._top.eq(Mux(self._sums_of_x & (x_most < LEAST), LEAST, x_most))
        with m.If(self._starts & ((opcode == NormOpcode.BACK_SUMS) | pulls) & (rises[1] | ~more)):
            m.d.sync += self._gradient_top.eq(gradient_most)
        # Of a softmax's gradient pulls may have the larger exponent.
        # mutant of-gradients: larger = registered(m, gradient_most)
        larger = registered(m, Mux(self._pull_at > gradient_most, self._pull_at, gradient_most))
        with m.If(self._starts & soft_back):
            m.d.sync += self._gradient_top.eq(larger)
        follows = any_of(opcode, (NormOpcode.NORM, NormOpcode.POWERS, NormOpcode.SHARES))
        # mutant any-exponent: m.d.sync += Signal().eq(
        m.d.sync += self._refused.eq(
            bad
            | ((back | follows) & (x_most > self._top))
            | ((opcode == NormOpcode.BACK) & (gradient_most > self._gradient_top))
            | ((opcode == NormOpcode.SOFTMAX_BACK) & (x_most > -LIFT))
        )

    def _exponents(self, m):
        """Shifts that follow from exponents; returns that of results.

        What does not change during a pass is in registers that settle before its first lane has words.
        """
        register = partial(registered, m)
        args, at, kind = self._args, self._at, self._kind
        self._least = Signal(5)
        # Eps in units of the groups' words.
        up = register(
            register(args.exponent + (self._size << 1), signed(12)) - register(self._top << 1, signed(9)), signed(13)
        )
        over = register(up - EPS_SPAN, signed(14))
        beyond = over > 0
        self._half = Signal(8)
        self._eps, self._eps_shift = Signal(EPS, reset_less=True), Signal(6, reset_less=True)
        below = register(-up, signed(14))
        up = register(up)
        with m.If(self._sums_of_x):
            m.d.sync += [
                self._half.eq(Mux(beyond, (over + 1) >> 1, 0)),
                self._eps_shift.eq(Mux(beyond, EPS_SPAN - over[0], Mux(up < 0, 0, up[:6]))),
                self._eps.eq(args.mantissa >> register(Mux(below > 0, Mux(below > 31, 31, below[:5]), 0), 5)),
            ]
        self._down = register(Mux(self._half > 31, 63, Cat(Const(0, 1), self._half[:5])), 6)
        # A softmax's argument, and the pull of its gradient.
        near = register(POWER_FRAC - POWER - register(self._top + args.exponent, signed(12)), signed(13))
        self._near = register(Mux(near < 0, 0, Mux(near > 63, 63, near)), 6)
        pull, pull_least = register(-LIFT - self._top, signed(9)), Signal(6, reset_less=True)
        m.d.sync += pull_least.eq(Mux(self._opcode == NormOpcode.PULLS, args.exponent, 0))
        # mutant all-bits: pull_down = pull
        pull_down = register(Mux(pull < pull_least, pull_least, pull), signed(9))
        self._pull_down = register(Mux(pull_down > 63, 63, pull_down), 6)
        pull_top = register(register(self._top + self._gradient_top, signed(10)) + pull_down, signed(10))
        with m.If(kind == Kind.PULLS):
            m.d.sync += self._pull_at.eq(pull_top + LIFT)
        beyond_it = register(self._gradient_top - self._pull_at, signed(11))
        # mutant same-unit: self._level_down = Const(0, 6)
        self._level_down = register(Mux(kind != Kind.SOFT_BACK, 0, Mux(beyond_it > 63, 63, beyond_it)), 6)
        # Gain and bias.
        bias_at = register(at["bias"] - BIAS_LIFT, signed(9))
        gain_at = register(at["gain"])
        top = register(Mux(gain_at > bias_at, gain_at, bias_at), signed(9))
        gain_down = register(top - register(gain_at), signed(10))
        bias_down = register(top - register(bias_at), signed(10))
        self._gain_down = register(Mux(gain_down > 31, 31, gain_down), 5)
        self._bias_down = register(Mux(bias_down > 63, 63, bias_down), 6)
        # Results.
        lost = register(self._least + register(self._half + self._top, signed(10)), signed(11))
        back = register(self._gradient_top + self._size + (NARROWED - ROOT_FRAC - SPREAD), signed(11))
        soft = register(at["a"] + self._gradient_top + (FACTOR - LIFT), signed(11))
        exponent = Signal(signed(EXPONENT))
        with m.Switch(kind):
            with m.Case(Kind.NORM):
                m.d.sync += exponent.eq(top - UNIT)
            with m.Case(Kind.BACK):
                m.d.sync += exponent.eq(back - lost)
            with m.Case(Kind.SOFT_BACK):
                m.d.sync += exponent.eq(soft + args.exponent)
            with m.Default():
                m.d.sync += exponent.eq(-POWER)
        return exponent

    def _lanes(self, m, platform, walk, operands):
        """The lanes, and which of a beat's elements count.

        These are a cycle behind the walk.
        """
        register = partial(registered, m)
        args, kind = self._args, self._kind
        known = self._known = place(m, "known", NormKnown(lanes=self.lanes), platform)
        first = register(Mux(self._opcode == NormOpcode.PULLS, args.first, 0))
        left, skip = Signal(7), Signal(signed(7))
        mask = Signal(self.lanes, reset_less=True)
        norm = self._opcode <= NormOpcode.BACK
        m.d.comb += [
            left.eq(args.features - (walk.beat << self._side)),
            skip.eq(first - (walk.beat << self._side)),
            known.columns.eq(norm & ~self._by_row),
            known.size.eq(self._group),
            known.row.eq(args.a_row + walk.row),
            known.beat.eq(walk.beat),
        ]
        m.d.sync += mask.eq(Cat((walk.full | (left >= n)) & (skip <= n) for n in range(self.lanes)))
        counts = register(mask)
        # Of stage 3: shifts of x, or of a softmax's gradient, and of gradients times gains, or probabilities.
        x_less = register(self._top - self._x_at, signed(9))
        gradient_less = register(self._gradient_top - self._gradient_at, signed(11))
        less = Mux(register(kind == Kind.SOFT_BACK), gradient_less, x_less)
        down = register(less[:5] | less[5:].any().replicate(5), 5)
        both = gradient_less + Mux(register(kind == Kind.PULLS), x_less, NARROWED)
        narrow = register(both[:6] | both[6:].any().replicate(6), 6)
        # Of a beat of memory the part that the walk is at.
        part = register(walk.beat[0]) if self.lanes < _BEAT else 0
        codes = [register(beat.word_select(part, 16 * self.lanes)) for beat in operands]
        # A row's largest score or pull is the same for all lanes; by two bits of the shift at a time.
        level = register(register(known.slopes[0].mean))
        for bits in (0b110000, 0b001100, 0b000011):
            level = register(level >> (self._level_down & bits), signed(PULL_WORD))
        lanes = []
        for n in range(self.lanes):
            lane = place(m, f"lane_{n}", NormLane(), platform)
            group, slope = known.groups[n], known.slopes[n]
            deep = group.exponent + self._half
            m.d.comb += [
                lane.kind.eq(kind),
                lane.size.eq(self._size),
                lane.factor.eq(args.mantissa),
                lane.near.eq(self._near),
                lane.level.eq(level),
                lane.gain_down.eq(self._gain_down),
                lane.bias_down.eq(self._bias_down),
                *(
                    getattr(lane, name).eq(beat.word_select(n, 16))
                    for name, beat in zip(("a", "b", "gain", "bias"), codes)
                ),
                lane.counts.eq(counts[n]),
                lane.down.eq(down),
                lane.narrow.eq(narrow),
                lane.group.eq(register(group)),
                lane.slope.eq(register(slope)),
                lane.shift.eq(register(Mux(deep > 63, 63, deep), 6)),
                lane.fine.eq(
                    register(
                        Mux(
                            kind == Kind.SOFT_BACK,
                            SPREAD,
                            Mux(group.exponent < self._least, 0, group.exponent - self._least),
                        ),
                        5,
                    )
                ),
            ]
            lanes.append(lane)
        return lanes, mask

    def _sums(self, m, platform, walk, lanes, there, counts):
        """Sums of the lanes' words, and what they make known.

        Returns whether one was clipped.
        """
        args, kind, known = self._args, self._kind, self._known
        sums = place(m, "sums", NormSums(lanes=self.lanes), platform)
        statistics = place(m, "statistics", NormStatistics(), platform)
        m.d.comb += [
            sums.columns.eq(self._columns),
            sums.largest.eq(registered(m, kind == Kind.LARGEST)),
            sums.group.eq(self._group),
            sums.features.eq(args.features),
            sums.more.eq(self._more),
            sums.fall.eq(self._fall),
            sums.ahead.eq(args.a_row + delay(m, walk.row, _TO_WORDS - NormSums.lead(self.lanes))),
            *(sums.i[name].eq(there[name]) for name in ("first", "last", "beat")),
            sums.i.valid.eq(there.valid & any_of(kind, SUMS)),
            sums.i.row.eq(args.a_row + there.row),
            sums.i.mask.eq(counts),
            *(sums.i.words[n].eq(lane.word) for n, lane in enumerate(lanes)),
            *(sums.i.seconds[n].eq(lane.second) for n, lane in enumerate(lanes)),
            statistics.i.eq(sums.o),
            statistics.kind.eq(kind),
            statistics.size.eq(self._size),
            statistics.eps.eq(self._eps),
            statistics.eps_shift.eq(self._eps_shift),
            statistics.down.eq(self._down),
            statistics.pull_down.eq(self._pull_down),
            statistics.begin.eq(self._starts & self._sums_of_x),
            known.group.eq(statistics.group),
            known.slope.eq(statistics.slope),
            self._least.eq(statistics.least),
        ]
        return statistics.clipped
