"""A network as one design holds it: integer weights, orders of elements, places in its memories."""
from dataclasses import dataclass, field

import numpy as np

from ..config import PARAMETER, SCALES_PER_BEAT, Config
from ..models.network import Conv, Network
from ..nn.window import WindowRun

__all__ = ["LoweredConv", "LoweredDense", "Tap", "Lowered", "lower"]

BLOCK = 64
BIAS_LIMIT = 1 << 31


@dataclass(frozen=True, kw_only=True, eq=False)
class LoweredConv:
    """A convolution. ``tap``: index of the tap that its input is, or None. ``feature``: words from there on hold its
    output, twice; None if it goes to the dense activations. Integers of Q4.12 and Q.16."""

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
    """A dense layer: dense activations from ``source`` on to those from ``target`` on. Weights in the order of the
    elements as they lie there."""

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
    """Input of a layer. ``order[j]`` is the NCHW index of the element that is j-th on the device."""

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
    """A network lowered to a design, with adapters of ``rank`` ranks in ``parts`` parts.

    ``wide``: cached activations are codes of 8 bits, else of 4.
    """

    config: Config
    network: Network
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
        """Adapter words ``[parts, addresses, columns]`` of ``A [rank, elements]`` in NCHW order."""
        config, order = self.config, self.taps[tap].order
        addresses = -(-len(order) // config.panels)
        full = np.zeros((self.parts * config.rank, addresses * config.panels), np.int64)
        full[:self.rank, :len(order)] = np.asarray(a)[:, order]
        words = full.reshape(self.parts, config.rank, addresses, config.panels)
        return words.transpose(0, 2, 3, 1).reshape(self.parts, addresses, config.columns)

    def adapter_of(self, tap: int, words: np.ndarray) -> np.ndarray:
        """``A [rank, elements]`` in NCHW order of adapter words as :meth:`lanes_of` gives them."""
        config, order = self.config, self.taps[tap].order
        full = words.reshape(self.parts, -1, config.panels, config.rank).transpose(0, 3, 1, 2)
        full = full.reshape(self.parts * config.rank, -1)[:self.rank, :len(order)]
        a = np.empty_like(full)
        a[:, order] = full
        return a


def _quantise(name: str, what: str, values: np.ndarray, lo: int, hi: int, frac: int) -> np.ndarray:
    words = np.rint(np.asarray(values, np.float64) * 2.0 ** frac)
    if words.size and (words.min() < lo or words.max() > hi):
        worst = float(np.abs(values).max())
        raise ValueError(f"{name}: {what} of {worst:.4g} is outside the format, whose range is "
                         f"{lo * 2.0 ** -frac:.6g} to {hi * 2.0 ** -frac:.6g}")
    return words.astype(np.int64)


def _check_sums(name: str, weight: np.ndarray, config: Config) -> None:
    """A sum of the array cannot wrap, whatever the activations are."""
    largest = int(np.abs(weight.reshape(len(weight), -1)).sum(axis=1).max()) << (config.activation_bits - 1)
    if largest >= 1 << (config.sum_bits - 1):
        raise ValueError(f"{name}: sums may reach 2**{largest.bit_length() - 1}, the array holds sums below "
                         f"2**{config.sum_bits - 1}")


def _need(what: str, needs: int, has: int, key: str, network: str) -> None:
    if needs > has:
        raise ValueError(f"{network} needs {needs} {what}; this design has {has}: generate one with --set {key}=N")


def lower(network: Network, config: Config, rank: int, *, wide: bool = False) -> Lowered:
    """Places ``network`` with adapters of rank ``rank`` on a design; ``wide``: cached activations are codes of 8 bits.

    Raises :class:`ValueError` naming the memory, what is needed and what there is, where it does not fit.
    """
    name, columns, window = network.name, config.columns, config.kernel ** 2
    if rank < 1:
        raise ValueError(f"rank={rank}: must be at least 1")
    if wide and config.activation_bits != 24:
        raise ValueError(f"activation_bits={config.activation_bits}: codes of 8 bits need 24")
    _need("classes", network.classes, config.classes, "classes", name)
    convs: list[LoweredConv] = []
    denses: list[LoweredDense] = []
    taps: list[tuple[str, np.ndarray]] = []
    weights: list[np.ndarray] = []
    biases: list[np.ndarray] = []
    weights_at = feature_at = 0
    shape: tuple[int, ...] = network.input_shape
    layers = list(network.layers)
    pixels = -(-int(np.prod(shape)) // 4) * 4
    _need("image words", 2 * pixels, config.image_depth, "image_depth", name)

    if not isinstance(layers[0], Conv):
        # Dense activations are reached through the array only: by a convolution that changes nothing.
        c = shape[0]
        layers.insert(0, Conv(weight=np.eye(c)[:, :, None, None], bias=np.zeros(c), name="(input)"))
    names = [*(["(input)"] if len(layers) > len(network.layers) else []), *network.layer_names]
    flat_order: np.ndarray | None = None
    dense_at = 0
    for index, layer in enumerate(layers):
        made_up = layer.name == "(input)" and index == 0
        label = layer.name or names[index]
        if isinstance(layer, Conv):
            c, h, w = shape
            if not made_up:
                taps.append((layer.name, np.arange(c * h * w)))
            try:
                run = WindowRun(height=h, width=w, channels=c, kernel_h=layer.kernel[0], kernel_w=layer.kernel[1],
                                stride_h=layer.stride[0], stride_w=layer.stride[1], pad_top=layer.pads[0],
                                pad_left=layer.pads[1], pad_bottom=layer.pads[2], pad_right=layer.pads[3])
            except ValueError as error:
                raise ValueError(f"{label}: {error}") from None
            _need("kernel rows and columns", max(layer.kernel), config.kernel, "kernel", label)
            _need("image rows and columns", max(h, w, run.rows, run.cols), config.width, "width", label)
            _need("positions", run.out_height * run.out_width, config.positions, "positions", label)
            _need("channels", c, 255, "channels (fixed)", label)
            _need("strides", max(layer.stride), config.kernel, "kernel", label)
            _need("columns of a max-pool", layer.pool, 4, "pool (fixed)", label)
            if run.out_height * run.out_width < 4:
                raise ValueError(f"{label}: {run.out_height * run.out_width} outputs a channel, at least 4 needed")
            weight = _quantise(label, "weight", layer.weight, PARAMETER.lo, PARAMETER.hi, PARAMETER.frac)
            bias = _quantise(label, "bias", layer.bias, -BIAS_LIMIT, BIAS_LIMIT - 1, config.activation.frac)
            _check_sums(label, weight, config)
            shape = layer.output_shape(shape)
            to_dense = not isinstance(layers[index + 1], Conv)
            convs.append(LoweredConv(
                name=layer.name, weight=weight, bias=bias, run=run, relu=layer.relu, pool=layer.pool,
                tap=None if made_up else len(taps) - 1, weights_at=weights_at, bias_at=len(biases),
                feature=None if to_dense else feature_at))
            tiles = -(-layer.outputs // columns)
            words = np.zeros((tiles, c, config.kernel, config.kernel, columns), np.int64)
            for tile in range(tiles):
                part = weight[tile * columns:(tile + 1) * columns]
                words[tile, :, :layer.kernel[0], :layer.kernel[1], :len(part)] = part.transpose(1, 2, 3, 0)
            weights.append(words.reshape(-1, columns))
            weights_at += tiles * c * window
            if to_dense:
                # Positions come one by one, with all their channels.
                flat_order = np.arange(int(np.prod(shape))).reshape(shape[0], -1).T.ravel()
                dense_at = len(flat_order)
            else:
                feature_at += 2 * tiles * shape[1] * shape[2]
        else:
            n = layer.inputs
            if flat_order is None:
                flat_order = np.arange(n)
            taps.append((layer.name, flat_order))
            weight = _quantise(label, "weight", layer.weight, PARAMETER.lo, PARAMETER.hi,
                               PARAMETER.frac)[:, flat_order]
            bias = _quantise(label, "bias", layer.bias, -BIAS_LIMIT, BIAS_LIMIT - 1, config.activation.frac)
            _check_sums(label, weight, config)
            denses.append(LoweredDense(
                name=layer.name, weight=weight, bias=bias, relu=layer.relu, tap=len(taps) - 1,
                source=dense_at - n, target=dense_at, weights_at=weights_at, bias_at=len(biases)))
            tiles = -(-layer.outputs // columns)
            words = np.zeros((tiles, n, columns), np.int64)
            for tile in range(tiles):
                part = weight[tile * columns:(tile + 1) * columns]
                words[tile, :, :len(part)] = part.T
            weights.append(words.reshape(-1, columns))
            weights_at += tiles * n
            dense_at += layer.outputs
            flat_order = None
            shape = (layer.outputs,)
        padded = np.zeros(tiles * columns, np.int64)
        padded[:len(bias)] = bias
        biases.extend(padded.reshape(tiles, columns))

    _need("weight words", weights_at, config.weight_depth, "weight_depth", name)
    _need("bias words", len(biases), config.bias_depth, "bias_depth", name)
    _need("feature words", feature_at, config.feature_depth, "feature_depth", name)
    _need("dense activations a sample", dense_at, config.dense_depth, "dense_depth", name)

    parts = -(-rank // config.rank)
    _need(f"adapters of rank {config.rank}", len(taps) * parts, config.taps, "taps", f"{name} at rank {rank}")
    placed: list[Tap] = []
    block = lane = 0
    for tap_name, order in taps:
        addresses = -(-len(order) // config.panels)
        placed.append(Tap(name=tap_name, elements=len(order), order=order, first_block=block,
                          lanes_at=tuple(lane + part * addresses for part in range(parts))))
        block += placed[-1].blocks
        lane += parts * addresses
    _need("blocks of cached activations", block, config.blocks, "blocks", name)
    _need("adapter words a column", lane, config.adapter_depth, "adapter_depth", f"{name} at rank {rank}")
    return Lowered(config=config, network=network, rank=rank, wide=wide, convs=tuple(convs), denses=tuple(denses),
                   taps=tuple(placed), weight_words=np.concatenate(weights), bias_words=np.array(biases))
