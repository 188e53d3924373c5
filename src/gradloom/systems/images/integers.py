"""Bit-exact image machine: frozen network, cache and fine-tune."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gradloom.program.operations import Reading
from gradloom.rtl.formats.codebook import pack_nibbles
from gradloom.rtl.formats.images import ACTIVATION, PARAMETER, SCALES_PER_BEAT
from gradloom.rtl.formats.rounding import round_shift, saturate
from gradloom.sim.reference.array import conv_layer, dense_layer, hidden
from gradloom.sim.reference.encode import decode_fixed, decode_int8, encode_fixed, encode_int8
from gradloom.sim.reference.head import HeadLoss, head_loss, head_update
from gradloom.sim.reference.optimizer import optimize

from .operations import Convolve, Dense, Descent, Encode, Loss, Product, Record, descents, frozen, judged
from .program.lowered import BLOCK, Lowered, LoweredConv
from .program.program import Settings, kept_samples, plan_steps
from .program.schedule import ScheduledBatch, alone

__all__ = [
    "FineTune",
    "ImageHealth",
    "WordCache",
    "answered",
    "compared_words",
    "fill_cache",
    "fine_tune",
    "logits",
    "records",
]

BEAT = 16
_A_OFFSET = 9  # fraction bits of a dA sum beyond the gradient exponent


@dataclass
class ImageHealth:
    """Values of the machine's health counters."""

    saturated: int = 0
    underflowed: int = 0
    gradient_norm: int = 0


@dataclass(eq=False)
class WordCache:
    """Cached activations of samples.

    Per tap, codes ``[samples, blocks * 64]`` and scales ``[samples, blocks]`` in the order of the device; base logits;
    the decoded activations as the adapters see them; and how many words of each sample were clipped on the way through
    the frozen network.
    """

    codes: list[np.ndarray]
    scales: list[np.ndarray]
    decoded: list[np.ndarray] = field(repr=False)
    logits: np.ndarray
    saturated: np.ndarray


class _Frozen(Reading):
    """The frozen network on words ``[samples, c, h, w]``.

    It gives codes and scales of the taps, or the taps' own words alone.

    ``tap``: words of the last one in the device's order; ``x``: activations; ``saturated``: clipped words a sample.
    """

    def __init__(self, lowered: Lowered, images: np.ndarray) -> None:
        self.lowered = lowered
        self.x = np.asarray(images, np.int64)
        self.tap = np.zeros((len(self.x), 0), np.int64)
        self.saturated = np.zeros(len(self.x), np.int64)
        self.codes: list[np.ndarray] = []
        self.scales: list[np.ndarray] = []
        self.decoded: list[np.ndarray] = []
        self.logits = self.tap

    def _encode(self, operation: Encode) -> None:
        self.tap = self.x.reshape(len(self.x), -1)[:, self.lowered.taps[operation.tap].order]
        if self.lowered.wide:
            codes, scales = encode_int8(self.tap)
            words = decode_int8(codes, scales)
        else:
            codes, scales = encode_fixed(self.tap, fmt=self.lowered.config.activation)
            words = decode_fixed(codes, scales)
        self.codes.append(codes)
        self.scales.append(scales)
        self.decoded.append(words[:, : self.tap.shape[1]])

    def _convolve(self, operation: Convolve) -> None:
        conv = self.lowered.layers[operation.layer]
        assert isinstance(conv, LoweredConv)
        run = conv.run
        self.x, over = conv_layer(
            self.x,
            conv.weight,
            conv.bias,
            stride=(run.stride_h, run.stride_w),
            pads=(run.pad_top, run.pad_left, run.pad_bottom, run.pad_right),
            relu=conv.relu,
            pool=conv.pool,
            fmt=self.lowered.config.activation,
        )
        self.saturated += over

    def _dense(self, operation: Dense) -> None:
        dense = self.lowered.layers[operation.layer]
        self.x, over = dense_layer(
            self.tap, dense.weight, dense.bias, relu=dense.relu, fmt=self.lowered.config.activation
        )
        self.saturated += over

    def _record(self, operation: Record) -> None:
        self.logits = self.x


def fill_cache(lowered: Lowered, images: np.ndarray) -> WordCache:
    """Runs the frozen network on words and encodes the adapters' inputs."""
    made = _Frozen(lowered, images)
    made.run(frozen(lowered.network))
    return WordCache(
        codes=made.codes, scales=made.scales, decoded=made.decoded, logits=made.logits, saturated=made.saturated
    )


def records(lowered: Lowered, cache: WordCache) -> np.ndarray:
    """The cache as it lies in memory: ``uint8 [samples, bytes]``.

    A sample has scales, codes, base logits.
    """
    count = len(cache.logits)
    parts: list[np.ndarray] = []
    for tap, scales in zip(lowered.taps, cache.scales):
        beats = np.zeros((count, tap.scale_beats, 1 + SCALES_PER_BEAT), "<u2")
        beats[:, :, 0] = tap.first_block + SCALES_PER_BEAT * np.arange(tap.scale_beats)
        padded = np.zeros((count, tap.scale_beats * SCALES_PER_BEAT), np.uint16)
        padded[:, : scales.shape[1]] = scales
        beats[:, :, 1:] = padded.reshape(count, tap.scale_beats, SCALES_PER_BEAT)
        parts.append(beats.reshape(count, -1).view(np.uint8))
    for codes in cache.codes:
        if lowered.wide:
            # Of each block the high nibbles, then the low ones.
            codes = codes.reshape(count, -1, 1, BLOCK)
            codes = np.concatenate([codes >> 4, codes & 15], axis=2).reshape(count, -1)
        parts.append(pack_nibbles(codes))
    words = np.zeros((count, 4 * lowered.record_logits), "<i4")
    words[:, : cache.logits.shape[1]] = cache.logits
    parts.append(words.view(np.uint8))
    return np.concatenate(parts, axis=1)


def mean_losses(losses: Sequence[int], counts: Sequence[int]) -> list[float]:
    """Mean loss of each step, of sums in Q.16."""
    return [loss / 65536 / count for loss, count in zip(losses, counts)]


@dataclass(eq=False)
class FineTune:
    """State and results of a fine-tune in integers.

    ``a``: ``[rank, elements]`` in the device's order, ``b``: ``[classes, rank]`` of each tap. ``losses``: sum of the
    losses of each step's samples, Q.16; ``correct`` and ``counts`` of each step. ``clipped`` of the ``words`` that each
    step makes of cached activations: h, logits, d', dh, and an adapter's words with their velocities as one each.
    """

    lowered: Lowered
    a: list[np.ndarray]
    b: list[np.ndarray]
    losses: list[int] = field(default_factory=list)
    correct: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    clipped: list[int] = field(default_factory=list)
    words: list[int] = field(default_factory=list)
    health: ImageHealth = field(default_factory=ImageHealth)

    @property
    def mean_losses(self) -> list[float]:
        """Mean loss of each step."""
        return mean_losses(self.losses, self.counts)

    def adapters(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """``(A, B)`` of each tap, Q4.12, A in NCHW order."""
        out = []
        for tap, a, b in zip(self.lowered.taps, self.a, self.b):
            natural = np.empty_like(a)
            natural[:, tap.order] = a
            out.append((natural, b))
        return out


def compared_words(
    lowered: Lowered,
    losses: Sequence[int],
    correct: Sequence[int],
    adapters: Sequence[tuple[np.ndarray, np.ndarray]],
    records: np.ndarray,
    images: np.ndarray | None = None,
) -> dict[str, dict[str, np.ndarray]]:
    """What a fine-tune leaves in memory, as RTL and reference are compared by it.

    ``records``: see :func:`records`; ``images``: where the machine makes them.
    """
    steps = np.array(list(zip(losses, correct)), [("loss", "u8"), ("correct", "u8")])
    # Layers of a user's network may have one name.
    named = {
        f"{part} of tap {n}, {tap.name}": words
        for n, (tap, pair) in enumerate(zip(lowered.taps, adapters))
        for part, words in zip("AB", pair)
    }
    found = {"cached_bytes": {"cached bytes": records}, "losses": {"loss": steps}, "adapter_words": named}
    return found if images is None else {"tap_words": {"taps": images}} | found


def logits(lowered: Lowered, cache: WordCache, a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> np.ndarray:
    """Logits of base and adapters, Q8.16, as the head forms them."""
    fmt = lowered.config.activation
    total = cache.logits.astype(np.int64) << PARAMETER.frac
    for x, matrix, out in zip(cache.decoded, a, b):
        total = total + hidden(x, matrix, fmt)[0] @ np.asarray(out).T
    return saturate(round_shift(total, fmt.frac + PARAMETER.frac - ACTIVATION.frac), ACTIVATION.lo, ACTIVATION.hi)[0]


def fine_tune(
    lowered: Lowered,
    settings: Settings,
    cache: WordCache,
    labels: np.ndarray,
    a: Sequence[np.ndarray],
    b: Sequence[np.ndarray],
    *,
    progress: Callable[[int, int], None] | None = None,
    steps: Sequence[ScheduledBatch] | None = None,
    after: Callable[[int, float, list[tuple[np.ndarray, np.ndarray]]], bool] = lambda step, loss, adapters: False,
) -> FineTune:
    """Fine-tunes adapters ``a`` and ``b``, both Q4.12.

    ``a``: ``[rank, elements]``, NCHW order; ``b``: ``[classes, rank]``.

    ``after`` gets the number of each step, its mean loss and its adapters, and says whether it was the last.

    The health is that of the whole program: the frozen network runs once for a sample that is kept, and with every step
    for one that is not.
    """
    learning = _Learning(lowered, cache, labels, a, b)
    result = learning.state
    if steps is None:
        steps = plan_steps(settings, lowered.config.rows)
    kept = kept_samples(lowered, settings)
    operations = [*judged(len(lowered.taps)), *descents(len(lowered.taps))]
    result.health.saturated += int(cache.saturated[:kept].sum())
    adapter_words = sum(m.size for m in (*result.a, *result.b))
    per_sample = 2 * (len(lowered.taps) * lowered.rank + lowered.classes)
    loss = correct = count = clipped = words = 0
    for index, step in enumerate(steps):
        result.health.saturated += int(cache.saturated[step.samples[step.samples >= kept]].sum())
        if step.first:
            loss = correct = count = clipped = words = 0
        before = result.health.saturated
        learning.begin(step)
        learning.run(operations)
        loss, correct, count = loss + learning.out.loss, correct + learning.out.correct, count + len(step.samples)
        clipped += result.health.saturated - before
        words += per_sample * len(step.samples) + adapter_words
        if step.last:
            result.clipped.append(clipped)
            result.words.append(words)
            result.losses.append(loss)
            result.correct.append(correct)
            result.counts.append(count)
        if progress is not None:
            progress(index + 1, len(steps))
        if step.last:
            learning.end()
            if after(len(result.losses), mean_losses([loss], [count])[0], result.adapters()):
                break
    return result


def answered(
    lowered: Lowered, cache: WordCache, a: Sequence[np.ndarray], b: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray, int]:
    """Loss (Q.16) of each sample with each class, whether the class is the greatest, and words that were clipped.

    Samples meet their classes one by one, as in :mod:`~.program.answers`.
    """
    count, classes = len(cache.logits), lowered.classes
    made = _Learning(lowered, cache, np.zeros(count, np.int64), a, b)
    found = np.zeros((2, count, classes), np.int64)
    operations = judged(len(lowered.taps))
    for sample in range(count):
        made.begin(alone(sample))
        for number in range(classes):
            made.labels = np.full(count, number)
            made.run(operations)
            found[:, sample, number] = made.out.loss, made.out.correct
    return found[0], found[1], made.state.health.saturated + int(cache.saturated.sum())


class _Learning(Reading):
    """Microbatches of a fine-tune on cached activations.

    ``state`` is the part that they change.

    B and its velocity are ``[classes, k]`` as in the head, the taps side by side; ``out``: of the last microbatch.
    """

    out: HeadLoss

    def __init__(
        self, lowered: Lowered, cache: WordCache, labels: np.ndarray, a: Sequence[np.ndarray], b: Sequence[np.ndarray]
    ) -> None:
        self.lowered, self.labels, self.base = lowered, labels, cache.logits
        self.words = [x.astype(np.int32) for x in cache.decoded]
        self.state = FineTune(
            lowered,
            [np.asarray(m, np.int64)[:, tap.order] for m, tap in zip(a, lowered.taps)],
            [np.asarray(m, np.int64) for m in b],
        )
        self.velocities = [np.zeros_like(m) for m in self.state.a]
        self.b = np.zeros((lowered.classes, lowered.k), np.int64)
        for tap, matrix in enumerate(self.state.b):
            self.b[:, self._place(tap)] = matrix
        self.velocity = np.zeros_like(self.b)

    def _place(self, tap: int) -> slice:
        at = tap * self.lowered.parts * self.lowered.config.rank
        return slice(at, at + self.lowered.rank)

    def begin(self, step: ScheduledBatch) -> None:
        """Takes a microbatch."""
        self.step = step
        self.x = [words[step.samples] for words in self.words]
        self.h = np.zeros((len(step.samples), self.lowered.k), np.int64)
        self.rule: dict[str, Any] = {"q": step.q, "v_mode": step.v_mode, "apply": step.last, "mu": step.mu}

    def end(self) -> None:
        """Puts B in its place."""
        self.state.b = [self.b[:, self._place(tap)] for tap in range(len(self.lowered.taps))]

    def _product(self, operation: Product) -> None:
        tap = operation.tap
        self.h[:, self._place(tap)], over = hidden(self.x[tap], self.state.a[tap], self.lowered.config.activation)
        self.state.health.saturated += over

    def _loss(self, operation: Loss) -> None:
        config, samples = self.lowered.config, self.step.samples
        self.out = head_loss(
            self.h,
            self.base[samples],
            self.labels[samples],
            self.b,
            scale=self.step.scale,
            max_classes=config.classes,
            activation=config.activation,
        )
        self.state.health.saturated += self.out.saturated

    def _descent(self, operation: Descent) -> None:
        tap = operation.tap
        if tap is None:
            update = head_update(
                self.out.db, self.b, self.velocity, activation=self.lowered.config.activation, **self.rule
            )
            self.b, self.velocity = update.w.T, update.v.T
        else:
            dh = self.out.dh[:, self._place(tap)]
            # Sums of a microbatch's rows times 2**17 * 2**17: exact.
            g = (dh.T.astype(np.float64) @ self.x[tap].astype(np.float64)).astype(np.int64)
            update = optimize(self.state.a[tap], self.velocities[tap], g, offset=_A_OFFSET, **self.rule)
            self.state.a[tap], self.velocities[tap] = update.w, update.v
        health = self.state.health
        health.saturated += int(update.saturated.sum())
        health.underflowed += int(update.underflowed.sum())
        health.gradient_norm += int(update.magnitude.sum())
