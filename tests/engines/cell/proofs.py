"""Proofs of the cell engine."""

from ...proofs.entries import placed

__all__ = ["PROOFS"]

PROOFS = [placed("lstm-zcu104", "CellEngine")]
