"""Latencies of the element engine."""

__all__ = ["FINISH", "LANE", "START"]

#: Cycles of a lane, from codes to its word.
LANE = 17
#: Cycles from a command to its first beat of results, and from the last beat to ``done``.
START, FINISH = 4, 6 + LANE + 6
