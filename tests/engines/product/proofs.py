"""Proofs of the product engine."""

from ...proofs.entries import placed

__all__ = ["PROOFS"]

PROOFS = [placed("cdm-qta-kv260", "ProductEngine")]
