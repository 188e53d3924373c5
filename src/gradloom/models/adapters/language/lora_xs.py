"""LoRA-XS: an r × r matrix that learns, between frozen A and B.

A linear adds ``scale · B R A``. A has the right singular vectors of the largest singular values, times these values; B
has the left ones. Both follow from the weight, so an adapter is R alone. PEFT does not know the method: an adapter is
written as plain LoRA with B R in place of B, and R in files of its own.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...files.keys import shown
from ...language import LanguageLinear, LanguageModel
from ..config import scale_of, targeted
from ..lora import Adapter, check_uniform, linears_of
from ..peft import about, check_names, in_file, read_config, read_peft
from ..peft_files import check_array, write_peft
from .methods import LORA_XS

__all__ = ["CORE", "CoreAdapter", "fresh_cores", "is_core", "load_cores", "plain_adapters", "read_cores", "save_cores"]

#: Folder of R beside the plain adapter.
CORE = "core"


@dataclass(frozen=True)
class CoreAdapter:
    """Adds ``scale · B R A`` to a linear.

    ``a [rank, inputs]``, ``b [outputs, rank]``, both frozen; ``r [rank, rank]``.
    """

    a: np.ndarray
    b: np.ndarray
    r: np.ndarray
    scale: float

    @property
    def rank(self) -> int:
        """Rows of A."""
        return len(self.a)

    @property
    def parts(self) -> dict[str, np.ndarray]:
        """What learns, by name."""
        return {"r": self.r}

    def taking(self, parts: Mapping[str, np.ndarray]) -> "CoreAdapter":
        """The same with another R."""
        return CoreAdapter(self.a, self.b, parts["r"], self.scale)

    @property
    def plain(self) -> Adapter:
        """The same as plain LoRA."""
        return Adapter(self.a, (self.b @ self.r).astype(self.b.dtype), self.scale)


class _Factors:
    """A and B of linears, made when they are asked for."""

    def __init__(self, tensor: Callable[[str], np.ndarray], rank: int) -> None:
        self.tensor, self.rank = tensor, rank

    def of(self, linear: LanguageLinear) -> tuple[np.ndarray, np.ndarray]:
        """``(A, B)`` of the largest singular values.

        The sign is the one with which A's largest element of a row is positive.
        """
        least = min(linear.outputs, linear.inputs)
        if self.rank > least:
            raise ValueError(
                f"rank={self.rank}: must be at most {least}, the smaller side of {linear.name}; give a smaller rank"
            )
        left, values, right = np.linalg.svd(
            self.tensor(f"{linear.name}.weight").astype(np.float64), full_matrices=False
        )
        a, b = values[: self.rank, None] * right[: self.rank], left[:, : self.rank]
        signs = np.sign(np.take_along_axis(a, np.abs(a).argmax(axis=1)[:, None], axis=1))
        return (a * signs).astype(np.float32), (b * signs.T).astype(np.float32)


def fresh_cores(
    model: LanguageModel,
    tensor: Callable[[str], np.ndarray],
    *,
    rank: int = 8,
    alpha: float | None = None,
    targets: Iterable[str] = LORA_XS.usual,
    layers: Iterable[int] | None = None,
    tell: Callable[[int, int, str], None] | None = None,
) -> dict[str, CoreAdapter]:
    """New adapters by linear, which change nothing: R is 0.

    ``tensor`` reads the base weights. ``alpha`` is twice the rank unless given; ``layers`` are all of them.
    """
    if rank < 1:
        raise ValueError(f"rank={rank}: must be at least 1")
    linears = linears_of(model, targets, range(model.layers) if layers is None else layers)
    return _cores(linears, tensor, rank, (2 * rank if alpha is None else alpha) / rank, tell)


def _cores(
    linears: Sequence[LanguageLinear],
    tensor: Callable[[str], np.ndarray],
    rank: int,
    scale: float,
    tell: Callable[[int, int, str], None] | None,
) -> dict[str, CoreAdapter]:
    """Adapters of linears, with R of 0."""
    factors, made = _Factors(tensor, rank), {}
    for at, linear in enumerate(linears):
        if tell is not None:
            tell(at, len(linears), "singular values")
        made[linear.name] = CoreAdapter(*factors.of(linear), np.zeros((rank, rank), np.float32), scale)
    return made


def plain_adapters(adapters: Mapping[str, CoreAdapter]) -> dict[str, Adapter]:
    """The adapters as plain LoRA."""
    return {name: each.plain for name, each in adapters.items()}


def _key(name: str) -> str:
    return f"base_model.model.{name}.lora_R.weight"


def save_cores(
    folder: str | Path, model: LanguageModel, adapters: Mapping[str, CoreAdapter], *, base: str | None = None
) -> tuple[Path, Path]:
    """Writes each R as float32 and returns both files' paths.

    They have one rank and one scale.
    """
    targets, layers = check_uniform(model, adapters)
    first = next(iter(adapters.values()))
    alpha = first.scale * first.rank
    config = LORA_XS.config(model, targets, layers, base=base) | {
        "layers_to_transform": None if len(layers) == model.layers else layers,
        "lora_alpha": int(alpha) if float(alpha).is_integer() else alpha,
        "r": first.rank,
        "target_modules": targets,
    }
    return write_peft(folder, {_key(name): np.asarray(each.r) for name, each in adapters.items()}, config)


def is_core(folder: str | Path) -> bool:
    """Whether a folder's adapter is R alone."""
    return bool(read_config(folder)["peft_type"] == LORA_XS.peft_type)


def load_cores(
    folder: str | Path,
    model: LanguageModel,
    tensor: Callable[[str], np.ndarray],
    *,
    rank: int | None = None,
    tell: Callable[[int, int, str], None] | None = None,
) -> dict[str, CoreAdapter]:
    """Adapters by linear of R's files, with A and B of the base weights.

    :class:`ValueError` if they are of another method, model or rank.
    """
    config, held = read_cores(folder, model, rank=rank)
    linears = [each for each in model.linears if each.name in held]
    made = _cores(linears, tensor, config["r"], scale_of(config), tell)
    return {name: made[name].taking({"r": values}) for name, values in held.items()}


def read_cores(
    folder: str | Path, model: LanguageModel, *, rank: int | None = None
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Configuration and each R by its linear; see :func:`load_cores`."""
    kind = read_config(folder)["peft_type"]
    if kind != LORA_XS.peft_type:
        raise ValueError(
            f"{folder}: peft_type={shown(kind)}: must be {shown(LORA_XS.peft_type)} for {LORA_XS.name}; name the "
            f"folder {CORE} of its output"
        )
    config, tensors = read_peft(folder)
    with about(folder):
        found = config["r"]
        if rank is not None and rank != found:
            raise ValueError(f"r={found}: rank {rank} is needed")
        names = in_file(tensors, [each.name for each in model.linears])
        modules = targeted(config, names.values())
        keys = {own: f"base_model.model.{name}.lora_R.weight" for own, name in names.items() if name in modules}
        check_names(tensors, keys.values(), model.name)
        for key in keys.values():
            check_array(key, tensors[key], (found, found))
    return config, {own: tensors[key].astype(np.float32) for own, key in keys.items()}
