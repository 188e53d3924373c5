"""Streams: what is offered stays, and stays the same, until it is taken."""
from claim import Claim

__all__ = ["stream_rules"]


def stream_rules(make, *, memories="any", unless=None, without=()):
    """The rules of every stream of a unit, whatever its memories hold and its products are."""
    claim = Claim()
    unit = make()
    claim.place(unit, memories=lambda memory: None if any(memory.init) else memories)
    claim.drive(unit)
    claim.streams(unit, unless=getattr(unit, unless) if unless else 0, without=without)
    return claim
