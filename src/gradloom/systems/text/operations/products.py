"""Products of a step, with or without an adapter, and the gradients of adapters."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from gradloom.rtl.formats.weights.linear import DOT_GUARD

from .base import DROP, Fracs, Operation, checked_shifts
from .tensors import EDGE, AdapterTensors, Codes, MatrixRows, Tensor, TensorSlice, Words

__all__ = ["Gradient", "Product"]

#: Ranks that are complete after one tile of outputs in every machine: an array has at most 8 columns.
_AT_ONCE = EDGE // 8


@dataclass(frozen=True)
class Product(Operation):
    """A product with an adapter: ``y = 2**lift · (x Wᵀ + (x Aᵀ) Bᵀ)``.

    Backward ``y = 2**lift · (x W + (x B) A)``. h stays in the machine. A ``y`` with fewer tiles than a matrix of codes
    has outputs is the first of them.
    """

    gives = ("y",)

    x: TensorSlice
    weight: Codes | MatrixRows | Words
    y: TensorSlice
    backward: bool = False
    adapter: AdapterTensors | None = None
    lift: int = 0

    @property
    def weight_name(self) -> str:
        """Whose fraction bits count."""
        return self.weight.tiles[0].name if isinstance(self.weight, Words) else self.weight.name

    @property
    def hidden(self) -> str:
        """Name of ``x Aᵀ``, or of ``x B``."""
        return f"{self.adapter.name}.{'dh' if self.backward else 'h'}" if self.adapter else ""

    @property
    def reads(self) -> tuple[str, ...]:
        """See :class:`Operation`."""
        tiles = self.weight.tiles if isinstance(self.weight, Words) else ()
        return self.x.name, *(part.name for part in tiles)

    def wanted(self, live: Collection[str]) -> "Product | None":
        """See :class:`Operation`; where only h is read, with as few tiles of outputs as complete it."""
        if self.y.name in live or self.hidden not in live:
            return super().wanted(live)
        assert self.adapter is not None
        tiles = min(1 if self.adapter.rank <= _AT_ONCE else 2, self.y.count)
        y = Tensor(self.y.name, self.y.tensor.rows, tiles * EDGE, self.y.tensor.wide)
        return replace(self, y=y.some(self.y.row, self.y.rows, 0, tiles))

    def weight_frac(self, frac: Fracs) -> int:
        return frac[self.weight_name] - (DROP if isinstance(self.weight, Words) else 0)

    def _adapter(self, frac: Fracs) -> tuple[int, int]:
        assert self.adapter is not None
        a, b = frac[f"{self.adapter.name}.a"], frac[f"{self.adapter.name}.b"]
        return (b, a) if self.backward else (a, b)

    def limits(self, frac: Fracs) -> dict[str, tuple[int, int]]:
        x, w = frac[self.x.name], self.weight_frac(frac)
        limits = {self.y.name: (x + w - self.lift - 63, x + w - self.lift)}
        if self.adapter is not None:
            a, b = self._adapter(frac)
            limits[self.hidden] = (max(x + a - 63, x + w - b - DOT_GUARD), x + a)
        return limits

    def shifts(self, frac: Fracs) -> dict[str, int]:
        x, w, y = frac[self.x.name], self.weight_frac(frac), frac[self.y.name]
        hidden = dot = 0
        if self.adapter is not None:
            a, b = self._adapter(frac)
            h = frac[self.hidden]
            hidden, dot = x + a - h, DOT_GUARD + h + b - x - w
        return checked_shifts(self.y.name, hidden_shift=hidden, dot_shift=dot, shift=x + w - self.lift - y)


@dataclass(frozen=True)
class Gradient(Operation):
    """Gradients of an adapter, ``(dh' x)`` and ``(h' dy)``.

    They are of the products that made ``h`` and ``dh`` last. Where the step makes B, or A does not learn, there is no
    gradient of A. ``place``: behind the names of what is made, where that is a part of a sum.
    """

    lasting = True

    adapter: AdapterTensors
    x: TensorSlice
    dy: TensorSlice
    place: str = ""

    def made(self, which: str) -> str:
        """Name of ``ga`` or ``gb``."""
        return f"{self.adapter.name}.{which}{self.place}"

    def limits(self, frac: Fracs) -> dict[str, tuple[int, int]]:
        sums = self._sums(frac)
        return {self.made(which): (value - 63, value) for which, value in sums.items()}

    def shifts(self, frac: Fracs) -> dict[str, int]:
        return checked_shifts(
            self.adapter.name, **{which: value - frac[self.made(which)] for which, value in self._sums(frac).items()}
        )

    @property
    def sources(self) -> dict[str, tuple[str, TensorSlice]]:
        """Name of h and the tensor beside it, by the gradient's name."""
        made = {"gb": ("h", self.dy)}
        return made | {"ga": ("dh", self.x)} if "a" in self.adapter.graded else made

    @property
    def reads(self) -> tuple[str, ...]:
        """See :class:`Operation`."""
        name = self.adapter.name
        return tuple(each for h, part in self.sources.values() for each in (part.name, f"{name}.{h}"))

    def _sums(self, frac: Fracs) -> dict[str, int]:
        name = self.adapter.name
        return {which: frac[part.name] + frac[f"{name}.{h}"] - DROP for which, (h, part) in self.sources.items()}
