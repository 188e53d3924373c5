"""Proofs of the array engine."""

from gradloom.rtl.engines.array.feet import Accumulate
from gradloom.sim.proofs.proof import Proof

from ...proofs.entries import IMAGE_CONFIGS, KV260, ULX3S, pair, placed
from . import claims

__all__ = ["PROOFS"]

PROOFS = [
    *(
        Proof(
            name=f"sums-channels-{_preset}",
            rule="sums never wrap",
            preset=_preset,
            method="induction",
            depth=5,
            found_within=16,
            **pair(claims.channels, Accumulate, "first-channel-only", config=_config),
        )
        for _preset, _config in IMAGE_CONFIGS
    ),
    *(placed(preset, unit) for preset in (KV260, ULX3S) for unit in ("WindowGenerator", "PostProcess", "LaneOutlet")),
]
