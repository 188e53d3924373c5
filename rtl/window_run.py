"""Configuration of a run of the window generator."""

from dataclasses import dataclass

__all__ = ["WindowRun"]


@dataclass(frozen=True, kw_only=True)
class WindowRun:
    """Configuration of one run of a :class:`~.units.window.window.WindowGenerator`.

    Its properties are the sizes that follow.

    Outputs are counted twice: ``rows`` x ``cols`` is the grid of a stride of one, of which
    ``out_height`` x ``out_width`` positions are emitted.
    """

    height: int
    width: int
    channels: int = 1
    kernel_h: int
    kernel_w: int
    stride_h: int = 1
    stride_w: int = 1
    pad_top: int = 0
    pad_left: int = 0
    pad_bottom: int = 0
    pad_right: int = 0

    def __post_init__(self):
        for name in ("height", "width", "channels", "kernel_h", "kernel_w", "stride_h", "stride_w"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: must be at least 1")
        for name in ("pad_top", "pad_left", "pad_bottom", "pad_right"):
            value = getattr(self, name)
            kernel = self.kernel_h if name in ("pad_top", "pad_bottom") else self.kernel_w
            if not 0 <= value < kernel:
                raise ValueError(f"{name}={value}: must be 0..{kernel - 1}, below the kernel's size")
        for name, extent in (("kernel_h", self.rows), ("kernel_w", self.cols)):
            if extent < 1:
                raise ValueError(f"{name}={getattr(self, name)}: larger than the padded input")

    @property
    def rows(self) -> int:
        """Output rows at stride 1."""
        return self.height + self.pad_top + self.pad_bottom - self.kernel_h + 1

    @property
    def cols(self) -> int:
        """Output columns at stride 1."""
        return self.width + self.pad_left + self.pad_right - self.kernel_w + 1

    @property
    def out_height(self) -> int:
        return (self.rows - 1) // self.stride_h + 1

    @property
    def out_width(self) -> int:
        return (self.cols - 1) // self.stride_w + 1

    @property
    def pitch(self) -> int:
        """Steps a row takes."""
        return max(self.width, self.cols, 2)

    @property
    def pixels(self) -> int:
        """Elements consumed."""
        return self.channels * self.height * self.width

    @property
    def windows(self) -> int:
        """Windows emitted."""
        return self.channels * self.out_height * self.out_width
