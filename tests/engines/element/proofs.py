"""Proofs of the element engine."""

from gradloom.rtl.engines.element.lane import ElementLane
from gradloom.sim.proofs.proof import Proof

from ...proofs.entries import FREE, pair
from . import claims

__all__ = ["PROOFS"]

PROOFS = [
    Proof(
        name="sums-element",
        rule="sums never wrap",
        preset="cdm-qta-kv260",
        method="induction",
        depth=claims.DEEP,
        cut=FREE,
        found_within=20,
        **pair(claims.sums, ElementLane, "short"),
    )
]
