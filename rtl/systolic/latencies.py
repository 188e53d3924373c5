"""Latencies of units that forecasts know, in cycles."""

__all__ = ["ACCUMULATE", "MULTIPLY_ADD", "PE"]

#: Of :class:`~.pe.PE`.
PE = 3
#: Of :class:`~.slices.MultiplyAdd`.
MULTIPLY_ADD = 3
#: Of :class:`~.slices.Accumulate`.
ACCUMULATE = 3
