"""The part of the mathematics that goes through windows: convolutions and pools."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .base import Operation
from .operations import Convolution, Pool
from .windows import PaddedWindows

__all__ = ["Windowed"]


class Windowed:
    """Rules of :class:`~.mathematics.FloatReading`."""

    dtype: Any
    values: dict[str, np.ndarray]

    def product(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Matrix product of the last two axes."""
        raise NotImplementedError

    def operand(self, x: np.ndarray, *, over_rows: bool = False) -> np.ndarray:
        """What a product takes of a tensor."""
        raise NotImplementedError

    def held(self, each: Operation, x: np.ndarray) -> np.ndarray:
        """What is kept of a result."""
        raise NotImplementedError

    def weight(self, name: str, *, back: bool = False) -> np.ndarray:
        """A layer's weights, for products; ``back``: of gradients."""
        raise NotImplementedError

    def _geometry(self, each: Convolution | Pool) -> PaddedWindows:
        large, small = each.i[0], each.o
        if isinstance(each, Convolution) and each.transposed:
            large, small = small, large
        return PaddedWindows(large.sides, small.sides, each.kernel, each.stride, each.pads, each.dilation)

    def tapped(self, windows: np.ndarray, w: np.ndarray) -> np.ndarray:
        """A depthwise layer: windows times ``w [channels, taps]``, every channel by itself."""
        made = windows[..., 0, :] * w[:, 0]
        for tap in range(1, w.shape[1]):
            made += windows[..., tap, :] * w[:, tap]
        return made

    def spread_taps(self, y: np.ndarray, w: np.ndarray) -> np.ndarray:
        """What comes back to the windows of a depthwise layer."""
        return y[..., None, :] * w.T

    def taps_gradient(self, windows: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Gradient of a depthwise layer's weights, ``[channels, taps]``."""
        axes = tuple(range(y.ndim - 1))
        return np.stack([(windows[..., tap, :] * y).sum(axes) for tap in range(windows.shape[-2])], axis=1)

    def spread_product(self, windows: np.ndarray, w: np.ndarray, groups: int) -> np.ndarray:
        """Windows times weights ``[outputs, inputs / groups, *kernel]``: ``[samples, *places, outputs]``."""
        taps, channels = windows.shape[-2:]
        matrix = w.reshape(groups, len(w) // groups, channels // groups, taps)
        if channels == groups == len(w):
            return self.tapped(windows, matrix.reshape(groups, taps))
        if groups == 1:
            flat = windows.reshape(*windows.shape[:-2], taps * channels)
            return self.product(flat, matrix[0].transpose(2, 1, 0).reshape(taps * channels, -1))
        seen = windows.reshape(-1, taps, groups, channels // groups).transpose(2, 0, 1, 3)
        made = self.product(
            seen.reshape(groups, -1, taps * channels // groups),
            matrix.transpose(0, 3, 2, 1).reshape(groups, -1, len(w) // groups),
        )
        return made.transpose(1, 0, 2).reshape(*windows.shape[:-2], len(w))

    def spread_back(self, y: np.ndarray, w: np.ndarray, groups: int) -> np.ndarray:
        """What comes back to the windows."""
        taps = int(np.prod(w.shape[2:]))
        per, outputs = w.shape[1], len(w) // groups
        matrix = w.reshape(groups, outputs, per, taps).transpose(0, 1, 3, 2).reshape(groups, outputs, taps * per)
        if per == outputs == 1:
            return self.spread_taps(y, matrix.reshape(groups, taps))
        if groups == 1:
            return self.product(y, matrix[0]).reshape(*y.shape[:-1], taps, per)
        made = self.product(y.reshape(-1, groups, outputs).transpose(1, 0, 2), matrix)
        made = made.reshape(groups, -1, taps, per).transpose(1, 2, 0, 3)
        return made.reshape(*y.shape[:-1], taps, groups * per)

    def spread_weights(self, windows: np.ndarray, y: np.ndarray, w: np.ndarray, groups: int) -> np.ndarray:
        """Gradient of the weights."""
        taps, channels = windows.shape[-2:]
        outputs, per = len(w) // groups, channels // groups
        if outputs == per == 1:
            return self.taps_gradient(windows, y).reshape(w.shape)
        seen = windows.reshape(-1, taps, groups, per).transpose(2, 1, 3, 0).reshape(groups, taps * per, -1)
        made = self.product(seen, y.reshape(-1, groups, outputs).transpose(1, 0, 2))
        return made.reshape(groups, taps, per, outputs).transpose(0, 3, 2, 1).reshape(w.shape)

    def _convolution(self, each: Convolution, *parts: np.ndarray) -> np.ndarray:
        geometry, x = self._geometry(each), sum(map(self.operand, parts[1:]), self.operand(parts[0]))
        w = self.weight(f"{each.layer}.weight", back=each.transposed)
        if each.transposed:
            y = geometry.added(self.spread_back(x, w, each.groups))
        else:
            windows = geometry.read(x)
            y = self.spread_product(windows, w, each.groups)
            if each.rank:
                a, b = (self.weight(weight.name) for weight in each.adapter)
                hidden = self.operand(self.held(each, self.spread_product(windows, a, 1)))
                y = y + self.dtype(each.scale) * self.product(hidden, b.reshape(len(b), -1).T)
        return y + self.values[f"{each.layer}.bias"] if each.bias else y

    def _convolution_back(
        self, each: Convolution, dy: np.ndarray, parts: list, y: np.ndarray, wanted: list, own: set
    ) -> tuple[Sequence[np.ndarray | None], dict[str, np.ndarray]]:
        x, learnt = parts[0], {}
        name = f"{each.layer}.weight"
        w, geometry = self.weight(name, back=not each.transposed), self._geometry(each)
        if f"{each.layer}.bias" in own:
            learnt[f"{each.layer}.bias"] = dy.sum(tuple(range(dy.ndim - 1)))
        summed = self.operand(dy, over_rows=True)
        if each.transposed:
            if name in own:
                learnt[name] = self.spread_weights(
                    geometry.read(summed), self.operand(x, over_rows=True), w, each.groups
                )
            windows = geometry.read(self.operand(dy))
            return [self.spread_product(windows, w, each.groups) if wanted[0] else None], learnt
        learns = name in own or bool(each.rank and each.adapter[0].name in own)
        windows = geometry.read(self.operand(x, over_rows=True)) if learns else x
        if name in own:
            learnt[name] = self.spread_weights(windows, summed, w, each.groups)
        coded = self.operand(dy)
        back = self.spread_back(coded, w, each.groups) if wanted[0] else None
        if each.rank:
            a, b = (self.weight(weight.name, back=True) for weight in each.adapter)
            scale = self.dtype(each.scale)
            through = self.held(each, scale * self.product(coded, b.reshape(len(b), -1)))
            if each.adapter[0].name in own:
                hidden = self.held(
                    each, self.spread_product(geometry.read(self.operand(x)), self.weight(each.adapter[0].name), 1)
                )
                learnt[each.adapter[0].name] = self.spread_weights(windows, self.operand(through, over_rows=True), a, 1)
                flat = self.product(
                    summed.reshape(-1, len(b)).T, self.operand(hidden, over_rows=True).reshape(-1, each.rank)
                )
                learnt[each.adapter[1].name] = scale * flat.reshape(b.shape)
            if back is not None:
                back = back + self.spread_back(self.operand(through), a, 1)
        return [None if back is None else geometry.added(back)], learnt

    def _pool(self, each: Pool, x: np.ndarray) -> np.ndarray:
        geometry = self._geometry(each)
        if each.kind == "max":
            made: np.ndarray = geometry.read(x, -np.inf).max(-2)
            return made
        return geometry.read(x).sum(-2) / geometry.counts(each.counted).astype(x.dtype)

    def _pool_back(
        self, each: Pool, dy: np.ndarray, parts: list, y: np.ndarray, wanted: list, own: set
    ) -> tuple[Sequence[np.ndarray | None], dict[str, np.ndarray]]:
        geometry = self._geometry(each)
        if each.kind == "max":
            # The first of equals has the gradient.
            first = geometry.read(parts[0], -np.inf).argmax(-2)
            back = np.where(np.arange(geometry.taps)[:, None] == first[..., None, :], dy[..., None, :], 0)
        else:
            share = dy / geometry.counts(each.counted).astype(dy.dtype)
            back = np.broadcast_to(share[..., None, :], (*share.shape[:-1], geometry.taps, share.shape[-1]))
        return [geometry.added(back)], {}
