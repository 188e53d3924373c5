"""Cycles and memory of a language model's step, without weights.

Neither depends on values.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from gradloom.rtl.machines.configs import LanguageConfig
from gradloom.rtl.models.language import LanguageModel
from gradloom.rtl.models.lora import lowest_layer
from gradloom.rtl.plan.language.descent import AdamW
from gradloom.rtl.plan.language.exponents import choose
from gradloom.rtl.plan.language.needs import reads
from gradloom.rtl.plan.language.operations import EDGE, Fracs, Norm, NormBackward, Operation, Product, results
from gradloom.rtl.plan.language.step import Layout, lower
from gradloom.rtl.plan.language.training import training_operations
from gradloom.rtl.plan.language.transformer import HEAD_MATRIX, Step
from gradloom.rtl.plan.program.assembler import Assembler

from ..time.forecast import forecast

__all__ = ["StepCost", "exponents", "planned_step", "step_cost"]

#: Fraction bits of everything that a step starts from: within all bounds.
_FRAC = 16


@dataclass(frozen=True, kw_only=True)
class StepCost:
    """Cost of a step.

    ``cycles`` by forecast, ``commands`` of its program, bytes of the program and of the places that its tensors share.
    """

    cycles: int
    commands: int
    program_bytes: int
    shared_bytes: int


def exponents(operations: Sequence[Operation]) -> Fracs:
    """Fraction bits for planning a step whose values are unknown."""
    given: dict[str, int] = {}
    made: set[str] = set()
    for each in operations:
        names = {name for name in reads(each) if not name.endswith((".h", ".dh"))} - made
        if isinstance(each, Product):
            names.add(each.weight_name)
            if each.adapter is not None:
                names |= {f"{each.adapter.name}.{which}" for which in "ab"}
        elif isinstance(each, Norm | NormBackward):
            names.add(each.weight)
        given |= dict.fromkeys(names - made, _FRAC)
        made |= {part.name for part in results(each)}
    return choose(operations, defaultdict(lambda: 1.0), given)


def planned_step(
    model: LanguageModel,
    ranks: Mapping[str, int],
    layers: Sequence[int],
    config: LanguageConfig,
    *,
    tokens: int,
    rule: float | AdamW,
    kept: bool = False,
    vectors: Collection[str] = (),
) -> tuple[Assembler, Layout]:
    """The program of a step with the head, and its memory.

    The shared places come last.

    Parameters
    ----------
    ranks : mapping
        Rank of the adapter of a linear, by the linear's name.
    layers : sequence of int
        All of the model that is used.
    kept : bool
        Whether what enters the lowest layer that learns is in memory.
    vectors : collection of str
        Modules with a learnt vector.
    """
    if kept:
        lowest = lowest_layer([*ranks, *vectors])
        layers = [layer for layer in layers if layer >= lowest]
    step = Step(model, tokens, ranks, layers, vectors=frozenset(vectors))
    operations = training_operations(step, dict.fromkeys(ranks, 2.0), rule)
    layout = Layout()
    layout.place(HEAD_MATRIX, 2 * -(-model.vocab // EDGE) * EDGE * model.hidden)
    return lower(operations, exponents(operations), layout, config, share=True), layout


def step_cost(program: Assembler, layout: Layout, config: LanguageConfig, *, read_latency: int = 40) -> StepCost:
    """Of such a step."""
    return StepCost(
        cycles=forecast(program, config=config, read_latency=read_latency).total,
        commands=len(program.instructions),
        program_bytes=len(program.code),
        shared_bytes=layout.shared_bytes,
    )
