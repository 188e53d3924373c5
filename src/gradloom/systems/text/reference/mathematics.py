"""Mathematics of a LLaMA model's operations in floating point.

Shapes: ``T`` tokens of one text are the rows of every matrix; weights are ``[out, in]`` and a linear is ``x @ W.T``.
Each operation has its backward beside it, written out, so that an integer version can mirror it.
"""

import math
from collections.abc import Sequence

import numpy as np

from gradloom.models.adapters.lora import Adapter
from gradloom.models.texts.example import targets_of

__all__ = [
    "GATES",
    "attention",
    "attention_backward",
    "cross_entropy",
    "foretold_share",
    "gated",
    "gated_backward",
    "linear",
    "linear_backward",
    "rms_norm",
    "rms_norm_backward",
    "rms_norm_gain",
    "rope",
]

Array = np.ndarray


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    """``weight · x / sqrt(mean(x²) + eps)`` of each row."""
    return weight * (x * _inverse_rms(x, eps))


def rms_norm_gain(dy: Array, x: Array, eps: float) -> Array:
    """``dy · x / sqrt(mean(x²) + eps)``.

    Its sum over rows is the gradient of the weight.
    """
    return dy * (x * _inverse_rms(x, eps))


def rms_norm_backward(dy: Array, x: Array, weight: Array, eps: float) -> Array:
    """Gradient of x."""
    inverse = _inverse_rms(x, eps)
    scaled = dy * weight
    return inverse * (scaled - x * (np.square(inverse) * np.mean(scaled * x, axis=-1, keepdims=True)))


def _inverse_rms(x: Array, eps: float) -> Array:
    return 1 / np.sqrt(np.mean(np.square(x), axis=-1, keepdims=True) + x.dtype.type(eps))


def rope(x: Array, cos: Array, sin: Array) -> Array:
    """Rotates element i of each head with element i + head_dim / 2.

    ``x [T, heads, head_dim]``.

    Its backward is the turn by ``-sin``.
    """
    first, second = np.split(x, 2, axis=-1)
    cos, sin = cos[:, None], sin[:, None]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def attention(q: Array, k: Array, v: Array, factor: float) -> tuple[Array, Array]:
    """Causal attention; the queries are the last T of S tokens.

    ``q [T, heads, d]``, ``k`` and ``v [S, kv_heads, d]``; each of these serves ``heads / kv_heads`` neighbouring query
    heads.

    Returns ``(context [T, heads, d], probabilities [kv_heads, group, T, S])``.
    """
    count, heads, d = q.shape
    grouped = q.reshape(count, k.shape[1], -1, d).transpose(1, 2, 0, 3)
    scores = grouped @ k.transpose(1, 2, 0)[:, None] * q.dtype.type(factor)
    scores = np.where(np.tri(count, len(k), len(k) - count, dtype=bool), scores, q.dtype.type(-np.inf))
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    context = weights @ v.transpose(1, 0, 2)[:, None]
    return context.transpose(2, 0, 1, 3).reshape(count, heads, d), weights


def attention_backward(
    dy: Array, q: Array, k: Array, v: Array, weights: Array, factor: float
) -> tuple[Array, Array, Array]:
    """``(dq, dk, dv)`` of attention.

    They follow from the gradient of the context and the probabilities.
    """
    count, heads, d = q.shape
    kv = k.shape[1]
    grouped, dgrouped = (x.reshape(count, kv, -1, d).transpose(1, 2, 0, 3) for x in (q, dy))
    dweights = dgrouped @ v.transpose(1, 2, 0)[:, None]
    dv = (weights.swapaxes(-1, -2) @ dgrouped).sum(axis=1)
    dscores = weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True)) * q.dtype.type(factor)
    dq = dscores @ k.transpose(1, 0, 2)[:, None]
    dk = (dscores.swapaxes(-1, -2) @ grouped).sum(axis=1)
    return dq.transpose(2, 0, 1, 3).reshape(count, heads, d), dk.transpose(1, 0, 2), dv.transpose(1, 0, 2)


def gated(gate: Array, up: Array, kind: str) -> Array:
    """``f(gate) · up``; ``kind`` of :data:`GATES`."""
    return gate * GATES[kind](gate)[0] * up


def gated_backward(dy: Array, gate: Array, up: Array, kind: str) -> tuple[Array, Array]:
    """``(dgate, dup)``."""
    factor, slope = GATES[kind](gate)
    return dy * up * (factor + gate * slope), dy * gate * factor


def _silu(x: Array) -> tuple[Array, Array]:
    s = _sigmoid(x)
    return s, s * (1 - s)


def _gelu_tanh(x: Array) -> tuple[Array, Array]:
    """``(1 + tanh(√(2/π) (x + 0.044715 x³))) / 2`` is a sigmoid of twice the argument."""
    root, cube = x.dtype.type(math.sqrt(8 / math.pi)), x.dtype.type(0.044715)
    s = _sigmoid(root * (x + cube * x**3))
    return s, s * (1 - s) * root * (1 + 3 * cube * x**2)


#: Of an activation ``x · g(x)`` by name: g and its derivative.
GATES = {"silu": _silu, "gelu_tanh": _gelu_tanh}


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))  # never overflows, and keeps the small values' precision
    return np.where(x >= 0, 1, small) / (1 + small)


def linear(x: Array, weight: Array, adapter: Adapter | None = None) -> Array:
    """``x Wᵀ``, and with an adapter ``+ scale · (x Aᵀ) Bᵀ``."""
    y = x @ weight.T
    if adapter is not None:
        y += x.dtype.type(adapter.scale) * ((x @ adapter.a.T) @ adapter.b.T)
    return y


def linear_backward(
    dy: Array, x: Array, weight: Array, adapter: Adapter | None = None
) -> tuple[Array, tuple[Array, Array] | None]:
    """``(dx, (dA, dB))``; the second is None without an adapter."""
    dx = dy @ weight
    if adapter is None:
        return dx, None
    scaled = x.dtype.type(adapter.scale) * dy
    dh = scaled @ adapter.b
    dx += dh @ adapter.a
    return dx, (dh.T @ x, scaled.T @ (x @ adapter.a.T))


def cross_entropy(logits: Array, tokens: Sequence[int] | Array) -> tuple[float, Array]:
    """Mean loss of predicting each token that is learnt, and its gradient.

    A token is predicted from those before it; ``logits [T, vocab]``.

    The gradient of a row that foretells nothing, such as the last, is 0.
    """
    if len(tokens) < 2:
        raise ValueError(f"tokens={len(tokens)}: a loss needs at least 2")
    targets = targets_of(tokens)
    rows = np.flatnonzero(targets >= 0)
    at = rows, targets[rows]
    shifted = logits - logits.max(axis=-1, keepdims=True)
    probabilities = np.exp(shifted)
    total = probabilities.sum(axis=-1, keepdims=True)
    loss = float(np.mean(np.log(total[rows, 0]) - shifted[at], dtype=np.float64))
    gradient = probabilities / total
    gradient[at] -= 1
    gradient[targets < 0] = 0
    return loss, gradient / logits.dtype.type(len(rows))


def foretold_share(logits: Array, tokens: Sequence[int] | Array) -> float:
    """Share of the tokens that are learnt whose logit is the largest; ``logits [T, vocab]``."""
    targets = targets_of(tokens)
    rows = np.flatnonzero(targets >= 0)
    return float((logits[rows].argmax(axis=-1) == targets[rows]).mean())
