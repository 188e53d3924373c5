"""A network in two parts: what depends on nothing that learns, and the rest.

The first part needs to run once for each sample. The tensors that cross into the second are kept as the machine stores
them.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from gradloom.graph.base import Operation, Tensor
from gradloom.graph.dependence import dependent
from gradloom.graph.network import Network, Port
from gradloom.graph.operations import Parameter, Rearrange, Upsample
from gradloom.program.operations import needed

__all__ = ["Divided", "divided"]


@dataclass(frozen=True)
class Divided:
    """``trunk``: the part that runs once, None where nothing does; its results are inputs of the ``rest``."""

    trunk: Network | None
    rest: Network

    @property
    def crossing(self) -> tuple[Tensor, ...]:
        """Inputs of the rest that the trunk makes."""
        return () if self.trunk is None else tuple(port.tensor for port in self.trunk.outputs)


def divided(network: Network, learners: Collection[str]) -> Divided:
    """The parts of a network as the machine has it; nothing of it is left out but what its results do not need."""
    results = [port.tensor.name for port in network.outputs]
    operations = needed(network.operations, results)
    moving = set(dependent(operations, learners))
    crossing = _crossing(operations, moving)
    # An operation that only names or repeats values belongs to their reader.
    while free := [each for each in operations if each.o.name in crossing and _is_free(each)]:
        moving.update(each.o.name for each in free)
        crossing = _crossing(operations, moving)
    made = {each.o.name for each in operations}
    ports = [
        Port(name, t.shape, t, t.shape, tuple(range(len(t.shape)))) for name, t in crossing.items() if name in made
    ]
    given = tuple(port for port in network.inputs if port.tensor.name in crossing)
    rest = replace(
        network.with_operations([each for each in operations if each.o.name in moving]), inputs=(*given, *ports)
    )
    if not ports:
        return Divided(None, rest)
    trunk = network.with_operations(needed(operations, [port.name for port in ports]), outputs=ports)
    read = {t.name for each in trunk.operations for t in each.i}
    return Divided(replace(trunk, inputs=tuple(port for port in network.inputs if port.tensor.name in read)), rest)


def _crossing(operations: Collection[Operation], moving: Collection[str]) -> dict[str, Tensor]:
    """Tensors that operations read whose results are ``moving``, and that are not made by such."""
    return {t.name: t for each in operations if each.o.name in moving for t in each.i if t.name not in moving}


def _is_free(each: Operation) -> bool:
    return isinstance(each, Parameter | Upsample) or (isinstance(each, Rearrange) and each.is_label)
