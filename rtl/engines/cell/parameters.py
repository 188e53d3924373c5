"""Parameters of the cell engine."""

from dataclasses import dataclass

from ...formats.gates import GATES
from ...shell.parameters import Parameters, Resources, parameter

__all__ = ["APART", "FEED_BEATS", "RESULT_BEATS", "SUM_GROUPS", "CellParameters"]

#: Beats of the queue in front of the engine, and of its queue of results.
FEED_BEATS, RESULT_BEATS = 32, 64
#: Groups of sums of the dense layer that wait for STORE.
SUM_GROUPS = 16
#: Idle cycles between the sums of two rows: their requantisers have other settings.
APART = 2


@dataclass(frozen=True, kw_only=True)
class CellParameters(Parameters):
    """Quantised recurrent cells whose weights stay beside their slices.

    Parameters
    ----------
    hidden : int
        Most elements of the hidden state.
    inputs : int
        Most elements of the input.
    parallel : int
        Elements of the hidden state that enter, and that leave, in a cycle.
    products : int
        Products that a DSP slice makes in a cycle; 2 needs a slice of 27 x 18 bits.
    state_bits : int
        Bits of a code of the cell state.
    sequences : int
        Most sequences whose steps take turns.
    window : int
        Most codes of the window of a convolution in front.
    table_cycles : int
        From a code to the answer of its table: 1, or 2 with a register between memory and multiplier.
    tap_channels : int
        Most channels of the input whose sums are taps for adapters; 0: the design makes no taps.
    cells : int
        Most recurrent cells, one a layer and direction, whose weights, settings and states are there at once.
    gru : int
        1: the engine computes GRUs too; 2: also those whose reset gate is in front of the product with the hidden
        state. LSTMs and plain cells need no datapath of their own.
    ties : int
        1: quantisers round ties to the even code where the ratio of two scales has an odd denominator, too.
    """

    hidden: int = parameter(64, 8, 256, power=True, known=True, mesh=True)
    inputs: int = parameter(64, 8, 256, power=True, known=True)
    parallel: int = parameter(2, 1, 8, power=True, known=True, mesh=True)
    products: int = parameter(2, 1, 2, known=True, mesh=True)
    state_bits: int = parameter(9, 4, 10, known=True)
    sequences: int = parameter(8, 1, 64, power=True, known=True)
    window: int = parameter(32, 8, 256, power=True, known=True)
    table_cycles: int = parameter(1, 1, 2)
    tap_channels: int = parameter(0, 0, 256, known=True)
    cells: int = parameter(1, 1, 8, power=True, usual=1)
    gru: int = parameter(0, 0, 2)
    ties: int = parameter(0, 0, 1, usual=0)

    @property
    def groups(self) -> int:
        """Groups of ``parallel`` elements of the hidden state."""
        return self.hidden // self.parallel

    @property
    def chunks(self) -> int:
        """Chunks of ``parallel`` elements of the input."""
        return self.inputs // self.parallel

    @property
    def tap_chunks(self) -> int:
        """Chunks of ``parallel`` channels whose sums are taps."""
        return -(-self.tap_channels // self.parallel)

    @property
    def places(self) -> int:
        """Words of a group's weights.

        Of hidden states, inputs, the dense layer, windows.
        """
        return 1 << (self.window_place + self.window_chunks - 1).bit_length()

    @property
    def state_places(self) -> int:
        """Groups of states: of each cell, sequence and group of elements."""
        return self.cells * self.sequences * self.groups

    @property
    def window_chunks(self) -> int:
        """Chunks of ``parallel`` codes of a window."""
        return self.window // self.parallel

    @property
    def input_place(self) -> int:
        """Place of the weights of inputs."""
        return self.groups

    @property
    def class_place(self) -> int:
        """Place of the weights of the dense layer."""
        return self.groups + self.chunks

    @property
    def window_place(self) -> int:
        """Place of the weights of windows."""
        return 2 * self.groups + self.chunks

    @property
    def input_words(self) -> int:
        """Words of a convolution's results, a group of rows each."""
        return max(self.chunks // GATES, 1)

    @property
    def word_bits(self) -> int:
        """Bits of a word of a group's weights."""
        return 32 * self.parallel**2

    def resources(self) -> Resources:
        """Slices of the sums, and 10 an element behind them."""
        slices = 4 * self.hidden * self.parallel // self.products
        return Resources(
            dsp={"products": slices, "requantisers": 10 * self.parallel},
            bits={"weights": self.groups * self.cells * self.places * self.word_bits},
        )
