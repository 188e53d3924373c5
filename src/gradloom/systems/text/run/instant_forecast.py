"""Forecasts InstantFT's steps without the model's weights."""

import numpy as np

from gradloom.models.adapters.language.instant import fresh_instant
from gradloom.models.filled import filled
from gradloom.models.language import LanguageModel
from gradloom.models.pack import QuantizedLinear
from gradloom.program.descent import AdamW
from gradloom.rtl.machines.configs.language import LanguageConfig
from gradloom.sim.time.forecast import forecast

from ..operations.tensors import EDGE
from ..program.layout import Layout
from ..program.step import lower
from .frozen import Frozen
from .instant import InstantTrainer
from .step import place_frozen
from .trainer import foretold

__all__ = ["later_step_cycles"]


def later_step_cycles(config: LanguageConfig, model: LanguageModel, *, rank: int, tokens: int) -> int:
    """Cycles of a step on a text that is in the forward cache, with AdamW.

    The array must have :data:`~gradloom.systems.text.operations.tensors.EDGE` rows. Cycles do not depend on
    values: weights and cache are drawn.
    """
    random = np.random.default_rng(0)

    def tensor(name: str) -> np.ndarray:
        shape = filled(model).tensors[name]
        return np.asarray(random.normal(1.0 if len(shape) == 1 else 0.0, shape[-1] ** -0.5, shape), np.float32)

    def linear(name: str) -> QuantizedLinear:
        raise AssertionError(f"{name}: a step from the cache reads no linear of a block")

    trainer = InstantTrainer(
        Frozen(filled(model), tensor, linear, config.head_part),
        fresh_instant(model, rank=rank),
        range(model.layers),
        AdamW(lr=1e-3),
        rows=min(EDGE, config.tokens),
    )
    text = [each % model.vocab for each in range(tokens)]
    frac = 16
    kept = {
        each.name: (np.rint(random.normal(size=(each.rows, each.features)) * 2.0**frac), frac)
        for each in trainer.instant(text).cached
    }
    step = trainer.learning(text, kept)
    layout = Layout()
    place_frozen(step, layout)
    program = lower(step.operations, foretold(step, {}), layout, config)
    return forecast(program, config=config).total
