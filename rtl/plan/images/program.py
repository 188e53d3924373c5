"""The program of a fine-tune, and where everything lies in the window that it works on."""
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from ...config import Config
from ...engines.array.commands import RECORD_ARG, ArrayOpcode
from ...engines.encode.commands import EncodeOpcode
from ...engines.head.commands import HeadOpcode
from ...machines.engines import ARRAY, ENCODE, HEAD, IMAGES
from ...shell.engines import CONTROL, LOAD, STORE
from ...shell.signature import COMMAND_BYTES, ControlOpcode
from ...workloads import LENET5
from ..program.assembler import Assembler, pack
from ..program.progress import check_progress
from .lowering import Lowered
from .schedule import batches, epoch_order
from .streams import IMAGE_STREAMS

__all__ = ["BEAT", "Settings", "Step", "Plan", "Token", "Writer", "check_program", "head_words", "words16", "words32",
           "kept_samples", "plan_finetune", "learning_scale", "plan_steps", "memory_map"]

BEAT = 16
PAGE = 4096
#: Books that the array holds after reset: 4-bit codes; high nibbles of 8-bit codes, those of the low ones come next.
BOOK_NF4, BOOK_INT8 = 0, 2


class Token:
    """What commands wait for."""

    IMAGE, IMAGE_FREE, MAPPED, ROW, ROW_FREE, GROUP, STORED, RECORDS, HALF_FREE, HIDDEN, GRADIENT, LEARNT, LAYER, \
        LOGITS = range(14)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a fine-tune is asked to do.

    Parameters
    ----------
    samples, epochs, batch : int
    rate, momentum : float
        SGD on the mean loss of a batch.
    seed : int
        Of the order of samples (:func:`epoch_order`).
    shuffled : bool
        Without it samples come in their own order.
    slots : int
        Samples whose activations are kept; the others are computed each time they are needed.
    """

    samples: int
    epochs: int = LENET5.epochs
    batch: int = LENET5.batch
    rate: float = LENET5.lr
    momentum: float = LENET5.momentum
    seed: int = 0
    shuffled: bool = True
    slots: int = 1 << 30

    def __post_init__(self) -> None:
        for name in ("samples", "epochs", "batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: must be at least 1")
        if not 0 < self.rate <= 32:
            raise ValueError(f"lr={self.rate}: must be above 0 and at most 32")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum={self.momentum}: must be at least 0 and below 1")
        if self.slots < 0:
            raise ValueError(f"slots={self.slots}: must be at least 0")


def learning_scale(rate: float, batch: int) -> tuple[int, int]:
    """``(scale, q)``: ``rate / batch`` as an integer below 2**17 of ``24 - 4 * q`` fraction bits, q the smallest."""
    for q in range(4):
        scale = int(np.rint(rate / batch * 2.0 ** (24 - 4 * q)))
        if scale < 1 << 17:
            if scale == 0:
                raise ValueError(f"lr={rate}: divided by the batch of {batch} it is less than 2**-25, "
                                 f"which the format cannot tell from 0")
            return scale, q
    raise ValueError(f"lr={rate}: divided by the batch of {batch} it must be below 32")


@dataclass(frozen=True, kw_only=True, eq=False)
class Step:
    """A microbatch. ``first``, ``last`` of its optimiser step; ``v_mode`` as the optimiser has it."""

    samples: np.ndarray
    scale: int
    q: int
    v_mode: int
    first: bool
    last: bool
    mu: int


def plan_steps(settings: Settings, rows: int) -> list[Step]:
    """Microbatches in the order in which they are learnt from: batches of more than ``rows`` come in parts."""
    mu = int(np.rint(settings.momentum * 65536))
    if mu >= 65536:
        raise ValueError(f"momentum={settings.momentum}: must be at most {65535 / 65536:.6f}")
    steps: list[Step] = []
    started = False
    for epoch in range(settings.epochs):
        order = epoch_order(settings.samples, epoch, settings.seed, shuffled=settings.shuffled)
        for batch in batches(order, settings.batch):
            scale, q = learning_scale(settings.rate, len(batch))
            parts = np.array_split(batch, -(-len(batch) // rows))
            for index, part in enumerate(parts):
                v_mode = 1 if index else 2 if mu and started else 0
                steps.append(Step(samples=part, scale=scale, q=q, v_mode=v_mode, first=index == 0,
                                  last=index == len(parts) - 1, mu=mu if v_mode == 2 else 0))
            started = True
    return steps


@dataclass(kw_only=True, eq=False)
class Plan:
    """A program and its data.

    ``segments``: bytes to put at offsets of the window before the bell. ``records``, ``lanes``, ``b``,
    ``losses``: where to find results. ``size``: bytes of the window that are used.
    """

    lowered: Lowered
    settings: Settings
    steps: list[Step] = field(repr=False)
    assembler: Assembler = field(repr=False)
    program_offset: int
    segments: list[tuple[int, bytes]] = field(repr=False)
    records: int
    slots: int
    lanes: int
    b: int
    losses: int
    size: int
    regions: dict[str, tuple[int, int]]

    @property
    def commands(self) -> int:
        return len(self.assembler)


class _Window:
    """Hands out aligned pieces of the window."""

    def __init__(self) -> None:
        self.at = 0
        self.regions: dict[str, tuple[int, int]] = {}

    def take(self, name: str, size: int, align: int = PAGE) -> int:
        self.at = -(-self.at // align) * align
        offset, self.at = self.at, self.at + max(size, BEAT)
        self.regions[name] = (offset, size)
        return offset


def words16(words: np.ndarray) -> bytes:
    """Rows of up to sixteen 16-bit words, two beats each."""
    out = np.zeros((len(words), 16), "<i2")
    out[:, :words.shape[1]] = words
    return out.tobytes()


def words32(words: np.ndarray, per_row: int) -> bytes:
    out = np.zeros((len(words), per_row), "<i4")
    out[:, :words.shape[1]] = words
    return out.tobytes()


def head_words(lowered: Lowered, b: Sequence[np.ndarray]) -> bytes:
    """B of all taps as LOAD and STORE have it: two beats a rank index."""
    words = np.zeros((lowered.k, 16), np.int64)
    for tap, matrix in enumerate(b):
        at = tap * lowered.parts * lowered.config.rank
        words[at:at + lowered.rank, :lowered.classes] = np.asarray(matrix).T
    return words16(words)


def check_program(asm: Assembler, config: Config) -> None:
    """Raises :class:`~gradloom.rtl.plan.program.progress.StuckError` if a program may not come to its end."""
    names = {value: name for name, value in vars(Token).items() if isinstance(value, int)}
    check_progress(asm.instructions, IMAGES, depth=config.queue_depth, streams=IMAGE_STREAMS, names=names)


class Writer:
    """Writes the parts of a fine-tune's program; ``images``: where each sample's image lies."""

    def __init__(self, lowered: Lowered, asm: Assembler, images: Sequence[int]) -> None:
        self.low = lowered
        self.asm = asm
        self.images = images
        self.image_count = 0
        self.pending: list[Callable[[], None]] = []

    # -- forward of the frozen network ---------------------------------------------------------------------------

    def base(self, samples: Sequence[int], where: Sequence[int], slots: tuple[int, int] | None) -> None:
        """Forward of up to ``rows`` samples, their records to ``where``; :meth:`flush` completes the last group.

        Convolutions of a sample run in turn with those of the samples after it, so that the array works on one while
        the other's words are on their way. For the same reason a group's dense layers and encodings stand among the
        convolutions of the group after it, and no queue fills up with them.
        """
        low = self.low
        stages = len(low.convs)
        count = len(samples)
        before, self.pending = self.pending, []
        if stages == 1:
            self._emit(before, len(before))
        for tick in range(count + stages - 1):
            if tick == 1:
                self._emit(before, 1)
            for stage in range(stages):
                row = tick - stage
                if 0 <= row < count:
                    if stage == 0:
                        self._image(samples[row], slots)
                    self._convolve(stage, row, where[row], slots, row == count - 1)
                if stage == 0:
                    # A row's encodings stand before those of the row before it in this group, which wait for
                    # a convolution: so they are two rows ahead of the row that they set free.
                    self._emit(before, len(low.denses) if tick == 1 else 1)
        self._emit(before, len(before))

        # One dense layer, then one row of encodings, each.
        self.pending = [partial(self._dense, dense, count, slots) for dense in low.denses]
        self.pending += [partial(self._finish_row, row, where[row], slots, count) for row in range(count)]

    def flush(self) -> None:
        """Writes what the last group still lacks."""
        self._emit(self.pending, len(self.pending))

    @staticmethod
    def _emit(parts: list[Callable[[], None]], number: int) -> None:
        for part in parts[:number]:
            part()
        del parts[:number]

    def _finish_row(self, row: int, record: int, slots: tuple[int, int] | None, count: int) -> None:
        low = self.low
        # The logits of all rows are there when the last layer is done; rows after the first need not wait again.
        wait = (Token.LOGITS,) if row == 0 else ()
        for dense in low.denses[1:]:
            self._encode(dense.tap, dense.source, row, record, slots, wait=wait)
            wait = ()
        self.asm.add(ENCODE, EncodeOpcode.RAW, elements=low.classes, row=row,
                     from_=low.logits_at, wait=wait, post=(Token.ROW_FREE,), slots=slots)
        self.store(ENCODE.store("raw"), record + BEAT * (low.record_scales + low.record_codes), low.record_logits,
                   slots, post=(Token.STORED,) if row == count - 1 else ())

    def _image(self, sample: int, slots: tuple[int, int] | None) -> None:
        low = self.low
        half = self.image_count % 2
        self.asm.add(LOAD, 0, offset=self.images[sample],
                     beats=low.image_words // 4, dest=ARRAY.load("image"), arg=half * low.config.image_depth // 8,
                     wait=(Token.IMAGE_FREE,), post=(Token.IMAGE,), slots=slots)

    def _convolve(self, stage: int, row: int, record: int, slots: tuple[int, int] | None,
                  last_row: bool) -> None:
        low, config = self.low, self.low.config
        conv = low.convs[stage]
        columns = config.columns
        outputs = conv.weight.shape[0]
        tiles = -(-outputs // columns)
        last_stage = stage == len(low.convs) - 1
        half = self.image_count % 2
        if stage == 0:
            self.image_count += 1
        before = low.convs[stage - 1] if stage else None
        positions = conv.pooled[0] * conv.pooled[1]
        for tile in range(tiles):
            first, last = tile == 0, tile == tiles - 1
            wait = [] if not first else [Token.MAPPED] if stage else [Token.IMAGE]
            post = [Token.IMAGE_FREE] if last and stage == 0 else []
            if last_stage and first:
                wait.append(Token.ROW_FREE)
            if last:
                post.append(Token.ROW if last_stage else Token.MAPPED)
                if last_stage and last_row:
                    post.append(Token.GROUP)
            if before is None:
                source = half * config.image_depth // 2
            else:
                source = _feature(before, row, columns)
            if last_stage:
                target = tile * columns
            else:
                target = _feature(conv, row, columns) + tile * positions
            run = conv.run
            encode = conv.tap is not None and first
            self.asm.add(
                ARRAY, ArrayOpcode.CONVOLVE, wait=tuple(wait), post=tuple(post),
                phase="convolution", slots=slots,
                height=run.height, width=run.width, channels=run.channels, pool=conv.pool, relu=conv.relu,
                source=stage > 0, encode=encode, wide=encode and low.wide, to_dense=last_stage,
                kernel_h=run.kernel_h, kernel_w=run.kernel_w, stride_h=run.stride_h, stride_w=run.stride_w,
                pad_top=run.pad_top, pad_left=run.pad_left, pad_bottom=run.pad_bottom, pad_right=run.pad_right,
                outputs=min(columns, outputs - tile * columns),
                weights=conv.weights_at + tile * run.channels * config.kernel ** 2, bias=conv.bias_at + tile,
                scale=low.taps[conv.tap].first_block if conv.tap is not None else 0,
                from_=source, target=target, row=row, out_height=run.out_height, out_width=run.out_width,
                stride=outputs if last_stage else 0)
            if conv.tap is not None and tile == min(tiles, config.queue_depth) - 1:
                # While the first tile is under way: its tap may be more than waits for STORE, and then the tiles that
                # the queue has no room for wait behind it.
                self._store_tap(ARRAY.store("taps"), conv.tap, record, slots)
        if last_stage:
            dense = low.denses[0]
            self._encode(dense.tap, dense.source, row, record, slots, wait=(Token.ROW,))

    def _dense(self, dense, count: int, slots: tuple[int, int] | None) -> None:
        columns = self.low.config.columns
        outputs, inputs = dense.weight.shape
        tiles = -(-outputs // columns)
        # A layer's inputs are complete when the last tile of the layer before is written, for all rows. No other queue
        # waits for the same token, or it could take what is this one's.
        begin = Token.GROUP if dense is self.low.denses[0] else Token.LAYER
        end = Token.LOGITS if dense is self.low.denses[-1] else Token.LAYER
        for tile in range(tiles):
            wait = (begin,) if tile == 0 else ()
            post = (end,) if tile == tiles - 1 else ()
            self.asm.add(ARRAY, ArrayOpcode.DENSE, wait=wait, post=post, phase="dense",
                         slots=slots, inputs=inputs, samples=count, relu=dense.relu,
                         outputs=min(columns, outputs - tile * columns), from_=dense.source,
                         target=dense.target + tile * columns, weights=dense.weights_at + tile * inputs,
                         bias=dense.bias_at + tile)

    def _encode(self, tap: int, source: int, row: int, record: int, slots, wait: tuple[int, ...] = ()) -> None:
        self.asm.add(ENCODE, EncodeOpcode.ACTIVATIONS, wait=wait, slots=slots,
                     elements=self.low.taps[tap].elements, row=row, scale=self.low.taps[tap].first_block, from_=source,
                     wide=self.low.wide)
        self._store_tap(ENCODE.store("taps"), tap, record, slots)

    def _store_tap(self, source: int, index: int, record: int, slots) -> None:
        low = self.low
        tap = low.taps[index]
        codes = low.record_scales + low.block_beats * tap.first_block
        scales = sum(t.scale_beats for t in low.taps[:index])
        self.store(source, record + BEAT * codes, low.block_beats * tap.blocks, slots)
        self.store(source, record + BEAT * scales, tap.scale_beats, slots)

    def store(self, source: int, offset: int, beats: int, slots=None, *, arg: int = 0, **tokens) -> None:
        self.asm.add(STORE, 0, offset=offset, beats=beats, source=source, arg=arg, slots=slots, **tokens)

    # -- a step of the adapters ----------------------------------------------------------------------------------

    def fetch(self, where: Sequence[int], labels: int, half: int, free: bool) -> None:
        """Loads a microbatch's records and labels into ``half``; ``free``: once the step before last has left it."""
        low, asm = self.low, self.asm
        asm.add(LOAD, 0, offset=labels, beats=2, dest=HEAD.load("labels"), arg=half,
                wait=(Token.HALF_FREE,) if free else ())
        for row, record in enumerate(where):
            arg = pack(RECORD_ARG, {"row": row, "half": half, "codes": low.record_scales,
                                    "logits": low.record_scales + low.record_codes})
            asm.add(LOAD, 0, offset=record, beats=low.record_beats, dest=ARRAY.load("record"),
                    arg=arg, post=(Token.RECORDS,) if row == len(where) - 1 else ())

    def forward(self, step: Step, half: int, loss: int | None, *, apply: bool = True,
                after: tuple[int, ...] = ()) -> None:
        """Adapters' forward and loss of a microbatch; ``apply``: B learns from it; ``after``: what it waits for beside
        its records."""
        low, asm = self.low, self.asm
        count = len(step.samples)
        last = len(low.taps) * low.parts - 1
        for virtual in range(last + 1):
            asm.add(ARRAY, ArrayOpcode.FORWARD, phase="forward",
                    wait=(Token.RECORDS, *after) if virtual == 0 else (),
                    post=(Token.HIDDEN,) if virtual == last else (),
                    **self._pass(virtual, count, half))
        asm.add(HEAD, HeadOpcode.STEP, wait=(Token.HIDDEN,), post=(Token.GRADIENT,),
                samples=count, k=low.k, classes=low.classes, v_mode=step.v_mode,
                apply=step.last and apply,
                first=step.first, last=step.last, half=half, scale=step.scale, q=step.q, mu=step.mu)
        if loss is not None:
            self.store(HEAD.store("losses"), loss, 1)

    def backward(self, step: Step, half: int, final: bool) -> None:
        """Gradients and update of a microbatch; ``final``: of the last one."""
        last = len(self.low.taps) * self.low.parts - 1
        for virtual in range(last + 1):
            self.asm.add(ARRAY, ArrayOpcode.GRADIENT, phase="gradient",
                         wait=(Token.GRADIENT,) if virtual == 0 else (),
                         post=() if virtual < last else (Token.LEARNT,) if final else (Token.HALF_FREE,),
                         q=step.q, v_mode=step.v_mode, apply=step.last, mu=step.mu,
                         **self._pass(virtual, len(step.samples), half))

    def _pass(self, virtual: int, count: int, half: int) -> dict[str, Any]:
        index, part = divmod(virtual, self.low.parts)
        tap = self.low.taps[index]
        return {"elements": tap.elements, "tap": virtual, "half": half, "samples": count,
                "wide": self.low.wide, "book": BOOK_INT8 if self.low.wide else BOOK_NF4,
                "bank": self.low.block_beats * tap.first_block, "scale": tap.first_block, "lane": tap.lanes_at[part]}


def _feature(conv, row: int, columns: int) -> int:
    """First feature word of a convolution's output; even and odd rows have places of their own."""
    words = -(-conv.weight.shape[0] // columns) * conv.pooled[0] * conv.pooled[1]
    return conv.feature + row % 2 * words


def kept_samples(lowered: Lowered, settings: Settings) -> int:
    """Samples whose activations are kept."""
    return min(settings.slots, settings.samples, lowered.config.cache_slots - lowered.config.rows)


def _place(space: _Window, lowered: Lowered, settings: Settings, steps: int, slots: int) -> dict[str, int]:
    """Where everything but the program lies; the program comes behind it."""
    record_bytes = BEAT * lowered.record_beats
    sizes = {
        "weights": 2 * BEAT * len(lowered.weight_words), "biases": 4 * BEAT * len(lowered.bias_words),
        "images": 4 * settings.samples * lowered.image_words, "labels": 2 * BEAT * steps,
        "lanes": 2 * BEAT * lowered.lane_words, "head": 2 * BEAT * lowered.k,
        "losses": BEAT * settings.epochs * -(-settings.samples // settings.batch),
        "records": record_bytes * slots, "staging": record_bytes * 2 * lowered.config.rows,
    }
    return {name: space.take(name, size) for name, size in sizes.items()}


def memory_map(lowered: Lowered, settings: Settings, commands: int) -> dict[str, tuple[int, int]]:
    """``(offset, bytes)`` of each region of the window, as :func:`plan_finetune` places them.

    ``commands``: length of the program.
    """
    space = _Window()
    _place(space, lowered, settings, len(plan_steps(settings, lowered.config.rows)), kept_samples(lowered, settings))
    space.take("program", COMMAND_BYTES * commands)
    return space.regions


def plan_finetune(lowered: Lowered, settings: Settings, images: np.ndarray, labels: np.ndarray,
                  a: Sequence[np.ndarray], b: Sequence[np.ndarray], *, window: int = 1 << 32) -> Plan:
    """Plans a fine-tune.

    Parameters
    ----------
    images : integers of Q8.16 ``[samples, c, h, w]``
    labels : integers ``[samples]``
    a, b : integers of Q4.12, ``[rank, elements]`` (NCHW order) and ``[classes, rank]`` of each tap
    window : int
        Bytes that the window has.
    """
    config = lowered.config
    count = settings.samples
    if len(images) != count or len(labels) != count:
        raise ValueError(f"images and labels: {len(images)} and {len(labels)} given, settings ask for {count}")
    steps = plan_steps(settings, config.rows)
    rows = config.rows
    slots = kept_samples(lowered, settings)

    space = _Window()
    record_bytes = BEAT * lowered.record_beats
    flat = np.zeros((count, lowered.image_words), "<i4")
    flat[:, :images[0].size] = images.reshape(count, -1)
    weights = words16(lowered.weight_words)
    biases = words32(lowered.bias_words, 16)
    lane_words = np.concatenate([lowered.lanes_of(tap, a[tap]).reshape(-1, config.columns)
                                 for tap in range(len(lowered.taps))])
    label_rows = np.zeros((len(steps), 2 * BEAT), np.uint8)
    for row, step in zip(label_rows, steps):
        row[:len(step.samples)] = labels[step.samples]
    offsets = _place(space, lowered, settings, len(steps), slots)
    asm = Assembler()
    out = Writer(lowered, asm, range(offsets["images"], offsets["labels"], 4 * lowered.image_words))

    def load(name: str, beats: int, dest: int, **tokens) -> None:
        asm.add(LOAD, 0, offset=offsets[name], beats=beats, dest=dest, **tokens)

    # Credits: both halves of the image buffer, all rows of dense activations.
    for token, credits in ((Token.IMAGE_FREE, 2), (Token.ROW_FREE, rows)):
        for _ in range(credits):
            asm.add(CONTROL, ControlOpcode.LOOKUP, post=(token,))
    load("biases", 4 * len(lowered.bias_words), ARRAY.load("biases"))
    load("weights", 2 * len(lowered.weight_words), ARRAY.load("weights"))
    load("lanes", 2 * len(lane_words), ARRAY.load("lanes"))
    load("head", 2 * lowered.k, HEAD.load("b"))
    asm.add(CONTROL, ControlOpcode.FENCE)

    # The cached samples, a row each; a group is marked as kept when the group after it is under way.
    marks: list[tuple[int, int]] = []

    def mark(keep: int) -> None:
        while len(marks) > keep:
            first, number = marks.pop(0)
            asm.add(CONTROL, ControlOpcode.MARK, slot=first, count=number,
                    wait=(Token.STORED,), slots=(first, number))

    for first in range(0, slots, rows):
        number = min(rows, slots - first)
        asm.add(CONTROL, ControlOpcode.LOOKUP, slot=first, count=number)
        group = range(first, first + number)
        out.base(group, [offsets["records"] + record_bytes * s for s in group], (first, number))
        marks.append((first, number))
        mark(1)
    out.flush()
    mark(0)
    asm.add(CONTROL, ControlOpcode.FENCE)

    losses = 0
    steps_an_epoch = len(steps) // settings.epochs

    def fetch(index: int) -> None:
        """Records of a step, those that are in no slot computed first."""
        step, half = steps[index], index % 2
        if index and index % steps_an_epoch == 0 and slots:
            # Each epoch asks for every kept sample once.
            asm.add(CONTROL, ControlOpcode.LOOKUP, slot=0, count=slots)
        missing = [int(s) for s in step.samples if s >= slots]
        staged = {s: offsets["staging"] + record_bytes * (half * rows + n) for n, s in enumerate(missing)}
        if missing:
            # They are in no slot: the counters learn it from slots that are never marked.
            asm.add(CONTROL, ControlOpcode.LOOKUP, slot=slots, count=len(missing))
            out.base(missing, list(staged.values()), None)
            out.flush()
            asm.add(CONTROL, ControlOpcode.FENCE, wait=(Token.STORED,))
        where = [staged.get(int(s), offsets["records"] + record_bytes * int(s)) for s in step.samples]
        out.fetch(where, offsets["labels"] + 2 * BEAT * index, half, index >= 2)

    # The next step's records are asked for before this step's gradients, so that they come while the array works.
    fetch(0)
    for index, step in enumerate(steps):
        loss = None
        if step.last:
            loss = offsets["losses"] + BEAT * losses
            losses += 1
        out.forward(step, index % 2, loss)
        if index + 1 < len(steps):
            fetch(index + 1)
        out.backward(step, index % 2, index == len(steps) - 1)

    out.store(ARRAY.store("lanes"), offsets["lanes"], 2 * len(lane_words), wait=(Token.LEARNT,))
    out.store(HEAD.store("b"), offsets["head"], 2 * lowered.k)
    asm.add(CONTROL, ControlOpcode.END)

    check_program(asm, config)
    program = space.take("program", len(asm.code))
    if space.at > window:
        raise ValueError(f"samples={count}: the fine-tune needs a window of {space.at} bytes, there are {window}")
    segments = [
        (offsets["weights"], weights), (offsets["biases"], biases), (offsets["images"], flat.tobytes()),
        (offsets["labels"], label_rows.tobytes()), (offsets["lanes"], words16(lane_words)),
        (offsets["head"], head_words(lowered, b)), (program, asm.code),
    ]
    return Plan(lowered=lowered, settings=settings, steps=steps, assembler=asm, program_offset=program,
                segments=segments, records=offsets["records"], slots=slots, lanes=offsets["lanes"],
                b=offsets["head"], losses=offsets["losses"], size=-(-space.at // PAGE) * PAGE,
                regions=space.regions)
