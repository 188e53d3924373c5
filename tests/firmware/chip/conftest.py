"""A small language model, for the tables of its fine-tunes."""

from ...systems.text.conftest import adapters, frozen, model, tensors

__all__ = ["adapters", "frozen", "model", "tensors"]
