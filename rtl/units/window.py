"""Convolution front end: pixels in, kernel windows out."""

from types import SimpleNamespace

from amaranth.hdl import Cat, Module, Mux, Shape, Signal, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .latencies import WINDOW, WINDOW_SETUP
from .window_run import WindowRun

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

    @property
    def _row_bits(self):
        """Bits of a counter of rows that may end below zero."""
        return (self.max_height + self.max_kernel).bit_length() + 1

    @property
    def _col_bits(self):
        """Bits of a counter of columns that may end below zero."""
        return (self.max_width + self.max_kernel).bit_length() + 1

    @property
    def _derived_layout(self):
        """Values that follow from a configuration.

        What a counter starts from is kept as "count minus one", so that it ends at zero, or signed, so that its range
        ends with its sign.
        """
        k, row_bits, col_bits = self.max_kernel, self._row_bits, self._col_bits
        return data.StructLayout(
            {
                "height": row_bits,
                "width": col_bits,  # minus one
                "rows": row_bits,
                "cols": col_bits,  # minus one
                "pitch": col_bits,
                "grid": row_bits,  # minus one
                "row_ahead": signed(row_bits),
                "col_ahead": signed(col_bits),
                "row_mask": k,
                "col_mask": k,
                "row_used": k,
                "col_used": k,
                "lead": range(k),
                "warm": range(k),
                "channels": range(self.max_channels),
                "stride_h": range(self.max_stride + 1),
                "stride_w": range(self.max_stride + 1),
            }
        )

    @property
    def _tags_layout(self):
        """Tags of a step, for the window that it completes."""
        k = self.max_kernel
        return data.StructLayout(
            {"emit": 1, "first": 1, "last": 1, "first_channel": 1, "last_channel": 1, "end": 1, "rows": k, "cols": k}
        )

    def elaborate(self, platform):
        m = Module()
        take = Signal()
        ready, prepared = self._prepare(m, take)
        run = Signal(self._derived_layout)
        go = Signal()
        step = Signal()
        active = Signal()
        o_valid = Signal()
        m.d.comb += go.eq(~o_valid | self.o.ready)

        at = SimpleNamespace()  # where the run is, by the names of the counters
        self._count_pixels(m, at, go, active, step)
        self._count_windows(m, at, run)
        self._control(m, at, ready, prepared, take, run, go, active, step)
        with m.If(step):
            m.d.sync += [at.i_done.eq(at.i_done | at.i_last), at.o_done.eq(at.o_done | at.o_last)]
            self._next_pixel(m, at, run)
            self._next_window(m, at, run)

        pixel, addr1, tags, valid1 = self._tag(m, at, run, go, step)
        column = self._delay_line(m, at, run, go, step, pixel, addr1, valid1)
        taps, valid2 = self._shift(m, go, column, tags, valid1)
        self._mask(m, go, taps, tags[1], valid2, o_valid)
        return m

    def _prepare(self, m, take):
        """Derives values from a configuration, one small sum a cycle.

        The run before it is busy meanwhile.
        """
        k = self.max_kernel
        asked = Signal(self.config_layout)
        ready = Signal(self._derived_layout)
        bottom = Signal(unsigned(self._row_bits))  # first row below the input, seen from the first window
        right = Signal(unsigned(self._col_bits))
        prepared = Signal()

        with m.FSM(name="prepare"):
            with m.State("EMPTY"):
                m.d.comb += self.i_config.ready.eq(1)
                m.d.sync += asked.eq(self.i_config.payload)
                with m.If(self.i_config.valid):
                    m.next = "MARGIN"
            with m.State("MARGIN"):
                m.d.sync += [
                    bottom.eq(asked.height + asked.pad_top),
                    right.eq(asked.width + asked.pad_left),
                    ready.height.eq(asked.height - 1),
                    ready.width.eq(asked.width - 1),
                    ready.channels.eq(asked.channels - 1),
                    ready.lead.eq(asked.kernel_h - 1 - asked.pad_top),
                    ready.warm.eq(k - 1 - asked.pad_left),
                    ready.stride_h.eq(asked.stride_h),
                    ready.stride_w.eq(asked.stride_w),
                    ready.row_used.eq(Cat(asked.kernel_h > n for n in range(k))),
                    ready.col_used.eq(Cat(asked.kernel_w > n for n in range(k))),
                ]
                m.next = "EXTENT"
            with m.State("EXTENT"):
                m.d.sync += [
                    ready.rows.eq(bottom + asked.pad_bottom - asked.kernel_h),
                    ready.cols.eq(right + asked.pad_right - asked.kernel_w),
                    ready.row_ahead.eq(bottom - (k + 1)),
                    ready.col_ahead.eq(right - (k + 1)),
                    ready.row_mask.eq(Cat((asked.pad_top <= n) & (bottom > n) for n in range(k))),
                    ready.col_mask.eq(Cat((asked.pad_left <= n) & (right > n) for n in range(k))),
                ]
                m.next = "GRID"
            with m.State("GRID"):
                # A row of one step would read the delay line before its last write.
                m.d.sync += [
                    ready.grid.eq(Mux(ready.rows > ready.height, ready.rows, ready.height)),
                    ready.pitch.eq(
                        Mux(ready.cols > ready.width, ready.cols, ready.width) | ~(ready.cols.any() | ready.width.any())
                    ),
                ]
                m.next = "READY"
            with m.State("READY"):
                m.d.comb += prepared.eq(1)
                with m.If(take):
                    m.next = "EMPTY"
        return ready, prepared

    def _count_pixels(self, m, at, go, active, step):
        """Counts where the next pixel goes in the delay line.

        Steps when the pixel is there or none is needed.
        """
        row_bits, col_bits = self._row_bits, self._col_bits
        at.i_col = Signal(col_bits)
        at.i_width = Signal(signed(col_bits))
        at.i_row = Signal(row_bits)
        at.i_height = Signal(signed(row_bits))
        at.i_channel = Signal(range(self.max_channels))
        at.i_done = Signal()
        at.needed = Signal()
        at.i_last = Signal()
        m.d.comb += [
            at.needed.eq(~at.i_width[-1] & ~at.i_height[-1] & ~at.i_done),
            at.i_last.eq(at.needed & ~at.i_width.any() & ~at.i_height.any() & ~at.i_channel.any()),
            step.eq(active & go & (self.i.valid | ~at.needed)),
            self.i.ready.eq(active & go & at.needed),
        ]

    def _count_windows(self, m, at, run):
        """Counts the position of the window that this step completes.

        Returns whether the window is emitted.
        """
        k, row_bits, col_bits = self.max_kernel, self._row_bits, self._col_bits
        at.warm = Signal(range(k))
        at.live = Signal()
        at.o_col = Signal(col_bits)
        at.o_cols = Signal(signed(col_bits))
        at.o_row = Signal(row_bits)
        at.o_rows = Signal(signed(row_bits))
        at.skip_w = Signal(range(self.max_stride))
        at.skip_h = Signal(range(self.max_stride))
        at.o_channel = Signal(range(self.max_channels))
        at.o_done = Signal()
        at.row_mask = Signal(k)
        at.col_mask = Signal(k)
        at.row_ahead = Signal(signed(row_bits))
        at.col_ahead = Signal(signed(col_bits))
        at.first = Signal()
        at.first_channel = Signal()
        at.emit = Signal()
        at.last = Signal()
        at.o_last = Signal()
        m.d.comb += [
            at.emit.eq(
                at.live
                & ~at.warm.any()
                & ~at.o_done
                & ~at.o_cols[-1]
                & ~at.o_rows[-1]
                & ~at.skip_w.any()
                & ~at.skip_h.any()
            ),
            at.last.eq((at.o_cols.as_unsigned() < run.stride_w) & (at.o_rows.as_unsigned() < run.stride_h)),
            at.o_last.eq(at.emit & at.last & ~at.o_channel.any()),
        ]

    @staticmethod
    def _start_row(at, run):
        """Statements that put the counters at the start of a row of windows."""
        return [
            at.o_col.eq(run.pitch),
            at.o_cols.eq(run.cols),
            at.skip_w.eq(0),
            at.col_mask.eq(run.col_mask),
            at.col_ahead.eq(run.col_ahead),
        ]

    @staticmethod
    def _start_channel(at, run):
        """Statements that put the counters at the first row of a channel."""
        return [
            at.o_rows.eq(run.rows),
            at.skip_h.eq(0),
            at.row_mask.eq(run.row_mask),
            at.row_ahead.eq(run.row_ahead),
            at.first.eq(1),
        ]

    def _control(self, m, at, ready, prepared, take, run, go, active, step):
        """Takes a prepared run and sets the counters to its start.

        It is active until both sides of the run are done.
        """
        with m.FSM(name="run"):
            with m.State("IDLE"):
                # Only as the pipeline moves: its first stage still uses the kernel's height.
                m.d.comb += take.eq(prepared & go)
                with m.If(take):
                    m.d.sync += run.eq(ready)
                    m.next = "ARM"
            with m.State("ARM"):
                m.d.sync += [
                    at.i_col.eq(run.pitch),
                    at.i_width.eq(run.width),
                    at.i_row.eq(run.grid),
                    at.i_height.eq(run.height),
                    at.i_channel.eq(run.channels),
                    at.i_done.eq(0),
                    at.warm.eq(run.warm),
                    self._start_row(at, run),
                    self._start_channel(at, run),
                    at.live.eq(~run.lead.any()),
                    at.o_row.eq(Mux(run.lead.any(), run.lead - 1, run.grid)),
                    at.o_channel.eq(run.channels),
                    at.first_channel.eq(1),
                    at.o_done.eq(0),
                ]
                m.next = "RUN"
            with m.State("RUN"):
                m.d.comb += active.eq(1)
                with m.If(step & (at.i_done | at.i_last) & (at.o_done | at.o_last)):
                    m.next = "IDLE"

    def _next_pixel(self, m, at, run):
        """Moves the counters of pixels by a step."""
        with m.If(at.i_col.any()):
            m.d.sync += [at.i_col.eq(at.i_col - 1), at.i_width.eq(at.i_width - 1)]
        with m.Else():
            m.d.sync += [at.i_col.eq(run.pitch), at.i_width.eq(run.width)]
            with m.If(at.i_row.any()):
                m.d.sync += [at.i_row.eq(at.i_row - 1), at.i_height.eq(at.i_height - 1)]
            with m.Else():
                m.d.sync += [at.i_row.eq(run.grid), at.i_height.eq(run.height), at.i_channel.eq(at.i_channel - 1)]

    def _next_window(self, m, at, run):
        """Moves the counters of windows by a step."""
        with m.If(at.warm.any()):
            m.d.sync += at.warm.eq(at.warm - 1)
        with m.Else():
            with m.If(at.emit):
                m.d.sync += at.first.eq(0)
            with m.If(at.o_col.any()):
                m.d.sync += [
                    at.o_col.eq(at.o_col - 1),
                    at.o_cols.eq(at.o_cols - 1),
                    at.col_ahead.eq(at.col_ahead - 1),
                    at.skip_w.eq(Mux(at.skip_w.any(), at.skip_w - 1, run.stride_w - 1)),
                    at.col_mask.eq(Cat(at.col_mask[1:], ~at.col_ahead[-1])),
                ]
            with m.Else():
                m.d.sync += self._start_row(at, run)
                with m.If(at.o_row.any()):
                    m.d.sync += [
                        at.o_row.eq(at.o_row - 1),
                        at.o_rows.eq(at.o_rows - 1),
                        at.row_ahead.eq(at.row_ahead - 1),
                        at.skip_h.eq(Mux(at.skip_h.any(), at.skip_h - 1, run.stride_h - 1)),
                        at.row_mask.eq(Cat(at.row_mask[1:], ~at.row_ahead[-1])),
                    ]
                with m.Else():
                    m.d.sync += [at.o_row.eq(run.grid), at.live.eq(1), self._start_channel(at, run)]
                    with m.If(at.live):
                        m.d.sync += [at.o_channel.eq(at.o_channel - 1), at.first_channel.eq(0)]

    def _tag(self, m, at, run, go, step):
        """Registers the pixel of a step, its address and its window's tags.

        The window is the one that the step completes.
        """
        tags = [Signal(self._tags_layout, name=f"tags{n}") for n in (1, 2)]
        valid1 = Signal()
        pixel = Signal(self.shape, reset_less=True)
        addr1 = Signal(range(self.max_width))
        with m.If(go):
            m.d.sync += valid1.eq(step)
        with m.If(step):
            m.d.sync += [
                pixel.eq(self.i.payload),
                addr1.eq(at.i_col),
                tags[0].emit.eq(at.emit),
                tags[0].first.eq(at.first),
                tags[0].last.eq(at.last),
                tags[0].first_channel.eq(at.first_channel),
                tags[0].last_channel.eq(~at.o_channel.any()),
                tags[0].end.eq(at.o_last),
                tags[0].rows.eq(at.row_mask & run.row_used),
                tags[0].cols.eq(at.col_mask & run.col_used),
            ]
        return pixel, addr1, tags, valid1

    def _delay_line(self, m, at, run, go, step, pixel, addr1, valid1):
        """Column of the newest pixel and those above it.

        The pixels move up a row as they are written back.
        """
        k = self.max_kernel
        # A word is the column of the k - 1 rows above; any order of addresses will do.
        lines = data.ArrayLayout(self.shape, k - 1)
        m.submodules.lines = memory = Memory(shape=lines, depth=self.max_width, init=[])
        read = memory.read_port()
        write = memory.write_port()
        m.d.comb += [read.addr.eq(at.i_col), read.en.eq(step)]
        # The newest pixel enters at the kernel's last row, so that row 0 is on top whatever its height.
        column = [Mux(run.row_used[n + 1], read.data[n], pixel) if n < k - 1 else pixel for n in range(k)]
        m.d.comb += [write.addr.eq(addr1), write.en.eq(valid1 & go)]
        m.d.comb += [write.data[n].eq(column[n + 1]) for n in range(k - 1)]
        return column

    def _shift(self, m, go, column, tags, valid1):
        """Shifts a column into the taps, and the tags along with it."""
        k = self.max_kernel
        taps = [[Signal(self.shape, name=f"tap{y}_{x}", reset_less=True) for x in range(k)] for y in range(k)]
        valid2 = Signal()
        with m.If(go):
            m.d.sync += valid2.eq(valid1)
        with m.If(go & valid1):
            m.d.sync += tags[1].eq(tags[0])
            for y in range(k):
                m.d.sync += taps[y][k - 1].eq(column[y])
                m.d.sync += [taps[y][x].eq(taps[y][x + 1]) for x in range(k - 1)]
        return taps, valid2

    def _mask(self, m, go, taps, tags, valid2, o_valid):
        """Puts out the taps.

        Taps that are no pixels of the window are 0.
        """
        k = self.max_kernel
        # Masks go to the reset pins of the output registers: no LUT a bit.
        window = [Signal(self.shape, name=f"window{n}", reset_less=True) for n in range(k * k)]
        out = Signal(self._tags_layout)
        with m.If(go):
            m.d.sync += [o_valid.eq(valid2 & tags.emit), out.eq(tags)]
            for y in range(k):
                for x in range(k):
                    m.d.sync += window[y * k + x].eq(Mux(tags.rows[y] & tags.cols[x], taps[y][x], 0))
        m.d.comb += [
            self.o.valid.eq(o_valid),
            *(self.o.payload.p[n].eq(word) for n, word in enumerate(window)),
            *(self.o.payload[name].eq(out[name]) for name in ("first", "last", "first_channel", "last_channel", "end")),
        ]
