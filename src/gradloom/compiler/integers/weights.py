"""Codes of weights, of what learns as products read it."""

from collections.abc import Sequence

import numpy as np

from gradloom.graph.base import Operation
from gradloom.graph.network import Network
from gradloom.rtl.formats.tiles.codes import NARROW, WIDE, TileCoded, coded
from gradloom.sim.reference.tiles.products import TileSums, transposed

from ..commands.base import WHOLE
from ..commands.tied import chosen_rows, repeated, repeated_rows, whole_rows
from ..weights.matrices import TapRows, among, blocks, matrices, rest_of, stacked, tiles_of_taps, used_rows, weights_of
from ..weights.packed import kernel_codes
from .held import Counts, Held
from .kernels import taps_of

__all__ = ["LINES", "REST", "CodedWeights"]

#: Behind the name of a weight: its second codes; matrices of its lines, not of its taps.
REST, LINES = "~rest", "~lines"


def _plain(name: str) -> str:
    """The name of a weight without what stands behind it."""
    return name.removesuffix(REST).removesuffix(LINES).removesuffix(WHOLE)


class CodedWeights:
    """Weights by name in ``values``, of which ``learners`` change; codes that are stored are counted in ``counts``."""

    def __init__(self, network: Network, operations: Sequence[Operation], learners: Sequence[str]) -> None:
        self.values = {name: np.asarray(value, np.float64) for name, value in network.values.items()}
        self.learners = tuple(learners)
        self.values |= {name: network.learnt(name) for name in self.learners}
        self.ties = {name: tie for name, tie in network.ties.items() if name in self.learners}
        self.owner = {weight.name: each for each in operations for weight in each.weights}
        self.counts = Counts()
        self._chosen = dict[str, list[np.ndarray]]()
        for name, tie in self.ties.items():
            for suffix, rows_of in (("", repeated_rows), (WHOLE, whole_rows)):
                if (rows := rows_of(self.owner[name], name, tie)) is not None:
                    self._chosen[f"{name}{suffix}"] = chosen_rows(self.owner[name], name, tie, rows)
        self._kept: dict[str, tuple[np.ndarray, TileCoded]] = {}
        self._whole: dict[str, tuple[np.ndarray, TileCoded]] = {}

    def take_counts(self) -> Counts:
        """Counts since the last call."""
        taken, self.counts = self.counts, Counts()
        return taken

    def held(self, exact: np.ndarray, *, positive: bool = False) -> Held:
        """A tensor that the machine makes."""
        return Held(np.maximum(exact, 0) if positive else exact, self.counts)

    def summed(self, found: TileSums) -> Held:
        """The same of a product."""
        self.counts.lost += found.lost
        return self.held(found.values)

    def weight(self, each: Operation, name: str) -> TileCoded:
        """Codes of matrices ``[taps, inputs, outputs]``, or of a bias ``[1, outputs]``.

        With :data:`REST` behind its name second codes.
        """
        if name.endswith(LINES):
            name = name.removesuffix(LINES)
            rows = self._rows_of(each, name)
            assert rows.line is not None
            return taps_of(self._stacked(name), (rows.line.total, self._shaped(each, name).shape[-1]), rows.lines)
        value = self.values[_plain(name)]
        kept = self._kept.get(name)
        if kept is None or kept[0] is not value:
            if value.ndim == 1:
                made = coded(value[None], WIDE)
            elif _plain(name) in self.learners:
                shape, found = self._shaped(each, name).shape, self._stacked(name)
                made = transposed(found) if len(shape) == 2 else taps_of(found, shape[1:], self._rows_of(each, name))
            else:
                whole = matrices(each, name.removesuffix(REST), value).swapaxes(-1, -2)
                made = kernel_codes(each, name.removesuffix(REST), whole)
                if name.endswith(REST):
                    made = kernel_codes(each, name.removesuffix(REST), rest_of(whole, made))
            kept = self._kept[name] = value, made
        return kept[1]

    def _stacked(self, name: str) -> TileCoded:
        """Codes of what learns, as products read it."""
        value = self.values[_plain(name)]
        kept = self._whole.get(name)
        if kept is None or kept[0] is not value:
            made = coded(self.matrix(_plain(name)), NARROW)
            if name in self._chosen:
                made = self.summed(repeated(self._chosen[name], made)).narrow
            kept = self._whole[name] = value, made
        return kept[1]

    def _shaped(self, each: Operation, name: str) -> np.ndarray:
        """Matrices of what learns; of what repeats a smaller one, indices."""
        plain = _plain(name)
        return matrices(each, plain, self.ties[plain].index if plain in self.ties else self.values[plain])

    def _rows_of(self, each: Operation, name: str) -> TapRows:
        """Rows of taps of what learns, as products read it."""
        plain = _plain(name)
        if plain not in self.ties:
            return self._own_rows(name)
        rows = whole_rows(each, plain, self.ties[plain]) if name.endswith(WHOLE) else None
        return rows or repeated_rows(each, plain, self.ties[plain])

    def _own_rows(self, name: str) -> TapRows:
        """Rows of taps of a weight as the machine learns it."""
        value = self.values[name]
        return used_rows(matrices(self.owner[name], name, value), () if name in self.ties else value.shape[2:])

    def _counts(self, each: Operation, name: str, back: bool, deep: range | None) -> list[int]:
        """Tiles of each tap of a kernel that a tile of the result takes at most."""
        weight = self.weight(each, name)
        taps, *sides = weight.exponents.shape if weight.exponents.ndim > 2 else (1, *weight.exponents.shape)
        own = among(sides[int(back)], deep)
        if _plain(name) in self.learners:
            return [len(own)] * taps
        return tiles_of_taps(blocks(weight.codes.reshape(taps, *weight.codes.shape[-2:])), back, own)

    def renewed(self, name: str, matrix: np.ndarray) -> None:
        """A weight after an update, as a matrix; the machine stores its codes."""
        each, shape = self.owner[name], self.values[name].shape
        self.counts.coded(matrix, WIDE if len(shape) == 1 else NARROW)
        if len(shape) > 2:
            matrix = self._own_rows(name).taken(matrix, matrices(each, name, self.values[name]).shape[-2])
        self.values[name] = weights_of(each, name, matrix, shape)

    def matrix(self, name: str) -> np.ndarray:
        """A weight as the machine learns it."""
        value = self.values[name]
        return (
            value[None] if value.ndim == 1 else stacked(matrices(self.owner[name], name, value), self._own_rows(name))
        )
