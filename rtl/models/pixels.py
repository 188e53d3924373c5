"""Converts bytes of images to activations, as floats or words."""

from dataclasses import dataclass, field

import numpy as np

from ..formats.fixed import Fixed

__all__ = ["PixelMap"]


@dataclass(frozen=True, kw_only=True, eq=False)
class PixelMap:
    """``scale * p + shift`` of a pixel ``p``, a byte over 255.

    By default it is ``p`` itself.

    The host applies it when it makes words of images, so that zeros that pad the first convolution are zeros of its
    input, as in ONNX.

    Parameters
    ----------
    scale, shift : float arrays that broadcast to an image ``(c, h, w)``
    """

    scale: np.ndarray = field(default_factory=lambda: np.array(1.0))
    shift: np.ndarray = field(default_factory=lambda: np.array(0.0))

    def __post_init__(self):
        for name in ("scale", "shift"):
            array = np.array(getattr(self, name), np.float64)
            if not np.isfinite(array).all():
                raise ValueError(
                    f"{name} of the pixels has {int((~np.isfinite(array)).sum())} values that are NaN or "
                    f"infinite: all must be finite"
                )
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether it maps an image of ``shape`` to one of the same shape."""
        try:
            return np.broadcast_shapes(self.scale.shape, self.shift.shape, shape) == shape
        except ValueError:
            return False

    def then(self, scale: np.ndarray | float, shift: np.ndarray | float) -> "PixelMap":
        """This map, followed by ``scale * x + shift``."""
        return PixelMap(scale=np.asarray(scale * self.scale), shift=np.asarray(scale * self.shift + shift))

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Activations of pixels, ``[..., c, h, w]``, float64.

        The pixels are already divided by 255.
        """
        return np.asarray(values, np.float64) * self.scale + self.shift

    def activations(self, images: np.ndarray) -> np.ndarray:
        """Activations of uint8 images ``[..., c, h, w]``, float64."""
        return self(np.asarray(images, np.float64) / 255)

    def words(self, images: np.ndarray, fmt: Fixed) -> np.ndarray:
        """Activations of uint8 images as words of ``fmt``.

        Images with a word beyond the format are refused: :class:`ValueError` says how many.
        """
        values = self.activations(images)
        nearest = np.rint(values * 2.0**fmt.frac)
        beyond = int(((nearest < fmt.lo) | (nearest > fmt.hi)).sum())
        if beyond:
            raise ValueError(
                f"images: {beyond:,} of {values.size:,} pixels ({100 * beyond / values.size:.2g} %) are outside the "
                f"format of activations, {fmt.lo * fmt.step:g} to {fmt.hi * fmt.step:.6g}, after the network's own "
                f"scaling of its input, up to {float(np.abs(values).max()):.6g}: scale the input less"
            )
        return nearest.astype(np.int64)
