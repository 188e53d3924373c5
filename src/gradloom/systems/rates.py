"""Changes of the learning rate from step to step."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

__all__ = ["CONSTANT", "SCHEDULES", "Schedule"]

#: Factor of the rate behind the warm-up, by the share of the steps there that were made.
_SHAPES: Mapping[str, Callable[[float], float]] = {
    "constant": lambda share: 1.0,
    "linear": lambda share: max(0.0, 1.0 - share),
    "cosine": lambda share: max(0.0, 0.5 * (1.0 + math.cos(math.pi * share))),
}
SCHEDULES = tuple(_SHAPES)


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Factor of the learning rate in each step, as transformers' schedules have it.

    The first step of a warm-up has a rate of 0.

    Parameters
    ----------
    shape : str
        One of :data:`SCHEDULES`.
    steps : int
        Of the fine-tune.
    warmup : int
        Steps in which the rate rises.
    """

    shape: str = "constant"
    steps: int = 1
    warmup: int = 0

    def __post_init__(self) -> None:
        if self.shape not in _SHAPES:
            raise ValueError(f"schedule={self.shape}: must be one of {', '.join(SCHEDULES)}")
        if not 0 <= self.warmup <= self.steps:
            raise ValueError(f"warmup={self.warmup}: must be from 0 to the {self.steps} steps, or a share below 1")

    @classmethod
    def of(cls, shape: str, steps: int, warmup: float) -> "Schedule":
        """A schedule whose ``warmup`` below 1 is a share of the steps, rounded up."""
        if warmup >= 1 and warmup != int(warmup):
            raise ValueError(f"warmup={warmup:g}: must be a share below 1, or a number of steps")
        return cls(shape=shape, steps=steps, warmup=math.ceil(steps * warmup) if warmup < 1 else int(warmup))

    @property
    def varies(self) -> bool:
        """Whether the rate is not the same in all steps."""
        return self.shape != "constant" or self.warmup > 0

    def factor(self, number: int) -> float:
        """Of update ``number``, from 1 on."""
        made = number - 1
        if made < self.warmup:
            return made / self.warmup
        return _SHAPES[self.shape]((made - self.warmup) / max(1, self.steps - self.warmup))


#: The rate as it is.
CONSTANT = Schedule()
