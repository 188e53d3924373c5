"""Names, sizes and seeds of adapters and moments stored as codes."""

from dataclasses import dataclass
from zlib import crc32

from gradloom.rtl.formats.weights.packed import PackedShape

__all__ = ["STORES", "PackedStore", "tensors"]

#: How adapters and moments are stored: whether their codes have 8 bits; as words, there are none.
STORES: dict[str, bool | None] = {"words": None, "int8": True, "nf4": False}


@dataclass(frozen=True, kw_only=True)
class PackedStore:
    """A tensor of ``rank`` rows, or m and v of one.

    ``name``: that of its words; ``packed``: that of its codes.
    """

    name: str
    rank: int
    features: int
    wide: bool
    moments: bool
    #: Elements of a block.
    edge: int = 64

    @property
    def packed(self) -> str:
        stem, which = self.name.rsplit(".", 1)
        return f"{stem}.p{which}"

    @property
    def shape(self) -> PackedShape:
        """Of its blocks."""
        blocks = self.rank * self.features // self.edge
        return PackedShape(blocks=blocks * (2 if self.moments else 1), wide=self.wide, edge=self.edge)

    @property
    def bytes(self) -> int:
        """Of its words."""
        return 4 * self.rank * self.features * (2 if self.moments else 1)

    def seeds(self, number: int) -> list[int]:
        """Of each group, after update ``number``."""
        return [crc32(f"{self.name} {number} {group}".encode()) or 1 for group in range(len(self.shape.groups))]


def tensors(name: str, rank: int, inputs: int, outputs: int, *, wide: bool, moments: bool) -> list[PackedStore]:
    """Stored forms of an adapter's A and B, or of their moments."""
    return [
        PackedStore(name=f"{name}.{'m' * moments}{which}", rank=rank, features=features, wide=wide, moments=moments)
        for which, features in (("a", inputs), ("b", outputs))
    ]
