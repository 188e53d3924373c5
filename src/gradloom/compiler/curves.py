"""Functions of values as the element engine has them."""

from collections.abc import Callable
from functools import cache

from gradloom.graph.operations import Activation
from gradloom.rtl.formats.tiles.functions import (
    GELU,
    GELU_TANH,
    HARD_SIGMOID,
    HARD_SWISH,
    LOGISTIC,
    SILU,
    TANH,
    Function,
    clip,
    elu,
    leaky,
)

__all__ = ["KINDS", "function_of"]

_PLAIN = {
    "silu": SILU,
    "gelu": GELU,
    "gelu_tanh": GELU_TANH,
    "sigmoid": LOGISTIC,
    "tanh": TANH,
    "hard_swish": HARD_SWISH,
}
_MADE: dict[str, Callable[..., Function]] = {"clip": clip, "leaky_relu": leaky, "elu": elu}
#: Names of functions that the machine has.
KINDS = ("relu", "affine", "hard_sigmoid", *_PLAIN, *_MADE)
#: How far a constant of a file may be from the table's.
_CLOSE = 1e-6


def function_of(each: Activation) -> Function:
    """The tables of an activation; :class:`ValueError` where there are none."""
    try:
        return _function(each.kind, each.parameters)
    except ValueError as error:
        raise ValueError(f"{each.o.name}: {each.kind}{_said(each)} has no table: {error}") from None


def _said(each: Activation) -> str:
    return f"({', '.join(f'{value:g}' for value in each.parameters)})" if each.parameters else ""


@cache
def _function(kind: str, parameters: tuple[float, ...]) -> Function:
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind in _MADE:
        return _MADE[kind](*parameters)
    if kind == "hard_sigmoid":
        gain, shift = parameters
        if abs(gain - 1 / 6) > _CLOSE or abs(shift - 0.5) > _CLOSE:
            raise ValueError("gain and shift must be 1/6 and 0.5")
        return HARD_SIGMOID
    raise ValueError(f"there are {', '.join(KINDS)}")
