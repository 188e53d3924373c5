"""Convolution front end: pixels in, kernel windows out."""
from dataclasses import dataclass

from amaranth.hdl import Cat, Module, Mux, Shape, Signal, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

__all__ = ["WindowRun", "WindowGenerator"]


@dataclass(frozen=True, kw_only=True)
class WindowRun:
    """What one run of a :class:`WindowGenerator` is asked to do, and what follows from it.

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


class WindowGenerator(wiring.Component):
    """Turns channels of pixels into the windows that a convolution multiplies.

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
    latency = 3
    #: Cycles from accepting a configuration to the run's first step, when nothing runs before it.
    setup = 6

    def __init__(self, *, shape=signed(24), max_kernel=5, max_width=32, max_height=32, max_channels=512,
                 max_stride=None):
        for name, value, least in (("max_kernel", max_kernel, 2), ("max_width", max_width, 2),
                                   ("max_height", max_height, 1), ("max_channels", max_channels, 1)):
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
        self.config_layout = data.StructLayout({
            "height": range(max_height + 1), "width": range(max_width + 1),
            "channels": range(max_channels + 1), "kernel_h": kernel, "kernel_w": kernel,
            "stride_h": stride, "stride_w": stride,
            "pad_top": pad, "pad_left": pad, "pad_bottom": pad, "pad_right": pad,
        })
        self.window_layout = data.StructLayout({
            "p": data.ArrayLayout(self.shape, max_kernel * max_kernel),
            "first": 1, "last": 1, "first_channel": 1, "last_channel": 1, "end": 1,
        })
        super().__init__({
            "i_config": In(stream.Signature(self.config_layout)),
            "i": In(stream.Signature(self.shape)),
            "o": Out(stream.Signature(self.window_layout)),
        })

    def check(self, run: WindowRun):
        """Refuse a run that is larger than this unit."""
        for name, value, most in (
                ("kernel_h", run.kernel_h, self.max_kernel), ("kernel_w", run.kernel_w, self.max_kernel),
                ("stride_h", run.stride_h, self.max_stride), ("stride_w", run.stride_w, self.max_stride),
                ("height", run.height, self.max_height), ("width", run.width, self.max_width),
                ("output rows at stride 1", run.rows, self.max_height),
                ("output columns at stride 1", run.cols, self.max_width),
                ("channels", run.channels, self.max_channels)):
            if value > most:
                raise ValueError(f"{name}={value}: this window generator takes at most {most}")

    def fill(self, run: WindowRun) -> int:
        """Steps before the one that completes the first window."""
        return (run.kernel_h - 1 - run.pad_top) * run.pitch + self.max_kernel - 1 - run.pad_left

    def steps(self, run: WindowRun) -> int:
        """Steps of a run: until both its last pixel is in and its last window is complete."""
        before = (run.channels - 1) * max(run.height, run.rows)
        last_pixel = (before + run.height - 1) * run.pitch + run.width - 1
        last_window = ((before + (run.out_height - 1) * run.stride_h) * run.pitch
                       + (run.out_width - 1) * run.stride_w + self.fill(run))
        return 1 + max(last_pixel, last_window)

    def cycles(self, run: WindowRun) -> int:
        """Cycles between the starts of a run and of the next when neither side stalls.

        The first run after idleness starts ``setup - 2`` cycles later than one that follows another; its
        last window leaves ``setup + steps(run) - 1 + latency`` cycles after its configuration was accepted.
        """
        # Preparing the next configuration takes longer than the shortest runs.
        return max(self.steps(run) + 2, 5)

    def elaborate(self, platform):
        m = Module()
        k = self.max_kernel
        row_bits = (self.max_height + k).bit_length() + 1
        col_bits = (self.max_width + k).bit_length() + 1

        # Everything that follows from a configuration, one small sum a cycle, while the run before it is
        # still busy. What a counter starts from is kept as "count minus one", so that it ends at zero, or
        # signed, so that its range ends with its sign.
        asked = Signal(self.config_layout)
        derived_layout = data.StructLayout({
            "height": row_bits, "width": col_bits,         # minus one
            "rows": row_bits, "cols": col_bits,            # minus one
            "pitch": col_bits, "grid": row_bits,           # minus one
            "row_ahead": signed(row_bits), "col_ahead": signed(col_bits),
            "row_mask": k, "col_mask": k, "row_used": k, "col_used": k,
            "lead": range(k), "warm": range(k),
            "channels": range(self.max_channels), "stride_h": range(self.max_stride + 1),
            "stride_w": range(self.max_stride + 1),
        })
        ready = Signal(derived_layout)
        bottom = Signal(unsigned(row_bits))     # first row below the input, seen from the first window
        right = Signal(unsigned(col_bits))
        prepared = Signal()
        take = Signal()

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
                    ready.pitch.eq(Mux(ready.cols > ready.width, ready.cols, ready.width)
                                   | ~(ready.cols.any() | ready.width.any())),
                ]
                m.next = "READY"
            with m.State("READY"):
                m.d.comb += prepared.eq(1)
                with m.If(take):
                    m.next = "EMPTY"

        run = Signal(derived_layout)
        go = Signal()
        step = Signal()
        active = Signal()
        o_valid = Signal()
        m.d.comb += go.eq(~o_valid | self.o.ready)

        # Pixels: where the next one goes in the delay line.
        i_col = Signal(col_bits)
        i_width = Signal(signed(col_bits))
        i_row = Signal(row_bits)
        i_height = Signal(signed(row_bits))
        i_channel = Signal(range(self.max_channels))
        i_done = Signal()
        needed = Signal()
        i_last = Signal()
        m.d.comb += [
            needed.eq(~i_width[-1] & ~i_height[-1] & ~i_done),
            i_last.eq(needed & ~i_width.any() & ~i_height.any() & ~i_channel.any()),
            step.eq(active & go & (self.i.valid | ~needed)),
            self.i.ready.eq(active & go & needed),
        ]

        # Windows: the position of the one that this step completes.
        warm = Signal(range(k))
        live = Signal()
        o_col = Signal(col_bits)
        o_cols = Signal(signed(col_bits))
        o_row = Signal(row_bits)
        o_rows = Signal(signed(row_bits))
        skip_w = Signal(range(self.max_stride))
        skip_h = Signal(range(self.max_stride))
        o_channel = Signal(range(self.max_channels))
        o_done = Signal()
        row_mask = Signal(k)
        col_mask = Signal(k)
        row_ahead = Signal(signed(row_bits))
        col_ahead = Signal(signed(col_bits))
        first = Signal()
        first_channel = Signal()
        emit = Signal()
        last = Signal()
        o_last = Signal()
        m.d.comb += [
            emit.eq(live & ~warm.any() & ~o_done & ~o_cols[-1] & ~o_rows[-1] & ~skip_w.any() & ~skip_h.any()),
            last.eq((o_cols.as_unsigned() < run.stride_w) & (o_rows.as_unsigned() < run.stride_h)),
            o_last.eq(emit & last & ~o_channel.any()),
        ]

        def start_row():
            return [o_col.eq(run.pitch), o_cols.eq(run.cols), skip_w.eq(0), col_mask.eq(run.col_mask),
                    col_ahead.eq(run.col_ahead)]

        def start_channel():
            return [o_rows.eq(run.rows), skip_h.eq(0), row_mask.eq(run.row_mask), row_ahead.eq(run.row_ahead),
                    first.eq(1)]

        with m.FSM(name="run"):
            with m.State("IDLE"):
                # Only as the pipeline moves: its first stage still uses the kernel's height.
                m.d.comb += take.eq(prepared & go)
                with m.If(take):
                    m.d.sync += run.eq(ready)
                    m.next = "ARM"
            with m.State("ARM"):
                m.d.sync += [
                    i_col.eq(run.pitch), i_width.eq(run.width), i_row.eq(run.grid), i_height.eq(run.height),
                    i_channel.eq(run.channels), i_done.eq(0),
                    warm.eq(run.warm), start_row(), start_channel(),
                    live.eq(~run.lead.any()), o_row.eq(Mux(run.lead.any(), run.lead - 1, run.grid)),
                    o_channel.eq(run.channels), first_channel.eq(1), o_done.eq(0),
                ]
                m.next = "RUN"
            with m.State("RUN"):
                m.d.comb += active.eq(1)
                with m.If(step & (i_done | i_last) & (o_done | o_last)):
                    m.next = "IDLE"

        with m.If(step):
            m.d.sync += [i_done.eq(i_done | i_last), o_done.eq(o_done | o_last)]
            with m.If(i_col.any()):
                m.d.sync += [i_col.eq(i_col - 1), i_width.eq(i_width - 1)]
            with m.Else():
                m.d.sync += [i_col.eq(run.pitch), i_width.eq(run.width)]
                with m.If(i_row.any()):
                    m.d.sync += [i_row.eq(i_row - 1), i_height.eq(i_height - 1)]
                with m.Else():
                    m.d.sync += [i_row.eq(run.grid), i_height.eq(run.height), i_channel.eq(i_channel - 1)]

            with m.If(warm.any()):
                m.d.sync += warm.eq(warm - 1)
            with m.Else():
                with m.If(emit):
                    m.d.sync += first.eq(0)
                with m.If(o_col.any()):
                    m.d.sync += [
                        o_col.eq(o_col - 1), o_cols.eq(o_cols - 1), col_ahead.eq(col_ahead - 1),
                        skip_w.eq(Mux(skip_w.any(), skip_w - 1, run.stride_w - 1)),
                        col_mask.eq(Cat(col_mask[1:], ~col_ahead[-1])),
                    ]
                with m.Else():
                    m.d.sync += start_row()
                    with m.If(o_row.any()):
                        m.d.sync += [
                            o_row.eq(o_row - 1), o_rows.eq(o_rows - 1), row_ahead.eq(row_ahead - 1),
                            skip_h.eq(Mux(skip_h.any(), skip_h - 1, run.stride_h - 1)),
                            row_mask.eq(Cat(row_mask[1:], ~row_ahead[-1])),
                        ]
                    with m.Else():
                        m.d.sync += [o_row.eq(run.grid), live.eq(1), start_channel()]
                        with m.If(live):
                            m.d.sync += [o_channel.eq(o_channel - 1), first_channel.eq(0)]

        # The delay line: a word is the column of the k - 1 rows above; any order of addresses will do.
        lines = data.ArrayLayout(self.shape, k - 1)
        m.submodules.lines = memory = Memory(shape=lines, depth=self.max_width, init=[])
        read = memory.read_port()
        write = memory.write_port()
        m.d.comb += [read.addr.eq(i_col), read.en.eq(step)]

        tags_layout = data.StructLayout({
            "emit": 1, "first": 1, "last": 1, "first_channel": 1, "last_channel": 1, "end": 1,
            "rows": k, "cols": k,
        })
        tags = [Signal(tags_layout, name=f"tags{n}") for n in (1, 2)]
        valid1 = Signal()
        pixel = Signal(self.shape, reset_less=True)
        addr1 = Signal(range(self.max_width))
        with m.If(go):
            m.d.sync += valid1.eq(step)
        with m.If(step):
            m.d.sync += [
                pixel.eq(self.i.payload), addr1.eq(i_col),
                tags[0].emit.eq(emit), tags[0].first.eq(first), tags[0].last.eq(last),
                tags[0].first_channel.eq(first_channel), tags[0].last_channel.eq(~o_channel.any()),
                tags[0].end.eq(o_last),
                tags[0].rows.eq(row_mask & run.row_used), tags[0].cols.eq(col_mask & run.col_used),
            ]

        # The newest pixel enters at the kernel's last row, so that row 0 is on top whatever its height.
        column = [Mux(run.row_used[n + 1], read.data[n], pixel) if n < k - 1 else pixel for n in range(k)]
        taps = [[Signal(self.shape, name=f"tap{y}_{x}", reset_less=True) for x in range(k)] for y in range(k)]
        valid2 = Signal()
        m.d.comb += [write.addr.eq(addr1), write.en.eq(valid1 & go)]
        m.d.comb += [write.data[n].eq(column[n + 1]) for n in range(k - 1)]
        with m.If(go):
            m.d.sync += valid2.eq(valid1)
        with m.If(go & valid1):
            m.d.sync += tags[1].eq(tags[0])
            for y in range(k):
                m.d.sync += taps[y][k - 1].eq(column[y])
                m.d.sync += [taps[y][x].eq(taps[y][x + 1]) for x in range(k - 1)]

        # Masks go to the reset pins of the output registers: no LUT a bit.
        window = [Signal(self.shape, name=f"window{n}", reset_less=True) for n in range(k * k)]
        out = Signal(tags_layout)
        with m.If(go):
            m.d.sync += [o_valid.eq(valid2 & tags[1].emit), out.eq(tags[1])]
            for y in range(k):
                for x in range(k):
                    m.d.sync += window[y * k + x].eq(Mux(tags[1].rows[y] & tags[1].cols[x], taps[y][x], 0))
        m.d.comb += [
            self.o.valid.eq(o_valid),
            *(self.o.payload.p[n].eq(word) for n, word in enumerate(window)),
            *(self.o.payload[name].eq(out[name])
              for name in ("first", "last", "first_channel", "last_channel", "end")),
        ]
        return m
