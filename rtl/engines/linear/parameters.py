"""Parameters of the linear engine, and of the engine on its stream."""

from dataclasses import dataclass
from math import gcd

from ...shell.parameters import Resources, block_rams, parameter, ultra_rams
from ..tiles import TileParameters

__all__ = ["LinearParameters"]


@dataclass(frozen=True, kw_only=True)
class LinearParameters(TileParameters):
    """An array of PEs for tiles of quantised weights, with an adapter.

    The adapter's product is made beside the weights' product.

    Parameters
    ----------
    columns : int
        Columns of the array, an even number. One more computes the adapter's product. Where they do not divide
        ``edge``, parts go across the borders of the :attr:`span` tiles of outputs of a panel.
    outputs : int
        Results that leave the array's sums a cycle; at most ``columns`` and a beat's words.
    dots : int
        As many of them a cycle if they have an adapter's part, for which each takes ``rank`` multipliers; at most
        ``outputs``.
    rank : int
        Largest rank; even, at most ``2 * edge / columns`` so that h is complete after two tiles of outputs, and after
        one panel of several tiles.
    tokens : int
        Largest number of tokens.
    depth : int
        Words of operand memory a row: ``tokens`` words a tile of inputs.
    lane_depth : int
        Words of adapter memory a row: ``rank`` words a tile.
    groups : int
        Second-level scales of a weight tensor: one for 256 blocks.
    ultra : int
        1: operands, and half of the columns' sums, are in ultra RAM, which has no smaller depth than 4,096.
    """

    columns: int = parameter(8, 2, 16, known=True, mesh=True)
    outputs: int = parameter(4, 1, 8, power=True)
    dots: int = parameter(2, 1, 8, power=True, mesh=True)
    rank: int = parameter(8, 2, 64, known=True)
    tokens: int = parameter(64, 2, 256, power=True, known=True)
    # A product may read operands past the end of their memory, and goes on at its start.
    depth: int = parameter(2048, 16, 65536, power=True, known=True)
    lane_depth: int = parameter(1024, 16, 65536, power=True, least=True)
    groups: int = parameter(1024, 2, 4096, power=True, least=True)
    ultra: int = parameter(0, 0, 1)

    def check(self) -> None:
        """Refuses values that do not go together."""
        if self.columns % 2 or self.columns > self.edge:
            raise ValueError(f"columns={self.columns}: must be even, 2 to {min(self.edge, 16)}")
        if self.outputs > min(self.columns, self.beat_words):
            raise ValueError(
                f"outputs={self.outputs}: must be 1, 2, 4 or 8, at most {min(self.columns, self.beat_words)}"
            )
        if self.dots > self.outputs:
            raise ValueError(f"dots={self.dots}: must be 1, 2, 4 or 8, at most outputs={self.outputs}")
        if self.rank % 2 or self.rank > self.most_rank:
            raise ValueError(f"rank={self.rank}: must be even, 2 to {self.most_rank}")

    @property
    def most_rank(self) -> int:
        """The largest rank of an array of so many columns."""
        return self.subtiles if self.span > 1 else 2 * self.subtiles

    @property
    def span(self) -> int:
        """Tiles of outputs of a panel, which whole parts fill: 1 where the columns divide a tile."""
        return self.columns // gcd(self.columns, self.edge)

    @property
    def subtiles(self) -> int:
        """Parts of a panel, each held by the array at a time; a power of two."""
        return self.edge // gcd(self.columns, self.edge)

    def parts(self, tiles: int) -> int:
        """Parts of a panel of ``tiles`` tiles: the last of a product may have fewer than :attr:`span`."""
        return -(-tiles * self.edge // self.columns)

    def tile_cycles(self, tokens: int) -> int:
        """Cycles of the array for a tile of weights, as a whole panel has them in the mean."""
        return self.subtiles * max(tokens, self.columns) // self.span

    def resources(self) -> Resources:
        """Slices: one a PE, one a decoded weight of a row, and the adapter's.

        The adapter's part counts for each output.
        """
        from ...formats.weights import linear

        # Rows of a bank of operands, which share an address.
        rows = min(4, self.beat_words)
        sums, banks = self.tokens * self.subtiles, self.edge // rows
        blocks = {
            "adapters": self.edge * block_rams(linear.WEIGHT.width, self.lane_depth),
            "sums": (2 * self.columns + 1 - self.ultra * self.columns) * block_rams(linear.SUM, sums),
            "second-level scales": block_rams(linear.SCALE.width, self.groups),
            "operand queue": block_rams(self.beat_words * linear.ACTIVATION.width, 512),
        }
        ultra = {}
        wide = rows * linear.ACTIVATION.width
        if self.ultra:
            ultra = {
                "operands": banks * ultra_rams(wide, self.depth),
                "sums": self.columns * ultra_rams(linear.SUM, sums),
            }
        else:
            blocks["operands"] = banks * block_rams(wide, self.depth)
        return Resources(
            block_rams=blocks,
            ultra_rams=ultra,
            dsp={
                "array": self.edge * (self.columns + 1),
                "weight decoder": self.edge + 1,
                "adapter products": self.dots * self.rank,
            },
            bits={
                "operands": self.edge * self.depth * linear.ACTIVATION.width,
                "adapters": self.edge * self.lane_depth * linear.WEIGHT.width,
                "weights": 2 * self.edge**2 * linear.WEIGHT.width,
                "second-level scales": self.groups * linear.SCALE.width,
                "sums": (2 * self.columns + 1) * self.tokens * self.subtiles * linear.SUM,
            },
        )
