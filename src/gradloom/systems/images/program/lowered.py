"""A network as the image machine holds it: layers, taps, words."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gradloom.models.network import LayerNetwork
from gradloom.rtl.formats.images import SCALES_PER_BEAT
from gradloom.rtl.machines.configs.images import ImageConfig
from gradloom.rtl.window_run import WindowRun

__all__ = ["BEAT", "BLOCK", "Lowered", "LoweredConv", "LoweredDense", "Tap", "head_words", "parameters", "words16"]

#: Bytes of a beat of memory.
BEAT = 16

#: Values that share a scale.
BLOCK = 64


@dataclass(frozen=True, kw_only=True, eq=False)
class LoweredConv:
    """A convolution, placed on the design.

    ``tap``: index of the tap that its input is, or None. ``feature``: words from there on hold its output, twice; None
    if it goes to the dense activations. Integers of Q4.12 and Q.16.
    """

    name: str
    weight: np.ndarray
    bias: np.ndarray
    run: WindowRun
    relu: bool
    pool: int
    tap: int | None
    weights_at: int
    bias_at: int
    feature: int | None

    @property
    def pooled(self) -> tuple[int, int]:
        return self.run.out_height // self.pool, self.run.out_width // self.pool


@dataclass(frozen=True, kw_only=True, eq=False)
class LoweredDense:
    """A dense layer, placed on the design.

    It takes dense activations from ``source`` on to those from ``target`` on. Weights are in the order of the elements
    in that memory.
    """

    name: str
    weight: np.ndarray
    bias: np.ndarray
    relu: bool
    tap: int
    source: int
    target: int
    weights_at: int
    bias_at: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Tap:
    """Input of a layer.

    ``order[j]`` is the NCHW index of the element that is j-th on the device.
    """

    name: str
    elements: int
    order: np.ndarray = field(repr=False)
    first_block: int
    lanes_at: tuple[int, ...]

    @property
    def blocks(self) -> int:
        return -(-self.elements // BLOCK)

    @property
    def scale_beats(self) -> int:
        return -(-self.blocks // SCALES_PER_BEAT)


@dataclass(frozen=True, kw_only=True, eq=False)
class Lowered:
    """A network lowered to a design, with its adapters.

    The adapters have ``rank`` ranks in ``parts`` parts.

    ``wide``: cached activations are codes of 8 bits, else of 4.
    """

    config: ImageConfig
    network: LayerNetwork
    rank: int
    wide: bool
    convs: tuple[LoweredConv, ...]
    denses: tuple[LoweredDense, ...]
    taps: tuple[Tap, ...]
    weight_words: np.ndarray = field(repr=False)
    bias_words: np.ndarray = field(repr=False)

    @property
    def classes(self) -> int:
        return self.network.classes

    @property
    def layers(self) -> tuple[LoweredConv | LoweredDense, ...]:
        """Those of the network."""
        return *(conv for conv in self.convs if conv.tap is not None), *self.denses

    @property
    def parts(self) -> int:
        """Adapters of the design's rank that make one of the asked rank."""
        return -(-self.rank // self.config.rank)

    @property
    def k(self) -> int:
        """Values of h of a sample."""
        return len(self.taps) * self.parts * self.config.rank

    @property
    def lane_words(self) -> int:
        """Adapter words of a column."""
        return sum(self.parts * -(-tap.elements // self.config.panels) for tap in self.taps)

    @property
    def logits_at(self) -> int:
        """Dense activation that holds the first logit."""
        return self.denses[-1].target

    @property
    def record_scales(self) -> int:
        """Beats of scales in a record."""
        return sum(tap.scale_beats for tap in self.taps)

    @property
    def block_beats(self) -> int:
        """Beats of codes of a block."""
        return 4 if self.wide else 2

    @property
    def record_codes(self) -> int:
        """Beats of codes in a record."""
        return sum(self.block_beats * tap.blocks for tap in self.taps)

    @property
    def record_logits(self) -> int:
        """Beats of base logits in a record."""
        return -(-self.classes // 4)

    @property
    def record_beats(self) -> int:
        """128-bit beats of a sample's record: scales, codes, base logits."""
        return self.record_scales + self.record_codes + self.record_logits

    @property
    def image_words(self) -> int:
        """Pixels of an image, to a multiple of four."""
        return -(-int(np.prod(self.network.input_shape)) // 4) * 4

    def lanes_of(self, tap: int, a: np.ndarray) -> np.ndarray:
        """Adapter words of a tap: ``[parts, addresses, columns]``.

        They are those of ``A [rank, elements]`` in NCHW order.
        """
        config, order = self.config, self.taps[tap].order
        addresses = -(-len(order) // config.panels)
        full = np.zeros((self.parts * config.rank, addresses * config.panels), np.int64)
        full[: self.rank, : len(order)] = np.asarray(a)[:, order]
        words = full.reshape(self.parts, config.rank, addresses, config.panels)
        return words.transpose(0, 2, 3, 1).reshape(self.parts, addresses, config.columns)

    def adapter_of(self, tap: int, words: np.ndarray) -> np.ndarray:
        """``A [rank, elements]`` in NCHW order, from adapter words.

        The words are as :meth:`lanes_of` gives them.
        """
        config, order = self.config, self.taps[tap].order
        full = words.reshape(self.parts, -1, config.panels, config.rank).transpose(0, 3, 1, 2)
        full = full.reshape(self.parts * config.rank, -1)[: self.rank, : len(order)]
        a = np.empty_like(full)
        a[:, order] = full
        return a


def words16(words: np.ndarray) -> bytes:
    """Rows of up to sixteen 16-bit words, two beats each."""
    out = np.zeros((len(words), 16), "<i2")
    out[:, : words.shape[1]] = words
    return out.tobytes()


def words32(words: np.ndarray, per_row: int) -> bytes:
    out = np.zeros((len(words), per_row), "<i4")
    out[:, : words.shape[1]] = words
    return out.tobytes()


def head_words(lowered: Lowered, b: Sequence[np.ndarray]) -> bytes:
    """B of all taps as LOAD and STORE have it: two beats a rank index."""
    words = np.zeros((lowered.k, 16), np.int64)
    for tap, matrix in enumerate(b):
        at = tap * lowered.parts * lowered.config.rank
        words[at : at + lowered.rank, : lowered.classes] = np.asarray(matrix).T
    return words16(words)


def parameters(lowered: Lowered, a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> dict[str, bytes]:
    """Frozen parameters and adapters in the form that LOAD takes.

    They are weights, biases, lanes (A), head (B).
    """
    lanes = [lowered.lanes_of(tap, a[tap]).reshape(-1, lowered.config.columns) for tap in range(len(lowered.taps))]
    return {
        "weights": words16(lowered.weight_words),
        "biases": words32(lowered.bias_words, 16),
        "lanes": words16(np.concatenate(lanes)),
        "head": head_words(lowered, b),
    }
