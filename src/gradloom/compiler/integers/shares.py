"""Softmaxes in integers, see :mod:`..commands.softmaxes`."""

from collections.abc import Sequence

import numpy as np

from gradloom.graph.operations import Softmax
from gradloom.rtl.formats.tiles.codes import EDGE
from gradloom.rtl.formats.tiles.functions import ENTROPY, LOGISTIC, SOFTPLUS
from gradloom.sim.reference.tiles import vector

from ..commands.softmaxes import PART, pairs
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
        if x.shape[-1] <= EDGE:
            return self.held(vector.softmax(x, factor))
        own, levels = self._levels(x, factor)
        shares, members = dict[int, np.ndarray](), {j: [j] for j in range(len(own))}
        for first, second, is_last in pairs(len(own)):
            one, other = levels[first], levels[second]
            for group, (a, b) in ((first, (one, other)), (second, (other, one))):
                share = self._stored(vector.function(self._stored(vector.add(a, b, subtract=True)), LOGISTIC.value))
                for j in members[group]:
                    shares[j] = self._stored(vector.multiply(shares[j], share)) if j in shares else share
            members[first] += members.pop(second)
            if not is_last:
                levels[first] = self._met(one, other)
        made = [vector.multiply(part, _like(shares[j], part)) for j, part in enumerate(own)]
        return self.held(np.concatenate(made, axis=-1))

    def soft_back(self, p: np.ndarray, dp: np.ndarray, factor: float = 1.0) -> Held:
        """The gradient of scores, from shares and their gradient."""
        if p.shape[-1] <= EDGE:
            return self.held(vector.softmax_back(p, dp, factor))
        parts = list(zip(_columns(p), _columns(dp)))
        pull = self._total([self._sum(self._stored(vector.multiply(one, part))) for one, part in parts])
        made = []
        for one, part in parts:
            rest = self._stored(vector.add(part, _like(pull, part), subtract=True))
            made.append(vector.scaled(self._stored(vector.multiply(rest, one)), factor))
        return self.held(np.concatenate(made, axis=-1))

    def logarithms(self, x: np.ndarray) -> Held:
        levels = self._levels(x, 1.0)[1]
        for first, second, _ in pairs(len(levels)):
            levels[first] = self._met(levels[first], levels[second])
        made = [vector.add(part, _like(levels[0], part), subtract=True) for part in _columns(x)]
        return self.held(np.concatenate(made, axis=-1))

    def _levels(self, x: np.ndarray, factor: float) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Shares of each tile, and the logarithm of its sum of powers in all columns."""
        own, levels = [], []
        for part in _columns(x):
            p = self._stored(vector.softmax(part, factor))
            scaled = self._stored(vector.scaled(self._stored(vector.multiply(part, p)), factor))
            levels.append(self._sum(self._stored(vector.add(scaled, self._stored(vector.function(p, ENTROPY))))))
            own.append(p)
        return own, levels

    def _met(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        more = self._stored(vector.function(self._stored(vector.add(one, other, subtract=True)), SOFTPLUS.value))
        return self._stored(vector.add(self._stored(vector.larger(one, other)), more))

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
