"""Proofs of the head engine."""

from gradloom.rtl.engines.head.engine import Head
from gradloom.rtl.engines.head.lane import _ClassLane
from gradloom.rtl.units.softmax import SoftmaxCrossEntropy
from gradloom.sim.proofs.proof import Proof

from ...proofs.entries import CONFIGS, FREE, IMAGE_CONFIGS, KV260, ULX3S, pair, placed
from . import claims, softmax_claims

__all__ = ["PROOFS"]

PROOFS = [
    *(
        Proof(
            name=f"sums-class-{_preset}",
            rule="sums never wrap",
            preset=_preset,
            method="induction",
            depth=6,
            cut=FREE,
            cover_depth=80,
            found_within=16,
            **pair(
                claims.class_lane,
                _ClassLane,
                "first-too-early",
                classes=_config.classes,
                depth=_config.rank * _config.taps,
                rows=_config.rows,
                activation=_config.activation,
            ),
        )
        for _preset, _config in IMAGE_CONFIGS
    ),
    Proof(
        name=f"sums-softmax-{CONFIGS[KV260].classes}",
        rule="sums never wrap",
        preset=f"{KV260}, {ULX3S}",
        method="induction",
        depth=8,
        cut=FREE,
        found_within=24,
        **pair(softmax_claims.softmax, SoftmaxCrossEntropy, "sum-a-bit-short", max_length=CONFIGS[KV260].classes),
    ),
    *(
        Proof(
            name=f"sums-losses-{_preset}",
            rule="sums never wrap",
            preset=_preset,
            method="induction",
            depth=2,
            cut=(*FREE, "cutpoint w:unit.softmax.o_loss__*"),
            found_within=12,
            **pair(softmax_claims.losses, Head, "loss-of-26-bits", config=_config),
        )
        for _preset, _config in IMAGE_CONFIGS
    ),
    *(placed(preset, unit) for preset in (KV260, ULX3S) for unit in ("Head", "SoftmaxCrossEntropy")),
]
