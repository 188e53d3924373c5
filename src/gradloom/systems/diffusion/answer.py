"""Pictures that a diffusion model makes of a prompt, in floating point."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.models.adapters.diffusion_lora import adapted_layers, load_diffusion_lora
from gradloom.models.adapters.lora import Adapter
from gradloom.models.digits_unet import shipped_prompts, shipped_unet
from gradloom.output import check_file, staged_file
from gradloom.preset import Preset

from .mathematics import FloatUNet
from .pictures import STEPS, generated, plot_grids
from .task import layers_of, with_rank
from .unet import targets_of

__all__ = ["generate_images"]

#: Most pictures of a grid.
_MOST = 400


def generate_images(
    preset: Preset,
    *,
    prompt: str,
    output: Path,
    adapter: Path | None = None,
    alpha: float | None = None,
    count: int = 20,
    steps: int = STEPS,
    seed: int = 0,
    progress: Callable[[int, int, str], None] | None = None,
) -> dict[str, Any]:
    """Writes ``count`` pictures of a prompt as a grid, by DDIM.

    ``prompt``: a digit for ``*`` in turn, 0 to 9. ``adapter``: the folder of a fine-tune, or a file of diffusers.
    Returns what was asked.
    """
    check_file(output, suffix=".png")
    for name, value, most in (("count", count, _MOST), ("steps", steps, 1000)):
        if not 1 <= value <= most:
            raise ValueError(f"{name}={value}: must be from 1 to {most}")
    if seed < 0:
        raise ValueError(f"seed={seed}: must be at least 0")
    if alpha is not None and adapter is None:
        raise ValueError(f"alpha={alpha:g}: must be left out, it is an adapter's")
    words = shipped_prompts()
    prompts = np.stack([words.filled(prompt, number % 10) for number in range(count)])
    shapes, weights = shipped_unet()
    adapters: dict[str, Adapter] = {}
    listed = with_rank(shapes, 0, "all")
    if adapter is not None:
        targets = targets_of(adapted_layers(adapter, layers_of(with_rank(shapes, 1, "all"))))
        layers = layers_of(with_rank(shapes, 1, targets))
        adapters = load_diffusion_lora(adapter, layers, alphas=None if alpha is None else dict.fromkeys(layers, alpha))
        listed = with_rank(shapes, next(iter(adapters.values())).rank, targets)
    images = generated(
        FloatUNet(listed, weights),
        shapes,
        prompts,
        adapters,
        seed=seed,
        tell=progress or (lambda done, total, text: None),
        what="of the prompt",
        steps=steps,
    )
    with staged_file(output) as file:
        plot_grids(file, {prompt: images})
    return {
        "preset": preset.name,
        "engine": "float",
        "prompt": prompt,
        "adapter": None if adapter is None else Path(adapter).name,
        "count": count,
        "steps": steps,
        "seed": seed,
    }
