"""What a GRU takes in the stages of an LSTM's states."""

from amaranth.hdl import Mux

from ...formats.cell import Quantizers
from ...latencies import MULTIPLY_ADD
from ...stream.delay import delay, registered
from .stages import CENTRED_STAGE

__all__ = ["GruStages"]


class GruStages:
    """Operands of an element's requantisers, of an LSTM or of a GRU.

    ::

        input's part of the new state, before its shift --+
        r * hidden state's part ---> kept: + -------------+--> shift --> tanh --> n --+
        z * h ---------------------> added, before its shift --+                      |
        (1 - z) * n ---------------> hidden: + ----------------+--> shift --> h    <--+

    A GRU's tables give z, r, nothing and the hidden state's part, of which the table is that of the code itself. The
    state of its cell is its hidden state. No stage is of a GRU alone, so both take the same cycles.

    A GRU that resets in front of the product takes two passes. The first is an LSTM's, whose forget gate is r and whose
    hidden state is what r passes of h; it keeps z, and the state stays. In the second that is the hidden state, and the
    hidden state's part is nothing.

    Parameters
    ----------
    m : Module
    chosen : function
        Of a stage: the row there makes the new state of a GRU.
    ends : function
        See :meth:`~.gates.GateStages._quantizers`.
    stages : Stages
    """

    def __init__(self, m, chosen, ends, stages):
        self.m, self.chosen, self.ends, self.stages = m, chosen, ends, stages

    def factors(self, gates, before):
        """Second factors of ``kept``, of ``added``, and first of ``hidden``.

        ``gates``: codes of the four tables. ``before``: of the state.
        """
        enter, _, cell, output = gates
        rest = (self.ends(Quantizers.HIDDEN, "one", self.stages.codes) - enter)[: len(output)].as_signed()
        chosen = self.chosen(self.stages.codes)
        # mutant unkept: return Mux(chosen, output, before), cell, Mux(chosen, rest, output)
        return Mux(chosen, output, before), Mux(chosen, before, cell), Mux(chosen, rest, output)

    def multiplier(self, gated, usual):
        """Of ``kept``."""
        return Mux(self.chosen(self.stages.codes), gated, usual)

    def kept_addend(self, raw):
        """Of ``kept``, in the cycle in which it takes it.

        ``raw``: of the new state's gate.
        """
        return self._addend(raw, CENTRED_STAGE, Quantizers.KEPT, self.stages.codes)

    def hidden_addend(self, raw):
        """Of ``hidden``, likewise; ``raw``: of ``added``."""
        return self._addend(raw, self.stages.codes, Quantizers.HIDDEN, self.stages.squashed)

    def _addend(self, raw, begins, which, stage):
        """What a requantiser that begins in ``stage`` adds.

        ``raw``: of one that began in ``begins``. A register is before the slice.
        """
        wanted = stage + MULTIPLY_ADD - 2
        # mutant early: raw = delay(self.m, raw, wanted - (begins + MULTIPLY_ADD) - 1)
        raw = delay(self.m, raw, wanted - (begins + MULTIPLY_ADD))
        return registered(self.m, Mux(self.chosen(wanted), raw, self.ends(which, "addend", wanted)).as_signed())
