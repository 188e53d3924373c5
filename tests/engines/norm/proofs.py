"""Proofs of the norm engine."""

from gradloom.rtl.engines.norm.sums import NormSums
from gradloom.sim.proofs.proof import Proof

from ...proofs.entries import FREE, pair
from . import claims

__all__ = ["PROOFS"]

PROOFS = [
    Proof(
        name="sums-norm",
        rule="sums never wrap",
        preset="cdm-qta-kv260",
        method="induction",
        depth=1,
        cut=FREE,
        found_within=20,
        **pair(claims.sums, NormSums, "short"),
    )
]
