"""Sizes of a design that a recurrent network exceeds, all at once."""

from gradloom.rtl.engines.cell.parameters import CellParameters

__all__ = ["Room", "RoomError"]


class RoomError(ValueError):
    """A network does not fit a design.

    ``changes``: fields of the configuration with their smallest legal values, and what needs them; empty where no
    design of the family has room.
    """

    def __init__(self, message: str, changes: dict[str, tuple[int, str]]) -> None:
        super().__init__(message)
        self.changes = changes


class Room:
    """Collects what a network needs of a design.

    Parameters
    ----------
    network : str
    config : CellParameters
    """

    def __init__(self, network: str, config: CellParameters) -> None:
        self.network, self.config = network, config
        self._short: dict[str, tuple[int, str]] = {}
        self._beyond: list[str] = []

    def need(self, field: str, value: int, what: str) -> None:
        """``value`` of a field, in words: ``what``."""
        kind = type(self.config)
        if value <= max(getattr(self.config, field), self._short.get(field, (0, ""))[0]):
            return
        least = kind.smallest(field, value)
        if least is None:
            self._beyond.append(f"{field}={value} ({what}; at most {kind.largest(field)})")
        else:
            self._short[field] = least, what

    def check(self) -> None:
        """Raises :class:`RoomError` if anything is too small."""
        if self._beyond:
            raise RoomError(f"{self.network}: is beyond every design: {', '.join(self._beyond)}", {})
        if self._short:
            has = ", ".join(f"{field}={getattr(self.config, field)}" for field in self._short)
            wanted = ", ".join(f"{field}={value} ({what})" for field, (value, what) in self._short.items())
            raise RoomError(f"{self.network}: does not fit a design with {has}: set {wanted}", self._short)
