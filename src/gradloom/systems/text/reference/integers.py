"""A training step in floating point and in bit-exact integers.

Values are arrays ``[tokens, features]`` by the names of tensors; both executions fill them in. ``tables`` has what the
step does not make: matrices, norms' weights, angles, targets, adapters.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradloom.program.descent import AdamW
from gradloom.program.operations import Reading
from gradloom.rtl.formats.vector import GATES
from gradloom.rtl.formats.weights.linear import WEIGHT, half_up
from gradloom.sim.reference import linear, vector, vector_softmax
from gradloom.sim.reference.gradient import gradient
from gradloom.sim.reference.update import adamw, update

from ..operations.base import DROP, Fracs
from ..operations.elements import Add, Biased, Gated, GatedBackward, Loss, Rope, Softmax, SoftmaxBackward
from ..operations.learnt.updates import Descent, Pack, Unpack, Update, Widen
from ..operations.products import Gradient, Product
from ..operations.scaling import Narrow, Norm, NormBackward, Scale, ScaleBackward, TokenSum
from ..operations.tensors import EDGE, Codes, MatrixRows, TensorSlice, Words
from ..stored import packed_words, unpacked_words
from . import mathematics as llama

__all__ = ["Execution", "FloatStep", "IntegerStep"]

#: Elements that the machine's vector engine sums at a time.
LANES = 8
Array = NDArray
#: ``[outputs, inputs]`` of a matrix; of a whole one by its name, of some rows of it.
Matrix = Callable[[Codes | MatrixRows], Array]


@dataclass
class Execution(Reading):
    """Common part of both executions: the values."""

    #: Tensors, h and dh as ``NAME.h``, gradients as ``NAME.ga`` and ``NAME.gb`` (``[rank, features]``).
    values: dict[str, Array]
    #: Norms' weights and targets; adapters as ``NAME.a`` and ``NAME.b`` (``[rank, inputs]``, ``[outputs, rank]``), with
    #: AdamW's moments as ``NAME.ma`` and ``NAME.mb`` (``[2, rank, features]``).
    tables: Mapping[str, Array]
    matrix: Matrix
    #: Sum of the losses, in nats, and how many tokens had one.
    loss: float = 0.0
    foretold: int = 0
    #: In floating point, how many of them are the likeliest.
    right: int = 0

    @property
    def mean_loss(self) -> float:
        """Nats a token."""
        return self.loss / max(self.foretold, 1)

    def __getitem__(self, part: TensorSlice) -> Array:
        return part.of(self.values[part.name])

    def __setitem__(self, part: TensorSlice, words: Array) -> None:
        tensor = part.tensor
        if tensor.name not in self.values or self.values[tensor.name].shape != (tensor.rows, tensor.features):
            self.values[tensor.name] = np.zeros((tensor.rows, tensor.features), words.dtype)
        part.put(self.values[tensor.name], words)

    def _hide(self, operation: Product, h: Array) -> None:
        """Keeps h, a row a row of the product's input."""
        name, rows = operation.hidden, operation.x.tensor.rows
        if name not in self.values or self.values[name].shape != (rows, h.shape[1]):
            self.values[name] = np.zeros((rows, h.shape[1]), h.dtype)
        self.values[name][operation.x.where[0]] = h

    def _beside(self, name: str, part: TensorSlice) -> Array:
        """Rows of h beside those of a tensor."""
        return self.values[name][part.where[0]]

    def _targets(self, operation: Loss) -> Array:
        """Those of its rows."""
        whole, _, first = operation.targets.partition("@")
        return self.tables[whole][int(first or 0) :][: operation.logits.rows]

    def _panel(self, operation: Product) -> Array:
        """The matrix of a product as ``[outputs, inputs]`` of the result."""
        if not isinstance(operation.weight, Words):
            w = self.matrix(operation.weight)
            return (w.T if operation.backward else w)[: EDGE * operation.y.count]
        tiles = []
        for part in operation.weight.tiles:
            words = self[part]
            padded = np.zeros((EDGE, EDGE), words.dtype)
            padded[: len(words)] = words
            tiles.append(padded.T if operation.backward else padded)
        inner, outer = operation.x.count, operation.y.count
        return np.block([[tiles[out * inner + place] for place in range(inner)] for out in range(outer)])

    def _weight(self, name: str) -> Array:
        """A norm's: of a table, or made by the step."""
        return self.tables[name] if name in self.tables else self.values[name][0]

    def _causal(self, operation: Softmax) -> Array:
        tokens = operation.s.rows
        return np.arange(EDGE * operation.s.count)[None] <= operation.limit + np.arange(tokens)[:, None]


def _unturned(kind: str) -> tuple[Array, Array]:
    """Of a step without positions."""
    raise ValueError(f"kind={kind}: the step has no positions")


@dataclass
class FloatStep(Execution):
    """A step in float64.

    Norms' weights are given without ``sqrt(features)``.
    """

    #: Cosines and sines of the positions, each ``[tokens, head_dim / 2]``, by kind of layers.
    turns: Callable[[str], tuple[Array, Array]] = _unturned

    def _product(self, operation: Product) -> None:
        x = self[operation.x]
        y = x @ self._panel(operation).T
        if operation.adapter is not None:
            a, b = (self.tables[f"{operation.adapter.name}.{each}"] for each in "ab")
            first, second = (b, a) if operation.backward else (a.T, b.T)
            h = x @ first
            self._hide(operation, h)
            y = y + h @ second[:, : y.shape[1]]
        self[operation.y] = y * 2.0**operation.lift

    def _gradient(self, operation: Gradient) -> None:
        name = operation.adapter.name
        for which, (h, part) in operation.sources.items():
            self.values[operation.made(which)] = self._beside(f"{name}.{h}", part).T @ self[part]

    def _widen(self, operation: Widen) -> None:
        self[operation.y] = -self[operation.x]
        self.tables = {**self.tables, operation.y.name: self[operation.y].T}

    def _update(self, operation: Update) -> None:
        """Left to who asks: nothing of a step needs it."""

    def _descent(self, operation: Descent) -> None:
        """Likewise."""

    def _unpack(self, operation: Unpack) -> None:
        """Nothing: floats are not stored otherwise."""

    _pack = _unpack

    def _weight(self, name: str) -> Array:
        """Without ``sqrt(features)``, which what the step makes has."""
        weight = super()._weight(name)
        return weight if name in self.tables else weight / math.sqrt(len(weight))

    def _norm(self, operation: Norm) -> None:
        self[operation.y] = llama.rms_norm(self[operation.x], self._weight(operation.weight), operation.eps)

    def _normbackward(self, operation: NormBackward) -> None:
        dy, x = self[operation.dy], self[operation.x]
        dx = llama.rms_norm_backward(dy, x, self._weight(operation.weight), operation.eps)
        self[operation.dx] = dx if operation.residual is None else dx + self[operation.residual]
        if operation.u is not None:
            self[operation.u] = llama.rms_norm_gain(dy, x, operation.eps) / math.sqrt(x.shape[1])

    def _narrow(self, operation: Narrow) -> None:
        self[operation.y] = self[operation.words] * operation.gain.value

    def _scale(self, operation: Scale) -> None:
        self[operation.y] = self[operation.x] * self[operation.factors]

    def _scalebackward(self, operation: ScaleBackward) -> None:
        dy = self[operation.dy]
        self[operation.dx], self[operation.u] = dy * self[operation.factors], dy * self[operation.x]

    def _tokensum(self, operation: TokenSum) -> None:
        self[operation.y] = operation.gain.value * self[operation.x].sum(axis=0, keepdims=True)

    def _add(self, operation: Add) -> None:
        self[operation.y] = self[operation.a] + self[operation.b]

    def _biased(self, operation: Biased) -> None:
        self[operation.y] = self[operation.x] + self.tables[operation.bias][operation.b.where[1]]

    def _rope(self, operation: Rope) -> None:
        x = self[operation.x]
        rows, _ = operation.x.where
        cos, sin = (each[rows] for each in operation.angles.turns(self.turns(operation.angles.kind)))
        tiles = x.reshape(len(x), -1, operation.angles.tiles, EDGE)
        turned = llama.rope(tiles, cos, -sin if operation.turn else sin)
        self[operation.y] = turned.reshape(x.shape)

    def _gated(self, operation: Gated) -> None:
        self[operation.y] = llama.gated(self[operation.gate], self[operation.up], operation.kind)

    def _gatedbackward(self, operation: GatedBackward) -> None:
        self[operation.dgate], self[operation.dup] = llama.gated_backward(
            self[operation.dy], self[operation.gate], self[operation.up], operation.kind
        )

    def _softmax(self, operation: Softmax) -> None:
        self[operation.p] = _power(np.where(self._causal(operation), self[operation.s], -np.inf))[0]

    def _softmaxbackward(self, operation: SoftmaxBackward) -> None:
        p, dp, (y, dy) = self[operation.p], self[operation.dp], (self[each] for each in operation.summed)
        self[operation.ds] = p * (dp - (y * dy).sum(axis=1, keepdims=True))

    def _loss(self, operation: Loss) -> None:
        targets, logits = self._targets(operation), self[operation.logits].copy()
        logits[:, operation.vocab :] = -np.inf
        p, high = _power(logits)
        rows = np.flatnonzero(targets >= 0)
        self.right += int((logits[rows].argmax(axis=1) == targets[rows]).sum())
        at = rows, targets[rows]
        self.loss += float((high[rows, 0] - logits[at]).sum() * math.log(2))
        self.foretold += len(rows)
        p[at] -= 1
        p[targets < 0] = 0
        self[operation.d] = p


def _power(s: Array) -> tuple[Array, Array]:
    """``2**s`` over its sum, and the logarithm of that sum."""
    high = s.max(axis=1, keepdims=True)
    p = np.exp2(s - high)
    total = p.sum(axis=1, keepdims=True)
    return p / total, high + np.log2(total)


@dataclass
class IntegerStep(Execution):
    """A step in words.

    Tables are words too: norms' weights of 18 bits, angles by name, adapters of 32 bits.
    """

    frac: Fracs = field(default_factory=dict)
    #: Words that were clipped.
    saturated: int = 0
    #: The loss as the machine has it.
    units: int = 0

    def _product(self, operation: Product) -> None:
        adapter, x, shifts = operation.adapter, self[operation.x], operation.shifts(self.frac)
        w = self._panel(operation)
        if isinstance(operation.weight, Words):
            if len({self.frac[part.name] for part in operation.weight.tiles}) > 1:
                raise ValueError(f"{operation.y.name}: the tiles of its matrix have different fraction bits")
            w = np.minimum(half_up(w, DROP), WEIGHT.hi)
        if adapter is None:
            a, b = np.zeros((0, w.shape[1]), np.int64), np.zeros((len(w), 0), np.int64)
        else:
            a, b = (linear.lanes(self.tables[f"{adapter.name}.{each}"]) for each in "ab")
            if operation.backward:
                a, b = b.T, a.T
            b = b[: len(w)]
        made = linear.product(x, w, a, b, **shifts)
        self.saturated += made.saturated
        if adapter is not None:
            self._hide(operation, made.h)
        self[operation.y] = made.y

    def _gradient(self, operation: Gradient) -> None:
        name, shifts = operation.adapter.name, operation.shifts(self.frac)
        for which, (h, part) in operation.sources.items():
            made, lost = gradient(self[part], self._beside(f"{name}.{h}", part), shift=shifts[which])
            self.values[operation.made(which)] = made
            self.saturated += lost

    def _widen(self, operation: Widen) -> None:
        x = self[operation.x]
        self[operation.y], lost = update(np.zeros_like(x), x, **operation.command)
        self.tables = {**self.tables, operation.y.name: self[operation.y].T}
        self.saturated += lost

    def _update(self, operation: Update) -> None:
        name = operation.adapter.name
        for (_, rule), (which, _, _, operands) in zip(operation.ruled, operation.parts(self.frac)):
            words, g = self.tables[f"{name}.{which}"], self.values[operation.gradient(which)]
            words = words.T if which == "b" else words
            if isinstance(rule, AdamW):
                first, second = self.tables[f"{name}.m{which}"]
                words, m, v, lost = adamw(words, g, first, second, **operands)
                self.values[f"{name}.m{which}"] = np.stack([m, v])
            else:
                words, lost = update(words, g, **operands)
            self.values[f"{name}.{which}"] = words
            self.saturated += lost

    def _descent(self, operation: Descent) -> None:
        words, g, (_, operands) = self[operation.words], self[operation.gradient], operation.command(self.frac)
        if isinstance(operation.rule, AdamW):
            first, second = self.tables[operation.moments]
            words, m, v, lost = adamw(words, g, first, second, **operands)
            self.values[operation.moments] = np.stack([m, v])
        else:
            words, lost = update(words, g, **operands)
        self[operation.words] = words
        self.saturated += lost

    def _unpack(self, operation: Unpack) -> None:
        made = {}
        for each in operation.tensors():
            words, lost = unpacked_words(each, self.tables[each.packed])
            made[each.name] = words.T if each.name.endswith(".b") else words
            self.saturated += lost
        self.tables = {**self.tables, **made}

    def _pack(self, operation: Pack) -> None:
        for each in operation.tensors():
            self.values[each.packed] = packed_words(each, self.values[each.name], operation.number)

    def _kept(self, part: TensorSlice, made: vector.VectorTensor) -> None:
        self[part] = made.words
        self.saturated += made.saturated

    def _norm(self, operation: Norm) -> None:
        x = self[operation.x]
        root = vector.roots(x, **operation.epsilon(self.frac))
        weight = self._weight(operation.weight)
        self._kept(operation.y, vector.rms_norm(x, weight, root, **operation.shifts(self.frac)))

    def _normbackward(self, operation: NormBackward) -> None:
        x, dy, weight = self[operation.x], self[operation.dy], self._weight(operation.weight)
        shifts = operation.shifts(self.frac)
        sums, result = shifts["sums"], dict(shifts["result"])
        root = vector.backward_roots(dy, x, weight, right=sums["right"], **operation.epsilon(self.frac))
        self.saturated += root.saturated
        if operation.u is not None:
            self._kept(operation.u, vector.rms_norm_gain(dy, x, root, shift=result.pop("second_shift")))
            # The second of two results has the second shift of its term.
            result["left"] = result.pop("right")
        if operation.residual is not None:
            made = vector.rms_norm_backward_add(dy, x, weight, root, self[operation.residual], **result)
        else:
            made = vector.rms_norm_backward(dy, x, weight, root, **result)
        self._kept(operation.dx, made)

    def _narrow(self, operation: Narrow) -> None:
        factor = operation.gain.word
        self._kept(operation.y, vector.scale(self[operation.words], factor, **operation.shifts(self.frac)))

    def _scale(self, operation: Scale) -> None:
        made = vector.scale(self[operation.x], self[operation.factors], **operation.shifts(self.frac))
        self._kept(operation.y, made)

    def _scalebackward(self, operation: ScaleBackward) -> None:
        made = vector.scale_backward(
            self[operation.dy], self[operation.x], self[operation.factors], **operation.shifts(self.frac)
        )
        for part, each in zip((operation.dx, operation.u), made):
            self._kept(part, each)

    def _tokensum(self, operation: TokenSum) -> None:
        x = self[operation.x]
        h = np.full((len(x), 1), operation.gain.word << DROP)
        made, lost = gradient(x, h, **operation.shifts(self.frac))
        self[operation.y] = made
        self.saturated += lost

    def _add(self, operation: Add) -> None:
        self._kept(
            operation.y,
            vector.add(
                self[operation.a], self[operation.b], wide=operation.y.tensor.wide, **operation.shifts(self.frac)
            ),
        )

    def _biased(self, operation: Biased) -> None:
        bias = self.tables[operation.b.name][operation.b.where]
        self._kept(operation.y, vector.add(self[operation.x], bias, wide=False, **operation.shifts(self.frac)))

    def _rope(self, operation: Rope) -> None:
        x = self[operation.x]
        heads = x.reshape(len(x), -1, operation.angles.tiles, EDGE)
        table = self.tables[operation.angles.name][operation.x.where[0]].reshape(len(x), -1, EDGE)
        cos, sin = np.split(table, 2, axis=2)
        made = vector.rope(heads, cos[:, None], sin[:, None], turn=operation.turn, **operation.shifts(self.frac))
        self[operation.y] = made.words.reshape(x.shape)
        self.saturated += made.saturated

    def _gated(self, operation: Gated) -> None:
        shifts, tables = operation.shifts(self.frac), GATES[operation.kind]
        self._kept(operation.y, vector.swiglu(self[operation.gate], self[operation.up], tables, **shifts))

    def _gatedbackward(self, operation: GatedBackward) -> None:
        made = vector.swiglu_backward(
            self[operation.dy],
            self[operation.gate],
            self[operation.up],
            GATES[operation.kind],
            **operation.shifts(self.frac),
        )
        for part, each in zip((operation.dgate, operation.dup), made):
            self._kept(part, each)

    def _softmax(self, operation: Softmax) -> None:
        shifts = operation.shifts(self.frac)
        masks: dict[str, Any] = {"gate_shift": shifts["gate_shift"], "limit": operation.limit, "causal": True}
        level = vector_softmax.levels(self[operation.s], lanes=LANES, **masks)
        self._kept(operation.p, vector_softmax.softmax(self[operation.s], level, shift=shifts["shift"], **masks))

    def _softmaxbackward(self, operation: SoftmaxBackward) -> None:
        p, dp, shifts = self[operation.p], self[operation.dp], operation.shifts(self.frac)
        pull = vector_softmax.pulled(*(self[each] for each in operation.summed), **shifts["sums"])
        self.saturated += pull.saturated
        self._kept(operation.ds, vector_softmax.softmax_backward(p, dp, pull.words, **shifts["result"]))

    def _loss(self, operation: Loss) -> None:
        shifts = operation.shifts(self.frac)
        masks: dict[str, Any] = {"gate_shift": shifts["gate_shift"], "limit": operation.vocab - 1}
        logits, targets = self[operation.logits], self._targets(operation)
        level = vector_softmax.levels(logits, lanes=LANES, **masks)
        made = vector_softmax.softmax(logits, level, targets=targets, shift=shifts["shift"], **masks)
        self._kept(operation.d, made)
        self.units, self.foretold = self.units + made.loss, self.foretold + made.counted
        self.loss = self.units * 2.0**-16 * math.log(2)
