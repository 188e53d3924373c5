"""Fine-tuning methods of language models, each as PEFT has it.

What a method learns stands at modules of the model: a linear, or a norm. This table says which modules there are, which
tensors PEFT keeps of each, and what PEFT calls the method.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ...language import PROJECTIONS, LanguageModel
from .fused import check_apart

__all__ = ["IA3", "LAYERNORM", "LORA", "LORA_XS", "METHODS", "Method", "find_method"]

#: Bytes of a learnt value in PEFT's file: float32.
_VALUE = 4
#: The norm behind the last layer, which belongs to no layer.
_LAST = "norm"
_PREFIX = "base_model.model."


@dataclass(frozen=True, kw_only=True)
class Method:
    """A fine-tuning method.

    Attributes
    ----------
    name, title : str
        On the command line, and in words.
    peft_type : str
        In ``adapter_config.json``.
    targets : mapping
        Kinds of modules that can learn, in the order of a forward pass, with the module that holds each; "" where a
        layer itself does.
    usual : tuple of str
        Targets unless others are given.
    ranked : bool
        Whether adapters have a rank.
    """

    name: str
    title: str
    peft_type: ClassVar[str]
    targets: Mapping[str, str]
    usual: tuple[str, ...]
    ranked: ClassVar[bool] = False

    def parse(self, text: str | None) -> tuple[str, ...]:
        """Targets of a request.

        The request is ``all``, names between commas, or None for the usual ones.

        ``_proj`` may be left out. :class:`ValueError` names the first that the method does not have.
        """
        if text is None:
            return self.usual
        if text == "all":
            return tuple(self.targets)
        wanted = [name if name in self.targets else f"{name}_proj" for name in text.split(",")]
        if set(wanted) - set(self.targets):
            known = ", ".join(name.removesuffix("_proj") for name in self.targets)
            raise ValueError(f"targets={text}: must be all, or some of {known} between commas for {self.name}")
        return tuple(name for name in self.targets if name in wanted)

    def modules(self, model: LanguageModel, targets: Iterable[str], layers: Iterable[int]) -> list[str]:
        """Names of the modules that learn, in the order of a forward pass.

        The last norm learns for all choices of ``layers``. :class:`ValueError` if the model has no place for them.
        """
        self.check(model)
        wanted = set(targets)
        made = [
            f"model.layers.{layer}.{holder}{'.' if holder else ''}{name}"
            for layer in layers
            for name, holder in self.targets.items()
            if name in wanted and name != _LAST
        ]
        return made + [f"model.{_LAST}"] * (_LAST in wanted and _LAST in self.targets)

    def check(self, model: LanguageModel) -> None:
        """Refuses a model whose files have no place for what the method learns."""

    def shapes(self, model: LanguageModel, module: str, rank: int) -> dict[str, tuple[int, ...]]:
        """Shape of each of PEFT's tensors of a module, by the name in its file."""
        raise NotImplementedError

    def tensors(
        self, model: LanguageModel, targets: Iterable[str], layers: Iterable[int], rank: int = 1
    ) -> dict[str, tuple[int, ...]]:
        """Shapes of all tensors of PEFT's file by name."""
        made: dict[str, tuple[int, ...]] = {}
        for module in self.modules(model, targets, layers):
            made |= self.shapes(model, module, rank)
        return made

    def parameters(self, model: LanguageModel, targets: Iterable[str], layers: Iterable[int], rank: int = 1) -> int:
        """Values that learn."""
        return sum(math.prod(shape) for shape in self.tensors(model, targets, layers, rank).values())

    def frozen(self, model: LanguageModel, targets: Iterable[str], layers: Iterable[int], rank: int = 1) -> int:
        """Values in memory beside those that learn, which follow from the base."""
        return 0

    def update_bytes(self, model: LanguageModel, targets: Iterable[str], layers: Iterable[int], rank: int = 1) -> int:
        """Bytes of the trained parameters as float32, without names."""
        return _VALUE * self.parameters(model, targets, layers, rank)

    def config(
        self, model: LanguageModel, targets: Sequence[str], layers: Sequence[int], *, base: str | None = None
    ) -> dict[str, Any]:
        """``adapter_config.json`` of a method without a rank."""
        return {
            "base_model_name_or_path": base or model.name,
            "inference_mode": True,
            "peft_type": self.peft_type,
            "target_modules": self._named(model, targets, layers),
            "task_type": "CAUSAL_LM",
        }

    def _named(self, model: LanguageModel, targets: Sequence[str], layers: Sequence[int]) -> list[str]:
        """Targets where all layers learn; else modules.

        PEFT finds modules by their whole names.
        """
        whole = len(set(layers)) == model.layers
        return (
            [name for name in self.targets if name in set(targets)] if whole else self.modules(model, targets, layers)
        )


class _Lora(Method):
    peft_type = "LORA"
    ranked = True

    def shapes(self, model: LanguageModel, module: str, rank: int) -> dict[str, tuple[int, ...]]:
        """See :class:`Method`."""
        outputs, inputs = model.shape(module.rsplit(".", 1)[-1])
        return {f"{_PREFIX}{module}.lora_A.weight": (rank, inputs), f"{_PREFIX}{module}.lora_B.weight": (outputs, rank)}


class _LoraXs(Method):
    #: No type of PEFT's: an adapter is exported as plain LoRA.
    peft_type = "LORA_XS"
    ranked = True

    def shapes(self, model: LanguageModel, module: str, rank: int) -> dict[str, tuple[int, ...]]:
        """Shape of the matrix that learns; see :class:`Method`."""
        return {f"{_PREFIX}{module}.lora_R.weight": (rank, rank)}

    def frozen(self, model: LanguageModel, targets: Iterable[str], layers: Iterable[int], rank: int = 1) -> int:
        """A, and B with both signs; see :class:`Method`."""
        shapes = [model.shape(module.rsplit(".", 1)[-1]) for module in self.modules(model, targets, layers)]
        return sum(rank * (inputs + 2 * outputs) for outputs, inputs in shapes)


class _LayerNorm(Method):
    peft_type = "LN_TUNING"

    def check(self, model: LanguageModel) -> None:
        """See :class:`Method`."""
        if model.norms != "before":
            raise ValueError(
                f"method={self.name}: needs a model whose norms are all in front of attention and feed-forward part; "
                f"{model.name} has others: use lora"
            )

    def shapes(self, model: LanguageModel, module: str, rank: int) -> dict[str, tuple[int, ...]]:
        """See :class:`Method`."""
        return {f"{_PREFIX}{module}.ln_tuning_layers.weight": (model.hidden,)}


class _Ia3(Method):
    peft_type = "IA3"

    def check(self, model: LanguageModel) -> None:
        """See :class:`Method`."""
        check_apart(model, f"method={self.name}")

    def shapes(self, model: LanguageModel, module: str, rank: int) -> dict[str, tuple[int, ...]]:
        """Shapes of a module's vector; see :class:`Method`.

        A vector stands behind a linear, but before ``down_proj``.
        """
        name = module.rsplit(".", 1)[-1]
        outputs, inputs = model.shape(name)
        return {f"{_PREFIX}{module}.ia3_l": (1, inputs) if name == "down_proj" else (outputs, 1)}

    def config(
        self, model: LanguageModel, targets: Sequence[str], layers: Sequence[int], *, base: str | None = None
    ) -> dict[str, Any]:
        """See :class:`Method`."""
        made = super().config(model, targets, layers, base=base)
        forward = [name for name in made["target_modules"] if name.endswith("down_proj")]
        return made | {"fan_in_fan_out": False, "feedforward_modules": forward}


LORA = _Lora(name="lora", title="LoRA", targets=PROJECTIONS, usual=("q_proj", "v_proj"))
LORA_XS = _LoraXs(name="lora-xs", title="LoRA-XS", targets=PROJECTIONS, usual=("q_proj", "v_proj"))
LAYERNORM = _LayerNorm(
    name="layernorm",
    title="norm tuning",
    targets={"input_layernorm": "", "post_attention_layernorm": "", _LAST: ""},
    usual=("input_layernorm", "post_attention_layernorm", _LAST),
)
IA3 = _Ia3(
    name="ia3",
    title="(IA)³",
    targets={name: PROJECTIONS[name] for name in ("k_proj", "v_proj", "down_proj")},
    usual=("k_proj", "v_proj", "down_proj"),
)
#: By name.
METHODS: Mapping[str, Method] = {each.name: each for each in (LORA, LORA_XS, LAYERNORM, IA3)}


def find_method(name: str) -> Method:
    """A method by its name; :class:`ValueError` lists all names."""
    if name not in METHODS:
        raise ValueError(f"method={name}: must be one of {', '.join(METHODS)}")
    return METHODS[name]
