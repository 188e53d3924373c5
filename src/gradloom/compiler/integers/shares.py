"""Softmaxes in integers, see :mod:`..commands.softmaxes`."""

from collections.abc import Sequence

import numpy as np

from gradloom.graph.operations import Softmax
from gradloom.rtl.formats.tiles.codes import EDGE
from gradloom.rtl.formats.tiles.functions import ENTROPY
from gradloom.sim.reference.tiles import vector
from gradloom.sim.reference.tiles.norm import Pull

from ..commands.softmaxes import PART
from .held import Held

__all__ = ["Shares"]


class Shares:
    """Rules of :class:`~.integers.IntegerNetwork`."""

    def held(self, exact: np.ndarray, *, positive: bool = False) -> Held:
        """A tensor that the machine makes."""
        raise NotImplementedError

    def _softmax(self, each: Softmax, found: dict[str, Held]) -> None:
        x = found[each.i[0].name].values
        found[each.o.name] = self.logarithms(x) if each.log else self.soft(x)

    def _softmax_back(self, each: Softmax, found: dict, dy: Held, wanted: list, learnt: dict) -> Sequence[Held | None]:
        if not each.log:
            return [self.soft_back(found[each.o.name].values, dy.values)]
        columns = _columns(dy.values)
        p = self.soft(found[each.i[0].name].values).values
        total = self._total([self._sum(part) for part in columns])
        made = []
        for one, part in zip(_columns(p), columns):
            less = self._stored(vector.multiply(one, _like(total, one)))
            made.append(vector.add(part, less, subtract=True))
        return [self.held(np.concatenate(made, axis=-1))]

    def soft(self, x: np.ndarray, factor: float = 1.0) -> Held:
        """Shares of rows."""
        return self.held(vector.softmax(x, factor))

    def soft_back(self, p: np.ndarray, dp: np.ndarray, factor: float = 1.0, pull: Pull | None = None) -> Held:
        """The gradient of scores, from shares and their gradient; ``pull``: of their rows, unless it is theirs."""
        return self.held(vector.softmax_back(p, dp, factor, pull))

    def logarithms(self, x: np.ndarray) -> Held:
        parts, terms = _columns(x), []
        for part, p in zip(parts, _columns(self.soft(x).values)):
            times, rest = vector.multiply(part, p), vector.function(p, ENTROPY)
            terms.append(self._stored(vector.add(self._stored(times), self._stored(rest))))
        level = self._total([self._sum(each) for each in terms])
        made = [vector.add(part, _like(level, part), subtract=True) for part in parts]
        return self.held(np.concatenate(made, axis=-1))

    def _sum(self, x: np.ndarray) -> np.ndarray:
        """The sum of a tile's columns, in all columns."""
        if x.shape[-1] < EDGE:
            x = self._stored(np.pad(x, [*((0, 0) for _ in x.shape[1:]), (0, EDGE - x.shape[-1])]))
        rest = self._stored(vector.softmax_back(np.full_like(x, PART), x, 1 / PART))
        return self._stored(vector.scaled(self._stored(vector.add(x, rest, subtract=True)), 1 / PART))

    def _total(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        total = parts[0]
        for part in parts[1:]:
            total = self._stored(vector.add(total, part))
        return total

    def _stored(self, exact: np.ndarray) -> np.ndarray:
        return self.held(exact).values


def _columns(x: np.ndarray) -> list[np.ndarray]:
    """Tiles of columns."""
    return [x[..., start : start + EDGE] for start in range(0, x.shape[-1], EDGE)]


def _like(x: np.ndarray, other: np.ndarray) -> np.ndarray:
    """As many columns as another has; all are the same."""
    return x[..., : other.shape[-1]]
