"""The tensors of a step, and what its parts share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gradloom.program.memory import Kind
from gradloom.program.tiles.drafts import Block, DraftValue
from gradloom.program.tiles.layout import LayoutWords, Tiles
from gradloom.program.tiles.tiling import Tiler
from gradloom.rtl.formats.tile_codes import NARROW, WIDE, coded

from ..operations import Convolution, Linear, Operation, Upsample, adapted
from ..unet import inputs_of

__all__ = ["Adapted", "Part", "Tensors", "matrix"]


@dataclass(frozen=True)
class Adapted:
    """A matrix of an adapter: codes, gradient, masters and moments.

    ``fraction``: fraction bits of masters.
    """

    codes: Tiles
    gradient: Tiles
    words: LayoutWords
    fraction: int


def matrix(each: Linear | Convolution, weight: np.ndarray) -> np.ndarray:
    """Weights ``[inputs, outputs]``, of a convolution nine of them."""
    value = np.asarray(weight, np.float64)
    if isinstance(each, Convolution):
        return value.transpose(2, 3, 1, 0).reshape(9, value.shape[1], value.shape[0])
    return value.reshape(value.shape[0], -1).T


class Tensors:
    """Places what is there before a step: frozen weights, adapters, and inputs of the host.

    Parameters
    ----------
    tiler : Tiler
    operations : sequence of Operation
    weights : mapping
        Frozen weights by diffusers' name.
    images : int
    fractions : mapping
        Fraction bits of masters by layer and part.

    Attributes
    ----------
    found : dict
        Tensors by name, as far as they are written.
    frozen : dict
        Codes of frozen weights by name.
    adapted : dict
        Matrices of adapters by layer and part.
    risen : set of str
        Tensors that are no more than addresses of a smaller one.
    """

    def __init__(
        self,
        tiler: Tiler,
        operations: Sequence[Operation],
        weights: Mapping[str, np.ndarray],
        images: int,
        fractions: Mapping[tuple[str, str], int],
    ) -> None:
        self.tiler, self.operations, self.weights, self.images = tiler, operations, weights, images
        self.fractions = fractions
        self.found: dict[str, DraftValue] = {}
        self.frozen: dict[str, Tiles] = {}
        self.adapted: dict[tuple[str, str], Adapted] = {}
        self.risen = {each.o.name for each in operations if isinstance(each, Upsample)}

    def _codes(self, values: np.ndarray, bits: int) -> Tiles:
        made = coded(values, bits)
        count, (rows, features) = values.shape[0] if values.ndim > 2 else 1, values.shape[-2:]
        tiles = Tiles(0, count, rows, features, bits)
        return Tiles(self.tiler.put(tiles.pack(made)), count, rows, features, bits)

    def place(self) -> None:
        """Frozen weights, and places of adapters."""
        for each in self.operations:
            for weight in each.weights:
                value = np.asarray(self.weights[weight.name], np.float64)
                if value.ndim == 1:
                    self.frozen[weight.name] = self._codes(value[None], WIDE)
                elif isinstance(each, Linear | Convolution):
                    self.frozen[weight.name] = self._codes(matrix(each, value), NARROW)
        for each in adapted(self.operations):
            for part, shape in (("a", (each.rank, each.i[0].features)), ("b", (each.o.features, each.rank))):
                gradient = self.tiler.value(f"{each.layer}.{part}.gradient", *shape)
                tiles = self.tiler.read(gradient, WIDE)
                sizes = LayoutWords(0, 0, tiles)
                masters, moments = (self.tiler.room(n * sizes.size, Kind.LEARNT) for n in (1, 2))
                words = LayoutWords(masters, moments, tiles)
                codes = self.tiler.tiles(1, *shape, NARROW, Kind.LEARNT)
                self.adapted[each.layer, part] = Adapted(codes, tiles, words, self.fractions[each.layer, part])
                self.found[f"{each.layer}.{part}"] = gradient

    def inputs(self) -> dict[str, Tiles]:
        """Places of what the host writes, by name."""
        made = {}
        for each in inputs_of(self.operations):
            value = self.found[each.name] = self.tiler.value(each.name, self.images * each.rows, each.features)
            made[each.name] = self.tiler.read(value, NARROW)
        last = self.operations[-1].o
        noise = self.found["noise"] = self.tiler.value("noise", self.images * last.rows, last.features)
        return made | {"noise": self.tiler.read(noise, WIDE)}


class Part:
    """Writes some kinds of operations; the parts of a writer share its tensors."""

    def __init__(self, tensors: Tensors) -> None:
        self.tiler, self.images = tensors.tiler, tensors.images
        self.found, self.frozen = tensors.found, tensors.frozen
        self.adapted, self.risen = tensors.adapted, tensors.risen

    def made(self, each: Operation) -> DraftValue:
        """The tensor that an operation makes."""
        value = self.tiler.value(each.o.name, self.images * each.o.rows, each.o.features)
        self.found[each.o.name] = value
        return value

    def gradient(self, of: DraftValue, name: str) -> DraftValue:
        """A part of the gradient of ``of``, which is called ``name``."""
        return self.tiler.value(f"{name}.part", of.rows, of.features)

    def wide(self, value: DraftValue, *at: int) -> Block:
        """Codes of 16 bits of a tile."""
        return Block.of(self.tiler.read(value, WIDE), [at])
