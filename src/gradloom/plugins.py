"""Registries of gradloom, extended by entry points of other packages.

A package adds an entry by naming it in its ``pyproject.toml``::

    [project.entry-points."gradloom.presets"]
    my-preset = "my_package.presets:PRESET"

Nothing is imported before it is looked up, and ``gradloom --help`` looks nothing up.
"""

import functools
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["Homes", "Named", "Table"]

T = TypeVar("T")


class Named:
    """A callable that is imported when it is called.

    It is hardware that most runs do without.

    Parameters
    ----------
    module, name : str
        Where it stands.
    """

    def __init__(self, module: str, name: str) -> None:
        self.__module__, self.__name__ = module, name

    def __call__(self, *arguments: Any) -> Any:
        """Imports it, and calls it."""
        return getattr(import_module(self.__module__), self.__name__)(*arguments)

    def __repr__(self) -> str:
        return f"{self.__module__}:{self.__name__}"


class Homes(Mapping[str, T]):
    """Objects by name, each imported when it is looked up.

    Parameters
    ----------
    homes : mapping
        ``module:object`` by name.
    """

    def __init__(self, homes: Mapping[str, str]) -> None:
        self._homes, self._found = dict(homes), dict[str, T]()

    def __getitem__(self, name: str) -> T:
        if name not in self._found:
            module, _, where = self._homes[name].partition(":")
            self._found[name] = getattr(import_module(module), where)
        return self._found[name]

    def __contains__(self, name: object) -> bool:
        return name in self._homes

    def without(self, *names: str) -> "Homes[T]":
        """The same but for some names."""
        return Homes({name: home for name, home in self._homes.items() if name not in names})

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)


#: Origin of what needs no plug-in.
_HOUSE = "gradloom"


class Table(Generic[T]):
    """Entries of one kind by name: the house's own, then those of plug-ins.

    Every lookup raises :class:`ValueError` where two plug-ins, or a plug-in and the house, have an entry of one name,
    and where the plug-in that is looked up cannot be imported or is of another kind.

    Parameters
    ----------
    kind : str
        A word for messages.
    group : str
        Entry points' group.
    own : mapping
        The house's own entries.
    holds : str, optional
        ``module:class`` of all entries.
    """

    def __init__(self, kind: str, group: str, own: Mapping[str, T], *, holds: str | None = None) -> None:
        self.kind, self.group, self.own, self._holds = kind, group, own, holds

    def __contains__(self, name: object) -> bool:
        return name in self.own or name in self._plugins()

    def __iter__(self) -> Iterator[str]:
        """Names: the house's own in their order, then those of plug-ins, sorted."""
        return iter((*self.own, *sorted(self._plugins())))

    def __str__(self) -> str:
        """Names, for messages."""
        return ", ".join(self)

    def __getitem__(self, name: str) -> T:
        """The entry called ``name``, imported if it is a plug-in's.

        :class:`KeyError` if there is none.
        """
        plugins = self._plugins()
        return self.own[name] if name in self.own else self._loaded(plugins[name])

    def find(self, name: str) -> T:
        """The entry called ``name``.

        :class:`ValueError` lists all entries otherwise.
        """
        if name not in self:
            raise ValueError(f"{self.kind} {name!r}: must be one of {self}")
        return self[name]

    def items(self) -> Iterator[tuple[str, T]]:
        """All, by name; imports every plug-in of the kind."""
        return ((name, self[name]) for name in self)

    def values(self) -> Iterator[T]:
        """All; imports every plug-in of the kind."""
        return (self[name] for name in self)

    def origin(self, name: str) -> str:
        """Name and version of the distribution that has an entry."""
        return _HOUSE if name in self.own else _origin(self._plugins()[name])

    def _plugins(self) -> dict[str, "EntryPoint"]:
        found: dict[str, EntryPoint] = {}
        for entry in _entry_points(self.group, tuple(sys.path)):
            name = entry.name
            if name in self.own or name in found:
                other = _HOUSE if name in self.own else _origin(found[name])
                raise ValueError(
                    f"{self.kind} {name}: {other} and {_origin(entry)} both have one; remove one of the two packages"
                )
            found[name] = entry
        return found

    def _loaded(self, entry: "EntryPoint") -> T:
        what = f"{self.kind} {entry.name}: plug-in {_origin(entry)}, {entry.value}"
        try:
            found: Any = entry.load()
        except Exception as error:
            raise ValueError(f"{what}: {type(error).__name__}: {error}") from error
        if self._holds is not None:
            module, _, name = self._holds.partition(":")
            if not isinstance(found, getattr(import_module(module), name)):
                raise ValueError(f"{what}: is a {type(found).__name__}, must be a {name}")
        named = getattr(found, "name", entry.name) if not isinstance(found, type) else entry.name
        if named != entry.name:
            raise ValueError(f"{what}: calls itself {named}; give the entry point the same name")
        result: T = found
        return result


@functools.cache
def _entry_points(group: str, paths: tuple[str, ...]) -> tuple["EntryPoint", ...]:
    """Entry points of a group.

    ``paths``: folders in which distributions are searched.
    """
    from importlib.metadata import entry_points

    return tuple(entry_points(group=group))


def _origin(entry: "EntryPoint") -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "an unnamed distribution"
