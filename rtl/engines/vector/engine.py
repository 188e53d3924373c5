"""The vector engine: elementwise operations, norms and softmax."""

from types import SimpleNamespace
from typing import NamedTuple

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from ...formats.linear import MASTER, WEIGHT
from ...formats.vector import (
    ELEMENTS,
    EPS_SHIFT,
    EXPONENT_FRAC,
    LEAST_GATE,
    LEVEL,
    PULLED,
    TERM,
    LossWord,
    VectorOpcode,
    VectorOperands,
)
from ...hierarchy import place
from ...shell.registers.errors import Error
from ...shell.signature import EngineSignature
from ...stream.delay import delay
from ...stream.product import narrow_product
from .halves import Halves
from .lane import BASE, PIECE, PRODUCT, TABLE, Factor, Fold, Lane, Other, Scale
from .maxima import Maxima
from .roots import Roots, RootWord, RowSums
from .walk import Walk

__all__ = ["VectorEngine"]


class _Action(NamedTuple):
    """Operation of the lanes on a beat in one cycle."""

    scale: Scale = Scale.UNIT
    factor: Factor = Factor.UNIT
    other: Other = Other.NONE
    fold: Fold = Fold.NONE
    second: int = 0  # the first operand is b
    slope: int = 0  # the table is SiLU's slope, not the sigmoid
    sums: int = 0  # the products are added up
    o: int = 0
    q: int = 0


_ACTIONS = {
    VectorOpcode.SWIGLU: (_Action(factor=Factor.B, other=Other.TABLE, o=1),),
    VectorOpcode.SWIGLU_BACKWARD: (
        _Action(factor=Factor.C, other=Other.TABLE, q=1),
        _Action(factor=Factor.C, other=Other.TABLE, second=1, slope=1, o=1),
    ),
    VectorOpcode.NORM_SUMS: (_Action(factor=Factor.A, sums=1),),
    VectorOpcode.NORM: (_Action(Scale.ROOT, Factor.WEIGHT, o=1),),
    VectorOpcode.NORM_BACKWARD_SUMS: (
        _Action(factor=Factor.A, sums=1),
        _Action(Scale.WEIGHT, Factor.A, second=1, sums=1),
    ),
    VectorOpcode.NORM_BACKWARD: (_Action(Scale.WEIGHT, Factor.ROOT, Other.PULL, Fold.MINUS, second=1, o=1),),
    VectorOpcode.ADD: (_Action(other=Other.WORD, fold=Fold.PLUS, o=1),),
    # Where rows turn backward or in their second half, the engine changes the sign.
    VectorOpcode.ROPE: (_Action(Scale.COSINE, other=Other.TURN, fold=Fold.MINUS, o=1),),
    VectorOpcode.SOFTMAX_SUMS: (_Action(other=Other.TABLE, sums=1),),
    VectorOpcode.SOFTMAX: (_Action(other=Other.TABLE, o=1),),
    VectorOpcode.SOFTMAX_BACKWARD_SUMS: (_Action(factor=Factor.B, sums=1),),
    VectorOpcode.SOFTMAX_BACKWARD: (_Action(factor=Factor.A, other=Other.ROW, fold=Fold.MINUS, second=1, o=1),),
    VectorOpcode.SCALE: (_Action(factor=Factor.WEIGHT, o=1),),
    VectorOpcode.SCALE_BACKWARD: (_Action(factor=Factor.B, q=1), _Action(factor=Factor.WEIGHT, second=1, o=1)),
}
_ACTIONS[VectorOpcode.NORM_BACKWARD_GAIN] = (_Action(Scale.ROOT, Factor.B, q=1), *_ACTIONS[VectorOpcode.NORM_BACKWARD])
_NORMS = (
    VectorOpcode.NORM_SUMS,
    VectorOpcode.NORM,
    VectorOpcode.NORM_BACKWARD_SUMS,
    VectorOpcode.NORM_BACKWARD,
    VectorOpcode.NORM_BACKWARD_GAIN,
)
_SCALES = (VectorOpcode.SCALE, VectorOpcode.SCALE_BACKWARD)
_POWERS = (VectorOpcode.SOFTMAX_SUMS, VectorOpcode.SOFTMAX)
_PULLS = (VectorOpcode.SOFTMAX_BACKWARD_SUMS, VectorOpcode.SOFTMAX_BACKWARD)
_PLAIN = (VectorOpcode.WEIGHTS, VectorOpcode.TARGETS)
_SUMS = (
    VectorOpcode.NORM_SUMS,
    VectorOpcode.NORM_BACKWARD_SUMS,
    VectorOpcode.SOFTMAX_SUMS,
    VectorOpcode.SOFTMAX_BACKWARD_SUMS,
)
_USES_B = (
    VectorOpcode.SWIGLU,
    VectorOpcode.SWIGLU_BACKWARD,
    VectorOpcode.ADD,
    VectorOpcode.NORM_BACKWARD_SUMS,
    VectorOpcode.NORM_BACKWARD,
    VectorOpcode.NORM_BACKWARD_GAIN,
    VectorOpcode.SCALE_BACKWARD,
    *_PULLS,
)
_TWO = (
    VectorOpcode.SWIGLU_BACKWARD,
    VectorOpcode.NORM_BACKWARD_SUMS,
    VectorOpcode.NORM_BACKWARD_GAIN,
    VectorOpcode.SCALE_BACKWARD,
)
_TAG = data.StructLayout(
    {
        "valid": 1,
        "phase": 1,
        "first": 1,
        "last": 1,
        "opening": 1,
        "later": 1,
        "scale": Scale,
        "factor": Factor,
        "other": Other,
        "fold": Fold,
        "second": 1,
        "slope": 1,
        "sums": 1,
        "o": 1,
        "q": 1,
    }
)


class VectorEngine(wiring.Component):
    """Streams tensors through lanes of three multipliers each.

    One operation a command.

    Opcodes and operands: :class:`VectorOpcode`, :data:`VectorOperands`; bit for bit the functions of the reference.
    A tensor is ``tiles`` of features, in each a row of ``row`` beats of each of ``tokens`` tokens: the layout of the
    linear engines' tensors with ``row = edge / lanes``, or whole rows with ``tiles = 1``.

    ::

        a, b, c --+--------------------------+--> lanes --+--> queues of results --> o, q
                  +--> halves of ROPE's rows +      |     +--> magnitudes, losses
                  +--> weights, targets -----+      |
                                             |      +--> maxima and sums of rows
                       what is known of rows +                   |
                                 ^                               v
                                 +---------------------------- roots

    Norms and softmaxes read a tensor twice, first for the sums of rows, then for results, because the rows of all
    tokens are spread over all tiles: to keep them would take ``tokens`` rows on chip. TARGETS brings ``row * tiles``
    beats with a target a token; SOFTMAX with ``targets`` then gives 0 for tokens without one, p less 1 at a target that
    is in the row and counts, and last a beat at q: :data:`LossWord`, of whose words only as many as there are lanes.

    Cycles, of a command that is taken in cycle 0:

    - From cycle :attr:`start` on, a beat of operands is taken in each cycle in which all that it needs are there and
      fewer than :attr:`under_way` results had yet to leave two cycles ago, those of a beat taken then not among them.
      SWIGLU_BACKWARD, SCALE_BACKWARD, NORM_BACKWARD_SUMS and NORM_BACKWARD_GAIN take two cycles a beat, and its
      operands in the second: all need at least as many operand beats from memory.
    - A result is offered :attr:`latency` cycles after its operands were taken, q of a gradient one earlier. ROPE
      takes up to two rows in advance; a row goes through the lanes, a beat a cycle, from the cycle after its last beat.
    - ``done`` comes :attr:`finish` cycles after the last result left, or the last beat of WEIGHTS or TARGETS was taken.
      With ``targets`` the beat at q is offered one cycle before that, ``done`` :attr:`tell` cycles after it was taken.
    - Of sums, it comes :attr:`settled` cycles after the last operands were taken, and one a token more
      (NORM_BACKWARD_SUMS: two).

    Parameters
    ----------
    lanes : int
        Elements a beat, a power of two from 2 to 16.
    tokens : int
        Most tokens of a norm, a power of two.
    features : int
        Most features of a norm, a power of two up to 2048.
    head : int
        Largest row that ROPE turns, elements.
    depth : int
        Places for results of either kind; all but 3 are used.

    Members
    -------
    engine : see :class:`EngineSignature`. ``BAD_OPERAND``: a size that is 0 or too large (a row of SOFTMAX has up to
        2**17 elements, of its gradient 2**12); rows of a norm or a softmax below 2 beats; rows of ROPE that are no
        power of two from 2; ``eps_shift`` above 44; ``gate`` of SOFTMAX below 4.
    a, b, c : operands, beats of 32-bit words of which 25 count, of WEIGHTS and of angles 18, of TARGETS all. o, q :
        results.
    saturated : how many words, terms and sums of a softmax's gradient were clipped, cycle by cycle.
    o_magnitude, q_magnitude : bits of the largest result of the last command before it was clipped, without its sign;
        right from ``done`` to the next command.
    """

    #: Cycles from a command taken to the first operands, from operands to their result, from the last result to
    #: ``done``, and from the beat that tells of targets to ``done``.
    start, latency, finish, tell = 4, Lane.latency + 2, 10, 2

    def __init__(self, *, lanes=8, tokens=64, features=2048, head=128, depth=64):
        for name, value, low, high in (
            ("lanes", lanes, 2, 16),
            ("tokens", tokens, 2, 4096),
            ("features", features, 2 * lanes, 2048),
            ("head", head, 2 * lanes, 1024),
            ("depth", depth, 64, 4096),
        ):
            if not low <= value <= high or value & (value - 1):
                raise ValueError(f"{name}={value}: must be a power of two from {low} to {high}")
        self.lanes, self.tokens, self.features, self.head, self.depth = lanes, tokens, features, head, depth
        beats = stream.Signature(MASTER.width * lanes)
        super().__init__(
            {
                "engine": In(EngineSignature()),
                "a": In(beats),
                "b": In(beats),
                "c": In(beats),
                "o": Out(beats),
                "q": Out(beats),
                "saturated": Out(range(2 * lanes + 1)),
                "o_magnitude": Out(range(PRODUCT + 1)),
                "q_magnitude": Out(range(PRODUCT + 1)),
            }
        )

    @property
    def settled(self):
        """Cycles from the last operands of sums to ``done``.

        The cycles that each token takes are not included.
        """
        return 2 * self._settle + 3

    @property
    def under_way(self):
        """Results that may be on their way when more operands are taken."""
        return self.depth - 3

    @property
    def _settle(self):
        """Upper bound of the cycles from the last operands to the last sum.

        Also of those from the last sum to the values computed from it.
        """
        return Lane.latency + RowSums.latency(self.lanes) + 4

    def elaborate(self, platform):
        m = Module()
        finished = Signal()
        opcode, args, begin, running = self._commands(m, finished)
        op = Signal(range(len(VectorOpcode)))
        m.d.comb += op.eq(opcode)

        walk, halves, arrivals = self._place_walks(m)
        kinds = self._kinds(m, op, args)
        self._start_walks(m, args, begin, kinds, (walk, arrivals))
        self._turn(m, args, begin, running, kinds, walk, halves, arrivals)
        beat = self._take(m, op, args, running, kinds, walk, halves)
        line = self._tag(m, op, args, kinds, walk, beat)
        known, write_row = self._recall(m, op, kinds, walk, beat)
        moves = self._moves(m, args, kinds, beat, known, line)
        maxima, token5 = self._maxima(m, kinds, walk, line)
        masked, hit = self._masks(m, op, args, walk, known.weight.data, line)
        sums = self._sums(m, platform, kinds, beat, line, maxima, token5)
        words, clipped, sizes, exponents = self._lanes(
            m, platform, args, kinds, beat, line, halves, known, moves, maxima, masked, hit, sums
        )

        roots = place(m, "roots", Roots(), platform)
        counts, lost = Signal.like(self.saturated), Signal()
        m.d.comb += counts.eq(sum(clipped))
        m.d.sync += self.saturated.eq(Mux(line[24].valid, counts, lost))
        report, telling = self._losses(m, exponents, hit, begin), Signal()
        empty = self._results(m, line, words, sizes, begin, beat.room, beat.go, report, telling)
        m.d.comb += finished.eq(
            self._finish(m, op, args, walk, sums, maxima, roots, write_row, running, empty, lost, telling)
        )
        return m

    def _place_walks(self, m):
        """Places the walk over the operands.

        For ROPE, also the halves of rows and the walk of the arriving operands.
        """
        side = (self.lanes - 1).bit_length()
        walk = Walk(row=9, tokens=13, tiles=10, weights=ELEMENTS - side)
        m.submodules.walk = walk
        halves = Halves(depth=self.head // self.lanes, turned=self.lanes * TERM.width, angle=self.lanes * WEIGHT.width)
        m.submodules.halves = halves
        m.submodules.arrivals = arrivals = Walk(row=9, tokens=13, tiles=10, weights=1)
        return walk, halves, arrivals

    def _kinds(self, m, op, args):
        """Registers what kind of operation the command is."""
        rope, plain, power, sharp, single = (
            Signal(name=name) for name in ("rope", "plain", "power", "sharp", "single")
        )
        m.d.sync += [
            rope.eq(op == VectorOpcode.ROPE),
            plain.eq(_any(op, _PLAIN)),
            power.eq(_any(op, _POWERS)),
            sharp.eq(op == VectorOpcode.SOFTMAX_SUMS),
            single.eq(args.tokens == 1),
        ]
        return SimpleNamespace(rope=rope, plain=plain, power=power, sharp=sharp, single=single)

    def _start_walks(self, m, args, begin, kinds, walks):
        """Starts each walk over the command's tensor.

        The tensor of WEIGHTS and TARGETS has one token.
        """
        for each in walks:
            m.d.comb += each.start.eq(begin)
            m.d.sync += [
                each.row.eq(args.row - 1),
                each.tiles.eq(args.tiles - 1),
                each.tokens.eq(Mux(kinds.plain, 0, args.tokens - 1)),
            ]

    def _turn(self, m, args, begin, running, kinds, walk, halves, arrivals):
        """Puts ROPE's operands into ``halves`` as they arrive.

        The lanes take them from there.
        """
        rope = kinds.rope
        m.d.comb += [
            halves.start.eq(begin),
            halves.row.eq(args.row),
            halves.i_turned.eq(self._cut(self.a.p, TERM.width)),
            halves.i_angle.eq(self._cut(self.b.p, WEIGHT.width)),
            halves.put.eq(running & rope & arrivals.busy & self.a.valid & self.b.valid & halves.put_ready),
            arrivals.step.eq(halves.put),
            halves.take.eq(walk.step & rope),
        ]

    def _take(self, m, op, args, running, kinds, walk, halves):
        """Takes a beat of operands when its inputs are there.

        Its results must have room.
        """
        rope = kinds.rope
        two, uses_b, uses_c, wide = (Signal(name=name) for name in ("two", "uses_b", "uses_c", "wide"))
        m.d.sync += [
            wide.eq(args.wide & (op == VectorOpcode.ADD)),
            two.eq(_any(op, _TWO)),
            uses_b.eq(_any(op, _USES_B)),
            uses_c.eq(op == VectorOpcode.SWIGLU_BACKWARD),
        ]
        phase, room, go = (Signal(name=name) for name in ("phase", "room", "go"))
        there = Mux(rope, halves.take_valid, self.a.valid & (self.b.valid | ~uses_b) & (self.c.valid | ~uses_c))
        m.d.comb += [
            go.eq(running & walk.busy & room & there),
            walk.step.eq(go & (phase | ~two)),
            self.a.ready.eq(Mux(rope, halves.put, walk.step)),
            self.b.ready.eq(Mux(rope, halves.put, walk.step & uses_b)),
            self.c.ready.eq(walk.step & uses_c),
        ]
        with m.If(go):
            m.d.sync += phase.eq(~phase & two)
        return SimpleNamespace(phase=phase, room=room, go=go, two=two, wide=wide)

    def _tag(self, m, op, args, kinds, walk, beat):
        """Makes the tag of this cycle's beat.

        ``[n]`` of the result is of the beat at stage ``n``.
        """
        phase = beat.phase
        tag = Signal(_TAG)
        with m.Switch(Cat(op, phase)):
            for name, actions in _ACTIONS.items():
                for n, action in enumerate(actions):
                    with m.Case(name | n << len(op)):
                        m.d.comb += [tag[field].eq(value) for field, value in action._asdict().items()]
        later = Signal()  # the second half of a row of ROPE
        m.d.comb += [
            tag.valid.eq(beat.go & ~kinds.plain),
            tag.phase.eq(phase),
            tag.first.eq(walk.first),
            tag.last.eq(walk.last),
            tag.opening.eq(walk.opening),
            later.eq((walk.at & (args.row >> 1)).any()),
            tag.later.eq(later ^ args.turn),
        ]
        line = [tag]
        for n in range(Lane.latency):
            line.append(Signal(_TAG, name=f"tag_{n + 1}"))
            m.d.sync += line[-1].eq(line[-2])
        return line

    def _recall(self, m, op, kinds, walk, beat):
        """Holds weights, targets and values of rows, and reads them.

        Those of this cycle's beat are there a cycle later.
        """
        depth, side, power = self.features // self.lanes, (self.lanes - 1).bit_length(), kinds.power
        # Targets lie behind the weights.
        behind = max(depth, self.tokens // self.lanes, 1)
        m.submodules.weights = weights = Memory(
            shape=self.lanes * WEIGHT.width, depth=behind + max(self.tokens // self.lanes, 1), init=[]
        )
        write, weight = weights.write_port(), weights.read_port()
        own, aims = Signal((behind - 1).bit_length()), Signal()
        m.d.sync += aims.eq(op == VectorOpcode.TARGETS)
        m.d.comb += [
            own.eq(Mux(power, walk.token >> side, walk.weight)),
            write.addr.eq(Cat(own, aims)),
            write.en.eq(beat.go & kinds.plain),
            write.data.eq(
                Cat(
                    *(
                        Cat(word[:ELEMENTS], word[ELEMENTS] | (aims & word[ELEMENTS:].any()))
                        for word in self._words(self.a.p)
                    )
                )
            ),
            weight.addr.eq(Cat(own, power)),
        ]
        m.submodules.rows = rows = Memory(shape=RootWord.size, depth=self.tokens, init=[])
        write_row, read_row = rows.write_port(), rows.read_port()
        root = Signal(RootWord)
        m.d.comb += [read_row.addr.eq(walk.token), root.eq(read_row.data)]
        level = Signal(LEVEL, reset_less=True)
        m.d.sync += level.eq(Mux(power & ~kinds.sharp, read_row.data[: LEVEL.width], 0))
        level = delay(m, level, 2)
        return SimpleNamespace(weight=weight, row=read_row.data, root=root, level=level), write_row

    def _moves(self, m, args, kinds, beat, known, line):
        """Gives a beat's shifts and folds, each at the stage that uses it."""
        root = known.root
        pull11, exponent12 = delay(m, root.pull_shift, 10), delay(m, root.exponent, 11)
        # A stage early, and registered.
        right = Signal(6, reset_less=True)
        left, shift, moved = Signal(6, reset_less=True), Signal(6, reset_less=True), Signal(signed(8), reset_less=True)
        fold = Signal(Fold, reset_less=True)
        m.d.sync += [
            right.eq(Mux(line[11].other == Other.PULL, pull11, args.right)),
            left.eq(Mux(line[12].scale == Scale.ROOT, exponent12, Mux(line[12].phase, args.right, args.left))),
            fold.eq(Mux(kinds.rope, Mux(line[13].later, Fold.PLUS, Fold.MINUS), line[13].fold)),
            moved.eq(
                Mux(beat.two & ~line[18].phase, args.second_shift, args.shift)
                + Mux(line[18].factor == Factor.ROOT, delay(m, exponent12, 6), 0)
            ),
            shift.eq(Mux(moved < 0, 0, moved[:6] | moved[6].replicate(6))),
        ]
        return SimpleNamespace(right=right, left=left, shift=shift, fold=fold)

    def _maxima(self, m, kinds, walk, line):
        """Finds the maxima of a softmax's rows; gives the token at stage 5, too."""
        maxima = Maxima(lanes=self.lanes, tokens=self.tokens)
        m.submodules.maxima = maxima
        token5 = delay(m, walk.token[: len(maxima.tag.token)], 5)
        m.d.comb += [
            maxima.active.eq(kinds.sharp),
            maxima.single.eq(kinds.single),
            maxima.tag.valid.eq(line[5].valid),
            maxima.tag.first.eq(line[5].first),
            maxima.tag.last.eq(line[5].last),
            maxima.tag.start.eq(line[5].opening),
            maxima.tag.token.eq(token5),
        ]
        return maxima, token5

    def _sums(self, m, platform, kinds, beat, line, maxima, token5):
        """Adds up the lanes' products by rows."""
        sums = place(m, "sums", RowSums(lanes=self.lanes, tokens=self.tokens), platform)
        m.d.comb += [
            sums.tag.valid.eq(line[20].valid & line[20].sums),
            sums.tag.along.eq(line[20].phase),
            sums.tag.first.eq(line[20].first),
            sums.tag.last.eq(line[20].last),
            sums.tag.start.eq(line[20].opening),
            sums.tag.token.eq(delay(m, token5, 15)),
            sums.single.eq(kinds.single),
            sums.two.eq(beat.two),
            sums.power.eq(kinds.sharp),
            # Last a register that can be reset, which no shift register takes in: the longest way begins there.
            sums.fall.eq(delay(m, delay(m, maxima.fall, 8 + sums.fall_latency(self.lanes)), 1, reset_less=False)),
        ]
        return sums

    def _lanes(self, m, platform, args, kinds, beat, line, halves, known, moves, maxima, masked, hit, sums):
        """Places the lanes.

        Returns for each lane its word, its clipped values, the word's size, and the exponent of a target.
        """
        rope, power, root = kinds.rope, kinds.power, known.root
        words, clipped, sizes, exponents = [], [], [], []
        for n in range(self.lanes):
            lane = place(m, f"lane_{n}", Lane(), platform)
            if n % 2 == 0:
                m.submodules[f"table_{n}"] = table = Memory(shape=BASE + 12, depth=3 << PIECE, init=TABLE)
            piece = table.read_port()
            own = self.a.p.word_select(n, MASTER.width)[: TERM.width]
            turned = halves.own.word_select(n, TERM.width)
            cosine = halves.first.word_select(n, WEIGHT.width).as_signed()
            sine = halves.second.word_select(n, WEIGHT.width).as_signed()
            m.d.comb += [
                lane.a.eq(Mux(rope, turned, own)),
                lane.b.eq(Mux(rope, cosine, self.b.p.word_select(n, MASTER.width)[: TERM.width].as_signed())),
                lane.c.eq(Mux(rope, sine, self.c.p.word_select(n, MASTER.width)[: TERM.width].as_signed())),
                lane.d.eq(halves.other.word_select(n, TERM.width)),
                lane.weight.eq(known.weight.data.word_select(n, WEIGHT.width)),
                lane.gate.eq(args.gate),
                lane.wide.eq(beat.wide),
                piece.addr.eq(Cat(lane.piece, line[5].slope, power)),
                lane.base.eq(piece.data[:BASE]),
                lane.slope.eq(piece.data[BASE:]),
                lane.other.eq(line[1].other),
                lane.second.eq(line[1].second),
                lane.scale.eq(line[1].scale),
                lane.factor.eq(line[1].factor),
                lane.pull.eq(root.pull),
                lane.root.eq(root.mantissa),
                lane.row.eq(known.row[: TERM.width].as_signed()),
                lane.power.eq(power),
                lane.sharp.eq(kinds.sharp),
                lane.level.eq(known.level),
                lane.masked.eq(masked[n]),
                lane.hit.eq(delay(m, hit[n], 10)),
                lane.top.eq(maxima.top),
                maxima.wholes[n].eq(lane.whole),
                lane.right.eq(moves.right),
                lane.fold.eq(moves.fold),
                lane.left.eq(moves.left),
                lane.shift.eq(moves.shift),
                sums.products[n].eq(lane.product),
            ]
            words.append(lane.word)
            clipped += [lane.clipped & (line[24].o | line[24].q), lane.term_clipped]
            sizes.append(lane.rounded[:-1] ^ lane.rounded[-1].replicate(PRODUCT))
            exponents.append(Mux(delay(m, hit[n], 1), lane.exponent, 0))
        return words, clipped, sizes, exponents

    def _words(self, beat):
        return [beat.word_select(n, MASTER.width) for n in range(self.lanes)]

    def _cut(self, beat, width):
        """The low ``width`` bits of each word of a beat."""
        return Cat(*(word[:width] for word in self._words(beat)))

    def _masks(self, m, op, args, walk, targets, line):
        """``(masked, hit)``, a bit a lane, at stage 4.

        ``masked``: the element does not count. ``hit``: the element is the target.
        """
        side = (self.lanes - 1).bit_length()
        active = Signal()
        m.d.sync += active.eq((op == VectorOpcode.SOFTMAX) & args.targets)
        # Stage 1: place of the beat; 2: the last element that counts, and the target; 3: where they are in this beat.
        last, target = Signal(ELEMENTS + 1, reset_less=True), Signal(WEIGHT.width, reset_less=True)
        token = delay(m, walk.token, 1)
        m.d.sync += [
            last.eq(args.limit + Mux(args.causal, token, 0)),
            target.eq(targets.word_select(token[:side], WEIGHT.width)),
        ]
        beat = delay(m, walk.weight, 2)
        none = target[ELEMENTS]
        beyond, ends, meets, empty = (
            Signal(name=name, reset_less=True) for name in ("beyond", "ends", "meets", "empty")
        )
        m.d.sync += [
            beyond.eq(beat > last[side:]),
            ends.eq(beat == last[side:]),
            empty.eq(active & none),
            meets.eq(active & ~none & line[2].valid & (beat == target[side:ELEMENTS])),
        ]
        end, at = delay(m, last[:side], 1), delay(m, target[:side], 1)
        masked, hit = (Signal(self.lanes, name=name, reset_less=True) for name in ("masked", "hit"))
        for n in range(self.lanes):
            over = beyond | (ends & (n > end)) if n else beyond
            m.d.sync += [masked[n].eq(over | empty), hit[n].eq(~over & meets & (at == n))]
        return masked, hit

    def _losses(self, m, exponents, hit, begin):
        """The beat of the targets' losses.

        It is made from their exponents (stage 5) and their ``hit`` (stage 4).
        """
        exponent, hits = Signal.like(exponents[0], reset_less=True), Signal(2, name="hits")
        m.d.sync += [exponent.eq(_either(exponents)), hits.eq(Cat(hit.any(), hits))]
        tokens = Signal(range(self.tokens + 1))
        loss = Signal(len(exponent) + len(tokens))
        with m.If(begin):
            m.d.sync += [loss.eq(0), tokens.eq(0)]
        with m.Elif(hits[1]):
            # mutant exponents-above-0: m.d.sync += [loss.eq(loss - exponent), tokens.eq(tokens + 1)]
            m.d.sync += [loss.eq(loss - Mux(exponent[-1], exponent, 0)), tokens.eq(tokens + 1)]
        report = Signal(LossWord)
        m.d.comb += [report.loss.eq(loss[EXPONENT_FRAC - 16 :]), report.tokens.eq(tokens)]
        return report

    def _commands(self, m, finished):
        """``(opcode, args, begin, running)`` of the checked command.

        ``begin`` is a pulse at its start, ``running`` is high while it runs.
        """
        port = self.engine
        opcode, args = Signal(8), Signal(VectorOperands)
        idle = Signal(init=1)
        measuring, judging, begin, running = (
            Signal(name=name) for name in ("measuring", "judging", "begin", "running")
        )
        beats = Signal(19)
        most, bad, known = Signal(19), Signal(), Signal()
        rows, rope, plain, powers = Signal(), Signal(), Signal(), Signal()
        m.d.comb += port.command.ready.eq(idle & ~port.error.valid)
        with m.If(port.command.valid & port.command.ready):
            m.d.sync += [
                opcode.eq(port.command.payload.opcode),
                args.eq(port.command.payload.args),
                idle.eq(0),
                measuring.eq(1),
            ]
        with m.If(measuring):
            m.d.sync += [
                measuring.eq(0),
                judging.eq(1),
                beats.eq(narrow_product(args.tiles, args.row)),
                known.eq(opcode <= max(VectorOpcode)),
                rope.eq(opcode == VectorOpcode.ROPE),
                plain.eq(_any(opcode, _PLAIN)),
                powers.eq(_any(opcode, _POWERS)),
                rows.eq(_any(opcode, _NORMS + _POWERS + _PULLS)),
                most.eq((1 << len(most)) - 1),
            ]
            for opcodes, elements in (
                (_NORMS, self.features),
                ((VectorOpcode.WEIGHTS, *_SCALES), self.features),
                ((VectorOpcode.TARGETS,), max(self.tokens, self.lanes)),
                (_POWERS, 1 << ELEMENTS),
                (_PULLS, 1 << PULLED),
            ):
                with m.If(_any(opcode, opcodes)):
                    m.d.sync += most.eq(elements // self.lanes)
        half = self.head // self.lanes
        uneven = (args.row & (args.row - 1)).any() | (args.row < 2) | (args.row > half)
        m.d.comb += bad.eq(
            (args.row == 0)
            | (args.tiles == 0)
            | (~plain & (args.tokens == 0))
            | (args.eps_shift > EPS_SHIFT)
            | (beats > most)
            # mutant rows-of-one-beat: | (rows & ((args.row < 1) | (args.tokens > self.tokens)))
            | (rows & ((args.row < 2) | (args.tokens > self.tokens)))
            | (powers & (args.gate < LEAST_GATE))
            | (rope & uneven)
        )
        with m.If(judging):
            m.d.sync += [
                judging.eq(0),
                port.error.valid.eq(~known | bad),
                port.error.code.eq(Mux(known, Error.BAD_OPERAND, Error.UNKNOWN_OPCODE)),
                begin.eq(known & ~bad),
            ]
        with m.If(begin):
            m.d.sync += [begin.eq(0), running.eq(1)]
        with m.If(finished):
            m.d.sync += [running.eq(0), idle.eq(1)]
        m.d.sync += port.done.eq(finished)
        return opcode, args, begin, running

    def _results(self, m, line, words, sizes, begin, room, go, report, telling):
        """Places the queues of results, and keeps the bits of the largest.

        Returns whether nothing is in flight.
        """
        pendings = []
        beat = Cat(*words)
        size = Signal(PRODUCT, reset_less=True)
        late = delay(m, Cat(line[24].o & line[24].valid, line[24].q & line[24].valid), 1, reset_less=False)
        m.d.sync += size.eq(_either(sizes))
        for n, (name, port, magnitude) in enumerate((("o", self.o, self.o_magnitude), ("q", self.q, self.q_magnitude))):
            m.submodules[f"results_{name}"] = fifo = SyncFIFOBuffered(width=len(beat), depth=self.depth)
            pending = Signal(range(self.depth + 1), name=f"pending_{name}")
            m.d.comb += [
                fifo.w_data.eq(beat),
                fifo.w_en.eq(line[24].valid & line[24][name]),
                port.valid.eq(fifo.r_rdy),
                fifo.r_en.eq(port.ready),
                port.p.eq(Cat(*(_extended(fifo.r_data.word_select(lane, TERM.width)) for lane in range(self.lanes)))),
            ]
            m.d.sync += pending.eq(pending + (go & line[0][name]) - (fifo.r_rdy & port.ready))
            if name == "q":
                with m.If(telling):
                    m.d.comb += [port.valid.eq(1), port.p.eq(report)]
            pendings.append(pending)
            peak = Signal(PRODUCT, name=f"peak_{name}")
            with m.If(begin):
                m.d.sync += peak.eq(0)
            with m.Elif(late[n]):
                m.d.sync += peak.eq(peak | size)
            m.d.sync += magnitude.eq(_bits(m, peak))
        # Two short of full, since the answer is a register and so is what it looks at.
        m.d.sync += room.eq((pendings[0] < self.under_way) & (pendings[1] < self.under_way))
        return (pendings[0] == 0) & (pendings[1] == 0)

    def _finish(self, m, op, args, walk, sums, maxima, roots, write_row, running, empty, lost, telling):
        """Waits until all results have left, and returns when it is done.

        After sums of rows, computes the values that follow from them. With targets, sends their losses.
        """
        is_sums, both, squares, tells = (Signal(name=name) for name in ("is_sums", "both", "squares", "tells"))
        m.d.sync += [
            is_sums.eq(_any(op, _SUMS)),
            both.eq(op == VectorOpcode.NORM_BACKWARD_SUMS),
            squares.eq(_any(op, _NORMS)),
            tells.eq((op == VectorOpcode.SOFTMAX) & args.targets),
            roots.log.eq(op == VectorOpcode.SOFTMAX_SUMS),
            roots.pulled.eq(op == VectorOpcode.SOFTMAX_BACKWARD_SUMS),
        ]
        settle = self._settle
        rest = Signal(range(settle + 1), init=settle)
        rested = Signal()  # `rest` is 0
        asking = Signal()
        along, token = Signal(), Signal(range(self.tokens))
        m.d.comb += [
            sums.address.eq(Cat(along, token)),
            sums.ask.eq(asking),
            maxima.address.eq(token),
            maxima.ask.eq(asking),
            roots.eps.eq(args.eps),
            roots.eps_shift.eq(args.eps_shift),
        ]
        ask = Signal(data.StructLayout({"valid": 1, "along": 1, "token": range(self.tokens)}))
        m.d.comb += [ask.valid.eq(asking & (along | ~both)), ask.along.eq(along), ask.token.eq(token)]
        answer = delay(m, ask, 1 + Roots.latency, reset_less=False)
        m.d.comb += [
            roots.sum.eq(sums.sum),
            roots.along.eq(delay(m, along, 1) | ~squares),
            roots.reach.eq(maxima.reach),
            write_row.addr.eq(answer.token),
            write_row.data.eq(roots.row),
            write_row.en.eq(answer.valid),
            lost.eq(answer.valid & roots.clipped),
        ]
        asked = Signal()
        with m.If(~running):
            m.d.sync += [rest.eq(settle), rested.eq(0), asked.eq(0)]
        with m.Elif(asking):
            m.d.sync += along.eq(~along & both)
            with m.If(along | ~both):
                m.d.sync += token.eq(token + 1)
                with m.If(token == walk.tokens):
                    m.d.sync += [asking.eq(0), asked.eq(1), token.eq(0), rest.eq(settle), rested.eq(0)]
        with m.Elif(walk.busy | ~empty):
            m.d.sync += [rest.eq(settle), rested.eq(0)]
        with m.Elif(~rested):
            # What has left has left its magnitude too, but for some stages; weights are written at once.
            m.d.sync += [rest.eq(Mux(is_sums | (rest < 8), rest - 1, 7)), rested.eq(rest == 1)]
        with m.Elif(is_sums & ~asked):
            m.d.sync += asking.eq(1)
        still = running & rested & (~is_sums | asked) & ~asking
        told = Signal()
        due = Signal()  # as ``tells & ~told``, by when results rest
        # A loss is told of no sums: what is asked of them does not matter.
        m.d.comb += telling.eq(running & rested & due)
        # mutant report-not-taken: takes = telling
        takes = telling & self.q.ready
        m.d.sync += [told.eq(running & (told | takes)), due.eq(tells & ~told & ~takes)]
        return still & ~due


def _any(op, opcodes):
    """Whether ``op`` is one of them."""
    return Cat(op == each for each in opcodes).any()


def _extended(word):
    return Cat(word, word[-1].replicate(MASTER.width - len(word)))


def _either(values):
    """The bits that any value has."""
    values = list(values)
    while len(values) > 1:
        values = [values[n] | values[n + 1] if n + 1 < len(values) else values[n] for n in range(0, len(values), 2)]
    return values[0]


def _bits(m, value):
    """How many bits ``value`` (below 2**64) takes, three cycles later."""
    found = None
    for power in (32, 16, 8, 4, 2, 1):
        high = value[power:]
        some = high.any()
        chosen = Signal(power, reset_less=True)
        digits = Cat(some) if found is None else Cat(some, found)
        if power in (16, 4):
            kept = Signal(len(digits), reset_less=True)
            m.d.sync += [chosen.eq(Mux(some, high, value[:power])), kept.eq(digits)]
            found = kept
        else:
            m.d.comb += chosen.eq(Mux(some, high, value[:power]))
            found = digits
        value = chosen
    # The place of the highest bit, and one if there is any.
    return found + value[0]
