"""A language model with adapters in PyTorch, float32.

:class:`TorchLlama` has the mathematics of ``llama.py`` and of InstantFT, with gradients by autograd. Scripts of the
documentation use it as a baseline, and :class:`FloatByTorch` stands in for :class:`~.llama.Llama` where many steps are
wanted. It needs the extra ``train``; tests compare its losses with those of our own engine.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from gradloom.models.adapters.language.lora_xs import CoreAdapter
from gradloom.models.adapters.lora import Adapter, LearntModule, lowest_layer
from gradloom.models.language import EMBEDDING, HEAD, HEAD_NORMS, NORM, PROJECTIONS, LanguageModel
from gradloom.models.texts.example import targets_of

__all__ = ["FloatByTorch", "TorchLlama", "instant_name", "learnt_bytes", "parameters"]

#: The norm behind the last layer.
_LAST = NORM.removesuffix(".weight")


def instant_name(layer: int) -> str:
    """Name of InstantFT's adapter from a block to the head."""
    return f"instantft.layers.{layer}"


class TorchLlama:
    """The model with frozen weights, on the CPU.

    Parameters
    ----------
    model : LanguageModel
    tensor : callable
        A tensor by Hugging Face's name.
    """

    def __init__(self, model: LanguageModel, tensor: Callable[[str], np.ndarray]) -> None:
        self.model = model
        self.held = {name: torch.from_numpy(np.array(tensor(name), np.float32)) for name in model.tensors}
        self.head = self.held[EMBEDDING if model.tied else HEAD]

    @staticmethod
    def linear(layer: int, projection: str) -> str:
        """Hugging Face's name of a projection of a layer."""
        return f"model.layers.{layer}.{PROJECTIONS[projection]}.{projection}"

    @torch.no_grad()
    def entering(self, layer: int, tokens: torch.Tensor, start: tuple[int, torch.Tensor] | None = None) -> torch.Tensor:
        """Input of a layer below which nothing learns: ``[n, T, hidden]``.

        ``start``: a layer before it, and the input of that one, if they are known already.
        """
        first, x = start or (0, self.held[EMBEDDING][tokens])
        return self._blocks(x, range(first, layer), {}, None)

    @torch.no_grad()
    def taps(self, tokens: torch.Tensor) -> list[torch.Tensor]:
        """InstantFT's cache.

        What each block's attention reads, and the last block's output; each is ``[n, T, hidden]``.
        """
        found: list[torch.Tensor] = []
        last = self._blocks(self.held[EMBEDDING][tokens], range(self.model.layers), {}, found)
        return [*found, last]

    def losses(
        self,
        tokens: torch.Tensor,
        learnt: Mapping[str, LearntModule],
        entry: torch.Tensor | None = None,
        targets: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Mean cross-entropy of each text, nats a token: ``[n]``.

        ``tokens [n, T]``; ``learnt``: parts are tensors; ``entry``: input of the lowest layer that learns, if known;
        ``targets [n, T]``: what each token must foretell, -1 for nothing; the next tokens unless given.
        """
        first = 0 if entry is None else lowest_layer(learnt)
        x = self.held[EMBEDDING][tokens] if entry is None else entry
        return self._judged(self._blocks(x, range(first, self.model.layers), learnt, None), tokens, learnt, targets)

    def instant_losses(
        self, tokens: torch.Tensor, learnt: Mapping[str, Adapter], taps: Sequence[torch.Tensor]
    ) -> torch.Tensor:
        """The same with adapters from blocks to the head.

        ``taps`` as :meth:`taps` makes them.
        """
        z = taps[-1]
        for layer, tap in enumerate(taps[:-1]):
            each = learnt[instant_name(layer)]
            z = z + each.scale * ((tap @ each.a.T) @ each.b.T)
        return self._judged(z, tokens, {})

    def _judged(
        self,
        x: torch.Tensor,
        tokens: torch.Tensor,
        learnt: Mapping[str, LearntModule],
        targets: torch.Tensor | None = None,
    ) -> torch.Tensor:
        logits = self._norm(_LAST, x[:, :-1], learnt) @ self.head.T
        wanted = tokens[:, 1:] if targets is None else targets[:, :-1]
        lost = functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="none", ignore_index=-1)
        return lost.view(wanted.shape).sum(1) / (wanted >= 0).sum(1)

    def _norm(self, name: str, x: torch.Tensor, learnt: Mapping[str, LearntModule]) -> torch.Tensor:
        weight: Any = learnt[name].parts["w"] if name in learnt else self.held[f"{name}.weight"]
        return weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.model.norm_eps))

    def _linear(self, name: str, x: torch.Tensor, learnt: Mapping[str, LearntModule]) -> torch.Tensor:
        weight, bias, each = self.held[f"{name}.weight"], self.held.get(f"{name}.bias"), learnt.get(name)
        if each is None:
            return functional.linear(x, weight, bias)
        if isinstance(each, Adapter):
            return functional.linear(x, weight, bias) + each.scale * ((x @ each.a.T) @ each.b.T)
        if isinstance(each, CoreAdapter):
            a, b = torch.from_numpy(each.a), torch.from_numpy(each.b)
            core: Any = each.r
            return functional.linear(x, weight, bias) + each.scale * ((x @ a.T) @ core.T @ b.T)
        factors: Any = each.parts["w"]
        if name.endswith(".down_proj"):
            return functional.linear(x * factors, weight)
        return functional.linear(x, weight, bias) * factors

    def _turned(self, x: torch.Tensor, kind: str) -> torch.Tensor:
        """Rotary positions of ``[n, heads, T, head_dim]``."""
        cos, sin = (torch.from_numpy(each).float() for each in self.model.turns(x.shape[-2], kind=kind))
        places = self.model.places
        one, two = (x if places is None else x[..., places]).chunk(2, dim=-1)
        made = torch.cat([one * cos - two * sin, two * cos + one * sin], dim=-1)
        return made if places is None else made[..., np.argsort(places)]

    def _placed(self, i: int, place: str, x: torch.Tensor, learnt: Mapping[str, LearntModule]) -> torch.Tensor:
        """x behind a layer's norm of a place, if there is one."""
        norm = next((name for name, each in self.model.layer_norms.items() if each == place), None)
        return x if norm is None else self._norm(f"model.layers.{i}.{norm}", x, learnt)

    def _blocks(
        self, x: torch.Tensor, layers: range, learnt: Mapping[str, LearntModule], taps: list[torch.Tensor] | None
    ) -> torch.Tensor:
        count, rows, _ = x.shape
        for i in layers:
            attended = self._placed(i, "norm1", x, learnt)
            if taps is not None:
                taps.append(attended)
            q, k, v = (
                self._heads(i, name, self._linear(self.linear(i, name), attended, learnt))
                for name in ("q_proj", "k_proj", "v_proj")
            )
            kind = self.model.kind(i)
            if kind != "flat":
                q, k = self._turned(q, kind), self._turned(k, kind)
            context = functional.scaled_dot_product_attention(
                q, k, v, is_causal=True, enable_gqa=True, scale=self.model.score_factor
            )
            joined = context.transpose(1, 2).reshape(count, rows, -1)
            x = x + self._placed(i, "norm3", self._linear(self.linear(i, "o_proj"), joined, learnt), learnt)
            fed = self._placed(i, "norm2", x, learnt)
            gate, up = (self._linear(self.linear(i, name), fed, learnt) for name in ("gate_proj", "up_proj"))
            acted = functional.silu(gate) if self.model.gate == "silu" else functional.gelu(gate, approximate="tanh")
            x = x + self._placed(i, "norm4", self._linear(self.linear(i, "down_proj"), acted * up, learnt), learnt)
        return x

    def _heads(self, i: int, projection: str, x: torch.Tensor) -> torch.Tensor:
        """Heads ``[n, heads, T, head_dim]``, of queries and keys behind their norms."""
        count, rows, _ = x.shape
        if self.model.normed and projection in HEAD_NORMS:
            parts = x.view(count, rows, -1, self.model.norm_features(projection))
            x = self._norm(f"model.layers.{i}.self_attn.{HEAD_NORMS[projection]}", parts, {})
        return x.reshape(count, rows, -1, self.model.head_dim).transpose(1, 2)


class FloatByTorch:
    """Losses and gradients of a text by PyTorch.

    Values are those of :class:`~.llama.Llama` within rounding.

    Parameters
    ----------
    model : LanguageModel
    tensor : callable
        A tensor by Hugging Face's name.
    """

    def __init__(self, model: LanguageModel, tensor: Callable[[str], np.ndarray]) -> None:
        self.model = model
        self._llama = TorchLlama(model, tensor)

    def entering(self, layer: int, tokens: Sequence[int], start: tuple[int, np.ndarray] | None = None) -> np.ndarray:
        """Input of a layer where none before it has an adapter.

        It is ``[T, hidden]``. ``start``: a layer before it, and the input of that one, if they are known already.
        """
        known = None if start is None else (start[0], torch.from_numpy(start[1])[None])
        return self._llama.entering(layer, _ids(tokens), known)[0].numpy()

    @torch.no_grad()
    def loss(
        self, tokens: Sequence[int], adapters: Mapping[str, LearntModule] | None = None, entry: np.ndarray | None = None
    ) -> float:
        """Mean cross-entropy of the text, in nats a token.

        ``entry``: input of the lowest layer with an adapter, if it is known already.
        """
        learnt, _ = parameters(adapters or {})
        known = None if entry is None else torch.from_numpy(entry)[None]
        return self._llama.losses(_ids(tokens), learnt, known, _targets(tokens)).item()

    def gradients(
        self, tokens: Sequence[int], adapters: Mapping[str, LearntModule], entry: np.ndarray | None = None
    ) -> tuple[float, dict[str, tuple[np.ndarray, ...]]]:
        """The loss, and the gradients of all parts of every adapter.

        ``entry``: input of the lowest layer with an adapter, if it is known already.
        """
        learnt, tensors = parameters(adapters)
        known = None if entry is None else torch.from_numpy(entry)[None]
        loss = self._llama.losses(_ids(tokens), learnt, known, _targets(tokens)).sum()
        found = iter(torch.autograd.grad(loss, tensors))
        return loss.item(), {name: tuple(next(found).numpy() for _ in each.parts) for name, each in learnt.items()}


def _ids(tokens: Sequence[int]) -> torch.Tensor:
    return torch.tensor([list(tokens)])


def _targets(tokens: Sequence[int]) -> torch.Tensor:
    return torch.from_numpy(targets_of(tokens).astype(np.int64))[None]


def parameters(learnt: Mapping[str, LearntModule]) -> tuple[dict[str, LearntModule], list[torch.Tensor]]:
    """What learns as tensors with gradients, and a list of them."""
    made: dict[str, LearntModule] = {}
    tensors: list[torch.Tensor] = []
    for name, each in learnt.items():
        parts: Any = {which: torch.from_numpy(values.copy()).requires_grad_() for which, values in each.parts.items()}
        made[name] = each.taking(parts)
        tensors += parts.values()
    return made, tensors


def learnt_bytes(learnt: Mapping[str, LearntModule]) -> int:
    """Bytes of what learns as float32, as it is shipped."""
    return sum(4 * int(np.prod(part.shape)) for each in learnt.values() for part in each.parts.values())
