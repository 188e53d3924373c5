"""A trial of installed adapters: the loss on a held-out text.

``firmware/chip/runs/soc_trial.c`` runs the program with the words in use and with those before them.
"""

from collections.abc import Mapping

from gradloom.firmware.device.registers import COMMAND_BYTES
from gradloom.program.patches import Varying
from gradloom.rtl.machines.configs.language import LanguageConfig

from ..operations.base import Operation
from ..operations.blocks.head import LOSS, TARGETS
from ..operations.elements import Loss
from ..operations.learnt.rechosen import FRACS
from ..program.step import lower
from ..run.training import Training, as_bytes
from .layout import STATE, JobLayout
from .part import BoardPart, tabled

__all__ = ["HELD", "evaluated", "held_data", "trial_of"]

_MAGIC = b"GLTR"
#: Before the names of the held-out text's tensors.
HELD = "held:"


def evaluated(training: Training) -> list[Operation]:
    """Operations of a text up to its loss."""
    operations = training.operations
    end = next(n for n, each in enumerate(operations, start=1) if isinstance(each, Loss))
    return operations[:end]


def held_data(training: Training, frac: Mapping[str, int]) -> dict[str, bytes]:
    """What of a held-out text lies in memory, by tensor of a step."""
    name = training.step.input.name
    return {name: training.start_data(frac)[name]} | as_bytes({TARGETS: training.targets})


def trial_of(
    training: Training, frac: Mapping[str, int], job: JobLayout, config: LanguageConfig, start: int
) -> BoardPart:
    """Lays out the program and table of a trial from ``start`` on.

    Data of the text ``training``, and what a step keeps of it, have the prefix :data:`HELD` in the layout of the job.
    Tensors of the program lie where those of a step do: no step runs meanwhile.
    """
    own = job.layout.copy()
    for name in (training.step.input.name, TARGETS, *(each.name for each in job.cached)):
        own.offsets[name] = own[HELD + name]
    varying, variables = dict(frac), {}
    for name in job.exponents.constants:
        for key in (f"{name}.{which}" for which in FRACS):
            variables[key] = frac[key]
            varying[key] = Varying(frac[key], key)
    program = lower(evaluated(training), varying, own, config, share=True)
    if own.end > job.end:
        raise ValueError("held_out: its tensors need more room than those of a step")
    own.used = start
    part = BoardPart(own)
    code = part.bring("trial", program.code)
    names = tuple(job.exponents.constants)
    table = part.bring("trial table", tabled(program, variables, names, ("program",), own[STATE]))
    part.describe(_MAGIC, code, len(program.code) // COMMAND_BYTES, table, own[LOSS])
    return part
