"""The array engine: systolic array, row feeders, lanes and feet."""

from types import SimpleNamespace

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from ...formats.codebook import INT8_HIGH, INT8_LOW, NF4
from ...formats.images import LEVEL, PARAMETER, SCALE
from ...hierarchy import place
from ...shell.registers.errors import Error
from ...shell.signature import EngineSignature
from ...stream.delay import delay
from ...stream.queue import ShortQueue, stepped
from ...systolic.pe import Precision, tag_layout
from ...systolic.systolic import SystolicArray
from ...units.encoder import NF4_THRESHOLDS
from ...units.optimizer import NORM, OPTIMIZER_CONFIG, lane_config
from ..compare import beyond
from ..encode.tap import TapEncoder
from .commands import ArrayOpcode, ConvolveOperands, DenseOperands, PassOperands
from .convolve import ConvolveControl
from .dense import DenseControl
from .feeder import RowControl, RowFeeder
from .feet import Accumulate, Align, DrainToken, Finish, Hidden, HiddenWords, SumsToken
from .lane import AdapterLanes
from .latencies import EDGE
from .passes import LEVELS, PassControl
from .writes import writes

__all__ = ["ArrayEngine", "EDGE"]

#: Cycles from the cycle in which a beat is decided on to its operand at the array's first row.

_PORTS = ("codes", "scales", "lanes", "weights", "biases", "image")


class ArrayEngine(wiring.Component):
    """Runs FORWARD, GRADIENT, CONVOLVE and DENSE on one systolic array.

    A beat that is decided on in cycle s has its operand at row 0 in s + :data:`EDGE` and its weight, where it is
    streamed, at column 0 a cycle earlier; all tokens that tell what its sums are travel as many cycles as it does.

    BAD_OPERAND comes at a command's start for all that its operands say by themselves, and so for every word of a pass
    or a dense layer. How far a convolution's pixels, weights and results reach is the product of several: the first
    that has no place stops it, and a count of windows that is not ``out_height * out_width``. Not judged is ``scale``,
    which goes into the record as it is, and whether ``out_height`` and ``out_width`` with the right product are the
    right ones.

    ::

        commands --> dispatch --+--> ConvolveControl <-- image, feature maps
                                |           +--> TapEncoder --> taps
                                +--> DenseControl
                                +--> PassControl
                                          | windows, beats, reads
                                          v
                         row feeders: codes, scales, dense memory
                                          | x
                                          v             sums
        weights, dh, lanes -- w --> systolic array -----------> adapter lanes, of a gradient
                                          | sums
                                          v
                                        align --+--> Accumulate --> Finish --> feature maps, dense memory
                                                +--> Hidden --> h

    Members
    -------
    engine : see :class:`EngineSignature`.
    codes, scales, lanes, weights, biases, image, books : see :mod:`~.writes`.
    dh : address of dh; ``dh_data`` is due a cycle later.
    h : h of a sample of a tap.
    dump : ``address`` of adapter words that ``words`` shall hold 2 cycles later; only without GRADIENT or FORWARD.
    peek, peek_grant, peek_arrives, peek_data : see :class:`EncodeEngine`.
    taps : stream of the beats of encoded convolution inputs.
    saturated, underflowed, norm : what happened in a cycle.
    """

    def __init__(self, config):
        self.config = config
        ports = writes(config)
        tap, sample = ceil_log2(config.taps), ceil_log2(config.rows)
        super().__init__(
            {
                "engine": In(EngineSignature()),
                **{name: In(ports[name]) for name in (*_PORTS, "books")},
                "dh": Out(data.StructLayout({"tap": tap, "sample": sample})),
                "dh_data": In(data.ArrayLayout(signed(18), config.rank)),
                "h": Out(HiddenWords(config)),
                "dump": In(data.StructLayout({"valid": 1, "address": ceil_log2(config.adapter_depth)})),
                "words": Out(data.ArrayLayout(PARAMETER.shape, config.columns)),
                "peek": In(data.StructLayout({"valid": 1, "row": sample, "address": ceil_log2(config.dense_depth)})),
                "peek_grant": Out(1),
                "peek_arrives": Out(1),
                "peek_data": Out(config.activation.shape),
                "taps": Out(stream.Signature(unsigned(128))),
                "table": In(NF4_THRESHOLDS),
                "saturated": Out(8),
                "underflowed": Out(8),
                "norm": Out(NORM),
            }
        )

    def elaborate(self, platform):
        m = Module()
        parts = self._place_parts(m, platform)
        self.dense_port = parts.finish.dense
        drained = self._dispatch(m, parts)
        self._feed_convolution(m, platform, parts)
        self._feed_rows(m, platform, parts)
        self._feed_columns(m, platform, parts)
        self._align(m, parts)
        accumulate = self._accumulate(m, platform, parts)
        drain = self._drain(m, parts)
        hidden = self._hide(m, platform, parts, drain)
        self._finish(m, parts, drain, hidden, accumulate, drained)
        self._peek(m)
        return m

    def _place_parts(self, m, platform):
        """Places the array, the controls that feed it, and what takes its sums."""
        config = self.config
        rows, rank = config.rows, config.rank
        array = place(
            m,
            "array",
            SystolicArray(
                rows=rows,
                panels=config.panels,
                columns=rank,
                pairs=True,
                precision=Precision(x=config.activation.width, sum=config.sum_bits),
            ),
            platform,
        )
        passes = place(m, "passes", PassControl(config), platform)
        convolve = place(m, "convolve", ConvolveControl(config), platform)
        dense = place(m, "dense", DenseControl(config), platform)
        align = place(m, "align", Align(panels=config.panels, columns=rank, width=config.sum_bits), platform)
        finish = place(m, "finish", Finish(config), platform)
        return SimpleNamespace(array=array, passes=passes, convolve=convolve, dense=dense, align=align, finish=finish)

    # -- commands ------------------------------------------------------------------------------------------------

    def _dispatch(self, m, parts):
        """Hands each checked command to its control, and reports ``done``.

        Commands are done in the order in which they came.
        """
        self.kinds = self._decode(m)
        ends = self._measure(m)
        bad_operands = self._judge(m, ends)
        self.tap_base, self.tap_base_valid, self.tap_base_ready = Signal(16), Signal(), Signal()
        kinds = ShortQueue(width=2, depth=8)
        m.submodules.kinds = kinds
        # How many are in it.
        self._inside = Signal(range(9), name="inside")
        m.d.sync += self._inside.eq(stepped(self._inside, kinds.w_en & kinds.w_rdy, kinds.r_en))

        # The optimiser's operands hold while gradients are under way.
        optimiser = Signal(OPTIMIZER_CONFIG)
        gradients, forwards = Signal(4), Signal(4)
        gradient_done = Signal()
        self.optimiser, self.gradient_done = optimiser, gradient_done
        drained = Signal()

        self._offer(m, ends, parts)
        choice = self._choose(m, bad_operands, gradients, forwards, parts)
        self._take(m, ends.looked, choice, kinds, parts)
        self._count(m, choice.take, gradients, forwards, drained)
        self._report(m, kinds, drained, parts)
        return drained

    def _decode(self, m):
        """Registers the offered command's kind.

        It is that of the offered command from the second cycle on, before one can be taken.
        """
        opcode = self.engine.command.p.opcode
        kinds = {kind: Signal(name=f"is_{kind.name.lower()}") for kind in ArrayOpcode}
        m.d.sync += [flag.eq(opcode == kind) for kind, flag in kinds.items()]
        return kinds

    def _operands(self):
        """Operands of the offered command, read with each of three layouts.

        The layouts are those of a pass, of a convolution and of a dense layer.
        """
        args = self.engine.command.p.args
        return data.View(PassOperands, args), data.View(ConvolveOperands, args), data.View(DenseOperands, args)

    def _measure(self, m):
        """Registers how far a command's operands reach, in two cycles."""
        config = self.config
        command = self.engine.command
        to_pass, to_convolve, to_dense = self._operands()
        # One cycle to check, a second to begin: the sums of a check are registered.
        first_look, looked = Signal(), Signal()
        pass_blocks, lane_end = Signal(11), Signal(18)
        scale_end, bank_end, bank_odd = Signal(17), Signal(17), Signal()
        conv_pixels, conv_positions = Signal(17), Signal(17)
        # Rows and columns of windows at stride 1, minus one.
        spans = [Signal(signed(11), name=f"span_{side}") for side in "hw"]
        from_end, target_end, weights_end = Signal(17), Signal(17), Signal(17)
        m.d.sync += [
            first_look.eq(command.valid & ~command.ready),
            looked.eq(first_look & command.valid & ~command.ready),
            pass_blocks.eq((to_pass.elements + 63) >> 6),
            lane_end.eq(to_pass.lane + ((to_pass.elements + config.panels - 1) >> ceil_log2(config.panels))),
            # Ends in blocks, of which a bank word is a half or a quarter: what a bank has beyond a whole number of
            # blocks asks for room in one more.
            scale_end.eq((to_pass.elements + Cat(Const(63, 6), to_pass.scale)) >> 6),
            bank_end.eq(
                (to_pass.elements + Cat(Const(63, 6), Mux(to_pass.wide, to_pass.bank[2:], to_pass.bank[1:]))) >> 6
            ),
            bank_odd.eq(Mux(to_pass.wide, to_pass.bank[:2].any(), to_pass.bank[0])),
            conv_pixels.eq(to_convolve.height * to_convolve.width),
            conv_positions.eq(to_convolve.out_height * to_convolve.out_width),
            spans[0].eq(to_convolve.height + (to_convolve.pad_top + to_convolve.pad_bottom - to_convolve.kernel_h)),
            spans[1].eq(to_convolve.width + (to_convolve.pad_left + to_convolve.pad_right - to_convolve.kernel_w)),
            from_end.eq(to_dense["from"] + to_dense.inputs),
            target_end.eq(to_dense.target + to_dense.outputs),
            weights_end.eq(to_dense.weights + to_dense.inputs),
        ]
        bank_room = [config.blocks << shift for shift in (1, 0)]
        bank_over = [beyond(bank_end, room) | (bank_odd & (bank_end == room)) for room in bank_room]
        return SimpleNamespace(
            looked=looked,
            pass_blocks=pass_blocks,
            lane=lane_end,
            scale=scale_end,
            bank_over=bank_over,
            pixels=conv_pixels,
            positions=conv_positions,
            spans=spans,
            dense_from=from_end,
            dense_target=target_end,
            dense_weights=weights_end,
        )

    def _judge(self, m, ends):
        """Registers whether the operands are bad, for each kind of command.

        The kinds are a pass, a convolution and a dense layer.
        """
        config = self.config
        to_pass, to_convolve, to_dense = self._operands()
        bad_pass, bad_convolve, bad_dense = Signal(), Signal(), Signal()
        m.d.sync += [
            bad_pass.eq(
                (to_pass.elements == 0)
                | (to_pass.samples == 0)
                | (to_pass.samples > config.rows)
                | beyond(ends.lane, config.adapter_depth)
                | (to_pass.tap >= config.taps)
                | beyond(ends.scale, config.blocks)
                | (to_pass.wide & to_pass.book[0])
                | Mux(to_pass.wide, ends.bank_over[1], ends.bank_over[0])
            ),
            bad_convolve.eq(
                (to_convolve.channels == 0)
                | (to_convolve.kernel_h > config.kernel)
                | (to_convolve.kernel_w > config.kernel)
                | (to_convolve.height > config.width)
                | (to_convolve.width > config.width)
                | (to_convolve.out_height > config.width)
                | (to_convolve.out_width > config.width)
                | (ends.pixels == 0)
                | (to_convolve.kernel_h == 0)
                | (to_convolve.kernel_w == 0)
                | (to_convolve.stride_h == 0)
                | (to_convolve.stride_w == 0)
                | (ends.positions < 4)
                | beyond(ends.positions, config.positions)
                | (to_convolve.outputs == 0)
                | (to_convolve.outputs > config.columns)
                | (to_convolve.stride_h > config.kernel)
                | (to_convolve.stride_w > config.kernel)
                | (to_convolve.pad_top >= to_convolve.kernel_h)
                | (to_convolve.pad_bottom >= to_convolve.kernel_h)
                | (to_convolve.pad_left >= to_convolve.kernel_w)
                | (to_convolve.pad_right >= to_convolve.kernel_w)
                | Cat((span < 0) | (span >= config.width) for span in ends.spans).any()
                | (to_convolve.pool == 0)
                | (to_convolve.pool > 4)
                | (to_convolve.pool > to_convolve.out_height)
                | (to_convolve.pool > to_convolve.out_width)
                | (to_convolve.row >= config.rows)
                | (to_convolve.bias >= config.bias_depth)
            ),
            bad_dense.eq(
                (to_dense.inputs == 0)
                | (to_dense.samples == 0)
                | (to_dense.samples > config.rows)
                | (to_dense.outputs == 0)
                | (to_dense.outputs > config.columns)
                | beyond(ends.dense_from, config.dense_depth)
                | beyond(ends.dense_target, config.dense_depth)
                | beyond(ends.dense_weights, config.weight_depth)
                | (to_dense.bias >= config.bias_depth)
            ),
        ]
        return bad_pass, bad_convolve, bad_dense

    def _offer(self, m, ends, parts):
        """Offers the command's operands to all controls and to the feet."""
        config, kinds = self.config, self.kinds
        passes, convolve, dense, finish = parts.passes, parts.convolve, parts.dense, parts.finish
        to_pass, to_convolve, to_dense = self._operands()
        tail = ((to_pass.elements - 1)[:6]) >> ceil_log2(config.panels)
        p, run = passes.i.p, finish.run.p
        m.d.comb += [
            p.blocks.eq(ends.pass_blocks),
            p.tail.eq(tail),
            p.bank.eq(Cat(to_pass.bank[: len(p.bank) - 1], to_pass.half)),
            p.scale.eq(Cat(to_pass.scale[: len(p.scale) - 1], to_pass.half)),
            p.lane.eq(to_pass.lane),
            p.tap.eq(to_pass.tap),
            p.book.eq(to_pass.book),
            p.wide.eq(to_pass.wide),
            p.samples.eq(to_pass.samples),
            p.backward.eq(kinds[ArrayOpcode.GRADIENT]),
            convolve.i.p.eq(to_convolve),
            convolve.positions.eq(ends.positions),
            dense.i.p.eq(to_dense),
            convolve.hold.eq(finish.hold),
            dense.hold.eq(finish.hold),
            self.tap_base.eq(to_convolve.scale),
        ]
        with m.If(kinds[ArrayOpcode.CONVOLVE]):
            m.d.comb += [
                run.height.eq(to_convolve.out_height),
                run.width.eq(to_convolve.out_width),
                run.pool.eq(to_convolve.pool),
                run.relu.eq(to_convolve.relu),
                run.bias.eq(to_convolve.bias),
                run.to_dense.eq(to_convolve.to_dense),
                run.row.eq(to_convolve.row),
                run.target.eq(to_convolve.target),
                run.stride.eq(to_convolve.stride),
                run.final.eq(to_convolve.outputs - 1),
            ]
        with m.Else():
            m.d.comb += [
                run.height.eq(1),
                run.width.eq(config.rows),
                run.pool.eq(1),
                run.relu.eq(to_dense.relu),
                run.bias.eq(to_dense.bias),
                run.to_dense.eq(1),
                run.rows.eq(1),
                run.samples.eq(to_dense.samples),
                run.target.eq(to_dense.target),
                run.final.eq(to_dense.outputs - 1),
            ]

    def _choose(self, m, bad_operands, gradients, forwards, parts):
        """Decides whether a command is bad or unknown, and its kind.

        Also decides whether the control of that kind can take it.
        """
        passes, convolve, dense, finish = parts.passes, parts.convolve, parts.dense, parts.finish
        bad_pass, bad_convolve, bad_dense = bad_operands
        to_pass, to_convolve, _ = self._operands()
        forward, gradient, convolves, layer = (
            self.kinds[kind]
            for kind in (ArrayOpcode.FORWARD, ArrayOpcode.GRADIENT, ArrayOpcode.CONVOLVE, ArrayOpcode.DENSE)
        )
        asked = Cat(to_pass.q, to_pass.v_mode, to_pass.apply, to_pass.mu)
        same = (self.optimiser.as_value() == asked) | (gradients == 0)
        take, may = Signal(), Signal()
        # Forward reads the words that gradients write, through the same port; and a gradient's weights must not pass
        # while forward streams its own.
        go_forward = forward & (gradients == 0) & (forwards != 15)
        go_gradient = gradient & same & (forwards == 0) & (gradients != 15)
        go_pass = (go_forward | go_gradient) & passes.i.ready & convolve.idle & dense.idle
        go_convolve = (
            convolves
            & convolve.i.ready
            & passes.idle
            & dense.idle
            & finish.run.ready
            & (~to_convolve.encode | self.tap_base_ready)
        )
        go_dense = layer & dense.i.ready & passes.idle & convolve.idle & finish.run.ready
        m.d.comb += [
            passes.i.valid.eq(take & (forward | gradient)),
            convolve.i.valid.eq(take & convolves),
            self.tap_base_valid.eq(take & convolves & to_convolve.encode),
            dense.i.valid.eq(take & layer),
        ]
        return SimpleNamespace(
            bad=((forward | gradient) & bad_pass) | (convolves & bad_convolve) | (layer & bad_dense),
            unknown=~(forward | gradient | convolves | layer),
            go=go_pass | go_convolve | go_dense,
            take=take,
            may=may,
            kind=Cat(gradient, convolves | layer),
        )

    def _take(self, m, looked, choice, kinds, parts):
        """Takes a command when all is ready for it, or refuses it.

        A refusal waits until all earlier commands are done.
        """
        command, convolve, finish = self.engine.command, parts.convolve, parts.finish
        bad, unknown, take, may, kind = choice.bad, choice.unknown, choice.take, choice.may, choice.kind
        m.d.comb += [
            # No control may take an unknown command, so that ``may`` is of a known one.
            take.eq(looked & command.valid & ~bad & may),
            command.ready.eq(take),
            kinds.w_en.eq(take),
            kinds.w_data.eq(kind),
            finish.run.valid.eq(take & kind[1]),
        ]
        # An error is of the oldest command that is not done. A convolution that went astray is the last that was taken:
        # none follows.
        refused = Signal()
        m.d.comb += refused.eq(looked & command.valid & (bad | unknown) & (self._inside == 0))
        m.d.sync += [
            self.engine.error.valid.eq(refused | (convolve.astray & (self._inside == 1)) | finish.astray),
            self.engine.error.code.eq(Mux(refused & unknown, Error.UNKNOWN_OPCODE, Error.BAD_OPERAND)),
        ]
        # `go` stays once it is set until a command is taken, so that it may be a cycle old: the paths from the
        # controls' states to the queues of commands would be twice as deep otherwise.
        m.d.sync += may.eq(choice.go & kinds.w_rdy & ~take & ~convolve.astray)

    def _count(self, m, take, gradients, forwards, drained):
        """Counts the passes in flight; holds the optimiser's operands.

        The operands are held for gradients.
        """
        to_pass, _, _ = self._operands()
        starts_gradient = take & self.kinds[ArrayOpcode.GRADIENT]
        m.d.sync += [
            gradients.eq(gradients + starts_gradient - self.gradient_done),
            forwards.eq(forwards + (take & self.kinds[ArrayOpcode.FORWARD]) - drained),
        ]
        with m.If(starts_gradient):
            m.d.sync += self.optimiser.eq(Cat(to_pass.q, to_pass.v_mode, to_pass.apply, to_pass.mu))

    def _report(self, m, kinds, drained, parts):
        """Reports that commands are done, in the order in which they were taken."""
        convolve, finish = parts.convolve, parts.finish
        # Commands of different kinds may end out of order; they are reported in order. A convolution that is still at
        # work is the last that was taken: its results may be there, but not all of its tap.
        unread = ~convolve.idle & (self._inside == 1)
        ended = [Signal(4, name=f"ended_{n}") for n in range(3)]
        events = (drained, self.gradient_done, finish.done)
        for n, (count, event) in enumerate(zip(ended, events)):
            report = kinds.r_rdy & (kinds.r_data == n) & (count != 0) & (~unread if n == 2 else 1)
            m.d.sync += count.eq(stepped(count, event, report))
            with m.If(report):
                m.d.comb += [kinds.r_en.eq(1), self.engine.done.eq(1)]

    # -- convolution inputs --------------------------------------------------------------------------------------

    def _feed_convolution(self, m, platform, parts):
        """Reads image and feature maps, a pixel at a time.

        Also places the encoder of taps, which sees the same pixels.
        """
        config, convolve, finish = self.config, parts.convolve, parts.finish
        m.submodules.images = images = memory.Memory(
            shape=data.ArrayLayout(config.activation.shape, 4), depth=config.image_depth // 4, init=[]
        )
        m.submodules.features = features = memory.Memory(
            shape=data.ArrayLayout(config.activation.shape, config.columns),
            depth=config.feature_depth,
            init=[],
            attrs={"ram_style": "ultra"},
        )
        image_write, image_read = images.write_port(), images.read_port()
        feature_write, feature_read = features.write_port(), features.read_port()
        pixel = convolve.pixel
        m.d.comb += [
            image_write.en.eq(self.image.valid),
            image_write.addr.eq(self.image.address),
            *(
                image_write.data[n].eq(self.image.data[32 * n : 32 * n + config.activation.width].as_signed())
                for n in range(4)
            ),
            feature_write.en.eq(finish.feature.valid),
            feature_write.addr.eq(finish.feature.address),
            feature_write.data.eq(finish.feature.data),
            image_read.en.eq(pixel.valid),
            image_read.addr.eq(pixel.address >> 2),
            feature_read.en.eq(pixel.valid),
            feature_read.addr.eq(pixel.address),
        ]
        image, feature = Signal(image_read.data.shape(), reset_less=True), Signal(features.shape, reset_less=True)
        m.d.sync += [image.eq(image_read.data), feature.eq(feature_read.data)]
        which = delay(m, pixel.feature, 2)
        m.d.sync += convolve.data.eq(
            Mux(which, feature[delay(m, pixel.lane, 2)], image[delay(m, pixel.address[:2], 2)])
        )

        encoder = place(m, "encoder", TapEncoder(blocks=config.blocks, fmt=config.activation), platform)
        m.d.comb += [
            encoder.i.valid.eq(convolve.tap.valid),
            encoder.i.p.eq(convolve.tap.p),
            convolve.tap.ready.eq(encoder.i.ready),
            encoder.base.valid.eq(self.tap_base_valid),
            encoder.base.p.eq(self.tap_base),
            self.tap_base_ready.eq(encoder.base.ready),
            encoder.table.en.eq(self.table.en),
            encoder.table.addr.eq(self.table.addr),
            encoder.table.data.eq(self.table.data),
            self.taps.valid.eq(encoder.o.valid),
            self.taps.p.eq(encoder.o.p),
            encoder.o.ready.eq(self.taps.ready),
        ]

    # -- rows ----------------------------------------------------------------------------------------------------

    def _feed_rows(self, m, platform, parts):
        """Feeds the array's rows: operands, tags and the loads of weights."""
        level = self._look_up(m, parts.passes)
        control = self._control_rows(m, parts.passes, parts.dense, level)
        scales = self._store_scales(m, parts.passes)
        edge = self._tag_operands(m, parts.passes, parts.convolve, parts.dense)
        self._place_rows(m, platform, parts.array, parts.convolve, control, scales, edge)

    def _look_up(self, m, passes):
        """Holds the levels of the code books, and reads the level for row 0.

        Row 0 scales this level.
        """
        # Levels of four books, those of 8-bit codes at the end; the level goes with the control, so rows hold no books.
        initial = [[int(v) for v in book.level_table(LEVEL.frac)] for book in (NF4, NF4, INT8_HIGH, INT8_LOW)]
        m.submodules.books = books = memory.Memory(
            shape=data.ArrayLayout(LEVEL.shape, 8),
            depth=8,
            init=[levels[at : at + 8] for levels in initial for at in (0, 8)],
        )
        book_write, book_read = books.write_port(), books.read_port(domain="comb")
        m.d.comb += [
            book_write.en.eq(self.books.valid & (self.books.beat < 8)),
            book_write.addr.eq(self.books.beat),
            *(book_write.data[n].eq(self.books.data[16 * n : 16 * n + LEVEL.width].as_signed()) for n in range(8)),
            book_read.addr.eq(Cat(passes.feed.level[3], passes.feed.book)),
        ]
        return book_read.data[passes.feed.level[:3]]

    def _control_rows(self, m, passes, dense, level):
        """Registers the control of row 0, from passes and from dense commands.

        A dense layer and a peek share the dense memory and this control.
        """
        config = self.config
        control = Signal(RowControl(config))
        feed = passes.feed
        m.d.comb += self.peek_grant.eq(~dense.beat.valid)
        m.d.sync += [
            control.fill.eq(feed.fill),
            control.fill_table.eq(feed.fill_table),
            control.k.eq(feed.level),
            control.level.eq(level),
            control.fresh.eq(feed.fill & (feed.level == 0)),
            control.read.eq(feed.read),
            control.table.eq(feed.table),
            control.word.eq(feed.word),
            control.group.eq(feed.group),
            control.dense.eq(dense.beat.valid),
            control.peek.eq(self.peek.valid & self.peek_grant),
            control.address.eq(Mux(dense.beat.valid, dense.beat.address, self.peek.address)),
        ]
        return control

    def _store_scales(self, m, passes):
        """Holds the scales of blocks, and returns each memory's read data."""
        config, feed = self.config, passes.feed
        # A row keeps a block's scale while it fills a table, so one memory serves as many rows as a table has entries:
        # it reads for a row as the control comes there.
        scales = []
        for first in range(0, config.rows, LEVELS):
            m.submodules[f"scales_{first}"] = store = memory.Memory(
                shape=SCALE.shape, depth=2 * config.blocks * LEVELS, init=[], attrs={"ram_style": "block"}
            )
            write, read = store.write_port(), store.read_port()
            m.d.comb += [
                write.en.eq(self.scales.valid & (self.scales.row >> ceil_log2(LEVELS) == first // LEVELS)),
                write.addr.eq(Cat(self.scales.address, self.scales.row[: ceil_log2(LEVELS)])),
                write.data.eq(self.scales.data),
                read.addr.eq(delay(m, Cat(feed.scale, feed.level), first)),
            ]
            scales.append(read.data)
        return scales

    def _tag_operands(self, m, passes, convolve, dense):
        """Makes row 0's tags and loads, due when its operand arrives.

        A load is of a streamed weight or of a weight that stays.
        """
        rows = self.config.rows
        streams = (passes.beat.valid & ~passes.beat.backward) | dense.beat.valid
        first = Mux(dense.beat.valid, dense.beat.first, passes.beat.first)
        stays = (passes.beat.valid & passes.beat.backward) | convolve.window.valid
        swap_stays = Mux(convolve.window.valid, convolve.window.swap, passes.beat.first)
        tag = Signal(tag_layout)
        m.d.comb += [
            tag.swap.eq(streams | (stays & swap_stays)),
            tag.use_m.eq(streams | stays),
            tag.from_above.eq(stays),
            tag.from_self.eq(~stays & ~(streams & first)),
        ]
        edge = Signal(
            data.StructLayout({"tag": tag_layout, "load": 1, "load_row": 1, "row": ceil_log2(rows), "pair": 1})
        )
        loading = passes.weight.valid | convolve.weight.valid
        m.d.comb += [
            edge.tag.eq(delay(m, tag, EDGE, reset_less=False)),
            # The last row adds a gradient's sum of the low nibbles to that of the high ones.
            edge.pair.eq(delay(m, passes.beat.valid & passes.beat.backward & passes.beat.low, EDGE, reset_less=False)),
            edge.load.eq(delay(m, streams, EDGE - 1, reset_less=False)),
            edge.load_row.eq(delay(m, loading, EDGE - 1, reset_less=False)),
            edge.row.eq(delay(m, Mux(passes.weight.valid, passes.weight.row, convolve.weight.row), EDGE - 1)),
        ]
        return edge

    def _place_rows(self, m, platform, array, convolve, control, scales, edge):
        """Places one feeder for each row.

        Control and tags pass from row to row, a cycle each.
        """
        config = self.config
        rows = config.rows
        peeked = []
        self.row_dense = []
        for index in range(rows):
            row = place(m, f"row_{index}", RowFeeder(config), platform)
            m.d.comb += [
                row.control.eq(control),
                row.codes.valid.eq(self.codes.valid & (self.codes.row == index)),
                row.codes.address.eq(self.codes.address),
                row.codes.data.eq(self.codes.data),
                row.scale.eq(scales[index // LEVELS]),
                row.dense_write.valid.eq(self.dense_port.valid & (self.dense_port.row == index)),
                row.dense_write.address.eq(self.dense_port.address),
                row.dense_write.data.eq(self.dense_port.data),
                *(ours.eq(theirs) for ours, theirs in zip(array.x[index], row.x)),
                array.tag[index].eq(edge.tag),
                array.tag[index].load.eq(edge.load | (edge.load_row & (edge.row == index))),
            ]
            if index < convolve.windows:
                window = Mux(convolve.window.valid, convolve.window.p[index], 0)
                m.d.comb += row.window.eq(delay(m, window, EDGE - 1 + index))
            peeked.append(row.dense)
            if index == rows - 1:
                m.d.comb += array.tag[index].from_self.eq(edge.tag.from_self | edge.pair)
            else:
                control = row.control_o
                edge = delay(m, edge, 1, reset_less=False)
        self.peeked = peeked

    def _peek(self, m):
        """Reads a dense word of one row.

        Each row's word is as many cycles later as the row is further down.
        """
        rows = self.config.rows
        due = self.peek.valid & self.peek_grant
        row = Signal.like(self.peek.row)
        with m.If(due):
            m.d.sync += row.eq(self.peek.row)
        arrived = Signal(rows)
        base = delay(m, due, RowFeeder.latency, reset_less=False)
        m.d.comb += arrived[0].eq(base)
        m.d.sync += arrived[1:].eq(arrived[:-1])
        # One row's word is let through, the rest is zero: an OR in two steps.
        groups = []
        for at in range(0, rows, 5):
            group = Signal(self.config.activation.width, reset_less=True)
            hit = Signal()
            terms = [Mux(row == n, self.peeked[n].as_unsigned(), 0) for n in range(at, min(at + 5, rows))]
            flags = [arrived[n] & (row == n) for n in range(at, min(at + 5, rows))]
            value, flag = terms[0], flags[0]
            for more, other in zip(terms[1:], flags[1:]):
                value, flag = value | more, flag | other
            m.d.sync += [group.eq(value), hit.eq(flag)]
            groups.append((group, hit))
        value, flag = groups[0]
        for more, other in groups[1:]:
            value, flag = value | more, flag | other
        m.d.sync += [self.peek_data.eq(value), self.peek_arrives.eq(flag)]

    # -- columns -------------------------------------------------------------------------------------------------

    def _feed_columns(self, m, platform, parts):
        """Feeds the array's columns with their weights.

        The adapter's lanes learn from the sums that leave the columns.
        """
        config = self.config
        array, passes, convolve, dense = parts.array, parts.passes, parts.convolve, parts.dense
        columns, rank = config.columns, config.rank

        m.submodules.weights = weights = memory.Memory(
            shape=data.ArrayLayout(PARAMETER.shape, columns),
            depth=config.weight_depth,
            init=[],
            attrs={"ram_style": "ultra"},
        )
        write, read = weights.write_port(), weights.read_port()
        # Column 0 wants its word EDGE - 1 cycles after it was asked for, of which the last is spent below. A word is
        # far wider than its address: the address waits.
        asks = convolve.weight.valid | dense.beat.valid
        asked = Mux(dense.beat.valid, dense.beat.weight, convolve.weight.address)
        m.d.comb += [
            write.en.eq(self.weights.valid),
            write.addr.eq(self.weights.address),
            write.data.eq(self.weights.data[: 16 * columns]),
            read.en.eq(delay(m, asks, EDGE - 4, reset_less=False)),
            read.addr.eq(delay(m, asked, EDGE - 4)),
        ]
        weight = Signal(data.ArrayLayout(PARAMETER.shape, columns), reset_less=True)
        m.d.sync += weight.eq(read.data)
        use_weight = delay(
            m, (convolve.weight.valid & convolve.weight.live) | dense.beat.valid, EDGE - 2, reset_less=False
        )
        m.d.comb += [
            self.dh.tap.eq(delay(m, passes.weight.tap, EDGE - 3)),
            self.dh.sample.eq(delay(m, passes.weight.row, EDGE - 3)),
        ]
        use_dh = delay(m, passes.weight.valid & passes.weight.live, EDGE - 2, reset_less=False)
        dh = self.dh_data

        lane_layout = data.StructLayout({"valid": 1, "address": ceil_log2(config.adapter_depth)})
        ask = Signal(lane_layout)
        m.d.comb += [ask.valid.eq(passes.beat.valid & ~passes.beat.backward), ask.address.eq(passes.beat.lane)]
        ask = delay(m, ask, EDGE - 2 - AdapterLanes.read_latency, reset_less=False)
        use_lane = delay(m, ask.valid, AdapterLanes.read_latency, reset_less=False)
        # The sums of high nibbles are in those of the low ones.
        learn = Signal(lane_layout)
        m.d.comb += [
            learn.valid.eq(passes.beat.valid & passes.beat.backward & ~passes.beat.high),
            learn.address.eq(passes.beat.lane),
        ]
        learn = delay(m, learn, EDGE + array.latency, reset_less=False)
        optimiser = delay(m, lane_config(m, self.optimiser), 1)

        saturated, underflowed, norm = [], [], 0
        for column in range(rank):
            lanes = AdapterLanes(depth=config.adapter_depth, panels=config.panels)
            place(m, f"lanes_{column}", lanes, platform)
            asked = delay(m, ask, column, reset_less=False)
            m.d.comb += [
                lanes.config.eq(optimiser),
                lanes.read.valid.eq(asked.valid | self.dump.valid),
                lanes.read.address.eq(Mux(self.dump.valid, self.dump.address, asked.address)),
                lanes.gradient.eq(delay(m, learn, column, reset_less=False)),
                lanes.write.valid.eq(self.lanes.valid),
                lanes.write.address.eq(self.lanes.address),
                lanes.norm_i.eq(norm),
            ]
            norm = lanes.norm_o
            saturated.append(lanes.saturated)
            underflowed.append(lanes.underflowed)
            of_weight = delay(m, use_weight, column, reset_less=False)
            of_dh = delay(m, use_dh, column, reset_less=False)
            of_lane = delay(m, use_lane, column, reset_less=False)
            for panel in range(config.panels):
                index = panel * rank + column
                m.d.comb += [
                    lanes.g[panel].eq(array.p[index]),
                    lanes.write.data[panel].eq(self.lanes.data[16 * index : 16 * index + 16].as_signed()),
                    self.words[index].eq(lanes.w[panel]),
                ]
                m.d.sync += array.w[index].eq(
                    Mux(of_weight, delay(m, weight[index], column), 0)
                    | Mux(of_dh, delay(m, dh[column], column), 0)
                    | Mux(of_lane, lanes.w[panel], 0)
                )
        self.lanes_saturated = Signal(8)
        m.d.sync += [self.lanes_saturated.eq(sum(saturated)), self.underflowed.eq(sum(underflowed))]
        m.d.comb += self.norm.eq(norm)
        # A pass has learnt when its last word is in the last column's memory.
        last = passes.beat.valid & passes.beat.backward & passes.beat.last
        m.d.comb += self.gradient_done.eq(
            delay(m, last, EDGE + array.latency + rank - 1 + AdapterLanes.latency, reset_less=False)
        )

    # -- what leaves the array -----------------------------------------------------------------------------------

    def _align(self, m, parts):
        """Aligns the sums of a beat, which leave column by column.

        Each column's sum leaves one cycle after its neighbour's.
        """
        m.d.comb += [ours.eq(theirs) for ours, theirs in zip(parts.align.p, parts.array.p)]
        m.d.comb += parts.finish.bias_write.eq(self.biases)

    def _accumulate(self, m, platform, parts):
        """Adds up the sums of windows, with a token beside them.

        The token has the same latency as the sums and says which window they belong to.
        """
        config, convolve = self.config, parts.convolve
        accumulate = place(m, "accumulate", Accumulate(config), platform)
        to_feet = EDGE + parts.array.latency + config.rank - 1
        token = Signal(SumsToken(config))
        m.d.comb += [
            token.valid.eq(convolve.window.valid),
            token.first.eq(convolve.sums.first),
            token.last.eq(convolve.sums.last),
            token.position.eq(convolve.sums.position),
        ]
        m.d.comb += [
            accumulate.ahead.eq(delay(m, token, to_feet - accumulate.ahead_cycles, reset_less=False)),
            *(ours.eq(theirs) for ours, theirs in zip(accumulate.sums, parts.align.o)),
        ]
        return accumulate

    def _drain(self, m, parts):
        """Drains the sums that the array holds, a row a cycle.

        A token says to which command they belong.
        """
        config, array, passes, dense = self.config, parts.array, parts.passes, parts.dense
        drain = Signal(DrainToken(config))
        m.d.comb += [
            drain.valid.eq(passes.drain.valid | dense.drain),
            drain.hidden.eq(passes.drain.valid),
            drain.tap.eq(passes.drain.tap),
            drain.samples.eq(passes.drain.samples),
        ]
        at_edge = delay(m, drain, EDGE, reset_less=False)
        m.d.comb += array.drain.eq(at_edge.valid)
        leaving = delay(m, at_edge, array.drain_latency + config.rank - 2, reset_less=False)
        out_token = Signal(DrainToken(config))
        draining = Signal()
        sample = Signal(range(config.rows))
        with m.If(leaving.valid):
            m.d.sync += [out_token.eq(leaving), draining.eq(1), sample.eq(config.rows - 1)]
        with m.Elif(draining):
            m.d.sync += sample.eq(sample - 1)
            with m.If(sample == 0):
                m.d.sync += draining.eq(0)
        return SimpleNamespace(active=draining, token=out_token, sample=sample)

    def _hide(self, m, platform, parts, drain):
        """Makes h from the sums of a forward pass."""
        hidden = place(m, "hidden", Hidden(self.config), platform)
        m.d.comb += [
            *(ours.eq(theirs) for ours, theirs in zip(hidden.sums, parts.align.o)),
            hidden.valid.eq(drain.active & drain.token.hidden),
            hidden.sample.eq(drain.sample),
            hidden.token.eq(drain.token),
            self.h.eq(hidden.h),
        ]
        return hidden

    def _finish(self, m, parts, drain, hidden, accumulate, drained):
        """Gives the feet the sums of windows and of dense layers.

        Also reports when a forward pass is done.
        """
        finish = parts.finish
        dense_leaves = drain.active & ~drain.token.hidden
        m.d.comb += [accumulate.alone.eq(dense_leaves), finish.sums.eq(accumulate.o)]
        m.d.comb += drained.eq(delay(m, hidden.valid & (drain.sample == 0), hidden.latency + 1, reset_less=False))

        m.d.sync += self.saturated.eq(hidden.saturated + finish.saturated + self.lanes_saturated)
