"""Proofs of the update engine."""

from gradloom.rtl.engines.update.codes import GradientCodes
from gradloom.sim.proofs import streams
from gradloom.sim.proofs.proof import stream_proof

from ...proofs.entries import GENESYS2, placed

__all__ = ["PROOFS"]

PROOFS = [
    placed(GENESYS2, "UpdateEngine", rules=streams.update_rules, cut=("unit.words.w_en", "unit.moments.w_en")),
    stream_proof("gradientcodes", lambda: [GradientCodes()], preset="cdm-qta-kv260"),
]
