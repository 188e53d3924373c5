"""What runs once for a batch, in the machine's integers."""

from collections.abc import Mapping

import numpy as np

from gradloom.compiler.integers.held import Counts, Held
from gradloom.compiler.integers.reading import IntegerNetwork
from gradloom.rtl.formats.tiles.codes import NARROW

from .prepared import Prepared
from .programs import KeptBatches, Programs

__all__ = ["Trunk"]

Tensors = Mapping[str, np.ndarray | Held]


class Trunk:
    """Tensors that steps read, kept as the machine keeps them."""

    def __init__(self, prepared: Prepared, programs: Programs) -> None:
        trunk = prepared.parts.trunk
        self.exact = None if trunk is None else IntegerNetwork(trunk)
        #: Of each tensor, the widths that steps read.
        self.widths = {name: [tiles.bits for tiles in some] for name, some in programs.step.inputs.items()}
        self.kept, self._made = KeptBatches(programs.sets.count), dict[int, Tensors]()

    def __call__(self, inputs: Tensors, batch: int) -> tuple[Tensors, list[Counts]]:
        """Inputs of a step on a batch, and counts of the codes that were made for it."""
        if self.exact is None:
            return inputs, []
        place, is_there = self.kept.take(batch)
        if is_there:
            return {**inputs, **self._made[place]}, []
        found = self.exact.results(inputs)
        for name, held in found.items():
            for bits in self.widths[name]:
                assert (held.narrow if bits == NARROW else held.wide) is not None
        self._made[place] = found
        return {**inputs, **self._made[place]}, [self.exact.take_counts()]
