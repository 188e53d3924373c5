"""Noise schedule of diffusion models, and a sampler."""

from collections.abc import Callable

import numpy as np

__all__ = ["TIMESTEPS", "kept", "noisy", "sample", "spread"]

#: Timesteps of the schedule.
TIMESTEPS = 1000


def kept(steps: np.ndarray) -> np.ndarray:
    """Share of a clean image's power after each timestep.

    diffusers' ``squaredcos_cap_v2``: products of 1 - beta.
    """
    if np.any((steps < 0) | (steps >= TIMESTEPS)):
        raise ValueError(f"timestep={int(np.max(np.abs(steps)))}: must be from 0 to {TIMESTEPS - 1}")
    edges = np.cos((np.arange(TIMESTEPS + 1) / TIMESTEPS + 0.008) / 1.008 * np.pi / 2) ** 2
    return np.cumprod(1 - np.minimum(1 - edges[1:] / edges[:-1], 0.999))[steps]


def noisy(clean: np.ndarray, noise: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Clean latents ``[n, rows, features]`` after ``steps`` timesteps."""
    share = kept(steps)[:, None, None]
    return np.sqrt(share) * clean + np.sqrt(1 - share) * noise


def spread(random: np.random.Generator, count: int) -> np.ndarray:
    """Timesteps, one in each of ``count`` equal parts, in random order."""
    return random.permutation(((np.arange(count) + random.random(count)) * TIMESTEPS / count).astype(np.int64))


def sample(
    predicted: Callable[[np.ndarray, np.ndarray], np.ndarray],
    start: np.ndarray,
    *,
    steps: int = 25,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> np.ndarray:
    """Clean latents from noise, by DDIM without randomness.

    ``predicted(latents, timesteps)`` is the noise. Each step's clean image is clipped to -1 to 1.
    """
    if not 1 <= steps <= TIMESTEPS:
        raise ValueError(f"steps={steps}: must be from 1 to {TIMESTEPS}")
    times = np.linspace(TIMESTEPS - 1, 0, steps).round().astype(np.int64)
    x = start
    for number, at in enumerate(times):
        share = float(kept(at[None])[0])
        noise = predicted(x, np.full(len(x), at))
        clean = np.clip((x - np.sqrt(1 - share) * noise) / np.sqrt(share), -1, 1)
        noise = (x - np.sqrt(share) * clean) / np.sqrt(1 - share)
        after = float(kept(times[number + 1 : number + 2])[0]) if number + 1 < steps else 1.0
        x = np.sqrt(after) * clean + np.sqrt(1 - after) * noise
        tell(number + 1, steps)
    return x
