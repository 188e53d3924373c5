"""Programs of training steps whose values are unknown.

Neither the commands of a step nor its memory depend on values, so a plan needs no weights.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from gradloom.models.adapters.lora import lowest_layer
from gradloom.models.language import LanguageModel
from gradloom.program.assembler import Assembler
from gradloom.program.descent import AdamW
from gradloom.rtl.machines.configs.language import LanguageConfig

from ..operations.base import Fracs, Operation
from ..operations.blocks.head import HEAD_MATRIX
from ..operations.elements import Add, Biased
from ..operations.exponents import choose
from ..operations.learnt.training import training_operations
from ..operations.products import Product
from ..operations.scaling import Norm, NormBackward
from ..operations.tensors import EDGE
from ..operations.transformer import StepOperations
from .layout import Layout
from .step import lower

__all__ = ["exponents", "planned_step"]

#: Fraction bits of everything that a step starts from: within all bounds.
_FRAC = 16


def exponents(operations: Sequence[Operation]) -> Fracs:
    """Fraction bits for planning a step whose values are unknown."""
    given: dict[str, int] = {}
    made: set[str] = set()
    for each in operations:
        names = {name for name in each.reads if not name.endswith((".h", ".dh"))} - made
        if isinstance(each, Product):
            names.add(each.weight_name)
            if each.adapter is not None:
                names |= {f"{each.adapter.name}.{which}" for which in "ab"}
        elif isinstance(each, Norm | NormBackward):
            names.add(each.weight)
        elif isinstance(each, Biased):
            names.add(each.bias)
        given |= dict.fromkeys(names - made, _FRAC)
        made |= {part.name for part in each.results}
    # Sums of gradients are as wide as what is added.
    sums = [each for each in operations if isinstance(each, Add) and each.in_place]
    for each in sums:
        given.pop(each.y.name, None)
    frac = choose([each for each in operations if each not in sums], defaultdict(lambda: 1.0), given)
    return choose(sums, defaultdict(lambda: 1.0), frac | {each.y.name: frac[each.b.name] for each in sums})


def planned_step(
    model: LanguageModel,
    ranks: Mapping[str, int],
    layers: Sequence[int],
    config: LanguageConfig,
    *,
    tokens: int,
    rule: float | AdamW | None,
    kept: bool = False,
    texts: int = 1,
    wide: bool | None = None,
    vectors: Collection[str] = (),
    made: Collection[str] = (),
    held: bool = False,
    yield_every: int | None = None,
) -> tuple[Assembler, Layout]:
    """The program of a step with the head, and its memory.

    The shared places come last.

    Parameters
    ----------
    ranks : mapping
        Rank of the adapter of a linear, by the linear's name.
    layers : sequence of int
        All of the model that is used.
    rule : optional
        SGD's rate, or AdamW; without, adapters stay.
    kept : bool
        Whether what enters the lowest layer that learns is in memory.
    texts, wide : optional
        See :func:`~.training.training_operations`.
    vectors : collection of str
        Modules with a learnt vector.
    made, held : optional
        See :class:`~.transformer.StepOperations`.
    yield_every : int, optional
        See :func:`~.step.lower`.
    """
    if kept:
        lowest = lowest_layer([*ranks, *vectors])
        layers = [layer for layer in layers if layer >= lowest]
    step = StepOperations(
        model,
        tokens,
        ranks,
        layers,
        vectors=frozenset(vectors),
        texts=texts,
        made=frozenset(made),
        held=held,
        head_part=config.head_part,
    )
    operations = training_operations(step, dict.fromkeys(ranks, 2.0), rule, texts=texts, wide=wide)
    layout = Layout()
    layout.place(HEAD_MATRIX, 2 * -(-model.vocab // EDGE) * EDGE * model.hidden)
    return lower(operations, exponents(operations), layout, config, share=True, yield_every=yield_every), layout
