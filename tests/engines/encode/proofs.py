"""Proofs of the encode engine."""

from ...proofs.entries import KV260, ULX3S, placed

__all__ = ["PROOFS"]

PROOFS = [
    *(
        placed(preset, unit)
        for preset in (KV260, ULX3S)
        for unit in ("TapEncoder", "NF4Encoder", "TapPacker", "EncodeEngine", "TapQueue")
    )
]
