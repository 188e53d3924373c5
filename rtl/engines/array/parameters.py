"""Parameters of the array engine, and of the head on its streams."""

from dataclasses import dataclass

from ...formats.images import DECODED, PARAMETER, VELOCITY
from ...latencies import OPTIMIZER
from ...shell.parameters import Resources, parameter
from ..encode.parameters import EncodeParameters

__all__ = ["EDGE", "FEEDER", "HIDDEN", "LANES", "ArrayParameters"]

#: Latency of :class:`~.operands.feeder.RowFeeder`, in cycles.
FEEDER = 6
#: From a row's operands to the array's edge.
EDGE = 1 + FEEDER
#: Of :class:`~.feet.Hidden`.
HIDDEN = 4
#: From a gradient to the new word in memory, of :class:`~.operands.lane.AdapterLanes`.
LANES = 2 + OPTIMIZER + 1


@dataclass(frozen=True, kw_only=True)
class ArrayParameters(EncodeParameters):
    """An array of PEs for convolutions, dense layers and adapters.

    Parameters
    ----------
    rows : int
        Rows of the array: elements of a convolution window, samples of a microbatch. A microbatch has at most 32
        samples, so a kernel at most 5 x 5 elements.
    panels : int
        Panels of the array, each of ``rank`` columns; all together have 4 to 16. A panel takes an element of every
        sample a cycle.
    rank : int
        Columns of a panel: the ranks of one adapter.
    taps : int
        Largest number of adapters of ``rank`` ranks; a tap of higher rank takes several.
    adapter_depth : int
        Words of adapter memory per column.
    weight_depth : int
        Frozen weights on chip, in words of one weight a column.
    bias_depth : int
        Biases on chip, in words of one bias a column.
    feature_depth : int
        Words of feature maps on chip, of a channel a column.
    image_depth : int
        Words of the image on chip, of a pixel.
    kernel : int
        Largest edge of a convolution's kernel.
    width : int
        Largest edge of an image.
    positions : int
        Largest number of outputs a channel of a convolution.
    bank_luts : int
        1: cached activations lie in the memories of LUTs, for a design with few ``blocks`` that is short of block RAM;
        0: synthesis chooses.
    """

    rows: int = parameter(25, 4, 32, known=True, mesh=True)
    panels: int = parameter(4, 2, 8, power=True, known=True, mesh=True)
    rank: int = parameter(4, 1, 16, known=True, mesh=True)
    taps: int = parameter(16, 1, 16)
    adapter_depth: int = parameter(2048, 16, 8192, power=True)
    weight_depth: int = parameter(8192, 64, 65536, power=True)
    # Commands have 8 bits for the place of a word of biases, and for an image's edge.
    bias_depth: int = parameter(32, 2, 256, power=True)
    feature_depth: int = parameter(4096, 16, 65536, power=True)
    image_depth: int = parameter(2048, 16, 65536, power=True)
    # Weights of a smaller kernel lie as in a window of this size.
    kernel: int = parameter(5, 2, 5, usual=2)
    width: int = parameter(32, 4, 255)
    positions: int = parameter(1024, 4, 65536, power=True)
    bank_luts: int = parameter(0, 0, 1)

    def check(self) -> None:
        """Refuses values that do not go together."""
        if not 4 <= self.columns <= 16:
            raise ValueError(
                f"panels={self.panels}, rank={self.rank}: their product is {self.columns}, must be 4 to 16"
            )
        if self.rows < self.kernel**2:
            raise ValueError(f"rows={self.rows}: a window of kernel={self.kernel} has {self.kernel**2} elements")

    @property
    def columns(self) -> int:
        """Columns of the array."""
        return self.panels * self.rank

    @property
    def sum_bits(self) -> int:
        """Bits of the array's sums, at most the 48 of a DSP slice.

        A frozen layer's weights add up to less than 2**24 units. An adapter's forward pass adds as many products as a
        column has adapter words.
        """
        return max(self.activation_bits + 24, DECODED.width + PARAMETER.width + (self.adapter_depth - 1).bit_length())

    def resources(self) -> Resources:
        """A slice a PE, a row's decoder, a lane's momentum, a channel's sum."""
        return Resources(
            dsp={
                "array": self.rows * self.columns,
                "row decoders": self.rows,
                "adapter lanes": self.columns,
                "sums of channels": self.columns,
            },
            bits={
                "weights": self.weight_depth * self.columns * PARAMETER.width,
                "partial sums": self.positions * self.columns * self.sum_bits,
                "feature maps": self.feature_depth * self.columns * self.activation_bits,
                "images": self.image_depth * self.activation_bits,
                "cached activations": self.rows * 8 * self.blocks * 128,
                "dense activations": self.rows * self.dense_depth * self.activation_bits,
                "adapters": self.columns * self.adapter_depth * (PARAMETER.width + VELOCITY.width),
            },
        )
