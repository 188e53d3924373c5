"""Cycles and memory of a language model's step, without weights.

Neither depends on values.
"""

from dataclasses import dataclass

from gradloom.program.assembler import Assembler
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.sim.time.forecast import USUAL, MemoryTime, forecast

from ..program.layout import Layout

__all__ = ["StepCost", "step_cost"]


@dataclass(frozen=True, kw_only=True)
class StepCost:
    """Cost of a step.

    ``cycles`` by forecast, ``commands`` of its program, bytes of the program and of the places that its tensors share.
    """

    cycles: int
    commands: int
    program_bytes: int
    shared_bytes: int


def step_cost(program: Assembler, layout: Layout, config: LanguageConfig, *, memory: MemoryTime = USUAL) -> StepCost:
    """Of such a step."""
    return StepCost(
        cycles=forecast(program, config=config, memory=memory).total,
        commands=len(program.instructions),
        program_bytes=len(program.code),
        shared_bytes=layout.shared_bytes,
    )
