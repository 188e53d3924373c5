"""Answers of recurrent networks on machines that do not learn."""

from dataclasses import dataclass
from typing import Any, ClassVar

from gradloom.plugins import Homes
from gradloom.workload import Workload

__all__ = ["AnswersWorkload"]


@dataclass(frozen=True, kw_only=True)
class AnswersWorkload(Workload):
    """Answers of a quantised recurrent network to sequences; no fine-tune."""

    kind: ClassVar = "sequences-answers"
    title: ClassVar = "nothing"
    label: ClassVar = "answers"
    reads: ClassVar = "an ONNX file of a quantised recurrent network, or the folder of an import"
    takes: ClassVar = Homes(
        {
            "infer": "gradloom.systems.sequences.requests:SequenceAnswers",
            "plan": "gradloom.systems.sequences.requests:SequencePlan",
        }
    )
    usual_codes: ClassVar = "W8A6C8"
    has_accuracy: ClassVar = True
    functions: ClassVar = {
        "knows": "gradloom.systems.sequences.known:known",
        "infer": "gradloom.systems.sequences.answers:infer",
        "held": "gradloom.systems.sequences.sizes_for:held",
        "plan": "gradloom.systems.sequences.plan:plan",
        "sizes": "gradloom.systems.sequences.sizes_for:sizes",
        "widths": "gradloom.models.recurrent.calibrate:Bits",
        "measure": "gradloom.systems.sequences.widths:of_widths",
        "energy": "gradloom.sim.activity.runs:labels",
        "power_up": "gradloom.systems.sequences.program.onchip:shipped_answers",
    }

    def check_codes(self, name: str, preset: str) -> None:
        """Refuses what are no widths of codes."""
        self._bits(name)

    def settings_of(self, codes: str) -> dict[str, int]:
        """The cell state has as many bits as its codes."""
        return {"state_bits": max(self._bits(codes).state, 4)}

    def _bits(self, codes: str) -> Any:
        made: Any = self.function("widths")
        return made.of(codes)

    def mesh(self, config: Any) -> tuple[int, int]:
        """Elements of the hidden state, and those that enter in a cycle."""
        return config.hidden, config.parallel

    def resized(self, config: Any, rows: int, columns: int) -> dict[str, int]:
        """See :class:`Workload`."""
        return {"hidden": rows, "parallel": columns}
