"""Reads and writes learnt vectors in PEFT's format.

They are norms' weights and (IA)³'s factors.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .language import LanguageModel
from .lora import layer_of
from .methods import IA3, LAYERNORM, METHODS, Method
from .peft import CONFIG, WEIGHTS, about, check_array, read_peft, write_peft

__all__ = ["Vector", "fresh_vectors", "load_vectors", "peft_method", "save_vectors"]


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


#: What a config may ask for that would be another adapter, with what it says otherwise.
_PLAIN: dict[str, tuple[Any, ...]] = {
    "modules_to_save": (None, []),
    "exclude_modules": (None, []),
    "fan_in_fan_out": (False,),
}


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
    config, _ = read_peft(folder)
    return next((each for each in METHODS.values() if each.peft_type == config.get("peft_type")), None)


def save_vectors(
    folder: str | Path, model: LanguageModel, method: Method, vectors: Mapping[str, Vector], *, base: str | None = None
) -> tuple[Path, Path]:
    """Writes the vectors as float32 for PEFT and returns both files' paths.

    They must be of the same targets in each of their layers. ``base`` is what the config calls the model, by default
    its name.
    """
    if not vectors:
        raise ValueError("vectors has none: at least 1 is needed")
    targets = [name for name in method.targets if any(each.endswith(f".{name}") for each in vectors)]
    layers = sorted({layer_of(name) for name in vectors if name.startswith("model.layers.")})
    modules = method.modules(model, targets, layers)
    if set(modules) != set(vectors):
        raise ValueError(
            f"vectors has {len(vectors)} modules: {', '.join(targets)} in {len(layers)} layers are {len(modules)}"
        )
    tensors = {}
    for module in modules:
        for name, shape in method.shapes(model, module, 1).items():
            values = np.asarray(vectors[module].values)
            check_array(name, values, (max(shape),))
            tensors[name] = values.reshape(shape)
    return write_peft(folder, tensors, method.config(model, targets, layers, base=base))


def load_vectors(folder: str | Path, model: LanguageModel, method: Method) -> dict[str, Vector]:
    """Vectors by module, float32, in the order of a forward pass.

    :class:`ValueError` if they are of another model or method, or if the config asks for something else.
    """
    config, tensors = read_peft(folder)
    with about(folder):
        if config.get("peft_type") != method.peft_type:
            raise ValueError(f"peft_type={config.get('peft_type')!r}: must be {method.peft_type!r} for {method.name}")
        for field, plain in _PLAIN.items():
            if config.get(field, plain[0]) not in plain:
                raise ValueError(f"{CONFIG}: {field}={config[field]!r}: must be {plain[0]!r}")
        return _vectors(config, tensors, model, method)


def _vectors(
    config: Mapping[str, Any], tensors: Mapping[str, np.ndarray], model: LanguageModel, method: Method
) -> dict[str, Vector]:
    every = method.modules(model, method.targets, range(model.layers))
    modules = _matching(config, "target_modules", every)
    if not modules:
        raise ValueError(f"target_modules={config.get('target_modules')!r}: none of {', '.join(method.targets)}")
    if method is IA3:
        before = [name for name in modules if name.endswith(".down_proj")]
        found = _matching(config, "feedforward_modules", modules)
        if found != before:
            raise ValueError(
                f"feedforward_modules={config.get('feedforward_modules')!r}: must be down_proj where it is a target, "
                f"and nothing else"
            )
    expected = {name: shape for module in modules for name, shape in method.shapes(model, module, 1).items()}
    missing, further = sorted(expected.keys() - tensors.keys()), sorted(tensors.keys() - expected.keys())
    if missing:
        raise ValueError(f"{WEIGHTS} has no {missing[0]} ({len(missing)} are missing)")
    if further:
        raise ValueError(f"{WEIGHTS} has {further[0]} ({len(further)} that {model.name} has no place for)")
    made = {}
    for module, (name, shape) in zip(modules, expected.items(), strict=True):
        check_array(name, tensors[name], shape)
        made[module] = Vector(tensors[name].astype(np.float32).reshape(-1))
    return made


def _matching(config: Mapping[str, Any], field: str, modules: Iterable[str]) -> list[str]:
    """Modules that a field of the config names, as PEFT reads it.

    It is a pattern of the whole name, or a list of ends of names.
    """
    wanted = config.get(field)
    if isinstance(wanted, str):
        try:
            pattern = re.compile(wanted)
        except re.error as error:
            raise ValueError(f"{field}={wanted!r}: is no pattern ({error})") from None
        return [name for name in modules if pattern.fullmatch(name)]
    if not isinstance(wanted, list) or not all(isinstance(each, str) for each in wanted):
        raise ValueError(f"{field}={wanted!r}: must be names or a pattern")
    return [name for name in modules if any(name == each or name.endswith(f".{each}") for each in wanted)]
