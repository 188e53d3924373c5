"""Options of a request: help text, bounds and default of each.

The command line, the checks, the Python function's signature and what ``metrics.json`` records follow from the fields.
"""

import dataclasses
import functools
import math
import operator
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self, get_args, get_type_hints

__all__ = ["Bounds", "Option", "Options", "TuneOptions", "check_request", "given", "option"]


def check_request(
    where: str, *, needed: Mapping[str, Any] | None = None, needless: Mapping[str, Any] | None = None
) -> None:
    """Refuses missing options and options that have no meaning.

    An option of ``needed`` is None, or one of ``needless`` is :func:`given`. ``where`` ends both messages.
    """
    for name, value in (needed or {}).items():
        if value is None:
            raise ValueError(f"{name}: must be given {where}")
    for name, value in given(needless or {}).items():
        raise ValueError(f"{name}={value}: must be left out {where}")


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given: neither None nor False."""
    return {name: value for name, value in values.items() if value is not None and value is not False}


@dataclasses.dataclass(frozen=True)
class Bounds:
    """Bounds ``low`` to ``high`` of a value.

    ``open_low`` or ``open_high``: without this bound itself.
    """

    low: float | None = None
    high: float | None = None
    open_low: bool = False
    open_high: bool = False

    def hold(self, value: float) -> bool:
        """Whether ``value`` is within."""
        return math.isfinite(value) and not (
            (self.low is not None and (value <= self.low if self.open_low else value < self.low))
            or (self.high is not None and (value >= self.high if self.open_high else value > self.high))
        )

    def __str__(self) -> str:
        if self.low is None:
            return "a finite number"
        if self.open_low:
            return f"above {self.low:g} and at most {self.high:g}"
        if self.high is None:
            return f"at least {self.low:g}"
        return f"from {_number(self.low)} to {'below ' * self.open_high}{_number(self.high)}"


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(value) if value < 1 << 32 else f"2**{value.bit_length() - 1}"
    return f"{value:g}"


@dataclasses.dataclass(frozen=True)
class Option:
    """Description of a field beside its type and default.

    Parameters
    ----------
    help : str
    bounds : Bounds, optional
    choices : tuple
        The only values; none: any.
    metavar : str, optional
        What stands for the value in help texts.
    usual : str, optional
        What happens where the option is not given, if neither the field's default nor the preset's workload says it.
    file, folder : bool
        The value must be a file that exists; ``folder``: or a folder.
    needed : str, optional
        The option must be given, and why.
    result : bool
        Whether results depend on it.
    """

    help: str
    bounds: Bounds | None = None
    choices: tuple[Any, ...] = ()
    metavar: str | None = None
    usual: str | None = None
    file: bool = False
    folder: bool = False
    needed: str | None = None
    result: bool = True

    def check(self, name: str, value: Any) -> None:
        """Refuses a value out of bounds.

        None means that the option is not given.
        """
        if value is None:
            if self.needed:
                raise ValueError(f"{name}: is needed: {self.needed}")
        elif self.choices and value not in self.choices:
            raise ValueError(f"{name}={value}: must be one of {', '.join(map(str, self.choices))}")
        elif self.bounds is not None and not self.bounds.hold(value):
            raise ValueError(f"{name}={value}: must be {self.bounds}")
        elif self.file and not Path(value).is_file() and not (self.folder and Path(value).is_dir()):
            what = "is a folder: must be a file" if Path(value).is_dir() else "no such file"
            raise ValueError(f"{name}={value}: {what}")


def option(text: str, default: Any = None, **more: Any) -> Any:
    """A field of :class:`Options` with help ``text``.

    ``more``: see :class:`Option`.
    """
    return dataclasses.field(default=default, metadata={"option": Option(help=text, **more)})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a request. None means the workload's default.

    Values are converted to the fields' types; a value of another type is refused with :class:`ValueError`.
    Bounds are checked by :meth:`check`.
    """

    def __post_init__(self) -> None:
        for name, kinds in self.types().items():
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _converted(name, value, kinds))

    @classmethod
    @functools.cache
    def types(cls) -> Mapping[str, tuple[type, ...]]:
        """Types of each field but None; the first is what values become."""
        hints = get_type_hints(cls)
        return {
            each.name: tuple(
                kind for kind in get_args(hints[each.name]) or (hints[each.name],) if kind is not type(None)
            )
            for each in dataclasses.fields(cls)
        }

    @classmethod
    @functools.cache
    def known(cls) -> Mapping[str, Option]:
        """Description of each field, by name."""
        return {each.name: each.metadata["option"] for each in dataclasses.fields(cls)}

    def check(self) -> Self:
        """Refuses the first value out of its bounds.

        :class:`ValueError` names field, value and bound.
        """
        for name, known in self.known().items():
            known.check(name, getattr(self, name))
        return self

    def facts(self) -> dict[str, Any]:
        """Values that results depend on, as plain data.

        Of files and folders it has their names.
        """
        return {
            name: _plain(getattr(self, name), Path in self.types()[name])
            for name, known in self.known().items()
            if known.result
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class TuneOptions(Options):
    """Options of every fine-tune."""

    lr: float | None = option("Learning rate.", bounds=Bounds(0, 16, open_low=True))
    seed: int = option(
        "Seed of the initial adapters; for images also of split and order.", 0, bounds=Bounds(0, 1 << 63)
    )
    engine: str = option("Engine of execution.", "rtl", choices=("rtl", "reference", "float"))
    design: Path | str | None = option(
        "Output folder of an earlier gradloom generate, to use its design.", metavar="DIR"
    )


def _plain(value: Any, path: bool) -> Any:
    return Path(value).name if path and value is not None else value


def _converted(name: str, value: Any, kinds: tuple[type, ...]) -> Any:
    kind = kinds[0]
    make, wanted = _KINDS[kind]
    try:
        return make(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name}={value!r}: must be {wanted}") from None


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _real(value: Any) -> float:
    if isinstance(value, str | bool):
        raise TypeError
    return float(value)


def _whole(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError
    return operator.index(value)


#: How a value becomes one of a type, and what the type is called.
_KINDS: Mapping[type, tuple[Callable[[Any], Any], str]] = {
    Path: (Path, "a path"),
    str: (os.fspath, "a text"),
    int: (_whole, "an integer"),
    float: (_real, "a number"),
    bool: (_truth, "true or false"),
}
