"""Convolution front end: pixels in, kernel windows out."""

from amaranth.hdl import Module, Shape, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...latencies import WINDOW, WINDOW_SETUP
from ...window_run import WindowRun
from .counts import count_run
from .prepare import derived_layout, prepare_run
from .taps import make_windows

__all__ = ["WindowRun", "WindowGenerator"]


class WindowGenerator(wiring.Component):
    """Turns channels of pixels into the windows of a convolution.

    Pixels pass through a delay line that is ``kernel_h - 1`` rows long; a window is its
    ``max_kernel``² taps. Padding is masked where it is seen, never streamed: windows wrap around
    row ends and channel ends, so a convolution whose output is as large as its input takes
    exactly one cycle a pixel across rows and channels.

    A run takes :meth:`cycles` cycles when neither side stalls, and the next one follows at once: its
    configuration is accepted, and prepared, while the one before runs. A window leaves ``latency``
    cycles after the pixel in its lower right corner arrived; ``i.ready`` depends on ``o.ready``
    combinationally.

    ::

        i_config --> prepare --> counts of pixels and windows
                                      |
        i --> delay line --> taps --> masks --> o

    Parameters
    ----------
    shape : :class:`~amaranth.hdl.Shape`
        Of a pixel.
    max_kernel : :class:`int`
        Largest kernel, either way.
    max_width, max_height : :class:`int`
        Most columns and rows of the input and of the output grid at stride 1, whichever is larger.
    max_channels : :class:`int`
        Most channels in a run.
    max_stride : :class:`int`
        Largest stride, either way; ``max_kernel`` if not given.

    Members
    -------
    i_config : ``In(stream.Signature(config_layout))``
        A run: the fields of :class:`WindowRun`, which says what is legal; :meth:`check` adds this
        unit's maxima. The hardware does not check.
    i : ``In(stream.Signature(shape))``
        Pixels, channel after channel, each in raster order.
    o : ``Out(stream.Signature(window_layout))``
        Windows, channel after channel, each in raster order of output positions. Element (ky, kx)
        is ``p[ky * max_kernel + kx]`` whatever the kernel's size; padding and elements outside the kernel
        are 0. ``first`` and ``last`` mark the first and last position of a channel,
        ``first_channel`` and ``last_channel`` every window of the first and last channel, ``end``
        the last window of the run.
    """

    #: Cycles from a step to the window it completes.
    latency = WINDOW
    #: Cycles from accepting a configuration to the run's first step, when nothing runs before it.
    setup = WINDOW_SETUP

    def __init__(
        self, *, shape=signed(24), max_kernel=5, max_width=32, max_height=32, max_channels=512, max_stride=None
    ):
        for name, value, least in (
            ("max_kernel", max_kernel, 2),
            ("max_width", max_width, 2),
            ("max_height", max_height, 1),
            ("max_channels", max_channels, 1),
        ):
            if value < least:
                raise ValueError(f"{name}={value}: must be at least {least}")
        self.shape = Shape.cast(shape)
        self.max_kernel = max_kernel
        self.max_width = max_width
        self.max_height = max_height
        self.max_channels = max_channels
        self.max_stride = max_kernel if max_stride is None else max_stride
        if self.max_stride < 1:
            raise ValueError(f"max_stride={max_stride}: must be at least 1")
        kernel, stride, pad = range(max_kernel + 1), range(self.max_stride + 1), range(max_kernel)
        self.config_layout = data.StructLayout(
            {
                "height": range(max_height + 1),
                "width": range(max_width + 1),
                "channels": range(max_channels + 1),
                "kernel_h": kernel,
                "kernel_w": kernel,
                "stride_h": stride,
                "stride_w": stride,
                "pad_top": pad,
                "pad_left": pad,
                "pad_bottom": pad,
                "pad_right": pad,
            }
        )
        self.window_layout = data.StructLayout(
            {
                "p": data.ArrayLayout(self.shape, max_kernel * max_kernel),
                "first": 1,
                "last": 1,
                "first_channel": 1,
                "last_channel": 1,
                "end": 1,
            }
        )
        super().__init__(
            {
                "i_config": In(stream.Signature(self.config_layout)),
                "i": In(stream.Signature(self.shape)),
                "o": Out(stream.Signature(self.window_layout)),
            }
        )

    def check(self, run: WindowRun):
        """Refuse a run that is larger than this unit."""
        for name, value, most in (
            ("kernel_h", run.kernel_h, self.max_kernel),
            ("kernel_w", run.kernel_w, self.max_kernel),
            ("stride_h", run.stride_h, self.max_stride),
            ("stride_w", run.stride_w, self.max_stride),
            ("height", run.height, self.max_height),
            ("width", run.width, self.max_width),
            ("output rows at stride 1", run.rows, self.max_height),
            ("output columns at stride 1", run.cols, self.max_width),
            ("channels", run.channels, self.max_channels),
        ):
            if value > most:
                raise ValueError(f"{name}={value}: this window generator takes at most {most}")

    def fill(self, run: WindowRun) -> int:
        """Steps before the one that completes the first window."""
        return (run.kernel_h - 1 - run.pad_top) * run.pitch + self.max_kernel - 1 - run.pad_left

    def steps(self, run: WindowRun) -> int:
        """Steps until the last pixel is in and the last window complete."""
        before = (run.channels - 1) * max(run.height, run.rows)
        last_pixel = (before + run.height - 1) * run.pitch + run.width - 1
        last_window = (
            (before + (run.out_height - 1) * run.stride_h) * run.pitch
            + (run.out_width - 1) * run.stride_w
            + self.fill(run)
        )
        return 1 + max(last_pixel, last_window)

    def cycles(self, run: WindowRun) -> int:
        """Cycles between the starts of a run and of the next.

        This holds when neither side stalls.

        The first run after idleness starts ``setup - 2`` cycles later than one that follows another; its
        last window leaves ``setup + steps(run) - 1 + latency`` cycles after its configuration was accepted.
        """
        # Preparing the next configuration takes longer than the shortest runs.
        return max(self.steps(run) + 2, 5)

    def elaborate(self, platform):
        m = Module()
        take = Signal()
        next_run = prepare_run(m, self, take)
        run = Signal(derived_layout(self))
        go = Signal()
        o_valid = Signal()
        m.d.comb += go.eq(~o_valid | self.o.ready)
        counts = count_run(m, self, run, next_run, take, go)
        make_windows(m, self, counts, run, go, o_valid)
        return m
