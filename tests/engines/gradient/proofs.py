"""Proofs of the gradient engine."""

from gradloom.rtl.engines.gradient.engine import GradientEngine
from gradloom.sim.proofs.proof import Proof

from ...proofs.entries import CONFIGS, FREE, GENESYS2, pair, placed
from . import claims

__all__ = ["PROOFS"]

PROOFS = [
    Proof(
        name="sums-gradients",
        rule="sums never wrap",
        preset=GENESYS2,
        method="induction",
        depth=8,
        cut=FREE,
        found_within=30,
        **pair(claims.gradients, GradientEngine, "sum-of-40-bits", config=CONFIGS[GENESYS2]),
    ),
    placed(GENESYS2, "GradientEngine", cut=("unit_*queue.push",)),
]
