"""Control of convolutions: windows and weights for the array."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2, exact_log2

from gradloom.rtl.hierarchy import place
from gradloom.rtl.units.window.window import WindowGenerator, WindowRun

from ..commands import ConvolveOperands

__all__ = ["ConvolveControl", "window_generator", "window_run"]

QUEUE = 16


def window_generator(config):
    """The window generator of a design."""
    return WindowGenerator(
        shape=config.activation.shape,
        max_kernel=config.kernel,
        max_width=config.width,
        max_height=config.width,
        max_channels=255,
    )


def window_run(operands):
    """Returns the :class:`WindowRun` that ``operands`` ask for.

    ``operands`` : mapping of the fields of :data:`ConvolveOperands`.
    """
    fields = WindowRun.__dataclass_fields__
    return WindowRun(**{name: int(operands[name]) for name in fields})


class ConvolveControl(wiring.Component):
    """Runs CONVOLVE commands, one at a time.

    Reads the source channel by channel, a pixel a cycle, and hands each pixel to the window generator and, where
    asked, to the encoder of taps. A window enters the array when its channel's weights wait there; the weights of
    the next channel are loaded under this one's windows, a row a cycle.

    Members
    -------
    i : stream of :data:`~.commands.ConvolveOperands`; the next is taken when the last window has entered and the last
        pixel, which may be behind that window's if strides leave rows over, has left.
    positions : how many windows a channel of it has.
    pixel : address of a pixel; ``data`` is due 3 cycles later.
    tap : stream of the pixels that are to be encoded.
    window : the window that enters in this cycle, and whether it is the first of its channel. ``sums``: where its
        sums go: ``first``, ``last`` channel; ``position``.
    weight : a row of weights is due: address, row of the array, and whether that row has weights at all.
    hold : no window of a last channel may enter.
    astray : a command went beyond the pixels or weights that there are, encodes more than a row holds, or has another
        number of windows; until reset.
    """

    pixel_latency = 3

    def __init__(self, config):
        self.config = config
        self.windows = config.kernel**2
        super().__init__(
            {
                "i": In(stream.Signature(ConvolveOperands)),
                "positions": In(range(config.positions + 1)),
                "pixel": Out(data.StructLayout({"valid": 1, "feature": 1, "address": 16, "lane": 4})),
                "data": In(config.activation.shape),
                "tap": Out(stream.Signature(data.StructLayout({"x": config.activation.shape, "last": 1, "wide": 1}))),
                "window": Out(
                    data.StructLayout(
                        {"valid": 1, "swap": 1, "p": data.ArrayLayout(config.activation.shape, self.windows)}
                    )
                ),
                "sums": Out(data.StructLayout({"first": 1, "last": 1, "position": ceil_log2(config.positions)})),
                "weight": Out(data.StructLayout({"valid": 1, "row": ceil_log2(config.rows), "live": 1, "address": 16})),
                "hold": In(1),
                "idle": Out(1),
                "astray": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        command = Signal(ConvolveOperands)
        busy, asked = Signal(), Signal()
        entered, streamed = Signal(), Signal()  # the last window has; all pixels are
        windows = place(m, "windows", window_generator(self.config), platform)

        # The operands are there whenever a command may come: the path from its queue ends at few registers.
        with m.If(self.i.ready):
            m.d.sync += [command.eq(self.i.p), entered.eq(0), streamed.eq(0)]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [busy.eq(1), asked.eq(1)]
        m.d.comb += [self.i.ready.eq(~busy), self.idle.eq(~busy), windows.i_config.valid.eq(asked)]
        m.d.comb += [
            getattr(windows.i_config.p, name).eq(getattr(command, name)) for name in WindowRun.__dataclass_fields__
        ]
        with m.If(asked & windows.i_config.ready):
            m.d.sync += asked.eq(0)

        start, leave, swapped = Signal(), Signal(), Signal()
        m.d.sync += start.eq(self.i.valid & self.i.ready)
        # The last of each, known from the cycle after ``start`` on.
        last = Signal(data.StructLayout({"column": 8, "line": 8, "channel": 8}))
        m.d.sync += [
            last.column.eq(command.width - 1),
            last.line.eq(command.height - 1),
            last.channel.eq(command.channels - 1),
        ]
        queue = self._read_pixels(m, command, last, start, leave)
        self._hand_out(m, command, last, start, queue, windows, leave)
        with m.If(leave & self.tap.p.last):
            m.d.sync += streamed.eq(1)
            with m.If(entered):
                m.d.sync += busy.eq(0)
        loaded = self._load_weights(m, command, start, swapped)
        enter = self._enter_windows(m, windows.o, loaded, swapped)
        with m.If(enter & windows.o.p.end):
            m.d.sync += entered.eq(1)
            with m.If(streamed | (leave & self.tap.p.last)):
                m.d.sync += busy.eq(0)
        return m

    def _read_pixels(self, m, command, last, start, leave):
        """Requests the pixels of a command and returns the queue of pixels.

        At most as many requests are in flight as the queue has room for.
        """
        config = self.config
        reading = Signal()
        # A bit more than the address of any memory.
        channel, address, base = Signal(8), Signal(17), Signal(17)
        lane = Signal(range(config.columns))
        column, line = Signal(8), Signal(8)
        m.submodules.queue = queue = SyncFIFOBuffered(width=config.activation.width, depth=QUEUE)
        room = Signal(range(QUEUE + 1), init=QUEUE)
        read = Signal()
        line_end, channel_end, all_read = Signal(), Signal(), Signal()
        m.d.comb += [
            read.eq(reading & (room != 0)),
            line_end.eq(column == last.column),
            channel_end.eq(line_end & (line == last.line)),
            all_read.eq(channel_end & (channel == last.channel)),
            self.pixel.valid.eq(read),
            self.pixel.feature.eq(command.source),
            self.pixel.address.eq(address),
            self.pixel.lane.eq(lane),
        ]
        m.d.sync += room.eq(room - read + leave)
        with m.If(start):
            m.d.sync += [
                reading.eq(1),
                channel.eq(0),
                lane.eq(0),
                column.eq(0),
                line.eq(0),
                address.eq(command["from"]),
                base.eq(command["from"]),
            ]
        with m.Elif(read):
            m.d.sync += [column.eq(column + 1), address.eq(address + 1)]
            with m.If(line_end):
                m.d.sync += [column.eq(0), line.eq(line + 1)]
            with m.If(channel_end):
                m.d.sync += [line.eq(0), channel.eq(channel + 1)]
                # A feature word holds a channel a column; an image has one channel after another.
                with m.If(command.source & (lane != config.columns - 1)):
                    m.d.sync += [lane.eq(lane + 1), address.eq(base)]
                with m.Else():
                    m.d.sync += [lane.eq(0), base.eq(address + 1)]
            with m.If(all_read):
                m.d.sync += reading.eq(0)

        arriving = Signal(self.pixel_latency)
        m.d.sync += arriving.eq((arriving << 1) | read)
        m.d.comb += [queue.w_en.eq(arriving[-1]), queue.w_data.eq(self.data)]
        self._check_reads(m, command, start, read, address)
        return queue

    def _check_reads(self, m, command, start, read, address):
        """Checks a command's reads and encodes against their limits.

        A command must not read beyond the last pixel, nor encode more than a row holds.
        """
        config = self.config
        beyond_end = Mux(
            command.source,
            address[exact_log2(config.feature_depth) :].any(),
            address[ceil_log2(config.image_depth) :].any(),
        )
        encoded = Signal(exact_log2(64 * config.blocks) + 1)
        with m.If(start):
            m.d.sync += encoded.eq(0)
        with m.Elif(read & command.encode):
            m.d.sync += encoded.eq(encoded + 1)
        with m.If(read & (beyond_end | encoded[-1])):
            m.d.sync += self.astray.eq(1)

    def _hand_out(self, m, command, last, start, queue, windows, leave):
        """Hands a pixel to the window generator and to the encoder.

        The encoder takes a pixel only where the command asks for encoding. It does not wait for the window generator,
        which may stand still: so nothing behind the windows reaches the encoder within a cycle.
        """
        # The encoder has the pixel, and the window generator has not; the encoder waits for the pixel.
        given, owed = Signal(), Signal()
        remaining_line, remaining_column = Signal(8), Signal(8)
        left_channels = Signal(8)
        with m.If(start):
            m.d.sync += [
                remaining_line.eq(command.height - 1),
                remaining_column.eq(command.width - 1),
                left_channels.eq(command.channels - 1),
            ]
        with m.Elif(leave):
            m.d.sync += remaining_column.eq(remaining_column - 1)
            with m.If(remaining_column == 0):
                m.d.sync += [remaining_column.eq(last.column), remaining_line.eq(remaining_line - 1)]
                with m.If(remaining_line == 0):
                    m.d.sync += [remaining_line.eq(last.line), left_channels.eq(left_channels - 1)]
        m.d.comb += [
            windows.i.valid.eq(queue.r_rdy & (self.tap.ready | ~owed)),
            windows.i.p.eq(queue.r_data),
            self.tap.valid.eq(queue.r_rdy & owed),
            self.tap.p.x.eq(queue.r_data),
            self.tap.p.wide.eq(command.wide),
            self.tap.p.last.eq((remaining_line == 0) & (remaining_column == 0) & (left_channels == 0)),
            leave.eq(windows.i.valid & windows.i.ready),
            queue.r_en.eq(leave),
        ]
        has = (given | (self.tap.valid & self.tap.ready)) & ~leave
        # The queue is still empty when a command's own ``encode`` arrives here.
        m.d.sync += [given.eq(has), owed.eq(command.encode & ~has)]

    def _load_weights(self, m, command, start, swapped):
        """Loads the weights of a channel ahead of its windows.

        Returns whether the next channel's weights wait in the array.
        """
        config = self.config
        row = Signal(range(config.rows))
        weights = Signal(17)
        loading, loaded = Signal(), Signal()
        to_load = Signal(9)
        load_last = Signal()
        m.d.comb += [
            load_last.eq(loading & (row == config.rows - 1)),
            self.weight.valid.eq(loading),
            self.weight.row.eq(row),
            self.weight.live.eq(row < self.windows),
            self.weight.address.eq(weights),
        ]
        with m.If(loading):
            m.d.sync += row.eq(row + 1)
            with m.If(self.weight.live):
                m.d.sync += weights.eq(weights + 1)
        with m.If(loading & self.weight.live & weights[exact_log2(config.weight_depth) :].any()):
            m.d.sync += self.astray.eq(1)
        with m.If(load_last):
            m.d.sync += [loading.eq(0), loaded.eq(1), row.eq(0)]
        with m.Elif(swapped):
            m.d.sync += loaded.eq(0)
        with m.If((to_load != 0) & ~loading & (~loaded | swapped)):
            m.d.sync += [loading.eq(1), to_load.eq(to_load - 1)]
        with m.If(start):
            m.d.sync += [to_load.eq(command.channels), weights.eq(command.weights), loaded.eq(0)]
        return loaded

    def _enter_windows(self, m, out, loaded, swapped):
        """Enters windows into the array when their channel's weights are there.

        Returns whether a window enters in this cycle.
        """
        config = self.config
        position, final = Signal(range(config.positions)), Signal(range(config.positions))
        enter = Signal()
        m.d.comb += [
            out.ready.eq(Mux(out.p.first, loaded, 1) & ~(out.p.last_channel & self.hold)),
            enter.eq(out.valid & out.ready),
            swapped.eq(enter & out.p.first),
            self.window.valid.eq(enter),
            self.window.swap.eq(out.p.first),
            self.window.p.eq(out.p.p),
            self.sums.first.eq(out.p.first_channel),
            self.sums.last.eq(out.p.last_channel),
            self.sums.position.eq(position),
        ]
        with m.If(self.i.ready):
            m.d.sync += final.eq(self.positions - 1)
        with m.If(enter):
            m.d.sync += position.eq(Mux(out.p.last, 0, position + 1))
            with m.If(out.p.last != (position == final)):
                m.d.sync += self.astray.eq(1)
        return enter
