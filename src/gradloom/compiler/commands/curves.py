"""Functions of values as the element engine has them."""

from collections.abc import Callable
from functools import cache

import numpy as np

from gradloom.graph.operations import Activation
from gradloom.rtl.formats.tiles.functions import (
    COSINE,
    GELU,
    GELU_TANH,
    HARD_SWISH,
    INVERSE,
    LOGISTIC,
    MISH,
    QUICK_GELU,
    SILU,
    SINE,
    SOFTPLUS,
    SOFTSIGN,
    TANH,
    TableFunction,
    clip,
    exponential,
    hard_sigmoid,
    leaky,
    root,
    selu,
)

__all__ = ["KINDS", "check_within", "function_of"]

_PLAIN = {
    "silu": SILU,
    "gelu": GELU,
    "gelu_tanh": GELU_TANH,
    "quick_gelu": QUICK_GELU,
    "sigmoid": LOGISTIC,
    "tanh": TANH,
    "hard_swish": HARD_SWISH,
    "mish": MISH,
    "softplus": SOFTPLUS,
    "abs": leaky(-1.0),
    "softsign": SOFTSIGN,
    "sin": SINE,
    "cos": COSINE,
    "inverse": INVERSE,
}
_MADE: dict[str, Callable[..., TableFunction]] = {
    "clip": clip,
    "leaky_relu": leaky,
    "elu": selu,
    "selu": selu,
    "hard_sigmoid": hard_sigmoid,
    "power": root,
    "exp_of": exponential,
}
#: Names of functions that the machine has.
KINDS = ("relu", "affine", *_PLAIN, *_MADE)


def function_of(each: Activation) -> TableFunction:
    """The tables of an activation; :class:`ValueError` where there are none."""
    try:
        return _function(each.kind, each.parameters)
    except ValueError as error:
        raise ValueError(f"{each.o.name}: {each.kind}{_said(each)} has no table: {error}") from None


def check_within(each: Activation, x: np.ndarray) -> None:
    """Refuses arguments whose function is another than the end of its table; :class:`ValueError` names one."""
    if each.kind not in _WITHIN or not x.size:
        return
    least, most = _WITHIN[each.kind]
    size = x if each.kind == "exp_of" else np.abs(x)
    scale = 4 * each.parameters[0] if each.kind == "exp_of" else 1.0
    for value in (size.min(), size.max()):
        if not least <= scale * value <= most:
            raise ValueError(
                f"{each.o.name}: {each.kind} of {scale * value:g}: must be from {least:g} to {most:g}, where its table "
                "is; scale the network's values"
            )


#: Magnitudes of arguments that tables hold; of powers of e the arguments.
_WITHIN = {
    "inverse": (1 / 8, 128.0),
    "power": (0.0, 16.0),
    "exp_of": (-np.inf, 16.0),
    "sin": (0.0, 64.0),
    "cos": (0.0, 64.0),
}


def _said(each: Activation) -> str:
    return f"({', '.join(f'{value:g}' for value in each.parameters)})" if each.parameters else ""


@cache
def _function(kind: str, parameters: tuple[float, ...]) -> TableFunction:
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind in _MADE:
        made = _MADE[kind](*parameters)
        # Values that no table holds are refused here.
        assert made.value.pieces.shape == made.slope.pieces.shape
        return made
    raise ValueError(f"there are {', '.join(KINDS)}")
