"""Fine-tunes that a machine can run, of which one is chosen.

A method is an entry of :data:`METHODS`: what its candidates are, and what of them learns.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gradloom.models.adapters.language.lora_xs import fresh_cores
from gradloom.models.adapters.language.methods import IA3, LAYERNORM, LORA, LORA_XS, Method
from gradloom.models.adapters.language.methods import METHODS as KNOWN
from gradloom.models.adapters.language.vectors import fresh_vectors
from gradloom.models.adapters.lora import LearntModule, fresh_lora
from gradloom.models.filled import source_of
from gradloom.models.language import LanguageModel
from gradloom.output import some
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.systems.text.card.layout import Shape
from gradloom.systems.text.costs.fit import MIN_SEQ, Misfit, machine_misfits
from gradloom.systems.text.costs.request import TARGETS
from gradloom.systems.text.operations.tensors import EDGE
from gradloom.systems.text.program.packed import STORES

__all__ = ["METHODS", "Candidate", "Choice", "candidates", "first_layers"]

#: Ranks, before the machine's bounds.
_RANKS = (2, 4, 8)
#: Texts whose gradients make an update.
_ACCUMULATED = (1, 4)
#: Layers from the last that may learn alone, and the half of all.
_LAST = (1, 2, 4, 8)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A fine-tune: what learns, and how its state is kept.

    Parameters
    ----------
    method : str
        Name in :data:`METHODS`.
    targets : tuple of str
        Modules of a layer that learn: of LoRA projections, of others all that the method usually has.
    from_layer : int
        The lowest layer that learns.
    rank : int
        Of adapters; vectors have none, 0.
    store : str
        Format of adapters and moments between steps.
    seq : int
        Tokens of a window.
    accumulate : int
        Windows of an update.
    """

    method: str = "lora"
    targets: tuple[str, ...] = TARGETS["q,v"]
    from_layer: int = 0
    rank: int = 8
    store: str = "words"
    seq: int = 64
    accumulate: int = 1

    @property
    def named_targets(self) -> str:
        """As ``--targets`` takes them."""
        if self.targets == KNOWN[self.method].usual and not KNOWN[self.method].ranked:
            return self.method
        known = {each: name for name, each in TARGETS.items()}
        return known.get(self.targets) or ",".join(name.removesuffix("_proj") for name in self.targets)

    @property
    def where(self) -> tuple[str, tuple[str, ...], int]:
        """What decides how much it can learn: method, targets, layers."""
        return self.method, self.targets, self.from_layer

    def options(self) -> dict[str, object]:
        """Of ``gradloom finetune``, by name."""
        own: dict[str, object] = {"method": self.method}
        if KNOWN[self.method].ranked:
            own |= {"targets": self.named_targets, "rank": self.rank}
        return own | {
            "from-layer": self.from_layer,
            "store": self.store,
            "seq": self.seq,
            "accumulate": self.accumulate,
        }

    def __str__(self) -> str:
        return f"{self.learns}, {self.store}, {some(self.seq, 'token')} x {self.accumulate}"

    @property
    def learns(self) -> str:
        """What learns, in words."""
        name = f"{self.method} " if self.method == LORA_XS.name else ""
        return f"{name}{self.named_targets} from layer {self.from_layer}" + (f", rank {self.rank}" if self.rank else "")

    def modules(self, model: LanguageModel) -> list[str]:
        """Names of what learns."""
        return KNOWN[self.method].modules(model, self.targets, range(self.from_layer, model.layers))

    def ranks(self, model: LanguageModel) -> dict[str, int]:
        """Rank of each linear with an adapter."""
        return dict.fromkeys(self.modules(model), self.rank) if self.rank else {}

    def vectors(self, model: LanguageModel) -> list[str]:
        """Modules with a vector."""
        return [] if self.rank else self.modules(model)

    def shape(self, model: LanguageModel, **change: Any) -> Shape:
        """What its memory depends on.

        It has one text and one step unless ``change`` has more.
        """
        options: dict[str, Any] = {"store": self.store, "accumulate": self.accumulate} | change
        return Shape(
            model=model,
            ranks=tuple(self.ranks(model).items()),
            vectors=tuple(self.vectors(model)),
            made=self.method == LORA_XS.name,
            first=self.from_layer,
            tokens=self.seq,
            **options,
        )

    def parameters(self, model: LanguageModel) -> int:
        """How many values learn."""
        model = source_of(model)
        layers = range(self.from_layer, model.layers)
        return KNOWN[self.method].parameters(model, self.targets, layers, self.rank or 1)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What candidates of a method there are, and how they learn.

    Parameters
    ----------
    method : Method
    targets : sequence
        Sets of modules to choose from.
    ranks : sequence of int
    stores : sequence of str
        Formats of what learns between steps.
    fresh : callable
        What learns as it is before, of a model, its tensors by name, a candidate and a seed.
    lr : float
        Rate of AdamW.
    """

    method: Method
    targets: Sequence[tuple[str, ...]]
    fresh: Callable[[LanguageModel, Callable[[str], np.ndarray], Candidate, int], dict[str, LearntModule]]
    ranks: Sequence[int] = (0,)
    stores: Sequence[str] = ("words",)
    lr: float = 1e-3


def _fresh_lora(
    model: LanguageModel, tensor: Callable[[str], np.ndarray], candidate: Candidate, seed: int
) -> dict[str, LearntModule]:
    layers = range(candidate.from_layer, model.layers)
    return dict(fresh_lora(model, rank=candidate.rank, targets=candidate.targets, layers=layers, seed=seed))


def _fresh_cores(
    model: LanguageModel, tensor: Callable[[str], np.ndarray], candidate: Candidate, seed: int
) -> dict[str, LearntModule]:
    layers = range(candidate.from_layer, model.layers)
    return dict(fresh_cores(model, tensor, rank=candidate.rank, targets=candidate.targets, layers=layers))


def _fresh_vectors(
    model: LanguageModel, tensor: Callable[[str], np.ndarray], candidate: Candidate, seed: int
) -> dict[str, LearntModule]:
    layers = range(candidate.from_layer, model.layers)
    return dict(fresh_vectors(model, KNOWN[candidate.method], tensor, targets=candidate.targets, layers=layers))


#: By name; a method joins by an entry.
METHODS: Mapping[str, Choice] = {
    each.method.name: each
    for each in (
        Choice(method=LORA, targets=tuple(TARGETS.values()), ranks=_RANKS, stores=tuple(STORES), fresh=_fresh_lora),
        Choice(method=LORA_XS, targets=tuple(TARGETS.values()), ranks=_RANKS[-1:], fresh=_fresh_cores, lr=3e-3),
        Choice(method=LAYERNORM, targets=(LAYERNORM.usual,), fresh=_fresh_vectors),
        Choice(method=IA3, targets=(IA3.usual,), fresh=_fresh_vectors),
    )
}


def first_layers(layers: int) -> list[int]:
    """Lowest layers that may learn: all layers, half, the last few."""
    return sorted({0, layers // 2, *(layers - last for last in _LAST if last < layers)})


def candidates(
    model: LanguageModel, config: LanguageConfig, seqs: Sequence[int], *, least: int = 1
) -> tuple[list[Candidate], list[Misfit]]:
    """All that the machine can run, and why others are left out.

    ``seqs``: tokens of a window to choose from; ``least``: layers that learn at least.
    """
    found: list[Candidate] = []
    left: list[Misfit] = []
    for name, method in METHODS.items():
        for base in _shapes(name, method, seqs):
            misfits = machine_misfits(config, model, seq=base.seq, rank=base.rank or 2, targets=base.targets)
            if base.seq > EDGE and all(each.field != "seq" for each in misfits):
                # What longer texts cost is not composed of what is measured.
                misfits.append(Misfit("seq", base.seq, f"must be from {MIN_SEQ} to {EDGE}", {"seq": EDGE}))
            left += misfits
            if misfits:
                continue
            found += [
                replace(base, from_layer=first, store=store, accumulate=count)
                for first in first_layers(model.layers)
                if model.layers - first >= least
                for store in method.stores
                for count in _ACCUMULATED
                # Codes are made of words in each step, sums of gradients are not.
                if count == 1 or store == "words"
            ]
    return found, left


def _shapes(name: str, method: Choice, seqs: Sequence[int]) -> Iterator[Candidate]:
    for seq in seqs:
        for targets in method.targets:
            for rank in method.ranks:
                yield Candidate(method=name, targets=targets, rank=rank, seq=seq)
