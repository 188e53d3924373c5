"""A UNet's LoRA step on codes of tiles, in integers.

All products (convolutions, projections, attention, adapters and their gradients) are those of
:mod:`gradloom.sim.reference.tiles`, exact to the bit. Each result is stored as codes of 16 bits; what a product reads
is rounded from those to 8 bits. Adapters' masters have 32 bits, and AdamW is that of the update engine.

Operations between products (norms, activation functions, softmax, sums, the loss) are those of
:mod:`gradloom.sim.reference.tile_vector`, on codes of 16 bits.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gradloom.rtl.formats.linear import MASTER
from gradloom.rtl.formats.tile_codes import EDGE, NARROW, WIDE, Coded, coded
from gradloom.rtl.formats.tiles import fraction_bits
from gradloom.rtl.models.lora import Adapter
from gradloom.rtl.plan.diffusion.operations import (
    Activation,
    Add,
    Attention,
    Convolution,
    GroupNorm,
    LayerNorm,
    Linear,
    Operation,
    Shift,
    Upsample,
)
from gradloom.rtl.plan.language.descent import AdamW

from ..reference import tile_vector as vector
from ..reference.tiles import Sums, blocks, gathered, sums, transposed
from ..reference.update import adamw
from .diffusion import Factors, FloatUNet, Gradients

__all__ = ["Counts", "IntegerDescent", "IntegerUNet"]

#: Bits of a master that learning may fill.
_SPARE = 3
#: Bits of a gradient's word, of which its code has the upper.
_GRADIENT = 24


@dataclass
class Counts:
    """Codes that were stored, and what happened to them.

    ``zeroed``: values other than zero whose code is zero. ``lost``: products of tiles that alignment made zero.
    """

    stored: int = 0
    clipped: int = 0
    zeroed: int = 0
    lost: int = 0


class IntegerUNet(FloatUNet):
    """:class:`FloatUNet` on codes.

    Tensors are float64 arrays of codes times powers of two.

    Parameters
    ----------
    operations : sequence of Operation
    weights : mapping
        Frozen weights by diffusers' name; matrices become codes of 8 bits, biases of 16.
    """

    def __init__(self, operations: Sequence[Operation], weights: Mapping[str, np.ndarray]) -> None:
        super().__init__(operations, weights, dtype=np.float64)
        self.counts = Counts()
        self.frozen: dict[str, Coded] = {}
        self.norms: dict[str, vector.Norm] = {}
        self.turned: dict[str, Coded] = {}
        self.read: dict[int, tuple[np.ndarray, Coded]] = {}
        self.rows: dict[tuple[str, bool, int], np.ndarray] = {}
        for each in operations:
            if isinstance(each, Convolution):
                self._freeze_places(each)
            elif isinstance(each, GroupNorm | LayerNorm):
                rows, groups = (each.o.rows, each.groups) if isinstance(each, GroupNorm) else (1, 1)
                gain, bias = self.held[f"{each.layer}.weight"], self.held[f"{each.layer}.bias"]
                self.norms[each.layer] = vector.Norm(gain, bias, rows=rows, groups=groups, eps=each.eps)
            elif isinstance(each, Linear):
                self.frozen[each.layer] = coded(self.held[f"{each.layer}.weight"], NARROW)
            if isinstance(each, Linear | Convolution) and each.bias:
                self.frozen[f"{each.layer}.bias"] = coded(self.held[f"{each.layer}.bias"][None], WIDE)

    def _freeze_places(self, each: Convolution) -> None:
        """Nine places of a convolution, each of whole tiles, forward and back."""
        inside, outside = each.i[0].features, each.o.features
        w = self.held[f"{each.layer}.weight"].reshape(9, inside, outside)
        wide = coded(np.pad(w, ((0, 0), (0, -inside % EDGE), (0, 0))), NARROW)
        self.frozen[each.layer] = Coded(
            wide.codes.reshape(-1, outside), wide.exponents.reshape(-1, wide.exponents.shape[2])
        )
        back = transposed(Coded(wide.codes[:, :inside], wide.exponents))
        codes = np.pad(back.codes, ((0, 0), (0, -outside % EDGE), (0, 0)))
        self.turned[each.layer] = Coded(codes.reshape(-1, inside), back.exponents.reshape(-1, back.exponents.shape[2]))

    def take_counts(self) -> Counts:
        """Counts since the last call."""
        taken, self.counts = self.counts, Counts()
        return taken

    def _coded(self, x: np.ndarray, bits: int) -> Coded:
        made = coded(x, bits)
        self.counts.stored += made.codes.size
        self.counts.clipped += made.clipped
        self.counts.zeroed += made.zeroed
        return made

    def _sums(self, *operands: object, bias: Coded | None = None) -> np.ndarray:
        made: Sums = sums(*operands, bias=bias)  # type: ignore[arg-type]
        self.counts.lost += made.lost
        return made.values

    def narrow(self, x: np.ndarray) -> Coded:
        """Codes of 8 bits of a tensor that has 16.

        A tensor that several products read is rounded once.
        """
        found = self.read.get(id(x))
        if found is None or found[0] is not x:
            found = self.read[id(x)] = x, self._coded(x, NARROW)
        return found[1]

    def forward(self, inputs: Mapping[str, np.ndarray], adapters: Factors) -> dict[str, np.ndarray]:
        """See :class:`FloatUNet`."""
        self.read.clear()
        stored = {name: self.result(np.asarray(x, np.float64).reshape(-1, x.shape[-1])) for name, x in inputs.items()}
        whole = {name: x.reshape(inputs[name].shape) for name, x in stored.items()}
        return super().forward(whole, adapters)

    def error(self, made: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """See :class:`FloatUNet`."""
        given = self.result(np.asarray(noise, np.float64).reshape(made.shape))
        return self.result(vector.add(made, given, subtract=True))

    def loss_gradient(self, error: np.ndarray) -> np.ndarray:
        """See :class:`FloatUNet`."""
        return self.result(vector.scaled(error, 2 / error.size))

    def both(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """See :class:`FloatUNet`."""
        return vector.add(one, other)

    def _rules(self, each: Operation, adapters: Factors) -> tuple[Callable, Callable]:
        match each:
            case Activation(kind="silu"):
                return vector.silu, (lambda dy, x: (vector.silu_back(dy, x),))
            case Activation():
                return vector.geglu, (lambda dy, x: (vector.geglu_back(dy, x),))
            case Add():
                return vector.add, (lambda dy, x, y: (dy, dy))
            case Shift():
                shape = (-1, each.o.rows, each.o.features)
                return vector.add, (lambda dy, x, row: (dy, vector.total(dy, (1,), shape)))
            case Upsample():
                side, features = each.i[0].side, each.i[0].features
                squares = (-1, side, 2, side, 2, features)
                return super()._rules(each, adapters)[0], (
                    lambda dy, x: (vector.total(dy, (2, 4), squares).reshape(-1, features),)
                )
        return super()._rules(each, adapters)

    def _norm(self, each: GroupNorm | LayerNorm) -> tuple[Callable, Callable]:
        norm = self.norms[each.layer]
        return norm.forward, (lambda dy, x: (norm.backward(dy, x),))

    def result(self, x: np.ndarray) -> np.ndarray:
        """Values as codes of 16 bits hold them."""
        return self._coded(x, WIDE).values

    def _adapter(self, adapter: Adapter) -> tuple[Coded, Coded]:
        return self.narrow(adapter.a), self.narrow(adapter.b)

    def adapter_gradients(self, adapter: Adapter, x: np.ndarray, dy: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """See :class:`FloatUNet`: gradients of 16 bits."""
        a, b = self._adapter(adapter)
        codes, incoming = self.narrow(x), self.narrow(dy)
        h = self.narrow(self.result(self._sums(blocks(codes), transposed(a))))
        p = self.narrow(self.result(self._sums(blocks(incoming), b)))
        return (
            self.result(self._sums(blocks(transposed(p)), codes)),
            self.result(self._sums(blocks(transposed(incoming)), h)),
        )

    def _linear(self, each: Linear, adapters: Factors) -> tuple[Callable, Callable]:
        w, bias = self.frozen[each.layer], self.frozen.get(f"{each.layer}.bias")

        def beside(x: tuple[np.ndarray, np.ndarray], first: Coded, second: Coded) -> tuple:
            return blocks(self.narrow(self.result(self._sums(x, first)))), second

        def forward(x: np.ndarray) -> np.ndarray:
            stream = blocks(self.narrow(x))
            if not each.rank:
                return self._sums(stream, w, bias=bias)
            a, b = self._adapter(adapters[each.layer])
            return self._sums(stream, w, beside(stream, transposed(a), transposed(b)), bias=bias)

        def backward(dy: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, ...]:
            stream = blocks(self.narrow(dy))
            if not each.rank:
                return (self._sums(stream, transposed(w)),)
            a, b = self._adapter(adapters[each.layer])
            return (self._sums(stream, transposed(w), beside(stream, b, a)),)

        return forward, backward

    def _convolution(self, each: Convolution) -> tuple[Callable, Callable]:
        def forward(x: np.ndarray) -> np.ndarray:
            stream = gathered(self.narrow(x), self._addresses(each, False))
            return self._sums(stream, self.frozen[each.layer], bias=self.frozen.get(f"{each.layer}.bias"))

        def backward(dy: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, ...]:
            stream = gathered(self.narrow(dy), self._addresses(each, True))
            return (self._sums(stream, self.turned[each.layer]),)

        return forward, backward

    def _addresses(self, each: Convolution, back: bool) -> np.ndarray:
        """Rows ``[9, rows]`` of the stream of a convolution.

        ``back``: of its gradient. -1 is a row of zeros.
        """
        key = (each.layer, back, self.images)
        if key not in self.rows:
            side, other, stride = each.i[0].side, each.o.side, each.stride
            self.rows[key] = np.stack(
                [_place(self.images, side, other, stride, y, x, back) for y in range(3) for x in range(3)]
            )
        return self.rows[key]

    def _attention(self, each: Attention) -> tuple[Callable, Callable]:
        heads, images = each.heads, self.images
        factor = float((each.o.features // heads) ** -0.5)

        def split(x: np.ndarray) -> Coded:
            """Codes of each image and head, from tiles of all."""
            whole = self.narrow(x)
            if whole.codes.shape[1] // heads > EDGE or EDGE % (whole.codes.shape[1] // heads):
                raise ValueError(f"{each.o.name}: features of a head must divide {EDGE}")
            rows = x.shape[0] // images
            if rows > EDGE or EDGE % rows:
                raise ValueError(f"{each.o.name}: rows of an image must divide {EDGE}")
            shaped = whole.codes.reshape(images, rows, heads, -1).transpose(0, 2, 1, 3)
            deep = shaped.shape[3]
            at = np.ix_(np.arange(images) * rows // EDGE, np.arange(heads) * deep // EDGE)
            return Coded(shaped, whole.exponents[at][..., None, None])

        def joined(x: np.ndarray) -> np.ndarray:
            return x.transpose(0, 2, 1, 3).reshape(-1, heads * x.shape[3])

        def probabilities(q: Coded, k: Coded) -> np.ndarray:
            scores = self.result(self._sums(blocks(q), transposed(k)))
            return self.result(vector.softmax(scores, factor))

        def forward(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
            p = self.narrow(probabilities(split(q), split(k)))
            return joined(self._sums(blocks(p), split(v)))

        def backward(dy: np.ndarray, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, ...]:
            queries, keys, d = split(q), split(k), split(dy)
            p = probabilities(queries, keys)
            dp = self.result(self._sums(blocks(d), transposed(split(v))))
            ds = self.narrow(self.result(vector.softmax_back(p, dp, factor)))
            return (
                joined(self._sums(blocks(ds), keys)),
                joined(self._sums(blocks(transposed(ds)), queries)),
                joined(self._sums(blocks(transposed(self.narrow(p))), d)),
            )

        return forward, backward


def _place(images: int, side: int, other: int, stride: int, y: int, x: int, back: bool) -> np.ndarray:
    """Addresses of one of nine places.

    ``side``, ``other``: pixels of a row of the convolution's input and output.
    """
    rows, columns = (np.arange(side if back else other) for _ in range(2))
    if back:
        # An output's place y, x reads the input's pixel stride * output + place - 1.
        down, across = rows + 1 - y, columns + 1 - x
        fits = [(n % stride == 0) & (n >= 0) & (n < stride * other) for n in (down, across)]
        down, across, wide = down // stride, across // stride, other
    else:
        down, across = stride * rows + y - 1, stride * columns + x - 1
        fits = [(n >= 0) & (n < side) for n in (down, across)]
        wide = side
    one = np.where(fits[0][:, None] & fits[1], down[:, None] * wide + across, -1).reshape(-1)
    whole: np.ndarray = np.where(one < 0, -1, one + np.arange(images)[:, None] * wide * wide).reshape(-1)
    return whole


class IntegerDescent:
    """The update engine's AdamW on masters of 32 bits.

    ``clipped``: words that were clipped in the last step.
    """

    def __init__(self, rate: float) -> None:
        self.rule = AdamW(lr=rate)
        self.steps = self.clipped = 0
        self.fractions: dict[tuple[str, str], int] = {}
        self.moments: dict[tuple[str, str], tuple[np.ndarray, np.ndarray]] = {}

    def __call__(self, adapters: Factors, gradients: Gradients) -> dict[str, Adapter]:
        """The adapters after one more step."""
        self.steps += 1
        self.clipped = 0
        return {
            layer: each.taking({part: self._moved(layer, part, each, g) for part, g in zip("ab", both)})
            for layer, each in adapters.items()
            for both in [gradients[layer]]
        }

    def _moved(self, layer: str, part: str, adapter: Adapter, g: np.ndarray) -> np.ndarray:
        x, key = adapter.parts[part].astype(np.float64), (layer, part)
        if key not in self.fractions:
            # A matrix of zeros has the room of A's first values.
            size = x if x.any() else adapter.a
            self.fractions[key] = fraction_bits(np.asarray(size), MASTER.width, headroom=_SPARE)
        fraction = self.fractions[key]
        words = np.rint(x * 2.0**fraction).astype(np.int64)
        m, v = self.moments.get(key, (np.zeros_like(words), np.zeros_like(words)))
        wide = coded(g, WIDE)
        exponents = wide.exponents.repeat(EDGE, axis=0)[: g.shape[0]].repeat(EDGE, axis=1)[:, : g.shape[1]]
        operands: dict = self.rule.operands(self.steps, 0, fraction)
        # A gradient's word has the code in its upper bits.
        grades = operands["gradient"] + exponents - (_GRADIENT - WIDE)
        codes = wide.codes.astype(np.int64) << _GRADIENT - WIDE
        new, m, v, lost = adamw(words, codes, m, v, **operands | {"gradient": grades})
        self.moments[key] = m, v
        self.clipped += lost
        made: np.ndarray = new * 2.0**-fraction
        return made
