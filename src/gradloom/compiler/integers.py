"""A network's passes on codes of tiles, in integers.

All products are those of :mod:`gradloom.sim.reference.tiles`, all operations between them those of
:mod:`gradloom.sim.reference.tile_vector`. A result is words; codes of 8 bits for products and of 16 bits for all others
are rounded from them, each where something reads it. Masters have 32 bits, and AdamW is that of the update engine.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gradloom.graph.base import Operation, Tensor
from gradloom.graph.dependence import dependent
from gradloom.graph.network import Network
from gradloom.graph.operations import (
    Activation,
    Add,
    Attention,
    Concat,
    Convolution,
    Gated,
    Linear,
    Multiply,
    Norm,
    Parameter,
    Rearrange,
    Reduce,
    Softmax,
    Upsample,
)
from gradloom.program.operations import needed
from gradloom.rtl.formats.tile_codes import EDGE, NARROW, WIDE, TileCoded, coded
from gradloom.sim.reference import element
from gradloom.sim.reference import tile_vector as vector
from gradloom.sim.reference.tile_norm import parts, values
from gradloom.sim.reference.tiles import TileSums, block_sums, sums, transposed

from .convolutions import addresses
from .held import Counts, Held, joined
from .matrices import matrices, weights_of

__all__ = ["IntegerNetwork"]

Codes = tuple[np.ndarray, np.ndarray]
_Back = Sequence[Held | None]


class IntegerNetwork:
    """Forward and backward passes of samples.

    Parameters
    ----------
    network : Network
        As :func:`~.lowering.lower` takes it.
    learners : collection of str
        Weights that learn.

    Attributes
    ----------
    values : dict
        Weights by name; what learns is changed here.
    counts : Counts
        Of the codes that are stored.
    """

    def __init__(self, network: Network, learners: Sequence[str] = ()) -> None:
        self.port = network.outputs[0]
        self.operations = needed(network.operations, [self.port.tensor.name])
        self.inputs = {port.tensor.name: port.tensor for port in network.inputs}
        self.values = {name: np.asarray(value, np.float64) for name, value in network.values.items()}
        self.learners = tuple(learners)
        self.owner = {weight.name: each for each in self.operations for weight in each.weights}
        self.moving = dependent(self.operations, self.learners)
        self.counts, self.samples = Counts(), 0
        self.risen: dict[str, Tensor] = {}
        self.tables = {each.o.name for each in self.operations if isinstance(each, Parameter)}
        self._kept: dict[str, tuple[np.ndarray, TileCoded]] = {}
        self._norms: dict[str, vector.TileNorm] = {}
        self._rows: dict[tuple[str, bool, int], np.ndarray] = {}

    # -- codes ---------------------------------------------------------------------------------------------------

    def take_counts(self) -> Counts:
        """Counts since the last call."""
        taken, self.counts = self.counts, Counts()
        return taken

    def held(self, exact: np.ndarray, *, positive: bool = False) -> Held:
        """A tensor that the machine makes."""
        return Held(np.maximum(exact, 0) if positive else exact, self.counts)

    def summed(self, found: TileSums) -> Held:
        """The same of a product."""
        self.counts.lost += found.lost
        return self.held(found.values)

    def weight(self, each: Operation, name: str) -> TileCoded:
        """Codes of matrices ``[taps, inputs, outputs]``, or of a bias ``[1, outputs]``."""
        value = self.values[name]
        kept = self._kept.get(name)
        if kept is None or kept[0] is not value:
            made = (
                coded(value[None], WIDE)
                if value.ndim == 1
                else coded(matrices(each, name, value).swapaxes(-1, -2), NARROW)
            )
            kept = self._kept[name] = value, made
        return kept[1]

    def renewed(self, name: str, matrix: np.ndarray) -> None:
        """A weight after an update, as a matrix; the machine stores its codes."""
        each, shape = self.owner[name], self.values[name].shape
        self.counts.coded(matrix, WIDE if len(shape) == 1 else NARROW)
        self.values[name] = weights_of(each, name, matrix, shape)

    def matrix(self, name: str) -> np.ndarray:
        """A weight as the machine learns it."""
        value = self.values[name]
        return value[None] if value.ndim == 1 else matrices(self.owner[name], name, value)

    # -- passes --------------------------------------------------------------------------------------------------

    def forward(self, inputs: Mapping[str, np.ndarray]) -> dict[str, Held]:
        """Every tensor by name, of inputs ``[samples, *sides, features]``."""
        found = self.taken(inputs)
        for each in self.operations:
            self._call(each, "", found)
        return found

    def taken(self, inputs: Mapping[str, np.ndarray]) -> dict[str, Held]:
        """Tensors of the inputs, whose codes the host makes: nobody counts them."""
        self.samples = len(next(iter(inputs.values())))
        return {
            name: Held(np.asarray(inputs[name], np.float64).reshape(-1, t.features), Counts())
            for name, t in self.inputs.items()
        }

    def result(self, inputs: Mapping[str, np.ndarray]) -> Held:
        """The result alone: a tensor is forgotten behind its last reader."""
        found, last = self.taken(inputs), {t.name: each for each in self.operations for t in each.i}
        for each in self.operations:
            before = set(found)
            self._call(each, "", found)
            for name in {t.name for t in each.i if last[t.name] is each} | (set(found) - before - {each.o.name}):
                found.pop(name, None)
        return found[self.port.tensor.name]

    def backward(self, found: Mapping[str, Held], last: Held) -> dict[str, np.ndarray]:
        """Gradients of what learns as matrices, from that of the result."""
        gradients, learnt = {self.port.tensor.name: last}, dict[str, Held]()
        for each in reversed(self.operations):
            dy = gradients.pop(each.o.name, None)
            if dy is None:
                continue
            if each.positive:
                dy = self.held(vector.mask(dy.values, found[each.o.name].values))
            wanted = [t.name in self.moving for t in each.i]
            for t, dx in zip(each.i, self._call(each, "_back", found, dy, wanted, learnt)):
                if dx is not None:
                    if t.name in gradients:
                        dx = self.held(vector.add(gradients[t.name].values, dx.values))
                    gradients[t.name] = dx
        return {name: held.values for name, held in learnt.items()}

    def falling(self, loss: str, result: Held, target: np.ndarray) -> tuple[float, Held]:
        """The loss, and its gradient of the result."""
        wanted = coded(np.asarray(target, np.float64).reshape(result.exact.shape), WIDE).values
        if loss == "classes":
            shares = self.held(vector.softmax(result.values, 1.0))
            error = self.held(vector.add(shares.values, wanted, subtract=True))
            return cross_entropy(result.values, wanted), self.held(vector.scaled(error.values, 1 / len(wanted)))
        error = self.held(vector.add(result.values, wanted, subtract=True))
        return float(np.mean(np.square(error.values))), self.held(vector.scaled(error.values, 2 / wanted.size))

    def _call(self, each: Operation, back: str, *more: Any) -> Any:
        return getattr(self, f"_{type(each).__name__.lower()}{back}")(each, *more)

    # -- products ------------------------------------------------------------------------------------------------

    def _linear(self, each: Linear, found: dict[str, Held]) -> None:
        self._layer(each, found)

    def _layer(self, each: Linear | Convolution, found: dict[str, Held]) -> None:
        x = found[each.i[0].name].narrow
        pairs = [(x, self.weight(each, f"{each.layer}.weight"))]
        if each.rank:
            a, b = (self.weight(each, weight.name) for weight in each.adapter)
            h = found[f"{each.o.name}.hidden"] = self.summed(sums((x, a)))
            pairs.append((h.narrow, b))
        found[each.o.name] = self.summed(sums(*pairs, bias=self._bias(each), positive=each.positive))

    def _bias(self, each: Linear | Convolution) -> TileCoded | None:
        return self.weight(each, f"{each.layer}.bias") if each.bias else None

    def _linear_back(self, each: Linear, *given: Any) -> _Back:
        return self._layer_back(each, *given)

    def _layer_back(
        self, each: Linear | Convolution, found: dict[str, Held], dy: Held, wanted: list, learnt: dict[str, Held]
    ) -> _Back:
        x, weight = found[each.i[0].name], f"{each.layer}.weight"
        self._bias_back(each, dy, learnt)
        if weight in self.learners:
            learnt[weight] = self.summed(sums((transposed(dy.narrow), x.narrow)))
        through = self._adapter_back(each, found, dy, learnt)
        if through is not None:
            learnt[each.adapter[0].name] = self.summed(sums((transposed(through.narrow), x.narrow)))
        if not wanted[0]:
            return [None]
        pairs = [(dy.narrow, transposed(self.weight(each, weight)))]
        if through is not None:
            pairs.append((through.narrow, transposed(self.weight(each, each.adapter[0].name))))
        return [self.summed(sums(*pairs))]

    def _bias_back(self, each: Linear | Convolution, dy: Held, learnt: dict[str, Held]) -> None:
        if f"{each.layer}.bias" in self.learners:
            row = coded(np.ones((1, len(dy.exact))), NARROW)
            learnt[f"{each.layer}.bias"] = self.summed(sums((row, dy.narrow)))

    def _adapter_back(
        self, each: Linear | Convolution, found: dict[str, Held], dy: Held, learnt: dict[str, Held]
    ) -> Held | None:
        if not each.rank:
            return None
        name = each.adapter[1].name
        back = self.summed(sums((dy.narrow, transposed(self.weight(each, name)))))
        h = found[f"{each.o.name}.hidden"]
        learnt[name] = self.summed(sums((transposed(dy.narrow), h.narrow)))
        return back

    def _is_plain(self, each: Convolution) -> bool:
        one = set(each.kernel) == set(each.stride) == {1} and not any(map(any, each.pads))
        return one and each.i[0].name not in self.risen

    def _addresses(self, each: Convolution, back: bool) -> np.ndarray:
        """Rows ``[taps, rows]`` that a convolution reads; -1 is a row of zeros."""
        key = (each.o.name, back, self.samples)
        if key not in self._rows:
            t = each.i[0]
            source = t.sides if back else self.risen.get(t.name, t).sides
            pixels, places = addresses(each, self.samples, source, back=back)
            self._rows[key] = np.stack([pixels.rows(*place) for place in places])
        return self._rows[key]

    def _taps(self, x: TileCoded) -> TileCoded:
        return x if x.codes.ndim == 3 else TileCoded(x.codes[None], x.exponents[None])

    def _convolution(self, each: Convolution, found: dict[str, Held]) -> None:
        if self._is_plain(each):
            self._layer(each, found)
            return
        x, rows = found[each.i[0].name].narrow, self._addresses(each, False)
        weight = self._taps(self.weight(each, f"{each.layer}.weight"))
        if not each.rank:
            made = sums((x, rows, weight), bias=self._bias(each), positive=each.positive)
        else:
            a, b = (self.weight(each, weight.name) for weight in each.adapter)
            h = found[f"{each.o.name}.hidden"] = self.summed(sums((x, rows, self._taps(a))))
            made = sums((x, rows, weight), (h.narrow, b), bias=self._bias(each), positive=each.positive)
        found[each.o.name] = self.summed(made)

    def _convolution_back(
        self, each: Convolution, found: dict[str, Held], dy: Held, wanted: list, learnt: dict[str, Held]
    ) -> _Back:
        if self._is_plain(each):
            return self._layer_back(each, found, dy, wanted, learnt)
        x, weight = found[each.i[0].name], f"{each.layer}.weight"
        self._bias_back(each, dy, learnt)
        through = self._adapter_back(each, found, dy, learnt)
        if through is not None:
            self._taps_back(each, each.adapter[0].name, through, x, learnt)
        if weight in self.learners:
            self._taps_back(each, weight, dy, x, learnt)
        if not wanted[0]:
            return [None]
        rows, pairs = self._addresses(each, True), [(dy, weight)]
        if through is not None:
            pairs.append((through, each.adapter[0].name))
        turned = [(held.narrow, rows, transposed(self._taps(self.weight(each, name)))) for held, name in pairs]
        return [self.summed(sums(*turned))]

    def _taps_back(self, each: Convolution, name: str, dy: Held, x: Held, learnt: dict[str, Held]) -> None:
        turned, made = transposed(dy.narrow), []
        same = self._taps(coded(np.eye(each.i[0].features), NARROW))
        for rows in self._addresses(each, False):
            seen = self.summed(sums((x.narrow, rows[None], same)))
            made.append(self.summed(sums((turned, seen.narrow))).exact)
        learnt[name] = self.held(np.stack(made) if len(made) > 1 else made[0])

    # -- attention -----------------------------------------------------------------------------------------------

    def _at(self, rows: int) -> np.ndarray:
        """Tile of rows of each sample."""
        found: np.ndarray = np.arange(self.samples) * rows // EDGE
        return found

    def _across(self, each: Attention, deep: int) -> np.ndarray:
        """Tile of features of each head."""
        found: np.ndarray = np.arange(each.heads) * deep // EDGE
        return found

    def _parts(self, each: Attention, x: TileCoded) -> Codes:
        """Codes of each sample and head, and the exponents of their tiles."""
        deep, rows = x.codes.shape[1] // each.heads, x.codes.shape[0] // self.samples
        codes = x.codes.reshape(self.samples, rows, each.heads, deep).transpose(0, 2, 1, 3)
        return codes, x.exponents[np.ix_(self._at(rows), self._across(each, deep))]

    def _shares(self, x: TileCoded) -> Codes:
        """The same of a matrix of each head, ``[heads, rows, keys]``."""
        heads, rows, keys = x.codes.shape
        codes = x.codes.reshape(heads, self.samples, -1, keys).swapaxes(0, 1)
        return codes, x.exponents[:, self._at(rows // self.samples), 0].swapaxes(0, 1)

    def _scored(self, each: Attention, x: Codes, y: Codes) -> Held:
        """Products of each head: a matrix ``[heads, rows, keys]``."""
        tiles = self._at(x[0].shape[2]), np.arange(each.heads)
        values, lost = block_sums(x, (y[0].swapaxes(2, 3), y[1]), tiles)
        self.counts.lost += lost
        return self.held(values.swapaxes(0, 1).reshape(each.heads, -1, values.shape[3]))

    def _mixed(self, each: Attention, x: Codes, y: Codes) -> Held:
        """Products whose columns are features of heads."""
        tiles = self._at(x[0].shape[2]), self._across(each, y[0].shape[3])
        values, lost = block_sums(x, y, tiles)
        self.counts.lost += lost
        return self.held(values.transpose(0, 2, 1, 3).reshape(-1, each.heads * values.shape[3]))

    def _attention(self, each: Attention, found: dict[str, Held]) -> None:
        q, k, v = (self._parts(each, found[t.name].narrow) for t in each.i)
        scores = self._scored(each, q, k)
        p = found[f"{each.o.name}.probabilities"] = self.held(vector.softmax(scores.values, each.scale))
        found[each.o.name] = self._mixed(each, self._shares(p.narrow), v)

    def _attention_back(
        self, each: Attention, found: dict[str, Held], dy: Held, wanted: list, learnt: dict[str, Held]
    ) -> _Back:
        q, k, v = (found[t.name] for t in each.i)
        p, d = found[f"{each.o.name}.probabilities"], self._parts(each, dy.narrow)
        made: list[Held | None] = [None, None, None]
        if wanted[0] or wanted[1]:
            dp = self._scored(each, d, self._parts(each, v.narrow))
            ds = self._shares(self.held(vector.softmax_back(p.values, dp.values, each.scale)).narrow)
            if wanted[0]:
                made[0] = self._mixed(each, ds, self._parts(each, k.narrow))
            if wanted[1]:
                made[1] = self._mixed(each, _turned(ds), self._parts(each, q.narrow))
        if wanted[2]:
            made[2] = self._mixed(each, _turned(self._shares(p.narrow)), d)
        return made

    # -- between products ----------------------------------------------------------------------------------------

    def _parameter(self, each: Parameter, found: dict[str, Held]) -> None:
        found[each.o.name] = Held(self.values[each.name].reshape(each.o.rows, -1), Counts())

    def _spread(self, each: Add | Multiply, other: Held) -> np.ndarray:
        """Which row of the second tensor each row of the result has."""
        count, rows = self.samples * each.o.rows, np.arange(self.samples * each.o.rows)
        if each.i[1].name in self.tables:
            return rows % len(other.exact)
        found: np.ndarray = rows * len(other.exact) // count
        return found

    def _add(self, each: Add, found: dict[str, Held]) -> None:
        a, b = (found[t.name] for t in each.i)
        other = (part[self._spread(each, b)] for part in parts(b.values))
        made = values(*element.add(*parts(a.values), *other, subtract=each.subtract))
        found[each.o.name] = self.held(made, positive=each.positive)

    def _add_back(self, each: Add, found: dict, dy: Held, wanted: list, learnt: dict) -> _Back:
        return [dy if want else None for want in wanted]

    def _multiply(self, each: Multiply, found: dict[str, Held]) -> None:
        a, b = (found[t.name] for t in each.i)
        found[each.o.name] = self.held(a.values * b.values[self._spread(each, b)], positive=each.positive)

    def _multiply_back(self, each: Multiply, found: dict, dy: Held, wanted: list, learnt: dict) -> _Back:
        a, b = (found[t.name] for t in each.i)
        rows = self._spread(each, b)
        return [
            self.held(dy.values * other) if want else None for want, other in zip(wanted, (b.values[rows], a.values))
        ]

    def _activation(self, each: Activation, found: dict[str, Held]) -> None:
        x = found[each.i[0].name].values
        match each.kind:
            case "relu":
                made = np.maximum(vector.scaled(x, 1.0), 0)
            case "silu":
                made = vector.silu(x)
            case _:
                made = vector.scaled(x, each.parameters[0])
        found[each.o.name] = self.held(made, positive=each.positive)

    def _activation_back(self, each: Activation, found: dict, dy: Held, wanted: list, learnt: dict) -> _Back:
        if each.kind == "relu":
            return [self.held(vector.mask(dy.values, found[each.o.name].values))]
        if each.kind == "silu":
            return [self.held(vector.silu_back(dy.values, found[each.i[0].name].values))]
        return [self.held(vector.scaled(dy.values, each.parameters[0]))]

    def _gated(self, each: Gated, found: dict[str, Held]) -> None:
        found[each.o.name] = self.held(vector.geglu(found[each.i[0].name].values))

    def _gated_back(self, each: Gated, found: dict, dy: Held, wanted: list, learnt: dict) -> _Back:
        return [self.held(vector.geglu_back(dy.values, found[each.i[0].name].values))]

    def _norm_of(self, each: Norm) -> vector.TileNorm:
        if each.layer not in self._norms:
            gain, bias = (self.values[f"{each.layer}.{name}"] for name in ("weight", "bias"))
            rows = each.o.rows if each.over_rows else 1
            self._norms[each.layer] = vector.TileNorm(gain, bias, rows=rows, groups=each.groups, eps=each.eps)
        return self._norms[each.layer]

    def _norm(self, each: Norm, found: dict[str, Held]) -> None:
        found[each.o.name] = self.held(self._norm_of(each).forward(found[each.i[0].name].values))

    def _norm_back(self, each: Norm, found: dict, dy: Held, wanted: list, learnt: dict) -> _Back:
        return [self.held(self._norm_of(each).backward(dy.values, found[each.i[0].name].values))]

    def _softmax(self, each: Softmax, found: dict[str, Held]) -> None:
        found[each.o.name] = self.held(vector.softmax(found[each.i[0].name].values, 1.0))

    def _softmax_back(self, each: Softmax, found: dict, dy: Held, wanted: list, learnt: dict) -> _Back:
        return [self.held(vector.softmax_back(found[each.o.name].values, dy.values, 1.0))]

    def _reduce(self, each: Reduce, found: dict[str, Held]) -> None:
        x, rows = found[each.i[0].name].narrow, each.i[0].rows
        chosen = np.kron(np.eye(self.samples), np.ones((1, rows)))
        total = self.summed(sums((coded(chosen, NARROW), x)))
        if each.kind == "mean":
            total = self.held(vector.scaled(total.values, 1 / rows), positive=each.positive)
        found[each.o.name] = total

    def _reduce_back(self, each: Reduce, found: dict, dy: Held, wanted: list, learnt: dict) -> _Back:
        rows = each.i[0].rows
        if each.kind == "mean":
            dy = self.held(vector.scaled(dy.values, 1 / rows))
        return [self.held(dy.values.repeat(rows, axis=0))]

    def _rearrange(self, each: Rearrange, found: dict[str, Held]) -> None:
        found[each.o.name] = found[each.i[0].name]

    def _rearrange_back(self, each: Rearrange, found: dict, dy: Held, wanted: list, learnt: dict) -> _Back:
        return [dy]

    def _upsample(self, each: Upsample, found: dict[str, Held]) -> None:
        found[each.o.name] = found[each.i[0].name]
        self.risen[each.o.name] = each.i[0]

    def _upsample_back(self, each: Upsample, found: dict, dy: Held, wanted: list, learnt: dict) -> _Back:
        (height, width), features = each.i[0].sides, each.i[0].features
        made = vector.total(dy.values, (2, 4), (-1, height, 2, width, 2, features))
        return [self.held(made.reshape(-1, features))]

    def _concat(self, each: Concat, found: dict[str, Held]) -> None:
        parts = [(found[t.name].wide, slice(0, t.features)) for t in each.i]
        found[each.o.name] = self.held(joined(*parts))

    def _concat_back(self, each: Concat, found: dict, dy: Held, wanted: list, learnt: dict) -> _Back:
        ends = np.cumsum([t.features for t in each.i])
        return [
            self.held(joined((dy.wide, slice(end - t.features, end)))) if want else None
            for t, end, want in zip(each.i, ends, wanted)
        ]


def cross_entropy(logits: np.ndarray, wanted: np.ndarray) -> float:
    """Mean cross-entropy of rows, in nats."""
    shifted = logits - logits.max(1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return float(-(wanted * logs).sum() / len(logits))


def _turned(x: Codes) -> Codes:
    return x[0].swapaxes(2, 3), x[1]
