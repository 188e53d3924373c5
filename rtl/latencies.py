"""Latencies of units that forecasts know, in cycles."""

__all__ = ["ACCUMULATE", "MULTIPLY_ADD", "OPTIMIZER", "PE", "POST", "WINDOW", "WINDOW_SETUP"]

#: Of :class:`~.systolic.pe.PE`.
PE = 3
#: Of :class:`~.systolic.slices.MultiplyAdd`.
MULTIPLY_ADD = 3
#: Of :class:`~.systolic.slices.Accumulate`.
ACCUMULATE = 3
#: Of :class:`~.units.optimizer.OptimizerLane`.
OPTIMIZER = 9
#: Of :class:`~.units.post.PostProcess`.
POST = 5
#: From a step of :class:`~.units.window.window.WindowGenerator` to the window that it completes.
WINDOW = 3
#: From accepting its configuration to the run's first step, when nothing runs before it.
WINDOW_SETUP = 6
