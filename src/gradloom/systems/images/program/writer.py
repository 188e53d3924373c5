"""Writes commands and data of the operations of a fine-tune."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from gradloom.program.assembler import Assembler
from gradloom.rtl.engines.array.commands import ArrayOpcode
from gradloom.rtl.engines.encode.commands import EncodeOpcode
from gradloom.rtl.machines.images import ARRAY, ENCODE, HEAD
from gradloom.rtl.shell.engines import CONTROL, LOAD
from gradloom.rtl.shell.signature import ControlOpcode

from ..operations import Convolve, Dense, Encode, Operation, Record, frozen
from .adapters import AdapterWriter
from .lowered import BEAT, Lowered, LoweredConv, LoweredDense
from .tokens import ProgramToken

__all__ = ["Writer"]


@dataclass(frozen=True)
class Enter:
    """Takes images to the rows of dense activations, unchanged.

    A network without convolutions has this operation.
    """


@dataclass(frozen=True)
class _At:
    """A sample's row in its group, its record, and the group's slots.

    The group has ``count`` samples; it has slots if it is kept.
    """

    row: int
    record: int
    count: int
    slots: tuple[int, int] | None

    @property
    def last(self) -> bool:
        return self.row == self.count - 1


class Writer(AdapterWriter):
    """Writes the parts of a fine-tune's program from its operations.

    The adapters' steps are :class:`AdapterWriter`'s, parameters and the frozen network's forward are its own.

    ``images``: offset of each sample's image. ``ready``: writes what makes one, and returns the tokens for which its
    LOAD waits.
    """

    at: _At

    def __init__(
        self,
        lowered: Lowered,
        asm: Assembler,
        images: Sequence[int],
        ready: Callable[[int], tuple[int, ...]] | None = None,
    ) -> None:
        super().__init__(lowered, asm)
        self.images, self.ready = images, ready
        self.image_count = 0
        self.pending: list[Callable[[], None]] = []
        operations = frozen(lowered.network)
        first = next(n for n, each in enumerate(operations) if isinstance(each, Dense))
        #: What is done of a sample by convolutions, each; then, on its row, before the dense layers and behind them.
        self.stages: list[list[Any]] = [
            operations[n - 1 : n + 1] for n, each in enumerate(operations) if isinstance(each, Convolve)
        ] or [[Enter()]]
        self.entry = operations[first - 1]
        self.denses = [each for each in operations if isinstance(each, Dense)]
        self.behind = [each for each in operations[first:] if not isinstance(each, Dense)]

    # -- parameters ----------------------------------------------------------------------------------------------

    def credits(self) -> None:
        """Posts the tokens of the free image halves and of the free rows.

        Both halves of the image buffer are free, and all rows of dense activations.
        """
        for token, credits in ((ProgramToken.IMAGE_FREE, 2), (ProgramToken.ROW_FREE, self.low.config.rows)):
            for _ in range(credits):
                self.asm.add(CONTROL, ControlOpcode.LOOKUP, post=(token,))

    def load(self, places: Mapping[str, tuple[int, int]]) -> None:
        """Parameters from their offsets and bytes by name."""
        for name, dest in (
            ("biases", ARRAY.load("biases")),
            ("weights", ARRAY.load("weights")),
            ("lanes", ARRAY.load("lanes")),
            ("head", HEAD.load("b")),
        ):
            offset, size = places[name]
            self.asm.add(LOAD, 0, offset=offset, beats=size // BEAT, dest=dest)

    def keep(self, places: Mapping[str, tuple[int, int]], *, wait: tuple[int, ...] = ()) -> None:
        """Adapters back to their places."""
        for name, source, tokens in (("lanes", ARRAY.store("lanes"), wait), ("head", HEAD.store("b"), ())):
            offset, size = places[name]
            self.store(source, offset, size // BEAT, wait=tokens)

    # -- forward of the frozen network ---------------------------------------------------------------------------

    def base(self, samples: Sequence[int], where: Sequence[int], slots: tuple[int, int] | None) -> None:
        """Forward of up to ``rows`` samples, with their records to ``where``.

        :meth:`flush` completes the last group.

        Convolutions of a sample alternate with those of the samples after it, so that the array works on one while the
        other's words are on their way. For the same reason a group's dense layers and encodings stand among the
        convolutions of the group after it, and no queue fills up with them.
        """
        stages = len(self.stages)
        count = len(samples)
        places = [_At(row, record, count, slots) for row, record in enumerate(where)]
        before, self.pending = self.pending, []
        if stages == 1:
            self._emit(before, len(before))
        for tick in range(count + stages - 1):
            if tick == 1:
                self._emit(before, 1)
            for stage in range(stages):
                row = tick - stage
                if 0 <= row < count:
                    self.at = places[row]
                    if stage == 0:
                        self._image(samples[row])
                    self.run(self.stages[stage])
                    if stage == stages - 1:
                        self.run([self.entry])
                if stage == 0:
                    # A row's encodings stand before those of the row before it in this group, which wait for
                    # a convolution: so they are two rows ahead of the row that they set free.
                    self._emit(before, len(self.denses) if tick == 1 else 1)
        self._emit(before, len(before))

        # One dense layer, then one row of encodings, each.
        self.pending = [partial(self._run_at, places[0], [each]) for each in self.denses]
        self.pending += [partial(self._run_at, place, self.behind) for place in places]

    def _run_at(self, place: _At, operations: Sequence[Operation]) -> None:
        self.at = place
        self.run(operations)

    def flush(self) -> None:
        """Writes the pending rest of the last group."""
        self._emit(self.pending, len(self.pending))

    @staticmethod
    def _emit(parts: list[Callable[[], None]], number: int) -> None:
        for part in parts[:number]:
            part()
        del parts[:number]

    def _image(self, sample: int) -> None:
        low = self.low
        half = self.image_count % 2
        wait = () if self.ready is None else self.ready(sample)
        self.asm.add(
            LOAD,
            0,
            offset=self.images[sample],
            beats=low.image_words // 4,
            dest=ARRAY.load("image"),
            arg=half * low.config.image_depth // 8,
            wait=(ProgramToken.IMAGE_FREE, *wait),
            post=(ProgramToken.IMAGE,),
            slots=self.at.slots,
        )

    def _encode(self, operation: Encode) -> None:
        low, at = self.low, self.at
        layer = low.layers[operation.tap]
        if isinstance(layer, LoweredConv):
            return  # It encodes what it reads.
        # The logits of all rows are there when the last layer is done; rows after the first need not wait again.
        wait = (ProgramToken.ROW,) if operation == self.entry else self._after_layers(operation)
        tap = low.taps[operation.tap]
        self.asm.add(
            ENCODE,
            EncodeOpcode.ACTIVATIONS,
            wait=wait,
            slots=at.slots,
            elements=tap.elements,
            row=at.row,
            scale=tap.first_block,
            from_=layer.source,
            wide=low.wide,
        )
        self._store_tap(ENCODE.store("taps"), operation.tap)

    def _after_layers(self, operation: Operation) -> tuple[int, ...]:
        return (ProgramToken.LOGITS,) if self.at.row == 0 and operation == self.behind[0] else ()

    def _record(self, operation: Record) -> None:
        low, at = self.low, self.at
        self.asm.add(
            ENCODE,
            EncodeOpcode.RAW,
            elements=low.classes,
            row=at.row,
            from_=low.logits_at,
            wait=self._after_layers(operation),
            post=(ProgramToken.ROW_FREE,),
            slots=at.slots,
        )
        self.store(
            ENCODE.store("raw"),
            at.record + BEAT * (low.record_scales + low.record_codes),
            low.record_logits,
            at.slots,
            post=(ProgramToken.STORED,) if at.last else (),
        )

    def _enter(self, operation: Enter) -> None:
        self._tiles(0)

    def _convolve(self, operation: Convolve) -> None:
        self._tiles(operation.layer)

    def _tiles(self, stage: int) -> None:
        """A convolution of a sample, a command for each part of its channels.

        A part has as many output channels as the array has columns.
        """
        low, config, slots = self.low, self.low.config, self.at.slots
        conv = low.convs[stage]
        last_stage = stage == len(low.convs) - 1
        if stage:
            source = _feature(low.convs[stage - 1], self.at.row, config.columns)
        else:
            source = self.image_count % 2 * config.image_depth // 2
            self.image_count += 1
        tiles = -(-conv.weight.shape[0] // config.columns)
        for tile in range(tiles):
            first, last = tile == 0, tile == tiles - 1
            wait = [] if not first else [ProgramToken.MAPPED] if stage else [ProgramToken.IMAGE]
            post = [ProgramToken.IMAGE_FREE] if last and stage == 0 else []
            if last_stage and first:
                wait.append(ProgramToken.ROW_FREE)
            if last:
                post.append(ProgramToken.ROW if last_stage else ProgramToken.MAPPED)
                if last_stage and self.at.last:
                    post.append(ProgramToken.GROUP)
            self.asm.add(
                ARRAY,
                ArrayOpcode.CONVOLVE,
                wait=tuple(wait),
                post=tuple(post),
                phase="convolution",
                slots=slots,
                **self._tile(stage, tile, source),
            )
            if conv.tap is not None and tile == min(tiles, config.queue_depth) - 1:
                # While the first tile is under way: its tap may be more than waits for STORE, and then the tiles that
                # the queue has no room for wait behind it.
                self._store_tap(ARRAY.store("taps"), conv.tap)

    def _tile(self, stage: int, tile: int, source: int) -> dict[str, int]:
        """Operands of a part of a convolution."""
        low, config, row = self.low, self.low.config, self.at.row
        conv, to_dense = low.convs[stage], stage == len(low.convs) - 1
        run, outputs, columns = conv.run, conv.weight.shape[0], config.columns
        encode = conv.tap is not None and tile == 0
        target = tile * columns if to_dense else (_feature(conv, row, columns) + tile * conv.pooled[0] * conv.pooled[1])
        return {
            "height": run.height,
            "width": run.width,
            "channels": run.channels,
            "pool": conv.pool,
            "relu": conv.relu,
            "source": stage > 0,
            "encode": encode,
            "wide": encode and low.wide,
            "to_dense": to_dense,
            "kernel_h": run.kernel_h,
            "kernel_w": run.kernel_w,
            "stride_h": run.stride_h,
            "stride_w": run.stride_w,
            "pad_top": run.pad_top,
            "pad_left": run.pad_left,
            "pad_bottom": run.pad_bottom,
            "pad_right": run.pad_right,
            "outputs": min(columns, outputs - tile * columns),
            "weights": conv.weights_at + tile * run.channels * config.kernel**2,
            "bias": conv.bias_at + tile,
            "scale": low.taps[conv.tap].first_block if conv.tap is not None else 0,
            "from": source,
            "target": target,
            "row": row,
            "out_height": run.out_height,
            "out_width": run.out_width,
            "stride": outputs if to_dense else 0,
        }

    def _dense(self, operation: Dense) -> None:
        dense = self.low.layers[operation.layer]
        assert isinstance(dense, LoweredDense)
        columns = self.low.config.columns
        outputs, inputs = dense.weight.shape
        tiles = -(-outputs // columns)
        # A layer's inputs are complete when the last tile of the layer before is written, for all rows. No other queue
        # waits for the same token, or it could take what is this one's.
        begin = ProgramToken.GROUP if dense is self.low.denses[0] else ProgramToken.LAYER
        end = ProgramToken.LOGITS if dense is self.low.denses[-1] else ProgramToken.LAYER
        for tile in range(tiles):
            wait = (begin,) if tile == 0 else ()
            post = (end,) if tile == tiles - 1 else ()
            self.asm.add(
                ARRAY,
                ArrayOpcode.DENSE,
                wait=wait,
                post=post,
                phase="dense",
                slots=self.at.slots,
                inputs=inputs,
                samples=self.at.count,
                relu=dense.relu,
                outputs=min(columns, outputs - tile * columns),
                from_=dense.source,
                target=dense.target + tile * columns,
                weights=dense.weights_at + tile * inputs,
                bias=dense.bias_at + tile,
            )

    def _store_tap(self, source: int, index: int) -> None:
        low, record, slots = self.low, self.at.record, self.at.slots
        tap = low.taps[index]
        codes = low.record_scales + low.block_beats * tap.first_block
        scales = sum(t.scale_beats for t in low.taps[:index])
        self.store(source, record + BEAT * codes, low.block_beats * tap.blocks, slots)
        self.store(source, record + BEAT * scales, tap.scale_beats, slots)


def _feature(conv: LoweredConv, row: int, columns: int) -> int:
    """First feature word of a convolution's output.

    Even and odd rows have places of their own.
    """
    words = -(-conv.weight.shape[0] // columns) * conv.pooled[0] * conv.pooled[1]
    return conv.feature + row % 2 * words
