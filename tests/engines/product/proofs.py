"""Proofs of the product engine.

It offers no stream: its records are those of the tile store, and its slices are proven as chains.
"""

__all__ = ["PROOFS"]

PROOFS: list = []
