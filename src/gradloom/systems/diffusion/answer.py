"""Pictures that a diffusion model makes of a prompt."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np

from gradloom.compiler.integers.descent import rules_of
from gradloom.compiler.integers.reading import IntegerNetwork
from gradloom.compiler.lowering import TileStep, lower
from gradloom.graph.mathematics import FloatReading
from gradloom.graph.network import Network
from gradloom.models.adapters.diffusion_lora import adapted_layers, load_diffusion_lora
from gradloom.models.digits_unet import shipped_prompts, shipped_unet
from gradloom.output import check_file, staged_file
from gradloom.program.descent import AdamW
from gradloom.sim.run.machine import MachineHost
from gradloom.systems.asked import Asked
from gradloom.systems.forward import ForwardPass, Run, result_of
from gradloom.systems.results import Inferred
from gradloom.workload import Progress

from .pictures import PICTURES, generated, plot_grids
from .requests import Pictures
from .task import with_rank
from .unet import Values, layers_of, network, targets_of, values_of

__all__ = ["infer"]

#: Pictures that share tiles.
_TOGETHER = 4


def infer(asked: Asked, options: Pictures, tell: Progress, host: MachineHost | None = None) -> Inferred:
    """Writes pictures of a prompt as a grid, by DDIM, whose arithmetic is floating point.

    ``prompt``: a digit for ``*`` in turn, 0 to 9. ``adapter``: the folder of a fine-tune, or a file of diffusers.
    Returns what was asked; with ``rtl``, where a machine predicts the noise, also ``cycles`` and ``forecast``.
    ``host``: the way to a machine in place of simulated RTL.
    """
    prompt, output, count, alpha = str(options.prompt), Path(str(options.output)), options.count, options.alpha
    adapter = None if options.adapter is None else Path(options.adapter)
    check_file(output, suffix=".png")
    words = shipped_prompts()
    prompts = np.stack([words.filled(prompt, number % 10) for number in range(count)])
    shapes, weights = shipped_unet()
    listed, learnt = with_rank(shapes, 0, "all"), dict[str, np.ndarray]()
    if adapter is not None:
        targets = targets_of(adapted_layers(adapter, layers_of(with_rank(shapes, 1, "all"))))
        layers = layers_of(with_rank(shapes, 1, targets))
        adapters = load_diffusion_lora(adapter, layers, alphas=None if alpha is None else dict.fromkeys(layers, alpha))
        listed = with_rank(shapes, next(iter(adapters.values())).rank, targets)
        learnt = values_of(adapters)
    net = network(listed, weights | learnt)
    passes = _passes(asked, options, net, learnt, tell, host)
    with passes as noise_of:
        images = generated(
            noise_of,
            shapes,
            prompts,
            seed=options.seed,
            tell=tell,
            what="of the prompt",
            steps=options.steps,
            batch=PICTURES if options.engine == "float" else _TOGETHER,
        )
    with staged_file(output) as file:
        plot_grids(file, {prompt: images})
    told: Inferred = {
        "preset": asked.preset.name,
        "engine": options.engine,
        "prompt": prompt,
        "adapter": None if adapter is None else adapter.name,
        "count": count,
        "steps": options.steps,
        "seed": options.seed,
    }
    return told | passes.figures if isinstance(passes, ForwardPass) else told


def _passes(
    asked: Asked, options: Pictures, net: Network, learnt: Values, tell: Progress, host: MachineHost | None
) -> AbstractContextManager[Run]:
    """What predicts the noise."""
    if options.engine == "float":
        real = FloatReading(net, dtype=np.float32)
        return nullcontext(lambda data: real.run(data)[0])
    exact, rules, config = IntegerNetwork(net, tuple(learnt)), rules_of(AdamW(lr=0.0), learnt), asked.preset.config
    if options.engine == "reference":
        return nullcontext(result_of(exact))

    def lowered(samples: int) -> TileStep:
        return lower(config, net, samples=samples, rules=rules)

    return ForwardPass(config, exact, lowered, tell=tell, host=host)
