"""A network and what learns in it, as the machine has them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypedDict

import numpy as np

from gradloom.compiler.commands.base import Rule
from gradloom.compiler.integers.descent import fraction_of
from gradloom.compiler.integers.reading import IntegerNetwork
from gradloom.compiler.lowering import TileStep, lower
from gradloom.compiler.passes.arranging import Arranged, arranged
from gradloom.compiler.passes.dividing import Divided, divided
from gradloom.compiler.passes.doubling import doubled
from gradloom.compiler.passes.folding import folded
from gradloom.compiler.weights.matrices import rest_of
from gradloom.graph.methods import METHODS, Learning, instant, lesser_ranks, lora, targets
from gradloom.graph.network import Network
from gradloom.graph.operations import Convolution, Linear
from gradloom.graph.rounding import rounded
from gradloom.graph.training import before_loss
from gradloom.program.descent import AdamW, scaled
from gradloom.rtl.formats.weights.linear import MASTER

from .programs import Programs, lowered

__all__ = ["AUTO", "TAPS", "TARGETS", "Prepared", "learning_of", "precise_of", "ranks_of"]

#: Layers with an adapter unless others are named.
TARGETS = "last:2"
#: Layers whose inputs have a tap, unless others are named.
TAPS = "*"
#: In place of layers of :func:`precise_of`: samples choose them.
AUTO = "auto"
#: Before layers of :func:`precise_of` whose weights have one code.
_INPUTS = "inputs:"

#: Fraction bits of masters: learning may make a small weight large.
_MOST_FRACTION = MASTER.width - 4

Values = Mapping[str, np.ndarray]


class Ranks(TypedDict, total=False):
    """Ranks of adapters: of all, and of layers that have a lesser one."""

    rank: int
    lesser: dict[str, int]


def ranks_of(network: Network, method: str, targets: str | None, asked: int | None, usual: int) -> Ranks:
    """``rank`` of adapters by ``method``: the one that is asked for, or the usual one.

    ``lesser``: where none is asked for, the ranks of layers that are too small for the usual one.
    """
    if method == "lora" and asked is None:
        return {"rank": usual, "lesser": lesser_ranks(network, targets or TARGETS, usual)}
    return {"rank": usual if asked is None else asked} if method in ("lora", "instantft") else {}


def learning_of(
    network: Network,
    loss: str,
    method: str,
    *,
    targets: str | Sequence[str] | None = None,
    rank: int = 4,
    lesser: Mapping[str, int] | None = None,
    alpha: float | None = None,
    seed: int = 0,
) -> Learning:
    """The network up to its loss, and what learns; ``method`` none: nothing does."""
    inner = before_loss(network, loss)
    if targets and method in ("none", "head"):
        raise ValueError(f"targets={targets}: must be left out with method={method}")
    if method == "none":
        return Learning(inner, ())
    if method == "lora":
        return lora(inner, targets or TARGETS, rank=rank, lesser=lesser, alpha=alpha, seed=seed)
    if method == "instantft":
        return instant(inner, targets or TAPS, rank=rank, seed=seed)
    return METHODS[method](inner, *([targets] if targets else []))


def precise_of(network: Network, asked: str | None) -> dict[str, int]:
    """Layers that read two codes by name, and how many codes their weights have, which is 2 but behind ``inputs:``.

    ``asked``: ``ends``, or as targets of adapters are named, with commas between.
    """
    if asked is not None and asked.partition(":")[0] == AUTO:
        raise ValueError(f"precise={asked}: needs samples, as finetune and infer have; name the layers that they tell")
    layers = [each.layer for each in network.operations if isinstance(each, Linear | Convolution)]
    made: dict[str, int] = {}
    for part in filter(None, (each.strip() for each in (asked or "").split(","))):
        name = part.removeprefix(_INPUTS)
        codes = 2 if name == part else 1
        named = [] if name == "ends" else [each.layer for each in targets(network, name, "precise")]
        some = layers[:1] + layers[-1:] if name == "ends" else named
        made |= {layer: max(codes, made.get(layer, 0)) for layer in some}
    if asked is not None and not made:
        raise ValueError(f"precise={asked}: names no layer")
    return made


@dataclass(frozen=True)
class Prepared:
    """What learns, arranged for the machine.

    ``values`` of its methods are weights by name as the file has them; those of the machine are matrices. ``weighted``:
    targets of classes have weights. ``precise``: layers that read two codes, see :func:`precise_of`.
    """

    learning: Learning
    loss: str
    weighted: bool = False
    precise: Mapping[str, int] = field(default_factory=dict)

    def fitted(self, x: np.ndarray) -> "Prepared":
        """The same with weights that :func:`~gradloom.graph.rounding.rounded` chooses by samples."""
        learners = self.learning.learners
        found = rounded(self.learning.network, x, learners, self.precise)
        return replace(self, learning=Learning(found, learners))

    @cached_property
    def arranged(self) -> Arranged:
        """The network, and how its weights moved."""
        return arranged(self.learning.network, self.learning.learners)

    @cached_property
    def network(self) -> Network:
        """What :func:`~gradloom.compiler.lowering.lower` takes."""
        return doubled(folded(self.arranged.network, self.learning.learners), self.precise)

    @cached_property
    def parts(self) -> Divided:
        """The network in what runs once and what learns."""
        return divided(self.network, self.learning.learners)

    @property
    def objective(self) -> str:
        """The loss by the compiler's name."""
        return "weighted" if self.weighted else self.loss

    def integers(self) -> IntegerNetwork:
        """The reference, at its beginning."""
        return IntegerNetwork(self.network, self.learning.learners)

    def rules(self, lr: float, decay: float = 0.0) -> dict[str, Rule]:
        """How each weight learns; masters reach 8 at least, however small they begin.

        B has the fraction bits of its A, where it begins with zeros.
        """
        exact, made = self.integers(), {}
        for name in self.learning.learners:
            move = self.arranged.moves.get(name)
            rule = scaled(AdamW(lr=lr, weight_decay=decay), 1.0 if move is None else move.factor)
            assert isinstance(rule, AdamW)
            sized = exact.matrix(name)
            if not sized.any():
                other = name.replace(".lora_B.", ".lora_A.")
                sized = exact.matrix(other) if other != name else np.ones(1)
            made[name] = Rule(rule, min(fraction_of(sized), _MOST_FRACTION))
        return made

    def forward(self, config: Any, batch: int) -> TileStep:
        """The program of the forward pass."""
        return lower(config, self.network, samples=batch)

    def programs(self, config: Any, batch: int, rules: Mapping[str, Rule], **more: int) -> Programs:
        """Programs of steps of ``batch`` samples; ``more``: see :func:`.programs.lowered`."""
        return lowered(config, self.parts, samples=batch, loss=self.objective, rules=rules, **more)

    def back(self, exact: IntegerNetwork) -> dict[str, np.ndarray]:
        """What learns, as the file has it."""
        return {name: self.arranged.back(name, exact.values[name]) for name in self.learning.learners}

    def inputs(self, x: np.ndarray) -> dict[str, np.ndarray]:
        """Tensors of samples as the file has them."""
        port, *seconds = self.network.inputs
        taken = port.taken(x)
        return {port.tensor.name: taken} | {
            second.tensor.name: rest_of(taken.reshape(-1, port.tensor.features)).reshape(taken.shape)
            for second in seconds
        }

    @property
    def layers(self) -> list[Linear | Convolution]:
        """Layers with an adapter, as the file has them."""
        listed = self.learning.network.operations
        return [each for each in listed if isinstance(each, Linear | Convolution) and each.rank]
