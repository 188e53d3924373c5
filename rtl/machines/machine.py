"""The engines of a machine and the wires between them."""

from dataclasses import dataclass
from typing import Any

from ..shell.engines import Engine, Engines

__all__ = ["Machine", "Wire"]


@dataclass(frozen=True)
class Wire:
    """A direct connection of two engines: ``ENGINE.MEMBER`` of each.

    The members have the same signature, in opposite directions.
    """

    one: str
    other: str


@dataclass(frozen=True, eq=False)
class Machine:
    """The engines of a machine and the wires between them.

    Parameters
    ----------
    engines : Engines
    wires : tuple of Wire
        Every member of an engine's component that its specification does not name is at the end of one wire.
    """

    engines: Engines
    wires: tuple[Wire, ...] = ()

    def loop(self, config: Any) -> tuple[Engine, Any] | None:
        """The first engine that offers a loop for self-tests, and the loop.

        The loop is a :class:`~..shell.engines.Loop`.
        """
        return next(((each, each.spec.loop(config)) for each in self.engines.own if each.spec.loop), None)
