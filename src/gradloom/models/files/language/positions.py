"""Rotary positions in transformers' ``config.json``."""

import math
from collections.abc import Mapping
from typing import Any

from ...language import Scaling
from ..keys import ANY, check_keys, shown

__all__ = ["SCALED", "base_and_scaling", "by_kind", "turned"]

#: By the kind of positions: keys that are read, by the fields of :class:`~..language.Scaling`.
SCALED: dict[str, dict[str, str]] = {
    "default": {},
    "linear": {"factor": "factor"},
    "llama3": {
        "factor": "factor",
        "low": "low_freq_factor",
        "high": "high_freq_factor",
        "original": "original_max_position_embeddings",
    },
    "longrope": {"divisors": "short_factor"},
}
#: An older name.
_LONG = ("longrope", "su")
#: Keys of it that are read beside these: of texts beyond the first length, and of the size of what is turned.
_OF_LONG = frozenset(("long_factor", "factor", "attention_factor", "original_max_position_embeddings"))
#: Other keys of their object, with the values for which they change nothing.
_ROPE: dict[str, tuple[Any, ...]] = {
    "partial_rotary_factor": (1.0,),
    "factor": (1.0,),
    "original_max_position_embeddings": ANY,
}
#: Objects that hold the positions' constants, in newer files and in older ones.
_OBJECTS = ("rope_parameters", "rope_scaling")


def base_and_scaling(config: Mapping[str, Any], default: float, *, partial: bool = False) -> tuple[Any, Scaling | None]:
    """Base of the rotary angles, which stands in one of three places, and their scaling.

    ``default``: base of a file without one. ``partial``: a share of a head may turn (:func:`turned`).
    """
    thetas: dict[str, Any] = {"rope_theta": config.get("rope_theta")}
    scalings: dict[str, Scaling | None] = {}
    for key in _OBJECTS:
        rope = config.get(key)
        if rope is None:
            continue
        kinds = [] if not isinstance(rope, dict) else [rope[each] for each in ("rope_type", "type") if each in rope]
        kinds = ["longrope" if each in _LONG else each for each in kinds]
        if not isinstance(rope, dict) or any(not isinstance(each, str) or each not in SCALED for each in kinds):
            raise ValueError(f"{key}={shown(rope)}: rope_type must be one of {', '.join(SCALED)}")
        fields = SCALED[kinds[0] if kinds else "default"]
        handled = {"rope_theta", "rope_type", "type", *fields.values()}
        handled |= _OF_LONG if "divisors" in fields else set()
        handled |= {"partial_rotary_factor"} if partial else set()
        try:
            if len({*kinds}) > 1:
                raise ValueError(f"rope_type={shown(kinds[0])}: must be type={shown(kinds[1])}; remove the wrong one")
            check_keys(rope, handled=handled, harmless=_ROPE)
            missing = next((each for each in fields.values() if rope.get(each) is None), None)
            if missing:
                raise ValueError(f"{missing}: is missing; {kinds[0]} positions need it")
            values = {each: rope[its] for each, its in fields.items()}
            if "divisors" in values:
                values |= _long(config, rope)
            scalings[key] = Scaling(**values) if fields else None
        except ValueError as error:
            raise ValueError(f"{key}.{error}") from None
        thetas[f"{key}.rope_theta"] = rope.get("rope_theta")
    if len({*scalings.values()}) > 1:
        raise ValueError("rope_scaling: must be rope_parameters; remove the one that is wrong")
    (first, theta), *others = [each for each in thetas.items() if each[1] is not None] or [("", default)]
    for key, value in others:
        if value != theta:
            raise ValueError(f"{key}={shown(value)}: must be {first}={shown(theta)}; remove the one that is wrong")
    return theta, next(iter(scalings.values()), None)


def _long(config: Mapping[str, Any], rope: Mapping[str, Any]) -> dict[str, tuple[float, ...] | float]:
    """Of positions by divisors: these, the most tokens for which they hold, and the size of what is turned."""
    if not isinstance(rope["short_factor"], list):
        raise ValueError(f"short_factor={shown(rope['short_factor'])}: must be a list of numbers")
    # Phi-3 has the length of the first training outside.
    at = config.get("original_max_position_embeddings") or rope.get("original_max_position_embeddings")
    most = config.get("max_position_embeddings")
    original = most if at is None else at
    if isinstance(original, bool) or not isinstance(original, int) or original < 2:
        raise ValueError(f"original_max_position_embeddings={shown(original)}: must be an integer above 1")
    factor, size = rope.get("factor"), rope.get("attention_factor")
    if factor is None:
        factor = most / original if isinstance(most, int) else 1.0
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor < 1e12:
        raise ValueError(f"factor={shown(factor)}: must be a number above 0 and below 1e12")
    if size is None:
        size = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    return {"divisors": tuple(rope["short_factor"]), "original": original, "size": size}


def by_kind(config: Mapping[str, Any], defaults: tuple[float, float]) -> tuple[Any, Scaling | None, Any]:
    """Base and scaling of layers with all tokens in view, and the base of those with a window.

    ``defaults``: the bases of a file without them.
    """
    held = config.get("rope_parameters")
    nested = held if isinstance(held, dict) else {}
    if held is not None and (not isinstance(held, dict) or nested.keys() - {"full_attention", "sliding_attention"}):
        raise ValueError(f"rope_parameters={shown(held)}: must have full_attention and sliding_attention alone")
    whole = {"rope_parameters": nested.get("full_attention")}
    whole |= {key: config.get(key) for key in ("rope_theta", "rope_scaling", "max_position_embeddings")}
    window = {"rope_theta": config.get("rope_local_base_freq"), "rope_parameters": nested.get("sliding_attention")}
    try:
        theta, scaling = base_and_scaling(whole, defaults[0])
        local, other = base_and_scaling(window, defaults[1])
    except ValueError as error:
        raise ValueError(str(error).replace("rope_parameters.", "rope_parameters.*.", 1)) from None
    if other is not None:
        raise ValueError(f"rope_parameters={shown(held)}: sliding_attention must have rope_type default")
    return theta, scaling, local


def turned(config: Mapping[str, Any], head_dim: Any) -> int | None:
    """Elements of a head that turn, of a file that may have a share of them; None for all."""
    found = {"partial_rotary_factor": config.get("partial_rotary_factor")}
    found |= {
        f"{key}.partial_rotary_factor": rope.get("partial_rotary_factor")
        for key in _OBJECTS
        if isinstance(rope := config.get(key), dict)
    }
    shares = {key: value for key, value in found.items() if value is not None}
    if len({*map(repr, shares.values())}) > 1:
        raise ValueError(f"{' and '.join(shares)} differ; remove the one that is wrong")
    for key, share in shares.items():
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
            raise ValueError(f"{key}={shown(share)}: must be a number above 0, at most 1")
        count = int(head_dim * share) if isinstance(head_dim, int) else 0
        if count < 2 or count % 2:
            raise ValueError(f"{key}={shown(share)}: turns {count} elements of a head; must be an even number above 0")
        return None if count == head_dim else count
    return None
