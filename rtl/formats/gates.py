"""Gates of an LSTM's cell."""

__all__ = ["GATES"]

#: Input, forget, cell, output.
GATES = 4
