"""Lowers a network to a design: integer weights and addresses."""

import numpy as np

from gradloom.models.network import ConvLayer, DenseLayer, LayerNetwork
from gradloom.program.assembler import most
from gradloom.rtl.engines.array.commands import RECORD_ARG, ConvolveOperands
from gradloom.rtl.engines.encode.commands import EncodeOperands
from gradloom.rtl.formats.images import PARAMETER
from gradloom.rtl.machines.configs.images import ImageConfig
from gradloom.rtl.window_run import WindowRun

from .lowered import BLOCK, Lowered, LoweredConv, LoweredDense, Tap
from .sizes import Needs, SizeError

__all__ = [
    "CHANNELS",
    "FIRST_BLOCK",
    "LAST_CHANNELS",
    "LEAST_POSITIONS",
    "MAXIMA",
    "MAX_RANK",
    "POOL",
    "RECORD_BEATS",
    "SizeError",
    "lower",
]

BIAS_LIMIT = 1 << 31
#: A rank takes as many adapters of the array's rank as it is larger; this many are tested.
MAX_RANK = 16
#: Maxima of every design: input channels of a convolution, output channels of one before a dense layer, side of a
#: max-pool, number of a tap's first block, beats of scales and codes in a record. And the fewest outputs a channel.
CHANNELS = most(ConvolveOperands, "channels")
LAST_CHANNELS = most(ConvolveOperands, "stride")
POOL = 4
FIRST_BLOCK = min(most(ConvolveOperands, "scale"), most(EncodeOperands, "scale"))
RECORD_BEATS = most(RECORD_ARG, "logits")
LEAST_POSITIONS = 4
#: Maxima that README tells, by its words.
MAXIMA = {
    "classes": ImageConfig.largest("classes"),
    "edge of a kernel, stride": ImageConfig.largest("kernel"),
    "edge of a max-pool": POOL,
    "edge of an image or feature map": ImageConfig.largest("width"),
    "input channels of a convolution": CHANNELS,
    "channels before the first dense layer": LAST_CHANNELS,
    "layers, times parts of a rank": ImageConfig.largest("taps"),
    "rank": MAX_RANK,
    "inputs of all layers but the last": BLOCK * FIRST_BLOCK,
    "adapter words of a column": ImageConfig.largest("adapter_depth"),
    "weights of a column": ImageConfig.largest("weight_depth"),
    "biases of a column": ImageConfig.largest("bias_depth"),
}


def _quantise(name: str, what: str, values: np.ndarray, lo: int, hi: int, frac: int) -> np.ndarray:
    words = np.rint(np.asarray(values, np.float64) * 2.0**frac)
    if words.size and (words.min() < lo or words.max() > hi):
        worst = float(np.abs(values).max())
        raise ValueError(
            f"{name}: {what} of {worst:.4g} is outside the format, whose range is "
            f"{lo * 2.0**-frac:.6g} to {hi * 2.0**-frac:.6g}"
        )
    return words.astype(np.int64)


def _check_sums(name: str, weight: np.ndarray, config: ImageConfig) -> None:
    """Refuses weights with which a sum of the array could wrap."""
    largest = int(np.abs(weight.reshape(len(weight), -1)).sum(axis=1).max()) << (config.activation_bits - 1)
    if largest >= 1 << (config.sum_bits - 1):
        raise ValueError(
            f"{name}: sums may reach 2**{largest.bit_length() - 1}, the array holds sums below 2**{config.sum_bits - 1}"
        )


def lower(network: LayerNetwork, config: ImageConfig, rank: int, *, wide: bool = False) -> Lowered:
    """Places ``network`` with adapters of rank ``rank`` on a design.

    ``wide``: cached activations are codes of 8 bits.

    Raises :class:`SizeError` with all sizes that are too small, and :class:`ValueError` for values outside a format.
    """
    if not 1 <= rank <= MAX_RANK:
        raise ValueError(f"rank={rank}: must be from 1 to {MAX_RANK}")
    if wide and config.activation_bits != 24:
        raise ValueError(f"activation_bits={config.activation_bits}: codes of 8 bits need 24")
    return _Lowering(network, config, rank).lowered(wide)


class _Lowering:
    """Places layer behind layer, and collects all sizes that are too small."""

    def __init__(self, network: LayerNetwork, config: ImageConfig, rank: int) -> None:
        self.network, self.config, self.rank = network, config, rank
        self.needs = needs = Needs(network.name, rank, config)
        needs.field("classes", network.classes, "classes")
        # Weights lie in windows of the largest kernel: of this design, or of the one that is needed.
        self.edge = max(
            config.kernel,
            *(
                max(*layer.kernel, min(max(layer.stride), ImageConfig.largest("kernel")))
                for layer in network.layers
                if isinstance(layer, ConvLayer)
            ),
            0,
        )
        needs.field("rows", self.edge**2, f"elements of a window of {self.edge} x {self.edge}")
        needs.field("image_depth", -(-int(np.prod(network.input_shape)) // 4) * 8, "image words")
        self.convs: list[LoweredConv] = []
        self.denses: list[LoweredDense] = []
        self.taps: list[tuple[str, np.ndarray]] = []
        self.weights: list[np.ndarray] = []
        self.biases: list[np.ndarray] = []
        self.weights_at = self.feature_at = self.dense_at = 0
        #: Of the elements that the next dense layer takes.
        self.order: np.ndarray | None = None

    def lowered(self, wide: bool) -> Lowered:
        """The whole network."""
        network, needs = self.network, self.needs
        layers, names = list(network.layers), list(network.layer_names)
        shape: tuple[int, ...] = network.input_shape
        made_up = not isinstance(layers[0], ConvLayer)
        if made_up:
            # Dense activations are reached through the array only: by a convolution that changes nothing.
            c = shape[0]
            layers.insert(0, ConvLayer(weight=np.eye(c)[:, :, None, None], bias=np.zeros(c), name="(input)"))
            names.insert(0, "(input)")
        for index, (layer, name) in enumerate(zip(layers, names)):
            if isinstance(layer, ConvLayer):
                shape = self._conv(
                    layer,
                    layer.name or name,
                    shape,
                    tapped=index > 0 or not made_up,
                    to_dense=not isinstance(layers[index + 1], ConvLayer),
                )
            else:
                self._dense(layer, layer.name or name)
        needs.field("weight_depth", self.weights_at, "weight words")
        needs.field("bias_depth", len(self.biases), "bias words")
        needs.field("feature_depth", self.feature_at, "feature words")
        needs.field("dense_depth", self.dense_at, "dense activations a sample")
        lowered = Lowered(
            config=self.config,
            network=network,
            rank=self.rank,
            wide=wide,
            convs=tuple(self.convs),
            denses=tuple(self.denses),
            taps=self._taps(),
            weight_words=np.concatenate(self.weights),
            bias_words=np.array(self.biases),
        )
        needs.fixed(
            lowered.record_scales + lowered.record_codes,
            RECORD_BEATS,
            f"beats of {'8' if wide else '4'}-bit codes and their scales a sample",
        )
        needs.check()
        return lowered

    def _conv(
        self, layer: ConvLayer, label: str, shape: tuple[int, ...], *, tapped: bool, to_dense: bool
    ) -> tuple[int, ...]:
        """Places a convolution; returns the shape of its result."""
        c, h, w = shape
        if tapped:
            self.taps.append((layer.name, np.arange(c * h * w)))
        try:
            run = WindowRun(
                height=h,
                width=w,
                channels=c,
                kernel_h=layer.kernel[0],
                kernel_w=layer.kernel[1],
                stride_h=layer.stride[0],
                stride_w=layer.stride[1],
                pad_top=layer.pads[0],
                pad_left=layer.pads[1],
                pad_bottom=layer.pads[2],
                pad_right=layer.pads[3],
            )
        except ValueError as error:
            raise ValueError(f"{label}: {error}") from None
        self._check_conv(layer, label, run)
        weight, bias = self._quantised(layer, label)
        shape = layer.output_shape(shape)
        self.convs.append(
            LoweredConv(
                name=layer.name,
                weight=weight,
                bias=bias,
                run=run,
                relu=layer.relu,
                pool=layer.pool,
                tap=len(self.taps) - 1 if tapped else None,
                weights_at=self.weights_at,
                bias_at=len(self.biases),
                feature=None if to_dense else self.feature_at,
            )
        )
        words = np.zeros((layer.outputs, c, self.edge, self.edge), np.int64)
        words[:, :, : layer.kernel[0], : layer.kernel[1]] = weight
        tiles = self._keep(words, bias)
        if to_dense:
            # Positions come one by one, with all their channels.
            self.needs.fixed(layer.outputs, LAST_CHANNELS, "output channels before a dense layer", label)
            self.order = np.arange(int(np.prod(shape))).reshape(shape[0], -1).T.ravel()
            self.dense_at = len(self.order)
        else:
            self.feature_at += 2 * tiles * shape[1] * shape[2]
        return shape

    def _check_conv(self, layer: ConvLayer, label: str, run: WindowRun) -> None:
        needs, positions = self.needs, run.out_height * run.out_width
        needs.field("kernel", max(layer.kernel), "kernel rows or columns", label)
        needs.field("kernel", max(layer.stride), "steps of a stride", label)
        needs.field("width", max(run.height, run.width, run.rows, run.cols), "image rows or columns", label)
        needs.field("positions", positions, "outputs a channel", label)
        needs.fixed(run.channels, CHANNELS, "input channels", label)
        needs.fixed(layer.pool, POOL, "rows of a max-pool", label)
        if positions < LEAST_POSITIONS:
            needs.never(f"{label}: {positions} outputs a channel (at least {LEAST_POSITIONS})")

    def _dense(self, layer: DenseLayer, label: str) -> None:
        """A dense layer."""
        order = np.arange(layer.inputs) if self.order is None else self.order
        self.order = None
        self.taps.append((layer.name, order))
        weight, bias = self._quantised(layer, label)
        weight = weight[:, order]
        self.denses.append(
            LoweredDense(
                name=layer.name,
                weight=weight,
                bias=bias,
                relu=layer.relu,
                tap=len(self.taps) - 1,
                source=self.dense_at - layer.inputs,
                target=self.dense_at,
                weights_at=self.weights_at,
                bias_at=len(self.biases),
            )
        )
        self._keep(weight, bias)
        self.dense_at += layer.outputs

    def _quantised(self, layer: ConvLayer | DenseLayer, label: str) -> tuple[np.ndarray, np.ndarray]:
        """Weights and biases in their formats."""
        weight = _quantise(label, "weight", layer.weight, PARAMETER.lo, PARAMETER.hi, PARAMETER.frac)
        bias = _quantise(label, "bias", layer.bias, -BIAS_LIMIT, BIAS_LIMIT - 1, self.config.activation.frac)
        _check_sums(label, weight, self.config)
        return weight, bias

    def _keep(self, weight: np.ndarray, bias: np.ndarray) -> int:
        """Keeps the words of a layer, a column an output; returns the tiles."""
        columns, outputs = self.config.columns, len(weight)
        tiles = -(-outputs // columns)
        words = np.zeros((tiles * columns, weight[0].size), np.int64)
        words[:outputs] = weight.reshape(outputs, -1)
        self.weights.append(words.reshape(tiles, columns, -1).transpose(0, 2, 1).reshape(-1, columns))
        self.weights_at += len(self.weights[-1])
        padded = np.zeros(tiles * columns, np.int64)
        padded[:outputs] = bias
        self.biases.extend(padded.reshape(tiles, columns))
        return tiles

    def _taps(self) -> tuple[Tap, ...]:
        """Places of the inputs of all layers."""
        config, needs, parts = self.config, self.needs, -(-self.rank // self.config.rank)
        needs.adapters(len(self.taps))
        placed: list[Tap] = []
        block = lane = 0
        for name, order in self.taps:
            addresses = -(-len(order) // config.panels)
            placed.append(
                Tap(
                    name=name,
                    elements=len(order),
                    order=order,
                    first_block=block,
                    lanes_at=tuple(lane + part * addresses for part in range(parts)),
                )
            )
            block += placed[-1].blocks
            lane += parts * addresses
        needs.field("blocks", block, "blocks of 64 cached activations")
        needs.fixed(placed[-1].first_block, FIRST_BLOCK, "blocks before the last layer's")
        needs.field("adapter_depth", lane, "adapter words a column")
        return tuple(placed)
