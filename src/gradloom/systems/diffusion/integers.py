"""A UNet's LoRA step on codes of tiles, in integers.

All products (convolutions, projections, attention, adapters and their gradients) are those of
:mod:`gradloom.sim.reference.tiles`, all operations between them (norms, activation functions, softmax, sums, the loss)
those of :mod:`gradloom.sim.reference.tile_vector`. A result is words; codes of 8 bits for products and of 16 bits for
all others are rounded from them, each where something reads it. Adapters' masters have 32 bits, and AdamW is that of
the update engine.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from gradloom.compiler.held import Counts, Held, joined
from gradloom.rtl.formats.tile_codes import EDGE, NARROW, WIDE, TileCoded, coded
from gradloom.sim.reference import tile_vector as vector
from gradloom.sim.reference.tiles import TileSums, block_sums, sums, transposed

from .mathematics import Factors, FloatUNet, Gradients
from .operations import (
    Activation,
    Add,
    Attention,
    Concat,
    Convolution,
    GroupNorm,
    LayerNorm,
    Linear,
    Operation,
    Shift,
    Upsample,
)
from .pixels import TAPS, pixels_of
from .unet import RESULT

__all__ = ["IntegerUNet"]


class IntegerUNet(FloatUNet):
    """:class:`FloatUNet` on codes.

    Parameters
    ----------
    operations : sequence of Operation
    weights : mapping
        Frozen weights by diffusers' name; matrices become codes of 8 bits, biases of 16.
    """

    def __init__(self, operations: Sequence[Operation], weights: Mapping[str, np.ndarray]) -> None:
        super().__init__(operations, weights, dtype=np.float64)
        self.counts = Counts()
        self.frozen: dict[str, TileCoded] = {}
        self.norms: dict[str, vector.TileNorm] = {}
        self.rows: dict[tuple[str, bool, int], np.ndarray] = {}
        #: Tensors that are no more than addresses of a smaller one.
        self.risen = {each.o.name for each in operations if isinstance(each, Upsample)}
        self.last_reader = {t.name: number for number, each in enumerate(operations) for t in each.i}
        for each in operations:
            if isinstance(each, Convolution):
                w = self.held[f"{each.layer}.weight"].reshape(9, each.i[0].features, each.o.features)
                self.frozen[each.layer] = coded(w, NARROW)
            elif isinstance(each, GroupNorm | LayerNorm):
                rows, groups = (each.o.rows, each.groups) if isinstance(each, GroupNorm) else (1, 1)
                gain, bias = self.held[f"{each.layer}.weight"], self.held[f"{each.layer}.bias"]
                self.norms[each.layer] = vector.TileNorm(gain, bias, rows=rows, groups=groups, eps=each.eps)
            elif isinstance(each, Linear):
                self.frozen[each.layer] = coded(self.held[f"{each.layer}.weight"], NARROW)
            if isinstance(each, Linear | Convolution) and each.bias:
                self.frozen[f"{each.layer}.bias"] = coded(self.held[f"{each.layer}.bias"][None], WIDE)

    def take_counts(self) -> Counts:
        """Counts since the last call."""
        taken, self.counts = self.counts, Counts()
        return taken

    def _held(self, exact: np.ndarray) -> Held:
        return Held(exact, self.counts)

    def _summed(self, found: TileSums) -> Held:
        self.counts.lost += found.lost
        return self._held(found.values)

    def loss_and_gradients(
        self, inputs: Mapping[str, np.ndarray], noise: np.ndarray, adapters: Factors
    ) -> tuple[float, Gradients]:
        """See :class:`FloatUNet`."""
        factors = self.factors(adapters)
        found = self.passed(inputs, factors)
        error = self.missed(found[RESULT], noise)
        loss = float(np.mean(np.square(error.values)))
        gradients = self.returned(found, self.falling(error), factors)
        return loss, {layer: (a.values, b.values) for layer, (a, b) in gradients.items()}

    def predicted(self, inputs: Mapping[str, np.ndarray], adapters: Factors) -> np.ndarray:
        """See :class:`FloatUNet`."""
        return self.passed(inputs, self.factors(adapters), learn=False)[RESULT].values

    def loss(self, inputs: Mapping[str, np.ndarray], noise: np.ndarray, adapters: Factors) -> float:
        """See :class:`FloatUNet`."""
        made = self.passed(inputs, self.factors(adapters), learn=False)[RESULT]
        return float(np.mean(np.square(self.missed(made, noise).values)))

    def forward(self, inputs: Mapping[str, np.ndarray], adapters: Factors) -> dict[str, np.ndarray]:
        """See :class:`FloatUNet`: values of 16 bits."""
        return {name: each.values for name, each in self.passed(inputs, self.factors(adapters)).items()}

    def factors(self, adapters: Factors) -> dict[str, tuple[TileCoded, TileCoded]]:
        """Codes of adapters, A and B."""
        return {layer: (coded(each.a, NARROW), coded(each.b, NARROW)) for layer, each in adapters.items()}

    def renewed(self, adapters: Factors) -> None:
        """Counts the codes that a step makes of its new adapters."""
        for each in adapters.values():
            for x in each.parts.values():
                self.counts.coded(x, NARROW)

    def passed(
        self,
        inputs: Mapping[str, np.ndarray],
        factors: Mapping[str, tuple[TileCoded, TileCoded]],
        *,
        learn: bool = True,
    ) -> dict[str, Held]:
        """Every tensor by name, and the probabilities of attention.

        Without ``learn``, those that no further operation reads are dropped on the way.
        """
        self.images = len(inputs["latents"])
        found = {name: _given(x, -1, x.shape[-1]) for name, x in inputs.items()}
        for number, each in enumerate(self.operations):
            arguments = [found[t.name] for t in each.i]
            match each:
                case Upsample():
                    found[each.o.name] = arguments[0]
                case Linear():
                    found[each.o.name] = self._linear_forward(each, arguments[0], factors.get(each.layer), found)
                case Convolution():
                    bias = self.frozen.get(f"{each.layer}.bias")
                    rows = self._addresses(each, False)
                    made = sums((arguments[0].narrow, rows, self.frozen[each.layer]), bias=bias)
                    found[each.o.name] = self._summed(made)
                case Attention():
                    found[_probabilities(each)], found[each.o.name] = self._attended(each, *arguments)
                case Concat():
                    parts = [(x.wide, slice(0, t.features)) for x, t in zip(arguments, each.i)]
                    found[each.o.name] = self._held(joined(*parts))
                case _:
                    found[each.o.name] = self._held(self._between(each)(*(x.values for x in arguments)))
            if not learn:
                for t in each.i:
                    if self.last_reader[t.name] == number:
                        found.pop(t.name, None)
                found.pop(_probabilities(each), None)
                found.pop(_hidden(each), None)
        return found

    def missed(self, made: Held, noise: np.ndarray) -> Held:
        """The predicted noise less the noise."""
        given = _given(noise, *made.exact.shape)
        return self._held(vector.add(made.values, given.values, subtract=True))

    def falling(self, error: Held) -> Held:
        """Gradient of the mean of the error's squares."""
        return self._held(vector.scaled(error.values, 2 / error.exact.size))

    def returned(
        self, found: Mapping[str, Held], last: Held, factors: Mapping[str, tuple[TileCoded, TileCoded]]
    ) -> dict[str, tuple[Held, Held]]:
        """Gradients of every adapter's A and B from that of the result."""
        gradients, learnt = {RESULT: last}, {}
        for each in reversed(self.operations):
            if each.o.name not in self.needed:
                continue
            dy = gradients.pop(each.o.name)
            if isinstance(each, Linear) and each.rank:
                learnt[each.layer], back = self._learnt(each, found, dy, factors[each.layer])
            else:
                back = None
            wanted = [t.name in self.needed for t in each.i]
            if any(wanted):
                for t, dx in zip(each.i, self._back(each, found, dy, wanted, factors, back)):
                    if dx is None:
                        continue
                    if t.name in gradients:
                        dx = self._held(vector.add(gradients[t.name].values, dx.values))
                    gradients[t.name] = dx
        return learnt

    def _back(
        self,
        each: Operation,
        found: Mapping[str, Held],
        dy: Held,
        wanted: Sequence[bool],
        factors: Mapping[str, tuple[TileCoded, TileCoded]],
        back: Held | None,
    ) -> Sequence[Held | None]:
        """Gradients of an operation's tensors, where they are wanted."""
        match each:
            case Linear():
                pairs = [(dy.narrow, transposed(self.frozen[each.layer]))]
                if back is not None:
                    pairs.append((back.narrow, factors[each.layer][0]))
                return [self._summed(sums(*pairs))]
            case Convolution():
                turned = transposed(self.frozen[each.layer])
                return [self._summed(sums((dy.narrow, self._addresses(each, True), turned)))]
            case Attention():
                return list(self._attended_back(each, found, dy, wanted))
            case Add():
                return [dy if want else None for want in wanted]
            case Shift():
                if wanted[1]:
                    raise ValueError(f"{each.o.name}: an adapter in front of the second tensor; the timestep has none")
                return [dy, None]
            case Concat():
                cut = each.i[0].features
                spans = (slice(0, cut), slice(cut, each.o.features))
                return [self._held(joined((dy.wide, s))) if want else None for s, want in zip(spans, wanted)]
            case Upsample():
                side, features = each.i[0].side, each.i[0].features
                made = vector.total(dy.values, (2, 4), (-1, side, 2, side, 2, features))
                return [self._held(made.reshape(-1, features))]
        x = found[each.i[0].name].values
        match each:
            case GroupNorm() | LayerNorm():
                return [self._held(self.norms[each.layer].backward(dy.values, x))]
            case Activation(kind="silu"):
                return [self._held(vector.silu_back(dy.values, x))]
            case Activation():
                return [self._held(vector.geglu_back(dy.values, x))]
        raise TypeError(f"{type(each).__name__} has no gradient")

    def _between(self, each: Operation) -> Callable[..., np.ndarray]:
        """Operations of values of 16 bits."""
        match each:
            case GroupNorm() | LayerNorm():
                return self.norms[each.layer].forward
            case Activation(kind="silu"):
                return vector.silu
            case Activation():
                return vector.geglu
            case Add() | Shift():
                return vector.add
        raise TypeError(f"{type(each).__name__} has no integers")

    def _linear_forward(
        self, each: Linear, x: Held, factors: tuple[TileCoded, TileCoded] | None, found: dict[str, Held]
    ) -> Held:
        pairs = [(x.narrow, self.frozen[each.layer])]
        if each.rank:
            assert factors is not None
            a, b = factors
            h = found[_hidden(each)] = self._summed(sums((x.narrow, transposed(a))))
            pairs.append((h.narrow, transposed(b)))
        return self._summed(sums(*pairs, bias=self.frozen.get(f"{each.layer}.bias")))

    def _learnt(
        self, each: Linear, found: Mapping[str, Held], dy: Held, factors: tuple[TileCoded, TileCoded]
    ) -> tuple[tuple[Held, Held], Held]:
        """Gradients of A and B, and what comes back through B."""
        x, h = found[each.i[0].name], found[_hidden(each)]
        back = self._summed(sums((dy.narrow, factors[1])))
        a = self._summed(sums((transposed(back.narrow), x.narrow)))
        b = self._summed(sums((transposed(dy.narrow), h.narrow)))
        return (a, b), back

    def _addresses(self, each: Convolution, back: bool) -> np.ndarray:
        """Rows ``[9, rows]`` of the stream of a convolution.

        ``back``: of its gradient. -1 is a row of zeros.
        """
        key = (each.layer, back, self.images)
        if key not in self.rows:
            pixels = pixels_of(each, self.images, self.risen, back=back)
            self.rows[key] = np.stack([pixels.rows(*place) for place in TAPS[back]])
        return self.rows[key]

    def _parts(self, each: Attention, x: TileCoded) -> tuple[np.ndarray, np.ndarray]:
        """Codes of each image and head, and the exponents of their tiles."""
        images, heads = self.images, each.heads
        deep, rows = x.codes.shape[1] // heads, x.codes.shape[0] // images
        if deep > EDGE or EDGE % deep:
            raise ValueError(f"{each.o.name}: features of a head must divide {EDGE}")
        if rows > EDGE or (images > 1 and EDGE % rows):
            raise ValueError(f"{each.o.name}: rows of an image must divide {EDGE}")
        codes = x.codes.reshape(images, rows, heads, deep).transpose(0, 2, 1, 3)
        return codes, x.exponents[np.ix_(self._at(rows), self._across(each, deep))]

    def _at(self, rows: int) -> np.ndarray:
        """Tile of rows of each image."""
        found: np.ndarray = np.arange(self.images) * rows // EDGE
        return found

    def _across(self, each: Attention, deep: int) -> np.ndarray:
        """Tile of features of each head."""
        found: np.ndarray = np.arange(each.heads) * deep // EDGE
        return found

    def _shares(self, each: Attention, x: TileCoded) -> tuple[np.ndarray, np.ndarray]:
        """The same of a matrix of each head, ``[heads, rows, keys]``."""
        heads, rows, keys = x.codes.shape
        codes = x.codes.reshape(heads, self.images, -1, keys).swapaxes(0, 1)
        return codes, x.exponents[:, self._at(rows // self.images), 0].swapaxes(0, 1)

    def _scored(self, each: Attention, x: tuple, y: tuple) -> Held:
        """Products of each head: a matrix ``[heads, rows, keys]``."""
        tiles = self._at(x[0].shape[2]), np.arange(each.heads)
        values, lost = block_sums((x[0], x[1][..., None]), (y[0].swapaxes(2, 3), y[1][..., None]), tiles)
        self.counts.lost += lost
        return self._held(values.swapaxes(0, 1).reshape(each.heads, -1, values.shape[3]))

    def _mixed(self, each: Attention, x: tuple, y: tuple) -> Held:
        """Products whose columns are features of heads."""
        tiles = self._at(x[0].shape[2]), self._across(each, y[0].shape[3])
        values, lost = block_sums((x[0], x[1][..., None]), (y[0], y[1][..., None]), tiles)
        self.counts.lost += lost
        return self._held(values.transpose(0, 2, 1, 3).reshape(-1, each.heads * values.shape[3]))

    def _attended(self, each: Attention, q: Held, k: Held, v: Held) -> tuple[Held, Held]:
        """Probabilities, and what they mix."""
        scores = self._scored(each, self._parts(each, q.narrow), self._parts(each, k.narrow))
        p = self._held(vector.softmax(scores.values, _factor(each)))
        return p, self._mixed(each, self._shares(each, p.narrow), self._parts(each, v.narrow))

    def _attended_back(
        self, each: Attention, found: Mapping[str, Held], dy: Held, wanted: Sequence[bool]
    ) -> Iterator[Held | None]:
        q, k, v = (found[t.name] for t in each.i)
        p, d = found[_probabilities(each)], self._parts(each, dy.narrow)
        ds = None
        if wanted[0] or wanted[1]:
            dp = self._scored(each, d, self._parts(each, v.narrow))
            ds = self._shares(each, self._held(vector.softmax_back(p.values, dp.values, _factor(each))).narrow)
        yield self._mixed(each, ds, self._parts(each, k.narrow)) if ds and wanted[0] else None
        yield self._mixed(each, _turned(ds), self._parts(each, q.narrow)) if ds and wanted[1] else None
        yield self._mixed(each, _turned(self._shares(each, p.narrow)), d) if wanted[2] else None


def _given(x: np.ndarray, *shape: int) -> Held:
    """A tensor of which the host makes the codes: nobody counts them."""
    return Held(np.asarray(x, np.float64).reshape(shape), Counts())


def _turned(x: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    return x[0].swapaxes(2, 3), x[1]


def _probabilities(each: Operation) -> str:
    return f"{each.o.name}.probabilities"


def _hidden(each: Operation) -> str:
    return f"{each.o.name}.hidden"


def _factor(each: Attention) -> float:
    return float((each.o.features // each.heads) ** -0.5)
