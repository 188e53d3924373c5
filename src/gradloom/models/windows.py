"""Windows of kernels."""

__all__ = ["windows"]


def windows(size: int, kernel: int, stride: int, pads: tuple[int, int]) -> int:
    """Places of a kernel along an axis of ``size`` elements.

    There is none where it is below 1. ``pads``: elements before and behind.
    """
    return (size + sum(pads) - kernel) // stride + 1
