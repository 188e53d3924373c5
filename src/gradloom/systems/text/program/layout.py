"""The memory map of a training step."""

from gradloom.program.memory import AreaKind, MemoryMap
from gradloom.rtl.formats.weights.weight_stream import StreamShape

from ..operations.tensors import EDGE, AdapterTensors, Codes, Tensor, TensorSlice

__all__ = ["ZEROS", "Layout", "stride"]

#: Words of 0, as many as a command of the update engine takes.
ZEROS = "zeros"


class Layout(MemoryMap):
    """Memory of a step.

    Of a linear ``NAME``: ``NAME`` its stream, ``NAME.a``, ``NAME.b``, their gradients ``.ga``, ``.gb`` and moments
    ``.ma``, ``.mb``, and ``NAME.h``, ``NAME.dh``.
    """

    def tensor(self, tensor: Tensor) -> int:
        """Of a tensor: tiles of features, rows within, 32-bit words."""
        return self.place(tensor.name, 4 * tensor.rows * tensor.features)

    def part(self, part: TensorSlice) -> int:
        """Of some of its tiles, or of rows of them: where the first is."""
        return self.run(part, part.first)

    def run(self, part: TensorSlice, place: int) -> int:
        """Of its rows of one tile."""
        return self.tensor(part.tensor) + 4 * (part.tensor.rows * place + part.row) * EDGE

    def codes(self, matrix: Codes) -> int:
        """Of a linear's stream."""
        return self.place(matrix.name, StreamShape(outputs=matrix.outputs, inputs=matrix.inputs).bytes, AreaKind.FROZEN)

    def adapter(self, adapter: AdapterTensors, linear: Codes, tokens: int) -> None:
        """All that belongs to an adapter."""
        for which, features in (("a", linear.inputs), ("b", linear.outputs)):
            size = 4 * adapter.rank * features
            for kind, times in (("", 1), ("g", 1), ("m", 2)):
                # What does not learn has no gradient; what the step makes of an R no moments either.
                if not kind or which in adapter.graded and not (adapter.made and kind == "m"):
                    self.place(f"{adapter.name}.{kind}{which}", times * size)
        for which in ("h", "dh"):
            self.place(f"{adapter.name}.{which}", 4 * tokens * adapter.rank)


def stride(part: TensorSlice) -> int | None:
    """Bytes from one of its tiles to the next; None where they lie behind each other."""
    return None if part.whole else 4 * part.step * part.tensor.rows * EDGE
