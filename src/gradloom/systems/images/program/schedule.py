"""Order of samples and initial values, shared by all readings."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["ScheduledBatch", "alone", "epoch_order", "batches", "steps_per_epoch", "initial_adapters"]

_ORDER, _ADAPTER = 0x0DE4, 0xADA7  # separate streams of random numbers under one seed


@dataclass(frozen=True, kw_only=True, eq=False)
class ScheduledBatch:
    """A microbatch.

    ``first``, ``last`` of its optimiser step; ``v_mode`` as the optimiser has it.
    """

    samples: np.ndarray
    scale: int
    q: int
    v_mode: int
    first: bool
    last: bool
    mu: int
    epoch: int = 0


def alone(sample: int) -> ScheduledBatch:
    """A sample by itself, from which nothing is learnt."""
    return ScheduledBatch(samples=np.array([sample]), scale=0, q=0, v_mode=0, first=True, last=True, mu=0)


def _check(**values: int) -> None:
    for name, value in values.items():
        if value != int(value) or value < 0:
            raise ValueError(f"{name}={value}: must be an integer of at least 0")


def epoch_order(n: int, epoch: int, seed: int, *, shuffled: bool = True) -> np.ndarray:
    """Sample indices ``0..n-1`` in the order of ``epoch``, ``int64``.

    Without ``shuffled`` they are in ascending order.

    The order is that of raw PCG64 words, a stream which NumPy promises never to change; so every
    machine and version visits alike.
    """
    _check(epoch=epoch, seed=seed)
    if n < 1:
        raise ValueError(f"n={n}: there must be at least 1 sample")
    if not shuffled:
        return np.arange(n, dtype=np.int64)
    words = np.random.PCG64([int(seed), int(epoch), _ORDER]).random_raw(n)
    return np.argsort(words, kind="stable").astype(np.int64)


def batches(order: Sequence[int] | np.ndarray, batch: int) -> Iterator[np.ndarray]:
    """``order`` in pieces of ``batch``; the last may be shorter."""
    if batch < 1:
        raise ValueError(f"batch={batch}: must be at least 1")
    for start in range(0, len(order), batch):
        yield np.asarray(order[start : start + batch])


def steps_per_epoch(n: int, batch: int) -> int:
    """Number of pieces that :func:`batches` makes of ``n`` samples."""
    if batch < 1:
        raise ValueError(f"batch={batch}: must be at least 1")
    return -(-n // batch)


def initial_adapters(taps: Sequence[int], classes: int, rank: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Initial ``(A [rank, n], B [classes, rank])`` of every tap.

    A is from N(0, 1/n), B is zero; float64.

    A tap's values depend on its place, its size, the rank and the seed alone. B = 0 makes the first
    forward pass that of the base network.
    """
    _check(seed=seed)
    if rank < 1:
        raise ValueError(f"rank={rank}: must be at least 1")
    if classes < 2:
        raise ValueError(f"classes={classes}: there must be at least 2")
    adapters = []
    for index, n in enumerate(taps):
        if n < 1:
            raise ValueError(f"taps[{index}]={n}: must be at least 1")
        random = np.random.Generator(np.random.PCG64([int(seed), index, _ADAPTER]))
        adapters.append((random.standard_normal((rank, n)) / np.sqrt(n), np.zeros((classes, rank))))
    return adapters
