"""Proofs of the cell engine."""

from gradloom.rtl.systolic.slices import Accumulate
from gradloom.sim.proofs.proof import Proof

from ...proofs.entries import FREE, pair, placed
from . import claims

__all__ = ["PROOFS"]

PROOFS = [
    placed("lstm-kv260", "CellEngine"),
    Proof(
        name="chain-cell",
        rule="lanes of a pair never spill",
        preset="lstm-zcu104",
        method="induction",
        depth=1,
        cut=FREE,
        found_within=8,
        **pair(claims.chain, Accumulate, "first-kept"),
    ),
]
