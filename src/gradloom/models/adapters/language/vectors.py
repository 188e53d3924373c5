"""Reads and writes learnt vectors in PEFT's format.

They are norms' weights and (IA)³'s factors.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gradloom.output import some

from ...files.keys import shown
from ...language import LanguageModel
from ..config import matching, targeted
from ..lora import layer_of
from ..peft import about, check_names, in_file, read_config, read_peft
from ..peft_files import check_array, write_peft
from .methods import IA3, LAYERNORM, METHODS, Method

__all__ = ["Vector", "check_alike", "fresh_vectors", "load_vectors", "peft_method", "save_vectors"]


@dataclass(frozen=True)
class Vector:
    """A norm's weight, or factors of a linear's outputs or inputs.

    Parameters
    ----------
    values : array
        ``[features]``.
    """

    values: np.ndarray

    @property
    def parts(self) -> dict[str, np.ndarray]:
        """What learns, by name."""
        return {"w": self.values}

    def taking(self, parts: Mapping[str, np.ndarray]) -> "Vector":
        """The same with other values."""
        return Vector(parts["w"])


def fresh_vectors(
    model: LanguageModel,
    method: Method,
    tensor: Callable[[str], np.ndarray],
    *,
    targets: Iterable[str] | None = None,
    layers: Iterable[int] | None = None,
) -> dict[str, Vector]:
    """Vectors by module that change nothing.

    They are the model's own norms, which ``tensor`` reads, or ones.
    """
    modules = method.modules(
        model, method.usual if targets is None else targets, range(model.layers) if layers is None else layers
    )
    if method is LAYERNORM:
        return {name: Vector(np.array(tensor(f"{name}.weight"), np.float32)) for name in modules}
    sizes = {name: max(next(iter(method.shapes(model, name, 1).values()))) for name in modules}
    return {name: Vector(np.ones(size, np.float32)) for name, size in sizes.items()}


def peft_method(folder: str | Path) -> Method | None:
    """The method of an adapter's folder; None where the table has none."""
    kind = read_config(folder)["peft_type"]
    return next((each for each in METHODS.values() if each.peft_type == kind), None)


def check_alike(model: LanguageModel, method: Method, vectors: Collection[str]) -> tuple[list[str], list[int]]:
    """Targets and layers of vectors that can learn together.

    :class:`ValueError` unless they are of the same targets in each of their layers.
    """
    if not vectors:
        raise ValueError("vectors has none: at least 1 is needed")
    targets = [name for name in method.targets if any(each.endswith(f".{name}") for each in vectors)]
    layers = sorted({layer_of(name) for name in vectors if name.startswith("model.layers.")})
    modules = method.modules(model, targets, layers)
    if set(modules) != set(vectors):
        raise ValueError(
            f"vectors has {some(len(vectors), 'module')}: {', '.join(targets)} in {some(len(layers), 'layer')} "
            f"are {len(modules)}, and "
            f"a fine-tune needs the same in each layer; merge takes all"
        )
    return targets, layers


def save_vectors(
    folder: str | Path, model: LanguageModel, method: Method, vectors: Mapping[str, Vector], *, base: str | None = None
) -> tuple[Path, Path]:
    """Writes the vectors as float32 for PEFT and returns both files' paths.

    They must be of the same targets in each of their layers. ``base`` is what the config calls the model, by default
    its name.
    """
    targets, layers = check_alike(model, method, vectors)
    tensors = {}
    for module in method.modules(model, targets, layers):
        for name, shape in method.shapes(model, module, 1).items():
            values = np.asarray(vectors[module].values)
            check_array(name, values, (max(shape),))
            tensors[name] = values.reshape(shape)
    return write_peft(folder, tensors, method.config(model, targets, layers, base=base))


def load_vectors(folder: str | Path, model: LanguageModel, method: Method) -> dict[str, Vector]:
    """Vectors by module, float32, in the order of a forward pass.

    :class:`ValueError` if they are of another model or method, or if the config asks for something else.
    """
    config, tensors = read_peft(folder, method.peft_type)
    with about(folder):
        return _vectors(config, tensors, model, method)


def _vectors(
    config: Mapping[str, Any], tensors: Mapping[str, np.ndarray], model: LanguageModel, method: Method
) -> dict[str, Vector]:
    names = in_file(tensors, method.modules(model, method.targets, range(model.layers)))
    linears = in_file(tensors, [each.name for each in model.linears])
    found = targeted(config, dict.fromkeys([*names.values(), *linears.values()]), linears.values())
    modules = {own: name for own, name in names.items() if name in found}
    if set(found) - set(modules.values()):
        named = shown(config.get("target_modules"))
        raise ValueError(f"target_modules={named}: must be of {', '.join(method.targets)}")
    if method is IA3:
        before = [name for name in modules.values() if name.endswith(".down_proj")]
        forward = matching(config, "feedforward_modules", modules.values())
        if forward != before:
            raise ValueError(
                f"feedforward_modules={shown(config.get('feedforward_modules'))}: must be down_proj where it is a "
                f"target, and nothing else"
            )
    places = {own: next(iter(method.shapes(model, own, 1).items())) for own in modules}
    in_tensors = {own: name.replace(own, modules[own]) for own, (name, _) in places.items()}
    check_names(tensors, in_tensors.values(), model.name)
    made = {}
    for own, name in in_tensors.items():
        check_array(name, tensors[name], places[own][1])
        made[own] = Vector(tensors[name].astype(np.float32).reshape(-1))
    return made
