"""Parameters of the vector engine."""

from dataclasses import dataclass

from ...shell.parameters import Resources, block_rams, parameter
from ..tiles import TileParameters

__all__ = ["VectorParameters"]


@dataclass(frozen=True, kw_only=True)
class VectorParameters(TileParameters):
    """Norms, activations, attention and sums of a decoder.

    These are all operations that are no product of matrices.

    Parameters
    ----------
    tokens : int
        Largest number of tokens.
    features : int
        Largest row of a norm; at least a beat's words twice.
    head : int
        Largest row that ROPE turns; at least a beat's words twice.
    gelu : int
        1: SWIGLU's activation may be GELU by tanh. Of two lanes, tables have twice the depth.
    """

    tokens: int = parameter(64, 2, 256, power=True, known=True)
    features: int = parameter(2048, 4, 4096, power=True, least=True)
    head: int = parameter(64, 4, 1024, power=True, least=True)
    gelu: int = parameter(0, 0, 1, least=True)

    def check(self) -> None:
        """Refuses values that do not go together."""
        for field in ("features", "head"):
            if getattr(self, field) < 2 * self.beat_words:
                raise ValueError(
                    f"{field}={getattr(self, field)}: must be a power of two from {2 * self.beat_words} "
                    f"to {self.largest(field)}"
                )

    def resources(self) -> Resources:
        """Three slices a lane, one for the roots."""
        from ...formats.vector import AIM, SIGMOID, SUM, TERM
        from ...formats.weights import linear

        queue = block_rams(self.beat_words * TERM.width, 512)
        # Of four functions two are GELU's.
        pieces = 2 ** (SIGMOID.index + 2 + self.gelu)

        return Resources(
            dsp={"vector engine": 3 * self.beat_words + 1},
            bits={"vector queues": 512 * self.beat_words * (4 * TERM.width + linear.ACTIVATION.width)},
            block_rams={
                "vector queues": 5 * queue,
                "tables": self.beat_words // 2 * block_rams(29, pieces),
                "weights of norms": block_rams(self.beat_words * AIM, 2 * self.features // self.beat_words),
                "sums of rows": block_rams(SUM, 2 * self.tokens),
                "roots": block_rams(34, 512),
            },
        )
