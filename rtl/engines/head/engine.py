"""The head: logits, loss, gradients and the update of B."""

from amaranth.hdl import Cat, Module, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from gradloom.rtl.formats.fixed import Rounding
from gradloom.rtl.formats.images import ACTIVATION
from gradloom.rtl.shell.signature import EngineCommand, EngineError, Health
from gradloom.rtl.units.lora_gradient import GRADIENT_WIDTH

from .control import run_commands
from .gradients import make_gradients
from .lane import place_lanes
from .logits import PERIOD, add_losses, make_logits, place_softmax
from .update import update_b

__all__ = ["Head"]


class Head(wiring.Component):
    """Computes logits, loss and gradients, and updates B.

    It serves the adapter outputs of a microbatch.

    STEP, for each sample s and class c, k over the ``operands.k`` rank indices::

        z  = saturate24(nearest_even(sum_k B[c, k] * h[s, k] + (base[s, c] << 12) >> 12))
        d  = softmax(z) - onehot(label[s])                       16 fraction bits, see SoftmaxCrossEntropy
        d' = saturate18(nearest_even(d * scale >> 16))
        dh[s, k] = saturate18(nearest_even(sum_c B[c, k] * d'[s, c] >> 13))
        dB[c, k] = sum_s d'[s, c] * h[s, k]                      wide enough never to wrap

    and then the optimiser's update of B from dB. ``done`` comes when all of dh can be read, :meth:`cycles`
    after the command was taken; the update goes on under whatever comes next, and the head takes no command
    and no dump before it has finished (:meth:`update_cycles`).

    The classes work side by side, each one cycle behind its neighbour, so that logits reach the softmax, and
    d' the gradients, one a cycle. 3 multipliers a class and 7 more.

    ::

                                                i_logits, i_labels
                                                     |
                                                     v
        i_h --> memory of h --+--> lanes: B h --> logits --> softmax --> losses --> o_loss
                              |                                 | d
                              |                                 v
                              +--> lanes: B d', dB <----- scale and round
                                     |      |
                dh <-- memory of dh <+      +--> optimiser --> B in the lanes --> o_b
                                                               ^
                                                               |
                                                              i_b

    Parameters
    ----------
    rows : :class:`int`
        Most samples in a command, 1..32.
    rank : :class:`int`
        Rank indices in a word of h; ``k`` must be a multiple of it.
    max_taps : :class:`int`
        Words of h a sample.
    max_classes : :class:`int`
        2..16.
    rounding, seed
        Of :class:`OptimizerLane`.
    activation : :class:`Fixed`
        Format of h, and of the frozen network's logits in 32 bits; the above is said of Q8.16.

    Members
    -------
    command : ``In(stream.Signature(EngineCommand))``
    done : ``Out(1)``
    error : ``Out(EngineError)``
        UNKNOWN_OPCODE; BAD_OPERAND: samples, k or classes out of bounds (nothing is done, no ``done``), a
        label that is no class (the step goes on), B loaded beyond its end or during an update.
    busy : ``Out(1)``
        A command, a dump or an update is under way.
    i_h : ``In({valid, tap, sample, h: ArrayLayout(Fixed(24, 16), rank)})``
        Outputs of the adapters. Not during a command.
    i_logits : ``In({valid, half, sample, beat, data: 128})``
        Logits of the frozen network, 4 x int32 of 16 fraction bits a beat.
    i_labels : ``In({valid, half, beat, data: 128})``
        16 x u8, sample ``16 * beat`` lowest.
    i_b : ``In({valid, index: 24, data: 128})``
        Beat ``2 * k + n`` holds classes ``8 * n`` onward of rank index k, 8 x int16.
    i_dump : ``In(stream.Signature({beats: 24}))``
        Asks for the first ``beats`` beats of B on ``o_b``; no ``done``.
    o_b : ``Out(stream.Signature(128))``
        As ``i_b``; classes and rank indices that do not exist are 0.
    o_loss : ``Out(stream.Signature(128))``
        For each command with ``last``: u64 sum of losses (16 fraction bits), u32 samples, u32 correct.
        Up to 4 wait here; a fifth holds ``done`` back.
    dh_address : ``In({tap, sample})``
    dh : ``Out(ArrayLayout(signed(18), rank))``
        What was at ``dh_address`` a cycle before; one fraction bit less than the gradient exponent.
    health : ``Out(Health)``
    """

    def __init__(
        self,
        *,
        rows=25,
        rank=4,
        max_taps=16,
        max_classes=10,
        rounding=Rounding.NEAREST_EVEN,
        seed=1,
        activation=ACTIVATION,
    ):
        for field, value, low, high in (
            ("rows", rows, 1, 32),
            ("rank", rank, 1, 16),
            ("max_taps", max_taps, 1, 64),
            ("max_classes", max_classes, 2, 16),
        ):
            if not isinstance(value, int) or not low <= value <= high:
                raise ValueError(f"{field}={value!r}: must be an integer from {low} to {high}")
        if not 2 <= max_taps * rank <= 255:
            raise ValueError(f"max_taps={max_taps}, rank={rank}: their product is {max_taps * rank}, must be 2 to 255")
        self.rows = rows
        self.rank = rank
        self.max_taps = max_taps
        self.max_classes = max_classes
        self.rounding = Rounding(rounding)
        self.seed = seed
        self.activation = activation
        tap, sample = range(max(max_taps, 2)), range(max(rows, 2))
        self.h_word = data.ArrayLayout(activation.shape, rank)
        self.dh_word = data.ArrayLayout(signed(GRADIENT_WIDTH), rank)
        super().__init__(
            {
                "command": In(stream.Signature(EngineCommand)),
                "done": Out(1),
                "error": Out(EngineError),
                "busy": Out(1),
                "i_h": In(data.StructLayout({"valid": 1, "tap": tap, "sample": sample, "h": self.h_word})),
                "i_logits": In(data.StructLayout({"valid": 1, "half": 1, "sample": sample, "beat": 2, "data": 128})),
                "i_labels": In(data.StructLayout({"valid": 1, "half": 1, "beat": 1, "data": 128})),
                "i_b": In(data.StructLayout({"valid": 1, "index": 24, "data": 128})),
                "i_dump": In(stream.Signature(data.StructLayout({"beats": 24}))),
                "o_b": Out(stream.Signature(128)),
                "o_loss": Out(stream.Signature(128)),
                "dh_address": In(data.StructLayout({"tap": tap, "sample": sample})),
                "dh": Out(self.dh_word),
                "health": Out(Health),
            }
        )

    def cycles(self, samples, k, classes):
        """Cycles from the acceptance of STEP to ``done``.

        Loss beats must be taken.
        """
        return (samples - 1) * max(k, classes, PERIOD) + 2 * k + classes + self.max_classes + 42

    def update_cycles(self, k, classes):
        """Cycles from ``done`` to the first in which a command can be taken."""
        return k * classes + 12

    def elaborate(self, platform):
        m = Module()
        step = run_commands(m, self)
        lanes = place_lanes(m, platform, self, step.start)
        # Adapter outputs: one reader for logits, one for gradients.
        m.submodules.h_memory = h_memory = Memory(
            shape=self.rank * self.activation.width, depth=self.max_taps << len(self.dh_address.sample), init=[]
        )
        h_write = h_memory.write_port()
        h_forward, h_backward = h_memory.read_port(), h_memory.read_port()
        m.d.comb += [
            h_write.en.eq(self.i_h.valid),
            h_write.addr.eq(Cat(self.i_h.sample, self.i_h.tap)),
            h_write.data.eq(self.i_h.h),
        ]

        logits = make_logits(m, self, step, lanes, h_forward)
        softmax = place_softmax(m, platform, self, logits.out)
        add_losses(m, self, step, softmax)
        d_clipped, dh_clipped = make_gradients(m, self, step, softmax, lanes, h_backward)
        updates = update_b(m, platform, self, step, lanes)
        m.d.sync += [
            self.health.saturated.eq(logits.clipped + d_clipped + dh_clipped + updates.out.saturated),
            self.health.underflowed.eq(updates.out.underflowed),
            self.health.norm.eq(updates.optimizer.norm_o),
        ]
        return m
