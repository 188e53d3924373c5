"""One program for many steps of a job, and its operands that vary.

These are offsets of the text, constants of AdamW that depend on the number of updates, and the exponents of adapters
(:mod:`~.rechosen`).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from gradloom.program.assembler import Assembler
from gradloom.program.descent import AdamW
from gradloom.program.patches import Patch, Varying, patches
from gradloom.rtl.machines.configs.language import LanguageConfig

from ..operations.base import Fracs, Operation
from ..operations.learnt.rechosen import FRACS
from ..operations.learnt.updates import Descent, Update
from .layout import Layout
from .step import lower

__all__ = ["SteppedProgram", "schedule", "scheduled", "stepped"]

#: Operands of AdamW that depend on the number of updates.
_COLUMNS = ("rate", "exponent", "eps", "eps_exponent")
#: Those that depend on the rate alone, where weights decay.
_DECAY = ("decay", "decay_shift")


@dataclass(frozen=True, kw_only=True)
class _Scheduled(AdamW):
    """A rule some of whose operands vary under its name."""

    named: str

    def operands(self, step: int, gradient_frac: int, word_frac: int) -> dict[str, int]:
        made = super().operands(step, gradient_frac, word_frac)
        for column, value in _columns(self, self.named, step).items():
            operand = column.rsplit(".", 1)[1]
            made[operand] = Varying(value, column) - (word_frac if operand == "exponent" else 0)
        return made


def _columns(rule: AdamW, name: str, number: int, factor: float = 1.0) -> dict[str, int]:
    """Columns of a rule for update ``number``, of words without fraction."""
    if not rule.lr:
        return {}
    # Of all operands, the exponent alone depends on the words, and the gradient's on gradients.
    made = AdamW.operands(replace(rule, lr=rule.lr * factor), number, 0, 0)
    columns = (*_COLUMNS, *_DECAY) if rule.weight_decay else _COLUMNS
    return {f"{name}.{column}": made[column] for column in columns}


def scheduled(operations: Sequence[Operation]) -> tuple[list[Operation], dict[str, AdamW]]:
    """The operations with varying constants of AdamW, and rules by name."""
    names: dict[AdamW, str] = {}
    made: list[Operation] = []

    def varying(rule: float | AdamW) -> float | AdamW:
        if not isinstance(rule, AdamW):
            return rule
        named = names.setdefault(rule, f"rule{len(names)}")
        return _Scheduled(lr=rule.lr, betas=rule.betas, eps=rule.eps, weight_decay=rule.weight_decay, named=named)

    for each in operations:
        if isinstance(each, Update):
            each = replace(each, rules=(varying(each.rules[0]), varying(each.rules[1])))
        elif isinstance(each, Descent):
            each = replace(each, rule=varying(each.rule))
        made.append(each)
    return made, {name: rule for rule, name in names.items()}


def schedule(rules: Mapping[str, AdamW], number: int, factor: float = 1.0) -> dict[str, int]:
    """Columns of update ``number``, from 1 on, by all rules.

    ``factor``: of the rate in this update.
    """
    return {
        column: value for name, rule in rules.items() for column, value in _columns(rule, name, number, factor).items()
    }


@dataclass(frozen=True)
class SteppedProgram:
    """A program for the first of its steps, and its fields that vary.

    Variables are offsets of texts under the names of their tensors, columns of rules, and exponents of adapters,
    ``NAME.a`` and so on.
    """

    program: Assembler
    patches: Sequence[Patch]


def stepped(
    operations: Sequence[Operation],
    number: int,
    frac: Fracs,
    layout: Layout,
    config: LanguageConfig,
    *,
    adapters: Collection[str],
    texts: Collection[str],
    yield_every: int | None = None,
) -> SteppedProgram:
    """Lowers a step of update ``number``, with shared places.

    ``texts``: names of tensors that have another place for each text. ``yield_every``: see :func:`~.step.lower`; the
    loss has one result.
    """
    operations, rules = scheduled(operations)
    variables = schedule(rules, number)
    varying = dict(frac)
    for key in (f"{name}.{which}" for name in adapters for which in FRACS):
        variables[key] = frac[key]
        varying[key] = Varying(frac[key], key)
    for name in texts:
        variables[name] = layout[name]
        layout.offsets[name] = Varying(layout[name], name)
    program = lower(operations, varying, layout, config, share=True, yield_every=yield_every, part_loss=False)
    return SteppedProgram(program, patches(program.instructions, variables))
