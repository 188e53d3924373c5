"""Proofs of the vector engine."""

from gradloom.rtl.engines.operands import OperandQueue
from gradloom.rtl.engines.vector.engine import VectorEngine
from gradloom.rtl.engines.vector.rows.maxima import Maxima
from gradloom.rtl.engines.vector.rows.roots import RowSums
from gradloom.sim.proofs.proof import Proof

from ...proofs.entries import CONFIGS, FREE, GENESYS2, pair
from . import stream_claims, sum_claims

__all__ = ["PROOFS"]

_CONFIG = CONFIGS[GENESYS2]
_LANES = {"lanes": _CONFIG.beat_words, "tokens": _CONFIG.tokens}
_SIZES = {**_LANES, "features": _CONFIG.features, "head": _CONFIG.head, "depth": OperandQueue.depth}

PROOFS = [
    Proof(
        name="sums-rows",
        rule="sums never wrap",
        preset=GENESYS2,
        method="induction",
        depth=8,
        found_within=30,
        **pair(sum_claims.row_sums, RowSums, "one-sum-for-two", **_LANES),
    ),
    Proof(
        name="sums-rows-order",
        rule="sums never wrap",
        preset=GENESYS2,
        method="induction",
        depth=4,
        cut=(*FREE, "cutpoint w:unit.room"),
        cover_depth=80,
        found_within=30,
        **pair(sum_claims.rows_in_order, VectorEngine, "rows-of-one-beat", **_SIZES),
    ),
    Proof(
        name="sums-rows-units",
        rule="sums never wrap",
        preset=GENESYS2,
        method="induction",
        depth=7,
        found_within=20,
        **pair(sum_claims.units, Maxima, "starts-at-0", **_LANES),
    ),
    Proof(
        name="sums-losses",
        rule="sums never wrap",
        preset=GENESYS2,
        method="induction",
        depth=4,
        cut=(*FREE, "cutpoint w:unit.room", "cutpoint w:unit.lane_*.exponent"),
        cover_depth=80,
        found_within=80,
        **pair(sum_claims.losses, VectorEngine, "exponents-above-0", **_SIZES),
    ),
    Proof(
        name=f"streams-vectorengine-{GENESYS2}",
        rule="streams: what is offered stays",
        preset=GENESYS2,
        method="induction",
        depth=2,
        cut=FREE,
        found_within=60,
        **pair(stream_claims.vector_rules, VectorEngine, "report-not-taken", **_SIZES),
    ),
]
