"""What is asked of a design: frozen, checked once; what follows from it is a property."""
import dataclasses
from dataclasses import dataclass

from .formats.fixed import Fixed

__all__ = ["Config", "LinearConfig", "largest", "smallest", "ACTIVATION", "PARAMETER", "DECODED", "SCALE", "LEVEL",
           "VELOCITY", "PROBABILITY", "GRADIENT_EXPONENTS", "SCALES_PER_BEAT"]

#: Activations between layers, logits and losses: Q8.16.
ACTIVATION = Fixed(width=24, frac=16)
#: Weights and adapter words: Q4.12.
PARAMETER = Fixed(width=16, frac=12)
#: A cached activation as the adapters see it, decoded: Q8.10.
DECODED = Fixed(width=18, frac=10)
#: Largest magnitude of a block of cached activations.
SCALE = Fixed(width=16, frac=8, is_signed=False)
#: Level of a code, as a fraction of its block's scale.
LEVEL = Fixed(width=9, frac=7)
#: What the optimiser subtracts from a parameter, and keeps between steps.
VELOCITY = Fixed(width=27, frac=23)
#: Probability minus target.
PROBABILITY = Fixed(width=18, frac=16)
#: Fraction bits that a gradient may have at the output; the learning rate selects one.
GRADIENT_EXPONENTS = (24, 20, 16, 12)
#: A beat of scales in a cache record: the index of its first, and seven scales.
SCALES_PER_BEAT = 7

# A microbatch has at most 32 samples, so a kernel at most 5 x 5 elements. Commands have 8 bits for an image's edge, and
# 8 for the place of a word of biases.
_BOUNDS = {
    "rows": (4, 32), "panels": (2, 8), "rank": (1, 16), "classes": (2, 16), "taps": (1, 16),
    "adapter_depth": (16, 8192), "weight_depth": (64, 65536), "bias_depth": (2, 256), "feature_depth": (16, 65536),
    "image_depth": (16, 65536), "dense_depth": (32, 65536), "blocks": (2, 1024), "kernel": (2, 5),
    "width": (4, 255), "positions": (4, 65536), "axi_bits": (128, 128), "address_bits": (32, 64),
    "cache_slots": (64, 32768), "activation_bits": (18, 24),
    "queue_depth": (2, 16), "outstanding": (1, 16), "clock_mhz": (1, 1000),
}
_POWERS_OF_TWO = frozenset({
    "panels", "blocks", "adapter_depth", "weight_depth", "feature_depth", "image_depth", "dense_depth", "bias_depth",
    "positions", "queue_depth", "outstanding"})


def largest(field: str) -> int:
    """The largest value that a field of :class:`Config` takes in any design."""
    return _BOUNDS[field][1]


def smallest(field: str, least: int) -> int | None:
    """The smallest legal value of a field of :class:`Config` that is at least ``least``; None if there is none."""
    value = max(least, _BOUNDS[field][0])
    if field in _POWERS_OF_TWO:
        value = 1 << (value - 1).bit_length()
    return value if value <= largest(field) else None


@dataclass(frozen=True, kw_only=True)
class Config:
    """A fine-tuning accelerator for convolutional networks with direct-to-output adapters.

    Parameters
    ----------
    rows : int
        Rows of the array: elements of a convolution window, samples of a microbatch.
    panels, rank : int
        The array has ``panels * rank`` columns. A panel takes an element of every sample a cycle, and its
        columns are the ranks of one adapter.
    classes : int
        Largest number of logits.
    taps : int
        Largest number of adapters of ``rank`` ranks; a tap of higher rank takes several.
    adapter_depth : int
        Words of adapter memory per column.
    weight_depth : int
        Frozen weights on chip, in words of one weight a column.
    bias_depth : int
        Biases on chip, in words of one bias a column.
    feature_depth, image_depth : int
        Feature map words (a channel a column) and image words (one pixel).
    dense_depth : int
        Activations a sample of the dense layers' inputs and outputs.
    blocks : int
        Blocks of 64 cached activations a sample.
    kernel, width : int
        Largest convolution kernel edge; largest image edge.
    positions : int
        Largest number of outputs a channel of a convolution.
    axi_bits, address_bits : int
        AXI4 manager.
    cache_slots : int
        Samples whose valid bits fit.
    queue_depth, outstanding : int
        Commands that wait at an engine; bursts in flight. Powers of two.
    clock_mhz : int
        Clock for which forecasts in seconds are made.
    activation_bits : int
        Of a word between layers, and of h: 24 (Q8.16), or 18 (Q8.10), with which every product of the array and of the
        head is one of 18 x 18 bits. Codes of 8 bits need 24.
    """

    rows: int = 25
    panels: int = 4
    rank: int = 4
    classes: int = 10
    taps: int = 16
    adapter_depth: int = 2048
    weight_depth: int = 8192
    bias_depth: int = 32
    feature_depth: int = 4096
    image_depth: int = 2048
    dense_depth: int = 1024
    blocks: int = 64
    kernel: int = 5
    width: int = 32
    positions: int = 1024
    axi_bits: int = 128
    address_bits: int = 40
    cache_slots: int = 16384
    queue_depth: int = 16
    outstanding: int = 8
    clock_mhz: int = 200
    activation_bits: int = 24

    def __post_init__(self):
        for field, (low, high) in _BOUNDS.items():
            value = getattr(self, field)
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
                raise ValueError(f"{field}={value!r}: must be an integer from {low} to {high}")
        for field in _BOUNDS:
            value = getattr(self, field)
            if field in _POWERS_OF_TWO and value & (value - 1):
                raise ValueError(f"{field}={value}: must be a power of two from {smallest(field, 1)} to "
                                 f"{largest(field)}")
        if self.activation_bits not in (18, 24):
            raise ValueError(f"activation_bits={self.activation_bits}: must be 18 or 24")
        if not 4 <= self.columns <= 16:
            raise ValueError(f"panels={self.panels}, rank={self.rank}: their product is {self.columns}, "
                             f"must be 4 to 16")
        if self.rows < self.kernel ** 2:
            raise ValueError(f"rows={self.rows}: a window of kernel={self.kernel} has {self.kernel ** 2} elements")

    @property
    def shell(self):
        """What the shell around the engines is asked for."""
        return {"data_bits": self.axi_bits, "addr_bits": self.address_bits, "slots": self.cache_slots,
                "outstanding": self.outstanding, "depth": self.queue_depth}

    @property
    def told(self):
        """What the machine tells its driver."""
        return {name: getattr(self, name) for name in ("rows", "panels", "rank", "classes")}

    @property
    def columns(self):
        """Columns of the array."""
        return self.panels * self.rank

    @property
    def activation(self):
        """Format of a word between layers, and of h."""
        return Fixed(width=self.activation_bits, frac=self.activation_bits - 8)

    @property
    def sum_bits(self):
        """Bits of the array's sums: those of a frozen layer whose weights add up to less than 2**24 units, and those of
        an adapter's forward pass, of as many products as a column has adapter words. A DSP slice's 48 at most."""
        return max(self.activation_bits + 24, DECODED.width + PARAMETER.width + (self.adapter_depth - 1).bit_length())

    def replace(self, **changes):
        """A copy with other values."""
        return dataclasses.replace(self, **changes)


@dataclass(frozen=True, kw_only=True)
class LinearConfig:
    """What is asked of the engine.

    Parameters
    ----------
    edge : int
        Rows of the array and edge of a tile of weights, 16, 32 or 64: the elements that share a scale. A beat
        of the bus is a tile's row, ``4 * edge`` bits.
    columns : int
        Columns of the array; a divisor of ``edge``, at most 8. One more computes the adapter's product.
    outputs : int
        Results that leave the array's sums a cycle; 1, 2, 4 or 8, at most ``columns`` and a beat's words.
    dots : int
        As many of them a cycle if they have an adapter's part, for which each takes ``rank`` multipliers; a power of
        two, at most ``outputs``.
    rank : int
        Largest rank; even, at most ``2 * edge / columns`` so that h is complete after two tiles of outputs.
    tokens : int
        Largest number of tokens; a power of two.
    depth : int
        Words of operand memory a row: ``tokens`` words a tile of inputs.
    lane_depth : int
        Words of adapter memory a row: ``rank`` words a tile.
    groups : int
        Second-level scales of a weight tensor: one for 256 blocks.
    features, head : int
        Of the vector engine: largest row of a norm, and of what ROPE turns; powers of two, at least a beat's words
        twice and at most 2048 and 1024.
    requests : int
        1: a second program runs between parts of the first, where that yields; 0 saves its registers.
    address_bits, outstanding, queue_depth, clock_mhz : int
        As in :class:`Config`.
    packing : int
        1: knows how to write words and moments back as quantised blocks, and to read them again; 0 saves the unit.
    """

    edge: int = 64
    columns: int = 8
    outputs: int = 4
    dots: int = 2
    rank: int = 8
    tokens: int = 64
    depth: int = 2048
    lane_depth: int = 1024
    groups: int = 1024
    features: int = 2048
    head: int = 64
    requests: int = 1
    address_bits: int = 32
    outstanding: int = 8
    queue_depth: int = 16
    clock_mhz: int = 200
    packing: int = 0

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise ValueError(f"{field.name}={value!r}: must be an integer")
        if self.edge not in (16, 32, 64):
            raise ValueError(f"edge={self.edge}: must be 16, 32 or 64")
        if not 2 <= self.columns <= 8 or self.edge % self.columns:
            raise ValueError(f"columns={self.columns}: must be a divisor of edge={self.edge} from 2 to 8")
        if self.outputs not in (1, 2, 4, 8) or self.outputs > min(self.columns, self.beat_words):
            raise ValueError(f"outputs={self.outputs}: must be 1, 2, 4 or 8, at most "
                             f"{min(self.columns, self.beat_words)}")
        if self.dots not in (1, 2, 4, 8) or self.dots > self.outputs:
            raise ValueError(f"dots={self.dots}: must be 1, 2, 4 or 8, at most outputs={self.outputs}")
        if self.rank < 2 or self.rank % 2 or self.rank > 2 * self.subtiles:
            raise ValueError(f"rank={self.rank}: must be even, 2 to {2 * self.subtiles}")
        for field in ("address_bits", "clock_mhz"):
            value, (low, high) = getattr(self, field), _BOUNDS[field]
            if not low <= value <= high:
                raise ValueError(f"{field}={value}: must be from {low} to {high}")
        for field in ("requests", "packing"):
            if getattr(self, field) not in (0, 1):
                raise ValueError(f"{field}={getattr(self, field)}: must be 0 or 1")
        for field, low, high in (("tokens", 2, 256), ("depth", 16, 65536), ("lane_depth", 16, 65536),
                                 ("groups", 2, 4096), ("features", self.edge // 4, 2048),
                                 ("head", self.edge // 4, 1024), ("outstanding", *_BOUNDS["outstanding"]),
                                 ("queue_depth", *_BOUNDS["queue_depth"])):
            value = getattr(self, field)
            if not low <= value <= high or value & (value - 1):
                raise ValueError(f"{field}={value}: must be a power of two from {low} to {high}")

    @property
    def shell(self):
        """What the shell around the engines is asked for."""
        return {"data_bits": self.beat_bits,
                "addr_bits": self.address_bits, "slots": 64, "outstanding": self.outstanding,
                "depth": self.queue_depth, "requests": self.requests}

    @property
    def told(self):
        """What the machine tells its driver."""
        return {name: getattr(self, name) for name in ("edge", "columns", "rank", "tokens")}

    @property
    def subtiles(self):
        """Parts of a tile that the array holds at a time."""
        return self.edge // self.columns

    @property
    def beat_bits(self):
        """Bits of a beat: a row of codes."""
        return 4 * self.edge

    @property
    def beat_words(self):
        """32-bit words in a beat."""
        return self.edge // 8
