"""The vector engine: elementwise operations, norms and softmax."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...formats.vector import VectorOpcode
from ...formats.weights.linear import MASTER
from ...hierarchy import place
from ...shell.signature import EngineSignature
from .actions import Stage
from .command import take_command
from .finish import finish_command
from .lane import PRODUCT, Lane
from .lanes import place_lanes
from .results import queue_results
from .rows.beats import place_walks, register_kinds, start_walks, tag_beat, take_beat, turn_rows
from .rows.known import add_rows, find_maxima, recall, shift_terms
from .rows.roots import Roots, RowSums
from .targets import add_losses, mask_elements

__all__ = ["VectorEngine"]


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
      SWIGLU_BACKWARD, SCALE_BACKWARD and the backward norms, but for NORM_BACKWARD, take two cycles a beat, and its
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
        Most features of a norm, a power of two up to 4096.
    head : int
        Largest row that ROPE turns, elements.
    depth : int
        Places for results of either kind; all but 3 are used.
    gelu : bool
        Whether there are tables of GELU beside those of SiLU.

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

    def __init__(self, *, lanes=8, tokens=64, features=2048, head=128, depth=64, gelu=False):
        for name, value, low, high in (
            ("lanes", lanes, 2, 16),
            ("tokens", tokens, 2, 4096),
            ("features", features, 2 * lanes, 4096),
            ("head", head, 2 * lanes, 1024),
            ("depth", depth, 64, 4096),
        ):
            if not low <= value <= high or value & (value - 1):
                raise ValueError(f"{name}={value}: must be a power of two from {low} to {high}")
        self.lanes, self.tokens, self.features, self.head, self.depth = lanes, tokens, features, head, depth
        self.gelu = gelu
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
        return 2 * self.settling + 3

    @property
    def under_way(self):
        """Results that may be on their way when more operands are taken."""
        return self.depth - 3

    @property
    def settling(self):
        """Upper bound of the cycles from the last operands to the last sum.

        Also of those from the last sum to the values computed from it.
        """
        return Lane.latency + RowSums.latency(self.lanes) + 4

    def elaborate(self, platform):
        m = Module()
        finished = Signal()
        command = take_command(m, self, finished)
        args, begin = command.args, command.begin
        op = Signal(range(len(VectorOpcode)))
        m.d.comb += op.eq(command.opcode)

        walks = place_walks(m, self)
        walk = walks.operands
        kinds = register_kinds(m, op, args)
        start_walks(m, command, kinds, walks)
        turn_rows(m, self, command, kinds, walks)
        beat = take_beat(m, self, op, command, kinds, walks)
        line = tag_beat(m, op, args, kinds, walk, beat)
        known = recall(m, self, op, kinds, walk, beat)
        moves = shift_terms(m, args, kinds, beat, known, line)
        maxima = find_maxima(m, self, kinds, walk, line)
        masks = mask_elements(m, self, op, args, walk, known.weight, line)
        sums = add_rows(m, platform, self, kinds, beat, line, maxima)
        lanes = place_lanes(
            m, platform, self, command, kinds, beat, line, walks.halves, known, moves, maxima, masks, sums
        )

        roots = place(m, "roots", Roots(), platform)
        counts, lost = Signal.like(self.saturated), Signal()
        m.d.comb += counts.eq(sum(lanes.clipped))
        m.d.sync += self.saturated.eq(Mux(line[Stage.WORD].valid, counts, lost))
        report, telling = add_losses(m, self, lanes.exponents, masks.hit, begin), Signal()
        empty = queue_results(m, self, line, lanes, begin, beat, report, telling)
        m.d.comb += finished.eq(
            finish_command(m, self, op, command, walk, sums, maxima, roots, known, empty, lost, telling)
        )
        return m
