"""Selects the operations, updates and stores of a training step."""

from collections.abc import Mapping

from gradloom.program.descent import AdamW, at_rate, scaled
from gradloom.program.operations import needed

from ..base import Operation
from ..blocks.rows import gradients
from ..products import Gradient
from ..scaling import TokenSum
from ..transformer import StepOperations
from .accumulate import summed
from .updates import Descent, Update, stored

__all__ = ["training_operations"]


def training_operations(
    step: StepOperations,
    scales: Mapping[str, float],
    rule: float | AdamW | None = None,
    number: int = 1,
    *,
    texts: int = 1,
    wide: bool | None = None,
    plus: float = 1.0,
) -> list[Operation]:
    """Operations of a step.

    Parameters
    ----------
    step : Step
    scales : mapping
        Factor of B, by adapter.
    rule : optional
        SGD's rate, or AdamW; without, adapters stay.
    number : int
        Of the update, from 1 on.
    texts : int
        Whose gradients an update is made of.
    wide : bool, optional
        Adapters and moments are stored as blocks of codes of 8 bits, or, False, of 4.
    plus : float
        Factor of the rate of B.
    """
    # Without the head, it is a part of a step: layers behind it and before it want their operands.
    kept = () if step.head else (step.output.name, step.entry.name)
    every = step.operations()
    made = needed(every, (*kept, *gradients(every)))
    if rule is not None:
        made += [
            Update(
                each.adapter,
                step.codes(each.adapter.name),
                (rule, scaled(at_rate(rule, plus), scales[each.adapter.name])),
                number,
            )
            for each in {each.adapter: each for each in made if isinstance(each, Gradient)}.values()
            if not each.adapter.made
        ] + [
            Descent(step.learnt.words(module).all(), step.learnt.gradient(module).all(), f"{module}.mw", rule, number)
            for module in dict.fromkeys(each.y.name.rpartition(".gw")[0] for each in made if isinstance(each, TokenSum))
        ]
        made += [
            Descent(step.cores.words(name).all(), step.cores.gradient(name).all(), f"{name}.mr", rule, number)
            for name in step.cores.of(made)
        ]
    if wide is not None:
        if step.vectors or step.made:
            raise ValueError("wide: neither vectors nor LoRA-XS are stored as codes")
        if texts > 1:
            raise ValueError(f"texts={texts}: must be 1 where adapters are stored as codes")
        made = stored(made, wide)
    return made if texts == 1 else summed(made, lambda adapter: step.codes(adapter.name))
