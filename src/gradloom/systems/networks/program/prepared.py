"""A network and what learns in it, as the machine has them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gradloom.compiler.base import Rule
from gradloom.compiler.integers.descent import fraction_of
from gradloom.compiler.integers.reading import IntegerNetwork
from gradloom.compiler.lowering import TileStep, lower
from gradloom.compiler.passes.arranging import Arranged, arranged
from gradloom.compiler.passes.folding import folded
from gradloom.graph.methods import METHODS, Learning, lora
from gradloom.graph.network import Network
from gradloom.graph.operations import Convolution, Linear
from gradloom.graph.training import before_loss
from gradloom.program.descent import AdamW, scaled

__all__ = ["TARGETS", "Prepared", "learning_of"]

#: Layers with an adapter unless others are named.
TARGETS = "last:2"

Values = Mapping[str, np.ndarray]


def learning_of(
    network: Network,
    loss: str,
    method: str,
    *,
    targets: str | None = None,
    rank: int = 4,
    alpha: float | None = None,
    seed: int = 0,
) -> Learning:
    """The network up to its loss, and what learns; ``method`` none: nothing does."""
    inner = before_loss(network, loss)
    if method == "none":
        return Learning(inner, ())
    if method == "lora":
        return lora(inner, targets or TARGETS, rank=rank, alpha=alpha, seed=seed)
    return METHODS[method](inner)


@dataclass(frozen=True)
class Prepared:
    """What learns, arranged for the machine.

    ``values`` of its methods are weights by name as the file has them; those of the machine are matrices.
    """

    learning: Learning
    loss: str

    @cached_property
    def arranged(self) -> Arranged:
        """The network, and how its weights moved."""
        return arranged(self.learning.network)

    @cached_property
    def network(self) -> Network:
        """What :func:`~gradloom.compiler.lowering.lower` takes."""
        return folded(self.arranged.network, self.learning.learners)

    def integers(self) -> IntegerNetwork:
        """The reference, at its beginning."""
        return IntegerNetwork(self.network, self.learning.learners)

    def rules(self, lr: float, decay: float = 0.0) -> dict[str, Rule]:
        """How each weight learns. B has the fraction bits of its A, where it begins with zeros."""
        exact, made = self.integers(), {}
        for name in self.learning.learners:
            move = self.arranged.moves.get(name)
            rule = scaled(AdamW(lr=lr, weight_decay=decay), 1.0 if move is None else move.factor)
            assert isinstance(rule, AdamW)
            sized = exact.matrix(name)
            if not sized.any():
                other = name.replace(".lora_B.", ".lora_A.")
                sized = exact.matrix(other) if other != name else np.ones(1)
            made[name] = Rule(rule, fraction_of(sized))
        return made

    def step(self, config: Any, batch: int, rules: Mapping[str, Rule]) -> TileStep:
        """The program of a step of training, or without rules of the forward pass."""
        return lower(config, self.network, samples=batch, loss=self.loss if rules else None, rules=rules)

    def back(self, exact: IntegerNetwork) -> dict[str, np.ndarray]:
        """What learns, as the file has it."""
        return {name: self.arranged.back(name, exact.values[name]) for name in self.learning.learners}

    def inputs(self, x: np.ndarray) -> dict[str, np.ndarray]:
        """Tensors of samples as the file has them."""
        (port,) = self.network.inputs
        return {port.tensor.name: port.taken(x)}

    @property
    def layers(self) -> list[Linear | Convolution]:
        """Layers with an adapter, as the file has them."""
        listed = self.learning.network.operations
        return [each for each in listed if isinstance(each, Linear | Convolution) and each.rank]
