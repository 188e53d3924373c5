"""Proofs of the linear engine."""

from gradloom.rtl.engines.linear.feet import Foot, HiddenFoot
from gradloom.sim.proofs.proof import Proof

from ...proofs.entries import CONFIGS, GENESYS2, pair, placed
from . import claims

__all__ = ["PROOFS"]

PROOFS = [
    Proof(
        name="sums-tiles",
        rule="sums never wrap",
        preset=GENESYS2,
        method="induction",
        depth=5,
        found_within=16,
        **pair(claims.tiles, Foot, "sum-of-46-bits", config=CONFIGS[GENESYS2]),
    ),
    Proof(
        name="sums-hidden",
        rule="sums never wrap",
        preset=GENESYS2,
        method="induction",
        depth=5,
        found_within=16,
        **pair(claims.tiles, HiddenFoot, "hidden-sum-of-46-bits", config=CONFIGS[GENESYS2]),
    ),
    *(placed(GENESYS2, unit) for unit in ("PairQueue", "OperandQueue")),
    placed(GENESYS2, "BeatQueue", cut=("unit_*.push",)),
    placed(GENESYS2, "Drain", cut=("unit_*.queue.push",)),
    placed(GENESYS2, "HiddenMemory", cut=("unit_*.queue.push",)),
    placed(GENESYS2, "LinearEngine", cut=("unit_*.drain.queue.push",)),
]
