"""What learns at a language model's modules, read from where it is.

Of any method: each verb that takes an adapter asks here whether it is one of its base.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from ...language import LanguageModel
from ..lora import LearntModule, load_lora
from .gguf_lora import is_gguf_adapter, load_gguf_lora
from .instant import holds_instant, load_instant
from .lora_xs import load_cores, read_cores
from .methods import LORA_XS
from .vectors import load_vectors, peft_method

__all__ = ["check_learnt", "load_learnt"]


def load_learnt(folder: Path, model: LanguageModel, tensor: Callable[[str], np.ndarray]) -> Mapping[str, LearntModule]:
    """Adapters or vectors by module; ``tensor`` reads the base weights.

    ``folder`` may be a GGUF file of a LoRA adapter. :class:`ValueError` if they are of another model.
    """
    if is_gguf_adapter(folder):
        return load_gguf_lora(folder, model)
    if peft_method(folder) is LORA_XS:
        return load_cores(folder, model, tensor)
    return _of_no_weights(folder, model)


def check_learnt(folder: Path, model: LanguageModel) -> None:
    """Refuses what :func:`load_learnt` refuses, without base weights.

    Adapters from blocks to the head are checked, too.
    """
    if holds_instant(folder):
        load_instant(folder, model)
    elif peft_method(folder) is LORA_XS:
        read_cores(folder, model)
    else:
        _of_no_weights(folder, model)


def _of_no_weights(folder: Path, model: LanguageModel) -> Mapping[str, LearntModule]:
    method = peft_method(folder)
    if method is None or method.ranked:
        return load_lora(folder, model)
    return load_vectors(folder, model, method)
