"""Pictures that a diffusion model makes of a prompt, in floating point."""

from pathlib import Path
from typing import Any

import numpy as np

from gradloom.graph.mathematics import FloatReading
from gradloom.models.adapters.diffusion_lora import adapted_layers, load_diffusion_lora
from gradloom.models.digits_unet import shipped_prompts, shipped_unet
from gradloom.output import check_file, staged_file
from gradloom.systems.asked import Asked
from gradloom.workload import Progress

from .pictures import generated, plot_grids
from .requests import Pictures
from .task import with_rank
from .unet import layers_of, network, targets_of, values_of

__all__ = ["infer"]


def infer(asked: Asked, options: Pictures, tell: Progress) -> dict[str, Any]:
    """Writes pictures of a prompt as a grid, by DDIM in floating point.

    ``prompt``: a digit for ``*`` in turn, 0 to 9. ``adapter``: the folder of a fine-tune, or a file of diffusers.
    Returns what was asked.
    """
    prompt, output, count, alpha = str(options.prompt), Path(str(options.output)), options.count, options.alpha
    adapter = None if options.adapter is None else Path(options.adapter)
    check_file(output, suffix=".png")
    words = shipped_prompts()
    prompts = np.stack([words.filled(prompt, number % 10) for number in range(count)])
    shapes, weights = shipped_unet()
    listed = with_rank(shapes, 0, "all")
    if adapter is not None:
        targets = targets_of(adapted_layers(adapter, layers_of(with_rank(shapes, 1, "all"))))
        layers = layers_of(with_rank(shapes, 1, targets))
        adapters = load_diffusion_lora(adapter, layers, alphas=None if alpha is None else dict.fromkeys(layers, alpha))
        listed = with_rank(shapes, next(iter(adapters.values())).rank, targets)
        weights = weights | values_of(adapters)
    images = generated(
        FloatReading(network(listed, weights), dtype=np.float32),
        shapes,
        prompts,
        seed=options.seed,
        tell=tell,
        what="of the prompt",
        steps=options.steps,
    )
    with staged_file(output) as file:
        plot_grids(file, {prompt: images})
    return {
        "preset": asked.preset.name,
        "engine": "float",
        "prompt": prompt,
        "adapter": None if adapter is None else adapter.name,
        "count": count,
        "steps": options.steps,
        "seed": options.seed,
    }
