"""What is asked of a plan: model, adapters, text, formats and optimiser."""

from dataclasses import dataclass, replace

from gradloom.models.adapters.language.methods import IA3, LAYERNORM, LORA, LORA_XS, METHODS, Method
from gradloom.models.filled import filled
from gradloom.models.language import PROJECTIONS, LanguageModel
from gradloom.models.pack import HEADS
from gradloom.rtl.formats.weights.weight_stream import BOOKS

from ..operations.shapes import paired
from ..program.packed import STORES

__all__ = ["BudgetRequest", "LEARNT", "OPTIMIZERS", "STAGE", "TARGETS", "check_from_layer", "parse_targets"]

#: Moments that an optimiser keeps of a parameter.
OPTIMIZERS = {"adamw": 2, "lion": 2, "sgd": 0}
TARGETS = {"q,v": ("q_proj", "v_proj"), "all": tuple(PROJECTIONS)}
MAX_RANK = 64
#: How far downstream a projection is within its layer; of what learns, what is not further needs no gradient of its
#: operand in the lowest layer.
STAGE = {"q_proj": 0, "k_proj": 0, "v_proj": 0, "o_proj": 1, "gate_proj": 2, "up_proj": 2, "down_proj": 3}
#: The same of what a method learns.
LEARNT = {
    LORA.name: STAGE,
    LORA_XS.name: STAGE,
    LAYERNORM.name: {"input_layernorm": -1, "post_attention_layernorm": 1, "norm": 4},
    IA3.name: {**STAGE, "down_proj": 2},
}


@dataclass(frozen=True, kw_only=True)
class BudgetRequest:
    """Request: model, adapters, text, formats and optimiser.

    Parameters
    ----------
    model : LanguageModel
    rank : int
        Of every adapter: 1 to 64. Vectors have none, and any will do.
    targets : tuple of str
        Projections that have an adapter, or what else the method's targets are, in every layer.
    seq : int
        Tokens of a training text, and of the text before a decoded token.
    bits : int
        Of a frozen weight: 4, 3 or 2.
    optimizer, head : str
        ``"sgd"``, ``"adamw"`` or ``"lion"``; the head ``"float16"`` or in codes, ``"nf"``.
    store : str
        How adapters and moments lie in memory from step to step: ``"words"``, ``"int8"`` or ``"nf4"``.
    from_layer : int
        The lowest layer with adapters, from 0. What enters it is kept of each text.
    method : str
        One of :data:`~gradloom.models.adapters.language.methods.METHODS`.
    """

    model: LanguageModel
    rank: int = 8
    targets: tuple[str, ...] = TARGETS["q,v"]
    seq: int = 64
    bits: int = 4
    optimizer: str = "adamw"
    head: str = "float16"
    store: str = "words"
    from_layer: int = 0
    method: str = LORA.name

    def __post_init__(self) -> None:
        check_from_layer(self.from_layer, self.model.layers)
        for field, most in (("rank", MAX_RANK), ("seq", self.model.context)):
            value = getattr(self, field)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
                note = " (the model's context)" if field == "seq" else ""
                raise ValueError(f"{field}={value!r}: must be from 1 to {most}{note}")
        for field, known in (
            ("bits", tuple(BOOKS)),
            ("optimizer", tuple(OPTIMIZERS)),
            ("head", HEADS),
            ("store", tuple(STORES)),
            ("method", tuple(METHODS)),
        ):
            if getattr(self, field) not in known:
                raise ValueError(f"{field}={getattr(self, field)}: must be one of {', '.join(map(str, known))}")
        if not self.targets or set(self.targets) - set(self.known.targets):
            raise ValueError(f"targets={','.join(self.targets)}: must be some of {', '.join(self.known.targets)}")
        if self.method != LORA.name and self.store != "words":
            raise ValueError(f"store={self.store}: must be words for {self.method}")

    @property
    def known(self) -> Method:
        """The method."""
        return METHODS[self.method]

    @property
    def filled(self) -> "BudgetRequest":
        """The same as a machine has it: whole tiles, and an even rank."""
        return replace(self, model=filled(self.model), rank=paired(self.rank) if self.known.ranked else self.rank)

    @property
    def adapted(self) -> tuple[str, ...]:
        """Projections with an adapter beside them that has a rank."""
        return self.targets if self.known.ranked else ()

    @property
    def adapter_parameters(self) -> int:
        """Trainable parameters."""
        layers = range(self.from_layer, self.model.layers)
        return self.known.parameters(self.model, self.targets, layers, self.rank)

    @property
    def frozen_parameters(self) -> int:
        """Values of adapters that do not learn."""
        layers = range(self.from_layer, self.model.layers)
        return self.known.frozen(self.model, self.targets, layers, self.rank)

    @property
    def learning_layers(self) -> int:
        """Layers with adapters."""
        return self.model.layers - self.from_layer


def check_from_layer(value: int, layers: int) -> None:
    """Refuses a number that is no layer of ``layers``."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < layers:
        raise ValueError(f"from_layer={value!r}: must be an integer from 0 to {layers - 1}, a layer of the model")


def parse_targets(text: str) -> tuple[str, ...]:
    """``all``, or projections with or without ``_proj``, between commas."""
    return TARGETS[text] if text in TARGETS else LORA.parse(text)
