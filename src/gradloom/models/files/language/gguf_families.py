"""Families of language models in GGUF files, by ``general.architecture``.

Each is LLaMA's decoder with other tensors, fields and constants. llama.cpp keeps q's and k's rows of LLaMA so that
neighbouring elements turn; of all other families files have them as Hugging Face has. Norms of Gemma are stored with
their 1 added.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...language import NORMS, PROJECTIONS, LanguageModel

__all__ = ["ARCHITECTURES", "Architecture", "architecture_of"]

_LINEARS = dict(
    zip(
        ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"),
        (f"{module}.{name}" for name, module in PROJECTIONS.items()),
    )
)
_HEADS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
#: llama.cpp's norms by their place; see :attr:`LanguageModel.layer_norms`.
_PLACES = {"norm1": "attn_norm", "norm2": "ffn_norm", "norm3": "post_attention_norm", "norm4": "post_ffw_norm"}


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """A family.

    ``parts``: fields of its models. ``paired``: neighbouring elements of a head turn. ``windowed``: layers but every
    sixth see a window, and have positions of their own. ``rooted``: the embedding is multiplied by the root of the
    hidden size.
    """

    parts: Mapping[str, Any] = field(default_factory=dict)
    paired: bool = False
    windowed: bool = False
    rooted: bool = False

    @property
    def layer_names(self) -> dict[str, str]:
        """Hugging Face's names within a layer, by llama.cpp's."""
        norms = {_PLACES[place]: name for name, place in NORMS[self.parts.get("norms", "before")].items()}
        normed = self.parts.get("head_norms") or self.parts.get("joint_norms")
        return norms | _LINEARS | (_HEADS if normed else {})

    def constants(self, layers: int, head_dim: int, get: Callable[[str, Any], Any]) -> Mapping[str, Any]:
        """Further fields of a model; ``get``: a field of the file, or what stands for it."""
        if not self.windowed:
            return {}
        if layers == _SCALED_OTHERWISE:
            raise ValueError(f"block_count={layers}: Gemma 3 of 27 B has another factor of its scores; not supported")
        return {
            "score": head_dim**-0.5,
            "context": min(get("context_length", 0), get("attention.sliding_window", 0)),
            "local": tuple(layer for layer in range(layers) if (layer + 1) % 6),
            "local_theta": get("rope.freq_base_swa", 10000.0),
        }

    def embedding(self, hidden: int) -> float:
        """Factor of the embedding."""
        return math.sqrt(hidden) if self.rooted else 1.0


#: Layers of the one Gemma 3 whose scores have a factor that is not of its heads' size.
_SCALED_OTHERWISE = 62
ARCHITECTURES: Mapping[str, Architecture] = {
    "llama": Architecture(paired=True),
    "qwen2": Architecture(parts={"biases": True}),
    "qwen3": Architecture(parts={"head_norms": True}),
    "olmo2": Architecture(parts={"norms": "after", "joint_norms": True}),
    "gemma3": Architecture(
        parts={"norms": "both", "head_norms": True, "gate": "gelu_tanh"}, windowed=True, rooted=True
    ),
}


#: llama.cpp's names of families with LLaMA's tensors, by the field of a model that LLaMA has not: their adapters are
#: read and written, their models not.
_ADAPTED = {"unturned": "smollm3", "score": "granite"}


def architecture_of(model: LanguageModel, what: str) -> tuple[str, Architecture]:
    """Name of the family that has a model's parts, and its order of rows; ``what`` else cannot be had of it."""
    fields = {each for one in ARCHITECTURES.values() for each in one.parts}
    plain = LanguageModel.__dataclass_fields__
    own = {each: getattr(model, each) for each in fields if getattr(model, each) != plain[each].default}
    found = next((name for name, each in ARCHITECTURES.items() if each.parts == own), None)
    if found is None or model.fused or model.turned is not None:
        known = ", ".join((*ARCHITECTURES, *_ADAPTED.values()))
        raise ValueError(f"{model.name}: {what} is of {known}, whose parts this model has not")
    family = ARCHITECTURES[found]
    if not family.parts:
        found = next((name for each, name in _ADAPTED.items() if getattr(model, each)), found)
    return found, family
