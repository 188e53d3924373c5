"""Streams: an offered payload stays, unchanged, until it is taken."""

from .claim import Claim

__all__ = ["stream_rules", "update_rules"]


def stream_rules(make):
    """The rules of every stream of the units that ``make`` gives.

    They hold for all contents of their memories and all results of their products.

    The units are ``unit_0``, ``unit_1`` and so on.
    """
    claim = Claim()
    for number, unit in enumerate(make()):
        claim.place(unit, f"unit_{number}", memories=lambda memory: None if any(memory.init) else "any")
        claim.drive(unit)
        claim.streams(unit, prefix=f"unit_{number}_")
    return claim


def update_rules(make):
    """The rules of the optimiser's engine.

    Words wait for their moments by a counter of commands, which would have to count to its end before it could take an
    offer back; its queues hold far fewer.
    """
    claim = Claim()
    (unit,) = make()
    inside = claim.place(unit, memories=lambda memory: None if any(memory.init) else "any")
    claim.drive(unit)
    claim.streams(unit)
    claim.assume("counter_does_not_end", inside["ahead"] <= 1000)
    claim.lemma("some_are_ahead", inside["some"] == (inside["ahead"] != 0))
    return claim
