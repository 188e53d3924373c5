"""Convolutions and pools over time in front of recurrent layers."""

from dataclasses import dataclass, fields
from fractions import Fraction

import numpy as np

from gradloom.rtl.formats.requantizer import Requantizer

from ..network import windows
from .coding import Coding, bounds_of, reals

__all__ = ["Conv", "IntegerConv", "Kernels", "Pool", "Pooling"]


class Kernels:
    """Sizes of a convolution over time."""

    #: ``[outputs, inputs, kernel]``.
    weight: np.ndarray

    @property
    def inputs(self) -> int:
        """Channels of the input."""
        return int(self.weight.shape[1])

    @property
    def outputs(self) -> int:
        """Channels of the result."""
        return len(self.weight)

    @property
    def kernel(self) -> int:
        """Time steps of a window."""
        return int(self.weight.shape[2])


@dataclass(frozen=True, eq=False)
class Conv(Kernels):
    """A convolution over time and its quantiser.

    A ReLU between them is the quantiser's ``lo`` of 0.

    Attributes
    ----------
    weight : array of int64 ``[outputs, inputs, kernel]``
    scale, bias : array ``[outputs]``
        The result is ``scale * (weight * code * scale of the input) + bias``.
    stride : int
    pads : tuple of int
        Zeros before and after.
    """

    weight: np.ndarray
    scale: np.ndarray
    bias: np.ndarray
    stride: int
    pads: tuple[int, int]
    coding: Coding
    name: str = ""

    def steps(self, steps: int) -> int:
        """Time steps of the result, for the time steps of the input."""
        return windows(steps, self.kernel, self.stride, self.pads)


@dataclass(frozen=True, kw_only=True, eq=False)
class Pooling:
    """Greatest values of windows of time steps.

    Attributes
    ----------
    kernel, stride : int
    pads : tuple of int
        Steps before and after, which count as less than any value.
    groups : array of int ``[outputs, n]``
        Channels of the input that each output is the greatest of.
    inputs : int
        Channels of the input.
    """

    kernel: int
    stride: int
    pads: tuple[int, int]
    groups: np.ndarray
    inputs: int
    name: str = ""

    def coded(self, coding: Coding) -> "Pool":
        """The same of codes."""
        own = {each.name: getattr(self, each.name) for each in fields(Pooling)}
        return Pool(**own, coding=coding)

    @property
    def outputs(self) -> int:
        """Channels of the result."""
        return len(self.groups)

    def steps(self, steps: int) -> int:
        """Time steps of the result, for the time steps of the input."""
        return windows(steps, self.kernel, self.stride, self.pads)

    def greatest(self, values: np.ndarray, least: float) -> np.ndarray:
        """Of values ``[n, steps, inputs]``; ``least``: what pads are."""
        wide = np.pad(values, ((0, 0), self.pads, (0, 0)), constant_values=least)
        windows = np.lib.stride_tricks.sliding_window_view(wide, self.kernel, axis=1)[:, :: self.stride]
        found: np.ndarray = windows.max(axis=3)[..., self.groups].max(axis=3)
        return found


@dataclass(frozen=True, kw_only=True, eq=False)
class Pool(Pooling):
    """The same of codes.

    ``coding`` is that of the input, and of the result.
    """

    coding: Coding


@dataclass(frozen=True, eq=False)
class IntegerConv:
    """A :class:`Conv` in integers.

    ``requantizer`` is that of the sum of products of codes.
    """

    conv: Conv
    requantizer: Requantizer
    reach: tuple[int, int]

    @classmethod
    def of(cls, conv: Conv, source: Coding) -> "IntegerConv":
        scales = [each * Fraction(source.scale) for each in reals(conv.scale)]
        flat = conv.weight.reshape(len(conv.weight), -1)
        return cls(conv, conv.coding.requantizer(scales, reals(conv.bias)), bounds_of((flat, 1, source.lo, source.hi)))
