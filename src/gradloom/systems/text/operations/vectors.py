"""Operations of vectors that learn.

They are norms' weights, and factors of a linear's outputs or inputs.

A vector's words, ``MODULE.w``, are activations of one row. :class:`~.operations.Narrow` makes of them, once a step,
what the vector engine multiplies features by. The gradient, ``MODULE.gw``, is a sum over tokens of what the vector
engine made on its way back; :class:`~.operations.Descent` updates the words in place, with the moments ``MODULE.mw``.
"""

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from gradloom.models.language import HEAD_NORMS, PROJECTIONS, LanguageModel

from .base import Operation
from .elements import Add
from .scaling import Narrow, NormBackward, Scale, ScaleBackward, TokenSum
from .tensors import Factors, Gain, Tensor, TensorSlice

__all__ = ["LAST_NORM", "SCALED", "StepVectors", "last_gains", "norms_of"]

LAST_NORM = "model.norm"
#: Linears whose outputs, of ``down_proj`` inputs, may be multiplied by a vector.
SCALED = ("k_proj", "v_proj", "down_proj")


def norms_of(model: LanguageModel) -> dict[str, str]:
    """All norms of a layer, and the names of their weights in a step."""
    heads = {f"self_attn.{each}": each for each in HEAD_NORMS.values()} if model.normed else {}
    return {**model.layer_norms, **heads}


def last_gains(foretold: int, texts: int = 1) -> dict[str, float]:
    """Factors folded into the last norm's weights, forward and backward.

    They are for the logits and for the way back: the mean over the tokens that are ``foretold``, and over the texts
    whose gradients are added up.
    """
    return {"norm": math.log2(math.e), "norm.back": 1 / (max(foretold, 1) * texts)}


@dataclass(frozen=True)
class StepVectors:
    """Those of a step.

    Parameters
    ----------
    modules : collection of str
        Which learn.
    model : LanguageModel
    tokens, foretold, texts : int
        Of a text; of them those that have a loss; and texts whose gradients are added up.
    """

    modules: Collection[str]
    model: LanguageModel
    tokens: int
    foretold: int
    texts: int = 1

    # names

    @staticmethod
    def norm(layer: int, which: str) -> str:
        """Module of a layer's norm."""
        return f"model.layers.{layer}.{which}"

    @staticmethod
    def linear(layer: int, projection: str) -> str:
        """Module of a layer's linear."""
        return f"model.layers.{layer}.{PROJECTIONS[projection]}.{projection}"

    def features(self, module: str) -> int:
        """Elements of a module's vector."""
        sizes = {"k_proj": self.model.kv, "v_proj": self.model.kv, "down_proj": self.model.inter}
        return sizes.get(module.rsplit(".", 1)[-1], self.model.hidden)

    def words(self, module: str) -> Tensor:
        """What learns."""
        return Tensor(f"{module}.w", 1, self.features(module))

    def gradient(self, module: str) -> Tensor:
        """Of it."""
        return Tensor(f"{module}.gw", 1, self.features(module))

    def total(self, module: str) -> Tensor:
        """Sum of several texts' gradients."""
        return Tensor(f"{module}.sw", 1, self.features(module))

    def factors(self, module: str) -> TensorSlice:
        """What a linear's outputs or inputs are multiplied by."""
        return Factors(f"{module}.factors", 1, self.features(module)).all()

    def _weights(self, module: str) -> Iterator[tuple[str, Gain]]:
        """Names of the factors made of a module's words, with their gains."""
        root = math.sqrt(self.model.counted)
        if module == LAST_NORM:
            for name, gain in last_gains(self.foretold, self.texts).items():
                yield name, Gain(f"gain.{name}", root * gain)
            return
        which = module.rsplit(".", 1)[-1]
        if which in self.model.layer_norms:
            yield f"{module.split('.')[2]}.{self.model.layer_norms[which]}", Gain("gain.layer_norm", root)
        else:
            yield self.factors(module).name, Gain("gain.one", 1.0)

    # operations

    def narrowed(self, module: str) -> list[Operation]:
        """Factors of a module's words; none where it does not learn."""
        if module not in self.modules:
            return []
        words = self.words(module)
        return [
            Narrow(words.all(), gain, Factors(name, 1, words.features).all()) for name, gain in self._weights(module)
        ]

    def first_ready(self, layer: int) -> list[Operation]:
        """Factors for a layer's norm in front of attention."""
        firsts = [name for name, place in self.model.layer_norms.items() if place == "norm1"]
        return [each for name in firsts for each in self.narrowed(self.norm(layer, name))]

    def made_ready(self, layer: int, after: int | None) -> list[Operation]:
        """Factors for a layer behind that norm, and for the norm after it.

        That is the first norm of layer ``after``, or the last of all.
        """
        modules = [self.norm(layer, name) for name, place in self.model.layer_norms.items() if place != "norm1"]
        modules += [self.linear(layer, each) for each in SCALED]
        made = [each for module in modules for each in self.narrowed(module)]
        return made + (self.narrowed(LAST_NORM) if after is None else self.first_ready(after))

    def scaled(self, module: str, x: Tensor, y: Tensor) -> list[Operation]:
        """Forward."""
        return [Scale(x.all(), self.factors(module), y.all())]

    @staticmethod
    def plain(scaled: Tensor) -> Tensor:
        """A tensor before it is multiplied by factors, or its gradient."""
        return Tensor(f"{scaled.name}.plain", scaled.rows, scaled.features)

    def back(self, module: str, y: Tensor, dy: Tensor) -> tuple[list[Operation], Tensor]:
        """Backward, with the gradient of the factors.

        Returns the operations and the gradient of what was multiplied to be y: dy itself where nothing was.
        """
        if module not in self.modules:
            return [], dy
        x, dx, u = self.plain(y), self.plain(dy), Tensor(f"{module}.u", y.rows, y.features)
        return [
            ScaleBackward(x.all(), dy.all(), self.factors(module), dx.all(), u.all()),
            TokenSum(u.all(), Gain("sum.one", 1.0), self.gradient(module).all()),
        ], dx

    def norm_back(self, layer: int, place: str, x: Tensor, dy: Tensor, dx: Tensor) -> tuple[list[Operation], Tensor]:
        """A layer's norm of a place backward, with the gradient of its weight if it learns.

        Returns the operations and the gradient of x: dy itself where there is no norm.
        """
        name = next((name for name, each in self.model.layer_norms.items() if each == place), None)
        if name is None:
            return [], dy
        module = self.norm(layer, name)
        back = NormBackward(x.all(), dy.all(), f"{layer}.{place}", dx.all(), self.model.norm_eps, self.norm_u(module))
        return [back, *self.norm_sum(module)], dx

    def norm_added(
        self, layer: int, place: str, x: Tensor, dy: Tensor, alone: Tensor, residual: Tensor, dx: Tensor
    ) -> list[Operation]:
        """The same, with a residual added to the gradient: dx.

        The norm adds it itself, unless it learns. ``alone``: the gradient without it, where it is made.
        """
        operations, made = self.norm_back(layer, place, x, dy, alone)
        match operations:
            case [NormBackward() as back]:
                return [replace(back, residual=residual.all(), dx=dx.all())]
        return [*operations, Add(residual.all(), made.all(), dx.all())]

    def norm_u(self, module: str) -> TensorSlice | None:
        """What the gradient of a norm's weight is a sum of, if it learns."""
        return Tensor(f"{module}.u", self.tokens, self.model.hidden).all() if module in self.modules else None

    def norm_sum(self, module: str) -> list[Operation]:
        """The gradient of a norm's weight."""
        u = self.norm_u(module)
        if u is None:
            return []
        name, gain = "sum.layer_norm", math.sqrt(self.model.counted)
        if module == LAST_NORM:
            name, gain = "sum.norm.back", gain * last_gains(self.foretold, self.texts)["norm.back"]
        return [TokenSum(u, Gain(name, gain), self.gradient(module).all())]
