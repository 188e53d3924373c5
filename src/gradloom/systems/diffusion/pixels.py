"""Images of a UNet's convolutions."""

from collections.abc import Collection

from gradloom.rtl.formats.pixels import Pixels, taps

from .operations import Convolution

__all__ = ["TAPS", "pixels_of"]

#: Elements of a kernel of 3×3, and those of its gradient.
TAPS = tuple(taps((3, 3), (1, 1), back=back) for back in (False, True))
#: Pixels in a row at most.
_MOST = 1 << 7


def pixels_of(each: Convolution, images: int, risen: Collection[str], *, back: bool) -> Pixels:
    """Rows that a convolution reads, or its gradient if ``back``.

    ``risen``: tensors that are upsampled as they are read.
    """
    wide, small = each.i[0].side, each.o.side
    side = wide if back else small
    if side & side - 1 or side > _MOST:
        raise ValueError(f"{each.layer}: {side} pixels in a row must be a power of two, at most {_MOST}")
    stride = (each.stride, each.stride)
    if back:
        return Pixels(images, (wide, wide), (small, small), stride, divide=True, every=True)
    if each.i[0].name in risen:
        return Pixels(images, (small, small), (wide // 2, wide // 2), (2, 2), divide=True)
    return Pixels(images, (small, small), (wide, wide), stride)
