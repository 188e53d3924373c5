"""Parameters of the encode engine and of the array's encoder."""

from dataclasses import dataclass

from ...formats.fixed import Fixed
from ...shell.parameters import Parameters, Resources, parameter

__all__ = ["EncodeParameters"]


@dataclass(frozen=True, kw_only=True)
class EncodeParameters(Parameters):
    """Encoders of activations into blocks of the forward cache.

    Parameters
    ----------
    rows : int
        Samples of a microbatch.
    dense_depth : int
        Activations a sample of the dense layers' inputs and outputs.
    blocks : int
        Blocks of 64 cached activations a sample.
    activation_bits : int
        Of a word between layers, and of h: 24 (Q8.16), or 18 (Q8.10), with which every product of the array and of the
        head is one of 18 x 18 bits. Codes of 8 bits need 24.
    """

    rows: int = parameter(25, 4, 32, known=True, mesh=True)
    dense_depth: int = parameter(1024, 32, 65536, power=True)
    blocks: int = parameter(64, 2, 1024, power=True)
    activation_bits: int = parameter(24, 18, 24, usual=18)

    def check(self) -> None:
        """Refuses values that do not go together."""
        if self.activation_bits not in (18, 24):
            raise ValueError(f"activation_bits={self.activation_bits}: must be 18 or 24")

    @property
    def activation(self) -> Fixed:
        """Format of a word between layers, and of h."""
        return Fixed(width=self.activation_bits, frac=self.activation_bits - 8)

    def resources(self) -> Resources:
        """A slice an encoder: that of the array, and the engine's."""
        return Resources(dsp={"encoders": 2})
