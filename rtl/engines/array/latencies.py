"""Latencies of the array's units that forecasts know, in cycles."""

from ...systolic.latencies import OPTIMIZER

__all__ = ["EDGE", "FEEDER", "HIDDEN", "LANES"]

#: Of :class:`~.feeder.RowFeeder`.
FEEDER = 6
#: From a row's operands to the array's edge.
EDGE = 1 + FEEDER
#: Of :class:`~.feet.Hidden`.
HIDDEN = 4
#: From a gradient to the new word in memory, of :class:`~.lane.AdapterLanes`.
LANES = 2 + OPTIMIZER + 1
