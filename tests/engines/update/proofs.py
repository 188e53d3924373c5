"""Proofs of the update engine."""

from gradloom.sim.proofs import streams

from ...proofs.entries import GENESYS2, placed

__all__ = ["PROOFS"]

PROOFS = [placed(GENESYS2, "UpdateEngine", rules=streams.update_rules, cut=("unit.words.w_en", "unit.moments.w_en"))]
