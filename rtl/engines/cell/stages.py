"""When what is known in the cell engine's line of stages."""

from dataclasses import dataclass

from ...latencies import ACCUMULATE, MULTIPLY_ADD
from .parameters import CellParameters

__all__ = [
    "CENTRED_STAGE",
    "MULTIPLY_SHIFT",
    "OFFSET_STAGE",
    "READ_STAGES",
    "TAP_WORDS",
    "Stages",
    "stages_of",
    "tap_cycles",
]

#: Latency of :class:`~.requantize.MultiplyShift`.
MULTIPLY_SHIFT = MULTIPLY_ADD + 2
#: Stages of a read of taps, the last of which fills a beat of :data:`TAP_WORDS`.
READ_STAGES, TAP_WORDS = 5, 4

#: Stages behind the slices, of which 0 has the sums of a group: sums meet their offsets, and are centred.
OFFSET_STAGE, CENTRED_STAGE = 2, 3


@dataclass(frozen=True, kw_only=True)
class Stages:
    """Stages behind the slices by when they begin, and latencies, in cycles.

    Attributes
    ----------
    codes, kept, state, squashed, hidden : int
        Stages: of codes of the gates, of the cell state's two parts, of the cell state, of its tanh, of the hidden
        state.
    begin, enter : int
        From a command taken to its first chunk; from a chunk to its register.
    finish : int
        From the last result to ``done``.
    """

    codes: int
    kept: int
    state: int
    squashed: int
    hidden: int
    begin: int = 3
    enter: int = 1
    finish: int = 4

    @property
    def results(self) -> int:
        """From a row's last chunk to its first result."""
        return self._slices(self.hidden)

    @property
    def sums(self) -> int:
        """From the last chunk of a row to its first sums of the dense layer."""
        return self._slices(CENTRED_STAGE)

    @property
    def inputs(self) -> int:
        """From a convolution's last sums to its results as a row of input."""
        return self._slices(self.codes)

    def _slices(self, stage: int) -> int:
        """Through a group's slices to a stage."""
        return self.enter + ACCUMULATE + stage


def stages_of(config: CellParameters) -> Stages:
    """The stages of a design: tables answer after ``table_cycles``."""
    # Behind a requantiser are tables, or a register.
    codes = CENTRED_STAGE + MULTIPLY_SHIFT + config.table_cycles
    kept = codes + MULTIPLY_SHIFT + 1
    state = kept + 1
    squashed = state + config.table_cycles
    return Stages(codes=codes, kept=kept, state=state, squashed=squashed, hidden=squashed + MULTIPLY_SHIFT)


def tap_cycles(parallel: int) -> tuple[int, int]:
    """Cycles from a request to its first beat, and of each further beat."""
    pieces = max(TAP_WORDS // parallel, 1)
    return READ_STAGES + pieces, pieces
