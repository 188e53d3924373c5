"""A LLaMA model with LoRA in floating point, its losses and gradients.

Shapes: ``T`` tokens of one text are the rows of every matrix; weights are ``[out, in]`` and a linear is ``x @ W.T``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gradloom.models.adapters.language.lora_xs import CoreAdapter
from gradloom.models.adapters.language.vectors import Vector
from gradloom.models.adapters.lora import Adapter, LearntModule, lowest_layer
from gradloom.models.language import BIASED, EMBEDDING, HEAD, HEAD_NORMS, NORM, PROJECTIONS, LanguageModel

from .drawn import Draw
from .mathematics import (
    Array,
    attention,
    attention_backward,
    cross_entropy,
    foretold_share,
    gated,
    gated_backward,
    linear,
    linear_backward,
    rms_norm,
    rms_norm_backward,
    rms_norm_gain,
    rope,
)

__all__ = ["FloatLinears", "FloatModel", "KeyValueCache", "Llama", "greedy"]

#: The norm behind the last layer.
_LAST = NORM.removesuffix(".weight")
#: Of this linear, (IA)³ multiplies the inputs.
_BEFORE = ".down_proj"


class FloatLinears:
    """The linears of a model in floating point, by Hugging Face's names.

    ``x [T, in]``, ``dy [T, out]``.
    """

    def __init__(self, weights: Mapping[str, Array]) -> None:
        self.weights = weights

    def forward(self, name: str, x: Array, adapter: Adapter | None) -> Array:
        """See :func:`linear`."""
        return linear(x, self.weights[name], adapter)

    def backward(
        self, name: str, dy: Array, x: Array, adapter: Adapter | None
    ) -> tuple[Array, tuple[Array, Array] | None]:
        """See :func:`linear_backward`."""
        return linear_backward(dy, x, self.weights[name], adapter)


class KeyValueCache:
    """Keys and values of the tokens so far, by layer."""

    def __init__(self) -> None:
        self.count = 0
        self._held: dict[int, tuple[Array, Array]] = {}

    def extend(self, layer: int, k: Array, v: Array) -> tuple[Array, Array]:
        """All keys and values of a layer, with those of further tokens."""
        if layer in self._held:
            k, v = (np.concatenate(pair) for pair in zip(self._held[layer], (k, v)))
        self._held[layer] = k, v
        return k, v


@dataclass
class _Layer:
    """Values of a layer for its backward pass."""

    x: Array
    attended: Array
    #: Heads of queries and keys in front of their norms, by projection.
    plain: dict[str, Array]
    q: Array
    k: Array
    v: Array
    weights: Array
    context: Array
    o: Array
    middle: Array
    fed: Array
    gate: Array
    up: Array
    product: Array
    down: Array


class FloatModel(Protocol):
    """Losses and gradients of a text.

    :class:`Llama` has them, and what stands in for it.
    """

    model: LanguageModel

    def loss(
        self, tokens: Sequence[int], adapters: Mapping[str, LearntModule] | None = None, entry: Array | None = None
    ) -> float:
        """Mean cross-entropy of the text, in nats a token."""
        ...

    def entering(self, layer: int, tokens: Sequence[int], start: tuple[int, Array] | None = None) -> Array:
        """Input of a layer where none before it has an adapter."""
        ...

    def gradients(
        self, tokens: Sequence[int], adapters: Mapping[str, LearntModule], entry: Array | None = None
    ) -> tuple[float, dict[str, tuple[Array, ...]]]:
        """The loss, and the gradients of all parts of every adapter."""
        ...


class Llama:
    """The model with frozen weights.

    Parameters
    ----------
    model : LanguageModel
    tensor : callable
        A tensor by Hugging Face's name, as checkpoints and packed models give them.
    dtype : numpy type
        Of all arithmetic.
    layers : int, optional
        Use only so many of the first layers.
    linears : FloatLinears, optional
        What computes the linears; by default plain ones of the same tensors.
    """

    def __init__(
        self,
        model: LanguageModel,
        tensor: Callable[[str], Array],
        *,
        dtype: Any = np.float32,
        layers: int | None = None,
        linears: FloatLinears | None = None,
    ) -> None:
        self.model = model
        self.layers = model.layers if layers is None else layers
        if not 1 <= self.layers <= model.layers:
            raise ValueError(f"layers={layers}: must be from 1 to {model.layers}")
        self.dtype = np.dtype(dtype)

        def read(name: str) -> Array:
            return np.ascontiguousarray(tensor(name), self.dtype)

        self.embedding = read(EMBEDDING)
        self.head = self.embedding if model.tied else read(HEAD)
        self.norm = read(NORM)
        self.norms = {
            name: read(f"{name}.weight")
            for i in range(self.layers)
            for name in (f"model.layers.{i}.{norm}" for norm in model.layer_norms)
        } | {_LAST: self.norm}
        #: Names of a layer's norms by their place.
        self._places = {place: norm for norm, place in model.layer_norms.items()}
        #: Names of the linears in use.
        self.names = [self.name(i, projection) for i in range(self.layers) for projection in PROJECTIONS]
        self.biases = {name: read(f"{name}.bias") for name in self.names if model.biases and name.endswith(BIASED)}
        #: Weights of norms of heads, by the linears in front of them.
        self.head_norms = {
            self.name(i, linear): read(f"{self.name(i, norm)}.weight")
            for i in range(self.layers if model.normed else 0)
            for linear, norm in HEAD_NORMS.items()
        }
        self.linears = linears or FloatLinears({name: read(f"{name}.weight") for name in self.names})

    @staticmethod
    def name(layer: int, projection: str) -> str:
        """Hugging Face's name of a projection of a layer, or of a norm of its heads."""
        return f"model.layers.{layer}.{PROJECTIONS.get(projection, 'self_attn')}.{projection}"

    def logits(self, tokens: Sequence[int] | Array, adapters: Mapping[str, LearntModule] | None = None) -> Array:
        """``[T, vocab]``: what each token makes the model expect next."""
        return self._forward(self._checked(tokens), adapters or {})[0]

    def last_normed(self, tokens: Sequence[int] | Array) -> Array:
        """``[T, hidden]``: what the head multiplies."""
        x = self.entering(self.layers, tokens)
        return self._norm(_LAST, x, {})

    def expect(
        self, tokens: Sequence[int] | Array, cache: KeyValueCache, adapters: Mapping[str, LearntModule] | None = None
    ) -> Array:
        """Logits of the token after ``tokens``, ``[vocab]``.

        The tokens follow those in ``cache`` and join them.
        """
        ids = self._checked(tokens)
        if cache.count + len(ids) > self.model.context:
            raise ValueError(
                f"tokens={cache.count + len(ids)}: a text has 1 to {self.model.context} (the model's context)"
            )
        x = self.embedding[ids]
        beside = np.zeros_like(x)
        for i in range(self.layers):
            x, kept = self._layer(i, x, adapters or {}, cache)
            beside += self.beside(i, kept.attended)
        cache.count += len(ids)
        return self._norm(_LAST, x[-1:] + beside[-1:], adapters or {})[0] @ self.head.T

    def beside(self, layer: int, attended: Array) -> Array:
        """Addition of a layer to the output of the last layer: nothing.

        The argument is the layer's input behind its first norm; the result is added to the residual stream behind the
        last layer.
        """
        return np.zeros_like(attended)

    def loss(
        self,
        tokens: Sequence[int] | Array,
        adapters: Mapping[str, LearntModule] | None = None,
        entry: Array | None = None,
    ) -> float:
        """Mean cross-entropy of the text, in nats a token that is learnt.

        ``entry``: input of the lowest layer with an adapter, if it is known already.
        """
        ids = self._checked(tokens)
        first = lowest_layer(adapters) if adapters and entry is not None else 0
        return cross_entropy(self._forward(ids, adapters or {}, first, entry)[0], tokens)[0]

    def score(
        self, tokens: Sequence[int] | Array, adapters: Mapping[str, LearntModule] | None = None
    ) -> dict[str, float]:
        """``loss`` of a text, and ``accuracy``: the share of learnt tokens that are the likeliest."""
        logits = self.logits(tokens, adapters)
        return {"loss": cross_entropy(logits, tokens)[0], "accuracy": foretold_share(logits, tokens)}

    def entering(self, layer: int, tokens: Sequence[int] | Array, start: tuple[int, Array] | None = None) -> Array:
        """Input of a layer where none before it has an adapter.

        It is ``[T, hidden]``. ``start``: a layer before it, and the input of that one, if they are known already.
        """
        ids = self._checked(tokens)
        first, x = start or (0, self.embedding[ids])
        for i in range(first, layer):
            x, _ = self._layer(i, x, {})
        return x

    def gradients(
        self, tokens: Sequence[int] | Array, adapters: Mapping[str, LearntModule], entry: Array | None = None
    ) -> tuple[float, dict[str, tuple[Array, ...]]]:
        """The loss, and ``(dA, dB)`` of every adapter, ``(dw,)`` of a vector.

        ``entry``: input of the lowest layer with an adapter, if it is known already.
        """
        ids = self._checked(tokens)
        unknown = sorted(set(adapters) - {*self.names, *self.norms})
        if unknown:
            raise ValueError(f"adapters has {unknown[0]}: no linear or norm of the {self.layers} layers in use")
        lowest = lowest_layer(adapters) if adapters else self.layers
        logits, x, kept = self._forward(ids, adapters, 0 if entry is None else lowest, entry)
        loss, dlogits = cross_entropy(logits, tokens)
        gradients: dict[str, tuple[Array, ...]] = {}
        dx = self._norm_backward(_LAST, dlogits @ self.head, x, adapters, gradients)
        for i in reversed(range(lowest, self.layers)):
            dx = self._layer_backward(i, dx, kept.pop(), adapters, gradients)
        return loss, gradients

    def _checked(self, tokens: Sequence[int] | Array) -> Array:
        ids = np.asarray(tokens)
        if ids.ndim != 1 or not 1 <= ids.size <= self.model.context:
            raise ValueError(f"tokens={ids.size}: a text has 1 to {self.model.context} (the model's context)")
        if ids.dtype.kind not in "iu" or ids.min() < 0 or ids.max() >= self.model.vocab:
            raise ValueError(
                f"token={ids.max() if ids.min() >= 0 else ids.min()}: must be an integer from 0 to "
                f"{self.model.vocab - 1}"
            )
        return ids

    def _heads(self, x: Array) -> Array:
        return x.reshape(len(x), -1, self.model.head_dim)

    def _angles(self, layer: int, count: int, start: int = 0) -> tuple[Array, Array]:
        cos, sin = self.model.turns(count, start, self.model.kind(layer))
        return cos.astype(self.dtype), sin.astype(self.dtype)

    def _turned(self, x: Array, cos: Array, sin: Array) -> Array:
        """Heads turned by angles."""
        places = self.model.places
        return rope(x, cos, sin) if places is None else rope(x[..., places], cos, sin)[..., np.argsort(places)]

    def _forward(
        self, ids: Array, adapters: Mapping[str, LearntModule], first: int = 0, entry: Array | None = None
    ) -> tuple[Array, Array, list[_Layer]]:
        x = self.embedding[ids] if entry is None else entry
        kept, beside = [], np.zeros_like(x)
        for i in range(first, self.layers):
            x, layer = self._layer(i, x, adapters)
            kept.append(layer)
            beside += self.beside(i, layer.attended)
        x = x + beside
        return self._norm(_LAST, x, adapters) @ self.head.T, x, kept

    def _norm(self, name: str, x: Array, adapters: Mapping[str, LearntModule]) -> Array:
        return rms_norm(x, self._weight(name, adapters), self.model.norm_eps)

    def _weight(self, name: str, adapters: Mapping[str, LearntModule]) -> Array:
        """Of a norm, learnt or the model's own."""
        learnt = adapters.get(name)
        return self.norms[name] if learnt is None else learnt.parts["w"]

    def _norm_backward(
        self,
        name: str,
        dy: Array,
        x: Array,
        adapters: Mapping[str, LearntModule],
        gradients: dict[str, tuple[Array, ...]],
    ) -> Array:
        eps = self.model.norm_eps
        if name in adapters:
            gradients[name] = (rms_norm_gain(dy, x, eps).sum(axis=0),)
        return rms_norm_backward(dy, x, self._weight(name, adapters), eps)

    def _layer(
        self, i: int, x: Array, adapters: Mapping[str, LearntModule], cache: KeyValueCache | None = None
    ) -> tuple[Array, _Layer]:
        def through(projection: str, value: Array) -> Array:
            name = self.name(i, projection)
            return self._forward_linear(name, value, adapters.get(name))

        angles = self._angles(i, len(x), cache.count if cache else 0)
        attended = self._placed(i, "norm1", x, adapters)
        plain = {name: self._heads(through(name, attended)) for name in HEAD_NORMS}
        q, k = (self._turned(self._normed(i, name, heads), *angles) for name, heads in plain.items())
        v = self._heads(through("v_proj", attended))
        if cache is not None:
            k, v = cache.extend(i, k, v)
        context, weights = attention(q, k, v, self.model.score_factor)
        context = context.reshape(len(x), -1)
        o = through("o_proj", context)
        middle = x + self._placed(i, "norm3", o, adapters)
        fed = self._placed(i, "norm2", middle, adapters)
        gate, up = through("gate_proj", fed), through("up_proj", fed)
        product = gated(gate, up, self.model.gate)
        down = through("down_proj", product)
        y = middle + self._placed(i, "norm4", down, adapters)
        return y, _Layer(x, attended, plain, q, k, v, weights, context, o, middle, fed, gate, up, product, down)

    def _placed(self, i: int, place: str, x: Array, adapters: Mapping[str, LearntModule]) -> Array:
        """x behind a layer's norm of a place, if there is one."""
        norm = self._places.get(place)
        return x if norm is None else self._norm(f"model.layers.{i}.{norm}", x, adapters)

    def _normed(self, layer: int, projection: str, heads: Array) -> Array:
        """Heads behind their norm, if they have one."""
        weight = self.head_norms.get(self.name(layer, projection))
        if weight is None:
            return heads
        return rms_norm(heads.reshape(len(heads), -1, len(weight)), weight, self.model.head_eps).reshape(heads.shape)

    def _forward_linear(self, name: str, x: Array, learnt: LearntModule | None) -> Array:
        """A linear with what learns beside it.

        A vector multiplies outputs, or inputs of ``down_proj``.
        """
        if isinstance(learnt, CoreAdapter):
            learnt = learnt.plain
        if not isinstance(learnt, Vector):
            assert learnt is None or isinstance(learnt, Adapter)
            return self._frozen(name, x, learnt)
        if name.endswith(_BEFORE):
            return self._frozen(name, x * learnt.values)
        return self._frozen(name, x) * learnt.values

    def _frozen(self, name: str, x: Array, adapter: Adapter | None = None) -> Array:
        """A linear with its bias, if it has one."""
        y = self.linears.forward(name, x, adapter)
        return y + self.biases[name] if name in self.biases else y

    def _backward_linear(
        self, name: str, dy: Array, x: Array, learnt: LearntModule | None
    ) -> tuple[Array, tuple[Array, ...] | None]:
        if isinstance(learnt, CoreAdapter):
            dx, found = self.linears.backward(name, dy, x, learnt.plain)
            assert found is not None
            return dx, (learnt.b.T @ found[1],)
        if not isinstance(learnt, Vector):
            assert learnt is None or isinstance(learnt, Adapter)
            return self.linears.backward(name, dy, x, learnt)
        if name.endswith(_BEFORE):
            dx, _ = self.linears.backward(name, dy, x * learnt.values, None)
            return dx * learnt.values, ((dx * x).sum(axis=0),)
        gradient = (dy * self._frozen(name, x)).sum(axis=0)
        return self.linears.backward(name, dy * learnt.values, x, None)[0], (gradient,)

    def _layer_backward(
        self,
        i: int,
        dy: Array,
        kept: _Layer,
        adapters: Mapping[str, LearntModule],
        gradients: dict[str, tuple[Array, ...]],
    ) -> Array:
        def back(projection: str, gradient: Array, value: Array) -> Array:
            name = self.name(i, projection)
            dx, found = self._backward_linear(name, gradient, value, adapters.get(name))
            if found is not None:
                gradients[name] = found
            return dx

        cos, sin = self._angles(i, len(dy))

        def turned_back(projection: str, d: Array) -> Array:
            d, weight = self._turned(d, cos, -sin), self.head_norms.get(self.name(i, projection))
            if weight is None:
                return d
            together, x = (each.reshape(len(d), -1, len(weight)) for each in (d, kept.plain[projection]))
            return rms_norm_backward(together, x, weight, self.model.head_eps).reshape(d.shape)

        def placed(place: str, d: Array, x: Array) -> Array:
            norm = self._places.get(place)
            return d if norm is None else self._norm_backward(f"model.layers.{i}.{norm}", d, x, adapters, gradients)

        dproduct = back("down_proj", placed("norm4", dy, kept.down), kept.product)
        dgate, dup = gated_backward(dproduct, kept.gate, kept.up, self.model.gate)
        dfed = back("gate_proj", dgate, kept.fed) + back("up_proj", dup, kept.fed)
        dmiddle = dy + placed("norm2", dfed, kept.middle)
        dcontext = self._heads(back("o_proj", placed("norm3", dmiddle, kept.o), kept.context))
        dq, dk, dv = attention_backward(dcontext, kept.q, kept.k, kept.v, kept.weights, self.model.score_factor)
        dattended = sum(
            (
                back(name, d.reshape(len(dy), -1), kept.attended)
                for name, d in (
                    ("q_proj", turned_back("q_proj", dq)),
                    ("k_proj", turned_back("k_proj", dk)),
                    ("v_proj", dv),
                )
            ),
            np.zeros_like(dy),
        )
        return dmiddle + placed("norm1", dattended, kept.x)


def greedy(
    llama: Llama,
    prompt: Sequence[int],
    count: int,
    *,
    adapters: Mapping[str, LearntModule] | None = None,
    ends: frozenset[int] = frozenset(),
    draw: Callable[[np.ndarray], int] | None = None,
) -> Iterator[int]:
    """At most ``count`` tokens that follow ``prompt``, each the likeliest, or chosen of its logits by ``draw``.

    Of equals it is the lowest. One of ``ends`` is the last and is not given.
    """
    cache, fresh, draw = KeyValueCache(), list(prompt), draw or Draw()
    for _ in range(count):
        token = draw(llama.expect(fresh, cache, adapters))
        if token in ends:
            return
        yield token
        fresh = [token]
