"""Bit-exact reference of the machine: the frozen forward, the forward cache, and the adapters' fine-tune."""
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from gradloom.rtl.config import ACTIVATION, DECODED, PARAMETER, SCALES_PER_BEAT
from gradloom.rtl.formats.blocks import pack_nibbles
from gradloom.rtl.formats.fixed import Fixed
from gradloom.rtl.formats.rounding import round_shift, saturate
from gradloom.rtl.plan.images.lowering import BLOCK, Lowered
from gradloom.rtl.plan.images.program import Settings, Step, kept_samples, plan_steps

from .array import conv_layer, dense_layer
from .encode import decode_fixed, decode_int8, encode_fixed, encode_int8
from .head import head_step
from .optimizer import optimize

__all__ = ["Cache", "Health", "FineTune", "forward_base", "fill_cache", "records", "fine_tune", "logits"]

BEAT = 16
_A_OFFSET = 9       # fraction bits of a dA sum beyond the gradient exponent


@dataclass
class Health:
    """What the machine's health counters say."""

    saturated: int = 0
    underflowed: int = 0
    gradient_norm: int = 0


@dataclass(eq=False)
class Cache:
    """Cached activations of samples: per tap, codes ``[samples, blocks * 64]`` and scales ``[samples, blocks]`` in the
    order of the device; base logits; the decoded activations as the adapters see them; and how many words of each
    sample were clipped on the way through the frozen network."""

    codes: list[np.ndarray]
    scales: list[np.ndarray]
    decoded: list[np.ndarray] = field(repr=False)
    logits: np.ndarray
    saturated: np.ndarray


def forward_base(lowered: Lowered, images: np.ndarray) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """``(taps, logits, saturated)`` of words ``[samples, c, h, w]``; taps are in the device's order."""
    taps: list[np.ndarray] = []
    saturated = np.zeros(len(images), np.int64)
    fmt = lowered.config.activation
    x = np.asarray(images, np.int64)
    for conv in lowered.convs:
        if conv.tap is not None:
            taps.append(x.reshape(len(x), -1)[:, lowered.taps[conv.tap].order])
        run = conv.run
        x, over = conv_layer(x, conv.weight, conv.bias, stride=(run.stride_h, run.stride_w),
                             pads=(run.pad_top, run.pad_left, run.pad_bottom, run.pad_right),
                             relu=conv.relu, pool=conv.pool, fmt=fmt)
        saturated += over
    x = x.reshape(len(x), -1)[:, lowered.taps[lowered.denses[0].tap].order]
    for dense in lowered.denses:
        taps.append(x)
        x, over = dense_layer(x, dense.weight, dense.bias, relu=dense.relu, fmt=fmt)
        saturated += over
    return taps, x, saturated


def fill_cache(lowered: Lowered, images: np.ndarray) -> Cache:
    """Runs the frozen network on words and encodes what the adapters will see."""
    taps, base, saturated = forward_base(lowered, images)
    decode = decode_int8 if lowered.wide else decode_fixed
    encoded = [encode_int8(tap) if lowered.wide else encode_fixed(tap, fmt=lowered.config.activation) for tap in taps]
    decoded = [decode(codes, scales)[:, :tap.shape[1]] for (codes, scales), tap in zip(encoded, taps)]
    return Cache(codes=[codes for codes, _ in encoded], scales=[scales for _, scales in encoded], decoded=decoded,
                 logits=base, saturated=saturated)


def records(lowered: Lowered, cache: Cache) -> np.ndarray:
    """The cache as it lies in memory: ``uint8 [samples, bytes]``, scales, codes, base logits."""
    count = len(cache.logits)
    parts: list[np.ndarray] = []
    for tap, scales in zip(lowered.taps, cache.scales):
        beats = np.zeros((count, tap.scale_beats, 1 + SCALES_PER_BEAT), "<u2")
        beats[:, :, 0] = tap.first_block + SCALES_PER_BEAT * np.arange(tap.scale_beats)
        padded = np.zeros((count, tap.scale_beats * SCALES_PER_BEAT), np.uint16)
        padded[:, :scales.shape[1]] = scales
        beats[:, :, 1:] = padded.reshape(count, tap.scale_beats, SCALES_PER_BEAT)
        parts.append(beats.reshape(count, -1).view(np.uint8))
    for codes in cache.codes:
        if lowered.wide:
            # Of each block the high nibbles, then the low ones.
            codes = codes.reshape(count, -1, 1, BLOCK)
            codes = np.concatenate([codes >> 4, codes & 15], axis=2).reshape(count, -1)
        parts.append(pack_nibbles(codes))
    words = np.zeros((count, 4 * lowered.record_logits), "<i4")
    words[:, :cache.logits.shape[1]] = cache.logits
    parts.append(words.view(np.uint8))
    return np.concatenate(parts, axis=1)


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
    health: Health = field(default_factory=Health)

    @property
    def mean_losses(self) -> list[float]:
        """Mean loss of each step."""
        return [loss / 65536 / count for loss, count in zip(self.losses, self.counts)]

    def adapters(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """``(A, B)`` of each tap, Q4.12, A in NCHW order."""
        out = []
        for tap, a, b in zip(self.lowered.taps, self.a, self.b):
            natural = np.empty_like(a)
            natural[:, tap.order] = a
            out.append((natural, b))
        return out


def hidden(a: np.ndarray, x: np.ndarray, fmt: Fixed = ACTIVATION) -> tuple[np.ndarray, int]:
    """``(h [samples, rank], saturated)`` of decoded words ``x``."""
    sums = (x.astype(np.float64) @ a.T.astype(np.float64)).astype(np.int64)   # below 2**32 * 2**15: exact
    return fmt.requantize(sums, DECODED.frac + PARAMETER.frac)


def logits(lowered: Lowered, cache: Cache, a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> np.ndarray:
    """Logits of base and adapters, Q8.16, as the head forms them."""
    fmt = lowered.config.activation
    total = cache.logits.astype(np.int64) << PARAMETER.frac
    for x, matrix, out in zip(cache.decoded, a, b):
        total = total + hidden(matrix, x, fmt)[0] @ np.asarray(out).T
    return saturate(round_shift(total, fmt.frac + PARAMETER.frac - ACTIVATION.frac), ACTIVATION.lo, ACTIVATION.hi)[0]


def fine_tune(lowered: Lowered, settings: Settings, cache: Cache, labels: np.ndarray, a: Sequence[np.ndarray],
              b: Sequence[np.ndarray], *, progress: Callable[[int, int], None] | None = None,
              steps: Sequence[Step] | None = None) -> FineTune:
    """Fine-tunes adapters ``a`` (``[rank, elements]``, NCHW order) and ``b`` (``[classes, rank]``), both Q4.12.

    The health is that of the whole program: the frozen network runs once for a sample that is kept, and with every step
    for one that is not.
    """
    result = FineTune(lowered, [np.asarray(m, np.int64)[:, tap.order] for m, tap in zip(a, lowered.taps)],
                      [np.asarray(m, np.int64) for m in b])
    velocity_a = [np.zeros_like(m) for m in result.a]
    velocity_b = [np.zeros_like(m) for m in result.b]
    x32 = [x.astype(np.int32) for x in cache.decoded]
    if steps is None:
        steps = plan_steps(settings, lowered.config.rows)
    kept = kept_samples(lowered, settings)
    result.health.saturated += int(cache.saturated[:kept].sum())
    adapter_words = sum(m.size for m in (*result.a, *result.b))
    per_sample = 2 * (len(lowered.taps) * lowered.rank + lowered.classes)
    loss = correct = count = clipped = words = 0
    for index, step in enumerate(steps):
        result.health.saturated += int(cache.saturated[step.samples[step.samples >= kept]].sum())
        if step.first:
            loss = correct = count = clipped = words = 0
        before = result.health.saturated
        loss_part, correct_part = _step(lowered, result, step, x32, cache.logits, labels, velocity_a, velocity_b)
        loss, correct, count = loss + loss_part, correct + correct_part, count + len(step.samples)
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
    return result


def _step(lowered: Lowered, state: FineTune, step: Step, x32: list[np.ndarray], base: np.ndarray, labels: np.ndarray,
          velocity_a: list[np.ndarray], velocity_b: list[np.ndarray]) -> tuple[int, int]:
    config, rank = lowered.config, lowered.rank
    wide = lowered.parts * config.rank
    health = state.health
    samples = step.samples
    x = [tap[samples] for tap in x32]
    h = np.zeros((len(samples), lowered.k), np.int64)
    b = np.zeros((lowered.classes, lowered.k), np.int64)
    v = np.zeros_like(b)
    for tap, part in enumerate(x):
        at = tap * wide
        h[:, at:at + rank], over = hidden(state.a[tap], part, config.activation)
        health.saturated += over
        b[:, at:at + rank] = state.b[tap]
        v[:, at:at + rank] = velocity_b[tap]
    out = head_step(h, base[samples], labels[samples], b, v, scale=step.scale, q=step.q, v_mode=step.v_mode,
                    apply=step.last, mu=step.mu, max_classes=config.classes, activation=config.activation)
    health.saturated += out.saturated
    health.underflowed += out.underflowed
    health.gradient_norm += out.norm
    for tap, part in enumerate(x):
        at = tap * wide
        dh = out.dh[:, at:at + rank]
        g = (dh.T.astype(np.float64) @ part.astype(np.float64)).astype(np.int64)   # rows * 2**17 * 2**17: exact
        update = optimize(state.a[tap], velocity_a[tap], g, q=step.q, offset=_A_OFFSET, v_mode=step.v_mode,
                          apply=step.last, mu=step.mu)
        state.a[tap], velocity_a[tap] = update.w, update.v
        health.saturated += int(update.saturated.sum())
        health.underflowed += int(update.underflowed.sum())
        health.gradient_norm += int(update.magnitude.sum())
        state.b[tap], velocity_b[tap] = out.b[:, at:at + rank], out.v[:, at:at + rank]
    return out.loss, out.correct
